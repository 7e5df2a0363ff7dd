"""COCO's JSON: images, categories and annotations of instances or keypoints; and the records that
the Keras recipe makes of it, one an annotation, the image in each of them.

Sources: cocodataset.org/#format-data; keras.io/examples/keras_recipes/creating_tfrecords (Dimitre
Oliveira): the features of ``create_example``.
"""

from __future__ import annotations

import contextlib
import json
import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfod.convert.documents import read_json
from tfod.errors import TfodError
from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature

_LONGEST_REASON = 200
_LONGEST_QUOTE = 60


@dataclass(frozen=True)
class CocoFile:
    """What a file says, its entries as the JSON has them, in its order.

    Annotations are by ``image_id``, also of images that are not listed. Each has only the fields
    that were asked for; a polygon is an array of float64.
    """

    path: str
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: dict[Any, list[dict[str, Any]]]


def read_coco(path: str, fields: Collection[str], without: Collection[str] = ()) -> CocoFile:
    """Read a file into memory, of each annotation only some fields: outlines are most of it.

    It need not have the lists ``without``.

    Raises:
        TfodError: it cannot be read, or is not COCO JSON.
    """
    kept = frozenset(fields)

    def slim(found: dict[str, Any]) -> dict[str, Any]:
        if "image_id" not in found:
            return found
        one = {key: value for key, value in found.items() if key in kept or key == "image_id"}
        if isinstance(one.get("segmentation"), list):
            one["segmentation"] = [_packed(polygon) for polygon in one["segmentation"]]
        return one

    found = read_json(path, object_hook=slim)
    lists: dict[str, list[Any]] = {}
    for name in ("images", "annotations", "categories"):
        default: list[Any] | None = [] if name in without else None
        entries = found.get(name, default) if isinstance(found, dict) else None
        if not isinstance(entries, list):
            raise TfodError(f"{path} is not COCO JSON: it lacks images, annotations or categories")
        lists[name] = entries
    annotations: dict[Any, list[dict[str, Any]]] = {}
    with sound_coco(path):
        for name, entries in lists.items():
            for one in entries:
                if not isinstance(one, dict):
                    raise ValueError(f"an entry of {name} is {quoted(one)}, expected an object")
        for one in lists["annotations"]:
            annotations.setdefault(scalar(one, "image_id"), []).append(one)
    return CocoFile(path, lists["images"], lists["categories"], annotations)


@contextlib.contextmanager
def sound_coco(where: str) -> Iterator[None]:
    """Whatever is amiss with an entry inside becomes an error that reads as one line."""
    try:
        yield
    except KeyError as error:
        raise TfodError(f"{where}: {error} is missing; add it") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise TfodError(f"{where}: {reason}; correct it") from None
    except (TypeError, AttributeError, OverflowError):
        raise TfodError(
            f"{where}: a value has another type than COCO has there; correct it"
        ) from None


def scalar(entry: Mapping[str, Any], key: str) -> Any:
    """An entry's id, or that of another entry: a number or a text.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    value = entry[key]
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise ValueError(f"{key} is {quoted(value)}, expected a number")


def whole_number(entry: Mapping[str, Any], key: str) -> int:
    """A number without a fraction, which may be written as a text; raises as :func:`scalar`."""
    value = scalar(entry, key)
    with contextlib.suppress(ValueError, OverflowError):
        number = int(value)
        if isinstance(value, str) or number == value:
            return number
    raise ValueError(f"{key} is {quoted(value)}, expected a whole number")


def numbers(value: Any, count: int, name: str) -> list[float]:
    """A list of so many numbers, which need not be finite; ValueError for something else."""
    if isinstance(value, list) and len(value) == count and all(map(is_number, value)):
        return [_float(one) for one in value]
    raise ValueError(f"{name} is {quoted(value)}, expected {count} numbers")


def real_number(value: Any, name: str) -> float:
    """A finite number; ValueError for something else."""
    if is_number(value) and math.isfinite(_float(value)):
        return _float(value)
    raise ValueError(f"{name} is {quoted(value)}, expected a number")


def quoted(value: Any) -> str:
    """A value as JSON has it, cut short."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 1] + "…"


def is_number(value: Any) -> bool:
    """Whether a value is a number, which truth is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _packed(polygon: Any) -> Any:
    """A polygon in an eighth of the memory; whatever else it is stays and is checked later."""
    try:
        return array("d", polygon)
    except (TypeError, OverflowError):
        return polygon


@dataclass(frozen=True)
class KerasAnnotation:
    """One object of an image, as the recipe has it; box is x, y, width, height in pixels."""

    id: int
    category_id: int
    box: tuple[float, float, float, float]
    area: float


def encode_keras_annotations(
    encoded: bytes, path: str, image_id: int, annotations: Iterable[KerasAnnotation]
) -> Iterator[bytes]:
    """The records of an image, serialized Examples with the recipe's features in its order.

    Raises:
        OverflowError: a number does not fit into 64 bits.
    """
    image = bytes_feature([encoded])
    for one in annotations:
        yield encode_example(
            {
                "image": image,
                "path": bytes_feature([path.encode()]),
                "area": float_feature([one.area]),
                "bbox": float_feature(one.box),
                "category_id": int64_feature([one.category_id]),
                "id": int64_feature([one.id]),
                "image_id": int64_feature([image_id]),
            }
        )

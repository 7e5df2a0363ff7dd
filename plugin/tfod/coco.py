"""COCO's JSON: pictures, categories and annotations of instances, keypoints or captions.

Source: cocodataset.org/#format-data.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tfod.errors import TfodError
from tfod.json_file import read_json

_LONGEST_REASON = 200


@dataclass(frozen=True)
class CocoFile:
    """What a file says, its entries as the JSON has them.

    Attributes:
        path: of the file.
        images, categories: in the file's order.
        annotations: by ``image_id``, in the file's order, also of images that are not listed. Each
            has only the fields that were asked for; a polygon is an array of float64.
    """

    path: str
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: dict[Any, list[dict[str, Any]]]


def read_coco(path: str, fields: Collection[str], without: Collection[str] = ()) -> CocoFile:
    """Read a file into memory, of each annotation only some fields: outlines are most of it.

    Args:
        path: of the file.
        fields: of an annotation that are kept, where it has them.
        without: lists that this file need not have (captions come without ``categories``).

    Raises:
        TfodError: it cannot be read, or is no COCO JSON.
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
    lists = {"images", "annotations", "categories"}
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), list) for key in lists.difference(without)
    ):
        raise TfodError(f"{path} is no COCO JSON: it lacks images, annotations or categories")
    annotations: dict[Any, list[dict[str, Any]]] = {}
    with sound_coco(path):
        for one in found.get("annotations", ()):
            annotations.setdefault(one["image_id"], []).append(one)
    return CocoFile(path, found["images"], found.get("categories", []), annotations)


@contextlib.contextmanager
def sound_coco(path: str) -> Iterator[None]:
    """Whatever is amiss with an entry inside becomes an error that reads as one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise TfodError(
            f"{path} is no sound COCO JSON ({type(error).__name__}: {reason}); make it again"
        ) from None


def _packed(polygon: Any) -> Any:
    """A polygon in an eighth of the memory; whatever else it is stays and is judged later."""
    try:
        return array("d", polygon)
    except (TypeError, OverflowError):
        return polygon

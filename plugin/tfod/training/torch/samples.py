"""From a record to an image and a target, as torchvision's detection models take them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.errors import TfodError, how_to_install
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.reader import RecordBatch
from tfod.training.training_input import UNKNOWN, ClassIds, LabelMapLike, label_map_for

Transform = Callable[[Any, dict[str, Any]], Any]


class SampleMaker:
    """Makes the elements of :class:`tfod.torch.Detections`, which says what they are."""

    def __init__(
        self,
        paths: Sequence[str],
        label_map: LabelMapLike | None,
        masks: bool,
        transform: Transform | None,
    ) -> None:
        found = label_map_for(paths, label_map)
        self._paths = paths
        self._classes = None if found is None else ClassIds.of(found)
        self._masks = masks
        self._transform = transform

    def make(self, shard: int, records: RecordBatch, rows: Iterable[int] = (0,)) -> Iterator[Any]:
        """Decode some records of a batch of the shard of this number.

        Raises:
            RecordError: one is not a sound Example, or has no image that can be decoded.
        """
        detections = Detections(ExampleBatch.of(records))
        for row in rows:
            yield self._element(shard, detections[row], Example(detections.examples, row))

    def _element(self, shard: int, detection: Detection, example: Example) -> Any:
        pixels = _decode(detection.encoded, "RGB", example, keys.ENCODED)
        height, width = pixels.shape[:2]
        scale = np.array([width, height, width, height], np.float32)
        boxes = torch.from_numpy(detection.boxes * scale)
        target = {
            "boxes": boxes,
            "labels": torch.tensor(self._labels(detection, example), dtype=torch.int64),
            "image_id": (shard << 32) + example.record.number,
            "area": _area(detection, boxes),
            "iscrowd": _is_crowd(detection),
            "source_id": detection.source_id or "",
            "filename": detection.filename or "",
        }
        if self._masks:
            target["masks"] = torch.from_numpy(_masks(detection, example, height, width))
        image = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
        return (image, target) if self._transform is None else self._transform(image, target)

    def _labels(self, detection: Detection, example: Example) -> Sequence[int]:
        count = len(detection.boxes)
        if self._classes is not None:
            return self._classes.ids(detection.class_text, detection.class_label, count)
        if detection.class_text and not detection.class_label:
            raise example.error(
                "is all there is of classes, and there is not a label map",
                feature=keys.CLASS_TEXT,
                fix="choose one by label_map=",
            )
        return detection.class_label or [UNKNOWN] * count


def _decode(encoded: bytes | memoryview | None, mode: str, example: Example, key: str) -> Any:
    """The pixels of an image file: an array of uint8 that must not be written to."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise TfodError(f"decoding images needs Pillow; {how_to_install('torch')}") from None
    if not encoded:
        raise example.error(
            "is missing or empty", feature=key, fix="export the shard with its images"
        )
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            if mode == "RGB" and image.mode.startswith("I"):
                # 16 bits, of which Pillow would cut off values at 255; TensorFlow takes the high 8.
                high = np.asarray(image).astype(np.int64) >> 8
                return np.repeat(high.clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
            return np.asarray(image if image.mode == mode else image.convert(mode))
    except MemoryError:
        raise  # that says nothing of the image
    except Exception as error:  # of any kind: Pillow's readers do not foresee all damage
        reason = " ".join(str(error).split())[:200]
        raise example.error(
            f"cannot be decoded ({reason})", feature=key, fix="see tfod check --decode all"
        ) from None


def _area(detection: Detection, boxes: torch.Tensor) -> torch.Tensor:
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for number, area in enumerate(detection.attributes.get("area", ())):
        if isinstance(area, (int, float)):
            areas[number] = area
    return areas


def _is_crowd(detection: Detection) -> torch.Tensor:
    flags = detection.attributes.get("is_crowd") or [0] * len(detection.boxes)
    return torch.tensor([int(bool(flag)) for flag in flags], dtype=torch.int64)


def _masks(detection: Detection, example: Example, height: int, width: int) -> np.ndarray:
    """The masks of a record, uint8 of shape (n, height, width), 0 or 1."""
    masks = np.zeros((len(detection.boxes), height, width), np.uint8)
    decoded: Iterable[Any] = ()
    if detection.numerical_masks is not None:
        decoded = detection.numerical_masks
    elif detection.masks is not None:
        decoded = [
            None if mask is None else _decode(mask.data, "L", example, keys.MASK)
            for mask in detection.masks
        ]
    for number, mask in enumerate(decoded):
        if mask is None:
            continue
        if mask.shape != (height, width):
            raise example.error(
                f"is {mask.shape[1]} x {mask.shape[0]}, but the image {width} x {height}",
                feature=keys.MASK,
                fix="export the shard again",
            )
        masks[number] = mask > 0
    return masks

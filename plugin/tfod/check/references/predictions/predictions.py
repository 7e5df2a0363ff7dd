"""Predictions of a detector, read from COCO results.

Sources: cocodataset.org/#format-results, a list of ``{image_id, category_id, bbox, score}``;
Ultralytics' ``save_json``, whose ``image_id`` is the name of a file that is not a number.
"""

from __future__ import annotations

import math
import posixpath
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tfod.convert.coco import numbers, real_number, scalar, sound_coco, whole_number
from tfod.convert.documents import read_json
from tfod.errors import TfodError
from tfod.tfrecord.image_names import ImageNames, split_extension

LEAST_SCORE = 0.1
"""Less confident ones are not looked at; most files of results have them down to 0.001."""
MOST_AN_IMAGE = 300
"""Of each image the most confident ones; COCO's evaluation takes 100."""
_MOST_DIGITS = 18


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a file says, the detections of each image together, the most confident first.

    Attributes:
        source: path of the file.
        ids: the ``image_id`` of each image, as text.
        images: the file name of each image; empty where the file does not list them.
        sizes: height and width of each image in pixels, NaN where the file does not say; float64
            of shape (images, 2).
        row_splits: where the detections of each image begin and end, int64 of shape (images + 1,).
        boxes: ``xmin, ymin, xmax, ymax`` in pixels, float64 of shape (n, 4).
        categories: ``category_id`` of each, int64 of shape (n,).
        scores: from 0 to 1, float64 of shape (n,).
        names: of the categories, where the file has a list of them.
        unusable: how many detections have a box or a score that is not finite.
        counts: how many detections each image has, those that are not looked at, too.
    """

    source: str
    ids: tuple[str, ...]
    images: tuple[str, ...]
    sizes: np.ndarray
    row_splits: np.ndarray
    boxes: np.ndarray
    categories: np.ndarray
    scores: np.ndarray
    names: Mapping[int, str]
    unusable: int
    counts: np.ndarray

    def find(self, source_id: str | None, filename: str | None) -> int | None:
        """The image of a record; None where there is none, or several fit.

        By file name where the file lists them, else by source id, by the number in the file name,
        and by a file name in place of the id.
        """
        named = self._names.find(filename) if filename else ()
        stem = split_extension(posixpath.basename((filename or "").replace("\\", "/")))[0]
        found = [self._by_id.get(_id_text(one)) for one in (source_id, stem) if one]
        found.insert(0 if self.images else len(found), named[0] if len(named) == 1 else None)
        return next((one for one in found if one is not None), None)

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {one: place for place, one in enumerate(self.ids)}

    @cached_property
    def _names(self) -> ImageNames:
        return ImageNames(self.images or self.ids)


def load_predictions(path: str) -> Predictions:
    """Read a JSON of COCO results, or a COCO JSON whose annotations have scores.

    Memory is that of the text and 60 bytes a detection.

    Raises:
        TfodError: it cannot be read or is something else; a detection lacks a key, or a value is of
            another type.
    """
    reader = _Reader(path)
    found = read_json(path, object_hook=reader.take)
    images: list[Any] = []
    categories: list[Any] = []
    if isinstance(found, dict):
        images, categories = found.get("images") or [], found.get("categories") or []
        found = found.get("annotations")
    if not isinstance(found, list) or not found or any(one is not None for one in found):
        raise TfodError(
            f"{path} is not a list of detections; give COCO results: a list of objects with "
            "image_id, category_id, bbox and score"
        )
    with sound_coco(path):
        names = {whole_number(one, "id"): str(scalar(one, "name")) for one in categories}
        listed = {_id_text(scalar(one, "id")): one for one in images}
        return reader.predictions(listed, names)


def _id_text(value: Any) -> str:
    """An id as text: numbers are the same as numbers and as texts, with leading zeros or not."""
    if type(value) is int:
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    is_number = len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit()
    return str(int(text)) if is_number else text


class _Reader:
    """Takes each object of a JSON as it is parsed; detections become numbers at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._images, self._categories = array("q"), array("q")
        self._values = array("d")  # four of the box and the score

    def take(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """Keep a detection and return None; other objects are returned as they are."""
        if "image_id" not in found:
            return found
        try:
            image = _id_text(scalar(found, "image_id"))
            category = whole_number(found, "category_id")
            x, y, width, height, score = numbers([*found["bbox"], found["score"]], 5, "bbox, score")
            if score < 0 or score > 1:
                raise ValueError(f"score is {score}, expected a probability from 0 to 1")
            self._categories.append(category)
        except Exception:  # entered for an error alone: there are a million detections
            with sound_coco(f"{self._path}, detection {len(self._images)}"):
                raise
        self._images.append(self._places.setdefault(image, len(self._places)))
        self._values.extend((x, y, x + width, y + height, score))
        return None

    def predictions(
        self, listed: Mapping[str, Mapping[str, Any]], names: Mapping[int, str]
    ) -> Predictions:
        """All that was taken, and the images that the file lists."""
        for one in listed:
            self._places.setdefault(one, len(self._places))
        ids = tuple(self._places)
        sizes = np.full((len(ids), 2), np.nan)
        files = list(ids)
        for one, image in listed.items():
            place = self._places[one]
            files[place] = str(scalar(image, "file_name"))
            sides = (real_number(image.get(side) or 0, side) for side in ("height", "width"))
            sizes[place] = [side if side > 0 else math.nan for side in sides]
        images = np.asarray(self._images)
        values = np.asarray(self._values).reshape(-1, 5)
        usable = np.isfinite(values).all(axis=1)
        counts = np.bincount(images, minlength=len(ids))
        wanted = np.flatnonzero(usable & (values[:, 4] >= LEAST_SCORE))
        order = wanted[np.lexsort((-values[wanted, 4], images[wanted]))]
        number = np.arange(len(order)) - np.searchsorted(images[order], images[order])
        order = order[number < MOST_AN_IMAGE]
        kept = np.bincount(images[order], minlength=len(ids))
        return Predictions(
            source=self._path,
            ids=ids,
            images=tuple(files) if listed else (),
            sizes=sizes,
            row_splits=np.concatenate(([0], np.cumsum(kept))),
            boxes=values[order, :4],
            categories=np.asarray(self._categories)[order],
            scores=values[order, 4],
            names=names,
            unusable=int((~usable).sum()),
            counts=counts,
        )

"""Annotations that a shard was made from, in one shape, whatever format they have.

Boxes are in pixels, ``xmin, ymin, xmax, ymax``, as the source has them.
"""

from __future__ import annotations

import functools
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.tfrecord.image_names import safe_relative_path, split_extension


@dataclass(frozen=True)
class SourceImage:
    """One image of the source.

    Attributes:
        name: as the source has it, a path with forward slashes.
        height, width: in pixels; None where the source does not say.
        boxes: float64 of shape (n, 4), in pixels.
        classes: n names.
    """

    name: str
    height: int | None
    width: int | None
    boxes: np.ndarray
    classes: tuple[str, ...]

    @classmethod
    def make(
        cls,
        name: str,
        size: tuple[int | None, int | None],
        boxes: Sequence[Sequence[float]],
        classes: Iterable[str],
    ) -> SourceImage:
        """Make one from plain values; the size is height and width, 0 or less is unknown."""
        corners = np.array(boxes, "<f8").reshape(-1, 4)
        path = name.replace("\\", "/").removeprefix("./")
        height, width = (int(one) if one and one > 0 else None for one in size)
        return cls(path, height, width, corners, tuple(classes))


@dataclass(frozen=True)
class Annotations:
    """All of a source.

    Attributes:
        source: path of the file or folder.
        images: in the order of the source.
        from_one: pixels are counted from 1, as in Pascal VOC; some writers subtract that and
            some do not.
        notes: what is not compared, as sentences.
    """

    source: str
    images: tuple[SourceImage, ...]
    from_one: bool = False
    notes: tuple[str, ...] = ()

    def find(self, filename: str) -> tuple[int, ...]:
        """Places in ``images`` of those that a record's file name can mean.

        The full relative name is the strongest, then the last part, then that without extension.
        """
        path = safe_relative_path(filename)
        if not path:
            return ()
        base = posixpath.basename(path)
        by_path, by_base, by_stem = self._index
        for index, name in ((by_path, path), (by_base, base), (by_stem, split_extension(base)[0])):
            if name in index:
                return index[name]
        return ()

    @functools.cached_property
    def _index(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        by_path, by_base, by_stem = (defaultdict(list) for _ in range(3))
        for place, image in enumerate(self.images):
            path = safe_relative_path(image.name)
            base = posixpath.basename(path)
            by_path[path].append(place)
            by_base[base].append(place)
            by_stem[split_extension(base)[0]].append(place)
        indexes = (by_path, by_base, by_stem)
        return tuple({name: tuple(at) for name, at in index.items()} for index in indexes)

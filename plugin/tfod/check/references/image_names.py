"""Which of a source's images a record's file name means."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from tfod.tfrecord.image_names import safe_relative_path, split_extension


class ImageNames:
    """The names of a source's images, paths with forward slashes, in its order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find(self, filename: str) -> tuple[int, ...]:
        """Places of the images that a record's file name can mean, the same tuple each time.

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

    @cached_property
    def _index(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        by_path, by_base, by_stem = (defaultdict(list) for _ in range(3))
        for place, name in enumerate(self._names):
            path = safe_relative_path(name)
            base = posixpath.basename(path)
            by_path[path].append(place)
            by_base[base].append(place)
            by_stem[split_extension(base)[0]].append(place)
        indexes = (by_path, by_base, by_stem)
        return tuple({name: tuple(at) for name, at in index.items()} for index in indexes)

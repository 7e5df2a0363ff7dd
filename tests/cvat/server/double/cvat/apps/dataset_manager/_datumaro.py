"""The names of the installed Datumaro that this package uses, and the items that it makes.

Facts: the 0.3 line has ``SourceExtractor``, ``Image`` and ``ByteImage`` whose loader is given a
path; 1.x has ``DatasetBase``, ``Image.from_bytes``, ``from_numpy`` and ``from_file`` whose loader
is given nothing. CVAT's fork of 1.x takes a callable for an item's annotations; PyPI's does not,
so :class:`LazyItem` stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datumaro as dm

IS_OLD = hasattr(dm, "SourceExtractor")
Base: Any = dm.Extractor if IS_OLD else dm.DatasetBase


class LazyItem(dm.DatasetItem):
    """A dataset item whose annotations are computed when they are first looked at."""

    __slots__ = ("_lazy", "_own")

    def __init__(self, id: str, *, annotations: Any = None, **others: Any) -> None:
        self._lazy: Callable[[], list[Any]] | None = None  # Datumaro validates a list
        is_lazy = callable(annotations)
        super().__init__(id, annotations=[] if is_lazy else annotations, **others)
        if is_lazy:
            self._lazy = annotations

    @property
    def annotations(self) -> list[Any]:
        if self._lazy is not None:
            lazy, self._lazy = self._lazy, None
            self._own = lazy()
        return self._own

    @annotations.setter
    def annotations(self, value: list[Any]) -> None:
        self._own = value


def image_from_bytes(read: Callable[[], bytes], path: str, ext: str, size: Any) -> Any:
    if IS_OLD:
        return dm.ByteImage(data=lambda _: read(), path=path, size=size)
    return dm.Image.from_bytes(data=read, ext=ext, size=size)


def image_from_pixels(read: Callable[[], Any], path: str, ext: str, size: Any) -> Any:
    if IS_OLD:
        return dm.Image(data=lambda _: read(), path=path, size=size)
    return dm.Image.from_numpy(data=read, ext=ext, size=size)


def image_without_data(path: str, ext: str, size: Any) -> Any:
    if IS_OLD:
        return dm.Image(path=path, size=size)
    return dm.Image.from_file(path=path, ext=ext, size=size)


def find_label(categories: Any, name: str) -> int:
    return int(categories[dm.AnnotationType.label].find(name)[0])

"""What our readers share: a dataset that is read as a whole when it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfod.datumaro import lines
from tfod.errors import TfodError


class ReadDataset(lines.DatasetBase):
    """Items and categories that are there; subclasses set both while they are made."""

    _items: list[Any]
    _categories: Any

    def __iter__(self) -> Iterator[Any]:
        yield from self._items

    def __len__(self) -> int:
        return len(self._items)

    def categories(self) -> Any:
        return self._categories


@contextlib.contextmanager
def import_errors(path: str) -> Iterator[None]:
    """Turn errors of ours and of the file system into Datumaro's.

    Raises:
        DatasetImportError: with one line that says what, where and what to do.
    """
    try:
        yield
    except TfodError as error:
        raise lines.errors.DatasetImportError(str(error)) from error
    except OSError as error:
        raise lines.errors.DatasetImportError(f"{path}: {error.strerror}") from error

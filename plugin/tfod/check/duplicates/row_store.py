"""Where blocks of rows wait for the end of a check: a few in memory, the others in a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import BinaryIO

from tfod.check.duplicates.row_blocks import FileSpan, RowBlock
from tfod.errors import TfodError

_IN_MEMORY = 4 << 20


class RowStore:
    """Keeps blocks.

    Args:
        folder: where those go that memory is too small for; None to keep all in memory. Several
            processes may use the same folder.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._held = 0
        self._file: BinaryIO | None = None
        self._written = 0

    def keep(self, block: RowBlock) -> RowBlock:
        """The block as it is kept.

        Raises:
            TfodError: there is no room for it.
        """
        data = block.data
        if self._folder is None or isinstance(data, FileSpan):
            return block
        if self._held + len(data) <= _IN_MEMORY:
            self._held += len(data)
            return block
        try:
            return replace(block, data=self._write(data, self._folder))
        except OSError as error:
            raise TfodError(
                f"{self._folder}: what is remembered of the records cannot be written there "
                f"({error.strerror}); make room, or set TMPDIR to another folder"
            ) from None

    def _write(self, data: bytes, folder: str) -> FileSpan:
        if self._file is None:
            handle, self._path = tempfile.mkstemp(dir=folder, prefix="rows-")
            self._file = open(handle, "wb", buffering=0)
        start, view = self._written, memoryview(data)
        while view:
            count = self._file.write(view)
            self._written += count
            view = view[count:]
        return FileSpan(self._path, start, len(data))

    def close(self) -> None:
        """Close the file; what is in it can still be read."""
        if self._file is not None:
            self._file.close()


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for the rows of one check, which is removed at the end.

    Raises:
        TfodError: it cannot be made.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="tfod-rows-", ignore_cleanup_errors=True)
    except OSError as error:
        where = os.environ.get("TMPDIR") or "the folder for temporary files"
        raise TfodError(f"{where} cannot be written to ({error.strerror}); set TMPDIR") from None
    with folder as path:
        yield path

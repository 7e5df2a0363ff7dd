"""Shards that several processes write together, before they have their names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from types import TracebackType

from tfod.tfrecord.publishing import WriteError, absent_folders
from tfod.tfrecord.remote import require_local


class WorkFolder:
    """A hidden folder inside the one that shards are written to, on the same disk.

    Use as a context manager: it goes in the end with all that is in it, and so do the folders that
    were made for it, as far as nothing else is in them.

    Args:
        inside: where the shards go.

    Attributes:
        path: of the folder, absolute.

    Raises:
        WriteError: it cannot be made.
    """

    def __init__(self, inside: str | os.PathLike[str]) -> None:
        require_local(os.fspath(inside))
        folder = os.path.abspath(inside)
        self.path = os.path.join(folder, f".tfod.{os.urandom(8).hex()}.tmp")
        self._made = absent_folders(folder)
        try:
            os.makedirs(self.path)
        except OSError as error:
            self._remove_parents()
            raise WriteError(f"{inside}: cannot write there ({error.strerror})") from None

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._remove_parents()

    def _remove_parents(self) -> None:
        for folder in self._made:
            try:
                os.rmdir(folder)
            except OSError:
                return


class FinishedShards:
    """The complete shards of one subset, in place of the writer that would have made them.

    Args:
        files: where they are, on the disk where they are to be.
        targets: where they are to be.
    """

    def __init__(self, files: Sequence[str], targets: Sequence[str]) -> None:
        self._files = files
        self._targets = list(targets)

    def complete(self) -> None:
        """They are."""

    def paths(self) -> list[str]:
        """Where the shards will be."""
        return self._targets

    def pending(self) -> dict[str, str]:
        """Where the shards are, by the paths that they will have."""
        return dict(zip(self._targets, self._files, strict=True))

    def discard(self) -> None:
        """Whoever made the folder that they are in removes it."""

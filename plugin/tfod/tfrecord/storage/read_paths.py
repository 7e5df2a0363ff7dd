"""What is read is never written over: the one rule for all that a command writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tfod.errors import TfodError


class OutputExistsError(TfodError):
    """There is something already where an output should go."""


class ReadPaths:
    """Files and folders that a command reads, of a folder all that is in it.

    Args:
        paths: of this machine; others (URLs, names of entries in a zip) protect nothing, nor does
            None, an option that was not given.
    """

    def __init__(self, paths: Iterable[str | None]) -> None:
        self._read = {_identity(path) for path in paths if path}

    def require_other(self, output: str) -> None:
        """See that a file or a folder that is to be written is none of them, and lies in none.

        Links are followed. Raises OutputExistsError.
        """
        for path in _and_above(os.path.realpath(output)):
            if _identity(path) in self._read:
                is_other = path != os.path.realpath(output)
                where = f"lies in {path}, which is read" if is_other else "is read"
                raise OutputExistsError(f"{output}: {where} and not written to; name another place")


def _and_above(path: str) -> Iterator[str]:
    yield path
    while path != (path := os.path.dirname(path)):
        yield path


def _identity(path: str) -> tuple[int, int] | str:
    """Which file a path means, by whatever name; of one that is not there its name."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.abspath(path)
    return status.st_dev, status.st_ino

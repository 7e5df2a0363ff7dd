"""Files that this machine and all workers have to see alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tfod.errors import TfodError


def require_shared(folder: str) -> None:
    """See, on a worker, that a folder of the machine that has started it all is here too.

    Raises:
        TfodError: it is not.
    """
    if not os.path.isdir(folder):
        raise TfodError(f"{folder}: a worker does not see it; write to a folder that all share")


@contextlib.contextmanager
def errors_in_utf8() -> Iterator[None]:
    """Say errors so that Beam can send them: for one with another file name it waits for ever."""
    try:
        yield
    except TfodError as error:
        text = str(error)
        sent = text.encode("utf-8", "backslashreplace").decode()
        if sent == text:
            raise
        raise TfodError(sent) from None


def require_here(path: str, size: int | None = None) -> None:
    """See that what a worker has written is on this machine too.

    Raises:
        TfodError: it is not, or it has another size.
    """
    if not os.path.isfile(path) or (size is not None and os.path.getsize(path) != size):
        raise TfodError(
            f"{path}: a worker has written it, and it is not here; write to a folder that all share"
        )

"""Files that this machine and all workers have to see alike."""

from __future__ import annotations

import os

from tfod.errors import TfodError


def require_shared(folder: str) -> None:
    """See, on a worker, that a folder of the machine that has started it all is here too.

    Raises:
        TfodError: it is not.
    """
    if not os.path.isdir(folder):
        raise TfodError(f"{folder}: a worker does not see it; write to a folder that all share")


def require_here(path: str, size: int | None = None) -> None:
    """See that what a worker has written is on this machine too.

    Raises:
        TfodError: it is not, or it has another size.
    """
    if not os.path.isfile(path) or (size is not None and os.path.getsize(path) != size):
        raise TfodError(
            f"{path}: a worker has written it, and it is not here; write to a folder that all share"
        )

"""Writing where there may be no room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tfod.errors import TfodError


@contextmanager
def writing(where: str, fix: str) -> Iterator[None]:
    """Turn what the system says against writing into one line.

    Raises:
        TfodError: it said something.
    """
    try:
        yield
    except OSError as error:
        raise TfodError(f"{where}: cannot be written ({error.strerror}); {fix}") from None

"""Hashes the sources beside the check, in a thread of its own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tfod.check.sources import Location

_STEP = 1 << 20


@contextmanager
def hashing(locations: Sequence[Location]) -> Iterator[Callable[[], dict[str, str]]]:
    """Begin to hash; yields what waits for the result. Whoever leaves early stops it.

    The result has the SHA-256 of each file that can be read, by its name.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        futures = {one.name: pool.submit(sha256_of, one, stop) for one in locations}
        try:
            yield lambda: {
                name: digest
                for name, future in futures.items()
                if (digest := future.result()) is not None
            }
        finally:
            stop.set()


def sha256_of(location: Location, stop: threading.Event | None = None) -> str | None:
    """SHA-256 of a file; None where it cannot be read, which is another's to tell."""
    digest = hashlib.sha256()
    try:
        with location.open() as stream:
            while not (stop and stop.is_set()) and (data := stream.read(_STEP)):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()

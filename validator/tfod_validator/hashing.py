"""Hashes the sources beside the check, in a thread of its own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tfod_validator.report import SourceFile
from tfod_validator.sources import Location

_STEP = 8 << 20


@contextmanager
def hashing(
    locations: Sequence[Location], wanted: bool
) -> Iterator[Callable[[], list[SourceFile]]]:
    """Begin to hash; yields what waits for the result. Whoever leaves early stops it.

    Args:
        locations: what is to be hashed.
        wanted: whether to hash at all; otherwise only the sizes are looked up.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        futures = [pool.submit(_source_file, one, wanted, stop) for one in locations]
        try:
            yield lambda: [one.result() for one in futures]
        finally:
            stop.set()


def _source_file(location: Location, wanted: bool, stop: threading.Event) -> SourceFile:
    """Name, length and digest of a source; that it cannot be read is another's to tell."""
    try:
        size = location.size()
        if not wanted:
            return SourceFile(location.name, size, None)
        digest = hashlib.sha256()
        with location.open() as stream:
            while not stop.is_set() and (data := stream.read(_STEP)):
                digest.update(data)
    except OSError:
        return SourceFile(location.name, None, None)
    return SourceFile(location.name, size, digest.hexdigest())

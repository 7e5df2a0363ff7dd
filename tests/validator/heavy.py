"""Uploads that take their time, long ones that are never held in memory, and timeouts."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator

from tfod.tfrecord.framing import masked_crc32c

from tests.records import encode, image, objects
from tests.validator.conftest import REMOTE_TIMEOUT, Service


def framed(payload: bytes) -> bytes:
    """A record as it stands in a shard."""
    length = struct.pack("<Q", len(payload))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, payload)]
    return length + sums[0] + payload + sums[1]


def record_of(padding: int = 0) -> bytes:
    """A framed record with one box; the padding is a feature that nobody looks at."""
    named = {"image/object/class/text": ["cat"], "image/object/class/label": [1]}
    more = {"padding": bytes(padding)} if padding else {}
    return framed(encode(image("a.jpg") | objects([(0.1, 0.1, 0.5, 0.5)]) | named | more))


def slow_shard(records: int = 150_000) -> bytes:
    """A shard of which the check takes some seconds."""
    return record_of() * records


def long_body(length: int, reported: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """A shard of about that length, as a stream of records of 1 MiB."""
    one = record_of((1 << 20) - 350)
    for number in range(length // len(one)):
        yield one
        reported((number + 1) * len(one))


def wait_for(is_so: Callable[[], object], service: Service) -> None:
    """Wait until something is so."""
    end = time.monotonic() + REMOTE_TIMEOUT
    while not is_so():
        assert time.monotonic() < end, service.lines[-20:]
        time.sleep(0.05)

"""Uploads that take their time, long ones that are never held in memory, and timeouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.commands import wait_until
from tests.mutants.sound import frame
from tests.records import encode, image, objects
from tests.validator.conftest import Service


def record_of(padding: int = 0) -> bytes:
    """A framed record with one box; the padding is a feature that nobody looks at."""
    named = {"image/object/class/text": ["cat"], "image/object/class/label": [1]}
    more = {"padding": bytes(padding)} if padding else {}
    return frame(encode(image("a.jpg") | objects([(0.1, 0.1, 0.5, 0.5)]) | named | more))


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
    wait_until(is_so, service.lines)

"""Uploads that take their time, long ones that nobody holds in memory, and checks held still."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from tests.commands import parent_of, wait_until
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


def begin(service: Service, content: bytes) -> str:
    """Upload a shard; return its id."""
    response = service.upload({"file": ("a.tfrecord", content)}, wait=0)
    assert response.status_code == 202
    return str(response.json()["id"])


def state_of(service: Service, key: str) -> dict[str, Any]:
    found: dict[str, Any] = service.get(f"/api/v1/validations/{key}").json()
    return found


def worker_of(service: Service) -> int:
    """The worker process; its check and the server of forks are children of it."""
    (found,) = service.workers()
    return found


def check_of(service: Service) -> int:
    """The process of the check that runs."""
    (server,) = [pid for pid in service.children("forkserver") if is_child(pid, service)]
    (check,) = [pid for pid in service.children() if parent_of(pid) == server]
    return check


def is_child(pid: int, service: Service) -> bool:
    return parent_of(pid) == worker_of(service)


def held_check(service: Service) -> tuple[str, int]:
    """A check that has begun and goes on when it gets SIGCONT; its upload, and its process."""
    held: list[tuple[str, int]] = []

    def hold() -> bool:
        key = begin(service, record_of() * 2_000)
        while not held and state_of(service, key)["state"] in ("queued", "running"):
            with suppress(ValueError, OSError):  # it has not begun yet, or has ended already
                check = check_of(service)
                os.kill(check, signal.SIGSTOP)
                held.append((key, check))
        return bool(held)

    wait_for(hold, service)
    return held[0]

"""Uploads that take their time, and checks held still."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from tests.commands import wait_until
from tests.mutants.sound import frame
from tests.records import encode, image, objects
from tests.validator.conftest import Service


def record_of(padding: int = 0) -> bytes:
    """A framed record with one box; the padding is a feature that nobody looks at."""
    named = {"image/object/class/text": ["cat"], "image/object/class/label": [1]}
    more = {"padding": bytes(padding)} if padding else {}
    return frame(encode(image("a.jpg") | objects([(0.1, 0.1, 0.5, 0.5)]) | named | more))


def begin(service: Service, content: bytes, address: str = "10.0.0.1") -> str:
    """Upload a shard; return its id. Behind a proxy the address is that of the client."""
    headers = {"X-Forwarded-For": address}
    response = service.upload({"file": ("a.tfrecord", content)}, headers, wait=0)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def held_check(service: Service, address: str = "10.0.0.1") -> tuple[str, int]:
    """A check that has begun and goes on when it gets SIGCONT; its upload, and its process."""
    held: list[tuple[str, int]] = []

    def hold() -> bool:
        before = set(service.checks())
        key = begin(service, record_of() * 20_000, address)
        while not held and key in service.folder("waiting"):
            for check in set(service.checks()) - before:
                with suppress(OSError):  # it has ended already
                    os.kill(check, signal.SIGSTOP)
                    held.append((key, check))
        return bool(held)

    wait_until(hold, service.lines)
    return held[0]

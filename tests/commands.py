"""Commands as users type them, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

TIMEOUT = 900
"""Seconds until what does not happen is a failure; on a busy machine everything takes its time."""
_Found = TypeVar("_Found")


def wait_until(condition: Callable[[], _Found]) -> _Found:
    """Wait for something to become true, and give it; fails when it does not."""
    end = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found

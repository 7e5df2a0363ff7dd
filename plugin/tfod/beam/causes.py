"""One line out of what Beam says when a step has failed.

An error crosses from a worker as text: the traceback that Python prints there, with
``[while running 'step']`` behind the message, and around it what the runner has to add.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

from tfod.errors import TfodError

# The line of a traceback that names the exception, also as the message of another exception.
_NAMED = re.compile(r"^(?:[\w.]*RuntimeError: )?(?P<name>[A-Za-z_][\w.]*): (?P<message>.*)$", re.M)
_OF_A_STEP = re.compile(
    r"^(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*$", re.M
)


def tfod_error_in(text: str) -> str | None:
    """The message of the TfodError that a text speaks of; None when it speaks of none."""
    for match in _NAMED.finditer(text):
        if _is_ours(match["name"]):
            return without_step(match["message"])
    return None


def innermost_cause(text: str) -> str:
    """The line that says best what has gone wrong."""
    found = [match[0] for match in _OF_A_STEP.finditer(text)]
    last = found[-1] if found else next(_filled_backwards(text), "unknown")
    if last.rstrip().endswith(":"):  # what it speaks of follows
        last = f"{last.rstrip()} " + next(
            filter(None, map(str.strip, text.partition(last)[2].splitlines())), ""
        )
    return without_step(last.removeprefix("Caused by: "))


def without_step(message: str) -> str:
    """A message without the name of the step that Beam has put behind it."""
    message = message.strip()
    before, found, _ = message.rpartition(" [while running '")
    return before.strip() if found and message.endswith("']") else message


def _filled_backwards(text: str) -> Iterator[str]:
    return (line for line in reversed(text.splitlines()) if line.strip())


def _is_ours(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    if module.partition(".")[0] not in ("tfod", "tfod_validator"):
        return False
    try:
        found = getattr(importlib.import_module(module), kind, None)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, TfodError)

"""Errors of workers: how they are sent here, and one line out of what Beam makes of them.

An error crosses from a worker as text: the traceback that Python prints there, with
``[while running 'step']`` behind the message, and around it what the runner has to add.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator

from tfod.errors import TfodError

# The line of a traceback that names the exception, also as the message of another exception.
_NAMED = re.compile(r"^(?:[\w.]*RuntimeError: )?(?P<name>[A-Za-z_][\w.]*): (?P<message>.*)$", re.M)
_NO_SUCH_JAR = re.compile(r'Unable to parse jar URL "(?P<jar>[^"]*)"')
_NOT_FETCHED = re.compile(
    r"Unable to fetch remote job server jar at \S+: (?P<why>.*?)\. (?:Also|If no).*"
    r"stage the jar at (?P<place>.*?\.jar)",
    re.DOTALL,
)
_OF_A_STEP = re.compile(
    r"^(?:Caused by: )?(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*$", re.M
)


def tfod_error_in(text: str) -> str | None:
    """The message of the TfodError that a text speaks of; None when it speaks of none."""
    for match in _NAMED.finditer(text):
        if _is_ours(match["name"]):
            return without_step(match["message"])
    return None


def missing_job_server(text: str) -> str | None:
    """What to do where Beam has no job server to start, which it says in 600 characters.

    None where a text does not speak of that.
    """
    named = _NO_SUCH_JAR.search(text)
    if named:
        what = f"there is no job server at {named['jar']}; correct the path"
    elif found := _NOT_FETCHED.search(text):
        folder, _, jar = found["place"].rpartition("/")
        why = found["why"].partition("[Errno")[2].partition("] ")[2].rstrip(">") or found["why"]
        what = (
            f"the runner's job server is not here and cannot be downloaded ({why}); "
            f"put {jar} into {folder}"
        )
    else:
        return None
    return f"{what}, or name a job server that runs: -- --job_endpoint=host:port"


def innermost_cause(text: str) -> str:
    """The line that says best what has gone wrong."""
    found = [match[0] for match in _OF_A_STEP.finditer(text)]
    filled = [line for line in text.splitlines() if line.strip()]
    last = (found or filled or ["unknown"])[-1]
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


def _is_ours(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    if module.partition(".")[0] not in ("tfod", "tfod_validator"):
        return False
    try:
        found = getattr(importlib.import_module(module), kind, None)
    except ImportError:
        return False
    return isinstance(found, type) and issubclass(found, TfodError)


def require_shared(folder: str) -> None:
    """Raise TfodError where a worker does not see a folder of the machine that started it all."""
    if not os.path.isdir(folder):
        raise TfodError(f"{folder}: a worker does not see it; write to a folder that all share")


@contextlib.contextmanager
def errors_in_utf8() -> Iterator[None]:
    """Say errors so that Beam can send them: for one with another file name it waits for ever."""
    try:
        yield
    except TfodError as error:
        text = str(error)
        sent = text.encode("utf-8", "backslashreplace").decode()
        if sent == text:
            raise
        raise TfodError(sent) from None


def require_here(path: str, size: int | None = None) -> None:
    """Raise TfodError where what a worker has written is not here too, in its size."""
    if not os.path.isfile(path) or (size is not None and os.path.getsize(path) != size):
        raise TfodError(
            f"{path}: a worker has written it, and it is not here; write to a folder that all share"
        )

"""Exceptions, whose one-line messages contain the location, the problem and a fix."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

MAX_TEXT_LENGTH = 80
"""The maximum number of characters that a message shows of a text from the data."""


class TfodError(Exception):
    """The base class of exceptions for invalid input."""


def excerpt(value: object) -> str:
    """Return the repr of a value from the data, truncated to 80 characters."""
    quoted = repr(value[:MAX_TEXT_LENGTH] if isinstance(value, str) else value)
    if len(quoted) <= MAX_TEXT_LENGTH:
        return quoted
    return f"{quoted[: MAX_TEXT_LENGTH - 2]}…{quoted[-1]}"


def truncate(name: str) -> str:
    """Return a name from the data without quotes, escaped and truncated to 80 characters."""
    limit, start = MAX_TEXT_LENGTH, name[: MAX_TEXT_LENGTH - 1]
    if len(name) <= limit and (name.isprintable() or len(repr(name)) <= limit + 2):
        return name
    return (start if start.isprintable() else repr(start)[1:limit]) + "…"


def suggest(word: object, words: Iterable[str], limit: int = 1, cutoff: float = 0.6) -> str:
    """Return a question with the most similar words, such as ``did you mean cvat?``, or ''."""
    import difflib  # only needed for errors

    similar = difflib.get_close_matches(str(word)[:MAX_TEXT_LENGTH], words, limit, cutoff)
    return f"did you mean {' or '.join(similar)}?" if similar else ""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra from the index, or in a clone, like tfod itself."""
    if sys.platform == "emscripten":
        return "this page does not have it; run tfod on your computer"
    from importlib.metadata import Distribution  # only needed for errors

    for installed in Distribution.discover(name="tfod"):
        if installed.read_text("direct_url.json") is None:  # from an index (PEP 610)
            return f"pip install 'tfod[{extra}]'"
    return f"pip install '.[{extra}]' in a clone of tfod"


class ShardError(TfodError):
    """A shard or a record is invalid.

    Attributes:
        cause: problem, without a full stop.
        shard: path or name of the shard.
        record: number of the record, from 0; None if the error is not about a record.
        offset: offset of the record in the uncompressed file in bytes, or None.
        feature: key of the invalid feature, or None.
        fix: advice for the user.
    """

    def __init__(
        self,
        cause: str,
        *,
        shard: str,
        record: int | None = None,
        offset: int | None = None,
        feature: str | None = None,
        fix: str = "",
    ) -> None:
        super().__init__(cause)
        self.cause = cause
        self.shard = shard
        self.record = record
        self.offset = offset
        self.feature = feature
        self.fix = fix

    def __str__(self) -> str:
        location = self.shard
        if self.record is not None:
            location += f", record {self.record}"
        if self.offset is not None:
            location += f", byte {self.offset}"
        problem = f"{self.feature} {self.cause}" if self.feature else self.cause
        return f"{location}: {problem}" + (f"; {self.fix}" if self.fix else "")

    def __reduce__(self) -> tuple[Any, ...]:
        names = ("shard", "record", "offset", "feature", "fix")
        return partial(type(self), **{name: getattr(self, name) for name in names}), (self.cause,)


class RecordError(ShardError):
    """A record is invalid, but the framing of the shard is not damaged."""


class ShardsNotFoundError(TfodError):
    """A source contains no shard."""


class LabelMapError(TfodError):
    """A file is not a label map, or is an invalid one."""


def get_user_message(error: BaseException | None) -> str | None:
    """Return the message of the TfodError or OSError that caused an exception, or None.

    None means a bug, for example in Datumaro; its traceback should be shown.
    """
    while error is not None:
        if isinstance(error, TfodError):
            return str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            return f"{error.filename}: {error.strerror}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None

"""What can go wrong with a shard or a label map, as exceptions that read as one line.

Every message says what is wrong, where (file, record, byte) and what to do about it, in that
order, so that a command can print ``str(error)`` and stop.
"""

from __future__ import annotations

from functools import partial
from typing import Any


class TfodError(Exception):
    """Base of everything that tfod raises for bad input."""


def how_to_install(extra: str) -> str:
    """What to type for a package that an extra of tfod's brings, as the end of a message.

    tfod is not on PyPI: this is the one place that says where it is installed from.
    """
    return f"pip install '.[{extra}]' in a clone of tfod"


class ShardError(TfodError):
    """A shard, or one of its records, is not what it should be.

    Attributes:
        cause: what is wrong, without a full stop.
        shard: path or name of the file.
        record: number of the record, counted from 0; None when no record is concerned.
        offset: byte at which that record starts, in the uncompressed file; None likewise.
        feature: the feature's key, when one is to blame.
        fix: what the user can do.
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
        where = self.shard
        if self.record is not None:
            where += f", record {self.record}"
        if self.offset is not None:
            where += f", byte {self.offset}"
        what = f"{self.feature} {self.cause}" if self.feature else self.cause
        return f"{where}: {what}" + (f"; {self.fix}" if self.fix else "")

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            one: getattr(self, one) for one in ("shard", "record", "offset", "feature", "fix")
        }
        return partial(type(self), **fields), (self.cause,)


class RecordError(ShardError):
    """The framing is sound, but this one record does not hold what it should."""


class ShardsNotFoundError(TfodError):
    """No shard was found where one was looked for."""


class LabelMapError(TfodError):
    """A file is not a label map, or not a legal one."""


def in_plain_words(error: BaseException | None) -> str | None:
    """One line about an error of ours, or of the file system, that an exception is or came from.

    None for any other: a defect of Datumaro's is for its own traceback.
    """
    while error is not None:
        if isinstance(error, TfodError):
            return str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            return f"{error.filename}: {error.strerror}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None

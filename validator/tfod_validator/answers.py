"""Answers as JSON and from files, which waitress sends as fast as they are read.

A report may be long, and who asks for it slow: no part of it is in memory, and none is copied.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import IO, Any, cast

from flask import Response, send_file
from werkzeug.wrappers import Response as AnyResponse

TYPES = {
    "json": "application/json",
    "html": "text/html",
    "junit": "application/xml",
    "text": "text/plain",
}
"""What the formats of a report are called over HTTP."""


class _Joined(io.RawIOBase):
    """Parts of files, one after the other; waitress reads a piece where it needs one."""

    def __init__(self, *parts: tuple[IO[bytes], int, int]) -> None:
        self._parts, self._place = parts, 0
        self._length = sum(stop - start for _, start, stop in parts)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = (0, self._place, self._length)[whence] + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        begin = 0
        for file, start, stop in self._parts:
            end = begin + stop - start
            if self._place < end:
                file.seek(start + self._place - begin)
                data = file.read(min(len(buffer), end - self._place))
                buffer[: len(data)] = data
                self._place += len(data)
                return len(data)
            begin = end
        return 0

    def close(self) -> None:
        for file, _, _ in self._parts:
            file.close()
        super().close()


def as_json(document: object, status: int = 200) -> AnyResponse:
    """A document."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    return Response(text + "\n", status, content_type=TYPES["json"])


def from_file(file: Path | IO[bytes], kind: str, **more: Any) -> AnyResponse:
    """A file; ``more`` are arguments of ``send_file``."""
    return send_file(file, kind, conditional=False, etag=False, **more)


def around(before: str, path: Path, start: int, stop: int, after: str, kind: str) -> AnyResponse:
    """A part of a file, with texts before and behind it."""
    texts = [text.encode("utf-8", "replace") for text in (before, after)]
    head, tail = ((io.BytesIO(text), 0, len(text)) for text in texts)
    file = _Joined(head, (path.open("rb"), start, stop), tail)
    return from_file(cast("IO[bytes]", file), kind)

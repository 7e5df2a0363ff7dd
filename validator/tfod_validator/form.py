"""Reads forms: files go to the upload's folder as they come, texts are short.

Flask's own reader would hold many long texts in memory, and many files open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from flask import Request as FlaskRequest
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Event, Field, File, MultipartDecoder, NeedData

from tfod_validator.problems import ProblemError
from tfod_validator.uploads import Incoming
from tfod_validator.validation import UploadedFile

FILE_FIELD_MAPPING = ("file", "profile", "cvat_labels", "cvat_xml")
"""Fields that may hold files."""
_MAX_TEXT_BYTES = 1 << 20
_SPARE_PARTS = 20
_STEP = 256 << 10


def read_form(
    request: FlaskRequest, incoming: Incoming, max_files: int
) -> tuple[list[UploadedFile], list[tuple[str, str]]]:
    """The files and the texts of a form, in their order.

    Raises:
        ProblemError: the form is malformed, too long, or has files where none belong.
        ClientDisconnected: it ends early.
        OSError: a file cannot be stored.
    """
    reader = _Reader(incoming, max_files)
    try:
        for event in _events(request, max_files + _SPARE_PARTS):
            reader.take(event)
    except UnicodeError:
        raise ProblemError(400, "A name in the form is not in UTF-8; send it in UTF-8.") from None
    except ValueError as error:
        detail = f"The form is malformed ({str(error)[:100]}); send it as RFC 7578 says."
        raise ProblemError(400, detail) from None
    except RequestEntityTooLarge:
        raise _too_many(max_files) from None
    finally:
        reader.close()
    return reader.files, reader.texts


def _events(request: FlaskRequest, max_parts: int) -> Iterator[Event]:
    boundary = request.mimetype_params.get("boundary", "")
    if not boundary or not boundary.isascii():
        raise ValueError("no boundary is named")
    decoder = MultipartDecoder(boundary.encode(), _MAX_TEXT_BYTES + _STEP, max_parts=max_parts)
    is_over = False
    while not is_over:
        piece = request.stream.read(_STEP)
        decoder.receive_data(piece or None)
        while not isinstance(event := decoder.next_event(), NeedData):
            yield event
            is_over = is_over or isinstance(event, Epilogue)
            if is_over:
                break


class _Reader:
    """Takes the parts of a form, one after the other."""

    def __init__(self, incoming: Incoming, max_files: int) -> None:
        self.files: list[UploadedFile] = []
        self.texts: list[tuple[str, str]] = []
        self._incoming = incoming
        self._max_files = max_files
        self._part: Field | File | None = None
        self._file: BinaryIO | None = None
        self._text = bytearray()
        self._text_bytes = 0

    def take(self, event: Event) -> None:
        """Take a part's head, or a piece of its content."""
        if isinstance(event, (Field, File)):
            self._begin(event)
        elif isinstance(event, Data):
            if self._file is not None:
                self._file.write(event.data)
            else:
                self._add_text(event.data)
            if not event.more_data:
                self._end()

    def close(self) -> None:
        """Close what is still open."""
        if self._file is not None:
            self._file.close()

    def _begin(self, part: Field | File) -> None:
        self._part = part
        if isinstance(part, Field):
            return
        if part.name not in FILE_FIELD_MAPPING:
            names = ", ".join(FILE_FIELD_MAPPING)
            raise ProblemError(400, f"{part.name[:80]} is no field for files; there are {names}.")
        if len(self.files) >= self._max_files:
            raise _too_many(self._max_files)
        self._file = self._incoming.new_file()

    def _add_text(self, data: bytes) -> None:
        self._text += data
        self._text_bytes += len(data)
        if self._text_bytes > _MAX_TEXT_BYTES:
            detail = "The form's texts are longer than 1 MiB; send long ones as files."
            raise ProblemError(413, detail)

    def _end(self) -> None:
        part, file = self._part, self._file
        assert part is not None
        if isinstance(part, Field):
            self.texts.append((part.name, self._text.decode("utf-8", "replace")))
        elif file is not None:
            self._file = None
            if part.filename or file.tell():  # a browser sends a field that was left empty, too
                kept = self._incoming.keep(file, part.filename or part.name, part.name)
                self.files.append(kept)
            else:
                file.close()
        self._text.clear()


def _too_many(max_files: int) -> ProblemError:
    detail = f"There are more than the {max_files:,} files allowed; send a zip."
    return ProblemError(413, detail, limit="max_files")

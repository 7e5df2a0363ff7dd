"""What is asked of a check, and its result: all that passes between worker and check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

REPORTS = {
    "json": "report.json",
    "html": "report.html",
    "junit": "report.xml",
    "text": "report.txt",
}
"""Names of the documents that are the report, by format."""
BODY = "body.html"
"""Name of the document that is the report as a part of a page."""
IMAGE = "image-{}.svg"
"""Names of the images of findings, by their numbers."""


@dataclass(frozen=True)
class UploadedFile:
    """A file as it was uploaded.

    Attributes:
        name: as the client called it; never a path here.
        bytes: its length.
        role: ``file``, ``profile``, ``config``, ``cvat_labels`` or ``cvat_xml``.
        stored: name of the file in the upload's folder.
    """

    name: str
    bytes: int
    role: str
    stored: str


@dataclass(frozen=True)
class Request:
    """What is to be checked, and how.

    Attributes:
        files: all that was uploaded.
        decode: which images are decoded: ``all``, ``none``, or a number of them at most.
        receiver: name of who reads the shards next; None where it is not said.
        profile: name of a profile; None for the receiver's or the one that fits best, or for an
            uploaded one.
        fail_on: the least severity that makes a report invalid; None for what the uploaded
            configuration says.
    """

    files: Sequence[UploadedFile]
    decode: str
    receiver: str | None = None
    profile: str | None = None
    fail_on: str | None = "error"

    @property
    def sources(self) -> list[UploadedFile]:
        """The files that are to be checked."""
        return [one for one in self.files if one.role == "file"]


@dataclass(frozen=True)
class Result:
    """The result of a check: a report in several documents, or a failure.

    Attributes:
        documents: content by name.
        valid: whether the upload is valid; None for a failure.
        records: how many were read.
        images: what the images among the documents show.
        failure: a problem document.
    """

    documents: Mapping[str, bytes]
    valid: bool | None
    records: int = 0
    images: Sequence[Mapping[str, Any]] = ()
    failure: Mapping[str, Any] | None = None


def failed(status: int, detail: str, **more: Any) -> Result:
    """The result of a check that could not be done."""
    return Result({}, None, failure=problem_document(status, detail, **more))


def problem_document(status: int, detail: str, **more: Any) -> dict[str, Any]:
    """Problem details (RFC 9457) as JSON."""
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}


class FilesAwayError(Exception):
    """This machine does not see the files of an upload, or cannot read them."""

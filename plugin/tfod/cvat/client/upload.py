"""Annotations and datasets on their way to the server.

An upload has three parts: a beginning, the bytes (TUS, in pieces), and the request that ends it.
Until that one nothing happens to the task, so that the first two are begun anew when they fail.
The last one is sent once: the server may have taken it, whatever becomes of its answer. It then
replaces the annotations in one transaction of its own, or leaves them as they were.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tfod.cvat.client.requests import bar_options, request_id_of, try_again, wait_for_import
from tfod.cvat.client.server import Server, ServerError
from tfod.cvat.client.task import PROJECT, Target
from tfod.errors import TfodError

ANNOTATION_FORMAT = "CVAT 1.1"
DATASET_FORMAT = "Datumaro 1.0"
_APPEND_SINCE = (2, 65)
"""Older servers do not know ``import_mode``, and would replace without a word (cvat#10573)."""


def require_append(server: Server) -> None:
    """See to it that the server can append.

    Raises:
        TfodError: it is too old, or does not say how old it is.
    """
    if server.version_numbers is None or server.version_numbers < _APPEND_SINCE:
        raise TfodError(
            f"{server.host} is CVAT {server.version or 'of an unknown version'} and cannot append "
            "(2.65 and later can); it would replace what is there: use --mode replace, if that is "
            "meant"
        )


def require_format(server: Server, format_name: str) -> None:
    """See to it that the server imports a format, before anything is uploaded.

    Raises:
        TfodError: it does not.
    """
    found = server.get("/api/server/annotation/formats")
    with server.expected():
        names = {one["name"] for one in found["importers"] if one["enabled"]}
    if format_name not in names:
        raise TfodError(f"{server.host} does not import {format_name!r}; ask its administrator")


def upload(
    server: Server, target: Target, path: Path, format_name: str, append: bool = False
) -> None:
    """Upload a file, and wait until the server has imported it.

    Raises:
        TfodError: it was not imported, with the server's reason, or that is not known.
    """
    is_dataset = target.kind == PROJECT
    url = f"{target.path}/{'dataset' if is_dataset else 'annotations'}"
    query = {
        "format": format_name,
        "filename": f"tfod-{secrets.token_hex(8)}.zip",
        "conv_mask_to_poly": "false",
        # Not by way of the cloud storage that a task may have as its default.
        "location": "local",
        "use_default_location": "false",
    }
    if append:
        query["import_mode"] = "append"
    answer = _send(server, f"{server.host}{url}/", path, query)
    request_id = request_id_of(answer)
    legacy = {"action": "import_status"} if is_dataset else query
    wait_for_import(server, request_id, url, legacy, "GET" if is_dataset else "PUT")


def _send(server: Server, url: str, path: Path, query: dict[str, str]) -> Any:
    from cvat_sdk.core.uploading import Uploader

    def send() -> Any:
        server.finishing = False
        try:
            with server.errors():
                return Uploader(server.client).upload_file(
                    url,
                    path,
                    query_params=dict(query),
                    meta={"filename": query["filename"]},
                    pbar=_bar(),
                )
        except ServerError as error:
            # After a refusal it is certain that nothing has begun.
            if not server.finishing or 400 <= error.status < 500:
                raise
            raise TfodError(
                f"{error}; the file was uploaded, and the server may import it: look at the task "
                "before you repeat this"
            ) from None

    return try_again(send)


def _bar() -> Any:
    """cvat-sdk's bar for what it sends; None where there is to be none."""
    options = bar_options()
    if options is None:
        return None
    from cvat_sdk.core.helpers import DeferredTqdmProgressReporter

    return DeferredTqdmProgressReporter(options)

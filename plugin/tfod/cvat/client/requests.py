"""What a server does in the background, by cvat-sdk: an export that is fetched, an import.

An upload has three parts: a beginning, the bytes (TUS, in pieces), and the request that ends it.
Until that one nothing happens to the task, so that the first two are begun anew when they fail.
The last one is sent once: the server may have taken it, whatever becomes of its answer. It then
replaces the annotations in one transaction of its own, or leaves them as they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tfod.cvat.client.server import Server, ServerError
from tfod.cvat.client.task import PROJECT, Target
from tfod.errors import TfodError

ANNOTATION_FORMAT = "CVAT 1.1"
DATASET_FORMAT = "Datumaro 1.0"
_APPEND_SINCE = (2, 65)
"""Older servers do not know ``import_mode``, and would replace without a word (cvat#10573)."""
_PAUSE = 1.0  # seconds between two questions
_TRIES = 3
_LOCAL = {"location": "local", "use_default_location": "false"}
"""Not by way of the cloud storage that a task may have as its default."""

_Result = TypeVar("_Result")


def export_dataset(
    server: Server, target: Target, format_name: str, path: str, with_images: bool
) -> None:
    """Let the server export, and fetch the file.

    Raises:
        TfodError: the server cannot, or the file cannot be written.
    """
    from cvat_sdk.core.downloading import Downloader

    downloader = Downloader(server.client)
    api = getattr(server.client.api_client, f"{target.kind}s_api")
    query = {"format": format_name, "save_images": str(with_images).lower(), **_LOCAL}

    def prepare() -> Any:
        with server.errors():
            return downloader.prepare_file(
                api.create_dataset_export_endpoint,
                url_params={"id": target.number},
                query_params=query,
                status_check_period=_PAUSE,
            )

    def fetch() -> None:
        fix = "make room for the server's file, or name another folder in TMPDIR"
        with server.errors(), writing(os.path.dirname(path), fix):
            downloader.download_file(url, Path(path), pbar=_sdk_bar())

    try:
        # To ask twice does no harm: the server knows which export of whom that is.
        request = try_again(prepare)
    except ServerError as error:
        # One runs since before, as when the answer was lost.
        name, _, request_id = error.text.partition(": ")
        if error.status != 409 or name != "rq_id":
            raise
        request = _wait(server, request_id)
    # The server may not know the address that it is seen at from here.
    parts = urlsplit(str(request.result_url))
    url = server.host + parts.path + (f"?{parts.query}" if parts.query else "")
    try_again(fetch)


def _wait(server: Server, request_id: str) -> Any:
    with server.errors():
        return server.client.wait_for_completion(request_id, status_check_period=_PAUSE)[0]


def require_append(server: Server) -> None:
    """Raise TfodError where the server is too old to append, or does not say how old it is."""
    if server.version_numbers is None or server.version_numbers < _APPEND_SINCE:
        raise TfodError(
            f"{server.host} is CVAT {server.version or 'of an unknown version'} and cannot append "
            "(2.65 and later can); it would replace what is there: use --mode replace, if that is "
            "meant"
        )


def require_format(server: Server, format_name: str) -> None:
    """Raise TfodError where the server does not import a format, before anything is uploaded."""
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
    url = f"{target.path}/{'dataset' if target.kind == PROJECT else 'annotations'}"
    query = {
        "format": format_name,
        "filename": f"tfod-{secrets.token_hex(8)}.zip",
        "conv_mask_to_poly": "false",
        **({"import_mode": "append"} if append else {}),
        **_LOCAL,
    }
    try:
        answer = try_again(lambda: _send(server, f"{server.host}{url}/", path, query))
        with server.expected():
            request_id = str(json.loads(answer.data)["rq_id"])
        _wait(server, request_id)
    except ServerError as error:
        # After a refusal it is certain that nothing has begun.
        if not server.finishing:
            raise
        raise TfodError(
            f"{error}; the file was uploaded, and the server may import it: look at the task "
            "before you repeat this"
        ) from None


def _send(server: Server, url: str, path: Path, query: dict[str, str]) -> Any:
    from cvat_sdk.core.uploading import Uploader

    server.finishing = False
    meta = {"filename": query["filename"]}
    try:
        with server.errors():
            return Uploader(server.client).upload_file(
                url, path, query_params=dict(query), meta=meta, pbar=_sdk_bar()
            )
    except ServerError as error:
        if 400 <= error.status < 500:
            server.finishing = False
        elif server.finishing:
            error.is_passing = False
        raise


def try_again(work: Callable[[], _Result]) -> _Result:
    """Do what may be done twice, again when the way to the server has failed."""
    for number in range(1, _TRIES):
        try:
            return work()
        except ServerError as error:
            if not error.is_passing:
                raise
            time.sleep(_PAUSE * number)
    return work()


def _bar_options() -> dict[str, Any]:
    """A bar on standard error, if that is a terminal."""
    disable = None if sys.stderr is not None else True  # tqdm: None is "not on a terminal"
    return {"file": sys.stderr, "leave": False, "dynamic_ncols": True, "disable": disable}


def progress_bar(description: str, total: int | None, unit: str) -> Any:
    """A bar of tqdm's, which is a context manager; its ``update`` takes how much was done."""
    from tqdm import tqdm

    return tqdm(total=total, desc=description, unit=unit, unit_scale=unit == "B", **_bar_options())


def _sdk_bar() -> Any:
    from cvat_sdk.core.helpers import DeferredTqdmProgressReporter

    return DeferredTqdmProgressReporter(_bar_options())


@contextlib.contextmanager
def writing(where: str, fix: str) -> Iterator[None]:
    """Turn what the system says against writing into a TfodError of one line."""
    try:
        yield
    except OSError as error:
        raise TfodError(f"{where}: cannot be written ({error.strerror}); {fix}") from None

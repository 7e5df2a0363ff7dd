"""What a server does in the background: it is asked for, waited for, and fetched.

Servers from 2.19 on number such requests and report them at ``/api/requests``; older ones are
asked the same again until it is done. Source: ``cvat_sdk/core/{downloading,uploading}.py`` of 2.15
and 2.80, and ``apps/engine/{views,background}.py`` of the servers.

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
from urllib.parse import quote, urlencode, urlsplit

from tfod.cvat.client.server import Server, ServerError, answer_text, one_line
from tfod.cvat.client.task import PROJECT, Target
from tfod.errors import TfodError

ANNOTATION_FORMAT = "CVAT 1.1"
DATASET_FORMAT = "Datumaro 1.0"
_APPEND_SINCE = (2, 65)
"""Older servers do not know ``import_mode``, and would replace without a word (cvat#10573)."""
_REQUESTS_ALONE = (2, 40)
"""From here on servers surely report imports at ``/api/requests`` only."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0  # seconds between two questions
_TRIES = 3
_LOCAL = {"location": "local", "use_default_location": "false"}
"""Not by way of the cloud storage that a task may have as its default."""
_UNKNOWN = (404, 405, 410)

_Result = TypeVar("_Result")


def export_dataset(
    server: Server, target: Target, format_name: str, path: str, with_images: bool
) -> None:
    """Let the server export, and fetch the file.

    Raises:
        TfodError: the server cannot, or the file cannot be written.
    """
    query = {"format": format_name, **_LOCAL}
    url = _export(server, target, {**query, "save_images": str(with_images).lower()})
    if url is None:
        url = _legacy_export(server, target, query, with_images)
    try_again(lambda: _download(server, server.host + url, Path(path)))


def _export(server: Server, target: Target, query: dict[str, str]) -> str | None:
    """Ask for an export and wait; its address, or None where the server is too old for this.

    To ask twice does no harm: the server knows which export of whom that is.
    """
    try:
        request_id = _request_id(
            try_again(lambda: server.request("POST", f"{target.path}/dataset/export", query))
        )
    except ServerError as error:
        if error.status in _UNKNOWN:
            return None
        # One runs since before, as when the answer was lost.
        name, _, request_id = error.text.partition(": ")
        if error.status != 409 or name != "rq_id":
            raise
    found = wait(server, request_id, f"{server.host} exports")
    if not found.get("result_url"):
        raise ServerError(f"{server.host} has exported {target}, but does not say where to")
    # The server may not know the address that it is seen at from here.
    parts = urlsplit(str(found["result_url"]))
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _legacy_export(server: Server, target: Target, query: dict[str, str], with_images: bool) -> str:
    """The same on old servers."""
    server.use_token()  # a cookie alone is not enough for an export there (CSRF)
    path = f"{target.path}/{'dataset' if with_images else 'annotations'}"
    with _pauses(f"{server.host} exports") as pauses:
        for _ in pauses:
            if server.request("GET", path, query).status == 201:
                break
    return f"{path}?{urlencode({**query, 'action': 'download'})}"


def wait(server: Server, request_id: str, doing: str) -> dict[str, Any]:
    """Wait until a request is done; return what the server says of it.

    Raises:
        ServerError: it failed, with what the server says of that.
    """
    path = f"/api/requests/{quote(request_id, safe='')}"
    with _pauses(doing) as pauses:
        for bar in pauses:
            with server.expected():
                found: dict[str, Any] = dict(server.get(path))
                status = found["status"]
            if status == "finished":
                break
            if status == "failed":
                text = one_line(str(found.get("message") or "it does not say why"))
                raise ServerError(f"{server.host} has failed: {text}", text=text)
            with contextlib.suppress(TypeError, ValueError):
                bar.update(int(100 * float(found.get("progress") or 0)) - bar.n)
    return found


@contextlib.contextmanager
def _pauses(doing: str) -> Iterator[Iterator[Any]]:
    """A bar that shows how far the server is, at once and again after pauses that grow."""
    layout = "{desc}: {percentage:.0f}% |{bar}| {elapsed}"

    def pauses() -> Iterator[Any]:
        seconds = _FIRST_WAIT
        while True:
            yield bar
            time.sleep(seconds)
            seconds = min(seconds * 1.5, _LONGEST_WAIT)

    with progress_bar(doing, 100, "%", bar_format=layout) as bar:
        yield pauses()


def _download(server: Server, url: str, path: Path) -> None:
    from cvat_sdk.core.downloading import Downloader

    fix = "make room for the server's file, or name another folder in TMPDIR"
    with server.errors(), writing(os.path.dirname(path), fix):
        Downloader(server.client).download_file(url, path, pbar=_sdk_bar())


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
    is_dataset = target.kind == PROJECT
    url = f"{target.path}/{'dataset' if is_dataset else 'annotations'}"
    query = {
        "format": format_name,
        "filename": f"tfod-{secrets.token_hex(8)}.zip",
        "conv_mask_to_poly": "false",
        **_LOCAL,
    }
    if append:
        query["import_mode"] = "append"
    request_id = _request_id(try_again(lambda: _send(server, f"{server.host}{url}/", path, query)))
    doing = f"{server.host} imports"
    try:
        wait(server, request_id, doing)
        return
    except ServerError as error:
        if error.status not in _UNKNOWN:
            raise
    if not _has_no_requests(server):
        # To ask a newer server in the old way would empty the task: there, PUT writes annotations.
        raise ServerError(
            f"{server.host} has the file, but reports nothing about its import; look at the task "
            "before you repeat this"
        )
    method, legacy = ("GET", {"action": "import_status"}) if is_dataset else ("PUT", query)
    with _pauses(doing) as pauses:
        for _ in pauses:
            # Not repeated when the answer is lost: behind a finished import, it begins another.
            if server.request(method, url, {**legacy, "rq_id": request_id}).status == 201:
                return


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
        # After a refusal it is certain that nothing has begun.
        if not server.finishing or 400 <= error.status < 500:
            raise
        raise TfodError(
            f"{error}; the file was uploaded, and the server may import it: look at the task "
            "before you repeat this"
        ) from None


def _has_no_requests(server: Server) -> bool:
    """Whether the server is old enough for the old way, by its word and by its deeds."""
    if server.version_numbers is None or server.version_numbers >= _REQUESTS_ALONE:
        return False
    try:
        server.get("/api/requests", page_size=1)
    except ServerError as error:
        return error.status in _UNKNOWN
    return False


def _request_id(answer: Any) -> str:
    """The number of the request in an answer. Raises ServerError: there is none."""
    try:
        return str(json.loads(answer.data)["rq_id"])
    except (ValueError, KeyError, TypeError):
        raise ServerError(
            "the server has taken the request, but gives no number for it "
            f"({answer_text(answer.data)}); look at the task before you repeat this"
        ) from None


def try_again(work: Callable[[], _Result]) -> _Result:
    """Do what may be done twice, again when the way to the server has failed."""
    for number in range(1, _TRIES):
        try:
            return work()
        except ServerError as error:
            if error.status and error.status < 500:
                raise
            time.sleep(_FIRST_WAIT * 2**number)
    return work()


def _bar_options() -> dict[str, Any]:
    """A bar on standard error, if that is a terminal."""
    disable = None if sys.stderr is not None else True  # tqdm: None is "not on a terminal"
    return {"file": sys.stderr, "leave": False, "dynamic_ncols": True, "disable": disable}


def progress_bar(description: str, total: int | None, unit: str, **more: Any) -> Any:
    """A bar of tqdm's, which is a context manager; its ``update`` takes how much was done."""
    from tqdm import tqdm

    scale = unit == "B"
    more |= _bar_options()
    return tqdm(total=total, desc=description, unit=unit, unit_scale=scale, **more)


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

"""What a server does in the background: it is asked for, waited for, and fetched.

Servers from 2.19 on number such requests and tell of them at ``/api/requests``; older ones are
asked the same again until it is done. Source: ``cvat_sdk/core/{downloading,uploading}.py`` of 2.15
and 2.80, and ``apps/engine/{views,background}.py`` of the servers.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from tfod.cvat.client.server import Server, ServerError, answer_text, one_line
from tfod.cvat.client.task import Target
from tfod.errors import TfodError

_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0  # seconds between two questions
_TRIES = 3
_CHUNK = 1 << 20
_LOCAL = {"location": "local", "use_default_location": "false"}
"""Not by way of the cloud storage that a task may have as its default."""
_UNKNOWN = (404, 405, 410)
_REQUESTS_ALONE = (2, 40)
"""From here on servers surely tell of imports at ``/api/requests`` only."""

_Result = TypeVar("_Result")


def export_dataset(
    server: Server, target: Target, format_name: str, path: str, with_images: bool
) -> None:
    """Let the server export, and fetch the file.

    Raises:
        TfodError: the server cannot, or the file cannot be written.
    """
    query = {"format": format_name, **_LOCAL}
    url = _begin_export(server, target, {**query, "save_images": str(with_images).lower()})
    headers: dict[str, str] = {}
    if url is None:
        kind = "dataset" if with_images else "annotations"
        url, headers = _legacy_export(server, f"{target.path}/{kind}", query)
    download(server, url, path, headers)


def _begin_export(server: Server, target: Target, query: dict[str, str]) -> str | None:
    """Ask for an export and wait; its address, or None where the server is too old for this.

    To ask twice does no harm: the server knows which export of whom that is.
    """
    try:
        answer = try_again(lambda: server.request("POST", f"{target.path}/dataset/export", query))
        request_id = request_id_of(answer)
    except ServerError as error:
        if error.status in _UNKNOWN:
            return None
        running = _already_running(error)
        if running is None:
            raise
        request_id = running
    found = wait(server, request_id, f"{server.host} exports")
    if not found.get("result_url"):
        raise ServerError(f"{server.host} has exported {target}, but does not say where to")
    # The server may not know the address that it is seen at from here.
    parts = urlsplit(str(found["result_url"]))
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _already_running(error: ServerError) -> str | None:
    """The number of a request that runs since before, as of one whose answer was lost."""
    if error.status != 409:
        return None
    name, _, number = error.text.partition(": ")
    return number if name == "rq_id" else None


def wait(server: Server, request_id: str, doing: str) -> dict[str, Any]:
    """Wait until a request is done; return what the server says of it.

    Raises:
        ServerError: it failed, with what the server says of that.
    """
    path = f"/api/requests/{quote(request_id, safe='')}"
    with _pauses(doing) as pause:
        while True:
            with server.expected():
                found: dict[str, Any] = dict(server.get(path))
                status = found["status"]
            if status == "finished":
                return found
            if status == "failed":
                text = one_line(str(found.get("message") or "it does not say why"))
                raise ServerError(f"{server.host} has failed: {text}", text=text)
            pause(found.get("progress"))


@contextlib.contextmanager
def _pauses(doing: str) -> Iterator[Callable[[Any], None]]:
    """A pause that grows, with a bar that shows how far the server is."""
    waiting, done = _FIRST_WAIT, 0.0
    with progress_bar(doing, 100, "%") as advance:

        def pause(progress: Any) -> None:
            nonlocal waiting, done
            with contextlib.suppress(TypeError, ValueError):
                now = 100 * float(progress)
                advance(int(now - done))
                done += int(now - done)
            time.sleep(waiting)
            waiting = min(waiting * 1.5, _LONGEST_WAIT)

        yield pause


def _legacy_export(server: Server, path: str, query: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The same on old servers: the address, and the headers to fetch it with."""
    # A cookie alone is not enough for an export there (CSRF).
    headers = server.token_header()
    with _pauses(f"{server.host} exports") as pause:
        while True:
            answer = server.request("GET", path, query, headers)
            if answer.status == 201:
                break
            pause(None)
    return f"{path}?{urlencode({**query, 'action': 'download'})}", headers


def wait_for_import(
    server: Server, request_id: str, path: str, query: dict[str, str], method: str
) -> None:
    """Wait until the server has imported what was uploaded.

    Old servers are asked for it at ``path``, with the query and the method of the upload.

    Raises:
        ServerError: the import failed, with the server's reason.
    """
    try:
        wait(server, request_id, f"{server.host} imports")
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
    with _pauses(f"{server.host} imports") as pause:
        while True:
            # Not repeated when the answer is lost: behind a finished import, it begins another.
            answer = server.request(method, path, {**query, "rq_id": request_id})
            if answer.status == 201:
                return
            pause(None)


def _has_no_requests(server: Server) -> bool:
    """Whether the server is old enough for the old way, by its word and by its deeds."""
    if server.version_numbers is None or server.version_numbers >= _REQUESTS_ALONE:
        return False
    try:
        server.get("/api/requests", page_size=1)
    except ServerError as error:
        return error.status in _UNKNOWN
    return False


def download(server: Server, url: str, path: str, headers: dict[str, str]) -> None:
    """Fetch a file; what breaks off is fetched again.

    Raises:
        TfodError: it cannot be had, or not be written.
    """
    try_again(lambda: _fetch(server, url, path, headers))


def _fetch(server: Server, url: str, path: str, headers: dict[str, str]) -> None:
    answer = server.request("GET", url, headers=headers, stream=True)
    length = answer.headers.get("Content-Length", "")
    total = int(length) if length.isdigit() else None
    fix = "make room for the server's file, or name another folder in TMPDIR"
    with (
        contextlib.closing(answer),
        writing(os.path.dirname(path), fix),
        open(path, "wb") as file,
        progress_bar("downloading", total, "B") as advance,
    ):
        while True:
            with server.errors():
                data = answer.read(amt=_CHUNK, decode_content=False)
            if not data:
                break
            file.write(data)
            advance(len(data))


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


def request_id_of(answer: Any) -> str:
    """The number of the request that an answer tells of. Raises ServerError: it tells of none."""
    try:
        return str(json.loads(answer.data)["rq_id"])
    except (ValueError, KeyError, TypeError):
        raise ServerError(
            "the server has taken the request, but gives no number for it "
            f"({answer_text(answer.data)}); look at the task before you repeat this"
        ) from None


Advance = Callable[[int], object]
"""Told how much was done since the last time."""


@contextmanager
def progress_bar(description: str, total: int | None, unit: str) -> Iterator[Advance]:
    """A bar on standard error if that is a terminal, and tqdm is there.

    The unit is ``B`` for bytes, ``%`` for a share, or a noun.
    """
    options = bar_options()
    if options is None:
        yield _ignore
        return
    from tqdm import tqdm

    if unit == "%":
        options["bar_format"] = "{desc}: {percentage:.0f}% |{bar}| {elapsed}"
    scale = unit == "B"
    with tqdm(total=total, desc=description, unit=unit, unit_scale=scale, **options) as bar:
        yield bar.update


def bar_options() -> dict[str, Any] | None:
    """How our bars look; None where there is to be none."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return None
    return {"file": sys.stderr, "leave": False, "dynamic_ncols": True}


def _ignore(_: int) -> None:
    pass


@contextmanager
def writing(where: str, fix: str) -> Iterator[None]:
    """Turn what the system says against writing into one line.

    Raises:
        TfodError: it said something.
    """
    try:
        yield
    except OSError as error:
        raise TfodError(f"{where}: cannot be written ({error.strerror}); {fix}") from None

"""Shards in a bucket or on a web server, by URLs that fsspec knows: what is there, and how large.

``s3://bucket/train-*``, ``gs://bucket/folder``, ``https://host/train.tfrecord``, ``memory://…``.
The parts of a URL are parted by ``/`` on every system. Reading is
:mod:`tfod.tfrecord.remote_stream`'s. Every listing is asked for anew: fsspec's own memory of
listings would hide what has changed.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from tfod.errors import how_to_install
from tfod.tfrecord.remote_errors import RemoteError, remote_error, status_of
from tfod.tfrecord.remote_waiting import (
    PATIENCE,
    Server,
    SilentError,
    ask_patiently,
    patience,
    server_of,
    set_interrupt,
    set_patience,
)

__all__ = [
    "PATIENCE",
    "RemoteError",
    "RemoteFile",
    "absolute",
    "files_in_folder",
    "filesystem_of",
    "folder_of",
    "is_pattern",
    "is_url",
    "list_remote",
    "name_of",
    "patience",
    "require_local",
    "set_interrupt",
    "set_patience",
]

T = TypeVar("T")
_MAX_DEPTH = 3  # as in local folders
_WEB = ("http://", "https://")
_BARE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_GONE = (404, 410)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a listing; its size in bytes is None where the listing does not say it."""

    url: str
    size: int | None


def is_url(path: str) -> bool:
    """Whether a path is a URL, as opposed to a path of this machine (``C:\\…`` is one)."""
    return "://" in path


def name_of(path: str) -> str:
    """The file name of a path or a URL; of that without a query, as signed addresses have one."""
    if not is_url(path):
        return os.path.basename(path)
    name = _without_query(path).rpartition("/")[2]
    plain = unquote(name) if path.startswith(_WEB) else name
    return name if "/" in plain or "\0" in plain else plain  # it stays the name of a file


def absolute(path: str) -> str:
    """A path or a URL, without a slash at its end."""
    return _without_query(path).rstrip("/") if is_url(path) else os.path.abspath(path)


def folder_of(path: str) -> str:
    """The folder that a path or a URL is in; of a bucket or a host, itself."""
    whole = absolute(path)
    if not is_url(path):
        return os.path.dirname(whole)
    scheme, _, inside = whole.partition("://")
    return f"{scheme}://{inside.rpartition('/')[0] or inside}"


def is_pattern(url: str) -> bool:
    """Whether a URL has wildcards; on the web ``?`` begins a query."""
    if not url.startswith(_WEB):
        return any(one in url for one in "*?[")
    names = _without_query(url)[_end_of_host(url) :]  # a host may be [::1]
    return any(one in names for one in "*[")


def require_local(path: str) -> None:
    """See that a place to write to is on this machine.

    Raises:
        RemoteError: it is a URL.
    """
    if is_url(path):
        raise RemoteError(path, "URLs are read only; write to this machine, and copy it there")


def list_remote(url: str) -> list[RemoteFile]:
    """The files that a URL means, sorted: a file, a glob (``**`` too), or a folder.

    A folder is listed three levels deep, hidden names left out. On the web a folder's URL ends
    with ``/``, and its page of links is what is listed. There is one listing for a folder (of a
    bucket one request for 1000 names), and none for a file.

    Raises:
        RemoteError: it cannot be reached, is not there, or nobody may read it; the package for
            such URLs is missing. What is there and has no file is no error: the list is empty.
    """
    store = _Store(url)
    if is_pattern(url):
        found = store.matching()
    elif store.is_folder():
        found = store.below(_MAX_DEPTH)
    else:
        return [RemoteFile(url, store.size)]
    return sorted(set(found), key=lambda one: one.url)


def files_in_folder(url: str) -> list[RemoteFile]:
    """The files right in a folder, sorted; raises as :func:`list_remote`."""
    files, _ = _Store(url).entries(None)
    return sorted(files, key=lambda one: one.url)


def filesystem_of(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it.

    Raises:
        RemoteError: there is none, or its package is missing.
    """
    try:
        import fsspec
    except ImportError:
        raise RemoteError(url, f"a URL needs fsspec; {how_to_install('remote')}") from None
    try:
        if url.startswith(_WEB):  # signatures are of the very characters of an address
            # url_to_fs would take a host such as [::1] for a chain of URLs.
            filesystem = fsspec.filesystem(url.partition("://")[0], encoded=True)
            path = _quoted(url)
        else:
            filesystem, path = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise remote_error(url, error) from None
    return filesystem, path


class _Store:
    """The file system of one URL, asked for what lies there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.size: int | None = None
        self._system, self._path = _patiently(lambda: filesystem_of(url), url)
        self._is_web = url.startswith(_WEB)
        # memory://a/b is /a/b there, s3://a/b is a/b: what is in front is the same for all.
        whole = url if url.endswith(self._path) else url.rstrip("/")
        is_end = bool(self._path) and whole.endswith(self._path)
        self._front = whole[: len(whole) - len(self._path)] if is_end else None
        if self._is_web:  # paths are whole addresses there
            self._front = ""
        self._system.invalidate_cache()

    def is_folder(self) -> bool:
        """Whether the URL means a folder; if not, its size is known if the server says it.

        Raises:
            RemoteError: there is nothing.
        """
        if self._is_web and _without_query(self._path).endswith("/"):
            return True
        info = self._ask(self._info)
        self.size = info.get("size")
        return bool(info["type"] == "directory")

    def _info(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._system.info(self._path)
        except FileNotFoundError as error:
            cause = error.__cause__
            # For the web fsspec calls every failure so.
            if self._is_web and cause is not None and status_of(cause) not in _GONE:
                raise cause from None
            raise
        return found

    def entries(self, folder: str | None) -> tuple[list[RemoteFile], list[str]]:
        """The files right in a folder, and the paths of its folders; None is the URL itself."""
        path = self._path if folder is None else folder
        path = path.rstrip("/") + "/" if self._is_web else path
        files, folders = [], []
        for info in self._ask(lambda: self._system.ls(path, detail=True)):
            name = info["name"]
            if name.rstrip("/") == path.rstrip("/") or self._leads_out(name, path):
                continue  # a bucket may have an empty object of the folder's name
            if info["type"] == "directory":
                folders.append(name.rstrip("/"))
            else:
                files.append(self._file(info))
        return files, sorted(folders)

    def below(self, depth: int, folder: str | None = None) -> Iterator[RemoteFile]:
        """The files of a folder and so many levels below it, hidden ones left out."""
        files, folders = self.entries(folder)
        yield from (one for one in files if not _is_hidden(one.url))
        for one in folders:
            if depth and not _is_hidden(one):
                yield from self.below(depth - 1, one)

    def matching(self) -> Iterator[RemoteFile]:
        """The files that the URL's wildcards mean."""
        host = _end_of_host(self._path) if self._is_web else 0
        places = (self._path.find(one, host) for one in "*?[")
        magic = min(place for place in places if place >= 0)
        fixed = self._path[:magic].rpartition("/")[0]
        *parts, last = self._path[len(fixed) :].lstrip("/").split("/")
        folders = [fixed]
        for part in parts:
            folders = list(dict.fromkeys(one for up in folders for one in self._step(up, part)))
        if last == "**":
            folders, last = [one for up in folders for one in self._step(up, "**")], "*"
        for folder in folders:
            yield from self._matching_in(folder, last)

    def _step(self, folder: str, part: str) -> Iterator[str]:
        """The folders that one part of a pattern means."""
        if part == "**":
            yield folder
        elif not any(one in part for one in "*?["):
            yield f"{folder}/{part}"
            return
        for path in self.entries(folder)[1]:
            name = path.rpartition("/")[2]
            if part == "**" and not _is_hidden(path):
                yield from self._step(path, "**")
            elif part != "**" and _fits(name, part):
                yield path

    def _matching_in(self, folder: str, pattern: str) -> Iterator[RemoteFile]:
        """Files right in a folder; a bucket itself looks for what is in front of a wildcard."""
        if self._is_web:
            files, _ = self.entries(folder)
            yield from (one for one in files if _fits(one.url.rpartition("/")[2], pattern))
            return
        escaped = f"{glob.escape(folder)}/{pattern}" if folder else pattern
        found = self._ask(lambda: self._system.glob(escaped, detail=True))
        if not found:
            self.entries(folder)  # stores leave out what they cannot list: this says why
        for info in found.values():
            if info["type"] != "directory" and _fits(info["name"].rpartition("/")[2], pattern):
                yield self._file(info)

    def _file(self, info: dict[str, Any]) -> RemoteFile:
        name = info["name"]
        url = self._system.unstrip_protocol(name) if self._front is None else self._front + name
        return RemoteFile(url, info.get("size"))

    def _leads_out(self, name: str, folder: str) -> bool:
        """Whether a link of a page leads elsewhere, or is the page sorted by another column."""
        return self._is_web and ("?" in name or not name.startswith(folder))

    def _ask(self, question: Callable[[], T]) -> T:
        server = server_of(self.url)

        def listen_and_ask() -> T:
            _listen(self._system, server)
            answer = question()
            server.heard()
            return answer

        return _patiently(listen_and_ask, self.url)


def _listen(filesystem: Any, server: Server) -> None:
    """Hear each answer of an S3 server: a listing is of many, which come without end."""
    if hasattr(filesystem, "_call_s3"):
        events = filesystem.connect().meta.events
        events.register("after-call.s3", lambda **_: server.heard(), unique_id=f"tfod-{id(server)}")


def _patiently(question: Callable[[], T], url: str) -> T:
    """Ask a store something.

    Raises:
        RemoteError: no answer came in time, or it is an error.
    """
    try:
        return ask_patiently(question, server_of(url))
    except SilentError as error:
        raise RemoteError(url, f"cannot be reached: {error}") from None
    except Exception as error:
        raise remote_error(url, error) from None


def _fits(name: str, pattern: str) -> bool:
    """Whether a name matches; a hidden one only if the pattern says so, as in a shell."""
    return fnmatch.fnmatchcase(name, pattern) and (
        pattern.startswith(".") or not name.startswith(".")
    )


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith((".", "__MACOSX"))


def _quoted(url: str) -> str:
    """An address as it goes over the line; what is quoted already stays as it is."""
    return quote(_BARE_PERCENT.sub("%25", url), safe="%/:=&?~#+!$,;'@()*[]|")


def _end_of_host(url: str) -> int:
    """Where the path of an address of the web begins; the length of one that has none."""
    place = url.find("/", url.find("://") + 3)
    return len(url) if place < 0 else place


def _without_query(url: str) -> str:
    return url.partition("?")[0] if url.startswith(_WEB) else url

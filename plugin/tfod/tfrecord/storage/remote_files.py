"""Files in a bucket or on a web server, by URLs that fsspec knows: what is there, and how large.

``s3://bucket/train-*``, ``gs://bucket/folder``, ``https://host/train.tfrecord``, ``memory://…``.
The parts of a URL are parted by ``/`` on every system. Every listing is asked for anew: fsspec's
own memory of listings would hide what has changed.
"""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tfod.errors import how_to_install
from tfod.tfrecord.storage.remote_errors import RemoteError, remote_error, status_of
from tfod.tfrecord.storage.remote_timeout import NoAnswerError, server_of
from tfod.tfrecord.storage.urls import WEB, end_of_host, is_pattern, quoted, without_query

T = TypeVar("T")
_MAX_DEPTH = 3  # as in local folders
_GONE = (404, 410)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a listing; its size in bytes is None where the listing does not say it."""

    url: str
    size: int | None


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
    """The fsspec file system of a URL, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise RemoteError(url, f"a URL needs fsspec; {how_to_install('remote')}") from None
    try:
        if url.startswith(WEB):  # signatures are of the very characters of an address
            # url_to_fs would take a host such as [::1] for a chain of URLs.
            filesystem = fsspec.filesystem(url.partition("://")[0], encoded=True)
            path = quoted(url)
        else:
            filesystem, path = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise remote_error(url, error) from None
    return filesystem, path


class _Store:
    """The file system of one URL, asked for what lies there."""

    def __init__(self, url: str) -> None:
        self.size: int | None = None
        self._url = url
        self._server = server_of(url)
        self._system, self._path = self._ask(lambda: filesystem_of(url))
        self._is_web = url.startswith(WEB)
        # memory://a/b is /a/b there, s3://a/b is a/b: what is in front is the same for all.
        whole = url if url.endswith(self._path) else url.rstrip("/")
        is_end = bool(self._path) and whole.endswith(self._path)
        self._front = whole[: len(whole) - len(self._path)] if is_end else None
        if self._is_web:  # paths are whole addresses there
            self._front = ""
        self._system.invalidate_cache()

    def is_folder(self) -> bool:
        """Whether the URL means a folder; if not, its size is known if the server says it."""
        if self._is_web and without_query(self._path).endswith("/"):
            return True
        info = self._listen_and_ask(self._info)
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
        for info in self._listen_and_ask(lambda: self._system.ls(path, detail=True)):
            name = info["name"]
            if name.rstrip("/") == path.rstrip("/"):
                continue  # a bucket may have an empty object of the folder's name
            # A link of a page may lead elsewhere, or be the page sorted by another column.
            if self._is_web and ("?" in name or not name.startswith(path)):
                continue
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
        host = end_of_host(self._path) if self._is_web else 0
        starts = (self._path.find(one, host) for one in "*?[")
        magic = min(start for start in starts if start >= 0)
        fixed = self._path[:magic].rpartition("/")[0]
        *parts, last = self._path[len(fixed) :].lstrip("/").split("/")
        folders = [fixed]
        for part in [*parts, "**"] if last == "**" else parts:
            folders = list(dict.fromkeys(one for up in folders for one in self._step(up, part)))
        for folder in folders:
            yield from self._matching_in(folder, "*" if last == "**" else last)

    def _step(self, folder: str, part: str) -> Iterator[str]:
        """The folders that one part of a pattern means."""
        if part == "**":
            yield folder
        elif not any(one in part for one in "*?["):
            yield f"{folder}/{part}"
            return
        for path in self.entries(folder)[1]:
            if part == "**" and not _is_hidden(path):
                yield from self._step(path, "**")
            elif part != "**" and _fits(path, part):
                yield path

    def _matching_in(self, folder: str, pattern: str) -> Iterator[RemoteFile]:
        """Files right in a folder; a bucket itself looks for what is in front of a wildcard."""
        if self._is_web:
            yield from (one for one in self.entries(folder)[0] if _fits(one.url, pattern))
            return
        escaped = f"{glob.escape(folder)}/{pattern}" if folder else pattern
        found = self._listen_and_ask(lambda: self._system.glob(escaped, detail=True))
        if not found:
            self.entries(folder)  # stores leave out what they cannot list: this says why
        for info in found.values():
            if info["type"] != "directory" and _fits(info["name"], pattern):
                yield self._file(info)

    def _file(self, info: dict[str, Any]) -> RemoteFile:
        name = info["name"]
        url = self._system.unstrip_protocol(name) if self._front is None else self._front + name
        return RemoteFile(url, info.get("size"))

    def _listen_and_ask(self, question: Callable[[], T]) -> T:
        """Ask, and hear each answer of an S3 server: a long listing is of many."""
        heard = self._server.heard

        def listen_and_ask() -> T:
            if hasattr(self._system, "_call_s3"):
                events = self._system.connect().meta.events
                events.register("after-call.s3", lambda **_: heard(), unique_id=f"tfod-{id(self)}")
            answer = question()
            heard()
            return answer

        return self._ask(listen_and_ask)

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask something; raises RemoteError where no answer came in time, or it is an error."""
        try:
            return self._server.ask(question)
        except NoAnswerError as error:
            raise RemoteError(self._url, f"cannot be reached: {error}") from None
        except Exception as error:
            raise remote_error(self._url, error) from None


def _fits(path: str, pattern: str) -> bool:
    """Whether a name matches; a hidden one only if the pattern says so, as in a shell."""
    name = path.rpartition("/")[2]
    return fnmatch.fnmatchcase(name, pattern) and (
        pattern.startswith(".") or not name.startswith(".")
    )


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith((".", "__MACOSX"))

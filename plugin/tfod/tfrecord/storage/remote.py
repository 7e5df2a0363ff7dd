"""Files in buckets and on web servers, by URLs that fsspec knows: what is there, and their bytes.

``s3://bucket/train-*``, ``gs://bucket/folder``, ``https://host/train.tfrecord``, ``memory://…``.
s3fs, gcsfs and aiohttp ask again and give up as they do; tfod sets no more than their options.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.storage.urls import WEB, is_pattern, quoted, without_query

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TIMEOUT = 60
"""Seconds that a server may be silent, unless TFOD_REMOTE_TIMEOUT says otherwise."""
_PIECE = 8 << 20
"""Bytes that are asked for at once of a shard that is read to its end."""
_LOOK = 1 << 18
"""The same where only its first records are wanted."""
_MAX_DEPTH = 3  # as in local folders
_GONE = (404, 410)
_FORBIDDEN = (401, 403)
_CREDENTIALS = {
    "s3": "s3fs looks for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and "
    "AWS_ENDPOINT_URL; FSSPEC_S3_ANON=true reads a public bucket",
    "gs": "gcsfs looks for GOOGLE_APPLICATION_CREDENTIALS and for the login of gcloud; "
    "FSSPEC_GS_TOKEN=anon reads a public bucket",
    "https": "the server may ask for a login, or the signature of the address may have run out",
}
_CREDENTIALS["s3a"], _CREDENTIALS["gcs"] = _CREDENTIALS["s3"], _CREDENTIALS["gs"]
_CREDENTIALS["http"] = _CREDENTIALS["https"]
_LONGEST_REASON = 300


class RemoteError(TfodError, OSError):
    """A URL does not lead to anything that can be read; ``strerror`` says why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


Listing: TypeAlias = "dict[str, int | None]"
"""Files by their URL with their size in bytes; None where the store does not say it."""


def list_remote(url: str) -> Listing:
    """The files that a URL means, sorted: a file, a glob (``**`` too), or a folder.

    A folder is listed three levels deep, hidden names left out. On the web a folder's URL ends
    with ``/``, and its page of links is what is listed.

    Raises:
        RemoteError: it cannot be reached, is not there, or nobody may read it; the package for
            such URLs is missing. What is there and has no file is no error: the list is empty.
    """
    with _one_line(url):
        store = _Store(url)
        if is_pattern(url):
            found = store.matching()
        elif store.is_web and without_query(url).endswith("/"):
            found = store.below(store.path, _MAX_DEPTH)
        else:
            info = store.info()
            if info["type"] != "directory":
                return {url: info.get("size")}
            found = store.below(store.path, _MAX_DEPTH)
    return dict(sorted(found.items()))


def files_in_folder(url: str) -> list[str]:
    """URLs of the files right in a folder, sorted; raises as :func:`list_remote`."""
    with _one_line(url):
        store = _Store(url)
        return sorted(store.entries(store.path)[0])


class _Store:
    """The file system of a URL, and the path in it."""

    def __init__(self, url: str) -> None:
        import logging  # it takes its time to load; local files need none

        import fsspec

        for library in ("asyncio", "gcsfs", "s3fs"):  # what they would say is in our line
            logging.getLogger(library).addHandler(logging.NullHandler())
        self.is_web = url.startswith(WEB)
        protocol = url.partition("://")[0]
        options = _options(protocol)
        if self.is_web:  # signatures are of the very characters of an address
            # url_to_fs would take a host such as [::1] for a chain of URLs.
            self.filesystem = fsspec.filesystem(protocol, encoded=True, **options)
            self.path = quoted(url)
        else:
            self.filesystem, self.path = fsspec.core.url_to_fs(url, **options)
        self.filesystem.invalidate_cache()  # its memory of listings hides what has changed

    def info(self) -> dict[str, Any]:
        """What the store says of the path. Its tries have an end, which gcsfs would not find."""
        limits = {"timeout": 2 * _timeout()} if self.filesystem.async_impl else {}
        found: dict[str, Any] = self.filesystem.info(self.path, **limits)
        return found

    def entries(self, folder: str) -> tuple[Listing, list[str]]:
        """The files right in a folder, and the paths of its folders."""
        path = folder.rstrip("/") + "/" if self.is_web else folder.rstrip("/")
        files: Listing = {}
        folders = []
        for info in self.filesystem.ls(path, detail=True):
            name = info["name"]
            if name.rstrip("/") == path.rstrip("/"):
                continue  # a bucket may have an empty object of the folder's name
            # A link of a page may lead elsewhere, or be the page sorted by another column.
            if self.is_web and ("?" in name or not name.startswith(path)):
                continue
            if info["type"] == "directory":
                folders.append(name)
            else:
                files[self._url(name)] = info.get("size")
        return files, sorted(folders)

    def below(self, folder: str, depth: int) -> Listing:
        """The files of a folder and so many levels below it, hidden ones left out."""
        files, folders = self.entries(folder)
        found = {url: size for url, size in files.items() if not _is_hidden(url)}
        for one in folders:
            if depth and not _is_hidden(one):
                found |= self.below(one, depth - 1)
        return found

    def matching(self) -> Listing:
        """The files that wildcards mean, hidden ones only where the pattern says so."""
        found = self.filesystem.glob(self.path, detail=True)
        if not found:
            fixed = self.path[: min(map(self.path.find, filter(self.path.count, "*?[")))]
            self.entries(fixed.rpartition("/")[0])  # glob leaves out what cannot be listed
        return {
            self._url(name): info.get("size")
            for name, info in found.items()
            if info["type"] != "directory"
            and not (self.is_web and "?" in name)
            and ("/." in self.path or not any(map(_is_hidden, name.split("/"))))
        }

    def open(self, read_ahead: bool) -> tuple[Any, int | None]:
        """Open it to be read in order; gives the file and its length, None where nobody says it."""
        info = self.info()
        if info["type"] == "directory":
            raise IsADirectoryError
        size = info.get("size")
        if self.is_web:  # one answer, which needs no ranges
            return self.filesystem.open(self.path, "rb", block_size=0, size=size), size
        step = _PIECE if read_ahead else _LOOK
        file = self.filesystem.open(self.path, "rb", block_size=step, cache_type="readahead")
        return file, size

    def _url(self, name: str) -> str:
        return name if self.is_web else str(self.filesystem.unstrip_protocol(name))


def _options(protocol: str) -> dict[str, Any]:
    """The timeouts of a kind of store, by its own options; those that the user has set go first.

    All tries of a request together last as long as a server may be silent.
    """
    import fsspec

    if protocol not in _CREDENTIALS:
        return {}
    kind = fsspec.get_filesystem_class(protocol)
    seconds = _timeout() / getattr(kind, "retries", 1)
    if "s3" in kind.protocol:
        name = "config_kwargs"
        limits: dict[str, Any] = {"connect_timeout": seconds, "read_timeout": seconds}
        limits["retries"] = {"total_max_attempts": 1}  # s3fs tries again itself
    else:
        import aiohttp

        name = "session_kwargs" if "gs" in kind.protocol else "client_kwargs"
        limits = {"timeout": aiohttp.ClientTimeout(None, sock_connect=seconds, sock_read=seconds)}
    for one in kind.protocol:
        limits |= fsspec.config.conf.get(one, {}).get(name, {})
    return {name: limits}


def _timeout() -> float:
    return float(os.environ.get("TFOD_REMOTE_TIMEOUT") or _TIMEOUT)


class RemoteStream(io.RawIOBase):
    """The bytes behind a URL, in order; what goes wrong with them is a RemoteError.

    Attributes:
        size: how many there are; None where the server does not say it.

    Args:
        url: any that fsspec knows.
        read_ahead: whether it will be read to its end.

    Raises:
        RemoteError: it is not there, cannot be reached or may not be read; there is no such kind
            of URL, or its package is missing.
    """

    def __init__(self, url: str, *, read_ahead: bool = True) -> None:
        self._url = url
        with _one_line(url):
            self._file, self.size = _Store(url).open(read_ahead)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer)
        with _one_line(self._url):
            data = self._file.read(len(target))
        target[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        """Whether what is in front of a byte need not come too, to begin there."""
        return not self._url.startswith(WEB)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed and "_file" in vars(self):
            self._file.close()
        super().close()


@contextlib.contextmanager
def _one_line(url: str) -> Iterator[None]:
    """What a store raises, which may be anything, as a RemoteError."""
    try:
        yield
    except RemoteError:
        raise
    except Exception as error:
        raise RemoteError(errno.EIO, _reason(url, error), url) from None


def _reason(url: str, error: Exception) -> str:
    """The words of a store in one line, with what the user can do."""
    protocol = url.partition("://")[0].rpartition("::")[2]
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        error = cause  # for the web fsspec calls every failure so
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    words = " ".join(str(text).split())[:_LONGEST_REASON]
    status = getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(error, ImportError):
        is_known = protocol in _CREDENTIALS
        fix = how_to_install("remote") if is_known else "install it with pip"
        return f"needs a package ({words}); {fix}"
    is_said = "does not exist" in words
    if isinstance(error, FileNotFoundError) or status in _GONE or is_said:
        known = f" ({words})" if is_said else ""
        return f"is not there{known}; see whether the address is right"
    is_locked = "Credentials" in type(error).__name__  # botocore's and google-auth's
    if isinstance(error, PermissionError) or is_locked or status in _FORBIDDEN:
        hint = _CREDENTIALS.get(protocol)
        return f"may not be read ({words}){f'; {hint}' if hint else ''}"
    if isinstance(error, ValueError) and "rotocol" in words:
        return f"{protocol}:// is not a URL scheme that fsspec knows"
    if isinstance(error, IsADirectoryError):
        return "is a folder"
    if any("Timeout" in one.__name__ for one in type(error).__mro__):
        what = f"no byte came for {_timeout():g} s ({words})"
    else:
        what = f"cannot be reached: {type(error).__name__}: {words}"
    return f"{what}; try again when the server is well"


def _is_hidden(path: str) -> bool:
    return path.rstrip("/").rpartition("/")[2].startswith((".", "__MACOSX"))

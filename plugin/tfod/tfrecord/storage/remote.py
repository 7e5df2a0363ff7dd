"""Remote files by URL through fsspec: listings and streams.

``s3://bucket/train-*``, ``gs://bucket/folder``, ``https://host/train.tfrecord``, ``memory://…``.
Retries are left to s3fs, gcsfs and aiohttp; tfod only sets their options.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.storage.urls import WEB, is_pattern, quote_url, strip_query

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TIMEOUT = 60
"""The default of TFOD_REMOTE_TIMEOUT: seconds to wait for data."""
_BLOCK_BYTES = 8 << 20
"""The size of a request for a shard that is read to its end."""
_PREVIEW_BLOCK_BYTES = 1 << 18
"""The size of a request if only the first records are read."""
_MAX_DEPTH = 3  # as in local folders
_NOT_FOUND = (404, 410)
_FORBIDDEN = (401, 403)
_CREDENTIALS = {
    "s3": "s3fs looks for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and "
    "AWS_ENDPOINT_URL; FSSPEC_S3_ANON=true reads a public bucket",
    "gs": "gcsfs looks for GOOGLE_APPLICATION_CREDENTIALS and for the login of gcloud; "
    "FSSPEC_GS_TOKEN=anon reads a public bucket",
    "https": "the server may require a login, or the signed URL may have expired",
}
_CREDENTIALS["s3a"], _CREDENTIALS["gcs"] = _CREDENTIALS["s3"], _CREDENTIALS["gs"]
_CREDENTIALS["http"] = _CREDENTIALS["https"]
_MAX_REASON = 300  # characters


class RemoteError(TfodError, OSError):
    """A URL cannot be read; ``strerror`` is the reason."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


Listing: TypeAlias = "dict[str, int | None]"
"""Files by URL, with their size in bytes, or None if the store does not report it."""


def list_remote(url: str) -> Listing:
    """List the files at a URL, sorted: a file, a glob (also ``**``), or a folder.

    Folders are listed three levels deep, without hidden names. On the web, the URL of a folder
    ends with ``/``, and the links on its page are listed. Raises RemoteError if the URL cannot be
    read or the package for its scheme is not installed.
    """
    with _convert_errors(url):
        store = _Store(url)
        if is_pattern(url):
            files = store.glob()
        elif store.is_web and strip_query(url).endswith("/"):
            files = store.walk(store.path, _MAX_DEPTH)
        else:
            info = store.info()
            if info["type"] != "directory":
                return {url: info.get("size")}
            files = store.walk(store.path, _MAX_DEPTH)
    return dict(sorted(files.items()))


def list_remote_folder(url: str) -> list[str]:
    """List the URLs of the files directly in a folder, with the errors of :func:`list_remote`."""
    with _convert_errors(url):
        store = _Store(url)
        return sorted(store.list_folder(store.path)[0])


class _Store:
    def __init__(self, url: str) -> None:
        import logging  # slow to load, and not needed for local files

        import fsspec

        for library in ("asyncio", "gcsfs", "s3fs"):  # RemoteError has their messages
            logging.getLogger(library).addHandler(logging.NullHandler())
        self.is_web = url.startswith(WEB)
        protocol = url.partition("://")[0]
        options = _options(protocol)
        if self.is_web:  # a signature is only valid for the exact characters of the URL
            # url_to_fs would take a host such as [::1] for a chain of URLs.
            self.filesystem = fsspec.filesystem(protocol, encoded=True, **options)
            self.path = quote_url(url)
        else:
            self.filesystem, self.path = fsspec.core.url_to_fs(url, **options)
        self.filesystem.invalidate_cache()  # cached listings would hide changes

    def info(self) -> dict[str, Any]:
        # Without a timeout, gcsfs would retry forever.
        limits = {"timeout": 2 * _timeout()} if self.filesystem.async_impl else {}
        return dict(self.filesystem.info(self.path, **limits))

    def list_folder(self, folder: str) -> tuple[Listing, list[str]]:
        """Return the files directly in a folder, and the paths of its subfolders."""
        path = folder.rstrip("/") + "/" if self.is_web else folder.rstrip("/")
        files: Listing = {}
        folders = []
        for info in self.filesystem.ls(path, detail=True):
            name = info["name"]
            if name.rstrip("/") == path.rstrip("/"):
                continue  # a bucket may contain an empty object with the name of the folder
            # A link may lead elsewhere, or to the same page with another sort order.
            if self.is_web and ("?" in name or not name.startswith(path)):
                continue
            if info["type"] == "directory":
                folders.append(name)
            else:
                files[self._url(name)] = info.get("size")
        return files, sorted(folders)

    def walk(self, folder: str, depth: int) -> Listing:
        """Return the files in a folder and ``depth`` levels of subfolders, without hidden ones."""
        files, folders = self.list_folder(folder)
        visible = {url: size for url, size in files.items() if not _is_hidden(url)}
        for subfolder in folders:
            if depth and not _is_hidden(subfolder):
                visible |= self.walk(subfolder, depth - 1)
        return visible

    def glob(self) -> Listing:
        """Return the files that match the path; hidden files only if the pattern has ``/.``."""
        matches = self.filesystem.glob(self.path, detail=True)
        if not matches:
            prefix = self.path[: min(map(self.path.find, filter(self.path.count, "*?[")))]
            self.list_folder(prefix.rpartition("/")[0])  # raises errors, which glob ignores
        return {
            self._url(name): info.get("size")
            for name, info in matches.items()
            if info["type"] != "directory"
            and not (self.is_web and "?" in name)
            and ("/." in self.path or not any(map(_is_hidden, name.split("/"))))
        }

    def open(self, read_ahead: bool) -> tuple[Any, int | None]:
        """Open the file for sequential reading; return it with its length, or None if unknown."""
        info = self.info()
        if info["type"] == "directory":
            raise IsADirectoryError
        size = info.get("size")
        if self.is_web:  # one request, since servers need not support ranges
            return self.filesystem.open(self.path, "rb", block_size=0, size=size), size
        block = _BLOCK_BYTES if read_ahead else _PREVIEW_BLOCK_BYTES
        return self.filesystem.open(self.path, "rb", block_size=block, cache_type="readahead"), size

    def _url(self, name: str) -> str:
        return name if self.is_web else str(self.filesystem.unstrip_protocol(name))


def _options(protocol: str) -> dict[str, Any]:
    """Return options that set the timeout for all attempts together, unless the user has set it."""
    import fsspec

    if protocol not in _CREDENTIALS:
        return {}
    kind = fsspec.get_filesystem_class(protocol)
    seconds = _timeout() / getattr(kind, "retries", 1)
    if "s3" in kind.protocol:
        name = "config_kwargs"
        limits: dict[str, Any] = {"connect_timeout": seconds, "read_timeout": seconds}
        limits["retries"] = {"total_max_attempts": 1}  # s3fs has its own retries
    else:
        import aiohttp

        name = "session_kwargs" if "gs" in kind.protocol else "client_kwargs"
        limits = {"timeout": aiohttp.ClientTimeout(None, sock_connect=seconds, sock_read=seconds)}
    for alias in kind.protocol:
        limits |= fsspec.config.conf.get(alias, {}).get(name, {})
    return {name: limits}


def _timeout() -> float:
    return float(os.environ.get("TFOD_REMOTE_TIMEOUT") or _TIMEOUT)


class RemoteStream(io.RawIOBase):
    """The bytes at a URL; every error is raised as RemoteError.

    Args:
        url: URL with a scheme that fsspec supports.
        read_ahead: whether the stream will be read to its end.

    Attributes:
        size: number of bytes, or None if the server does not report it.
    """

    def __init__(self, url: str, *, read_ahead: bool = True) -> None:
        self._url = url
        with _convert_errors(url):
            self._file, self.size = _Store(url).open(read_ahead)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer)
        with _convert_errors(self._url):
            data = self._file.read(len(target))
        target[: len(data)] = data
        return len(data)

    def seekable(self) -> bool:
        """Return whether reading can begin at any byte; not on the web."""
        return not self._url.startswith(WEB)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        if not self.closed and "_file" in vars(self):
            self._file.close()
        super().close()


@contextlib.contextmanager
def _convert_errors(url: str) -> Iterator[None]:
    try:
        yield
    except RemoteError:
        raise
    except Exception as error:
        raise RemoteError(errno.EIO, _describe(url, error), url) from None


def _describe(url: str, error: Exception) -> str:
    """Return the message of an error in one line, with a hint for the user."""
    protocol = url.partition("://")[0].rpartition("::")[2]
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        error = cause  # for web URLs, fsspec raises FileNotFoundError for every failure
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = " ".join(str(text).split())[:_MAX_REASON]
    status = getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(error, ImportError):
        fix = how_to_install("remote") if protocol in _CREDENTIALS else "install it with pip"
        return f"needs a package ({reason}); {fix}"
    is_missing = "does not exist" in reason
    if isinstance(error, FileNotFoundError) or status in _NOT_FOUND or is_missing:
        detail = f" ({reason})" if is_missing else ""
        return f"does not exist{detail}; check the URL"
    lacks_login = "Credentials" in type(error).__name__  # errors of botocore and google-auth
    if isinstance(error, PermissionError) or lacks_login or status in _FORBIDDEN:
        hint = _CREDENTIALS.get(protocol)
        return f"access is denied ({reason}){f'; {hint}' if hint else ''}"
    if isinstance(error, ValueError) and "rotocol" in reason:
        return f"{protocol}:// is not a URL scheme that fsspec supports"
    if isinstance(error, IsADirectoryError):
        return "is a folder"
    if any("Timeout" in base.__name__ for base in type(error).__mro__):
        message = f"the server sent no data for {_timeout():g} s ({reason})"
    else:
        message = f"cannot be reached: {type(error).__name__}: {reason}"
    return f"{message}; try again later"


def _is_hidden(path: str) -> bool:
    return path.rstrip("/").rpartition("/")[2].startswith((".", "__MACOSX"))

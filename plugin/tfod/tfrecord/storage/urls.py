"""URLs that fsspec knows, paths of this machine, zips: which is which, and what their parts are."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from tfod.errors import TfodError
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header

WEB = ("http://", "https://")
_ZIP_MAGIC = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
_BARE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


def is_url(path: str) -> bool:
    """Whether a path is a URL, as opposed to a path of this machine (``C:\\…`` is one)."""
    return "://" in path


def is_zip(path: str) -> bool:
    """Whether a file is a zip by its first bytes, or by its name when it is damaged."""
    if path.lower().endswith(".zip"):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
    except OSError:
        return False
    return head.startswith(_ZIP_MAGIC) and not is_record_header(head)  # a record may be so long


def name_of(path: str) -> str:
    """The file name of a path or a URL; of that without a query, as signed addresses have one."""
    if not is_url(path):
        return os.path.basename(path)
    name = without_query(path).rpartition("/")[2]
    plain = unquote(name) if path.startswith(WEB) else name
    return name if "/" in plain or "\0" in plain else plain  # it stays the name of a file


def absolute(path: str) -> str:
    """A path or a URL, without a slash at its end."""
    return without_query(path).rstrip("/") if is_url(path) else os.path.abspath(path)


def folder_of(path: str) -> str:
    """The folder that a path or a URL is in; of a bucket or a host, itself."""
    whole = absolute(path)
    if not is_url(path):
        return os.path.dirname(whole)
    scheme, _, inside = whole.partition("://")
    return f"{scheme}://{inside.rpartition('/')[0] or inside}"


def is_pattern(url: str) -> bool:
    """Whether a URL has wildcards; on the web ``?`` begins a query."""
    if not url.startswith(WEB):
        return any(one in url for one in "*?[")
    names = without_query(url).partition("://")[2].partition("/")[2]  # a host may be [::1]
    return any(one in names for one in "*[")


def require_local(path: str) -> None:
    """See that a location to write to is on this machine.

    Raises:
        TfodError: it is a URL.
    """
    if is_url(path):
        raise TfodError(f"{path}: URLs are read only; write to this machine, and copy it there")


def quoted(url: str) -> str:
    """An address as it goes over the line; what is quoted already stays as it is."""
    return quote(_BARE_PERCENT.sub("%25", url), safe="%/:=&?~#+!$,;'@()*[]|")


def without_query(url: str) -> str:
    """An address of the web without its query; other URLs have none."""
    return url.partition("?")[0] if url.startswith(WEB) else url

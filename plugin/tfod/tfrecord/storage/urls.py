"""Functions to tell URLs, local paths and zips apart, and to get their parts."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import quote, unquote

from tfod.errors import TfodError
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header

WEB = ("http://", "https://")
_ZIP_MAGIC = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
_BARE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


def is_url(path: str) -> bool:
    """Return whether a path is a URL rather than a local path, such as ``C:\\…``."""
    return "://" in path


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is a loopback address."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_zip(path: str) -> bool:
    """Return whether a file is a zip by its name or its first bytes."""
    if path.lower().endswith(".zip"):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
    except OSError:
        return False
    # A shard may begin with the same bytes, which are the length of its first record.
    return head.startswith(_ZIP_MAGIC) and not is_record_header(head)


def get_name(path: str) -> str:
    """Return the file name of a path or URL, without the query of signed URLs."""
    if not is_url(path):
        return os.path.basename(path)
    name = strip_query(path).rpartition("/")[2]
    unquoted = unquote(name) if path.startswith(WEB) else name
    return name if "/" in unquoted or "\0" in unquoted else unquoted


def to_absolute(path: str) -> str:
    """Return the absolute path, or the URL without its query; without a slash at the end."""
    return strip_query(path).rstrip("/") if is_url(path) else os.path.abspath(path)


def get_folder(path: str) -> str:
    """Return the folder of a path or URL; the folder of a bucket or host is itself."""
    full_path = to_absolute(path)
    if not is_url(path):
        return os.path.dirname(full_path)
    scheme, _, inside = full_path.partition("://")
    return f"{scheme}://{inside.rpartition('/')[0] or inside}"


def is_pattern(url: str) -> bool:
    """Return whether a URL has wildcards; in web URLs, ``?`` begins a query."""
    if not url.startswith(WEB):
        return any(wildcard in url for wildcard in "*?[")
    path = strip_query(url).partition("://")[2].partition("/")[2]  # a host may be [::1]
    return any(wildcard in path for wildcard in "*[")


def require_local(path: str) -> None:
    """Check that an output path is not a URL; raise TfodError if it is."""
    if is_url(path):
        raise TfodError(f"{path}: cannot write to a URL; write to a local folder, and upload it")


def quote_url(url: str) -> str:
    """Quote the special characters of a URL, except for those that are already quoted."""
    return quote(_BARE_PERCENT.sub("%25", url), safe="%/:=&?~#+!$,;'@()*[]|")


def strip_query(url: str) -> str:
    """Return a web URL without its query; other URLs do not have one."""
    return url.partition("?")[0] if url.startswith(WEB) else url

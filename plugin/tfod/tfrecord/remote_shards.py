"""The shards that a URL means, grouped as those of local folders are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.errors import ShardsNotFoundError
from tfod.tfrecord.remote import (
    RemoteError,
    absolute,
    folder_of,
    is_pattern,
    list_remote,
    name_of,
)
from tfod.tfrecord.shards import (
    ROBOFLOW_NOTE,
    SHARD_EXTENSIONS,
    ShardSet,
    group_shards,
    parse_shard_name,
)

_ZIP_ENDING = ".zip"


@dataclass(frozen=True)
class RemoteShards:
    """What a URL means.

    Attributes:
        sets: the shards in their subsets; they have no zip among them.
        zips: URLs of zips: all that a glob or the URL of a file means, and those of a folder
            without shards.
        sizes: of all of these in bytes, by URL; None where the listing does not say it.
    """

    sets: Sequence[ShardSet]
    zips: Sequence[str]
    sizes: Mapping[str, int | None]


def look_for_shards(url: str) -> RemoteShards:
    """What a file, a glob or a folder holds, from listings alone.

    Raises:
        ShardsNotFoundError: there is neither a shard nor a zip.
        RemoteError: it cannot be reached, or may not be read.
    """
    if not url.partition("://")[2].strip("/"):
        raise RemoteError(url, "names no bucket and no host; write for example s3://bucket/folder")
    files = list_remote(url)
    sizes = {one.url: one.size for one in files}
    if list(sizes) == [url]:
        if not name_of(url):
            raise RemoteError(url, "is a file; leave the slash at its end out")
        root, paths, by_folder = folder_of(url), [url], False
    elif is_pattern(url):
        root, paths, by_folder = _fixed_part(url), list(sizes), False
    else:
        root = absolute(url)
        paths = [path for path in sizes if _is_shard(path)]
        # The zips of a folder are meant when it has no shards.
        paths = paths or [path for path in sizes if _is_zip(path) and folder_of(path) == root]
        by_folder = f"{root}/{ROBOFLOW_NOTE}" in sizes
    if not paths:
        raise ShardsNotFoundError(_not_found(url))
    zips = [path for path in paths if _is_zip(path)]
    shards = [path for path in paths if not _is_zip(path)]
    return RemoteShards(group_shards(shards, root, by_folder), zips, sizes)


def find_remote_shards(url: str) -> RemoteShards:
    """The same, where zips are of no use.

    Raises:
        ShardsNotFoundError, RemoteError: as :func:`look_for_shards`; the former if all are zips.
    """
    found = look_for_shards(url)
    if not found.sets:
        raise ShardsNotFoundError(
            f"{found.zips[0]}: the shards of a remote zip cannot be read one by one; "
            "copy it here first, or look at it with: tfod check"
        )
    return found


def _is_shard(url: str) -> bool:
    """Whether a file in a folder is a shard, by its name alone."""
    # TensorBoard's logs are TFRecord files too.
    return "tfevents" not in name_of(url).lower() and parse_shard_name(url) is not None


def _is_zip(url: str) -> bool:
    return name_of(url).lower().endswith(_ZIP_ENDING)


def _fixed_part(pattern: str) -> str:
    """The folder of a glob in front of its first wildcard."""
    folder = folder_of(pattern)
    while is_pattern(folder):
        folder = folder_of(folder)
    return folder


def _not_found(url: str) -> str:
    if is_pattern(url):
        hint = ""
        if absolute(url) != url.rstrip("/"):
            hint = "; a listing takes no query: name the shards one by one, each with its own"
        elif "[" in url:
            hint = "; a bracket in a name is written [[]"
        return f"{url}: no file matches this pattern{hint}"
    return (
        f"{url}: no shard in this folder or the three levels below it; shards are named "
        f"*{', *'.join(SHARD_EXTENSIONS)} or *-00000-of-00010"
    )

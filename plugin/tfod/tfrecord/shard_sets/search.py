"""Search for shards in files, folders, zips, globs and URLs, grouped into shard sets.

A file with the name of a shard is a shard, even if damaged. Others need a valid first header.
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tfod.errors import ShardsNotFoundError, TfodError
from tfod.tfrecord.damage import empty_file
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header
from tfod.tfrecord.image_names import list_names
from tfod.tfrecord.shard_sets.shard_names import (
    MAX_MISSING,
    SHARD_EXTENSIONS,
    SPLITS,
    ShardName,
    find_missing,
    is_in_numbered_set,
    parse_shard_name,
    parse_shard_names,
    to_subset,
)
from tfod.tfrecord.storage.open import find_zip_entry, open_shard
from tfod.tfrecord.storage.remote import Listing, list_remote
from tfod.tfrecord.storage.urls import get_folder, get_name, is_pattern, is_url, is_zip, to_absolute
from tfod.tfrecord.storage.zip_entry import inspect_zip

if TYPE_CHECKING:
    from tfod.tfrecord.storage.archive import ZipContent

Sources: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
"""A file, a folder, a zip, a glob or a URL with shards, or several of them."""
ROBOFLOW_NOTE = "README.roboflow.txt"
# Files of these types are often next to shards, and are not opened.
_OTHER_EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".mp4"),
        *(".xml", ".json", ".txt", ".csv", ".pbtxt", ".yaml", ".yml", ".config", ".md", ".html"),
        *(".zip", ".tar", ".pb", ".npy", ".pkl", ".h5", ".index", ".meta", ".tfindex"),
        *(".py", ".ipynb", ".sh", ".log", ".pdf", ".idx"),
    )
)
_MAX_DEPTH = 3
ALL_LEVELS = 32
"""More levels than any dataset has, for :func:`walk_files`."""
_NAMING_HINT = f"shards are named *{', *'.join(SHARD_EXTENSIONS)} or *-00000-of-00010"
_COMPRESSED_HEAD_BYTES = 512


@dataclass(frozen=True)
class ShardSet:
    """The shards of one subset.

    Attributes:
        paths: paths of the shards, in the order of their numbers.
        missing: names of files that are missing according to the numbering.
        stem: base name for files created from the set; empty to use the name of the first shard.
    """

    subset: str
    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()
    stem: str = ""


@dataclass(frozen=True)
class RemoteShards:
    """The shards, zips and all files at a URL; a folder with shards has no zips."""

    sets: Sequence[ShardSet]
    zips: Sequence[str]
    files: Listing


def describe_missing(sets: Sequence[ShardSet]) -> list[str]:
    """Return a message for each subset with missing shards."""
    messages = []
    for shard_set in sets:
        count = len(shard_set.missing)
        if count:
            first = shard_set.missing[0]
            subject = f"{first} is" if count == 1 else f"{count:,} shards ({first}, …) are"
            messages.append(f"{shard_set.subset}: {subject} missing; the new shards are renumbered")
    return messages


def require_content(paths: Sequence[str]) -> None:
    """Raise ShardError if all shards of a set have 0 bytes; some of them may be empty."""
    # For a single file, the reader raises the error itself.
    if (len(paths) > 1 or is_in_numbered_set(paths[0])) and all(map(_is_empty, paths)):
        cause = "is empty (0 bytes), and so are all other shards of its set"
        fix = "export or download the shards again"
        raise replace(empty_file(paths[0]), cause=cause, fix=fix).to_error()


def _is_empty(path: str) -> bool:
    with open_shard(path) as (stream, size):
        return not stream.read(1) if size is None else size == 0


def find_shards(source: str | os.PathLike[str]) -> list[ShardSet]:
    """Find the shards at a path, grouped into subsets.

    The path is a file, a folder, a zip, a glob or a URL. Folders are searched three levels deep.
    A subfolder with the name of a split (``train``, ``valid``, ``test``) names the subset of its
    shards; in Roboflow exports every subfolder does. Shards in a zip have paths as if the zip were
    a folder (``export.zip/train/a.tfrecord``), which all functions of tfod accept.

    Raises:
        ShardsNotFoundError: the path contains no shards.
        ShardError: the zip is damaged, or a shard in it is unsafe to read.
        RemoteError: the URL cannot be read.
    """
    text = os.fspath(source)
    if is_url(text):
        remote = find_remote_shards(text)
        if not remote.sets:
            raise ShardsNotFoundError(
                f"{remote.zips[0]}: the shards in a remote zip cannot be read individually; "
                f"download the zip first, or {inspect_zip(remote.zips[0])}"
            )
        return list(remote.sets)
    root = text
    if os.path.isfile(text) and is_zip(text):
        paths = _search_zip(text)
    elif os.path.isdir(text):
        paths = [path for path in walk_files(text) if looks_like_shard(path)]
    elif os.path.isfile(text) or find_zip_entry(text) is not None:
        return group_shards([text])
    else:
        paths = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
        root = os.path.dirname(text)
        while glob.has_magic(root):
            root = os.path.dirname(root)
    if not paths:
        raise ShardsNotFoundError(_not_found(text))
    return group_shards(paths, root, by_folder=is_roboflow_export(root))


def find_remote_shards(url: str) -> RemoteShards:
    """Find the shards at a URL from listings, with the errors of :func:`find_shards`."""
    if not url.partition("://")[2].strip("/"):
        raise TfodError(f"{url}: has no bucket or host; write for example s3://bucket/folder")
    files = list_remote(url)
    by_folder = False
    paths = list(files)
    if paths == [url]:
        if not get_name(url):
            raise TfodError(f"{url}: is a file; remove the slash at the end")
        root = get_folder(url)
    elif is_pattern(url):
        root = get_folder(url)
        while is_pattern(root):
            root = get_folder(root)
    else:
        root = to_absolute(url)
        paths = [file for file in files if parse_shard_name(file) and not _is_tensorboard_log(file)]
        # The zips in a folder are used only if it has no shards.
        if not paths:
            paths = [file for file in files if _is_remote_zip(file) and get_folder(file) == root]
        by_folder = f"{root}/{ROBOFLOW_NOTE}" in files
    if not paths:
        raise ShardsNotFoundError(_not_found_at_url(url))
    zips = [path for path in paths if _is_remote_zip(path)]
    shards = [path for path in paths if not _is_remote_zip(path)]
    return RemoteShards(group_shards(shards, root, by_folder), zips, files)


def group_shards(
    paths: Sequence[str], root: str | None = None, by_folder: bool = False
) -> list[ShardSet]:
    """Group shards into subsets, by split folder and by file name without its number.

    With ``by_folder``, every folder below the root is a split folder; without a root, none is.
    """
    names = parse_shard_names(paths)
    groups: dict[str, list[str]] = {}
    for path in sorted(paths):
        groups.setdefault(_find_subset(path, names[path], root, by_folder), []).append(path)
    for shards in groups.values():
        shards.sort(key=lambda path: (get_folder(path), names[path].stem, names[path].number or 0))
    return make_sets(groups)


def make_sets(paths_by_subset: Mapping[str, Sequence[str]]) -> list[ShardSet]:
    """Return the shard sets of subsets whose shards are in order, with the missing names."""
    sets: list[ShardSet] = []
    max_missing = MAX_MISSING
    for subset, paths in paths_by_subset.items():
        missing = find_missing(paths, max_missing)
        max_missing = max(0, max_missing - len(missing))
        sets.append(ShardSet(subset, tuple(paths), tuple(missing)))
    return sets


def find_subsets(folder: str, extension: str = "") -> dict[str, list[str]]:
    """Return the shards directly in a folder by subset, judging each only by its own name."""
    subsets: dict[str, list[str]] = {}
    for path in (os.path.join(folder, name) for name in sorted(list_names(folder))):
        name = parse_shard_name(path) if path.endswith(extension) else None
        if name is not None and os.path.isfile(path):
            subsets.setdefault(to_subset(name.stem), []).append(path)
    return subsets


def _find_subset(path: str, name: ShardName, root: str | None, by_folder: bool) -> str:
    parent = get_folder(path)
    is_below = root is not None and parent != to_absolute(root or ".")
    if is_below and (by_folder or get_name(parent).lower() in SPLITS):
        return to_subset(get_name(parent))
    return to_subset(name.stem)


def is_roboflow_export(root: str) -> bool:
    """Return whether a folder or zip contains the note that Roboflow adds to its exports."""
    note = os.path.join(root, ROBOFLOW_NOTE)
    if not os.path.isfile(root):
        return os.path.isfile(note)
    from tfod.tfrecord.storage.archive import list_zip_folder  # only needed for zips

    return note in list_zip_folder(root)


def _read_head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES + 1)
    except OSError:
        return b""


def looks_like_shard(path: str, read_head: Callable[[str], bytes] = _read_head) -> bool:
    """Return whether a file is a shard by its name or, for other names, by its first 13 bytes."""
    name = os.path.basename(path).lower()
    if _is_tensorboard_log(path):
        return False
    if parse_shard_name(path) is not None:
        return True
    if name.startswith(".") or os.path.splitext(name)[1] in _OTHER_EXTENSIONS:
        return False
    head = read_head(path)
    # An Example begins with field 1; other messages in TFRecord files rarely do.
    return is_record_header(head) and head.startswith(b"\n", HEADER_BYTES)


def walk_files(
    folder: str, max_depth: int = _MAX_DEPTH, parents: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield the files below a folder, except for hidden ones and links to ``parents``."""
    real = os.path.realpath(folder)
    subfolders = []
    for entry in _list_entries(folder) if real not in parents else ():
        if entry.is_dir():
            subfolders.append(entry.path)
        # Pipes and devices are skipped: opening one may block, or it may never end. A broken link
        # is not, so that reading it reports an error.
        elif entry.is_file() or not os.path.exists(entry.path):
            yield entry.path
    for subfolder in subfolders if max_depth else ():
        yield from walk_files(subfolder, max_depth - 1, parents | {real})


def _list_entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.name.startswith((".", "__MACOSX")):
                    yield entry
    except OSError:
        return


def _search_zip(archive: str) -> list[str]:
    from tfod.tfrecord.storage.archive import read_valid_zip, require_readable

    content = read_valid_zip(archive)
    shards = find_zip_shards(content)
    for path in shards:
        require_readable(content.entries[path], content)
    return shards


def find_zip_shards(content: ZipContent) -> list[str]:
    """Return the paths of the shards in a zip, including those that are unsafe to read."""

    def read_head(path: str) -> bytes:
        return _decompress_head(content.readable[path].read_head(_COMPRESSED_HEAD_BYTES))

    return [
        path
        for path, entry in content.entries.items()
        if not is_hidden(entry.inside)
        and (parse_shard_name(path) or path in content.readable)
        and looks_like_shard(path, read_head)
    ]


def is_hidden(inside: str) -> bool:
    """Return whether a part of a path is hidden, so that it is not searched."""
    return any(part.startswith((".", "__MACOSX")) and part != ".." for part in inside.split("/"))


def _decompress_head(head: bytes) -> bytes:
    """Decompress the first bytes of a shard if they are gzip, as the reader of shards does."""
    if is_record_header(head[:HEADER_BYTES]) or not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, HEADER_BYTES + 1)
    except zlib.error:
        return b""


def _is_remote_zip(url: str) -> bool:
    return get_name(url).lower().endswith(".zip")


def _is_tensorboard_log(path: str) -> bool:
    # These logs are TFRecord files, too, but contain other messages.
    return "tfevents" in get_name(path).lower()


def _not_found(text: str) -> str:
    if os.path.isfile(text):
        return f"{text}: no shard in this archive; {inspect_zip(text)}"
    if os.path.isdir(text):
        if archive := next(glob.iglob(os.path.join(glob.escape(text), "*.zip")), None):
            return f"{text}: no shard in this folder, only zips; pass a zip, such as {archive}"
        return f"{text}: no shard in this folder or the three levels below it; {_NAMING_HINT}"
    if glob.has_magic(text):
        return f"{text}: no file matches this pattern"
    if text == "-":
        return f"{text}: only tfod check and tfod show read standard input; pass a file"
    if os.path.exists(text):
        return f"{text}: is neither a file nor a folder"
    return f"{text}: no such file or folder"


def _not_found_at_url(url: str) -> str:
    if not is_pattern(url):
        return f"{url}: no shard in this folder; {_NAMING_HINT}"
    hint = ""
    if to_absolute(url) != url.rstrip("/"):
        hint = "; folders cannot be listed with a query string; pass the signed URL of each shard"
    elif "[" in url:
        hint = "; write [[] for a bracket in a name"
    return f"{url}: no file matches this pattern{hint}"

"""Finding shards: files, folders, zips, globs, URLs, numbered sets, Roboflow's folders.

What is a shard is decided by name and by content: a file of a known name is one even when it is
damaged (the reader then says how), any other file only when it begins with a sound record header.
In a remote folder a shard is known by its name alone.
"""

from __future__ import annotations

import glob
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tfod.errors import ShardsNotFoundError, TfodError
from tfod.tfrecord.damage import empty_file
from tfod.tfrecord.framing import HEADER_BYTES, is_record_header
from tfod.tfrecord.image_names import names_in_folder
from tfod.tfrecord.shard_sets.shard_names import (
    MOST_MISSING,
    SHARD_EXTENSIONS,
    SPLITS,
    ShardName,
    is_one_of_several,
    missing_of_sets,
    parse_shard_name,
    shard_names,
    subset_of_stem,
)
from tfod.tfrecord.storage.open import open_shard, zip_entry
from tfod.tfrecord.storage.remote import Listing, list_remote
from tfod.tfrecord.storage.urls import absolute, folder_of, is_pattern, is_url, is_zip, name_of

if TYPE_CHECKING:
    from tfod.tfrecord.storage.archive import ZipContent

Sources: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
"""A file, a folder, a zip, a glob or a URL with shards, or several of them."""
ROBOFLOW_NOTE = "README.roboflow.txt"
# What lies beside shards and needs no look inside.
_OTHER_EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".mp4"),
        *(".xml", ".json", ".txt", ".csv", ".pbtxt", ".yaml", ".yml", ".config", ".md", ".html"),
        *(".zip", ".tar", ".pb", ".npy", ".pkl", ".h5", ".index", ".meta", ".tfindex"),
        *(".py", ".ipynb", ".sh", ".log", ".pdf", ".idx"),
    )
)
_MAX_DEPTH = 3
HOW_SHARDS_ARE_NAMED = f"shards are named *{', *'.join(SHARD_EXTENSIONS)} or *-00000-of-00010"
_PACKED_HEAD_BYTES = 512


@dataclass(frozen=True)
class ShardSet:
    """Shards that make up one subset.

    Attributes:
        subset: the subset's name.
        paths: the files, in the order of their numbers.
        missing: names of the files that the numbering promises and that are not there.
        stem: what files made of them are called; empty for the name of the first file.
    """

    subset: str
    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()
    stem: str = ""


@dataclass(frozen=True)
class RemoteShards:
    """What a URL means: shards, and zips where a file or glob means them or no shards are there.

    ``files`` are all that it lists.
    """

    sets: Sequence[ShardSet]
    zips: Sequence[str]
    files: Listing


def missing_shards(sets: Sequence[ShardSet]) -> list[str]:
    """A sentence for each subset whose numbering promises shards that are not there."""
    found = []
    for one in sets:
        count = len(one.missing)
        if count:
            some = f"{one.missing[0]} is" if count == 1 else ""
            some = some or f"{count:,} shards ({one.missing[0]}, …) are"
            found.append(f"{one.subset}: {some} missing; the new shards are renumbered")
    return found


def require_content(paths: Sequence[str]) -> None:
    """Raise ShardError where all shards of a set are files of 0 bytes, which one of them may be."""
    # The reader of a file that stands alone says so itself.
    if (len(paths) > 1 or is_one_of_several(paths[0])) and all(map(_is_empty, paths)):
        what = "is empty (0 bytes), and so are all shards of its set that are there"
        fix = "export or download the shards again"
        raise replace(empty_file(paths[0]), cause=what, fix=fix).to_error()


def _is_empty(path: str) -> bool:
    with open_shard(path) as (stream, size):
        return not stream.read(1) if size is None else size == 0


def find_shards(source: str | os.PathLike[str]) -> list[ShardSet]:
    """Find the shards that a file, a folder, a zip, a glob or a URL means, grouped into subsets.

    A folder is searched three levels deep. A folder named as a split (``train``, ``valid``,
    ``test``) names the subset of what it holds, unless it is the folder that was asked for; in
    Roboflow's exports every folder does. A shard in a zip has a path as if the zip were a folder
    (``export.zip/train/a.tfrecord``), which every function of tfod that reads shards takes; so is a
    URL such as ``s3://bucket/train-*``.

    Raises:
        ShardsNotFoundError: nothing that looks like a shard is there.
        ShardError: a zip is damaged, or a shard in it should not be read.
        RemoteError: a URL leads to nothing that can be read.
    """
    text = os.fspath(source)
    if is_url(text):
        remote = find_remote_shards(text)
        if not remote.sets:
            raise ShardsNotFoundError(
                f"{remote.zips[0]}: the shards of a remote zip cannot be read one by one; "
                "copy it here first, or look at it with: tfod check"
            )
        return list(remote.sets)
    root = text
    if os.path.isfile(text) and is_zip(text):
        paths = _search_zip(text)
    elif os.path.isdir(text):
        paths = [path for path in files_below(text) if looks_like_shard(path)]
    elif os.path.isfile(text) or zip_entry(text) is not None:
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
    """What a remote file, glob or folder holds, from listings alone; raises as find_shards."""
    if not url.partition("://")[2].strip("/"):
        raise TfodError(f"{url}: names no bucket and no host; write for example s3://bucket/folder")
    files = list_remote(url)
    by_folder = False
    paths = list(files)
    if paths == [url]:
        if not name_of(url):
            raise TfodError(f"{url}: is a file; leave the slash at its end out")
        root = folder_of(url)
    elif is_pattern(url):
        root = folder_of(url)
        while is_pattern(root):
            root = folder_of(root)
    else:
        root = absolute(url)
        paths = [one for one in files if parse_shard_name(one) and not _is_tensorboard_log(one)]
        # The zips of a folder are meant when it has no shards.
        paths = paths or [one for one in files if _is_remote_zip(one) and folder_of(one) == root]
        by_folder = f"{root}/{ROBOFLOW_NOTE}" in files
    if not paths:
        raise ShardsNotFoundError(_not_found_remotely(url))
    zips = [path for path in paths if _is_remote_zip(path)]
    shards = [path for path in paths if not _is_remote_zip(path)]
    return RemoteShards(group_shards(shards, root, by_folder), zips, files)


def group_shards(
    paths: Sequence[str], root: str | None = None, by_folder: bool = False
) -> list[ShardSet]:
    """Group shard files into subsets, by folder of a split and by the name without its number.

    With ``by_folder`` every folder below the root is one of a split; without a root none is.
    """
    names = shard_names(paths)
    groups: dict[str, list[str]] = {}
    for path in sorted(paths):
        groups.setdefault(_subset_of(path, names[path], root, by_folder), []).append(path)
    sets: list[ShardSet] = []
    left = MOST_MISSING
    for subset, own in groups.items():
        own.sort(key=lambda path: (folder_of(path), names[path].stem, names[path].number or 0))
        missing = missing_of_sets(own, left)
        left = max(0, left - len(missing))
        sets.append(ShardSet(subset, tuple(own), tuple(missing)))
    return sets


def shards_by_subset(folder: str, extension: str = "") -> dict[str, list[str]]:
    """The shards in a folder, not below it, by the subset that the name of each says by itself.

    What only the names of several files say together is left out: no file is chosen by a guess.
    """
    found: dict[str, list[str]] = {}
    for path in (os.path.join(folder, name) for name in sorted(names_in_folder(folder))):
        name = parse_shard_name(path) if path.endswith(extension) else None
        if name is not None and os.path.isfile(path):
            found.setdefault(subset_of_stem(name.stem), []).append(path)
    return found


def _subset_of(path: str, name: ShardName, root: str | None, by_folder: bool) -> str:
    parent = folder_of(path)
    is_below = root is not None and parent != absolute(root or ".")
    if is_below and (by_folder or name_of(parent).lower() in SPLITS):
        return subset_of_stem(name_of(parent))
    return subset_of_stem(name.stem)


def is_roboflow_export(root: str) -> bool:
    """Whether a folder or a zip has the note that Roboflow puts into its exports."""
    note = os.path.join(root, ROBOFLOW_NOTE)
    if not os.path.isfile(root):
        return os.path.isfile(note)
    from tfod.tfrecord.storage.archive import files_in  # needed for zips alone

    return note in files_in(root)


def _first_bytes_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES + 1)
    except OSError:
        return b""


def looks_like_shard(path: str, head_of: Callable[[str], bytes] = _first_bytes_of) -> bool:
    """Whether a file is a shard by its name or, for an unknown name, by its first 13 bytes."""
    name = os.path.basename(path).lower()
    if _is_tensorboard_log(path):
        return False
    if parse_shard_name(path) is not None:
        return True
    if name.startswith(".") or os.path.splitext(name)[1] in _OTHER_EXTENSIONS:
        return False
    head = head_of(path)
    # An Example begins with its field 1; other messages in TFRecord files rarely do.
    return is_record_header(head) and head.startswith(b"\n", HEADER_BYTES)


def files_below(folder: str, max_depth: int = _MAX_DEPTH) -> Iterator[str]:
    """Paths of the files in a folder and the levels below it, hidden ones left out.

    Links to folders are followed, except for those that lead back.
    """
    level = [(folder, frozenset((os.path.realpath(folder),)))]
    for _ in range(max_depth + 1):
        below: list[tuple[str, frozenset[str]]] = []
        for where, above in level:
            for entry in _entries(where):
                if entry.is_dir():
                    real = os.path.realpath(entry.path)
                    below += [] if real in above else [(entry.path, above | {real})]
                # Opening a pipe waits for a writer, and a device never ends.
                elif entry.is_file():
                    yield entry.path
        level = below


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.name.startswith((".", "__MACOSX")):
                    yield entry
    except OSError:
        return


def _search_zip(archive: str) -> list[str]:
    from tfod.tfrecord.storage.archive import require_readable, sound_content

    content = sound_content(archive)
    found = shards_in_zip(content)
    for path in found:
        require_readable(content.entries[path], content)
    return found


def shards_in_zip(content: ZipContent) -> list[str]:
    """The paths of the shards in a zip, also of those that are not to be read."""

    def head_of(path: str) -> bytes:
        return plain_head(content.readable[path].head(_PACKED_HEAD_BYTES))

    return [
        path
        for path, entry in content.entries.items()
        if not is_hidden(entry.inside)
        and (parse_shard_name(path) or path in content.readable)
        and looks_like_shard(path, head_of)
    ]


def is_hidden(inside: str) -> bool:
    """Whether a path has a hidden file or folder in it: nothing is looked for there."""
    parts = inside.split("/")
    return any(one.startswith((".", "__MACOSX")) and one != ".." for one in parts)


def plain_head(head: bytes) -> bytes:
    """What a shard begins with: a gzip stream is unpacked, as the reader of shards does."""
    if is_record_header(head[:HEADER_BYTES]) or not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, HEADER_BYTES + 1)
    except zlib.error:
        return b""


def _is_remote_zip(url: str) -> bool:
    return name_of(url).lower().endswith(".zip")


def _is_tensorboard_log(path: str) -> bool:
    """TensorBoard's logs are TFRecord files too, of other messages."""
    return "tfevents" in name_of(path).lower()


def _not_found(text: str) -> str:
    if os.path.isfile(text):
        return f"{text}: no shard in this archive; look at it with: tfod check"
    if os.path.isdir(text):
        return (
            f"{text}: no shard in this folder or the three levels below it; {HOW_SHARDS_ARE_NAMED}"
        )
    if glob.has_magic(text):
        return f"{text}: no file matches this pattern"
    if text == "-":
        return f"{text}: only tfod check and tfod show read standard input; name a file"
    if os.path.exists(text):
        return f"{text}: is neither a file nor a folder"
    return f"{text}: no such file or folder"


def _not_found_remotely(url: str) -> str:
    if not is_pattern(url):
        return f"{url}: no shard in this folder; {HOW_SHARDS_ARE_NAMED}"
    hint = ""
    if absolute(url) != url.rstrip("/"):
        hint = "; a listing takes no query: name the shards one by one, each with its own"
    elif "[" in url:
        hint = "; a bracket in a name is written [[]"
    return f"{url}: no file matches this pattern{hint}"

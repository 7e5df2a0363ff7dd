"""Finding and naming shards: files, folders, globs, numbered sets, Roboflow's folders.

What is a shard is decided by name and by content: a file of a known name is one even when it is
damaged (the reader then says how), any other file only when it begins with a sound record header.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfod.errors import ShardsNotFoundError
from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.naming import safe_relative_path
from tfod.tfrecord.opening import zip_member
from tfod.tfrecord.publishing import require_published
from tfod.tfrecord.records import is_record_header
from tfod.tfrecord.remote import absolute, folder_of, is_url, name_of

ROBOFLOW_NOTE = "README.roboflow.txt"
SHARD_EXTENSIONS = (".tfrecord", ".tfrecords", ".record", ".records", ".tfrec")
# With the number before the extension, behind it, or with no extension at all.
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<ext>\.[A-Za-z]+)?-(?P<number>\d{5,})-of-(?P<total>\d{5,})"
                       r"(?P<late>\.[A-Za-z]+)?\Z")  # fmt: skip
_COMPRESSED = (".gz", ".gzip", ".zlib", ".zz")
# What lies beside shards and needs no look inside.
_OTHER_EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".mp4"),
        *(".xml", ".json", ".txt", ".csv", ".pbtxt", ".yaml", ".yml", ".config", ".md", ".html"),
        *(".zip", ".tar", ".pb", ".npy", ".pkl", ".h5", ".index", ".meta", ".tfindex"),
        ".idx",  # tfod index and tfrecord2idx
        *(".py", ".ipynb", ".sh", ".log", ".pdf"),
    )
)
SPLITS = frozenset(
    ("train", "training", "trainval", "valid", "validation", "val", "test", "testing")
)
_MAX_DEPTH = 3
_MOST_MISSING = 1000
_ESCAPED_IN_NAMES = re.compile(r"[%/\\\0:]|\A\.|\A_(?=_MACOSX)|t(?=fevents)", re.IGNORECASE)
_ESCAPES = re.compile(r"%(25|2F|5C|00|2E|3A|2D|5F|74|54)")


@dataclass(frozen=True)
class ShardName:
    """A shard's file name taken apart: ``coco_train.record-00003-of-00100``."""

    stem: str
    number: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class ShardSet:
    """Shards that make up one subset.

    Attributes:
        subset: the subset's name.
        paths: the files, in the order of their names.
        missing: names of the files that the numbering promises and that are not there.
    """

    subset: str
    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()


def parse_shard_name(path: str | os.PathLike[str]) -> ShardName | None:
    """Take a file name apart; None when it does not look like a shard's."""
    name = name_of(os.fspath(path))
    root, extension = os.path.splitext(name)
    if extension.lower() in _COMPRESSED:
        name = root
    numbered = _NUMBERED.match(name)
    if numbered:
        known = ("", *SHARD_EXTENSIONS)
        early, late = ((numbered[group] or "").lower() for group in ("ext", "late"))
        if (early or late) in known and late in known:
            return ShardName(numbered["stem"], int(numbered["number"]), int(numbered["total"]))
    root, extension = os.path.splitext(name)
    if extension.lower() in SHARD_EXTENSIONS:
        return ShardName(root)
    return None


def find_shards(source: str | os.PathLike[str]) -> list[ShardSet]:
    """Find the shards that a file, a folder, a zip, a glob or a URL means, grouped into subsets.

    A folder is searched three levels deep. A folder named as a split (``train``, ``valid``,
    ``test``) names the subset of what it holds, unless it is the folder that was asked for; in
    Roboflow's exports every folder does. A shard in a zip has a path as if the zip were a folder
    (:mod:`tfod.tfrecord.shard_zip`), which every function of tfod that reads shards takes; so is a
    URL such as ``s3://bucket/train-*`` (:mod:`tfod.tfrecord.remote`). In a remote folder a shard is
    known by its name alone.

    Raises:
        ShardsNotFoundError: nothing that looks like a shard is there.
        ShardError: a zip is damaged, or a shard in it should not be read.
        InterruptedWriteError: a program that wrote to the folder was killed in the middle.
        RemoteError: a URL leads to nothing that can be read.
    """
    text = os.fspath(source)
    if is_url(text):
        from tfod.tfrecord.remote_shards import find_remote_shards  # needed for URLs alone

        return list(find_remote_shards(text).sets)
    require_published(text)
    if os.path.isfile(text) and parse_shard_name(text) is None and _is_zip(text):
        paths = _search_zip(text)
        root = text
    elif os.path.isdir(text):
        paths = _search(text)
        root = text
    elif os.path.isfile(text) or zip_member(text) is not None:
        return group_shards([text], root=os.path.dirname(text))
    else:
        paths = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
        root = _fixed_part(text)
        for folder in dict.fromkeys(map(os.path.dirname, paths)):
            require_published(folder)
    if not paths:
        raise ShardsNotFoundError(_not_found(text))
    return group_shards(paths, root, by_folder=is_roboflow_export(root))


def is_one_of_several(path: str) -> bool:
    """Whether a shard is one of a numbered set, in which some may have no records."""
    name = parse_shard_name(path)
    return name is not None and (name.total or 0) > 1


def is_roboflow_export(root: str) -> bool:
    """Whether a folder or a zip has the note that Roboflow puts into its exports."""
    note = os.path.join(root, ROBOFLOW_NOTE)
    if not os.path.isfile(root):
        return os.path.isfile(note)
    from tfod.tfrecord.shard_zip import files_in

    return note in files_in(root)


def group_shards(paths: list[str], root: str, by_folder: bool = False) -> list[ShardSet]:
    """Group shard files into subsets, by folder of a split and by the name without its number.

    With ``by_folder`` every folder below the root is one of a split.
    """
    groups: dict[str, list[str]] = {}
    for path in sorted(paths):
        groups.setdefault(_subset_of(path, root, by_folder), []).append(path)
    sets: list[ShardSet] = []
    left = _MOST_MISSING
    for subset, members in groups.items():
        missing = missing_of_sets(members, left)
        left = max(0, left - len(missing))
        sets.append(ShardSet(subset, tuple(members), tuple(missing)))
    return sets


def first_bytes_of(path: str) -> bytes:
    """What a file begins with, enough to know a shard; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(HEADER_BYTES + 1)
    except OSError:
        return b""


def looks_like_shard(path: str, head_of: Callable[[str], bytes] = first_bytes_of) -> bool:
    """Whether a file is a shard by its name or, for an unknown name, by its first bytes.

    Args:
        path: of the file.
        head_of: reads its first 13 bytes or more, if the name does not decide.
    """
    name = os.path.basename(path).lower()
    if "tfevents" in name:  # TensorBoard's logs are TFRecord files too
        return False
    if parse_shard_name(path) is not None:
        return True
    if name.startswith(".") or os.path.splitext(name)[1] in _OTHER_EXTENSIONS:
        return False
    head = head_of(path)
    # An Example begins with its field 1; other messages in TFRecord files rarely do.
    return is_record_header(head) and head.startswith(b"\n", HEADER_BYTES)


def stem_of_subset(subset: str) -> str:
    """A subset's name as a file or a folder can have it; escaped as in a URL where it must be."""
    return _ESCAPED_IN_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", subset) or "default"


def subset_of_stem(stem: str) -> str:
    """The subset that :func:`stem_of_subset` has made this name of."""
    subset = _ESCAPES.sub(lambda match: chr(int(match[1], 16)), stem)
    # A name that leads out of a folder is nobody's subset; it stays escaped.
    return (subset if safe_relative_path(subset) == subset else stem) or "default"


def shard_file_names(subset: str, count: int, extension: str = ".tfrecord") -> list[str]:
    """Names for the shards of a subset: one plain name, or numbered as the OD API does.

    What a file name cannot say, or would say something else, is escaped as in a URL:
    ``train/night`` becomes ``train%2Fnight``. :func:`find_shards` takes that back.
    """
    stem = stem_of_subset(subset)
    if parse_shard_name(stem + extension) != ShardName(stem):
        stem = re.sub(r"-(?=\d+-of-|of-)", "%2D", stem)
    if count == 1:
        return [f"{stem}{extension}"]
    return [f"{stem}-{number:05d}-of-{count:05d}{extension}" for number in range(count)]


def numbered_file_names(name: str, count: int) -> list[str]:
    """Names for the files of a set that somebody calls ``name``, as the OD API makes them.

    One is ``coco_train.record``; of 100 the first is ``coco_train.record-00000-of-00100``.
    Source: dataset_tools/tf_record_creation_util.py.
    """
    if count == 1:
        return [name]
    return [f"{name}-{number:05d}-of-{count:05d}" for number in range(count)]


def similar_file_names(shard: str, count: int) -> list[str]:
    """Names for so many shards in the manner of one that is there, without a folder.

    ``a.record-00000-of-00010`` is followed by ``a.record-00000-of-00003``, ``a.tfrecord`` and
    ``a-00000-of-00010.tfrecord`` by ``a-00000-of-00003.tfrecord``, ``a.record`` by
    ``a.record-00000-of-00003``. An ending such as ``.gz`` goes: the bytes say how a shard is
    compressed.
    """
    name = name_of(shard)
    root, extension = os.path.splitext(name)
    if extension.lower() in _COMPRESSED:
        name = root
    numbered = _NUMBERED.match(name)
    if numbered:
        before, behind = numbered["stem"] + (numbered["ext"] or ""), numbered["late"] or ""
    elif name.lower().endswith((".record", ".records")):
        before, behind = name, ""
    else:
        before, behind = os.path.splitext(name)
    if count == 1 and parse_shard_name(before + behind):
        return [before + behind]
    return [f"{before}-{number:05d}-of-{count:05d}{behind}" for number in range(count)]


def _search(folder: str) -> list[str]:
    """All shards in a folder and the levels below it."""
    return [path for path in files_below(folder) if looks_like_shard(path)]


def files_below(folder: str) -> Iterator[str]:
    """Paths of the files in a folder and the three levels below it, hidden ones left out.

    Raises:
        InterruptedWriteError: a program that wrote to the folder was killed in the middle.
    """
    level = [folder]
    for _ in range(_MAX_DEPTH + 1):
        below: list[str] = []
        for where in level:
            require_published(where)
            for entry in _entries(where):
                if entry.is_dir():
                    below.append(entry.path)
                # Opening a pipe waits for a writer, and a device never ends.
                elif entry.is_file():
                    yield entry.path
        level = below


def _is_zip(path: str) -> bool:
    from tfod.tfrecord.shard_zip import is_zip

    return is_zip(path)


def _search_zip(archive: str) -> list[str]:
    """All shards in a zip."""
    from tfod.tfrecord.shard_zip import members, require_readable

    found = []
    there = members(archive)
    for path, member in there.items():
        parts = member.entry.path.split("/")
        hidden = any(one.startswith((".", "__MACOSX")) and one != ".." for one in parts)
        if not hidden and looks_like_shard(path, lambda path: there[path].head()):
            require_readable(member)
            found.append(path)
    return found


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if not entry.name.startswith((".", "__MACOSX")):
                    yield entry
    except OSError:
        return


def _subset_of(path: str, root: str, by_folder: bool) -> str:
    parent = folder_of(path)
    if parent != absolute(root or ".") and (by_folder or name_of(parent).lower() in SPLITS):
        return subset_of_stem(name_of(parent))
    name = parse_shard_name(path)
    if name is not None:
        return subset_of_stem(name.stem)
    return os.path.splitext(name_of(path))[0]


def missing_of_sets(paths: list[str], most: int = _MOST_MISSING) -> list[str]:
    """Names that the numbering ``-of-N`` promises and that are not there; of many the first.

    A name may promise any number, and there may be many such names: no more than ``most`` are
    given, but one for each set.
    """
    sets: dict[tuple[str, str, int], dict[int, str]] = {}
    for path in paths:
        name = parse_shard_name(path)
        if name is not None and name.total is not None and name.number is not None:
            key = (folder_of(path), name.stem, name.total)
            sets.setdefault(key, {})[name.number] = name_of(path)
    missing: list[str] = []
    for (_, _, total), there in sets.items():
        number, example = next(iter(there.items()))
        numbering = re.search(r"-(\d+)-of-", example)
        assert numbering is not None  # the name was taken apart by it
        digits = len(numbering[1])
        before, _, behind = example.partition(f"-{number:0{digits}d}-of-")
        absent = (other for other in range(total) if other not in there)
        missing += [
            f"{before}-{other:0{digits}d}-of-{behind}"
            for other in itertools.islice(absent, max(1, most - len(missing)))
        ]
    return missing


def _fixed_part(pattern: str) -> str:
    """The folder of a glob in front of its first wildcard."""
    parts = Path(pattern).parts
    fixed = []
    for part in parts[:-1]:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return os.path.join(*fixed) if fixed else "."


def _not_found(text: str) -> str:
    if os.path.isfile(text):
        return f"{text}: no shard in this archive; look at it with: tfod check"
    if os.path.isdir(text):
        return (
            f"{text}: no shard in this folder or the three levels below it; shards are named "
            f"*{', *'.join(SHARD_EXTENSIONS)} or *-00000-of-00010"
        )
    if glob.has_magic(text):
        return f"{text}: no file matches this pattern"
    return f"{text}: no such file or folder"

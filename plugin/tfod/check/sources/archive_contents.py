"""What the entries of a zip are: shards with their label maps, archives, litter, the rest.

The rules for names are those of files on disk: :mod:`tfod.tfrecord.shard_search` is asked with the
entry's path in place of a path on disk.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from tfod.check.collector import Collector
from tfod.check.profiles.profile import Policy
from tfod.check.rules.archive import Composition, NestedArchive, RivalLabelMaps, StrayFiles
from tfod.check.sources.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod.detection.label_map import LONGEST_LABEL_MAP, decode_label_map
from tfod.errors import LabelMapError
from tfod.tfrecord.framing import is_record_header
from tfod.tfrecord.label_files import LabelMapFinder
from tfod.tfrecord.shard_names import shard_file_names
from tfod.tfrecord.shard_search import ShardSet, group_shards, looks_like_shard
from tfod.tfrecord.storage.zip_directory import Entry

_ROOT = os.path.abspath(os.sep)
_LABEL_MAP_NAME = "label_map.pbtxt"
_COPY_STEP = 1 << 20
_HEAD_BYTES = 512  # a tar's first header
_LABEL_MAP_EXTENSION = ".pbtxt"
_NESTED_EXTENSIONS = {
    ".zip": "a zip archive",
    ".tar": "a tar archive",
    ".tgz": "a tar archive",
    ".tbz2": "a tar archive",
    ".txz": "a tar archive",
    ".7z": "a 7-Zip archive",
    ".rar": "a RAR archive",
    ".gz": "a gzip file",
    ".bz2": "a bzip2 file",
    ".xz": "an xz file",
    ".zst": "a Zstandard file",
}
_NESTED_MAGIC = (
    (b"PK\3\4", "a zip archive"),
    (b"PK\5\6", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
)
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
# Formats of their own that happen to be zips.
_MADE_OF_ZIP = frozenset(
    (
        *(".npz", ".pt", ".pth", ".ckpt", ".keras", ".whl", ".jar", ".apk"),
        *(".docx", ".xlsx", ".pptx", ".odt", ".ods", ".epub", ".kmz"),
    )
)
# What people export in place of TFRecord: the name that CVAT's menu has, and a path that says so.
_OTHER_FORMATS = (
    ("COCO", r"(.*/)?((instances|person_keypoints|panoptic)_[^/]*|_annotations\.coco)\.json"),
    ("Datumaro", r"(.*/)?annotations/[^/]*\.json"),
    ("Pascal VOC", r"(.*/)?(annotations/.*\.xml|imagesets/.*\.txt)"),
    ("YOLO", r"(.*/)?(obj\.(data|names)|(data|dataset)\.ya?ml|labels/.*\.txt)"),
    ("CVAT for images or video", r"([^/]*/)?annotations\.xml"),
)
# Of a file beside each image, as Roboflow has them.
_BESIDE_IMAGES = {".xml": "Pascal VOC", ".txt": "YOLO"}
_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_MACOS, _WINDOWS, _KDE = "macOS", "Windows", "KDE"
_STRAY_NAMES = {
    ".ds_store": _MACOS,
    "__macosx": _MACOS,
    ".localized": _MACOS,
    "icon\r": _MACOS,
    ".appledouble": _MACOS,
    ".spotlight-v100": _MACOS,
    ".trashes": _MACOS,
    ".fseventsd": _MACOS,
    "thumbs.db": _WINDOWS,
    "ehthumbs.db": _WINDOWS,
    "desktop.ini": _WINDOWS,
    "$recycle.bin": _WINDOWS,
    ".directory": _KDE,
}


@dataclass(frozen=True)
class Contents:
    """What the entries are.

    Attributes:
        shard_sets: subsets; their paths are made from the entries' and are keys of the mappings.
        shards: the entry of each shard, by path, in the order of the archive.
        label_maps: the label map that goes with a shard, by the shard's path; None where there
            is none, or several that fit equally well.
        others: entries that hold something else.
    """

    shard_sets: Sequence[ShardSet]
    shards: Mapping[str, Entry]
    label_maps: Mapping[str, Entry | None]
    others: Sequence[Entry]


def look_through(
    archive: Archive, collector: Collector, *, needs_label_map: bool = True
) -> Contents:
    """Find out what the entries of an archive are, and check that.

    Args:
        archive: that was opened.
        collector: takes the findings.
        needs_label_map: whether a label map is to be looked for, since the user named none.
    """
    stray: dict[str, list[str]] = defaultdict(list)
    shards: dict[str, Entry] = {}
    others: list[Entry] = []
    for entry in archive.entries:
        origin = _who_left(entry.path)
        if origin:
            stray[origin].append(entry.path)
        head = b"" if origin or _is_hidden(entry.path) else _head(archive, entry)
        if not origin and is_shard(entry, head):
            shards[_path(entry)] = entry
            continue
        others.append(entry)
        kind = nested_kind(entry, head)
        if kind and not origin:
            collector.check(NestedArchive(kind), archive.place(entry))
    for origin, names in stray.items():
        collector.check(StrayFiles(origin, tuple(names)), archive.place())
    label_maps, mapped = _match_label_maps(archive, shards, collector, needs_label_map)
    if archive.readable:
        refused = sum(is_shard(entry, b"") for entry in archive.refused)
        collector.check(
            Composition(
                files=len(archive.entries) + len(archive.refused),
                shards=len(shards) + refused,
                mapped_shards=mapped,
                stray_maps=tuple(entry.path for entry in others if _is_named_label_map(entry)),
                needs_label_map=needs_label_map and bool(shards),
                other_format=None if shards else other_format([one.path for one in others]),
            ),
            archive.place(),
        )
    return Contents(tuple(group_shards(list(shards), _ROOT)), shards, label_maps, tuple(others))


def is_shard(entry: Entry, head: bytes) -> bool:
    """Whether an entry is a shard by its name or, for an unknown name, by its first bytes."""
    if _is_hidden(entry.path):
        return False
    return looks_like_shard(_path(entry), lambda _: _unpacked_head(head))


def nested_kind(entry: Entry, head: bytes) -> str | None:
    """What archive an entry that is no shard is, by its first bytes or by its name."""
    extension = os.path.splitext(entry.path)[1].lower()
    if extension in _MADE_OF_ZIP:
        return None
    if head.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        return "a tar archive"
    for magic, kind in _NESTED_MAGIC:
        if head.startswith(magic):
            return kind
    return _NESTED_EXTENSIONS.get(extension)


def other_format(paths: Sequence[str]) -> str | None:
    """Which format of annotations a zip without shards is; None where its names do not say."""
    for name, sign in _OTHER_FORMATS:
        pattern = re.compile(sign, re.IGNORECASE)
        if any(map(pattern.fullmatch, paths)):
            return name
    parts = [os.path.splitext(path) for path in paths]
    images = {stem for stem, extension in parts if extension.lower() in _IMAGES}
    beside = {extension.lower() for stem, extension in parts if stem in images}
    return next((name for end, name in _BESIDE_IMAGES.items() if end in beside), None)


@contextmanager
def opened_shards(
    path: str, name: str, limits: ArchiveLimits | None = None
) -> Iterator[Iterator[tuple[str, Entry, BinaryIO]]]:
    """The shards of a zip, each with its name and entry, open one after the other.

    What is wrong with the zip is not reported: the examination does that.

    Raises:
        OSError: it cannot be opened or read.
    """
    silent = Collector(Policy(), 0)
    with Archive(path, name, silent, limits) as archive:
        contents = look_through(archive, silent, needs_label_map=False)

        def shards() -> Iterator[tuple[str, Entry, BinaryIO]]:
            for entry in contents.shards.values():
                with archive.open(entry) as stream:
                    yield archive.place(entry).shard, entry, stream

        yield shards()


def _match_label_maps(
    archive: Archive, shards: Mapping[str, Entry], collector: Collector, wanted: bool
) -> tuple[dict[str, Entry | None], int]:
    """The label map of each shard, and how many shards have one or several."""
    if not wanted:
        return dict.fromkeys(shards), 0
    texts = {
        _path(entry): entry
        for entry in archive.entries
        if entry.path.endswith(_LABEL_MAP_EXTENSION) and not _is_hidden(entry.path)
    }
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in sorted(texts):
        by_folder[os.path.dirname(path)].append(path)
    found: dict[str, Entry | None] = {}
    rivalries: dict[int, tuple[Sequence[str], list[str]]] = {}
    mapped = 0
    finder = LabelMapFinder(lambda folder: by_folder.get(folder, ()))
    for shard in shards:
        best, rivals = finder.find(shard)
        if rivals:  # of a folder always the same tuple, which may be long
            rivalries.setdefault(id(rivals), (rivals, []))[1].append(shard)
        found[shard] = texts[best] if best else None
        mapped += bool(best or rivals)
    for names, claimants in rivalries.values():
        readable = [texts[name] for name in names if _is_label_map(archive, texts[name])]
        if len(readable) == 1:  # the others are other protobuf texts, as OpenCV's graphs
            found.update(dict.fromkeys(claimants, readable[0]))
            continue
        rivals_found = RivalLabelMaps(tuple(texts[name].path for name in names), len(claimants))
        collector.check(rivals_found, archive.place(shards[claimants[0]]))
    return found, mapped


def _is_label_map(archive: Archive, entry: Entry) -> bool:
    try:
        data = read_entry(archive, entry, LONGEST_LABEL_MAP)
        return bool(decode_label_map(data, entry.path)[0].items)
    except (ArchiveDamageError, LabelMapError):
        return False


def _is_named_label_map(entry: Entry) -> bool:
    name = os.path.basename(entry.path).lower()
    return "label" in name and name.endswith((_LABEL_MAP_EXTENSION, ".pbtxt.txt"))


def _path(entry: Entry) -> str:
    """Where the entry would be if the archive were unpacked into the root of the disk."""
    return os.path.join(_ROOT, *entry.path.split("/"))


def _is_hidden(path: str) -> bool:
    """As on disk: nothing is looked for in hidden files and folders."""
    return any(part.startswith((".", "__MACOSX")) for part in path.split("/"))


def _who_left(path: str) -> str | None:
    """The system that left this file behind."""
    parts = path.lower().split("/")
    for part in parts:
        if part in _STRAY_NAMES:
            return _STRAY_NAMES[part]
    return _MACOS if parts[-1].startswith("._") else None


def _head(archive: Archive, entry: Entry) -> bytes:
    try:
        return read_entry(archive, entry, _HEAD_BYTES)
    except ArchiveDamageError:
        return b""


def read_entry(archive: Archive, entry: Entry, most: int) -> bytes:
    """At most so many bytes of an entry.

    Raises:
        ArchiveDamageError: it cannot be read so far.
    """
    parts = []
    with archive.open(entry) as stream:
        while most > 0:
            part = stream.read(most)
            if not part:
                break
            parts.append(part)
            most -= len(part)
    return b"".join(parts)


def unpack_shards(path: str, folder: str, limits: ArchiveLimits | None = None) -> None:
    """Write the shards of a zip below a folder, each with its label map in a folder of its own.

    Names and folders are ours, so that whoever looks for shards there finds exactly these, with
    the subsets and the label maps that the zip's own names give them. Nothing else is written.
    What is refused by the rules for archives is left out, as are files of no bytes: let the checker
    check the zip first.

    Raises:
        ArchiveDamageError: an entry is damaged, or a limit is reached.
        OSError: a file cannot be written.
    """
    name = os.path.basename(path)
    collector = Collector(Policy(), 0)
    with Archive(path, name, collector, limits) as archive:
        contents = look_through(archive, collector)
        number = 0
        for group in contents.shard_sets:
            (name,) = shard_file_names(group.subset, 1)
            for shard in group.paths:
                if not contents.shards[shard].size:
                    continue  # of a numbered set; here it would be one alone, which is refused
                beside = os.path.join(folder, f"{number:06d}")
                os.makedirs(beside)
                _copy_entry(archive, contents.shards[shard], os.path.join(beside, name))
                label_map = contents.label_maps.get(shard)
                if label_map is not None:
                    _copy_entry(archive, label_map, os.path.join(beside, _LABEL_MAP_NAME))
                number += 1


def _copy_entry(archive: Archive, entry: Entry, path: str) -> None:
    with archive.open(entry) as source, open(path, "xb") as file:
        shutil.copyfileobj(source, file, _COPY_STEP)


def _unpacked_head(head: bytes) -> bytes:
    """What a shard begins with: a gzip stream is unpacked, as the reader of shards does."""
    if is_record_header(head) or not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
    except zlib.error:
        return b""

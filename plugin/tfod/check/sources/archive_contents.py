"""What the entries of a zip are: shards with their label maps, archives, litter, the rest.

The rules for names are those of files on disk: :mod:`tfod.tfrecord.shard_sets.search` is asked
with the entry's path in place of a path on disk.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place
from tfod.check.rules.archive import (
    equal_label_maps,
    nested_archive,
    no_label_map,
    no_shard,
    stray_files,
)
from tfod.check.rules.labels import LabelMapFile
from tfod.check.rules.registry import RuleProblems
from tfod.check.sources.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod.check.sources.label_maps import label_map_file
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP, decode_label_map
from tfod.errors import LabelMapError
from tfod.tfrecord.framing import is_record_header
from tfod.tfrecord.label_files import (
    LABEL_MAP_FILE,
    LabelMapFinder,
    is_named_label_map,
    may_be_label_map,
)
from tfod.tfrecord.shard_sets.names import parse_shard_name, shard_file_names
from tfod.tfrecord.shard_sets.search import ShardSet, group_shards, looks_like_shard
from tfod.tfrecord.storage.zip_directory import Entry

_ROOT = os.path.abspath(os.sep)
_COPY_STEP = 1 << 20
_HEAD_BYTES = 512  # a tar's first header
_NESTED_KINDS: tuple[tuple[str, tuple[str, ...], tuple[bytes, ...]], ...] = (
    ("a zip archive", (".zip",), (b"PK\3\4", b"PK\5\6")),
    ("a tar archive", (".tar", ".tgz", ".tbz2", ".txz"), ()),
    ("a 7-Zip archive", (".7z",), (b"7z\xbc\xaf\x27\x1c",)),
    ("a RAR archive", (".rar",), (b"Rar!\x1a\x07",)),
    ("a gzip file", (".gz",), (b"\x1f\x8b",)),
    ("a bzip2 file", (".bz2",), (b"BZh",)),
    ("an xz file", (".xz",), (b"\xfd7zXZ\0",)),
    ("a Zstandard file", (".zst",), (b"\x28\xb5\x2f\xfd",)),
)
"""Each with extensions and first bytes."""
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
    **dict.fromkeys((".ds_store", "__macosx", ".localized", "icon\r", ".appledouble"), _MACOS),
    **dict.fromkeys((".spotlight-v100", ".trashes", ".fseventsd"), _MACOS),
    **dict.fromkeys(("thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin"), _WINDOWS),
    ".directory": _KDE,
}


@dataclass(frozen=True)
class ArchivedShard:
    """A shard in a zip.

    Attributes:
        name: what reports call it.
        path: where it would be if the zip were unpacked into the root of the disk.
        entry: what holds it.
        subset: the subset it belongs to.
        label_map: the entry of its label map; None where there is none, or several that fit
            equally well.
    """

    name: str
    path: str
    entry: Entry
    subset: str
    label_map: Entry | None

    @property
    def numbered(self) -> bool:
        """Whether it is one of a numbered set."""
        name = parse_shard_name(self.path)
        return name is not None and name.total is not None


@dataclass(frozen=True)
class Contents:
    """What the entries of a zip are.

    Attributes:
        archive: the zip, which is open.
        shard_sets: subsets; the paths are those of the shards.
        shards: in the order of the subsets.
        others: entries that hold something else.
        problems: what rules say of them, and where.
    """

    archive: Archive
    shard_sets: Sequence[ShardSet]
    shards: Sequence[ArchivedShard]
    others: Sequence[Entry]
    problems: Sequence[tuple[RuleProblems, Place]]

    def begin(self, collector: Collector | None) -> None:
        """Begin a pass over the archive that reports what is wrong with it, if anything does."""
        self.archive.begin(collector)
        if collector is not None:
            for found, place in self.problems:
                collector.add_all(found, place)

    def opened(self) -> Iterator[tuple[ArchivedShard, BinaryIO]]:
        """The shards, open one after the other."""
        for shard in self.shards:
            with self.archive.open(shard.entry) as stream:
                yield shard, stream

    def read_label_map(self, entry: Entry, name: str) -> tuple[LabelMapFile, bytes]:
        """A label map under this name, and what the entry holds; nothing where that is damaged."""
        try:
            data = self.archive.read(entry, LONGEST_LABEL_MAP + 1)
        except ArchiveDamageError as error:
            return LabelMapFile(name, None, str(error)), b""
        return label_map_file(data, name), data


class Archives:
    """Opens zips and looks through them. The last one stays open for what reads it next.

    Args:
        limits: where the reading of each stops.
        needs_label_map: whether label maps are to be looked for, since the user named none.
    """

    def __init__(
        self, limits: ArchiveLimits | None = None, *, needs_label_map: bool = False
    ) -> None:
        self._limits = limits
        self._needs_label_map = needs_label_map
        self._last: tuple[str, Contents] | None = None

    def __enter__(self) -> Archives:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._last[1].archive.close()
            self._last = None

    def open(self, path: str, name: str) -> Contents:
        """What is in a zip, which is open until another one is opened; nothing is reported yet.

        Raises:
            OSError: it cannot be opened or read.
        """
        if self._last is None or self._last[0] != path:
            self.__exit__()
            archive = Archive(path, name, None, self._limits)
            try:
                self._last = path, look_through(archive, needs_label_map=self._needs_label_map)
            except BaseException:
                archive.close()
                raise
        contents = self._last[1]
        contents.archive.begin(None)
        return contents


def look_through(archive: Archive, *, needs_label_map: bool = True) -> Contents:
    """Find out what the entries of an archive are."""
    problems: list[tuple[RuleProblems, Place]] = []
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
            problems.append((nested_archive(kind), archive.place(entry)))
    for origin, names in stray.items():
        problems.append((stray_files(origin, names), archive.place()))
    label_maps: dict[str, Entry | None] = {}
    mapped = 0
    if needs_label_map:
        label_maps, mapped = _match_label_maps(archive, shards, problems)
    if archive.readable:
        if shards and needs_label_map and not mapped:
            stray_maps = [entry.path for entry in others if _is_named_label_map(entry)]
            problems.append((no_label_map(stray_maps), archive.place()))
        if not shards and not any(is_shard(entry, b"") for entry in archive.refused):
            files = len(archive.entries) + len(archive.refused)
            other = other_format([one.path for one in others])
            problems.append((no_shard(files, other), archive.place()))
    sets = group_shards(list(shards), _ROOT)
    found = [
        ArchivedShard(
            archive.place(shards[path]).shard,
            path,
            shards[path],
            group.subset,
            label_maps.get(path),
        )
        for group in sets
        for path in group.paths
    ]
    return Contents(archive, sets, found, others, problems)


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
    by_bytes = (kind for kind, _, starts in _NESTED_KINDS if head.startswith(starts))
    by_name = (kind for kind, extensions, _ in _NESTED_KINDS if extension in extensions)
    return next(itertools.chain(by_bytes, by_name), None)


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


def _match_label_maps(
    archive: Archive, shards: Mapping[str, Entry], problems: list[tuple[RuleProblems, Place]]
) -> tuple[dict[str, Entry | None], int]:
    texts = {
        _path(entry): entry
        for entry in archive.entries
        if may_be_label_map(entry.path) and not _is_hidden(entry.path)
    }
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in sorted(texts):
        by_folder[os.path.dirname(path)].append(path)
    found: dict[str, Entry | None] = {}
    undecided: dict[int, tuple[Sequence[str], list[str]]] = {}
    mapped = 0
    finder = LabelMapFinder(lambda folder: by_folder.get(folder, ()))
    for shard in shards:
        best, candidates = finder.find(shard)
        if candidates:  # of a folder always the same tuple, which may be long
            undecided.setdefault(id(candidates), (candidates, []))[1].append(shard)
        found[shard] = texts[best] if best else None
        mapped += bool(best or candidates)
    for names, claimants in undecided.values():
        readable = [texts[name] for name in names if _is_label_map(archive, texts[name])]
        if len(readable) == 1:  # the others are other protobuf texts, as OpenCV's graphs
            found.update(dict.fromkeys(claimants, readable[0]))
            continue
        equal = equal_label_maps([texts[name].path for name in names], len(claimants))
        problems.append((equal, archive.place(shards[claimants[0]])))
    return found, mapped


def _is_label_map(archive: Archive, entry: Entry) -> bool:
    try:
        data = archive.read(entry, LONGEST_LABEL_MAP)
        return bool(decode_label_map(data, entry.path)[0].items)
    except (ArchiveDamageError, LabelMapError):
        return False


def _is_named_label_map(entry: Entry) -> bool:
    name = os.path.basename(entry.path).lower()
    return is_named_label_map(name) and (may_be_label_map(name) or name.endswith(".pbtxt.txt"))


def _path(entry: Entry) -> str:
    """Where the entry would be if the archive were unpacked into the root of the disk."""
    return os.path.join(_ROOT, *entry.path.split("/"))


def _is_hidden(path: str) -> bool:
    """As on disk: nothing is looked for in hidden files and folders."""
    return any(part.startswith((".", "__MACOSX")) for part in path.split("/"))


def _who_left(path: str) -> str | None:
    parts = path.lower().split("/")
    for part in parts:
        if part in _STRAY_NAMES:
            return _STRAY_NAMES[part]
    return _MACOS if parts[-1].startswith("._") else None


def _head(archive: Archive, entry: Entry) -> bytes:
    try:
        return archive.read(entry, _HEAD_BYTES)
    except ArchiveDamageError:
        return b""


def unpack_shards(path: str, folder: str, limits: ArchiveLimits | None = None) -> None:
    """Write the shards of a zip below a folder, each with its label map in a folder of its own.

    Names and folders are ours, so that a search for shards there finds exactly these, with
    the subsets and the label maps that the zip's own names give them. Nothing else is written.
    What is refused by the rules for archives is left out, as are files of no bytes: let the checker
    check the zip first.

    Raises:
        ArchiveDamageError: an entry is damaged, or a limit is reached.
        OSError: a file cannot be written.
    """

    def copy(entry: Entry, path: str) -> None:
        with contents.archive.open(entry) as source, open(path, "xb") as file:
            shutil.copyfileobj(source, file, _COPY_STEP)

    with Archives(limits, needs_label_map=True) as archives:
        contents = archives.open(path, os.path.basename(path))
        # An empty one is of a numbered set; here it would be one alone, which is refused.
        filled = [shard for shard in contents.shards if shard.entry.size]
        for number, shard in enumerate(filled):
            (name,) = shard_file_names(shard.subset, 1)
            beside = os.path.join(folder, f"{number:06d}")
            os.makedirs(beside)
            copy(shard.entry, os.path.join(beside, name))
            if shard.label_map is not None:
                copy(shard.label_map, os.path.join(beside, LABEL_MAP_FILE))


def _unpacked_head(head: bytes) -> bytes:
    """What a shard begins with: a gzip stream is unpacked, as the reader of shards does."""
    if is_record_header(head) or not head.startswith(b"\x1f\x8b"):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
    except zlib.error:
        return b""

"""A zip as a data set: its shards with their label maps, and what else is in it."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tfod.check.dataset import Dataset, File, LabelMapFile, Shard, Zip, numbered_sets_of
from tfod.check.label_maps import label_map_file
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP
from tfod.tfrecord.label_files import LabelMapFinder, may_be_label_map
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE, group_shards, is_hidden, shards_in_zip
from tfod.tfrecord.storage.zip_directory import (
    ZipContent,
    ZipFault,
    ZipLimits,
    ZipProblem,
    read_zip,
)
from tfod.tfrecord.storage.zip_entry import ZipEntry, ZipEntryError

_READ_STEP = 1 << 18
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
# What people export in place of TFRecord, and a path that says so.
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


def zip_dataset(file: File, limits: ZipLimits, needs_label_map: bool = True) -> Dataset:
    """What is in a zip; label maps are looked for in it where there is not one for all."""
    path = os.path.abspath(file.path)  # as the folders are in which label maps are looked for
    try:
        content = read_zip(path, limits)
    except OSError as error:
        return Dataset(file.name, zips=[_zip(file, unreadable=error.strerror or str(error))])
    paths = dict.fromkeys(shards_in_zip(content))
    others = [one for at, one in content.readable.items() if at not in paths]
    problems = list(content.problems)
    for entry in others:
        if kind := nested_kind(entry):
            cause = f"it is {kind}, which was not looked into"
            problems.append(ZipProblem(ZipFault.NESTED, cause, entry))
    has_shards = content.damage is not None or bool(paths)
    archive = _zip(
        file,
        problems=problems,
        entries=len(content.entries),
        has_shards=has_shards,
        other=None if has_shards else other_format([one.inside for one in others]),
    )
    is_roboflow = os.path.join(path, ROBOFLOW_NOTE) in content.entries
    readable = [one for one in paths if one in content.readable]
    groups = group_shards(readable, path, is_roboflow)
    numbered = [
        one for group in groups for one in numbered_sets_of(group.paths, group.missing, file.name)
    ]
    shards = [
        Shard(archive.name_of(one), at, one.size, group.subset, entry=one)
        for group in groups
        for at in group.paths
        if (one := content.entries[at])
    ]
    maps: dict[str, LabelMapFile] = {}
    if needs_label_map:
        shards, maps = _with_label_maps(file, shards, content)
    return Dataset(file.name, shards, maps, numbered, [archive], others)


def _zip(file: File, **found: Any) -> Zip:
    return Zip(file.name, file.path, file.size, **found)


def damaged_entries(dataset: Dataset) -> Iterator[tuple[str, ZipEntryError | OSError]]:
    """Read what is no shard in a zip to its end, for the sake of size and checksum.

    Yields what reports call an entry, and why it could not be read.
    """
    zips = {os.path.abspath(one.path): one for one in dataset.zips}
    for entry in dataset.others:
        try:
            with entry.open() as stream:
                while stream.read(_READ_STEP):
                    pass
        except (ZipEntryError, OSError) as error:
            yield zips[entry.archive].name_of(entry), error


def nested_kind(entry: ZipEntry) -> str | None:
    """What archive an entry that is no shard is, by its first bytes or by its name."""
    extension = os.path.splitext(entry.inside)[1].lower()
    if extension in _MADE_OF_ZIP or is_hidden(entry.inside):
        return None
    head = entry.head(_HEAD_BYTES)
    if head.startswith(_TAR_MAGIC, _TAR_MAGIC_AT):
        return "a tar archive"
    by_bytes = (kind for kind, _, starts in _NESTED_KINDS if head.startswith(starts))
    by_name = (kind for kind, extensions, _ in _NESTED_KINDS if extension in extensions)
    return next(itertools.chain(by_bytes, by_name), None)


def other_format(paths: Sequence[str]) -> str | None:
    """Which format of annotations files without shards are; None where their names do not say."""
    for name, sign in _OTHER_FORMATS:
        pattern = re.compile(sign, re.IGNORECASE)
        if any(map(pattern.fullmatch, paths)):
            return name
    parts = [os.path.splitext(path) for path in paths]
    images = {stem for stem, extension in parts if extension.lower() in _IMAGES}
    beside = {extension.lower() for stem, extension in parts if stem in images}
    return next((name for end, name in _BESIDE_IMAGES.items() if end in beside), None)


def _with_label_maps(
    file: File, shards: Sequence[Shard], content: ZipContent
) -> tuple[list[Shard], dict[str, LabelMapFile]]:
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in sorted(content.readable):
        if may_be_label_map(path) and not is_hidden(content.entries[path].inside):
            by_folder[os.path.dirname(path)].append(path)
    finder = LabelMapFinder(lambda folder: by_folder.get(folder, ()))
    read: dict[str, LabelMapFile] = {}

    def text(path: str) -> LabelMapFile:
        if path not in read:
            read[path] = _read_label_map(_name(file, content.entries[path]), content.entries[path])
        return read[path]

    found, maps = [], {}
    decided: dict[int, Sequence[str]] = {}  # of a folder always the same tuple, which may be long
    for shard in shards:
        best, several = finder.find(shard.path)
        if several and id(several) not in decided:
            # The others are other protobuf texts, as OpenCV's graphs.
            maps_in = [path for path in several if (one := text(path).label_map) and one.items]
            decided[id(several)] = maps_in if len(maps_in) == 1 else several
        fitting = decided[id(several)] if several else [best] if best else []
        if len(fitting) == 1:
            label_map = text(fitting[0])
            maps[label_map.name] = label_map
            found.append(replace(shard, label_map=label_map.name))
        else:
            names = tuple(_name(file, content.entries[path]) for path in fitting)
            found.append(replace(shard, candidates=names))
    return found, maps


def _read_label_map(name: str, entry: ZipEntry) -> LabelMapFile:
    try:
        with entry.open() as stream:
            data = io.BufferedReader(stream).read(LONGEST_LABEL_MAP + 1)
    except ZipEntryError as error:
        return LabelMapFile(name, None, str(error), path=entry.path)
    return label_map_file(data, name, entry.path)


def _name(file: File, entry: ZipEntry) -> str:
    return f"{file.name}:{entry.shown}"

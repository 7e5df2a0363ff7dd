"""Names of shards: of numbered sets, with counts of records, and how subsets become file names."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.urls import folder_of, name_of

SHARD_EXTENSIONS = (".tfrecord", ".tfrecords", ".record", ".records", ".tfrec")
INDEX_EXTENSION = ".idx"
"""Of what NVIDIA DALI's tfrecord2idx writes beside a shard."""
SPLITS = frozenset(
    ("train", "training", "trainval", "valid", "validation", "val", "test", "testing")
)
MOST_MISSING = 1000
# With the number before the extension, behind it, or with no extension at all.
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<ext>\.[A-Za-z]+)?-(?P<number>\d{5,})-of-(?P<total>\d{5,})"
                       r"(?P<late>\.[A-Za-z]+)?\Z")  # fmt: skip
COMPRESSED_EXTENSIONS = (".gz", ".gzip", ".zlib", ".zz")
_ESCAPED_IN_NAMES = re.compile(r"[%/\\\0:]|\A\.|\A_(?=_MACOSX)|t(?=fevents)", re.IGNORECASE)
_ESCAPES = re.compile(r"%(25|2F|5C|00|2E|3A|2D|5F|74|54)")


@dataclass(frozen=True)
class ShardName:
    """A shard's file name taken apart: ``coco_train.record-00003-of-00100``."""

    stem: str
    number: int | None = None
    total: int | None = None


def parse_shard_name(path: str | os.PathLike[str]) -> ShardName | None:
    """Take a file name apart; None when it does not look like a shard's."""
    name = _without_compression(name_of(os.fspath(path)))
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


def is_one_of_several(path: str) -> bool:
    """Whether a shard is one of a numbered set, in which some may have no records."""
    name = parse_shard_name(path)
    return name is not None and (name.total or 0) > 1


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
    return [stem + extension] if count == 1 else _numbered(stem, count, extension)


def numbered_file_names(name: str, count: int) -> list[str]:
    """Names for the files of a set that somebody calls ``name``, as the OD API makes them.

    One is ``coco_train.record``; of 100 the first is ``coco_train.record-00000-of-00100``. Source:
    dataset_tools/tf_record_creation_util.py.
    """
    return [name] if count == 1 else _numbered(name, count, "")


def similar_file_names(shard: str, count: int) -> list[str]:
    """Names for so many shards in the manner of one that is there, without a folder.

    ``a.record-00000-of-00010`` is followed by ``a.record-00000-of-00003``, ``a.tfrecord`` and
    ``a-00000-of-00010.tfrecord`` by ``a-00000-of-00003.tfrecord``, ``a.record`` by
    ``a.record-00000-of-00003``. An ending such as ``.gz`` goes: the bytes say how a shard is
    compressed.
    """
    name = _without_compression(name_of(shard))
    numbered = _NUMBERED.match(name)
    if numbered:
        before, behind = numbered["stem"] + (numbered["ext"] or ""), numbered["late"] or ""
    elif name.lower().endswith((".record", ".records")):
        before, behind = name, ""
    else:
        before, behind = os.path.splitext(name)
    if count == 1 and parse_shard_name(before + behind):
        return [before + behind]
    return _numbered(before, count, behind)


def _without_compression(name: str) -> str:
    root, extension = os.path.splitext(name)
    return root if extension.lower() in COMPRESSED_EXTENSIONS else name


def _numbered(before: str, count: int, behind: str = "") -> list[str]:
    return [f"{before}-{number:05d}-of-{count:05d}{behind}" for number in range(count)]


def first_number(numbers: Collection[int], total: int) -> int:
    """Where a set counts from: 0 as everybody does, or 1 where only that explains its last one."""
    return int(total in numbers and 0 not in numbers)


def missing_of_sets(paths: list[str], most: int = MOST_MISSING) -> list[str]:
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
        example = next(iter(there.values()))
        numbering = _NUMBERED.match(_without_compression(example))
        assert numbering is not None  # the name was taken apart by it
        start, stop = numbering.span("number")  # a stem may have numbers as well
        first = first_number(there, total)
        absent = (other for other in range(first, first + total) if other not in there)
        missing += [
            f"{example[:start]}{other:0{stop - start}d}{example[stop:]}"
            for other in itertools.islice(absent, max(1, most - len(missing)))
        ]
    return missing


# Names that say how many records are in a file: the Keras recipe's ``file_00-4096.tfrec``. Google's
# codelabs for TPUs and data sets of Kaggle have them too: ``flowers00-230.tfrec``,
# ``train/00-512x512-798.tfrec`` (number of the file, size of the images, number of records).
EXTENSION = ".tfrec"
_FILE = re.compile(
    r"(?P<stem>.*?)_?(?P<number>\d{2,})(-\d+x\d+)?-(?P<records>\d+)\.tfrec\Z", re.DOTALL
)
# As Datumaro and the recipe call what has no subset.
_NO_SUBSET, _NO_STEM = "default", "file"


@dataclass(frozen=True)
class FileName:
    """What such a name says: the number is from 0, ``records`` is how many there are."""

    subset: str
    number: int
    records: int


def parse_file_name(path: str) -> FileName | None:
    """Take such a name apart; None when it is none."""
    match = _FILE.match(os.path.basename(path))
    if match is None:
        return None
    stem = match["stem"]
    subset = _NO_SUBSET if stem in ("", _NO_STEM) else subset_of_stem(stem)
    return FileName(subset, int(match["number"]), int(match["records"]))


def file_names(subset: str, records: Sequence[int]) -> list[str]:
    """Names for the files of a subset with so many records each.

    The recipe knows no subsets and calls its files ``file_00-4096.tfrec``; those of a subset have
    its name in front instead: ``train_00-4096.tfrec``.

    Raises:
        TfodError: the subset is called as the files without one are.
    """
    if subset == _NO_STEM:
        raise TfodError(f"a subset called {subset!r} looks like none here; give it another name")
    return [_file_name(FileName(subset, number, count)) for number, count in enumerate(records)]


def _file_name(name: FileName) -> str:
    stem = stem_of_subset(name.subset) if name.subset != _NO_SUBSET else _NO_STEM
    return f"{stem}_{name.number:02d}-{name.records}{EXTENSION}"


def find_files(folder: str) -> dict[str, list[str]]:
    """Absolute paths, by subset, of the files in a folder that :func:`file_names` has named."""
    found: dict[str, list[str]] = {}
    pattern = os.path.join(glob.escape(os.path.abspath(folder)), f"*{EXTENSION}")
    for path in sorted(glob.glob(pattern)):
        name = parse_file_name(path)
        if name is not None and _file_name(name) == os.path.basename(path):
            found.setdefault(name.subset, []).append(path)
    return found

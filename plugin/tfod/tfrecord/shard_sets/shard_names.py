"""Names of shards: of numbered sets, with counts of records, and how subsets become file names.

One rule for all: what is left of a name when the number is taken away is the name of the subset.
Which number that is, a name states by itself (``train-00003-of-00010.tfrecord``, ``train_1of2``,
``train_03-4096.tfrec``), or the names of a folder do together: several are the same but for it,
and the numbers run (``train0.tfrecord``, ``train1.tfrecord``; but not ``val2007``, ``val2012``).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.urls import folder_of, name_of

SHARD_EXTENSIONS = (".tfrecord", ".tfrecords", ".record", ".records", ".tfrec")
EXTENSION = ".tfrec"
"""Of the names that say how many records are in a file."""
RECIPE_RECORDS = 4096
"""Records of a file whose name says so: ``n_samples`` of the Keras recipe."""
SPLITS = frozenset(
    ("train", "training", "trainval", "valid", "validation", "val", "test", "testing")
)
MOST_MISSING = 1000
COMPRESSED_EXTENSIONS = (".gz", ".gzip", ".zlib", ".zz")
_ESCAPED_IN_NAMES = re.compile(r"[%/\\\0:]|\A\.|\A_(?=_MACOSX)|t(?=fevents)", re.IGNORECASE)
_ESCAPES = re.compile(r"%(25|2F|5C|00|2E|3A|2D|5F|74|54)")

# With the number before the extension, behind it, or with no extension at all.
_NUMBERED = re.compile(
    r"(?P<stem>.*?)(?P<early>\.[A-Za-z]+)?[-_ ]?(?<![0-9])(?P<number>[0-9]{1,18})[-_ ]?of[-_ ]?"
    r"(?P<total>[0-9]{1,18})(-total[0-9]+)?(?P<late>\.[A-Za-z]+)?",
    re.DOTALL,
)
_OF_OD_API = re.compile(r"-[0-9]{5,18}-of-[0-9]{5,18}\Z")
# The Keras recipe's ``file_00-4096.tfrec``. Google's codelabs for TPUs and data sets of Kaggle have
# such names, too: ``flowers00-230.tfrec``, ``00-512x512-798.tfrec`` (number of the file, size of
# the images, number of records). A date is none.
_COUNTED = re.compile(
    r"(?P<stem>.*?)_?(?<![0-9-])(?P<number>[0-9]{2,3}|0[0-9]{1,17})(-[0-9]+x[0-9]+)?"
    r"-(?P<records>0|[1-9][0-9]{0,17})\.tfrec",
    re.DOTALL,
)
# As Datumaro and the recipe call what has no subset.
_NO_SUBSET, _NO_STEM = "default", "file"
# What may be the number of a shard; the parts of a version such as 1.2 are not.
_NUMBER = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]{1,18}(?![0-9]|\.[0-9])")
_MOST_NUMBERS = 24  # that are looked at in a name: a UUID may be in it, as in Spark's


class ShardName(NamedTuple):
    """A shard's file name taken apart: ``coco_train.record-00003-of-00100``.

    Attributes:
        stem: what is left when the number is taken away.
        number: which of its set it is.
        total: how many its set has, where the name says so.
        records: how many records it has, where the name says so.
    """

    stem: str
    number: int | None = None
    total: int | None = None
    records: int | None = None


def stated_name(path: str) -> ShardName:
    """What the name of a shard states by itself."""
    plain = _without_compression(name_of(path))
    if match := _NUMBERED.fullmatch(plain):
        stem = match["stem"] + (match["early"] or "") * bool(match["late"])
        return ShardName(stem, int(match["number"]), int(match["total"]))
    if match := _COUNTED.fullmatch(plain):
        stem = _NO_SUBSET if match["stem"] in ("", _NO_STEM) else match["stem"]
        return ShardName(stem, int(match["number"]), records=int(match["records"]))
    return ShardName(os.path.splitext(plain)[0])


def parse_shard_name(path: str | os.PathLike[str]) -> ShardName | None:
    """As :func:`stated_name`; None when the name does not look like a shard's."""
    name = _without_compression(name_of(os.fspath(path)))
    # Without an extension only as the OD API writes it: other files may be 1 of 2, too.
    extension, _ = _extension(name)
    is_known = extension.lower() in SHARD_EXTENSIONS if extension else _OF_OD_API.search(name)
    return stated_name(name) if is_known else None


def _extension(name: str) -> tuple[str, bool]:
    """The extension of a name, and whether it stands at the end, behind a number."""
    if match := _NUMBERED.fullmatch(name):
        return match["late"] or match["early"] or "", bool(match["late"])
    return os.path.splitext(name)[1], True


def shard_names(paths: Iterable[str]) -> dict[str, ShardName]:
    """The names of shards taken apart, those of a folder looked at together: the one rule.

    Where several numbers of a name could be the one, it is the last.
    """
    found = {path: stated_name(path) for path in paths}
    folders = {path: folder_of(path) for path in found}
    owners: dict[tuple[str, str], set[str]] = {}
    for path, name in found.items():
        owners.setdefault((folders[path], name.stem), set()).add(path)
    numbers = {
        path: [*_NUMBER.finditer(name_of(path))][-_MOST_NUMBERS:]
        for path, name in found.items()
        if name.number is None
    }
    while numbers := {path: left for path, left in numbers.items() if left}:
        alike: dict[tuple[str, str, str], dict[str, str]] = {}
        for path, left in numbers.items():
            match = left.pop()
            around = match.string[: match.start()], match.string[match.end() :]
            alike.setdefault((folders[path], *around), {})[path] = match[0]
        for (folder, before, behind), members in sorted(alike.items()):
            if not _do_run(members.values()):
                continue
            stem = _stem_of_set(before, behind)
            if owners.get((folder, stem), set()) - members.keys():  # ``a_0`` beside ``a-0``
                stem = _stem_of_set(before, behind, separators="")
            owners.setdefault((folder, stem), set()).update(members)
            for path, number in members.items():
                found[path] = ShardName(stem, int(number))
                numbers[path].clear()
    return found


def _do_run(texts: Collection[str]) -> bool:
    """Whether numbers are those of one set: without a gap, from 0 or 1, or padded with zeros."""
    numbers, width = sorted(map(int, texts)), min(map(len, texts))
    is_counted = numbers[0] <= 1 or any(one.startswith("0") for one in texts)
    is_alike = {f"{one:0{width}d}" for one in numbers} == set(texts)
    return len(texts) > 1 and is_counted and is_alike and numbers[-1] - numbers[0] < len(texts)


def _may_run(name: str) -> bool:
    """Whether a name could be one of a set of which others are in its folder."""
    return any(one[0].startswith("0") or one[0] == "1" for one in _NUMBER.finditer(name))


def _stem_of_set(before: str, behind: str, separators: str = "-_. ") -> str:
    left = _without_compression(before.rstrip(separators) + behind)
    known = next((one for one in SHARD_EXTENSIONS if left.lower().endswith(one)), None)
    return (left[: -len(known)] if known else os.path.splitext(left)[0]).strip(separators)


def is_one_of_several(path: str) -> bool:
    """Whether a shard is one of a numbered set, in which some may have no records."""
    return (stated_name(path).total or 0) > 1


def stem_of_subset(subset: str) -> str:
    """A subset's name as a file or a folder can have it; escaped as in a URL where it must be."""
    return _ESCAPED_IN_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", subset) or _NO_SUBSET


def subset_of_stem(stem: str) -> str:
    """The subset that :func:`stem_of_subset` has made this name of."""
    subset = _ESCAPES.sub(lambda match: chr(int(match[1], 16)), stem)
    # A name that leads out of a folder is nobody's subset; it stays escaped.
    return (subset if safe_relative_path(subset) == subset else stem) or _NO_SUBSET


def shard_file_names(subset: str, count: int) -> list[str]:
    """Names for the shards of a subset: one plain name, or numbered as the OD API does.

    What a file name cannot say is escaped as in a URL: ``train/night`` becomes ``train%2Fnight``.
    A plain name that could be one of a set gets a number of its own: ``fold1-00000-of-00001``.
    """
    return _named(stem_of_subset(subset), "", SHARD_EXTENSIONS[0], count)


def numbered_file_names(name: str, count: int) -> list[str]:
    """Names for the files of a set that somebody calls ``name``, as the OD API makes them.

    One is ``coco_train.record``; of 100 the first is ``coco_train.record-00000-of-00100``. Source:
    dataset_tools/tf_record_creation_util.py.
    """
    return [name] if count == 1 else _numbered(name, count, "")


def similar_file_names(shard: str, stem: str, count: int) -> list[str]:
    """Names for so many shards in the manner of one that is there, without a folder.

    ``a.record-00000-of-00010`` is followed by ``a.record-00000-of-00003``, ``a.tfrecord`` and
    ``a-00000-of-00010.tfrecord`` by ``a-00000-of-00003.tfrecord``, ``a.record`` by
    ``a.record-00000-of-00003``. An ending such as ``.gz`` goes: the bytes say how a shard is
    compressed.
    """
    name = _without_compression(name_of(shard))
    extension, is_behind = _extension(name)
    if name == stem + extension and extension.lower() in (".record", ".records"):
        is_behind = False  # as the OD API's scripts number them
    return _named(stem, *(("", extension) if is_behind else (extension, "")), count)


def _named(stem: str, early: str, late: str, count: int) -> list[str]:
    name = stem + early + late
    if count == 1 and parse_shard_name(name) == ShardName(stem) and not _may_run(name):
        return [name]
    return _numbered(stem + early, count, late)


def _without_compression(name: str) -> str:
    root, extension = os.path.splitext(name)
    return root if extension.lower() in COMPRESSED_EXTENSIONS else name


def _numbered(before: str, count: int, behind: str) -> list[str]:
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
        stem, number, total, _ = stated_name(path)
        if total is not None and number is not None:
            sets.setdefault((folder_of(path), stem, total), {})[number] = name_of(path)
    missing: list[str] = []
    for (_, _, total), there in sets.items():
        example = min(there.values(), key=len)  # of 1of12 and 10of12 it tells what is padded
        numbering = _NUMBERED.fullmatch(_without_compression(example))
        assert numbering is not None  # the name was taken apart by it
        start, stop = numbering.span("number")  # a stem may have numbers as well
        first = first_number(there, total)
        absent = (other for other in range(first, first + total) if other not in there)
        missing += [
            f"{example[:start]}{other:0{stop - start}d}{example[stop:]}"
            for other in itertools.islice(absent, max(1, most - len(missing)))
        ]
    return missing


def recipe_file_names(subset: str, count: int, records: int) -> list[str]:
    """Return names for so many files of a subset, which are full except for the last.

    The Keras recipe knows no subsets and calls its files ``file_00-4096.tfrec``; those of a subset
    have its name in front instead: ``train_00-4096.tfrec``.

    Raises:
        TfodError: the subset is called as the files without one are.
    """
    if subset == _NO_STEM:
        raise TfodError(f"a subset called {subset!r} looks like none here; give it another name")
    stem = _NO_STEM if subset == _NO_SUBSET else stem_of_subset(subset)
    sizes = [RECIPE_RECORDS] * (count - 1) + [records - RECIPE_RECORDS * (count - 1)]
    return [f"{stem}_{number:02d}-{size}{EXTENSION}" for number, size in enumerate(sizes)]

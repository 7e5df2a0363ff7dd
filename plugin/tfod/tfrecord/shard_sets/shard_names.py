"""Names of shards: parsing numbered names, and file names for subsets.

The subset is the file name without its number. A name may state the number itself
(``train-00003-of-00010.tfrecord``, ``train_1of2``, ``train_03-4096.tfrec``). Otherwise, the names
in a folder are compared: several differ only in consecutive numbers (``train0.tfrecord``,
``train1.tfrecord``, but not ``val2007``, ``val2012``).
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tfod.errors import TfodError, excerpt
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.urls import get_folder, get_name

SHARD_EXTENSIONS = (".tfrecord", ".tfrecords", ".record", ".records", ".tfrec")
EXTENSION = ".tfrec"
"""The extension of files whose names contain the number of records."""
RECIPE_RECORDS = 4096
"""The number of records per file: ``n_samples`` of the Keras recipe."""
SPLITS = frozenset(
    ("train", "training", "trainval", "valid", "validation", "val", "test", "testing")
)
MAX_MISSING = 1000
COMPRESSED_EXTENSIONS = (".gz", ".gzip", ".zlib", ".zz")
_ESCAPED_IN_NAMES = re.compile(r"[%/\\\0:]|\A\.|\A_(?=_MACOSX)|t(?=fevents)", re.IGNORECASE)
_ESCAPES = re.compile(r"%(25|2F|5C|00|2E|3A|2D|5F|74|54)")

# The number is before the extension, after it, or there is no extension.
_NUMBERED = re.compile(
    r"(?P<stem>.*?)(?P<early>\.[A-Za-z]+)?[-_ ]?(?<![0-9])(?P<number>[0-9]{1,18})[-_ ]?of[-_ ]?"
    r"(?P<total>[0-9]{1,18})(-total[0-9]+)?(?P<late>\.[A-Za-z]+)?",
    re.DOTALL,
)
_OF_OD_API = re.compile(r"-[0-9]{5,18}-of-[0-9]{5,18}\Z")
# ``file_00-4096.tfrec`` of the Keras recipe, and similar names in Google's codelabs for TPUs and
# Kaggle datasets: ``flowers00-230.tfrec``, ``00-512x512-798.tfrec`` (number of the file, image
# size, number of records). Dates do not match.
_COUNTED = re.compile(
    r"(?P<stem>.*?)_?(?<![0-9-])(?P<number>[0-9]{2,3}|0[0-9]{1,17})(-[0-9]+x[0-9]+)?"
    r"-(?P<records>0|[1-9][0-9]{0,17})\.tfrec",
    re.DOTALL,
)
# The names that Datumaro and the recipe use if there is no subset.
_NO_SUBSET, _NO_STEM = "default", "file"
# A possible shard number; the parts of a version such as 1.2 are not.
_NUMBER = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]{1,18}(?![0-9]|\.[0-9])")
_MAX_NUMBERS = 24  # per name, which may contain a UUID, as names from Spark do


class ShardName(NamedTuple):
    """The parts of a shard's file name, such as ``coco_train.record-00003-of-00100``.

    Attributes:
        stem: name without the number.
        number: number of the shard in its set, or None.
        total: number of shards in the set, or None if the name does not state it.
        records: number of records in the shard, or None if the name does not state it.
    """

    stem: str
    number: int | None = None
    total: int | None = None
    records: int | None = None


def stated_name(path: str) -> ShardName:
    """Parse a single shard name, without comparing it with others."""
    plain = _without_compression(get_name(path))
    if match := _NUMBERED.fullmatch(plain):
        stem = match["stem"]
        if match["late"]:  # then ``early`` is not the extension
            stem += match["early"] or ""
        return ShardName(stem, int(match["number"]), int(match["total"]))
    if match := _COUNTED.fullmatch(plain):
        stem = _NO_SUBSET if match["stem"] in ("", _NO_STEM) else match["stem"]
        return ShardName(stem, int(match["number"]), records=int(match["records"]))
    return ShardName(os.path.splitext(plain)[0])


def parse_shard_name(path: str | os.PathLike[str]) -> ShardName | None:
    """Parse a name as :func:`stated_name` does; return None if it does not look like a shard."""
    name = _without_compression(get_name(os.fspath(path)))
    # Without an extension, only names in the style of the OD API count: other files may be 1of2.
    extension, _ = _find_extension(name)
    is_known = extension.lower() in SHARD_EXTENSIONS if extension else _OF_OD_API.search(name)
    return stated_name(name) if is_known else None


def _find_extension(name: str) -> tuple[str, bool]:
    """Return the extension of a name, and whether it is at the end, after any number."""
    if match := _NUMBERED.fullmatch(name):
        return match["late"] or match["early"] or "", bool(match["late"])
    return os.path.splitext(name)[1], True


def parse_shard_names(paths: Iterable[str]) -> dict[str, ShardName]:
    """Parse the names of shards; the names in a folder are interpreted together.

    If several numbers in a name could be the shard number, the last one is used.
    """
    names = {path: stated_name(path) for path in paths}
    folders = {path: get_folder(path) for path in names}
    owners: dict[tuple[str, str], set[str]] = {}
    for path, name in names.items():
        owners.setdefault((folders[path], name.stem), set()).add(path)
    candidates = {
        path: [*_NUMBER.finditer(get_name(path))][-_MAX_NUMBERS:]
        for path, name in names.items()
        if name.number is None
    }
    while candidates := {path: matches for path, matches in candidates.items() if matches}:
        similar: dict[tuple[str, str, str], dict[str, str]] = {}
        for path, matches in candidates.items():
            match = matches.pop()
            affixes = match.string[: match.start()], match.string[match.end() :]
            similar.setdefault((folders[path], *affixes), {})[path] = match[0]
        for (folder, prefix, suffix), members in sorted(similar.items()):
            if not _are_consecutive(members.values()):
                continue
            stem = _join_stem(prefix, suffix)
            if owners.get((folder, stem), set()) - members.keys():  # ``a_0`` next to ``a-0``
                stem = _join_stem(prefix, suffix, separators="")
            owners.setdefault((folder, stem), set()).update(members)
            for path, number in members.items():
                names[path] = ShardName(stem, int(number))
                candidates[path].clear()
    return names


def _are_consecutive(texts: Collection[str]) -> bool:
    """Return whether numbers form a set: without gaps, and from 0 or 1 or padded with zeros."""
    numbers, width = sorted(map(int, texts)), min(map(len, texts))
    is_counted = numbers[0] <= 1 or any(text.startswith("0") for text in texts)
    is_padded_alike = {f"{number:0{width}d}" for number in numbers} == set(texts)
    has_no_gap = numbers[-1] - numbers[0] < len(texts)
    return len(texts) > 1 and is_counted and is_padded_alike and has_no_gap


def _could_be_numbered(name: str) -> bool:
    """Return whether a name would be read as part of a set next to similar names."""
    numbers = [match[0] for match in _NUMBER.finditer(name)]
    return any(number.startswith("0") or number == "1" for number in numbers)


def _join_stem(prefix: str, suffix: str, separators: str = "-_. ") -> str:
    name = _without_compression(prefix.rstrip(separators) + suffix)
    for extension in SHARD_EXTENSIONS:
        if name.lower().endswith(extension):
            return name[: -len(extension)].strip(separators)
    return os.path.splitext(name)[0].strip(separators)


def is_in_numbered_set(path: str) -> bool:
    """Return whether a shard belongs to a numbered set, in which shards may be empty."""
    return (stated_name(path).total or 0) > 1


def to_stem(subset: str) -> str:
    """Convert the name of a subset to a file or folder name; escape characters as in a URL."""
    return _ESCAPED_IN_NAMES.sub(lambda match: f"%{ord(match[0]):02X}", subset) or _NO_SUBSET


def to_subset(stem: str) -> str:
    """Convert a file or folder name back to the name of the subset; see :func:`to_stem`."""
    subset = _ESCAPES.sub(lambda match: chr(int(match[1], 16)), stem)
    # A name that would leave the folder stays escaped.
    return (subset if safe_relative_path(subset) == subset else stem) or _NO_SUBSET


def shard_file_names(subset: str, count: int) -> list[str]:
    """Return file names for the shards of a subset: a plain name, or numbered as in the OD API.

    Characters that file names cannot have are escaped: ``train/night`` becomes ``train%2Fnight``.
    A plain name that could be part of a set is numbered, too: ``fold1-00000-of-00001``.
    """
    return _make_names(to_stem(subset), "", SHARD_EXTENSIONS[0], count)


def numbered_file_names(name: str, count: int) -> list[str]:
    """Return names for the files of a set, as the OD API's tf_record_creation_util.py does.

    The first of 100 is ``coco_train.record-00000-of-00100``; a single file keeps the name.
    """
    return [name] if count == 1 else _number_names(name, count, "")


def similar_file_names(shard: str, stem: str, count: int) -> list[str]:
    """Return names for ``count`` shards in the style of an existing one, without a folder.

    After ``a.record-00000-of-00010`` or ``a.record`` comes ``a.record-00000-of-00003``, after
    ``a.tfrecord`` or ``a-00000-of-00010.tfrecord`` comes ``a-00000-of-00003.tfrecord``. An
    extension such as ``.gz`` is dropped, because readers detect the compression.
    """
    name = _without_compression(get_name(shard))
    extension, is_last = _find_extension(name)
    if name == stem + extension and extension.lower() in (".record", ".records"):
        is_last = False  # as in the scripts of the OD API
    early, late = ("", extension) if is_last else (extension, "")
    return _make_names(stem, early, late, count)


def _make_names(stem: str, early: str, late: str, count: int) -> list[str]:
    """Return file names with an extension before (``early``) or after (``late``) the number."""
    name = stem + early + late
    if count == 1 and parse_shard_name(name) == ShardName(stem) and not _could_be_numbered(name):
        return [name]
    return _number_names(stem + early, count, late)


def _without_compression(name: str) -> str:
    root, extension = os.path.splitext(name)
    return root if extension.lower() in COMPRESSED_EXTENSIONS else name


def _number_names(prefix: str, count: int, suffix: str) -> list[str]:
    return [f"{prefix}-{number:05d}-of-{count:05d}{suffix}" for number in range(count)]


def first_number(numbers: Collection[int], total: int) -> int:
    """Return the first number of a set: 1 if ``total`` exists but 0 does not, otherwise 0."""
    return 1 if total in numbers and 0 not in numbers else 0


def find_missing(paths: Sequence[str], max_names: int = MAX_MISSING) -> list[str]:
    """Return at most ``max_names`` missing names of sets ``-of-N``, but one for each set."""
    sets: dict[tuple[str, str, int], dict[int, str]] = {}
    for path in paths:
        stem, number, total, _ = stated_name(path)
        if total is not None and number is not None:
            sets.setdefault((get_folder(path), stem, total), {})[number] = get_name(path)
    missing: list[str] = []
    for (_, _, total), existing in sets.items():
        example = min(existing.values(), key=len)  # the shortest name shows the padding
        numbering = _NUMBERED.fullmatch(_without_compression(example))
        assert numbering is not None  # stated_name has matched the name
        start, stop = numbering.span("number")  # the stem may contain numbers, too
        first = first_number(existing, total)
        absent = (number for number in range(first, first + total) if number not in existing)
        missing += [
            f"{example[:start]}{number:0{stop - start}d}{example[stop:]}"
            for number in itertools.islice(absent, max(1, max_names - len(missing)))
        ]
    return missing


def recipe_file_names(
    subset: str, count: int, records: int, shard_records: int = RECIPE_RECORDS
) -> list[str]:
    """Return names for ``count`` files of a subset, where only the last file is not full.

    The Keras recipe names its files ``file_00-4096.tfrec``; here the subset replaces ``file``:
    ``train_00-4096.tfrec``. Raises TfodError for a subset named ``file``.
    """
    if subset == _NO_STEM:
        raise TfodError(f"subset {excerpt(subset)} would be read as no subset; rename the subset")
    stem = _NO_STEM if subset == _NO_SUBSET else to_stem(subset)
    sizes = [shard_records] * (count - 1) + [records - shard_records * (count - 1)]
    return [f"{stem}_{number:02d}-{size}{EXTENSION}" for number, size in enumerate(sizes)]

"""TFR: the file as a sequence of records, their lengths and checksums. SET: shards as a set.

The walk itself (:mod:`tfod.tfrecord.reader`) says what is damaged and where; the rules name it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.finding import Finding, JsonValue, Severity, join_names
from tfod.checker.rules.registry import dataset_rule, rule
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.damage import DamageKind
from tfod.tfrecord.shard_sets.shard_names import (
    COMPRESSED_EXTENSIONS,
    MAX_MISSING,
    find_missing,
    first_number,
    stated_name,
)
from tfod.tfrecord.storage.urls import folder_of, name_of

_FORMAT = "tensorflow/core/lib/io/record_writer.h; tensorflow.org/tutorials/load_data/tfrecord"
_READER = "tensorflow/core/lib/io/record_reader.cc: 'corrupted record at'"
_BUILDER = (
    "tensorflow/models: builders/dataset_builder.py, TFRecordDataset without compression_type"
)
_NAMES = "tensorflow/models: dataset_tools/tf_record_creation_util.py"
_MOST_NAMED = 100
_OPTIONAL = ("image/object/", "image/class/")
"""Features that a record without objects may leave out."""


def _damage_rule(
    heading: str, kind: DamageKind, *, why: str, fix: str, source: str, repair: str = ""
) -> None:
    """Declare the rule that reports a kind of damage: it says itself what is wrong."""

    @rule(heading, why=why, fix=fix, source=source, repair=repair)
    def of_kind(batch: Batch) -> Iterator[Finding]:
        for damage in batch.damages:
            if damage.kind is kind:
                yield Finding(
                    message=damage.cause,
                    fix=f"{damage.fix[:1].upper()}{damage.fix[1:]}.",
                    shard=damage.shard,
                    record=damage.record,
                    offset=damage.offset,
                    value=damage.skipped or None,
                )


_damage_rule(
    "TFR001 error: not a TFRecord file",
    DamageKind.FOREIGN,
    why="TensorFlow stops at its first bytes ('Is this even a TFRecord file?').",
    fix="Pass the shard itself; download it again if this should be it.",
    source=_READER,
)
_damage_rule(
    "TFR002 error: empty file",
    DamageKind.EMPTY,
    why="TensorFlow reads a file of 0 bytes as a dataset without records and says nothing.",
    fix="Export or download it again, or delete it if it is meant to be empty.",
    source="cvat-ai/cvat#821",
)
_damage_rule(
    "TFR003 error: checksum of a length is wrong",
    DamageKind.LENGTH_CRC,
    why="Nobody knows where the next record begins: TensorFlow gives up the rest of the shard.",
    fix="Download or export the shard again.",
    source=_FORMAT,
    repair="Reading goes on at the next plausible record; the bytes between are left out.",
)
_damage_rule(
    "TFR004 error: checksum of the data is wrong",
    DamageKind.DATA_CRC,
    why="The record was changed after it was written; TensorFlow stops here with DataLossError.",
    fix="Download or export the shard again.",
    source=_FORMAT,
    repair="The record is left out.",
)
_damage_rule(
    "TFR005 error: file ends inside a record",
    DamageKind.TRUNCATED_RECORD,
    why="A download or a copy stopped early; the last record and all behind it are lost.",
    fix="Download or copy the shard again, or export it again.",
    source="tensorflow/tensorflow#13463; AdaCompNUS/pfnet#1",
    repair="What is left of the last record is left out.",
)
_damage_rule(
    "TFR006 error: file ends inside a record's header",
    DamageKind.TRUNCATED_HEADER,
    why="TensorFlow takes this for a sound, shorter dataset and says nothing.",
    fix="Download or copy the shard again, or export it again.",
    source="tensorflow 2.21, run: 1 to 11 stray bytes at the end give no error",
    repair="The stray bytes are left out.",
)
_damage_rule(
    "TFR007 error: forged length",
    DamageKind.FORGED_LENGTH,
    why="A reader that believes it asks for memory it never gets, or skips sound records.",
    fix="Export the shard again; if it comes from somebody else, do not trust it.",
    source="CWE-789; vahidk/tfrecord: MemoryError",
    repair="Reading goes on at the next plausible record; the bytes between are left out.",
)
_damage_rule(
    "TFR008 error: zero bytes at the end",
    DamageKind.TRAILING_ZEROS,
    why="A disk ran full or a download was preallocated; TensorFlow reports a corrupted record.",
    fix="Copy or export the shard again; the records before are sound.",
    source=_READER,
    repair="The zeros are left out.",
)
_damage_rule(
    "TFR011 error: damaged compression",
    DamageKind.COMPRESSION,
    why="Nothing behind the damage can be unpacked.",
    fix="Download or export the shard again.",
    source="RFC 1950, RFC 1952",
    repair="The records before the damage are kept, and compressed again.",
)
_damage_rule(
    "TFR012 warning: record too large to be checked",
    DamageKind.OVERSIZE,
    why="Reading it would take more memory than the limit allows; nothing else was checked in it.",
    fix="Raise TFOD_MAX_RECORD_BYTES if such records are meant.",
    source="protobuf: a message has at most 2 GiB",
)


@rule(
    "TFR009 error: record without a byte",
    why="It parses as an Example without features, and training fails at its missing image.",
    fix="Leave the record out when writing the shard.",
    source=_FORMAT,
    repair="The record is left out.",
)
def zero_length_record(batch: Batch) -> Iterator[Finding]:
    """A record's length is 0."""
    rows = np.flatnonzero(batch.records.lengths == 0).tolist()
    said = "the record has a length of 0"
    return batch.findings(rows, lambda row: batch.finding(row, said, value=0))


@dataset_rule(
    "TFR010 warning: compressed without saying so",
    why="TensorFlow does not notice compression by itself and reports a corrupted record; the OD "
    "API's trainer never says it.",
    fix="Name it .gz, or pass its compression_type to tf.data.TFRecordDataset.",
    source=f"{_BUILDER}; tensorflow/tensorflow#13463",
)
def silent_compression(result: DatasetResult) -> Iterator[Finding]:
    """The bytes are GZIP or ZLIB, the name does not tell."""
    for shard, name in _compressed(result, is_said=False):
        fix = f"Give it the ending {'.gz' if name == 'GZIP' else '.zz'}, or pass "
        fix += f"compression_type='{name}' to tf.data.TFRecordDataset."
        message = f"the shard is compressed with {name}, its name does not say so"
        yield Finding(message=message, shard=shard, value=name, fix=fix)


def _compressed(result: DatasetResult, *, is_said: bool) -> Iterator[tuple[str, str]]:
    """The compressed shards whose names say so, or do not: name and compression."""
    for shard in result.shards:
        says_so = shard.name.lower().endswith(COMPRESSED_EXTENSIONS)
        if shard.compression and says_so is is_said:
            yield shard.name, shard.compression


@dataset_rule(
    "TFR013 error: cannot be read",
    why="What is behind this point was not checked.",
    fix="Look at the file's permissions, the disk and the network, then check again.",
    source="errno(3)",
)
def unreadable(result: DatasetResult) -> Iterator[Finding]:
    """The operating system, or the store, does not let us read on."""
    reasons = [(one.name, one.unreadable) for one in result.dataset.zips]
    for name, reason in (*reasons, *((one.name, one.unreadable) for one in result.shards)):
        if reason:
            yield Finding(message=f"cannot be read: {reason}", shard=name)


@dataset_rule(
    "TFR014 info: compressed",
    why="The OD API's trainer does not read it, whatever its name: it names no compression to "
    "TensorFlow, which reports a corrupted record. Datumaro and CVAT read it with tfod.",
    fix="For the OD API write it without compression: tfod reshard --compression none.",
    source=_BUILDER,
)
def compression_that_says_so(result: DatasetResult) -> Iterator[Finding]:
    """The bytes are GZIP or ZLIB, as the name says."""
    for shard, name in _compressed(result, is_said=True):
        yield Finding(message=f"the shard is compressed with {name}", shard=shard, value=name)


@dataclass
class _NumberedSet:
    """Shards of one stem; that of ``train-00003-of-00010`` is ``train``, and the total is 10.

    Attributes:
        name: its stem with the folder, or the zip that holds it: what reports call it.
        folder: where its shards are.
        by_itself: whether the first of them was named as a file.
        totals: an example of each total.
        numbers: those that are there.
        paths: of its shards.
    """

    name: str
    folder: str
    by_itself: bool
    totals: dict[int, str] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)


def _numbered_sets(result: DatasetResult) -> Iterable[_NumberedSet]:
    found: dict[tuple[str, str], _NumberedSet] = {}
    for shard in result.dataset.shards:
        parts = shard.numbered
        if parts is None:
            continue
        file, folder = name_of(shard.path if shard.entry else shard.name), folder_of(shard.path)
        above = folder if shard.is_remote else os.path.dirname(shard.name)
        name = os.path.join(above, parts.stem)
        if shard.entry:
            name = shard.name.removesuffix(f":{shard.entry.shown}")
        new = _NumberedSet(name, folder, shard.by_itself)
        one = found.setdefault((folder, parts.stem), new)
        one.totals.setdefault(parts.total or 0, file)
        one.numbers.add(parts.number or 0)
        one.paths.append(os.path.join(folder, file))
    return found.values()


@dataset_rule(
    "SET001 error: shard missing from a set",
    why="A part of the dataset is not trained, and nothing says so.",
    fix="Copy or download the missing shards.",
    source=_NAMES,
)
def missing_shards(result: DatasetResult) -> Iterator[Finding]:
    """The names count to a number, and so many are not there; of many the first are named."""
    left = MAX_MISSING
    for own in _numbered_sets(result):
        if len(own.totals) > 1 or (own.by_itself and len(own.paths) == 1):
            continue
        names = find_missing(own.paths, left)
        # It may be that not all were to be checked.
        missing = [one for one in names if not os.path.exists(os.path.join(own.folder, one))]
        if not missing:
            continue
        # Of very many not all are named.
        (total,) = own.totals
        count = len(missing) if len(names) < left else total - len(own.numbers)
        left = max(1, left - len(names))
        what = "shard is" if count == 1 else "shards are"
        message = f"{count:,} {what} missing: {join_names(missing, 3, count)}"
        message += "; the set counts from 1" if first_number(own.numbers, total) == 1 else ""
        value = list[JsonValue](missing[:_MOST_NAMED])
        yield Finding(message=message, shard=own.name, value=value)


@dataset_rule(
    "SET002 error: sets of different size mixed",
    why="A glob reads both: images are trained twice.",
    fix="Delete the shards of the older export.",
    source=_NAMES,
)
def mixed_sets(result: DatasetResult) -> Iterator[Finding]:
    """Shards of one stem claim different totals; an example of each."""
    for one in _numbered_sets(result):
        if len(one.totals) > 1:
            some = ", ".join(f"{name} (of {total})" for total, name in one.totals.items())
            message = f"shards of several sets lie together: {some}"
            yield Finding(message=message, shard=one.name, value=[*one.totals])


@dataset_rule(
    "SET003 warning: shards with different features",
    why="They were probably written by different scripts, and training sees two kinds of records.",
    fix="Write all shards of a set with the same script.",
    source="tensorflow/data-validation: SCHEMA_MISSING_COLUMN",
)
def different_keys(result: DatasetResult) -> Iterator[Finding]:
    """A feature that records of most shards of a subset have is in no record of another."""
    for members in result.by_subset.values():
        keys = {
            one.name: {key for key in one.keys if not key.startswith(_OPTIONAL)}
            for one in members
            if one.keys
        }
        if len(keys) < 2:
            continue
        counts = Counter(key for found in keys.values() for key in found)
        usual = {key for key, count in counts.items() if 2 * count > len(keys)}
        rare = counts.keys() - usual
        for shard, found in keys.items():
            lacks, has = sorted(usual - found), sorted(rare & found)
            parts = [f"lacks {', '.join(lacks)}"] if lacks else []
            parts += [f"alone has {', '.join(has)}"] if has else []
            if parts:
                message = f"unlike the other shards it {' and '.join(parts)}"
                yield Finding(message=message, shard=shard, feature=(lacks or has)[0])


@dataset_rule(
    "SET004 error: label maps differ",
    why="The same id means two classes: evaluation compares a cat with a dog.",
    fix="Use one label map for all splits, and write the shards with it.",
    source="Roboflow renumbers the classes in each export",
)
def different_label_maps(result: DatasetResult) -> Iterator[Finding]:
    """An id or a name means different things in two label maps."""
    names = dict.fromkeys(one.label_map for one in result.shards if one.label_map)
    maps = {name: one for name in names if (one := result.label_map_of(name)) is not None}
    (first_name, first), *others = maps.items() or [("", LabelMap())]
    for name, other in others:
        for item in other.items:
            same_id = first.find_id(item.id)
            same_text = first.find(item.class_name)
            if same_id and same_id.class_name != item.class_name:
                what = f"id {item.id} is {item.class_name!r:.81} here "
                what += f"and {same_id.class_name!r:.81}"
            elif same_text and same_text.id != item.id and not same_id:
                what = f"class {item.class_name!r:.81} has id {item.id} here and {same_text.id}"
            else:
                continue
            yield Finding(message=f"{what} in {first_name}", shard=name)
            break


@dataset_rule(
    "SET005 warning: shard without a record",
    why="It is legal where there are more shards than images, but mostly an export went wrong.",
    fix="Write fewer shards, or look why this one is empty.",
    source="tensorflow.org/tutorials/load_data/tfrecord: about 100 MB a shard",
)
def empty_shard(result: DatasetResult) -> Iterator[Finding]:
    """A shard holds no record at all."""
    for shard in result.shards:
        if _is_hollow(shard):
            yield Finding(message="the shard holds no record", shard=shard.name)


@dataset_rule(
    "SET006 error: no shard of the set has a record",
    why="TensorFlow reads files of 0 bytes as a dataset without records and says nothing.",
    fix="Export or download the shards again.",
    source="cvat-ai/cvat#821",
    cases={"part": Severity.WARNING},
)
def empty_set(result: DatasetResult) -> Iterator[Finding]:
    """All shards of a numbered set are files of 0 bytes, or no shard has a record for no reason.

    Only a part of a set that is given is a warning if another set has records.
    """
    has_records = any(one.records for one in result.shards)
    for members in result.by_subset.values():
        most = max(stated_name(one.name).total or 0 for one in members)
        if all(one.is_empty_file for one in members):
            message = f"all shards of the set are empty ({len(members):,} of 0 bytes)"
            case = "part" if has_records and most > len(members) else ""
            yield Finding(message=message, shard=members[0].name, case=case)
        elif not has_records and all(map(_is_hollow, members)):
            yield Finding(message="no shard holds a record", shard=members[0].name)


def _is_hollow(shard: ShardResult) -> bool:
    """Whether nothing is wrong with a shard but that it has no record."""
    is_read = not (shard.unreadable or shard.damage)
    return shard.is_empty_file or (is_read and not shard.records and not shard.has_defects)

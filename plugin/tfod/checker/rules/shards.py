"""TFR rules: framing, lengths and checksums of records. SET rules: the shards of a dataset.

:mod:`tfod.tfrecord.reader` detects the damage; the TFR rules only assign a code to each kind.
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
from tfod.errors import excerpt
from tfod.sources.other_tools import describe_file
from tfod.tfrecord.damage import DamageKind
from tfod.tfrecord.shard_sets.shard_names import (
    COMPRESSED_EXTENSIONS,
    MAX_MISSING,
    find_missing,
    first_number,
    stated_name,
)
from tfod.tfrecord.storage.urls import get_folder, get_name

_FORMAT = "tensorflow/core/lib/io/record_writer.h; tensorflow.org/tutorials/load_data/tfrecord"
_READER = "tensorflow/core/lib/io/record_reader.cc: 'corrupted record at'"
_BUILDER = (
    "tensorflow/models: builders/dataset_builder.py, TFRecordDataset without compression_type"
)
_NAMES = "tensorflow/models: dataset_tools/tf_record_creation_util.py"
_MAX_NAMED = 100
_OPTIONAL = ("image/object/", "image/class/")  # records without objects may lack these features


def _damage_rule(heading: str, kind: DamageKind, **options: str) -> None:
    """Declare a rule for a kind of damage; the damage itself has the message and the fix."""

    @rule(heading, **options)
    def check_kind(batch: Batch) -> Iterator[Finding]:
        for damage in batch.damages:
            if damage.kind is kind:
                message, fix = damage.cause, f"{damage.fix[:1].upper()}{damage.fix[1:]}."
                if kind is DamageKind.FOREIGN:
                    content, advice = describe_file(damage.shard)
                    message = f"is not a TFRecord file but {content}" if content else message
                    fix = advice or fix
                yield Finding(
                    message=message,
                    fix=fix,
                    shard=damage.shard,
                    record=damage.record,
                    offset=damage.offset,
                    value=damage.skipped or None,
                )


_damage_rule(
    "TFR001 error: not a TFRecord file",
    DamageKind.FOREIGN,
    why="TensorFlow stops at its first bytes ('Is this even a TFRecord file?').",
    fix="Check that this is the right file. If it is, download the shard again.",
    source=_READER,
    on_page="Choose the shard itself, or a zip of the dataset, which this page can convert.",
)
_damage_rule(
    "TFR002 error: empty file",
    DamageKind.EMPTY,
    why="TensorFlow silently reads a file of 0 bytes as a dataset without records.",
    fix="Export or download it again, or delete it if it is empty on purpose.",
    source="cvat-ai/cvat#821",
)
_damage_rule(
    "TFR003 error: checksum of a length is wrong",
    DamageKind.LENGTH_CRC,
    why="The start of the next record is unknown, so TensorFlow cannot read the rest of the shard.",
    fix="Download or export the shard again.",
    source=_FORMAT,
    repair="Reading resumes at the next plausible record; the bytes before it are removed.",
)
_damage_rule(
    "TFR004 error: checksum of the data is wrong",
    DamageKind.DATA_CRC,
    why="The record was changed after it was written; TensorFlow stops here with DataLossError.",
    fix="Download or export the shard again.",
    source=_FORMAT,
    repair="The record is removed.",
)
_damage_rule(
    "TFR005 error: file ends inside a record",
    DamageKind.TRUNCATED_RECORD,
    why="A download or copy was interrupted. The last record and everything after it are lost.",
    fix="Download or copy the shard again, or export it again.",
    source="tensorflow/tensorflow#13463; AdaCompNUS/pfnet#1",
    repair="The incomplete last record is removed.",
)
_damage_rule(
    "TFR006 error: file ends inside a record's header",
    DamageKind.TRUNCATED_HEADER,
    why="TensorFlow silently reads this as a valid, shorter dataset.",
    fix="Download or copy the shard again, or export it again.",
    source="tested with TensorFlow 2.21: 1 to 11 stray bytes at the end cause no error",
    repair="The stray bytes are removed.",
)
_damage_rule(
    "TFR007 error: forged length",
    DamageKind.FORGED_LENGTH,
    why="A reader that trusts the length runs out of memory, or skips valid records.",
    fix="Export the shard again; if you did not create it, do not trust it.",
    source="CWE-789; vahidk/tfrecord: MemoryError",
    repair="Reading resumes at the next plausible record; the bytes before it are removed.",
)
_damage_rule(
    "TFR008 error: zero bytes at the end",
    DamageKind.TRAILING_ZEROS,
    why="A disk was full, or a download did not finish; TensorFlow reports a corrupted record.",
    fix="Copy or export the shard again; the records before the zeros are valid.",
    source=_READER,
    repair="The zeros are removed.",
)
_damage_rule(
    "TFR011 error: damaged compression",
    DamageKind.COMPRESSION,
    why="Nothing after the damage can be decompressed.",
    fix="Download or export the shard again.",
    source="RFC 1950, RFC 1952",
    repair="The records before the damage are kept, and compressed again.",
)
_damage_rule(
    "TFR012 warning: record too large to check",
    DamageKind.OVERSIZE,
    why="Reading it would take more memory than the limit allows, so its data was not checked.",
    fix="Raise TFOD_MAX_RECORD_BYTES if you expect records this large.",
    on_page="If you expect records this large, check them with tfod on your own computer.",
    source="protobuf: a message has at most 2 GiB",
)


@rule(
    "TFR009 error: empty record",
    why="It is parsed as an Example without features, and training fails at its missing image.",
    fix="In {script}, omit the record.",
    source=_FORMAT,
    repair="The record is removed.",
)
def _check_record_length(batch: Batch) -> Iterator[Finding]:
    rows = np.flatnonzero(batch.records.lengths == 0).tolist()
    message = "the record has a length of 0"
    return batch.findings(rows, lambda row: batch.finding(row, message, value=0))


@dataset_rule(
    "TFR010 warning: compressed, but without a matching file extension",
    why="TensorFlow does not detect compression and reports a corrupted record; the OD API's "
    "trainer cannot read such shards at all.",
    fix="Add the extension .gz and pass compression_type to tf.data.TFRecordDataset, or write it "
    "without compression: tfod reshard SOURCE uncompressed --compression none",
    source=f"{_BUILDER}; tensorflow/tensorflow#13463",
)
def _check_compressed_name(result: DatasetResult) -> Iterator[Finding]:
    for shard, compression in _find_compressed(result, has_extension=False):
        fix = f"Add the extension {'.gz' if compression == 'GZIP' else '.zz'} and pass "
        fix += f"compression_type='{compression}' to tf.data.TFRecordDataset, or write it without "
        fix += "compression: tfod reshard SOURCE uncompressed --compression none"
        message = f"the shard is compressed with {compression}, but its extension is not .gz or .zz"
        yield Finding(message=message, shard=shard, value=compression, fix=fix)


def _find_compressed(result: DatasetResult, *, has_extension: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the compression of each shard with or without such an extension."""
    for shard in result.shards:
        is_named = shard.name.lower().endswith(COMPRESSED_EXTENSIONS)
        if shard.compression and is_named is has_extension:
            yield shard.name, shard.compression


@dataset_rule(
    "TFR013 error: cannot be read",
    why="Everything after this point was not checked.",
    fix="Check the file's permissions, the disk and the network, then try again.",
    source="errno(3)",
)
def _check_readable(result: DatasetResult) -> Iterator[Finding]:
    """Report zips and shards that the operating system or the object store failed to read."""
    files = [(archive.name, archive.unreadable) for archive in result.dataset.zips]
    files += [(shard.name, shard.unreadable) for shard in result.shards]
    for name, reason in files:
        if reason:
            yield Finding(message=f"cannot be read: {reason}", shard=name)


@dataset_rule(
    "TFR014 info: compressed",
    why="The OD API's trainer cannot read it, whatever its name is: it passes no compression to "
    "TensorFlow, which reports a corrupted record. Datumaro and CVAT read it with tfod.",
    fix="Decompress the file for the OD API, or write it without compression: tfod reshard SOURCE "
    "uncompressed --compression none",
    source=_BUILDER,
)
def _check_compression(result: DatasetResult) -> Iterator[Finding]:
    for shard, compression in _find_compressed(result, has_extension=True):
        yield Finding(f"the shard is compressed with {compression}", shard=shard, value=compression)


@dataclass
class _NumberedSet:
    """The shards of one stem: ``train-00003-of-00010`` has the stem ``train`` and the total 10."""

    name: str  # for reports: the stem with its folder, or the zip that contains the shards
    folder: str
    is_single: bool  # whether the first shard was passed as a file
    totals: dict[int, str] = field(default_factory=dict)  # one file name per total
    numbers: set[int] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)


def _group_numbered_sets(result: DatasetResult) -> Iterable[_NumberedSet]:
    sets: dict[tuple[str, str], _NumberedSet] = {}
    for shard in result.dataset.shards:
        parts = shard.numbered_name
        if parts is None:
            continue
        file, folder = get_name(shard.path if shard.entry else shard.name), get_folder(shard.path)
        shown_folder = folder if shard.is_remote else os.path.dirname(shard.name)
        name = os.path.join(shown_folder, parts.stem)
        if shard.entry:
            name = shard.name.removesuffix(f":{shard.entry.shown}")
        new = _NumberedSet(name, folder, shard.is_single)
        numbered = sets.setdefault((folder, parts.stem), new)
        numbered.totals.setdefault(parts.total or 0, file)
        numbered.numbers.add(parts.number or 0)
        numbered.paths.append(os.path.join(folder, file))
    return sets.values()


@dataset_rule(
    "SET001 error: shard missing from a set",
    why="A part of the dataset is silently missing from training.",
    fix="Copy or download the missing shards.",
    source=_NAMES,
)
def _check_missing_shards(result: DatasetResult) -> Iterator[Finding]:
    """Report sets with fewer shards than their names claim, naming the first missing ones."""
    limit = MAX_MISSING
    for numbered in _group_numbered_sets(result):
        if len(numbered.totals) > 1 or (numbered.is_single and len(numbered.paths) == 1):
            continue
        names = find_missing(numbered.paths, limit)
        # A shard that exists, but is not to be checked, is not missing.
        folder = numbered.folder
        missing = [name for name in names if not os.path.exists(os.path.join(folder, name))]
        if not missing:
            continue
        # If there are more missing names than the limit, compute their number.
        (total,) = numbered.totals
        count = len(missing) if len(names) < limit else total - len(numbered.numbers)
        limit = max(1, limit - len(names))
        subject = "shard is" if count == 1 else "shards are"
        message = f"{count:,} {subject} missing: {join_names(missing, 3, count)}"
        message += "; the set counts from 1" if first_number(numbered.numbers, total) == 1 else ""
        value = list[JsonValue](missing[:_MAX_NAMED])
        yield Finding(message=message, shard=numbered.name, value=value)


@dataset_rule(
    "SET002 error: shards of sets with different totals are mixed",
    why="A wildcard matches the shards of both sets, so images are used twice.",
    fix="Delete the shards of the older export.",
    source=_NAMES,
)
def _check_totals(result: DatasetResult) -> Iterator[Finding]:
    for numbered in _group_numbered_sets(result):
        if len(numbered.totals) > 1:
            examples = ", ".join(f"{name} (of {total})" for total, name in numbered.totals.items())
            message = f"the folder contains shards of several sets: {examples}"
            yield Finding(message=message, shard=numbered.name, value=[*numbered.totals])


@dataset_rule(
    "SET003 warning: shards with different features",
    why="They were probably written by different scripts, so training reads two kinds of records.",
    fix="Write {file} with the script that wrote the other shards.",
    source="tensorflow/data-validation: SCHEMA_MISSING_COLUMN",
)
def _check_same_keys(result: DatasetResult) -> Iterator[Finding]:
    """Report shards that lack a feature of most shards of the subset, or have additional ones."""
    for shards in result.by_subset.values():
        keys_by_shard = {
            shard.name: {key for key in shard.keys if not key.startswith(_OPTIONAL)}
            for shard in shards
            if shard.keys
        }
        if len(keys_by_shard) < 2:
            continue
        counts = Counter(key for keys in keys_by_shard.values() for key in keys)
        usual = {key for key, count in counts.items() if 2 * count > len(keys_by_shard)}
        rare = counts.keys() - usual
        for name, keys in keys_by_shard.items():
            absent, extra = sorted(usual - keys), sorted(rare & keys)
            parts = [f"it lacks {', '.join(absent)}"] if absent else []
            parts += [f"only it has {', '.join(extra)}"] if extra else []
            if parts:
                message = f"the shard differs from the others: {' and '.join(parts)}"
                yield Finding(message=message, shard=name, feature=(absent or extra)[0])


@dataset_rule(
    "SET004 error: label maps differ",
    why="The same id means two classes, so an evaluation may compare cats with dogs.",
    fix="Use one label map for all splits, and write the shards with it.",
    source="Roboflow renumbers the classes in each export",
)
def _check_same_label_map(result: DatasetResult) -> Iterator[Finding]:
    """Report label maps in which an id or a name differs from the first label map."""
    names = dict.fromkeys(shard.label_map for shard in result.shards if shard.label_map)
    maps = {name: loaded for name in names if (loaded := result.get_label_map(name)) is not None}
    (first_name, first), *further = maps.items() or [("", LabelMap())]
    for name, label_map in further:
        for item in label_map.items:
            same_id = first.find_id(item.id)
            same_text = first.find(item.class_name)
            if same_id and same_id.class_name != item.class_name:
                difference = f"id {item.id} is {excerpt(item.class_name)} here, but "
                difference += f"{excerpt(same_id.class_name)}"
            elif same_text and same_text.id != item.id and not same_id:
                difference = f"class {excerpt(item.class_name)} has id {item.id} here, but "
                difference += str(same_text.id)
            else:
                continue
            yield Finding(message=f"{difference} in {first_name}", shard=name)
            break


@dataset_rule(
    "SET005 warning: shard without records",
    why="This is allowed if there are more shards than images, but usually means that an export "
    "failed.",
    fix="Write fewer shards, or find out why {file} is empty.",
    source="tensorflow.org/tutorials/load_data/tfrecord: about 100 MB per shard",
)
def _check_empty_shard(result: DatasetResult) -> Iterator[Finding]:
    for shard in result.shards:
        if _is_only_empty(shard):
            yield Finding(message="the shard has no records", shard=shard.name)


@dataset_rule(
    "SET006 error: no shard of the set has a record",
    why="TensorFlow silently reads files of 0 bytes as a dataset without records.",
    fix="Export or download the shards again.",
    source="cvat-ai/cvat#821",
    cases={"part": Severity.WARNING},
)
def _check_empty_set(result: DatasetResult) -> Iterator[Finding]:
    """Report sets without records; a warning if another set has some and only a part was passed."""
    has_records = any(shard.records for shard in result.shards)
    for shards in result.by_subset.values():
        total = max(stated_name(shard.name).total or 0 for shard in shards)
        if all(shard.is_empty_file for shard in shards):
            message = f"all shards of the set are empty ({len(shards):,} of 0 bytes)"
            case = "part" if has_records and total > len(shards) else ""
            yield Finding(message=message, shard=shards[0].name, case=case)
        elif not has_records and all(map(_is_only_empty, shards)):
            yield Finding(message="no shard has a record", shard=shards[0].name)


def _is_only_empty(shard: ShardResult) -> bool:
    """Check whether a shard has no records, and no other defect."""
    is_read = not (shard.unreadable or shard.damage)
    return shard.is_empty_file or (is_read and not shard.records and not shard.has_defects)

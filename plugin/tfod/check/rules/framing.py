"""TFR: the file as a sequence of records, their lengths and checksums.

The walk itself (:mod:`tfod.tfrecord.reader`) says what is damaged and where; the rules name it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfod.check.findings.finding import Problem
from tfod.check.rules.registry import rule
from tfod.tfrecord.damage import Damage, DamageKind

_FORMAT = "tensorflow/core/lib/io/record_writer.h; tensorflow.org/tutorials/load_data/tfrecord"
_READER = "tensorflow/core/lib/io/record_reader.cc: 'corrupted record at'"
_BUILDER = (
    "tensorflow/models: builders/dataset_builder.py, TFRecordDataset without compression_type"
)


def _damage_rule(heading: str, kind: DamageKind, *, why: str, fix: str, source: str) -> None:
    """Declare the rule that reports a kind of damage: it says itself what is wrong."""

    @rule(heading, why=why, fix=fix, source=source)
    def of_kind(damage: Damage) -> Iterator[Problem]:
        if damage.kind is kind:
            said = f"{damage.fix[:1].upper()}{damage.fix[1:]}."
            yield Problem(damage.cause, fix=said, value=damage.skipped or None)


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
)
_damage_rule(
    "TFR004 error: checksum of the data is wrong",
    DamageKind.DATA_CRC,
    why="The record was changed after it was written; TensorFlow stops here with DataLossError.",
    fix="Download or export the shard again.",
    source=_FORMAT,
)
_damage_rule(
    "TFR005 error: file ends inside a record",
    DamageKind.TRUNCATED_RECORD,
    why="A download or a copy stopped early; the last record and all behind it are lost.",
    fix="Download or copy the shard again, or export it again.",
    source="tensorflow/tensorflow#13463; AdaCompNUS/pfnet#1",
)
_damage_rule(
    "TFR006 error: file ends inside a record's header",
    DamageKind.TRUNCATED_HEADER,
    why="TensorFlow takes this for a sound, shorter dataset and says nothing.",
    fix="Download or copy the shard again, or export it again.",
    source="tensorflow 2.21, run: 1 to 11 stray bytes at the end give no error",
)
_damage_rule(
    "TFR007 error: forged length",
    DamageKind.FORGED_LENGTH,
    why="A reader that believes it asks for memory it never gets, or skips sound records.",
    fix="Export the shard again; if it comes from somebody else, do not trust it.",
    source="CWE-789; vahidk/tfrecord: MemoryError",
)
_damage_rule(
    "TFR008 error: zero bytes at the end",
    DamageKind.TRAILING_ZEROS,
    why="A disk ran full or a download was preallocated; TensorFlow reports a corrupted record.",
    fix="Copy or export the shard again; the records before are sound.",
    source=_READER,
)
_damage_rule(
    "TFR011 error: damaged compression",
    DamageKind.COMPRESSION,
    why="Nothing behind the damage can be unpacked.",
    fix="Download or export the shard again.",
    source="RFC 1950, RFC 1952",
)
_damage_rule(
    "TFR012 warning: record too large to be checked",
    DamageKind.OVERSIZE,
    why="Reading it would take more memory than the limit allows; nothing else was checked in it.",
    fix="Raise --max-record-bytes if such records are meant.",
    source="protobuf: a message has at most 2 GiB",
)


@rule(
    "TFR009 error: record without a byte",
    why="It parses as an Example without features, and training fails at its missing image.",
    fix="Leave the record out when writing the shard.",
    source=_FORMAT,
)
def zero_length_record() -> Iterator[Problem]:
    """A record's length is 0."""
    yield Problem("the record has a length of 0", value=0)


@rule(
    "TFR010 warning: compressed without saying so",
    why="TensorFlow does not notice compression by itself and reports a corrupted record; the OD "
    "API's trainer never says it.",
    fix="Name it .gz, or pass its compression_type to tf.data.TFRecordDataset.",
    source=f"{_BUILDER}; tensorflow/tensorflow#13463",
)
def silent_compression(name: str) -> Iterator[Problem]:
    """The bytes are GZIP or ZLIB, the name does not tell."""
    fix = f"Give it the ending {'.gz' if name == 'GZIP' else '.zz'}, or pass "
    fix += f"compression_type='{name}' to tf.data.TFRecordDataset."
    message = f"the shard is compressed with {name}, its name does not say so"
    yield Problem(message, value=name, fix=fix)


@rule(
    "TFR013 error: cannot be read",
    why="What is behind this point was not checked.",
    fix="Look at the file's permissions, the disk and the network, then check again.",
    source="errno(3)",
)
def unreadable(reason: str) -> Iterator[Problem]:
    """The operating system, or the store, does not let us read on."""
    yield Problem(f"cannot be read: {reason}", once=True)  # not by each of its parts


@rule(
    "TFR014 info: compressed",
    why="The OD API's trainer does not read it, whatever its name: it names no compression to "
    "TensorFlow, which reports a corrupted record. Datumaro and CVAT read it with tfod.",
    fix="For the OD API write it without compression: tfod reshard --compression none.",
    source=_BUILDER,
)
def compression_that_says_so(name: str) -> Iterator[Problem]:
    """The bytes are GZIP or ZLIB, as the name says."""
    yield Problem(f"the shard is compressed with {name}", value=name)

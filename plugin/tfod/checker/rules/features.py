"""EXA: the record as a ``tf.train.Example``, against the profile's feature description."""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Severity, join_names
from tfod.checker.rules.registry import dataset_rule, detection_rule, rule
from tfod.detection import keys
from tfod.detection.problems import EMPTY_RECORD, READ
from tfod.example.encoding_issues import EncodingIssue
from tfod.example.example_batch import EncodingProblem, copy_byte_strings
from tfod.example.wire import Kind

_EXAMPLE = "tensorflow/core/example/example.proto and feature.proto"
_PARSER = "tensorflow/core/util/example_proto_fast_parsing.cc"
_SHOWN = 60
_KEYS_SHOWN = 24
_NEAR = 0.8  # of two names, as difflib has it


_OTHER_DATASET = "Export an object detection dataset, with image/filename and boxes,"


@rule(
    "EXA001 error: not a tf.train.Example",
    why="Every reader of the Object Detection API's shards expects this message in each record.",
    fix="Write each record as a serialized tf.train.Example; other messages, such as those of the "
    "Waymo Open Dataset, are read with the library of their dataset.",
    source=_EXAMPLE,
    repair="The record is left out.",
)
def not_an_example(batch: Batch) -> Iterator[Finding]:
    """The payload cannot be taken apart as an Example, or not by TensorFlow."""
    for one in _of_form(batch, EncodingIssue.NOT_AN_EXAMPLE):
        yield batch.finding(one.row, f"the record is not a tf.train.Example ({one.reason})")


@rule(
    "EXA002 error: SequenceExample in place of an Example",
    why="Parsed as an Example it loses its feature lists without a word.",
    fix="Write one tf.train.Example an image instead.",
    source=_EXAMPLE,
)
def sequence_example(batch: Batch) -> Iterator[Finding]:
    """The payload has feature lists."""
    for one in _of_form(batch, EncodingIssue.SEQUENCE_EXAMPLE):
        message = "the record is a tf.train.SequenceExample, expected a tf.train.Example"
        yield batch.finding(one.row, message)


@rule(
    "EXA003 error: required feature missing",
    why="tf.io.parse_example stops with 'Feature … is required but could not be found'.",
    fix="Write the feature into every record, or choose the profile that fits.",
    source=_PARSER,
    repair="Format, height and width are taken from the image, and the source id becomes a"
    " number. Nothing else can be made up.",
    cases={EMPTY_RECORD: Severity.ERROR},
)
def missing_feature(batch: Batch) -> Iterator[Finding]:
    """A feature without a default is not there, or has no list; or none of the layout is there."""
    yield from batch.problems("EXA003")
    looked_at = batch.live.copy()
    looked_at[[one.row for one in batch.detections.problems if one.code == "EXA003"]] = False
    for key, spec in batch.expected.items():
        if not spec.required:
            continue
        columns = [one for one in batch.examples.find_columns(key) if one.kind is not None]
        if any(len(one.rows) == one.length for one in columns) and not spec.is_mandatory:
            continue
        there = np.zeros(len(batch.live), bool)
        for column in columns:
            there |= column.present
        for row in np.flatnonzero(looked_at & ~there).tolist():
            message = f"required feature {key} is missing ({spec.kind.value})"
            yield batch.finding(row, message, key)
        for column in columns if spec.is_mandatory else ():
            for row in column.rows[column.lengths == 0].tolist():
                yield batch.finding(row, f"required feature {key} has no value", key)


detection_rule(
    "EXA004 error: feature of another kind",
    why="tf.io.parse_example stops with 'Data types don't match'.",
    fix="Write the feature with the kind of list that the profile names.",
    source=_PARSER,
    cases={READ: Severity.ERROR},
)
detection_rule(
    "EXA005 error: feature of another shape",
    why="tf.io.parse_example stops with 'Number of values != expected'.",
    fix="Write exactly as many values as the profile's shape has.",
    source=_PARSER,
    cases={READ: Severity.ERROR},
)


@rule(
    "EXA006 warning: feature without a list",
    why="TensorFlow takes it for missing and fills in the default, if there is one.",
    fix="Leave the key out, or give it a bytes_list, float_list or int64_list.",
    source=_PARSER,
)
def no_kind(batch: Batch) -> Iterator[Finding]:
    """A key is there, but no list."""
    for column in batch.examples.lists.values():
        if column.kind is None:
            for row in column.rows.tolist():
                message = f"{_shown(column.key)} holds no list at all"
                yield batch.finding(row, message, column.key)


@rule(
    "EXA007 warning: key comes twice",
    why="Only the last one counts; what the others say is lost.",
    fix="Write each key once.",
    source="protobuf.dev/programming-guides/encoding: maps",
)
def duplicate_key(batch: Batch) -> Iterator[Finding]:
    """The map of features has a key more than once."""
    repeated = ((one.row, one.key) for one in _of_form(batch, EncodingIssue.REPEATED_KEY))
    for row, key in dict.fromkeys(repeated):
        message = f"{_shown(key)} comes more than once, the last one counts"
        yield batch.finding(row, message, key)


@rule(
    "EXA008 info: unknown feature",
    why="Neither the profile nor the Object Detection API has this key; readers will ignore it.",
    fix="Look for a misspelt key; otherwise nothing needs to be done.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, core/standard_fields.py",
    once=True,
)
def unknown_feature(batch: Batch) -> Iterator[Finding]:
    """A key that means nothing here. Said once for each shard."""
    there = {column.key for column in batch.examples.lists.values()}
    for column in batch.examples.lists.values():
        key = column.key
        if key in batch.expected or key in keys.KNOWN_KEYS:
            continue
        if not key.startswith(keys.ATTRIBUTE_PREFIX):
            message, fix = f"{_shown(key)} is not a feature of this profile", ""
            if meant := _meant_by(key, batch.expected.keys() - there):
                message += f", and {meant} is missing: did you mean that?"
                fix = f"Write {meant} in place of {_shown(key)}."
            yield batch.finding(int(column.rows[0]), message, key, fix=fix)


@rule(
    "EXA009 warning: text is not UTF-8",
    why="Class names do not match the label map, and Datumaro and FiftyOne stop at it.",
    fix="Write texts as UTF-8.",
    source="protobuf: bytes_list holds bytes; every known reader decodes them as UTF-8",
)
def not_utf8(batch: Batch) -> Iterator[Finding]:
    """A name or a class cannot be decoded; of each feature of a record the first."""
    found = batch.detections
    for key, _ in (
        (keys.FILENAME, found.filenames),
        (keys.SOURCE_ID, found.source_ids),
        (keys.SHA256, found.sha256s),
        (keys.FORMAT, found.formats),
        (keys.CLASS_TEXT, found.class_texts),
    ):
        column = found.column(key, Kind.BYTES)
        if column.key not in found.latin1_keys:
            continue
        for row in column.rows.tolist():
            values = copy_byte_strings(column.buffer, column[row])
            if key != keys.CLASS_TEXT and len(values) != 1:
                continue
            odd = next((one for one in values if not _is_utf8(one)), None)
            if odd is not None:
                text = odd[:_SHOWN].decode("latin-1")
                message = f"{column.key} is not UTF-8; as Latin-1 it reads {text!r:.81}"
                yield batch.finding(row, message, column.key, text)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataset_rule(
    "EXA010 error: no profile fits",
    why="These records are of some other kind; nothing is known about what they should hold.",
    fix="Pass --profile with a profile of your own; tfod describe --as-profile writes one.",
    source="docs/checker.md: profiles",
    cases={"known-keys": Severity.ERROR},
)
def no_profile(result: DatasetResult) -> Iterator[Finding]:
    """The keys resemble no ready profile, or none that the receiver reads."""
    if result.unmatched is None:
        return
    receiver, layout = result.unmatched.receiver, result.unmatched.layout
    names = [_shown(key) for key in result.unmatched.keys]
    some = join_names(names, _KEYS_SHOWN) or "none"
    fix = f"{_OTHER_DATASET} for {receiver}." if receiver else ""
    message = f"these records fit no profile; their features are {some}"
    if layout:
        message = f"these records have the layout {layout}, which {receiver} does not read; "
        message += f"their features are {some}"
        fix = "Convert them: tfod convert SOURCE OUTPUT --to shards."
    value = list[JsonValue](names[:_KEYS_SHOWN])
    case = "" if keys.KNOWN_KEYS.isdisjoint(result.unmatched.keys) else "known-keys"
    yield Finding(message=message, shard=result.unmatched.shard, value=value, fix=fix, case=case)


@rule(
    "EXA012 error: TensorFlow reads the record otherwise than protobuf",
    why="TensorFlow's own parser stops at such a record, or takes other values from it than every "
    "reader that uses protobuf, Datumaro and CVAT among them.",
    fix="Write the record with protobuf's own serializer, one list in each feature.",
    source=_PARSER,
)
def read_otherwise(batch: Batch) -> Iterator[Finding]:
    """Protobuf reads what TensorFlow's parser does not expect: two lists in a feature, a group."""
    for one in _of_form(batch, EncodingIssue.READ_DIFFERENTLY):
        message = f"TensorFlow does not read what protobuf reads: {one.reason}"
        yield batch.finding(one.row, message)


detection_rule(
    "EXA013 error: tfod/attributes cannot be understood",
    why="The attributes that the other keys cannot say are in it: an import stops at the record, "
    "other readers pass over it.",
    fix="Export the shard again.",
    source="tfod.detection.keys: EXTRA_ATTRIBUTES",
)


def _meant_by(key: str, absent: Set[str]) -> str | None:
    """The absent feature in whose place a key stands: the only one beside it, or one like it."""
    import difflib  # few shards have such keys

    group = key.rpartition("/")[0]
    beside = [one for one in absent if group and one.rpartition("/")[0] == group]
    if len(beside) == 1:
        return beside[0]
    names = {one.rpartition("/")[2]: one for one in sorted(beside or absent)}
    near = difflib.get_close_matches(key.rpartition("/")[2], names, n=1, cutoff=_NEAR)
    return names[near[0]] if near else None


def _of_form(batch: Batch, form: EncodingIssue) -> Iterator[EncodingProblem]:
    refused = batch.examples.unreadable
    for one in (*(refused[row] for row in sorted(refused)), *batch.examples.encoding_problems):
        if one.issue is form:
            yield one


def _shown(key: str) -> str:
    return key if len(key) <= _SHOWN else f"{key[:_SHOWN]}… ({len(key):,} characters)"

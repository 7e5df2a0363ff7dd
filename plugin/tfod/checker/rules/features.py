"""EXA rules: the record as a ``tf.train.Example``, compared with the features of its profile."""

from __future__ import annotations

from collections.abc import Iterator, Set

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Severity, join_names
from tfod.checker.rules.registry import dataset_rule, detection_rule, rule
from tfod.detection import keys
from tfod.detection.problems import EMPTY_RECORD, READ
from tfod.errors import excerpt, truncate
from tfod.example.encoding_issues import EncodingIssue
from tfod.example.example_batch import EncodingProblem, copy_bytes
from tfod.example.wire import Kind

_EXAMPLE = "tensorflow/core/example/example.proto and feature.proto"
_PARSER = "tensorflow/core/util/example_proto_fast_parsing.cc"
_MAX_TEXT_SHOWN, _MAX_KEYS_SHOWN = 60, 24
_MIN_SIMILARITY = 0.8  # ratio of difflib
_OTHER_DATASET = "Export an object detection dataset, with image/filename and boxes,"


@rule(
    "EXA001 error: not a tf.train.Example",
    why="Every reader of TF Object Detection API shards expects this message in each record.",
    fix="In {script}, write each record as a serialized tf.train.Example. Other messages, such as "
    "those in the Waymo Open Dataset, can only be read with the library of that dataset.",
    source=_EXAMPLE,
    repair="The record is removed.",
)
def _check_message(batch: Batch) -> Iterator[Finding]:
    for problem in _find_issues(batch, EncodingIssue.NOT_AN_EXAMPLE):
        yield batch.finding(problem.row, f"the record is not a tf.train.Example ({problem.reason})")


@rule(
    "EXA002 error: SequenceExample instead of an Example",
    why="Readers that parse it as an Example silently lose its feature lists.",
    fix="In {script}, write one tf.train.Example per image.",
    source=_EXAMPLE,
)
def _check_feature_lists(batch: Batch) -> Iterator[Finding]:
    for problem in _find_issues(batch, EncodingIssue.SEQUENCE_EXAMPLE):
        message = "the record is a tf.train.SequenceExample, expected a tf.train.Example"
        yield batch.finding(problem.row, message)


@rule(
    "EXA003 error: required feature missing",
    why="tf.io.parse_example stops with 'Feature … is required but could not be found'.",
    fix="In {script}, write the feature into every record, or choose the profile that fits.",
    source=_PARSER,
    repair="Format, height and width are read from the image, and the source id is set to a"
    " unique number. Other features cannot be reconstructed.",
    cases={EMPTY_RECORD: Severity.ERROR},
)
def _check_required(batch: Batch) -> Iterator[Finding]:
    """Report features without a default that are missing or empty, and records without any key."""
    for finding in batch.problems("EXA003"):
        yield finding._replace(is_repairable=False)
    mapping, headers = batch.mapping, batch.detections.headers
    from_header = (mapping.format, mapping.height, mapping.width)
    checked = batch.live.copy()
    checked[[item.row for item in batch.detections.problems if item.code == "EXA003"]] = False
    for key, spec in batch.expected.items():
        if not spec.required:
            continue
        columns = [column for column in batch.examples.find_columns(key) if column.kind is not None]
        if any(len(column.rows) == column.length for column in columns) and not spec.is_mandatory:
            continue
        is_present = np.zeros(len(batch.live), bool)
        for column in columns:
            is_present |= column.present
        for row in np.flatnonzero(checked & ~is_present).tolist():
            message = f"required feature {key} is missing ({spec.kind.value})"
            is_repairable = key == mapping.source_id or (
                key in from_header and headers[row] is not None
            )
            yield batch.finding(row, message, key)._replace(is_repairable=is_repairable)
        for column in columns if spec.is_mandatory else ():
            for row in column.rows[column.lengths == 0].tolist():
                finding = batch.finding(row, f"required feature {key} has no value", key)
                yield finding._replace(is_repairable=False)


detection_rule(
    "EXA004 error: feature has the wrong type",
    why="tf.io.parse_example stops with 'Data types don't match'.",
    fix="In {script}, write the feature with the type of list that the profile requires.",
    source=_PARSER,
    cases={READ: Severity.ERROR},
)
detection_rule(
    "EXA005 error: feature has the wrong number of values",
    why="tf.io.parse_example stops with 'Number of values != expected'.",
    fix="In {script}, write exactly the number of values that the profile requires.",
    source=_PARSER,
    cases={READ: Severity.ERROR},
)


@rule(
    "EXA006 warning: feature without a list",
    why="TensorFlow treats it as missing and uses its default value, if any.",
    fix="In {script}, give the key a bytes_list, float_list or int64_list, or remove it: tfod "
    "convert SOURCE converted --to shards",
    source=_PARSER,
)
def _check_lists(batch: Batch) -> Iterator[Finding]:
    for column in batch.examples.lists.values():
        if column.kind is None:
            for row in column.rows.tolist():
                yield batch.finding(row, f"{truncate(column.key)} has no list", column.key)


@rule(
    "EXA007 warning: duplicate key",
    why="Readers use only the last entry; the values of the others are lost.",
    fix="In {script}, write each key once, or keep the last entry: tfod convert SOURCE converted "
    "--to shards",
    source="protobuf.dev/programming-guides/encoding: maps",
)
def _check_repeated_keys(batch: Batch) -> Iterator[Finding]:
    problems = _find_issues(batch, EncodingIssue.REPEATED_KEY)
    for row, key in dict.fromkeys((problem.row, problem.key) for problem in problems):
        message = f"{truncate(key)} appears more than once; only the last entry is used"
        yield batch.finding(row, message, key)


@rule(
    "EXA008 info: unknown feature",
    why="Neither the profile nor the Object Detection API has this key, so readers ignore it.",
    fix="In {script}, check the key for a typo. If it is correct, you can ignore this.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, core/standard_fields.py",
    once=True,
)
def _check_unknown_keys(batch: Batch) -> Iterator[Finding]:
    columns = batch.examples.lists.values()
    absent = batch.expected.keys() - {column.key for column in columns}
    for column in columns:
        key = column.key
        if key in batch.expected or key in keys.KNOWN_KEYS:
            continue
        if not key.startswith(keys.ATTRIBUTE_PREFIX):
            message, fix = f"{truncate(key)} is not a feature of this profile", ""
            if suggestion := _suggest_key(key, absent):
                message += f"; did you mean {suggestion}, which is missing?"
                fix = f"In {{script}}, write {suggestion} instead of {truncate(key)}."
            yield batch.finding(int(column.rows[0]), message, key, fix=fix)


@rule(
    "EXA009 warning: text is not UTF-8",
    why="Class names do not match the label map, and Datumaro and FiftyOne stop at the record.",
    fix="In {script}, write texts as UTF-8.",
    source="protobuf: bytes_list holds bytes; every known reader decodes them as UTF-8",
)
def _check_utf8(batch: Batch) -> Iterator[Finding]:
    """Report the first name or class of each feature of a record that cannot be decoded."""
    detections = batch.detections
    for key, _ in (
        (keys.FILENAME, detections.filenames),
        (keys.SOURCE_ID, detections.source_ids),
        (keys.SHA256, detections.sha256s),
        (keys.FORMAT, detections.formats),
        (keys.CLASS_TEXT, detections.class_texts),
    ):
        column = detections.column(key, Kind.BYTES)
        if column.key not in detections.latin1_keys:
            continue
        for row in column.rows.tolist():
            values = copy_bytes(column.buffer, column[row])
            if key != keys.CLASS_TEXT and len(values) != 1:
                continue
            invalid = next((value for value in values if not _is_utf8(value)), None)
            if invalid is not None:
                text = invalid[:_MAX_TEXT_SHOWN].decode("latin-1")
                message = f"{column.key} is not UTF-8; as Latin-1 it reads {excerpt(text)}"
                yield batch.finding(row, message, column.key, text)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataset_rule(
    "EXA010 error: no profile fits",
    why="The features match no known layout, so tfod cannot tell what records should contain.",
    fix="Pass --profile with your own profile, which begins as this output: tfod describe SOURCE "
    "--as-profile",
    source="docs/checker.md: profiles",
    cases={"known-keys": Severity.ERROR},
    on_page="If this is intended, choose the layout of the records under Options.",
    explains="EXA003 EXA008 IMG001 IMG015 NAM001 NAM009",
)
def _check_profile(result: DatasetResult) -> Iterator[Finding]:
    if result.unmatched is None:
        return
    receiver, layout = result.unmatched.receiver, result.unmatched.layout
    names = [truncate(key) for key in result.unmatched.keys]
    listed = join_names(names, _MAX_KEYS_SHOWN) or "none"
    fix = f"{_OTHER_DATASET} for {receiver}." if receiver else ""
    message = f"the records match no profile; their features are {listed}"
    if layout:
        message = f"the records have the layout {layout}, which {receiver} does not read; "
        message += f"their features are {listed}"
        fix = "Convert them: tfod convert SOURCE converted --to shards"
    value = list[JsonValue](names[:_MAX_KEYS_SHOWN])
    case = "" if keys.KNOWN_KEYS.isdisjoint(result.unmatched.keys) else "known-keys"
    yield Finding(message=message, shard=result.unmatched.shard, value=value, fix=fix, case=case)


@rule(
    "EXA012 error: TensorFlow and protobuf read the record differently",
    why="TensorFlow's parser stops at the record, or reads other values than protobuf, which "
    "Datumaro and CVAT use.",
    fix="In {script}, write the record with protobuf's serializer, with one list per feature, or "
    "rewrite it: tfod convert SOURCE converted --to shards",
    source=_PARSER,
)
def _check_parsers_agree(batch: Batch) -> Iterator[Finding]:
    """Report encodings that TensorFlow does not expect: two lists in a feature, or a group."""
    for problem in _find_issues(batch, EncodingIssue.READ_DIFFERENTLY):
        message = f"TensorFlow reads the record differently from protobuf: {problem.reason}"
        yield batch.finding(problem.row, message)


detection_rule(
    "EXA013 error: tfod/attributes is not valid",
    why="It stores additional attributes. An import stops at the record; other readers ignore it.",
    fix="Export {file} again.",
    source="tfod.detection.keys: EXTRA_ATTRIBUTES",
)


def _suggest_key(key: str, absent: Set[str]) -> str | None:
    """Return the only absent feature in the group of a key, or else one with a similar name."""
    import difflib  # few shards have unknown keys

    group = key.rpartition("/")[0]
    siblings = [name for name in absent if group and name.rpartition("/")[0] == group]
    if len(siblings) == 1:
        return siblings[0]
    by_last_part = {name.rpartition("/")[2]: name for name in sorted(siblings or absent)}
    last_part = key.rpartition("/")[2]
    similar = difflib.get_close_matches(last_part, by_last_part, n=1, cutoff=_MIN_SIMILARITY)
    return by_last_part[similar[0]] if similar else None


def _find_issues(batch: Batch, issue: EncodingIssue) -> Iterator[EncodingProblem]:
    unreadable = batch.examples.unreadable
    problems = [unreadable[row] for row in sorted(unreadable)]
    for problem in problems + list(batch.examples.encoding_problems):
        if problem.issue is issue:
            yield problem

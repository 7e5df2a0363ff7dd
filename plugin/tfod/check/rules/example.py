"""EXA: the record as a ``tf.train.Example``, against the profile's feature description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from tfod.check.findings.finding import Problem, first_of
from tfod.check.rules.registry import detection_rule, rule
from tfod.detection import keys
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.detection.problems import Wrong
from tfod.example.columns import Column, ExampleBatch, FormProblem
from tfod.example.spelling import Form

_EXAMPLE = "tensorflow/core/example/example.proto and feature.proto"
_PARSER = "tensorflow/core/util/example_proto_fast_parsing.cc"
_SHOWN = 60
_KEYS_SHOWN = 24
_NEAR = 0.8  # of two names, as difflib has it


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a batch of records, and what they are expected to be.

    Attributes:
        examples: the records.
        expected: the profile's feature description, and what readers take of other keys.
        live: which records are checked: they have bytes and can be read; bool.
    """

    examples: ExampleBatch
    expected: FeatureDescription
    live: np.ndarray

    def described(self) -> Iterator[tuple[Column, FeatureSpec]]:
        """The columns of which something is expected, and what."""
        for key, spec in self.expected.items():
            for column in self.examples.columns_of(key):
                yield column, spec


_OTHER_DATASET = "Export an object detection dataset, with image/filename and boxes,"


@rule(
    "EXA001 error: not a tf.train.Example",
    why="Every reader of the Object Detection API's shards expects this message in each record.",
    fix="Write each record as a serialized tf.train.Example; other messages, such as those of the "
    "Waymo Open Dataset, are read with the library of their dataset.",
    source=_EXAMPLE,
)
def not_an_example(features: Features) -> Iterator[Problem]:
    """The payload cannot be taken apart as an Example, or not by TensorFlow."""
    for one in _of_form(features, Form.NOT_AN_EXAMPLE):
        yield Problem(f"the record is not a tf.train.Example ({one.reason})", row=one.row)


@rule(
    "EXA002 error: SequenceExample in place of an Example",
    why="Parsed as an Example it loses its feature lists without a word.",
    fix="Write one tf.train.Example an image instead.",
    source=_EXAMPLE,
)
def sequence_example(features: Features) -> Iterator[Problem]:
    """The payload has feature lists."""
    for one in _of_form(features, Form.SEQUENCE_EXAMPLE):
        message = "the record is a tf.train.SequenceExample, expected a tf.train.Example"
        yield Problem(message, row=one.row)


@rule(
    "EXA003 error: required feature missing",
    why="tf.io.parse_example stops with 'Feature … is required but could not be found'.",
    fix="Write the feature into every record, or choose the profile that fits.",
    source=_PARSER,
)
def missing_feature(features: Features) -> Iterator[Problem]:
    """A feature without a default is not there, or has no list."""
    for key, spec in features.expected.items():
        if not spec.required:
            continue
        columns = [one for one in features.examples.columns_of(key) if one.kind is not None]
        if any(len(one.rows) == one.length for one in columns) and not spec.demanded:
            continue
        there = np.zeros(len(features.live), bool)
        for column in columns:
            there |= column.present
        for row in np.flatnonzero(features.live & ~there).tolist():
            message = f"required feature {key} is missing ({spec.kind.value})"
            yield Problem(message, feature=key, row=row)
        for column in columns if spec.demanded else ():
            for row in column.rows[np.diff(column.splits) == 0].tolist():
                yield Problem(f"required feature {key} has no value", feature=key, row=row)


@rule(
    "EXA004 error: feature of another kind",
    why="tf.io.parse_example stops with 'Data types don't match'.",
    fix="Write the feature with the kind of list that the profile names.",
    source=_PARSER,
)
def wrong_kind(features: Features) -> Iterator[Problem]:
    """A feature holds another kind of list than the description says."""
    for column, spec in features.described():
        if column.kind is None or spec.takes(column.kind):
            continue
        for row in column.rows.tolist():
            message = f"{column.key} is {column.kind.value}, expected {spec.kind.value}"
            yield Problem(message, column.key, column.kind.value, row=row)


@rule(
    "EXA005 error: feature of another shape",
    why="tf.io.parse_example stops with 'Number of values != expected'.",
    fix="Write exactly as many values as the profile's shape has.",
    source=_PARSER,
)
def wrong_shape(features: Features) -> Iterator[Problem]:
    """A fixed-length feature has fewer or more values than its shape."""
    for column, spec in features.described():
        if spec.length is None or column.kind is None or not spec.takes(column.kind):
            continue
        counts = np.diff(column.splits)
        wrong = counts != spec.length
        shape = "exactly one" if spec.shape == () else f"{spec.length}, of shape {spec.shape}"
        for row, count in zip(column.rows[wrong].tolist(), counts[wrong].tolist(), strict=True):
            message = f"{column.key} holds {count} values, expected {shape}"
            yield Problem(message, column.key, count, row=row)


@rule(
    "EXA006 warning: feature without a list",
    why="TensorFlow takes it for missing and fills in the default, if there is one.",
    fix="Leave the key out, or give it a bytes_list, float_list or int64_list.",
    source=_PARSER,
)
def no_kind(features: Features) -> Iterator[Problem]:
    """A key is there, but no list."""
    for column in features.examples.lists.values():
        if column.kind is None:
            for row in column.rows.tolist():
                message = f"{_shown(column.key)} holds no list at all"
                yield Problem(message, feature=column.key, row=row)


@rule(
    "EXA007 warning: key comes twice",
    why="Only the last one counts; what the others say is lost.",
    fix="Write each key once.",
    source="protobuf.dev/programming-guides/encoding: maps",
)
def duplicate_key(features: Features) -> Iterator[Problem]:
    """The map of features has a key more than once."""
    repeated = ((one.row, one.key) for one in _of_form(features, Form.REPEATED_KEY))
    for row, key in dict.fromkeys(repeated):
        message = f"{_shown(key)} comes more than once, the last one counts"
        yield Problem(message, key, row=row)


@rule(
    "EXA008 info: unknown feature",
    why="Neither the profile nor the Object Detection API has this key; readers will ignore it.",
    fix="Look for a misspelt key; otherwise nothing needs to be done.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, core/standard_fields.py",
)
def unknown_feature(features: Features) -> Iterator[Problem]:
    """A key that means nothing here. Said once for each shard."""
    there = {column.key for column in features.examples.lists.values()}
    for column in features.examples.lists.values():
        key = column.key
        if key in features.expected or key in keys.KNOWN_KEYS:
            continue
        if not key.startswith(keys.ATTRIBUTE_PREFIX):
            message, fix = f"{_shown(key)} is not a feature of this profile", None
            if meant := _meant_by(key, features.expected.keys() - there):
                message += f", and {meant} is missing: did you mean that?"
                fix = f"Write {meant} in place of {_shown(key)}."
            yield Problem(message, feature=key, row=int(column.rows[0]), once=True, fix=fix)


@rule(
    "EXA009 warning: text is not UTF-8",
    why="Class names do not match the label map, and Datumaro and FiftyOne stop at it.",
    fix="Write texts as UTF-8.",
    source="protobuf: bytes_list holds bytes; every known reader decodes them as UTF-8",
)
def not_utf8(feature: str, value: bytes) -> Iterator[Problem]:
    """A name or a class cannot be decoded."""
    as_latin_1 = value[:_SHOWN].decode("latin-1")
    message = f"{feature} is not UTF-8; as Latin-1 it reads {as_latin_1!r}"
    yield Problem(message, feature, as_latin_1)


@rule(
    "EXA010 error: no profile fits",
    why="These records are of some other kind; nothing is known about what they should hold.",
    fix="Pass --profile with a profile of your own; tfod describe --as-profile writes one.",
    source="docs/checker.md: profiles",
)
def no_profile(features: Sequence[str], receiver: str, layout: str) -> Iterator[Problem]:
    """The keys resemble no ready profile; or none that the receiver reads ("" for any).

    ``layout`` is the profile that fits, where it has boxes that the receiver does not read.
    """
    names = [_shown(key) for key in features]
    some = first_of(names, _KEYS_SHOWN) or "none"
    fix = f"{_OTHER_DATASET} for {receiver}." if receiver else None
    message = f"these records fit no profile; their features are {some}"
    if layout:
        message = f"these records have the layout {layout}, which {receiver} does not read; "
        message += f"their features are {some}"
        fix = "Convert them: tfod convert SOURCE OUTPUT --to shards."
    yield Problem(message, value=list(names[:_KEYS_SHOWN]), fix=fix)


@rule(
    "EXA012 error: TensorFlow reads the record otherwise than protobuf",
    why="TensorFlow's own parser stops at such a record, or takes other values from it than every "
    "reader that uses protobuf, Datumaro and CVAT among them.",
    fix="Write the record with protobuf's own serializer, one list in each feature.",
    source=_PARSER,
)
def read_otherwise(features: Features) -> Iterator[Problem]:
    """Protobuf reads what TensorFlow's parser does not expect: two lists in a feature, a group."""
    for one in _of_form(features, Form.READ_OTHERWISE):
        yield Problem(f"TensorFlow does not read what protobuf reads: {one.reason}", row=one.row)


detection_rule(
    "EXA013 error: tfod/attributes cannot be understood",
    Wrong.EXTRA_ATTRIBUTES,
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


def _of_form(features: Features, form: Form) -> Iterator[FormProblem]:
    refused = features.examples.refused
    for one in (*(refused[row] for row in sorted(refused)), *features.examples.form):
        if one.form is form:
            yield one


def _shown(key: str) -> str:
    return key if len(key) <= _SHOWN else f"{key[:_SHOWN]}… ({len(key):,} characters)"

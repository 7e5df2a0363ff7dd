"""EXA: the record as a ``tf.train.Example``, against the profile's feature description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfod.check.finding import Problem, Severity
from tfod.check.rules.registry import rule
from tfod.detection import keys
from tfod.detection.schema import FeatureDescription, FeatureSpec
from tfod.example.wire import Kind

_EXAMPLE = "tensorflow/core/example/example.proto and feature.proto"
_PARSER = "tensorflow/core/util/example_proto_fast_parsing.cc"
_SHOWN = 60
_KEYS_SHOWN = 24


@dataclass(frozen=True)
class NotAnExample:
    """A payload that is not the wire form of a ``tf.train.Example``."""

    reason: str
    is_sequence: bool = False


@dataclass(frozen=True)
class Feature:
    """A feature of a record: its list, None for none, and how many values it has."""

    key: str
    kind: Kind | None
    count: int


@dataclass(frozen=True)
class Layout:
    """Which features a record has, and which it is expected to have."""

    features: Sequence[Feature]
    expected: FeatureDescription
    duplicates: Sequence[str] = ()


@dataclass(frozen=True)
class NotText:
    """A feature that should be text and is not UTF-8."""

    feature: str
    value: bytes


OTHER_DATASET = "Export an object detection dataset, with image/filename and boxes,"


@dataclass(frozen=True)
class NoProfile:
    """Shards that no profile fits; for a receiver that reads no other (empty: for any)."""

    features: Sequence[str]
    receiver: str = ""


@dataclass(frozen=True)
class Refused:
    """A record that TensorFlow itself does not parse (``--engine tensorflow``)."""

    reason: str


@rule(
    "EXA001",
    Severity.ERROR,
    "not a tf.train.Example",
    why="Every reader of the Object Detection API's shards expects this message in each record.",
    remedy="Write the record as a serialized tf.train.Example.",
    source=_EXAMPLE,
)
def not_an_example(payload: NotAnExample) -> Iterator[Problem]:
    """The payload cannot be taken apart as an Example."""
    if not payload.is_sequence:
        yield Problem(f"the record is no tf.train.Example ({payload.reason})")


@rule(
    "EXA002",
    Severity.ERROR,
    "SequenceExample in place of an Example",
    why="Parsed as an Example it loses its feature lists without a word.",
    remedy="Write one tf.train.Example a picture instead.",
    source=_EXAMPLE,
)
def sequence_example(payload: NotAnExample) -> Iterator[Problem]:
    """The payload has feature lists."""
    if payload.is_sequence:
        yield Problem("the record is a tf.train.SequenceExample, expected a tf.train.Example")


@rule(
    "EXA003",
    Severity.ERROR,
    "required feature missing",
    why="tf.io.parse_example stops with 'Feature … is required but could not be found'.",
    remedy="Write the feature into every record, or choose the profile that fits.",
    source=_PARSER,
)
def missing_feature(layout: Layout) -> Iterator[Problem]:
    """A feature without a default is not there, or has no list."""
    there = {feature.key: feature for feature in layout.features}
    for key, spec in layout.expected.items():
        feature = there.get(key)
        if spec.required and (feature is None or feature.kind is None):
            yield Problem(f"required feature {key} is missing ({spec.kind.value})", feature=key)
        elif spec.demanded and feature is not None and not feature.count:
            yield Problem(f"required feature {key} has no value", feature=key)


@rule(
    "EXA004",
    Severity.ERROR,
    "feature of another kind",
    why="tf.io.parse_example stops with 'Data types don't match'.",
    remedy="Write the feature with the kind of list that the profile names.",
    source=_PARSER,
)
def wrong_kind(layout: Layout) -> Iterator[Problem]:
    """A feature holds another kind of list than the description says."""
    for feature, spec in _described(layout):
        if feature.kind is not None and feature.kind is not spec.kind:
            yield Problem(
                f"{feature.key} is {feature.kind.value}, expected {spec.kind.value}",
                feature=feature.key,
                value=feature.kind.value,
            )


@rule(
    "EXA005",
    Severity.ERROR,
    "feature of another shape",
    why="tf.io.parse_example stops with 'Number of values != expected'.",
    remedy="Write exactly as many values as the profile's shape has.",
    source=_PARSER,
)
def wrong_shape(layout: Layout) -> Iterator[Problem]:
    """A fixed-length feature has fewer or more values than its shape."""
    for feature, spec in _described(layout):
        if feature.kind is spec.kind and spec.length not in (None, feature.count):
            shape = "exactly one" if spec.shape == () else f"{spec.length}, of shape {spec.shape}"
            yield Problem(
                f"{feature.key} holds {feature.count} values, expected {shape}",
                feature=feature.key,
                value=feature.count,
            )


@rule(
    "EXA006",
    Severity.WARNING,
    "feature without a list",
    why="TensorFlow takes it for missing and fills in the default, if there is one.",
    remedy="Leave the key out, or give it a bytes_list, float_list or int64_list.",
    source=_PARSER,
)
def no_kind(layout: Layout) -> Iterator[Problem]:
    """A key is there, but no list."""
    for feature in layout.features:
        if feature.kind is None:
            yield Problem(f"{_shown(feature.key)} holds no list at all", feature=feature.key)


@rule(
    "EXA007",
    Severity.WARNING,
    "key comes twice",
    why="Only the last one counts; what the others say is lost.",
    remedy="Write each key once.",
    source="protobuf.dev/programming-guides/encoding: maps",
)
def duplicate_key(layout: Layout) -> Iterator[Problem]:
    """The map of features has a key more than once."""
    for key in layout.duplicates:
        yield Problem(f"{_shown(key)} comes more than once, the last one counts", feature=key)


@rule(
    "EXA008",
    Severity.INFO,
    "unknown feature",
    why="Neither the profile nor the Object Detection API has this key; readers will ignore it.",
    remedy="Look for a misspelt key; otherwise nothing needs to be done.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, core/standard_fields.py",
)
def unknown_feature(layout: Layout) -> Iterator[Problem]:
    """A key that means nothing here. Said once for each shard."""
    for feature in layout.features:
        key = feature.key
        if key in layout.expected or key in keys.KNOWN_KEYS:
            continue
        if not key.startswith(keys.ATTRIBUTE_PREFIX):
            yield Problem(f"{_shown(key)} is no feature of this profile", feature=key, once=True)


@rule(
    "EXA009",
    Severity.WARNING,
    "text is not UTF-8",
    why="Class names do not match the label map, and Datumaro and FiftyOne stop at it.",
    remedy="Write texts as UTF-8.",
    source="protobuf: bytes_list holds bytes; every known reader decodes them as UTF-8",
)
def not_utf8(text: NotText) -> Iterator[Problem]:
    """A name or a class cannot be decoded."""
    as_latin_1 = text.value[:_SHOWN].decode("latin-1")
    yield Problem(
        f"{text.feature} is not UTF-8; as Latin-1 it reads {as_latin_1!r}",
        feature=text.feature,
        value=as_latin_1,
    )


@rule(
    "EXA010",
    Severity.ERROR,
    "no profile fits",
    why="These records are of some other kind; nothing is known about what they should hold.",
    remedy="Pass --profile with a profile of your own; tfod describe --as-profile writes one.",
    source="docs/checker.md: profiles",
)
def no_profile(shards: NoProfile) -> Iterator[Problem]:
    """The keys resemble no ready profile."""
    names = [_shown(key) for key in shards.features]
    more = len(names) - _KEYS_SHOWN
    some = ", ".join(names[:_KEYS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    yield Problem(
        f"these records fit no profile; their features are {some or 'none'}",
        value=list(names[:_KEYS_SHOWN]),
        remedy=f"{OTHER_DATASET} for {shards.receiver}." if shards.receiver else None,
    )


@rule(
    "EXA011",
    Severity.ERROR,
    "TensorFlow does not parse the record",
    why="This is what tf.io.parse_example itself says under the profile's description.",
    remedy="Write the record again as the profile describes it.",
    source="tf.io.parse_example of the installed TensorFlow",
)
def refused(record: Refused) -> Iterator[Problem]:
    """TensorFlow's own verdict, asked for with --engine tensorflow."""
    yield Problem(f"TensorFlow says: {record.reason}")


def _described(layout: Layout) -> Iterator[tuple[Feature, FeatureSpec]]:
    for feature in layout.features:
        spec = layout.expected.get(feature.key)
        if spec is not None:
            yield feature, spec


def _shown(key: str) -> str:
    return key if len(key) <= _SHOWN else f"{key[:_SHOWN]}… ({len(key):,} characters)"

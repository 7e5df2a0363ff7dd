"""Into TensorFlow: ``tf.io`` feature descriptions, and shards as a ``tf.data.Dataset``.

Needs the extra ``tensorflow``; nothing else in tfod imports TensorFlow. Names and meaning are those
of ``fields.InputDataFields``. Source: core/standard_fields.py and
data_decoders/tf_example_decoder.py of tensorflow/models (research/object_detection).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.box_geometry import LOOKS_LIKE_PIXELS, find_pixel_boxes
from tfod.detection.columns import OD_API, map_key
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import PROFILES, FeatureDescription
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError, how_to_install
from tfod.example.wire import Kind
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.shard_sets.search import Sources
from tfod.tfrecord.storage.open import zip_entry
from tfod.training.input_shards import (
    UNKNOWN,
    LabelMapLike,
    field_mapping_for,
    label_map_for,
    shards_to_read,
)

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise TfodError(f"tfod.tensorflow needs TensorFlow; {how_to_install('tensorflow')}") from None

_DTYPES = {Kind.BYTES: tf.string, Kind.INT64: tf.int64, Kind.FLOAT: tf.float32}
_COMPRESSION_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
_SHARDS_AT_ONCE = 16  # fixed, unlike tf.data's own choice, which is another order elsewhere
_WEIGHT = "image/object/weight"
_ONE_AN_OBJECT = {
    keys.AREA: ("groundtruth_area", tf.float32),
    "image/object/is_crowd": ("groundtruth_is_crowd", tf.bool),
    "image/object/difficult": ("groundtruth_difficult", tf.int64),
    "image/object/group_of": ("groundtruth_group_of", tf.bool),
}


def feature_description(profile: str | FeatureDescription = "tf_detection_api") -> dict[str, Any]:
    """The description as ``tf.io`` objects, for ``tf.io.parse_example``.

    Args:
        profile: the name of a profile, or a description.

    Raises:
        TfodError: there is no profile of that name.
    """
    if isinstance(profile, str):
        if profile not in PROFILES:
            raise TfodError(f"{profile}: no such profile; there are {', '.join(PROFILES)}")
        profile = PROFILES[profile]
    return {
        key: tf.io.VarLenFeature(_DTYPES[spec.kind])
        if spec.shape is None
        else tf.io.FixedLenFeature(spec.shape, _DTYPES[spec.kind], spec.default)
        for key, spec in profile.items()
    }


def records(source: Sources, *, shuffle: int = 0, seed: int | None = None) -> Any:
    """Serialized Examples, for a parser of one's own; arguments and errors as :func:`dataset`.

    Up to 16 shards are read in turn, plain, GZIP or ZLIB, which their bytes tell.
    """
    return _records(shards_to_read(source, finds_label_maps=False).paths, shuffle, seed)


def _records(paths: Sequence[str], shuffle: int, seed: int | None) -> Any:
    shards = tf.data.Dataset.from_tensor_slices(([*paths], [*map(_compression_type, paths)]))
    if shuffle:
        shards = shards.shuffle(len(paths), seed=seed)
    found = shards.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(len(paths), _SHARDS_AT_ONCE),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return found.shuffle(shuffle, seed=seed) if shuffle else found


def dataset(
    source: Sources,
    *,
    label_map: LabelMapLike | None = None,
    field_mapping: FieldMapping | None = None,
    shuffle: int = 0,
    seed: int | None = None,
) -> Any:
    """A ``tf.data.Dataset`` of images with their boxes and classes, one by one.

    An element is a dict: ``image`` uint8 (height, width, 3); ``source_id``, ``filename`` strings;
    ``groundtruth_boxes`` float32 (n, 4), normalized ``ymin, xmin, ymax, xmax``;
    ``groundtruth_classes`` int64 (n,): the id of the text in the label map, -1 for a text that it
    does not have, and the record's id where there is no text; ``groundtruth_weights`` float32 (n,),
    1 where the record says nothing; and, (n,) or (0,), ``groundtruth_area`` float32,
    ``groundtruth_is_crowd`` and ``groundtruth_group_of`` bool, ``groundtruth_difficult`` int64.
    Images with labels and without boxes have ``groundtruth_image_classes`` int64 (n,), too.

    Args:
        source: a file, a folder, a glob, or a list of them.
        label_map: a label map, its path, or the name of one that tfod ships; None takes the one
            next to the shards, if there is one.
        field_mapping: the keys of the records; None for those of the layout that fits best.
        shuffle: how many records the buffer holds that is drawn from; the shards come in another
            order in each pass, too. Records wait undecoded. 0 keeps the order.
        seed: of the shuffle; the same seed gives the same order, epoch by epoch.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: it is not plain which label map the shards go with, or it cannot be read.
        TfodError: a folder has several subsets, a shard is in a zip, or the layout is unknown.

    While it is read, TensorFlow's DataLossError and InvalidArgumentError: a feature is missing or
    of another kind, the lists of a record differ in length, or an image cannot be decoded.
    """
    shards = shards_to_read(source, field_mapping=field_mapping)
    # No Python in the decoder depends on a tensor, so there is nothing for AutoGraph to rewrite.
    decode = tf.autograph.experimental.do_not_convert(
        detection_decoder(label_map_for(shards, label_map), field_mapping_for(shards))
    )
    serialized = _records(shards.paths, shuffle, seed)
    return serialized.map(decode, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _parser(mapping: FieldMapping) -> Callable[[Any], tuple[dict[str, Any], Any]]:
    """Make a function that parses a record and decodes its image.

    The features have the OD API's keys, whatever the record calls them.
    """
    usual = {
        key: tf.io.RaggedFeature(one.dtype) if isinstance(one, tf.io.VarLenFeature) else one
        for key, one in feature_description().items()
    }
    usual[keys.IMAGE_CLASS_LABEL] = tf.io.RaggedFeature(tf.int64)
    usual[keys.IMAGE_CLASS_TEXT] = tf.io.RaggedFeature(tf.string)
    own = {key: map_key(mapping, key) for key in usual}
    features = {name: usual[key] for key, name in own.items() if name}
    if mapping.has_pixel_boxes:
        features[mapping.box[0]] = tf.io.RaggedFeature(tf.float32)
    if mapping.source_id is None and mapping.image_id:
        features[mapping.image_id] = tf.io.FixedLenFeature((), tf.int64, -1)

    def parse(record: Any) -> tuple[dict[str, Any], Any]:
        raw = tf.io.parse_single_example(record, features)
        parsed = {key: raw[name] if name else _nothing(usual[key]) for key, name in own.items()}
        image = tf.io.decode_image(parsed[keys.ENCODED], channels=3, expand_animations=False)
        image.set_shape((None, None, 3))
        if mapping.has_pixel_boxes:
            x, y, width, height = tf.unstack(tf.reshape(raw[mapping.box[0]], (-1, 4)), axis=1)
            size = tf.cast(tf.shape(image), tf.float32)
            corners = x / size[1], y / size[0], (x + width) / size[1], (y + height) / size[0]
            parsed |= dict(zip(keys.BOX, corners, strict=True))
        if mapping.source_id is None and mapping.image_id:
            parsed[keys.SOURCE_ID] = tf.strings.as_string(raw[mapping.image_id])
        return parsed, image

    return parse


def _nothing(feature: Any) -> Any:
    """The value of a feature that a layout does not have."""
    if isinstance(feature, tf.io.RaggedFeature):
        return tf.constant([], feature.dtype)
    return tf.constant(feature.default_value, feature.dtype)


def detection_decoder(
    label_map: LabelMap | None, mapping: FieldMapping = OD_API
) -> Callable[[Any], dict[str, Any]]:
    """Make the function that decodes a serialized record into an element of :func:`dataset`."""
    parse = _parser(mapping)
    by_text = {"": {UNKNOWN}} | dict(label_map.ids_by_text if label_map else {})
    ids = tf.constant([*map(max, by_text.values())], tf.int64)
    names_and_ids = tf.lookup.KeyValueTensorInitializer(tf.constant([*by_text]), ids)
    table = tf.lookup.StaticHashTable(names_and_ids, UNKNOWN)

    def decode(record: Any) -> dict[str, Any]:
        parsed, image = parse(record)
        aligned = _require_aligned(parsed, label_map is not None, mapping.has_pixel_boxes)
        with tf.control_dependencies([aligned]):
            return element(parsed, image)

    def element(parsed: Mapping[str, Any], image: Any) -> dict[str, Any]:
        sides = (keys.YMIN, keys.XMIN, keys.YMAX, keys.XMAX)
        boxes = tf.stack([parsed[side] for side in sides], axis=1)
        count = tf.shape(boxes)[:1]
        labels = {"groundtruth_image_classes": image_classes(parsed)} if not mapping.box else {}
        return {
            "image": image,
            "source_id": parsed[keys.SOURCE_ID],
            "filename": parsed[keys.FILENAME],
            "groundtruth_boxes": boxes,
            "groundtruth_classes": classes(parsed, count),
            "groundtruth_weights": _or_each(parsed[_WEIGHT], 1.0, count),
            **{name: tf.cast(parsed[key], kind) for key, (name, kind) in _ONE_AN_OBJECT.items()},
            **labels,
        }

    def image_classes(parsed: Mapping[str, Any]) -> Any:
        labels, texts = parsed[keys.IMAGE_CLASS_LABEL], parsed[keys.IMAGE_CLASS_TEXT]
        return tf.cond(tf.size(labels) > 0, lambda: labels, lambda: table.lookup(texts))

    def classes(parsed: Mapping[str, Any], count: Any) -> Any:
        found = _or_each(parsed[keys.CLASS_LABEL], UNKNOWN, count)
        if label_map is None:
            return found
        texts = parsed[keys.CLASS_TEXT]
        names = _or_each(texts, "", count)
        # Datumaro writes 0 and an empty text for an object without a class.
        is_none = (found == 0) & (tf.size(texts) > 0) & (label_map.find_id(0) is None)
        unnamed = tf.where(is_none, tf.constant(UNKNOWN, tf.int64), found)
        return tf.where(names == "", unnamed, table.lookup(names))

    return decode


def _or_each(values: Any, default: Any, count: Any) -> Any:
    """The values, or where there are none the default for each object."""
    defaults = tf.fill(count, tf.constant(default, values.dtype))
    return tf.cond(tf.size(values) > 0, lambda: values, lambda: defaults)


def _require_aligned(parsed: Mapping[str, Any], has_label_map: bool, has_pixels: bool) -> Any:
    """An assertion that each list has a value for each box, or none, and boxes are normalized."""
    optional = (keys.CLASS_TEXT, keys.CLASS_LABEL, _WEIGHT, *_ONE_AN_OBJECT)
    sizes = {key: tf.size(parsed[key]) for key in (*keys.BOX, *optional)}
    count = sizes[keys.YMIN]
    right = [sizes[side] == count for side in keys.BOX]
    right += [(sizes[key] == count) | (sizes[key] == 0) for key in optional]
    wrong = [f"{key} has not one value for each box" for key in (*keys.BOX, *optional)]
    sides = () if has_pixels else [parsed[side] for side in keys.BOX]
    right.append(~_look_like_pixels(sides) if sides else tf.constant(True))
    wrong.append("boxes look like pixels, tfod convert --boxes pixels divides them")
    right.append((sizes[keys.CLASS_TEXT] == 0) | (sizes[keys.CLASS_LABEL] > 0) | has_label_map)
    wrong.append("classes are texts alone, choose a label map by label_map=")

    def complain() -> Any:
        what = tf.boolean_mask(wrong, ~tf.stack(right))
        return tf.debugging.Assert(False, [what, "see tfod check; in", parsed[keys.FILENAME]])

    # The complaint is computed only where there is one.
    return tf.cond(tf.reduce_all(right), tf.no_op, complain)


def _look_like_pixels(sides: Sequence[Any]) -> Any:
    """Whether boxes look like pixels; Python decides, but only if a coordinate is large."""

    def decide(*columns: np.ndarray) -> np.bool_:
        is_even = len(set(map(len, columns))) == 1
        return np.bool_(is_even and find_pixel_boxes(np.stack(columns, axis=1)).any())

    is_far = tf.reduce_any(tf.abs(tf.concat(sides, 0)) > LOOKS_LIKE_PIXELS)
    look = functools.partial(tf.numpy_function, decide, sides, tf.bool)
    return tf.cond(is_far, look, lambda: tf.constant(False))


def _compression_type(path: str) -> str:
    if zip_entry(path) is not None:
        raise TfodError(f"{path}: TensorFlow cannot read shards in a zip; unpack it first")
    with open(path, "rb") as file:
        return _COMPRESSION_TYPES[PeekedStream(file).compression]

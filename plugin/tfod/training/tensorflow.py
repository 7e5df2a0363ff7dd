"""``tf.io`` feature descriptions, and shards as a ``tf.data.Dataset``.

Needs the extra ``tensorflow``. No other module of tfod imports TensorFlow. Source of the names: the
OD API's core/standard_fields.py (``InputDataFields``) and data_decoders/tf_example_decoder.py.
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
from tfod.tfrecord.storage.open import find_zip_entry
from tfod.training.input_shards import (
    UNKNOWN,
    LabelMapLike,
    choose_field_mapping,
    choose_label_map,
    find_training_shards,
)

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise TfodError(f"tfod.tensorflow needs TensorFlow; {how_to_install('tensorflow')}") from None

_DTYPES = {Kind.BYTES: tf.string, Kind.INT64: tf.int64, Kind.FLOAT: tf.float32}
_COMPRESSION_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
_MAX_OPEN_SHARDS = 16  # fixed, since the order of records depends on it
_WEIGHT = "image/object/weight"
_PER_OBJECT = {
    keys.AREA: ("groundtruth_area", tf.float32),
    "image/object/is_crowd": ("groundtruth_is_crowd", tf.bool),
    "image/object/difficult": ("groundtruth_difficult", tf.int64),
    "image/object/group_of": ("groundtruth_group_of", tf.bool),
}


def feature_description(profile: str | FeatureDescription = "tf_detection_api") -> dict[str, Any]:
    """Return a feature description for ``tf.io.parse_example``.

    Args:
        profile: name of a profile, or a description by tfod.

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
    """Return a ``tf.data.Dataset`` of serialized Examples; for arguments see :func:`dataset`.

    Reads up to 16 shards at a time, and detects their compression: none, GZIP or ZLIB.
    """
    return _records(find_training_shards(source, finds_label_maps=False).paths, shuffle, seed)


def _records(paths: Sequence[str], shuffle: int, seed: int | None) -> Any:
    shards = tf.data.Dataset.from_tensor_slices(([*paths], [*map(_compression_type, paths)]))
    if shuffle:
        shards = shards.shuffle(len(paths), seed=seed)
    serialized = shards.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(len(paths), _MAX_OPEN_SHARDS),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return serialized.shuffle(shuffle, seed=seed) if shuffle else serialized


def dataset(
    source: Sources,
    *,
    label_map: LabelMapLike | None = None,
    field_mapping: FieldMapping | None = None,
    shuffle: int = 0,
    seed: int | None = None,
) -> Any:
    """Return a ``tf.data.Dataset`` of images with their boxes and classes.

    An element is a dict: ``image`` uint8 (height, width, 3); ``source_id``, ``filename`` strings;
    ``groundtruth_boxes`` float32 (n, 4), normalized ``ymin, xmin, ymax, xmax``;
    ``groundtruth_classes`` int64 (n,): the label map's id of the text, -1 if the label map does not
    contain it, or the id in the record if the object has no text; ``groundtruth_weights`` float32
    (n,), by default 1; and, (n,) or (0,), ``groundtruth_area`` float32, ``groundtruth_is_crowd``
    and ``groundtruth_group_of`` bool, ``groundtruth_difficult`` int64. If the layout has image
    labels instead of boxes, ``groundtruth_image_classes`` int64 (n,).

    Iterating raises DataLossError or InvalidArgumentError of TensorFlow if a feature is missing or
    has the wrong kind, per-object lists differ in length, or an image cannot be decoded.

    Args:
        source: path of a file or folder, glob, or list of these.
        label_map: label map, its path, or name of a shipped one; by default the shards' label map.
        field_mapping: keys of the records; by default, the best layout is used.
        shuffle: number of records in the shuffle buffer; 0 keeps the order. Shuffles shards, too.
        seed: random seed, which determines the order of every epoch.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: a label map cannot be read, or several are possible.
        TfodError: a folder has several subsets, a shard is in a zip, or the layout is unknown.
    """
    shards = find_training_shards(source, field_mapping=field_mapping)
    # AutoGraph is not needed, since no Python condition in the decoder depends on a tensor.
    decode = tf.autograph.experimental.do_not_convert(
        make_detection_decoder(choose_label_map(shards, label_map), choose_field_mapping(shards))
    )
    serialized = _records(shards.paths, shuffle, seed)
    return serialized.map(decode, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _parser(mapping: FieldMapping) -> Callable[[Any], tuple[dict[str, Any], Any]]:
    """Return a function that parses a record, with the keys of the OD API, and its image."""
    usual = {
        key: tf.io.RaggedFeature(spec.dtype) if isinstance(spec, tf.io.VarLenFeature) else spec
        for key, spec in feature_description().items()
    }
    usual[keys.IMAGE_CLASS_LABEL] = tf.io.RaggedFeature(tf.int64)
    usual[keys.IMAGE_CLASS_TEXT] = tf.io.RaggedFeature(tf.string)
    names = {key: map_key(mapping, key) for key in usual}
    features = {name: usual[key] for key, name in names.items() if name}
    if mapping.has_pixel_boxes:
        features[mapping.box[0]] = tf.io.RaggedFeature(tf.float32)
    if mapping.source_id is None and mapping.image_id:
        features[mapping.image_id] = tf.io.FixedLenFeature((), tf.int64, -1)

    def parse(record: Any) -> tuple[dict[str, Any], Any]:
        raw = tf.io.parse_single_example(record, features)
        parsed = {
            key: raw[name] if name else _default_value(usual[key]) for key, name in names.items()
        }
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


def _default_value(feature: Any) -> Any:
    if isinstance(feature, tf.io.RaggedFeature):
        return tf.constant([], feature.dtype)
    return tf.constant(feature.default_value, feature.dtype)


def make_detection_decoder(
    label_map: LabelMap | None, mapping: FieldMapping = OD_API
) -> Callable[[Any], dict[str, Any]]:
    """Return a function that decodes a serialized record to an element of :func:`dataset`."""
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
            **{name: tf.cast(parsed[key], dtype) for key, (name, dtype) in _PER_OBJECT.items()},
            **labels,
        }

    def image_classes(parsed: Mapping[str, Any]) -> Any:
        labels, texts = parsed[keys.IMAGE_CLASS_LABEL], parsed[keys.IMAGE_CLASS_TEXT]
        return tf.cond(tf.size(labels) > 0, lambda: labels, lambda: table.lookup(texts))

    def classes(parsed: Mapping[str, Any], count: Any) -> Any:
        ids = _or_each(parsed[keys.CLASS_LABEL], UNKNOWN, count)
        if label_map is None:
            return ids
        texts = parsed[keys.CLASS_TEXT]
        names = _or_each(texts, "", count)
        # Datumaro writes 0 and an empty text for an object without a class.
        has_no_class = (ids == 0) & (tf.size(texts) > 0) & (label_map.find_id(0) is None)
        unnamed = tf.where(has_no_class, tf.constant(UNKNOWN, tf.int64), ids)
        return tf.where(names == "", unnamed, table.lookup(names))

    return decode


def _or_each(values: Any, default: Any, count: Any) -> Any:
    defaults = tf.fill(count, tf.constant(default, values.dtype))
    return tf.cond(tf.size(values) > 0, lambda: values, lambda: defaults)


def _require_aligned(parsed: Mapping[str, Any], has_label_map: bool, has_pixels: bool) -> Any:
    """Assert that lists are empty or have one value per box, and that boxes are normalized."""
    optional = (keys.CLASS_TEXT, keys.CLASS_LABEL, _WEIGHT, *_PER_OBJECT)
    sizes = {key: tf.size(parsed[key]) for key in (*keys.BOX, *optional)}
    count = sizes[keys.YMIN]
    conditions = [sizes[side] == count for side in keys.BOX]
    conditions += [(sizes[key] == count) | (sizes[key] == 0) for key in optional]
    problems = [f"{key} does not have one value per box" for key in (*keys.BOX, *optional)]
    sides = () if has_pixels else [parsed[side] for side in keys.BOX]
    conditions.append(~_look_like_pixels(sides) if sides else tf.constant(True))
    problems.append("boxes look like pixels, normalize them with tfod convert --boxes pixels")
    has_ids = (sizes[keys.CLASS_TEXT] == 0) | (sizes[keys.CLASS_LABEL] > 0)
    conditions.append(has_ids | has_label_map)
    problems.append("classes have texts but no ids, pass label_map=")

    def fail() -> Any:
        failed = tf.boolean_mask(problems, ~tf.stack(conditions))
        return tf.debugging.Assert(False, [failed, "see tfod check; in", parsed[keys.FILENAME]])

    # The message is only computed if a condition is false.
    return tf.cond(tf.reduce_all(conditions), tf.no_op, fail)


def _look_like_pixels(sides: Sequence[Any]) -> Any:
    """Return whether boxes look like pixels. Python code runs only if a coordinate is large."""

    def decide(*columns: np.ndarray) -> np.bool_:
        is_even = len(set(map(len, columns))) == 1
        return np.bool_(is_even and find_pixel_boxes(np.stack(columns, axis=1)).any())

    is_far = tf.reduce_any(tf.abs(tf.concat(sides, 0)) > LOOKS_LIKE_PIXELS)
    look = functools.partial(tf.numpy_function, decide, sides, tf.bool)
    return tf.cond(is_far, look, lambda: tf.constant(False))


def _compression_type(path: str) -> str:
    if find_zip_entry(path) is not None:
        raise TfodError(f"{path}: TensorFlow cannot read shards in a zip; unpack it first")
    with open(path, "rb") as file:
        return _COMPRESSION_TYPES[PeekedStream(file).compression]

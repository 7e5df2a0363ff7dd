"""Records of the TF Object Detection API as the tensors that its own decoder makes of them.

Names and meaning are those of ``fields.InputDataFields``. Source: core/standard_fields.py and
data_decoders/tf_example_decoder.py of tensorflow/models (research/object_detection).

Records are parsed one by one, and small ones a batch at once, in a fifth of the time. Of a record
each list is a tensor; of a batch it is ragged, a flat list and where each record's part of it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfod.detection import keys
from tfod.detection.features.schema import FeatureDescription
from tfod.training.tensorflow.description import DTYPES
from tfod.training.tensorflow.images import (
    Size,
    decode_image,
    decode_png_masks,
    resize_image,
    resize_masks,
    shape_number_masks,
)
from tfod.training.training_input import UNKNOWN, ClassIds

MASK_KINDS = {"png": tf.string, "numerical": tf.float32}
"""The two ways to write masks under one key; the OD API has to be told which one it is, too."""

_ONE_A_IMAGE = {
    keys.SOURCE_ID: "source_id",
    keys.SHA256: "key",
    keys.FILENAME: "filename",
}
_ONE_AN_OBJECT = {
    keys.AREA: ("groundtruth_area", tf.float32),
    "image/object/is_crowd": ("groundtruth_is_crowd", tf.bool),
    "image/object/difficult": ("groundtruth_difficult", tf.int64),
    "image/object/group_of": ("groundtruth_group_of", tf.bool),
}
_WEIGHT = "image/object/weight"
_CLASSES = (keys.CLASS_TEXT, keys.CLASS_LABEL)
_IMAGE_CLASSES = (keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL)
_NO_TEXT = "\0 no text"  # where a record has none; no class is called so
_SHAPE, _MASKS = "original_image_spatial_shape", "groundtruth_instance_masks"


class DetectionDecoder:
    """Decodes serialized records whose feature description has the OD API's boxes.

    Args:
        classes: the ids of class texts; None takes the ids that the records have.
        decode: whether images are decoded, or stay files.
        size: resize images and masks to this.
        masks: how masks are written, one of :data:`MASK_KINDS`; None does not read them.
        keypoints: how many each object has; 0 does not read them.
    """

    def __init__(
        self,
        description: FeatureDescription,
        classes: ClassIds | None = None,
        decode: bool = True,
        size: Size | None = None,
        masks: str | None = None,
        keypoints: int = 0,
    ) -> None:
        self._classes, self._size, self._masks, self._keypoints = classes, size, masks, keypoints
        self._has_image = keys.ENCODED in description
        self._decodes = decode and self._has_image
        kinds = {key: DTYPES[spec.kind] for key, spec in description.items()}
        lists = (*keys.BOX, *_CLASSES, *_IMAGE_CLASSES, *_ONE_AN_OBJECT, _WEIGHT)
        self._lists = {key: kinds[key] for key in lists if key in kinds}
        if masks is not None:
            self._lists[keys.MASK] = MASK_KINDS[masks]
        if keypoints:
            self._lists |= {keys.KEYPOINT_X: tf.float32, keys.KEYPOINT_Y: tf.float32}
            self._lists[keys.KEYPOINT_VISIBILITY] = tf.int64
        sizes = () if self._decodes else (keys.HEIGHT, keys.WIDTH)
        singles = {
            key: tf.io.FixedLenFeature((), kinds[key], description[key].default)
            for key in (*_ONE_A_IMAGE, *sizes, keys.ENCODED)
            if key in kinds
        }
        lists_of = {
            key: tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
            for key, kind in self._lists.items()
        }
        self._features = {**singles, **lists_of}
        self._table: Any = None if classes is None else _table(classes)

    @property
    def decodes_images(self) -> bool:
        """Whether there is something to decode image by image."""
        return self._decodes or self._masks is not None

    def decode_one(self, record: Any) -> dict[str, Any]:
        """Decode one serialized record, a scalar."""
        parsed = tf.io.parse_single_example(record, self._features)
        fields = self._fields(parsed)
        return {**fields, **self._images(parsed)} if self.decodes_images else fields

    def decode_batch(self, records: Any) -> dict[str, Any]:
        """Decode serialized records at once, which is for records without images to decode."""
        return self._fields(tf.io.parse_example(records, self._features))

    def _images(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        size = self._size
        decoded: dict[str, Any] = {}
        if self._decodes:
            image = decode_image(parsed[keys.ENCODED])
            shape = decoded[_SHAPE] = tf.shape(image)[:2]
            decoded["image"] = resize_image(image, size)
        else:
            shape = tf.cast(tf.stack([parsed[keys.HEIGHT], parsed[keys.WIDTH]]), tf.int32)
        if self._masks:
            as_png = self._masks == "png"
            masks = (decode_png_masks if as_png else shape_number_masks)(parsed[keys.MASK], shape)
            decoded[_MASKS] = resize_masks(masks, size)
        return decoded

    def _fields(self, parsed: Mapping[str, Any]) -> dict[str, Any]:
        objects = parsed[keys.YMIN]
        fields = {name: parsed[key] for key, name in _ONE_A_IMAGE.items() if key in parsed}
        with tf.control_dependencies([self._check(parsed)]):  # what it says comes first
            fields["groundtruth_boxes"] = _boxes(parsed)
            fields["groundtruth_classes"] = self._ids(parsed, _CLASSES, objects)
            for key, (name, kind) in _ONE_AN_OBJECT.items():
                if key in parsed:
                    fields[name] = tf.cast(parsed[key], kind)
            if _WEIGHT in parsed:
                weights = _filled_up(parsed[_WEIGHT], objects, 1.0)
                fields["groundtruth_weights"] = _like(objects, weights)
            if self._lists.keys() >= set(_IMAGE_CLASSES):
                fields["groundtruth_image_classes"] = self._ids(
                    parsed, _IMAGE_CLASSES, _longer(*(parsed[key] for key in _IMAGE_CLASSES))
                )
            if self._keypoints:
                fields |= _keypoints(parsed, self._keypoints)
        if not self._decodes and self._has_image:
            fields["image"] = parsed[keys.ENCODED]
        if not self._decodes and self._features.keys() >= {keys.HEIGHT, keys.WIDTH}:
            sides = tf.stack([parsed[keys.HEIGHT], parsed[keys.WIDTH]], axis=-1)
            fields[_SHAPE] = tf.cast(sides, tf.int32)
        return fields

    def _ids(self, parsed: Mapping[str, Any], pair: tuple[str, str], objects: Any) -> Any:
        """The ids of classes: by text, by id where there is no text; -1 for unknown texts."""
        texts, labels = (parsed[key] for key in pair)
        ids = _filled_up(labels, objects, UNKNOWN)
        if self._classes is not None:
            names = _filled_up(texts, objects, _NO_TEXT)
            known = self._table.lookup(names)
            if not self._classes.has_zero:
                # Datumaro writes 0 and an empty text for an object without a class.
                empty = tf.where(ids == 0, tf.constant(UNKNOWN, tf.int64), ids)
                known = tf.where(names == "", empty, known)
            else:
                known = tf.where(names == "", ids, known)
            ids = tf.where(names == _NO_TEXT, ids, known)
        return _like(objects, ids)

    def _check(self, parsed: Mapping[str, Any]) -> Any:
        """See that each list has one value for each box, or none; a ragged batch would hide it."""
        lengths = _lengths([parsed[key] for key in self._lists])
        row_of = {key: row for row, key in enumerate(self._lists)}
        counts = lengths[row_of[keys.YMIN]]
        sides = [key for key in keys.BOX if key != keys.YMIN]
        each = dict.fromkeys((*_CLASSES, *_ONE_AN_OBJECT, _WEIGHT), 1)
        each |= dict.fromkeys((keys.KEYPOINT_X, keys.KEYPOINT_Y), self._keypoints)
        if self._masks == "png":
            each[keys.MASK] = 1
        each = {key: number for key, number in each.items() if key in row_of}
        others = tf.gather(lengths, [row_of[key] for key in each])
        factors = tf.constant(list(each.values()), tf.int64)[:, None]
        right = [
            tf.gather(lengths, [row_of[key] for key in sides]) == counts,
            (others == 0) | (others == counts * factors),
        ]
        rules = [f"{key} and {keys.YMIN} differ in length" for key in sides]
        rules += [f"{key} has not {number} for each box" for key, number in each.items()]
        if self._table is None:
            text, label = (lengths[row_of[key]] for key in _CLASSES)
            right.append(((text == 0) | (label > 0))[None])
            rules.append("classes are texts alone, choose a label map by label_map=")
        return _require(tf.concat(right, axis=0), rules, _names(parsed))


def _require(right: Any, rules: Sequence[str], names: Any) -> Any:
    """An assertion that all records keep all rules.

    Args:
        right: bool of shape (rules, records).
        rules: what is wrong where one is not kept.
        names: of the records, shape (records,) or a scalar.
    """

    def complain() -> Any:
        kept_by_all, keeps_all = (tf.reduce_all(right, axis=axis) for axis in (1, 0))
        what = tf.boolean_mask(list(rules), ~kept_by_all)
        where = tf.boolean_mask(tf.broadcast_to(names, tf.shape(keeps_all)), ~keeps_all)
        return tf.debugging.Assert(False, [what, "see tfod check; in", where])

    # The complaint is computed only where there is one.
    return tf.cond(tf.reduce_all(right), tf.no_op, complain)


def _names(parsed: Mapping[str, Any]) -> Any:
    return next((parsed[key] for key in (keys.FILENAME, keys.SOURCE_ID) if key in parsed), "")


def _table(classes: ClassIds) -> Any:
    texts = tf.constant(list(classes.by_text), tf.string)
    ids = tf.constant(list(classes.by_text.values()), tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(texts, ids), UNKNOWN)


def _boxes(parsed: Mapping[str, Any]) -> Any:
    """Boxes, shape (objects, 4), of a batch (batch, objects, 4): ymin, xmin, ymax, xmax."""
    sides = [parsed[key] for key in (keys.YMIN, keys.XMIN, keys.YMAX, keys.XMAX)]
    return _like(sides[0], tf.stack([_flat(side) for side in sides], axis=1))


def _keypoints(parsed: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Keypoints, so many an object, y before x; NaN where they are not labelled."""
    one = not isinstance(parsed[keys.KEYPOINT_X], tf.RaggedTensor)
    x, y, given = (
        tf.RaggedTensor.from_tensor(parsed[key][None]) if one else parsed[key]
        for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y, keys.KEYPOINT_VISIBILITY)
    )
    lengths = x.row_lengths()
    # COCO: 1 is labelled and hidden, 2 is visible. Without it, points that are numbers are visible.
    is_given = tf.expand_dims(given.row_lengths() == lengths, 1)
    numbers = tf.where(tf.math.is_nan(_dense(x, lengths, float("nan"))), 0, 2)
    visibility = tf.where(is_given, _dense(given, lengths, 0), tf.cast(numbers, tf.int64))
    labelled = tf.RaggedTensor.from_tensor(
        (visibility == 1) | (visibility == 2), lengths=lengths
    ).flat_values
    points = tf.stack([y.flat_values, x.flat_values], axis=1)
    points = tf.where(labelled[:, None], points, float("nan"))
    fields = {
        "groundtruth_keypoints": tf.reshape(points, (-1, count, 2)),
        "groundtruth_keypoint_visibilities": tf.reshape(labelled, (-1, count)),
    }
    if one:
        return fields
    objects = lengths // count
    return {name: tf.RaggedTensor.from_row_lengths(flat, objects) for name, flat in fields.items()}


def _dense(ragged: Any, counts: Any, default: Any) -> Any:
    """Rows of one length: that of the longest of ``counts``."""
    return ragged.to_tensor(default, shape=(-1, tf.reduce_max(counts)))


def _filled_up(values: Any, objects: Any, default: Any) -> Any:
    """One value an object, flat: those of records that have them, the default for the others."""
    flat = _flat(values)
    count = tf.size(flat)
    missing = tf.size(_flat(objects)) - count
    all_or_none = tf.concat([flat, tf.fill([missing], tf.constant(default, flat.dtype))], 0)
    if not isinstance(values, tf.RaggedTensor):
        return all_or_none

    def mixed() -> Any:
        lengths = objects.row_lengths()
        dense = _dense(values, lengths, default)
        return tf.RaggedTensor.from_tensor(dense, lengths=lengths).flat_values

    return tf.cond((missing == 0) | (count == 0), lambda: all_or_none, mixed)


def _longer(one: Any, other: Any) -> Any:
    """Zeros, as many in each record as the longer of two lists has."""
    lengths = tf.reduce_max(_lengths([one, other]), axis=0)
    zeros = tf.zeros((tf.reduce_sum(lengths),), tf.int64)
    if not isinstance(one, tf.RaggedTensor):
        return zeros
    return tf.RaggedTensor.from_row_lengths(zeros, lengths, validate=False)


def _lengths(lists: Sequence[Any]) -> Any:
    """How many values each list has in each record, int64 of shape (lists, records)."""
    if not isinstance(lists[0], tf.RaggedTensor):
        return tf.stack([tf.size(one, tf.int64) for one in lists])[:, None]
    splits = tf.stack([one.row_splits for one in lists])
    return splits[:, 1:] - splits[:, :-1]


def _flat(values: Any) -> Any:
    return values.flat_values if isinstance(values, tf.RaggedTensor) else values


def _like(lists: Any, flat: Any) -> Any:
    """Flat values in the records of a list."""
    return lists.with_flat_values(flat) if isinstance(lists, tf.RaggedTensor) else flat

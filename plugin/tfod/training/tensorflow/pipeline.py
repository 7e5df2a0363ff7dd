"""``dataset``: shards as a ``tf.data.Dataset``, ready for ``model.fit``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfod.detection import keys
from tfod.training.tensorflow.description import ProfileLike, features_of, record_decoder
from tfod.training.tensorflow.detections import MASK_KINDS, DetectionDecoder
from tfod.training.tensorflow.images import Size
from tfod.training.tensorflow.shards import are_small, serialized_records
from tfod.training.training_input import ClassIds, LabelMapLike, label_map_for, shards_to_read

_SHUFFLED_RECORDS = 1000


def dataset(
    pattern: str | os.PathLike[str],
    profile: ProfileLike | None = "tf_detection_api",
    batch_size: int | None = None,
    shuffle: bool | int = False,
    decode: bool = True,
    *,
    seed: int | None = None,
    label_map: LabelMapLike | None = None,
    image_size: Size | None = None,
    masks: str | None = None,
    keypoints: int = 0,
    deterministic: bool = True,
) -> Any:
    """A ``tf.data.Dataset`` over the shards that a file, a folder or a glob means.

    Up to 16 shards are read in turn, plain, GZIP or ZLIB, which their bytes tell. What an element
    is, the profile says:

    * with boxes (``tf_detection_api``, ``roboflow``, ``open_images``, ``cvat``): a dict with the
      names and the meaning of the OD API's decoder, as far as the profile has the features.
      ``image`` uint8 (height, width, 3); ``original_image_spatial_shape`` int32 (2,);
      ``source_id``, ``key``, ``filename`` strings; ``groundtruth_boxes`` float32 (n, 4),
      normalized ``ymin, xmin, ymax, xmax``; ``groundtruth_classes`` int64 (n,): the id of the text
      in the label map, -1 for a text that it does not have, and the record's id where there is no
      text; ``groundtruth_weights`` float32 (n,), 1 where the record says nothing; and, (n,) or
      (0,), ``groundtruth_area`` float32, ``groundtruth_is_crowd`` and ``groundtruth_group_of``
      bool, ``groundtruth_difficult`` int64.
    * ``image_classification``, ``image_label``: a pair ``(image, label)``, uint8 and int64.
    * ``keras_coco``: a dict of the recipe's keys, ``image`` decoded.
    * any other description: a dict of its features. None: serialized Examples.

    In a batch, what records have different numbers of is a ``tf.RaggedTensor``, images too unless
    ``image_size`` is given.

    Args:
        pattern: a file, a folder, or a glob.
        profile: the name of a profile, a feature description, or a profile read from a file.
        batch_size: how many records an element holds; None yields them one by one.
        shuffle: True, or how many records the buffer holds that is drawn from; also puts the
            shards into another order in each pass. Records wait undecoded.
        decode: False keeps ``image`` the bytes of the image file.
        seed: of the shuffle; the same seed gives the same order, epoch by epoch.
        label_map: a label map, its path, or the name of one that tfod ships; None takes the one
            beside the shards, if there is one.
        image_size: height and width that images and masks are resized to, bilinearly, without
            keeping the proportions. Boxes are normalized and need no change.
        masks: ``"png"`` or ``"numerical"``, as they are written: adds
            ``groundtruth_instance_masks``, float32 (n, height, width), 0 or 1.
        keypoints: how many points each object has: adds ``groundtruth_keypoints`` float32
            (n, points, 2), normalized ``y, x``, NaN where not labelled, and
            ``groundtruth_keypoint_visibilities`` bool (n, points).
        deterministic: False lets a quick shard or record overtake a slow one.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: it is not plain which label map the shards go with, or it cannot be read.
        TfodError: there is no profile of that name, or a shard is in a zip.
        ValueError: ``masks`` is another word.

    While it is read, TensorFlow's DataLossError (:func:`locating_damage` says where) and
    InvalidArgumentError: a feature is missing or of another kind, the lists of a record differ in
    length, or an image cannot be decoded.
    """
    if masks is not None and masks not in MASK_KINDS:
        raise ValueError(f"masks is {masks!r}; choose one of {', '.join(MASK_KINDS)}")
    paths = shards_to_read(pattern)
    description = None if profile is None else features_of(profile)
    records = serialized_records(
        paths, shuffled=bool(shuffle), seed=seed, deterministic=deterministic
    )
    if shuffle:
        buffer = _SHUFFLED_RECORDS if shuffle is True else shuffle
        records = records.shuffle(buffer, seed=seed)
    if description is None:
        return records if batch_size is None else records.batch(batch_size)

    def parallel(elements: Any, function: Callable[..., Any]) -> Any:
        # No Python in it depends on a tensor, so there is nothing for AutoGraph to rewrite.
        function = tf.autograph.experimental.do_not_convert(function)
        return elements.map(function, tf.data.AUTOTUNE, deterministic=deterministic)

    if description.keys() >= set(keys.BOX):
        found = label_map_for(paths, label_map)
        classes = None if found is None else ClassIds.of(found)
        decoder = DetectionDecoder(description, classes, decode, image_size, masks, keypoints)
        if batch_size is not None and not decoder.decodes_images and are_small(paths):
            batches = parallel(records.batch(batch_size), decoder.decode_batch)
            return batches.prefetch(tf.data.AUTOTUNE)
        elements = parallel(records, decoder.decode_one)
    else:
        elements = parallel(records, record_decoder(description, decode, image_size))
    if batch_size is not None:
        elements = elements.ragged_batch(batch_size)
    return elements.prefetch(tf.data.AUTOTUNE)

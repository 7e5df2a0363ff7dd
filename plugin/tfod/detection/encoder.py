"""From a Detection, or an image with one label, to a serialized Example.

Sources of the profiles image_classification and image_label:
tensorflow.org/tutorials/load_data/tfrecord (``image_example``) for the first; the second is what
many scripts write.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfod.detection import keys
from tfod.detection.attributes import Corrections, encode_attribute
from tfod.detection.detection import Detection, Keypoints
from tfod.detection.features.schema import PROFILES
from tfod.detection.images.image import read_image_header
from tfod.example.example import (
    bytes_feature,
    encode_example,
    float_feature,
    float_features,
    int64_feature,
    one_bytes_feature,
    text_feature,
)


def encode_detection(detection: Detection) -> bytes:
    """Write a Detection as a serialized ``tf.train.Example``, keys in a fixed order.

    A field that is None or empty writes no key, but ``encoded``, ``format``, ``source_id`` and the
    like may be an empty text, which writes the key with an empty value.

    Raises:
        TypeError: an attribute's value is not JSON (see :func:`is_attribute_value`).
    """
    features: dict[str, bytes] = {}
    for key, size in ((keys.HEIGHT, detection.height), (keys.WIDTH, detection.width)):
        if size is not None:
            features[key] = _side_feature(size)
    for key, text in (
        (keys.FILENAME, detection.filename),
        (keys.SOURCE_ID, detection.source_id),
        (keys.SHA256, detection.sha256),
        (keys.FORMAT, detection.format),
    ):
        if text is not None:
            features[key] = one_bytes_feature(text.encode())
    if detection.encoded is not None:
        features[keys.ENCODED] = one_bytes_feature(bytes(detection.encoded))
    _encode_image_labels(detection, features)
    if detection.captions:
        features[keys.CAPTION] = bytes_feature(one.encode() for one in detection.captions)
    for name, mask in detection.image_masks.items():
        features[keys.IMAGE_MASKS[name]] = one_bytes_feature(bytes(mask.data))
    for name, ids in detection.image_attributes.items():
        features[keys.IMAGE_ATTRIBUTES[name]] = int64_feature(ids)
    if len(detection.boxes):
        _encode_objects(detection, features)
    if detection.attributes or detection.image_extra or detection.drawn or detection.image_labels:
        _encode_attributes(detection, features)
    return encode_example(features)


@functools.lru_cache(1024, typed=True)
def _side_feature(side: int) -> bytes:
    """Of a height or a width, which recur."""
    return int64_feature([side])


def _encode_attributes(detection: Detection, features: dict[str, bytes]) -> None:
    corrections = Corrections.of(detection)
    if len(detection.boxes):
        for name in detection.attributes:
            encode_attribute(name, detection.attributes, features, corrections)
    if corrections:
        features[keys.EXTRA_ATTRIBUTES] = one_bytes_feature(corrections.to_json())


def _encode_image_labels(detection: Detection, features: dict[str, bytes]) -> None:
    labels = detection.image_labels
    if not labels:
        return
    if all(label.text is not None for label in labels):
        features[keys.IMAGE_CLASS_TEXT] = bytes_feature((x.text or "").encode() for x in labels)
    if all(label.label is not None for label in labels):
        features[keys.IMAGE_CLASS_LABEL] = int64_feature(x.label or 0 for x in labels)
    if any(label.confidence is not None for label in labels):
        features[keys.IMAGE_CLASS_CONFIDENCE] = float_feature(
            [1.0 if x.confidence is None else x.confidence for x in labels]
        )


def _encode_objects(detection: Detection, features: dict[str, bytes]) -> None:
    features |= zip(keys.BOX, float_features(detection.boxes.T), strict=True)
    if detection.class_text is not None:
        features[keys.CLASS_TEXT] = text_feature(detection.class_text)
    if detection.class_label is not None:
        features[keys.CLASS_LABEL] = int64_feature(detection.class_label)
    if detection.masks is not None:
        features[keys.MASK] = bytes_feature(
            b"" if mask is None else bytes(mask.data) for mask in detection.masks
        )
    elif detection.numerical_masks is not None:
        features[keys.MASK] = float_feature(detection.numerical_masks.reshape(-1))
    if detection.keypoints is not None:
        _encode_keypoints(detection.keypoints, features)


def _encode_keypoints(keypoints: Keypoints, features: dict[str, bytes]) -> None:
    visibility = keypoints.visibility
    features[keys.KEYPOINT_X] = float_feature(keypoints.xy[:, :, 0].reshape(-1))
    features[keys.KEYPOINT_Y] = float_feature(keypoints.xy[:, :, 1].reshape(-1))
    features[keys.KEYPOINT_VISIBILITY] = int64_feature(visibility.reshape(-1).tolist())
    features[keys.KEYPOINT_NUM] = int64_feature((visibility > 0).sum(axis=1).tolist())
    if keypoints.names:
        names = [name.encode() for name in keypoints.names] * len(visibility)
        features[keys.KEYPOINT_TEXT] = bytes_feature(names)


class LabelProfile(str, enum.Enum):
    """Which keys the records have; the values are names of profiles."""

    IMAGE_CLASSIFICATION = "image_classification"
    IMAGE_LABEL = "image_label"


def encode_labelled_image(
    profile: LabelProfile, encoded: bytes, filename: str, size: tuple[int, int], label: int
) -> bytes:
    """A serialized Example of an image and its label, keys in the order of the profile.

    ``filename`` is a feature that neither profile has: without it the image's name would be
    lost. TensorFlow leaves it out where it is not asked for.

    ``size`` is height and width in pixels; the label counts from 0, and is -1 for none.
    """
    header = read_image_header(encoded, 0, len(encoded))
    # What TensorFlow decodes an image to of which the header says nothing is colour.
    channels = int64_feature([header.channels if header else 3])
    image = one_bytes_feature(encoded)
    features = {
        "height": int64_feature([size[0]]),
        "width": int64_feature([size[1]]),
        **dict.fromkeys(("channels", "depth"), channels),
        "label": int64_feature([label]),
        **dict.fromkeys(("image", "image_raw"), image),
        "filename": one_bytes_feature(filename.encode()),
    }
    order = (*PROFILES[profile.value], "filename")
    return encode_example({key: features[key] for key in order})


@dataclass(frozen=True)
class KerasAnnotation:
    """One object of an image, as the recipe has it; box is x, y, width, height in pixels."""

    id: int
    category_id: int
    box: tuple[float, float, float, float]
    area: float

    @classmethod
    def of(
        cls, number: int, category: int, corners: Sequence[float], area: float | None = None
    ) -> KerasAnnotation:
        """Make one of the corners in pixels, rounded as Datumaro does; without area, the box's."""
        left, top, right, bottom = corners
        x, y, width, height = (round(one, 2) for one in (left, top, right - left, bottom - top))
        return cls(
            number, category, (x, y, width, height), width * height if area is None else area
        )


def encode_keras_annotations(
    encoded: bytes, path: str, image_id: int, annotations: Iterable[KerasAnnotation]
) -> Iterator[bytes]:
    """The records of an image, serialized Examples with the recipe's features in its order.

    Raises:
        OverflowError: a number does not fit into 64 bits.
    """
    image = one_bytes_feature(encoded)
    for one in annotations:
        yield encode_example(
            {
                "image": image,
                "path": one_bytes_feature(path.encode()),
                "area": float_feature([one.area]),
                "bbox": float_feature(one.box),
                "category_id": int64_feature([one.category_id]),
                "id": int64_feature([one.id]),
                "image_id": int64_feature([image_id]),
            }
        )

"""Images with one label: the records of the profiles image_classification and image_label.

Sources: tensorflow.org/tutorials/load_data/tfrecord (``image_example``) for the first; the second
is what many scripts write.
"""

from __future__ import annotations

import enum

from tfod.detection.image import read_image_header
from tfod.example.example import bytes_feature, encode_example, int64_feature


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

    Args:
        profile: which keys to write.
        encoded: the image file's bytes.
        filename: its name.
        size: height and width in pixels.
        label: its class, counted from 0; -1 for none.
    """
    height, width = (int64_feature([side]) for side in size)
    channels = int64_feature([image_channels(encoded)])
    number, image = int64_feature([label]), bytes_feature([encoded])
    name = bytes_feature([filename.encode()])
    if profile is LabelProfile.IMAGE_LABEL:
        return encode_example(
            {
                "width": width,
                "height": height,
                "channels": channels,
                "label": number,
                "image": image,
                "filename": name,
            }
        )
    return encode_example(
        {
            "height": height,
            "width": width,
            "depth": channels,
            "label": number,
            "image_raw": image,
            "filename": name,
        }
    )


def image_channels(encoded: bytes) -> int:
    """Channels of an image by its header: what TensorFlow decodes it to; 3 where none says."""
    header = read_image_header(encoded, 0, len(encoded))
    return header.channels if header else 3

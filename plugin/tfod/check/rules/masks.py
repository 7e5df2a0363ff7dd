"""BOX: masks and keypoints of objects, and masks of whole images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tfod.check.findings.finding import Problem, Severity
from tfod.check.records.images.tensorflow_images import FORMAT_TITLES
from tfod.check.rules.registry import detection_rule, rule
from tfod.detection import keys
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.problems import Wrong

Size: TypeAlias = "Sequence[int]"
"""Height and width in pixels."""

detection_rule(
    "BOX015 error: masks of another size than the image",
    Wrong.MASK_SIZE,
    why="Masks as numbers are reshaped to objects x image/height x image/width: training and "
    "import stop at the record.",
    fix="Write one number for each pixel of each object's mask, and the image's size.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_instance_masks",
)
detection_rule(
    "BOX016 error: keypoints that do not go into the objects",
    Wrong.KEYPOINTS,
    why="Keypoints are reshaped to objects x points: training and import stop at the record.",
    fix="Write the same number of points for each object, and y for each x.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_keypoints",
)


@rule(
    "BOX017 warning: PNG mask of another size than the image",
    why="Trainers scale a mask as its image: it lies elsewhere than the object, or training stops. "
    "CVAT's import refuses it.",
    fix="Write masks of the stored image's height and width; draw them again if it was resized.",
    source="tensorflow/models: official/vision/dataloaders/maskrcnn_input.py, _parse_train_data",
)
def object_mask_size(key: str, size: Size, of_image: Size) -> Iterator[Problem]:
    """The header of an object's mask has another size than the image's."""
    yield _other_size(key, size, of_image)


@rule(
    "BOX018 warning: PNG mask of the whole image of another size than the image",
    why="Trainers scale a mask as its image: classes lie elsewhere than in the image.",
    fix="Write masks of the stored image's height and width; draw them again if it was resized.",
    source="tensorflow/models: official/projects/panoptic/dataloaders/"
    "panoptic_maskrcnn_input.py, which stacks both",
)
def image_mask_size(key: str, size: Size, of_image: Size) -> Iterator[Problem]:
    """The same of a mask of the whole image, of each key the first."""
    yield _other_size(key, size, of_image)


@rule(
    "BOX019 info: PNG mask with other values than 0 and 1",
    why="TF-Vision trains on the values as they are: a mask of 0 and 255 asks for 255 in place of "
    "1, and a mask of one bit is read as such. The OD API takes what is not 0.",
    fix="Write masks of 8 bits with 0 and 1, as tfod does, or set mask_binarize_threshold: 0 in "
    "the decoder of TF-Vision's experiment.",
    source="official/vision/dataloaders: tf_example_decoder.py, _decode_masks and decode; "
    "maskrcnn_input.py, gt_masks",
)
def other_mask_values(largest: int) -> Iterator[Problem]:
    """Looked for in the first masks of a batch, if images are decoded; reported once a shard.

    ``largest`` is the largest value that TensorFlow reads in a PNG mask of an object.
    """
    if largest > 1:
        what = f"{keys.MASK} has values up to {largest}, where 1 is the object"
        yield Problem(what, keys.MASK, largest, once=True)


@rule(
    "BOX020 error: mask that is not a PNG image",
    why="Trainers that load masks stop at it ('Unknown image file format'), and so does an import. "
    "A JPEG, a warning, is read with gray pixels around the object, which the OD API takes for "
    "the object and TF-Vision for numbers up to 255.",
    fix="Write each mask as a PNG of one channel with 0 and 1, as tfod does.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _decode_png_instance_masks; "
    "official/vision/dataloaders: tf_example_decoder.py, _decode_masks",
)
def not_a_png_mask(number: int, header: ImageHeader | None, looks: str) -> Iterator[Problem]:
    """Of each such mask of an object; an empty value is an object without a mask."""
    looks = FORMAT_TITLES[header.format] if header else looks
    message = f"the mask of object {number} is not a PNG image" + (f" but {looks}" if looks else "")
    is_read = header is not None and header.format == "jpeg"
    severity = Severity.WARNING if is_read else None
    yield Problem(message, keys.MASK, {"object": number}, severity=severity)


@rule(
    "BOX021 error: keypoints in pixels instead of parts of the image",
    why="Trainers and importers multiply by the image's size again: the points lie far outside.",
    fix="Divide x by the image's width and y by its height.",
    source="tensorflow/models: dataset_tools/create_coco_tf_record.py, keypoints_x; "
    "core/keypoint_ops.py, to_absolute_coordinates",
)
def keypoints_in_pixels(far: int, points: int) -> Iterator[Problem]:
    """Most of a record's points have a coordinate larger than 2; those at 0, 0 are not labelled."""
    if 2 * far > points:
        message = f"{far} of {points} keypoints look like pixels"
        yield Problem(message, keys.KEYPOINT_X, far)


def _other_size(key: str, size: Size, of_image: Size) -> Problem:
    message = f"{key} is {size[1]}x{size[0]} pixels, its image {of_image[1]}x{of_image[0]}"
    return Problem(message, feature=key)

"""Rules for the encoded image: is it one, can TensorFlow read it, is it what the record says.

What TensorFlow decodes is held by tests/training/tensorflow, which asks TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tfod.check.findings.finding import Place, Problem, Severity, plural
from tfod.check.records.images.tensorflow_images import FORMAT_TITLES, obstacle_to_decoding
from tfod.check.rules.registry import rule
from tfod.detection import keys
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.images.image_header import ImageHeader


class ImageFacts(NamedTuple):
    """What a record has for an image and says about it; equal facts are checked once.

    ``header`` is what the image's own header says, and where there is none ``size`` is the number
    of the encoded bytes and ``looks_like`` what they resemble; beside a header it is -1. The others
    are what the record says, sizes in pixels. ``boxes_need_a_turn``: see :func:`needs_a_turn`.
    """

    size: int
    header: ImageHeader | None = None
    looks_like: str = ""
    declared_format: str | None = None
    declared_height: int | None = None
    declared_width: int | None = None
    declared_channels: int | None = None
    boxes_need_a_turn: bool = False


@rule(
    "IMG001 error: the image is missing",
    why="The record parses, and then the decoder stops the training with 'Input is empty', or "
    "'Unable to decode bytes as JPEG, PNG, GIF, or BMP'.",
    fix="Write the encoded image into the record: export with images (CVAT: Save images; "
    "Datumaro: --save-images or --save-media).",
    source="tensorflow/core/kernels/image/decode_image_op.cc; cvat-ai/cvat#866, #1814",
)
def check_missing(facts: ImageFacts) -> Iterator[Problem]:
    """There is no image."""
    if facts.header is None and facts.size == 0:
        yield Problem("the encoded image is missing or empty", feature=keys.ENCODED)


@rule(
    "IMG002 error: the bytes are not an image",
    why="The decoder stops the training with 'Unknown image file format', or 'Unable to decode "
    "bytes as JPEG, PNG, GIF, or BMP'.",
    fix="Write the bytes of the image's file (JPEG or PNG), as they are on disk.",
    source="tensorflow/core/kernels/image/decode_image_op.cc",
)
def check_no_image(facts: ImageFacts) -> Iterator[Problem]:
    """There are bytes, without the header of an image."""
    if facts.header is not None or facts.size <= 0:
        return
    message = f"the {facts.size} bytes are not an image that can be read"
    raw = _raw_shape(facts)
    looks_like = f"raw pixels, {raw}" if raw else facts.looks_like
    fix = "Encode the pixels as PNG or JPEG (tf.io.encode_png, cv2.imencode)." if raw else None
    more = f": they look like {looks_like}" if looks_like else ""
    yield Problem(message + more, keys.ENCODED, fix=fix)


def _raw_shape(facts: ImageFacts) -> str:
    height, width = facts.declared_height or 0, facts.declared_width or 0
    if height <= 0 or width <= 0:
        return ""
    channels, rest = divmod(facts.size, height * width)
    likely = {1, 3, 4, facts.declared_channels}
    return f"{height} x {width} x {channels}" if not rest and channels in likely else ""


@rule(
    "IMG003 error: the image does not decode",
    why="The training stops at this record, or learns from an image that is partly gray.",
    fix="Take the image from its source again and write the record again.",
    source="Pillow, with LOAD_TRUNCATED_IMAGES off",
)
def check_decodes(reason: str) -> Iterator[Problem]:
    """The whole image was decoded, which failed."""
    yield Problem(f"the image does not decode: {reason}", feature=keys.ENCODED)


@rule(
    "IMG004 warning: the format differs from image/format",
    why="TensorFlow goes by the bytes; other readers name files by the format.",
    fix="Write the format that the bytes are.",
    source="tf_slim/data/tfexample_decoder.py, Image",
)
def check_format(facts: ImageFacts) -> Iterator[Problem]:
    """The bytes are of one format, and image/format says another."""
    header, said = facts.header, facts.declared_format
    if header and said and said not in _RAW and _known_format(said) != header.format:
        yield _other_format(header.format, said)


_RAW = ("raw", "RAW")


def _other_format(true: str, said: str) -> Problem:
    message = f"image/format says {said!r}, the bytes are a {FORMAT_TITLES[true]}"
    return Problem(message, keys.FORMAT, said, f"Write {true!r} into image/format.")


def _known_format(said: str) -> str:
    """``.JPG`` and ``image/jpeg`` are ``jpeg``."""
    name = said.strip().lower().removeprefix("image/").removeprefix(".")
    return FORMAT_OF_EXTENSION.get(f".{name}", name)


@rule(
    "IMG005 error: TensorFlow cannot use this kind of image",
    why="The TF Object Detection API decodes with tf.io.decode_image(channels=3), which knows "
    "JPEG, PNG and most BMP, and needs height x width x 3 from it: the training stops here.",
    fix="Encode the image as JPEG or PNG with 8 bits a channel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, lib/jpeg/jpeg_mem.cc, "
    "lib/png/png_io.cc; tests/training/tensorflow asks TensorFlow for each kind",
)
def check_decodable(facts: ImageFacts) -> Iterator[Problem]:
    """The header is sound, but tells of a kind that TensorFlow's op does not decode as needed."""
    obstacle = obstacle_to_decoding(facts.header) if facts.header else ""
    if facts.header and obstacle:
        yield Problem(obstacle, keys.ENCODED, facts.header.format)


@rule(
    "IMG006 error: the image's size differs from the record's",
    why="Masks are reshaped to image/height x image/width, tools scale boxes to pixels by them, "
    "and boxes may have been normalized by the wrong size.",
    fix="Write the image's own size, and see whether its boxes were normalized by that size.",
    source="object_detection/data_decoders/tf_example_decoder.py",
)
def check_size(facts: ImageFacts) -> Iterator[Problem]:
    """Where the record says a size it is the image's."""
    header = facts.header
    if header is None or not header.height or not header.width:
        return
    height, width = facts.declared_height, facts.declared_width
    wrong_height = height is not None and height > 0 and height != header.height
    wrong_width = width is not None and width > 0 and width != header.width
    if not wrong_height and not wrong_width:
        return
    message = f"{_said_size(height, width)}, the image is {header.height} x {header.width}"
    fix = None
    if (height, width) == (header.width, header.height):
        message += ": height and width are exchanged"
        fix = "Exchange image/height and image/width, and check how the boxes were normalized."
        if header.orientation >= _QUARTER:
            message += f", as after applying the EXIF orientation {header.orientation}"
            fix = _TURN
    key, value = (keys.HEIGHT, height) if wrong_height else (keys.WIDTH, width)
    yield Problem(message, key, value, fix)


_QUARTER = 5  # from this orientation on height and width are exchanged
_TURN = (
    "Turn the pixels as the orientation says (PIL.ImageOps.exif_transpose) and encode them again."
)


def _said_size(height: int | None, width: int | None) -> str:
    if height is None:
        return f"image/width says {width}"
    if width is None:
        return f"image/height says {height}"
    return f"image/height and image/width say {height} x {width}"


@rule(
    "IMG007 warning: the image is turned by its EXIF orientation",
    why="Browsers and annotation tools turn it as EXIF says, so its boxes were probably drawn on "
    "the turned image; TensorFlow does not turn it. Where the record's size or its boxes "
    "fit only the turned image they certainly were, which is an error.",
    fix=_TURN,
    source="CIPA DC-008 (EXIF), tag 0x0112; tf.io.decode_image reads no EXIF",
)
def check_orientation(facts: ImageFacts) -> Iterator[Problem]:
    """EXIF has an orientation other than 1."""
    header = facts.header
    if header is None or header.orientation == 1:
        return
    turned = header.orientation >= _QUARTER
    said = (facts.declared_height, facts.declared_width)
    exchanged = turned and header.height != header.width and said == (header.width, header.height)
    message = f"the EXIF orientation is {header.orientation}: people see it "
    message += f"{_TURNED[header.orientation]}, TensorFlow does not"
    severity = None
    if exchanged or (turned and facts.boxes_need_a_turn):
        fits = "the record's size is that of" if exchanged else "its boxes fit only"
        message += f"; {fits} the turned image, {header.width} x {header.height}"
        severity = Severity.ERROR
    yield Problem(message, keys.ENCODED, header.orientation, severity=severity)


def needs_a_turn(corners: np.ndarray, header: ImageHeader) -> bool:
    """Whether boxes reach outside the image as it is stored, and all fit it turned by a quarter.

    ``corners`` are ``xmin, ymin, xmax, ymax`` of all boxes, float64 of shape (n, 4).
    """
    furthest = corners[:, 2:].max(axis=0, initial=0)
    if not corners.min(initial=0) >= -_SLOPPY or not furthest.max() > 1 + _SLOPPY:
        return False
    stored = np.array([header.width, header.height], np.float64)
    return bool((furthest * stored <= stored[::-1] * (1 + _SLOPPY)).all())


_SLOPPY = 0.02  # of a side: so far boxes reach outside by carelessness

_TURNED = {
    2: "mirrored",
    3: "upside down",
    4: "mirrored and upside down",
    5: "mirrored and turned by 90° to the left",
    6: "turned by 90° to the right",
    7: "mirrored and turned by 90° to the right",
    8: "turned by 90° to the left",
}


@rule(
    "IMG008 warning: the SHA-256 differs from image/key/sha256",
    why="TensorFlow does not look at it, but tools that find duplicates do; and the image was "
    "changed after it was hashed, or is another one.",
    fix="Write the SHA-256 of the encoded image as 64 lower-case hexadecimal digits.",
    source="object_detection/dataset_tools/create_pascal_tf_record.py: sha256().hexdigest()",
)
def check_sha256(declared: str, actual: str) -> Iterator[Problem]:
    """The declared digest is the image's, in lower case."""
    if declared == actual:
        return
    if declared.lower() == actual:
        message = "image/key/sha256 is in upper case, writers and readers use lower case"
    elif re.fullmatch(r"[0-9a-fA-F]{64}", declared):
        message = f"image/key/sha256 is {declared[:12]}…, of the image it is {actual[:12]}…"
    else:
        message = f"image/key/sha256 is {declared[:80]!r}, not 64 hexadecimal digits"
    yield Problem(message, feature=keys.SHA256, value=declared[:80])


@rule(
    "IMG009 error: the image is cut short",
    why="TensorFlow stops with 'Invalid JPEG data or crop window' or 'Invalid PNG data'; decoders "
    "that are more lenient fill what is missing with gray.",
    fix="Take the image from its source again and write the record again.",
    source="tensorflow/core/lib/jpeg/jpeg_mem.cc: 'Premature end of JPEG data'",
)
def check_complete(facts: ImageFacts) -> Iterator[Problem]:
    """The end that the format wants is there."""
    header = facts.header
    if header is not None and not header.complete:
        end = _MISSING_END.get(header.format, "it has fewer bytes than its header announces")
        message = f"the {FORMAT_TITLES[header.format]} is cut short: {end}"
        yield Problem(message, keys.ENCODED, header.format)


_MISSING_END = {
    "jpeg": "its end mark (FF D9) is missing",
    "png": "its last chunk (IEND) is missing",
    "gif": "its trailer (3B) is missing",
}


@rule(
    "IMG010 warning: the same image twice",
    why="It weighs double in the training, and its boxes may contradict each other.",
    fix="Keep one of the two records, with the boxes of both.",
    source="the encoded bytes, compared by a checksum of 64 bits",
)
def check_same_image(first: Place, checksum: int) -> Iterator[Problem]:
    """An earlier record has the same encoded bytes."""
    message = f"the same image is in {named_record(first)}"
    yield Problem(message, keys.ENCODED, identity=f"image {checksum:016x}")


@rule(
    "IMG011 warning: an image is in several subsets",
    why="Scores on the validation or test set are too good when its images were trained on; where "
    "all of them were, which is an error, the scores say nothing.",
    fix="Keep the image in one subset only.",
    source="the encoded bytes, compared by a checksum of 64 bits",
)
def check_shared_image(
    subsets: tuple[str, str], first: Place, leaked: Mapping[str, int], checksum: int
) -> Iterator[Problem]:
    """Two subsets have the same encoded bytes: an error where a whole subset has no others, but for
    those of VOC's trainval.

    Args:
        subsets: that of the first record, and that of this one.
        first: the first record.
        leaked: subsets other than for training all of whose images are in others, and how many.
        checksum: of the image.
    """
    message = f"the image is in {subsets[1]} and in {subsets[0]}: {named_record(first)} has it"
    for subset, count in leaked.items():
        message += f"; all {plural(count, 'image')} of {subset} are in other subsets"
    severity = Severity.ERROR if leaked else None
    identity = ", ".join((f"image {checksum:016x}", *leaked))
    yield Problem(message, keys.ENCODED, [*subsets], severity=severity, identity=identity)


def named_record(place: Place) -> str:
    """``record 3 of train.record (a.jpg)``."""
    where = f"record {place.record} of {place.shard}"
    return f"{where} ({place.item})" if place.item else where


@rule(
    "IMG012 error: the height or width is not positive",
    why="Boxes cannot be scaled to pixels and masks cannot be reshaped.",
    fix="Write the image's height and width in pixels.",
    source="object_detection/data_decoders/tf_example_decoder.py",
)
def check_positive_size(facts: ImageFacts) -> Iterator[Problem]:
    """What is declared for a size can be one."""
    for key, said in ((keys.HEIGHT, facts.declared_height), (keys.WIDTH, facts.declared_width)):
        if said is not None and said <= 0:
            yield Problem(f"{key} is {said}", feature=key, value=said)


@rule(
    "IMG013 warning: TensorFlow shows the image in other colors",
    why="tf.io.decode_image takes the indices into a BMP's palette for gray values.",
    fix="Encode the image as PNG, or as BMP with 24 bits a pixel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, DecodeBMP",
)
def check_palette(facts: ImageFacts) -> Iterator[Problem]:
    """A BMP of 8 bits has a palette other than the grays."""
    header = facts.header
    if header is None or header.format != "bmp" or "palette" not in header.note:
        return
    if not obstacle_to_decoding(header):
        message = "the BMP has a palette, of which tf.io.decode_image knows nothing: "
        yield Problem(message + "it takes the indices for gray values", keys.ENCODED, "bmp")


@rule(
    "IMG014 error: an encoded image is declared as raw pixels",
    why="The decoder of the TF Object Detection API takes the bytes for pixels where image/format "
    "is 'raw' or 'RAW', and stops at their shape.",
    fix="Write the format that the bytes are into image/format.",
    source="tf_slim/data/tfexample_decoder.py, Image: decode_raw",
)
def check_raw(facts: ImageFacts) -> Iterator[Problem]:
    """The bytes have the header of an image, and image/format says that they are pixels."""
    header, said = facts.header, facts.declared_format
    if header and said in _RAW:
        yield _other_format(header.format, said)


@rule(
    "IMG015 error: boxes of an image of unknown size",
    why="CVAT and Datumaro have boxes in pixels: tfod stops at such a record, since it cannot "
    "scale them. The trainer does not need the size.",
    fix="Write image/height and image/width into every record.",
    source="tfod.datumaro.reader; cvat-ai/datumaro: plugins/data_formats/tf_detection_api",
)
def check_size_known(boxes: int) -> Iterator[Problem]:
    """Neither image/height and image/width say it, nor the header of an encoded image."""
    yield Problem(f"the size of the image is not known, and it has {plural(boxes, 'box')}")


@rule(
    "IMG016 warning: only some records have an image",
    why="A trainer stops at the first one without: 'Unable to decode bytes as JPEG, PNG, GIF, or "
    "BMP'. CVAT wrote such records for the frames of a video that were skipped.",
    fix="Leave the records without an image out, or export again with images (CVAT: Save images).",
    source="cvat-ai/cvat#1814",
)
def check_some_images(images: int, records: int) -> Iterator[Problem]:
    """Records have no image, beside others that have one; where none has, nothing is missing."""
    if 0 < images < records:
        message = f"{plural(records - images, 'record')} of {records:,} have no image, the others "
        yield Problem(f"{message}have one", amount=records - images)

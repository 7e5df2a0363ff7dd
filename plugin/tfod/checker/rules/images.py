"""Rules for the encoded image: is it one, can TensorFlow read it, is it what the record says.

What TensorFlow decodes is held by tests/training/tensorflow, which asks TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.duplicates import Repeat
from tfod.checker.analysis.encoded_images import FORMAT_TITLES, ImageFacts
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Place, Severity, plural
from tfod.checker.rules.registry import dataset_rule, detection_rule, each_image, rule
from tfod.checker.rules.tensorflow_images import obstacle_to_decoding
from tfod.detection import keys
from tfod.detection.images.image import FIRST_TRANSPOSED
from tfod.detection.problems import READ


@rule(
    "IMG001 error: the image is missing",
    why="The record parses, and then the decoder stops the training with 'Input is empty', or "
    "'Unable to decode bytes as JPEG, PNG, GIF, or BMP'.",
    fix="Write the encoded image into the record: export with images (CVAT: Save images; "
    "Datumaro: --save-images or --save-media).",
    source="tensorflow/core/kernels/image/decode_image_op.cc; cvat-ai/cvat#866, #1814",
)
@each_image
def check_missing(facts: ImageFacts) -> Iterator[Finding]:
    """There is no image."""
    if facts.header is None and facts.size == 0:
        yield Finding("the encoded image is missing or empty", keys.ENCODED)


@rule(
    "IMG002 error: the bytes are not an image",
    why="The decoder stops the training with 'Unknown image file format', or 'Unable to decode "
    "bytes as JPEG, PNG, GIF, or BMP'.",
    fix="Write the bytes of the image's file (JPEG or PNG), as they are on disk.",
    source="tensorflow/core/kernels/image/decode_image_op.cc",
)
@each_image
def check_no_image(facts: ImageFacts) -> Iterator[Finding]:
    """There are bytes, without the header of an image."""
    if facts.header is not None or facts.size <= 0:
        return
    message = f"the {facts.size} bytes are not an image that can be read"
    raw = _raw_shape(facts)
    looks_like = f"raw pixels, {raw}" if raw else facts.looks_like
    fix = "Encode the pixels as PNG or JPEG (tf.io.encode_png, cv2.imencode)." if raw else ""
    more = f": they look like {looks_like}" if looks_like else ""
    yield Finding(message + more, keys.ENCODED, fix=fix)


def _raw_shape(facts: ImageFacts) -> str:
    height, width = facts.declared_height or 0, facts.declared_width or 0
    if height <= 0 or width <= 0:
        return ""
    channels, rest = divmod(facts.size, height * width)
    return f"{height} x {width} x {channels}" if not rest and channels in (1, 3, 4) else ""


@rule(
    "IMG003 error: the image does not decode",
    why="The training stops at this record, or learns from an image that is partly gray.",
    fix="Take the image from its source again and write the record again.",
    source="Pillow, with LOAD_TRUNCATED_IMAGES off",
)
def check_decodes(batch: Batch) -> Iterator[Finding]:
    """The whole image was decoded, which failed.

    Of one that is cut short, or that TensorFlow does not know, another rule tells.
    """
    for row, image in batch.images.by_row.items():
        header = batch.images.headers[row]
        if image.failure and header and header.complete and not obstacle_to_decoding(header):
            message = f"the image does not decode: {image.failure}"
            yield batch.finding(row, message, batch.own(keys.ENCODED))


@rule(
    "IMG004 warning: the format differs from image/format",
    why="TensorFlow goes by the bytes; other readers name files by the format.",
    fix="Write the format that the bytes are.",
    source="tf_slim/data/tfexample_decoder.py, Image",
    repair="image/format says what the bytes are.",
)
@each_image
def check_format(facts: ImageFacts) -> Iterator[Finding]:
    """The bytes are of one format, and image/format says another."""
    if facts.says_another_format:
        yield _other_format(facts)


def _other_format(facts: ImageFacts) -> Finding:
    true, said = facts.header.format if facts.header else "", facts.declared_format
    message = f"image/format says {said!r:.81}, the bytes are a {FORMAT_TITLES[true]}"
    return Finding(message, keys.FORMAT, said, f"Write {true!r} into image/format.")


@rule(
    "IMG005 error: TensorFlow cannot use this kind of image",
    why="The TF Object Detection API decodes with tf.io.decode_image(channels=3), which knows "
    "JPEG, PNG and most BMP, and needs height x width x 3 from it: the training stops here.",
    fix="Encode the image as JPEG or PNG with 8 bits a channel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, lib/jpeg/jpeg_mem.cc, "
    "lib/png/png_io.cc; tests/training/tensorflow asks TensorFlow for each kind",
)
@each_image
def check_decodable(facts: ImageFacts) -> Iterator[Finding]:
    """The header is sound, but tells of a kind that TensorFlow's op does not decode as needed."""
    obstacle = obstacle_to_decoding(facts.header) if facts.header else ""
    if facts.header and obstacle:
        yield Finding(obstacle, keys.ENCODED, facts.header.format)


@rule(
    "IMG006 error: the image's size differs from the record's",
    why="Masks are reshaped to image/height x image/width, tools scale boxes to pixels by them, "
    "and boxes may have been normalized by the wrong size.",
    fix="Write the image's own size, and see whether its boxes were normalized by that size.",
    source="object_detection/data_decoders/tf_example_decoder.py",
    repair="Height and width are taken from the image. They stay where they are those of "
    "the image turned by EXIF, where masks of numbers have the size that is said, "
    "and beside boxes far outside the image, which are in doubt for it.",
)
@each_image
def check_size(facts: ImageFacts) -> Iterator[Finding]:
    """Where the record says a size it is the image's."""
    header, sides = facts.header, facts.other_sides
    if header is None or not sides:
        return
    height, width = facts.declared_height, facts.declared_width
    message = f"{_said_size(height, width)}, the image is {header.height} x {header.width}"
    fix = ""
    if (height, width) == (header.width, header.height):
        message += ": height and width are exchanged"
        fix = "Exchange image/height and image/width, and check how the boxes were normalized."
        if header.orientation >= FIRST_TRANSPOSED:
            message += f", as after applying the EXIF orientation {header.orientation}"
            fix = _TURN
    yield Finding(message, sides[0], height if sides[0] == keys.HEIGHT else width, fix)


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
    cases={"turned": Severity.ERROR},
)
@each_image
def check_orientation(facts: ImageFacts) -> Iterator[Finding]:
    """EXIF has an orientation other than 1."""
    header = facts.header
    if header is None or header.orientation == 1:
        return
    turned = header.orientation >= FIRST_TRANSPOSED
    said = (facts.declared_height, facts.declared_width)
    exchanged = turned and header.height != header.width and said == (header.width, header.height)
    message = f"the EXIF orientation is {header.orientation}: people see it "
    message += f"{_TURNED[header.orientation]}, TensorFlow does not"
    case = ""
    if exchanged or (turned and facts.boxes_need_a_turn):
        fits = "the record's size is that of" if exchanged else "its boxes fit only"
        message += f"; {fits} the turned image, {header.width} x {header.height}"
        case = "turned"
    yield Finding(message, keys.ENCODED, header.orientation, case=case)


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
def check_sha256(batch: Batch) -> Iterator[Finding]:
    """The declared digest is not the image's, in lower case."""
    for row, image in batch.images.by_row.items():
        declared = batch.detections.sha256s[row]
        if not declared or declared == image.sha256:
            continue
        if declared.lower() == image.sha256:
            message = "is in upper case, writers and readers use lower case"
        elif re.fullmatch(r"[0-9a-fA-F]{64}", declared):
            message = f"is {declared[:12]}…, of the image it is {image.sha256[:12]}…"
        else:
            message = f"is {declared[:80]!r}, not 64 hexadecimal digits"
        key = batch.own(keys.SHA256)
        yield batch.finding(row, f"{key} {message}", key, declared[:80])


@rule(
    "IMG009 error: the image is cut short",
    why="TensorFlow stops with 'Invalid JPEG data or crop window' or 'Invalid PNG data'; decoders "
    "that are more lenient fill what is missing with gray.",
    fix="Take the image from its source again and write the record again.",
    source="tensorflow/core/lib/jpeg/jpeg_mem.cc: 'Premature end of JPEG data'",
)
@each_image
def check_complete(facts: ImageFacts) -> Iterator[Finding]:
    """The end that the format wants is there."""
    header = facts.header
    if header is not None and not header.complete:
        end = _MISSING_END.get(header.format, "it has fewer bytes than its header announces")
        message = f"the {FORMAT_TITLES[header.format]} is cut short: {end}"
        yield Finding(message, keys.ENCODED, header.format)


_MISSING_END = {
    "jpeg": "its end mark (FF D9) is missing",
    "png": "its last chunk (IEND) is missing",
    "gif": "its trailer (3B) is missing",
}


@dataset_rule(
    "IMG010 warning: the same image twice",
    why="It weighs double in the training, and its boxes may contradict each other.",
    fix="Keep one of the two records, with the boxes of both.",
    source="the encoded bytes, compared by a checksum of 64 bits",
)
def check_same_image(result: DatasetResult) -> Iterator[Finding]:
    """An earlier record of the same subset has the same encoded bytes."""

    def make(one: Repeat) -> Finding:
        message = f"the same image is in {named_record(one.first)}"
        return Finding(message, result.profile.key_for(keys.ENCODED), f"{one.image:016x}").at(
            one.place
        )

    return result.repeat_findings(result.duplicates.in_subset(keys.ENCODED), make)


@dataset_rule(
    "IMG011 warning: an image is in several subsets",
    why="Scores on the validation or test set are too good when its images were trained on; where "
    "all of them were, which is an error, the scores say nothing.",
    fix="Keep the image in one subset only.",
    source="the encoded bytes, compared by a checksum of 64 bits",
    cases={"whole-subset": Severity.ERROR},
)
def check_shared_image(result: DatasetResult) -> Iterator[Finding]:
    """Two subsets have the same encoded bytes: an error where a whole subset has no others, but for
    those of VOC's trainval.
    """
    leaked = result.duplicates.leaked_subsets
    more = "".join(
        f"; all {plural(count, 'image')} of {subset} are in other subsets"
        for subset, count in leaked.items()
    )

    def make(one: Repeat) -> Finding:
        message = f"the image is in {one.subset} and in {one.first_subset}: "
        message += f"{named_record(one.first)} has it{more}"
        key = result.profile.key_for(keys.ENCODED)
        value = list[JsonValue]([one.first_subset, one.subset])
        return Finding(message, key, value, case=case).at(one.place)

    case = "whole-subset" if leaked else ""
    return result.repeat_findings(result.duplicates.shared_images, make, case)


def named_record(place: Place) -> str:
    """``record 3 of train.record (a.jpg)``."""
    where = f"record {place.record} of {place.shard}"
    return f"{where} ({place.item:.80})" if place.item else where


@rule(
    "IMG012 error: the height or width is not positive",
    why="Boxes cannot be scaled to pixels and masks cannot be reshaped.",
    fix="Write the image's height and width in pixels.",
    source="object_detection/data_decoders/tf_example_decoder.py",
    repair="Height and width are taken from the image, if it is in the record.",
)
@each_image
def check_positive_size(facts: ImageFacts) -> Iterator[Finding]:
    """What is declared for a size can be one."""
    for key, said in facts.no_sides.items():
        yield Finding(f"{key} is {said}", key, said)


@rule(
    "IMG013 warning: TensorFlow shows the image in other colors",
    why="tf.io.decode_image takes the indices into a BMP's palette for gray values.",
    fix="Encode the image as PNG, or as BMP with 24 bits a pixel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, DecodeBMP",
)
@each_image
def check_palette(facts: ImageFacts) -> Iterator[Finding]:
    """A BMP of 8 bits has a palette other than the grays."""
    header = facts.header
    if header is None or header.format != "bmp" or "palette" not in header.note:
        return
    if not obstacle_to_decoding(header):
        message = "the BMP has a palette, of which tf.io.decode_image knows nothing: "
        yield Finding(message + "it takes the indices for gray values", keys.ENCODED, "bmp")


@rule(
    "IMG014 error: an encoded image is declared as raw pixels",
    why="The decoder of the TF Object Detection API takes the bytes for pixels where image/format "
    "is 'raw' or 'RAW', and stops at their shape.",
    fix="Write the format that the bytes are into image/format.",
    source="tf_slim/data/tfexample_decoder.py, Image: decode_raw",
    repair="image/format says what the bytes are.",
)
@each_image
def check_raw(facts: ImageFacts) -> Iterator[Finding]:
    """The bytes have the header of an image, and image/format says that they are pixels."""
    if facts.says_raw:
        yield _other_format(facts)


detection_rule(
    "IMG015 error: boxes of an image of unknown size",
    why="CVAT and Datumaro have boxes in pixels: tfod stops at such a record, since it cannot "
    "scale them. The trainer does not need the size.",
    fix="Write image/height and image/width into every record.",
    source="tfod.datumaro.dataset_base; cvat-ai/datumaro: plugins/data_formats/tf_detection_api",
    cases={READ: Severity.ERROR},
)


@dataset_rule(
    "IMG016 warning: only some records have an image",
    why="A trainer stops at the first one without: 'Unable to decode bytes as JPEG, PNG, GIF, or "
    "BMP'. CVAT wrote such records for the frames of a video that were skipped.",
    fix="Leave the records without an image out, or export again with images (CVAT: Save images).",
    source="cvat-ai/cvat#1814",
)
def check_some_images(result: DatasetResult) -> Iterator[Finding]:
    """Records have no image, beside others that have one; where none has, nothing is missing.

    Where IMG001 is on it says it of each record, and of records that cannot be read others do.
    """
    if result.findings.levels["IMG001"]:
        return
    for shard in result.shards:
        is_read = not result.count("EXA001", shard.name) and not result.count("EXA002", shard.name)
        if 0 < shard.images < shard.records and is_read:
            lacking = plural(shard.records - shard.images, "record")
            message = f"{lacking} of {shard.records:,} have no image, the others have one"
            yield Finding(message=message, shard=shard.name)


@rule(
    "IMG017 error: TensorFlow decodes the 16-bit PNG to black",
    why="tf.io.decode_image keeps the high byte of each value: values below 256 become 0. Values "
    "below 4,096, a warning, become 0 to 15 of 255: nearly black.",
    fix="Scale the values to 0 to 255 and write a PNG with 8 bits per channel.",
    source="tensorflow/core/lib/png/png_io.cc, png_set_strip_16",
    cases={"dark": Severity.WARNING},
)
def check_dark(batch: Batch) -> Iterator[Finding]:
    """The largest value of a decoded image needs at most 12 of 16 bits."""
    for row, image in batch.images.by_row.items():
        if 0 < image.brightest < 1 << 12:
            message = f"values of 16 bits up to {image.brightest} become "
            message += f"{image.brightest >> 8} of 255 at most"
            case = "dark" if image.brightest > 255 else ""
            yield batch.finding(row, message, batch.own(keys.ENCODED), case=case)

"""IMG rules: the encoded image, and the size and format that the record declares for it.

tests/training/tensorflow compares these rules with the decoders of TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.duplicates import Repeat
from tfod.checker.analysis.encoded_images import FORMAT_TITLES, ImageFacts
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Location, Severity, plural
from tfod.checker.rules.registry import dataset_rule, detection_rule, each_image, rule
from tfod.checker.rules.tensorflow_images import find_decoding_obstacle
from tfod.detection import keys
from tfod.detection.images.image import FIRST_TRANSPOSED
from tfod.detection.problems import READ
from tfod.errors import excerpt, truncate


@rule(
    "IMG001 error: the image is missing",
    why="The record can be parsed, but training stops in the decoder with 'Input is empty' or "
    "'Unable to decode bytes as JPEG, PNG, GIF, or BMP'.",
    fix="Export again with images (CVAT: Save images; Datumaro: --save-images or --save-media), or "
    "write the encoded image in {script}.",
    source="tensorflow/core/kernels/image/decode_image_op.cc; cvat-ai/cvat#866, #1814",
)
@each_image
def _check_missing(facts: ImageFacts) -> Iterator[Finding]:
    if facts.header is None and facts.size == 0:
        yield Finding("the encoded image is missing or empty", keys.ENCODED)


@rule(
    "IMG002 error: the bytes are not an image",
    why="Training stops in the decoder with 'Unknown image file format' or 'Unable to decode "
    "bytes as JPEG, PNG, GIF, or BMP'.",
    fix="In {script}, write the unchanged bytes of the image file (JPEG or PNG).",
    source="tensorflow/core/kernels/image/decode_image_op.cc",
)
@each_image
def _check_no_image(facts: ImageFacts) -> Iterator[Finding]:
    if facts.header is not None or facts.size <= 0:
        return
    message = f"the {facts.size} bytes are not a readable image"
    raw = _guess_raw_shape(facts)
    looks_like = f"raw pixels, {raw}" if raw else facts.looks_like
    fix = "In {script}, encode the pixels (tf.io.encode_png, cv2.imencode)." if raw else ""
    suffix = f": they look like {looks_like}" if looks_like else ""
    yield Finding(message + suffix, keys.ENCODED, fix=fix)


def _guess_raw_shape(facts: ImageFacts) -> str:
    height, width = facts.declared_height or 0, facts.declared_width or 0
    if height <= 0 or width <= 0:
        return ""
    channels, remainder = divmod(facts.size, height * width)
    return f"{height} x {width} x {channels}" if not remainder and channels in (1, 3, 4) else ""


@rule(
    "IMG003 error: the image does not decode",
    why="Training stops at this record, or uses an image that is partly gray.",
    fix="Get {image} from its source again, and write the record again.",
    source="Pillow, with LOAD_TRUNCATED_IMAGES off",
)
def _check_decodes(batch: Batch) -> Iterator[Finding]:
    """Report images that fail to decode, except for those that IMG005 or IMG009 reports."""
    for row, image in batch.images.by_row.items():
        header = batch.images.headers[row]
        if image.failure and header and header.complete and not find_decoding_obstacle(header):
            message = f"the image does not decode: {image.failure}"
            yield batch.finding(row, message, batch.key_for(keys.ENCODED))


@rule(
    "IMG004 warning: the format differs from image/format",
    why="TensorFlow uses the format of the bytes; other readers name files by image/format.",
    fix="In {script}, write the format of the image into image/format.",
    source="tf_slim/data/tfexample_decoder.py, Image",
    repair="image/format is set to the format of the image.",
)
@each_image
def _check_format(facts: ImageFacts) -> Iterator[Finding]:
    if facts.has_wrong_format:
        yield _report_format(facts)


def _report_format(facts: ImageFacts) -> Finding:
    actual, declared = facts.header.format if facts.header else "", facts.declared_format
    message = f"image/format is {excerpt(declared)}, but the image is a {FORMAT_TITLES[actual]}"
    fix = f"In {{script}}, write {actual!r} into image/format."
    return Finding(message, keys.FORMAT, declared, fix)


@rule(
    "IMG005 error: TensorFlow cannot use this kind of image",
    why="The TF Object Detection API decodes with tf.io.decode_image(channels=3), which supports "
    "JPEG, PNG and most BMP files, and needs height x width x 3. Training stops at this image.",
    fix="In {script}, encode the image as JPEG or PNG with 8 bits per channel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, lib/jpeg/jpeg_mem.cc, "
    "lib/png/png_io.cc; tests/training/tensorflow asks TensorFlow for each kind",
)
@each_image
def _check_decodable(facts: ImageFacts) -> Iterator[Finding]:
    obstacle = find_decoding_obstacle(facts.header) if facts.header else ""
    if facts.header and obstacle:
        yield Finding(obstacle, keys.ENCODED, facts.header.format)


@rule(
    "IMG006 error: image size differs from image/height and image/width",
    why="Masks are reshaped to image/height x image/width, tools use them to scale boxes to "
    "pixels, and boxes may have been normalized by the wrong size.",
    fix="In {script}, write the size of the image, and check that its boxes were normalized by it.",
    source="object_detection/data_decoders/tf_example_decoder.py",
    repair="Height and width are set to the size of the image. They are not changed if they match "
    "the image after its EXIF rotation, if numerical masks have the recorded size, or if boxes lie "
    "far outside the image: the boxes may then be normalized by the recorded size.",
)
@each_image
def _check_size(facts: ImageFacts) -> Iterator[Finding]:
    header, sides = facts.header, facts.wrong_size_keys
    if header is None or not sides:
        return
    height, width = facts.declared_height, facts.declared_width
    message = f"{_describe_size(height, width)}, but the image is {header.height} x {header.width}"
    fix = ""
    if facts.is_swapped:
        message += ": height and width are swapped"
        fix = "In {script}, swap height and width, and check how the boxes were normalized."
        if header.orientation >= FIRST_TRANSPOSED:
            message += f", as after applying the EXIF orientation {header.orientation}"
            fix = _APPLY_EXIF
    value = height if sides[0] == keys.HEIGHT else width
    yield Finding(message, sides[0], value, fix, is_repairable=facts.is_size_repairable)


_APPLY_EXIF = "In {script}, apply the EXIF orientation to the pixels (PIL.ImageOps.exif_transpose)."


def _describe_size(height: int | None, width: int | None) -> str:
    if height is None:
        return f"image/width is {width}"
    if width is None:
        return f"image/height is {height}"
    return f"image/height and image/width are {height} x {width}"


@rule(
    "IMG007 warning: the image has an EXIF rotation",
    why="Browsers and annotation tools apply the EXIF rotation, so the boxes were probably drawn "
    "on the rotated image. TensorFlow does not apply it. If the recorded size or the boxes fit "
    "only the rotated image, this is certain, and an error.",
    fix=f"{_APPLY_EXIF[:-1]}, or write an upright copy: tfod convert SOURCE upright --to shards",
    source="CIPA DC-008 (EXIF), tag 0x0112; tf.io.decode_image reads no EXIF",
    cases={"turned": Severity.ERROR},
)
@each_image
def _check_orientation(facts: ImageFacts) -> Iterator[Finding]:
    header = facts.header
    if header is None or header.orientation == 1:
        return
    is_turned = header.orientation >= FIRST_TRANSPOSED
    is_square = header.height == header.width
    is_swapped = is_turned and not is_square and facts.is_swapped
    message = f"the EXIF orientation is {header.orientation}: viewers show the image "
    message += f"{_ORIENTATIONS[header.orientation]}, TensorFlow does not"
    case = ""
    if is_swapped or (is_turned and facts.boxes_need_rotation):
        match = "the record has the size of" if is_swapped else "the boxes only fit"
        message += f"; {match} the rotated image, {header.width} x {header.height}"
        case = "turned"
    yield Finding(message, keys.ENCODED, header.orientation, case=case)


_ORIENTATIONS = {
    2: "mirrored",
    3: "upside down",
    4: "mirrored and upside down",
    5: "mirrored and rotated by 90° to the left",
    6: "rotated by 90° to the right",
    7: "mirrored and rotated by 90° to the right",
    8: "rotated by 90° to the left",
}


@rule(
    "IMG008 warning: the SHA-256 differs from image/key/sha256",
    why="TensorFlow ignores the checksum, but tools that find duplicates use it. Either the image "
    "was changed after the checksum was computed, or it is a different image.",
    fix="In {script}, write the SHA-256 of the encoded image as 64 lowercase hexadecimal digits.",
    source="object_detection/dataset_tools/create_pascal_tf_record.py: sha256().hexdigest()",
)
def _check_sha256(batch: Batch) -> Iterator[Finding]:
    for row, image in batch.images.by_row.items():
        declared = batch.detections.sha256s[row]
        if not declared or declared == image.sha256:
            continue
        if declared.lower() == image.sha256:
            message = "is in uppercase, but tools write and read lowercase"
        elif re.fullmatch(r"[0-9a-fA-F]{64}", declared):
            message = f"is {declared[:12]}…, but the image has {image.sha256[:12]}…"
        else:
            message = f"is {excerpt(declared)}, not 64 hexadecimal digits"
        key = batch.key_for(keys.SHA256)
        yield batch.finding(row, f"{key} {message}", key, declared)


@rule(
    "IMG009 error: the image is truncated",
    why="TensorFlow stops with 'Invalid JPEG data or crop window' or 'Invalid PNG data'; more "
    "lenient decoders fill the missing part with gray.",
    fix="Get {image} from its source again, and write the record again.",
    source="tensorflow/core/lib/jpeg/jpeg_mem.cc: 'Premature end of JPEG data'",
)
@each_image
def _check_complete(facts: ImageFacts) -> Iterator[Finding]:
    header = facts.header
    if header is not None and not header.complete:
        reason = _MISSING_END.get(header.format, "it has fewer bytes than its header declares")
        message = f"the {FORMAT_TITLES[header.format]} is truncated: {reason}"
        yield Finding(message, keys.ENCODED, header.format)


_MISSING_END = {
    "jpeg": "its end marker (FF D9) is missing",
    "png": "its last chunk (IEND) is missing",
    "gif": "its trailer (3B) is missing",
}


@dataset_rule(
    "IMG010 warning: duplicate image",
    why="It counts twice in training, and the boxes of the two records may contradict each other.",
    fix="In {script}, keep one of the two records, with the boxes of both.",
    source="the encoded bytes, compared by a checksum of 64 bits",
)
def _check_same_image(result: DatasetResult) -> Iterator[Finding]:
    key = result.profile.key_for(keys.ENCODED)

    def make_finding(repeat: Repeat) -> Finding:
        message = f"the same image is in {_describe_record(repeat.first)}"
        return Finding(message, key, f"{repeat.image:016x}").at(repeat.location)

    return result.repeat_findings(result.duplicates.find_repeats(keys.ENCODED), make_finding)


@dataset_rule(
    "IMG011 warning: an image is in several subsets",
    why="Validation or test scores are too high if the model was trained on the same images. If "
    "that is true of all images of the subset, which is an error, the scores are meaningless.",
    fix="In {script}, keep the image in one subset only.",
    source="the encoded bytes, compared by a checksum of 64 bits",
    cases={"whole-subset": Severity.ERROR},
)
def _check_shared_image(result: DatasetResult) -> Iterator[Finding]:
    """Report images in several subsets, as an error if they are all images of a subset."""
    leaked = result.duplicates.leaked_subsets
    suffix = "".join(
        f"; all {plural(count, 'image')} of {subset} are in other subsets"
        for subset, count in leaked.items()
    )

    def make_finding(repeat: Repeat) -> Finding:
        message = f"the image is in {repeat.subset}, and also in {repeat.first_subset}: "
        message += f"{_describe_record(repeat.first)}{suffix}"
        key = result.profile.key_for(keys.ENCODED)
        value = list[JsonValue]([repeat.first_subset, repeat.subset])
        return Finding(message, key, value, case=case).at(repeat.location)

    case = "whole-subset" if leaked else ""
    return result.repeat_findings(result.duplicates.shared_images, make_finding, case)


def _describe_record(location: Location) -> str:
    record = f"record {location.record} of {location.shard}"
    return f"{record} ({truncate(location.item)})" if location.item else record


@rule(
    "IMG012 error: the height or width is not positive",
    why="Boxes cannot be scaled to pixels and masks cannot be reshaped.",
    fix="In {script}, write the height and width of the image in pixels.",
    source="object_detection/data_decoders/tf_example_decoder.py",
    repair="Height and width are set to the size of the image, if the record contains an image.",
)
@each_image
def _check_positive_size(facts: ImageFacts) -> Iterator[Finding]:
    for key, side in facts.invalid_sizes.items():
        is_repairable = facts.header is not None
        yield Finding(f"{key} is {side}", key, side, is_repairable=is_repairable)


@rule(
    "IMG013 warning: TensorFlow decodes the image with wrong colors",
    why="tf.io.decode_image ignores the palette of a BMP and uses its indices as gray values.",
    fix="In {script}, encode the image as PNG, or as BMP with 24 bits per pixel.",
    source="tensorflow/core/kernels/image/decode_image_op.cc, DecodeBMP",
)
@each_image
def _check_palette(facts: ImageFacts) -> Iterator[Finding]:
    """Report 8-bit BMPs with a palette that is not grayscale."""
    header = facts.header
    if header is None or header.format != "bmp" or "palette" not in header.note:
        return
    if not find_decoding_obstacle(header):
        message = "tf.io.decode_image uses the palette indices of the BMP as gray values"
        yield Finding(message, keys.ENCODED, "bmp")


@rule(
    "IMG014 error: an encoded image is declared as raw pixels",
    why="If image/format is 'raw' or 'RAW', the TF Object Detection API treats the bytes as raw "
    "pixels, and fails because their number does not match the image size.",
    fix="In {script}, write the format of the image into image/format.",
    source="tf_slim/data/tfexample_decoder.py, Image: decode_raw",
    repair="image/format is set to the format of the image.",
)
@each_image
def _check_raw(facts: ImageFacts) -> Iterator[Finding]:
    if facts.is_declared_raw:
        yield _report_format(facts)


detection_rule(
    "IMG015 error: record with boxes has no image size",
    why="CVAT and Datumaro use boxes in pixels. Without the image size, tfod cannot convert the "
    "boxes, and stops at the record. The trainer does not need the size.",
    fix="In {script}, write image/height and image/width into every record.",
    source="tfod.datumaro.dataset_base; cvat-ai/datumaro: plugins/data_formats/tf_detection_api",
    cases={READ: Severity.ERROR},
)


@dataset_rule(
    "IMG016 warning: only some records have an image",
    why="Training stops at the first record without an image: 'Unable to decode bytes as JPEG, "
    "PNG, GIF, or BMP'. CVAT wrote such records for skipped frames of a video.",
    fix="Export again with images (CVAT: Save images), or omit these records in {script}.",
    source="cvat-ai/cvat#1814",
)
def _check_some_images(result: DatasetResult) -> Iterator[Finding]:
    """Report shards where only some records have an image, unless IMG001 reports each record."""
    if result.findings.levels["IMG001"]:
        return
    for shard in result.shards:
        is_read = not result.count("EXA001", shard.name) and not result.count("EXA002", shard.name)
        if 0 < shard.images < shard.records and is_read:
            lacking = plural(shard.records - shard.images, "record")
            message = f"no image in {lacking} of {shard.records:,}"
            yield Finding(message=message, shard=shard.name)


@rule(
    "IMG017 error: TensorFlow decodes the 16-bit PNG to black",
    why="tf.io.decode_image keeps the high byte of each value: values below 256 become 0. Values "
    "below 4,096, a warning, become 0 to 15 of 255: nearly black.",
    fix="In {script}, scale the values to 0 to 255 and write a PNG with 8 bits per channel.",
    source="tensorflow/core/lib/png/png_io.cc, png_set_strip_16",
    cases={"dark": Severity.WARNING},
)
def _check_dark(batch: Batch) -> Iterator[Finding]:
    """Report decoded images whose largest value needs at most 12 of 16 bits."""
    for row, image in batch.images.by_row.items():
        if 0 < image.brightest < 1 << 12:
            largest = image.brightest >> 8
            message = f"16-bit values up to {image.brightest} become at most {largest} of 255"
            case = "dark" if image.brightest > 255 else ""
            yield batch.finding(row, message, batch.key_for(keys.ENCODED), case=case)

"""NAM rules: file names and source ids, which identify an image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.duplicates import Repeat
from tfod.checker.analysis.encoded_images import looks_like
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, Severity, size
from tfod.checker.rules.registry import dataset_rule, rule
from tfod.detection import keys
from tfod.detection.columns import select_single_values
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.images.source_ids import find_unusual_source_ids
from tfod.errors import excerpt
from tfod.example.wire import Kind
from tfod.tfrecord.image_names import split_extension

_MATCH = "opencv/cvat: apps/dataset_manager/bindings.py, match_dm_item"
_READ_BY_TENSORFLOW = ("jpeg", "png", "gif", "bmp")
_DRIVE = re.compile(r"[A-Za-z]:")
_MIN_IMAGE_BYTES, _MAX_NAME_BYTES = 64, 255
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode categories
_JOINERS = "\u200c\u200d"  # invisible, but needed in Persian, Hindi and emoji


@rule(
    "NAM001 error: file name missing",
    why="CVAT and Datumaro match images by name, so the objects of this image are lost. The "
    "trainer ignores the name.",
    fix="In {script}, write the image's file name.",
    source=f"{_MATCH}; Datumaro: tf_detection_api makes it the item's id",
    cases={"required": Severity.ERROR},
)
def _check_name(batch: Batch) -> Iterator[Finding]:
    return _report_missing_names(batch, have_objects=True)


@dataset_rule(
    "NAM002 warning: duplicate file name",
    why="Annotations of two records end up on one image, or the second record replaces the first.",
    fix="In {script}, give every image a unique name, or merge the records.",
    source=_MATCH,
)
def _check_duplicate_names(result: DatasetResult) -> Iterator[Finding]:
    key = result.profile.field_mapping.filename
    return _report_repeats(result, keys.FILENAME, key, "name", lambda item: item.location.item)


def _report_repeats(
    result: DatasetResult,
    kind: str,
    key: str | None,
    noun: str,
    get: Callable[[Repeat], str | None],
) -> Iterator[Finding]:
    def make_finding(repeat: Repeat) -> Finding:
        text, first = get(repeat) or "", repeat.first
        message = f"{excerpt(text)} is also the {noun} of record {first.record} of {first.shard}"
        return Finding(message, key, text).at(repeat.location)

    return result.repeat_findings(result.duplicates.find_repeats(kind), make_finding)


@rule(
    "NAM003 warning: file name without an extension",
    why="Tools that save the image do not know which extension to use.",
    fix="In {script}, add .jpg or .png, according to the image format.",
    source="cvat-ai/datumaro: the extension decides how an image is saved",
)
def _check_extension(batch: Batch) -> Iterator[Finding]:
    for row, name in batch.find_wrong_names(lambda name: not split_extension(name)[1]):
        if name.strip():
            yield _report_name(batch, row, f"{excerpt(name)} has no extension")


@rule(
    "NAM004 warning: extension differs from the image format",
    why="Tools save the image with an extension that does not match its format.",
    fix="In {script}, rename the image to match its format, or convert it to match its extension.",
    source="cvat-ai/datumaro#35",
)
def _check_extension_format(batch: Batch) -> Iterator[Finding]:
    detections = batch.detections
    headers = detections.headers if batch.mapping.filename is not None else ()
    for row, header in enumerate(headers):
        name = detections.filenames[row]
        if header and name and batch.live[row]:
            name_format = FORMAT_OF_EXTENSION.get(split_extension(name)[1].lower(), header.format)
            # A PNG may keep the name of an image that TensorFlow does not read, such as a.webp.
            is_converted = header.format == "png" and name_format not in _READ_BY_TENSORFLOW
            if name_format != header.format and not is_converted:
                yield _report_name(batch, row, f"{excerpt(name)} is a {header.format.upper()}")


@rule(
    "NAM005 warning: file name points outside its folder",
    why="The path belongs to another computer. It matches no frame in CVAT, and writing a file to "
    "it is dangerous.",
    fix="In {script}, write the name relative to the dataset folder, with forward slashes.",
    source=f"CWE-22; {_MATCH}",
)
def _check_relative_path(batch: Batch) -> Iterator[Finding]:
    for row, name in batch.find_wrong_names(_describe_path):
        yield _report_name(batch, row, f"{excerpt(name)} {_describe_path(name)}")


def _describe_path(name: str) -> str | None:
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        return "is an absolute path"
    if ".." in name.replace("\\", "/").split("/"):
        return "points outside its folder"
    return "has backslashes" if "\\" in name else None


@rule(
    "NAM006 error: control character in the file name",
    why="Some systems do not allow such file names, and they can corrupt logs and terminals.",
    fix="In {script}, remove line breaks, tabs and other invisible characters from the name.",
    source="CWE-117; CWE-158",
)
def _check_control_characters(batch: Batch) -> Iterator[Finding]:
    for row, name in batch.find_wrong_names(_find_invisible):
        message = f"{excerpt(name)} has the character {_find_invisible(name)!r}"
        yield _report_name(batch, row, message)


def _find_invisible(name: str) -> str | None:
    letters = (letter for letter in name if unicodedata.category(letter) in _INVISIBLE)
    return next((letter for letter in letters if letter not in _JOINERS), None)


@rule(
    "NAM007 warning: source id missing",
    why="The evaluation of the OD API counts images by source id, so it treats all images without "
    "an id as a single one. TF-Vision, MediaPipe Model Maker and EfficientDet stop.",
    fix="In {script}, write a unique number for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, a FixedLenFeature without a default",
    repair="The source id is set to a unique number.",
)
def _check_source_id(batch: Batch) -> Iterator[Finding]:
    """Report records without a source id, unless EXA003 reports them."""
    key = _find_source_id_key(batch)
    if key and not batch.requires(key):
        for row in batch.find_rows_without(key, batch.detections.source_ids):
            yield batch.finding(row, f"{key} is missing", key)


def _find_source_id_key(batch: Batch) -> str | None:
    """Return the key of source ids, or None if the profile has no file names."""
    return batch.mapping.source_id if batch.mapping.filename is not None else None


@rule(
    "NAM012 warning: source id empty",
    why="The evaluation of the OD API counts images by source id, so it treats all images without "
    "an id as a single one. TF-Vision uses a hash of the image instead.",
    fix="In {script}, write a unique number for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, _generate_source_id",
    repair="The source id is set to a unique number.",
)
def _check_empty_source_id(batch: Batch) -> Iterator[Finding]:
    key, source_ids = _find_source_id_key(batch), batch.detections.source_ids
    present = list(filter(None, source_ids))
    if len(present) == len(source_ids) and all(map(str.strip, present)):
        return
    for row, source_id in enumerate(source_ids if key else ()):
        if source_id is not None and not source_id.strip() and batch.live[row]:
            yield batch.finding(row, f"{key} is empty", key)


@dataset_rule(
    "NAM008 warning: duplicate source id",
    why="The evaluation of the OD API ignores an image if its id was already used.",
    fix="In {script}, give every image a unique id.",
    source="tensorflow/models: metrics/coco_evaluation.py, 'Ignoring ground truth with image id'",
)
def _check_duplicate_source_ids(result: DatasetResult) -> Iterator[Finding]:
    key = result.profile.field_mapping.source_id
    return _report_repeats(result, keys.SOURCE_ID, key, "source id", lambda item: item.source_id)


@rule(
    "NAM009 info: file name missing, but there are no objects",
    why="No annotations are lost, but CVAT rejects a record that matches no frame.",
    fix="In {script}, write the image's file name, or remove the record.",
    source=_MATCH,
    cases={"required": Severity.INFO},
)
def _check_name_without_objects(batch: Batch) -> Iterator[Finding]:
    return _report_missing_names(batch, have_objects=False)


@rule(
    "NAM010 info: source id is not a number",
    why="TF-Vision, MediaPipe Model Maker and EfficientDet parse it as a number and stop: "
    "'StringToNumberOp could not correctly convert string'. The OD API's trainer accepts any text.",
    fix="In {script}, number the images for TF-Vision, Model Maker or EfficientDet, or renumber "
    "them: tfod reshard SOURCE renumbered --for tf-vision",
    source="official/vision/dataloaders/utils.py, process_source_id; google/automl: "
    "efficientdet/dataloader.py; google/automl#418",
    repair="With --for tf-vision, model-maker or efficientdet, the source id is set to a unique "
    "number; the old one is kept in tfod/attributes.",
    once=True,
)
def _check_numeric_source_id(batch: Batch) -> Iterator[Finding]:
    """Report the first source id of each shard that is not a 64-bit integer."""
    return _report_source_id(batch, 0, "{} {} is not a number")


@rule(
    "NAM011 info: source id is a large number",
    why="EfficientDet converts it to float32, which cannot represent every number above "
    "16,777,216. Different images may get the same id.",
    fix="In {script}, number the images for EfficientDet, or renumber them: tfod reshard SOURCE "
    "renumbered --for efficientdet",
    source="google/automl: efficientdet/dataloader.py, tf.strings.to_number without a type",
    repair="With --for efficientdet, the source id is set to a unique number; the old one is kept "
    "in tfod/attributes.",
    once=True,
)
def _check_large_source_id(batch: Batch) -> Iterator[Finding]:
    """Report the first source id of each shard that is above 2**24."""
    return _report_source_id(batch, 1, "{} {} is greater than 16,777,216")


@rule(
    "NAM013 error: image or other data instead of a name",
    why="The writer swapped two keys. No image has such a name, and no file can have it.",
    fix="In {script}, write the file name into image/filename and an id into image/source_id.",
    source="tensorflow/models: dataset_tools/create_pascal_tf_record.py",
    explains="EXA009 NAM003 NAM004 NAM005 NAM006 NAM010",
)
def _check_no_data(batch: Batch) -> Iterator[Finding]:
    for key in (keys.FILENAME, keys.SOURCE_ID):
        column = batch.detections.column(key, Kind.BYTES)
        rows, spans = select_single_values(column)
        for index in np.flatnonzero(spans[:, 1] >= _MIN_IMAGE_BYTES).tolist():
            start, length = spans[index].tolist()
            end = start + length
            if length > _MAX_NAME_BYTES or column.buffer.find(b"\0", start, end) >= 0:
                look = looks_like(column.buffer, start, end).removesuffix(" with a damaged header")
                if look not in ("", "text", "a path", "a URL"):
                    message = f"{column.key} is an image or other data: {look}, {size(length)}"
                    yield batch.finding(int(rows[index]), message, column.key)


def _report_source_id(batch: Batch, kind: int, message: str) -> Iterator[Finding]:
    """Report the first source id of a kind: 0 for texts, 1 for numbers that float32 rounds."""
    key, rows = _find_source_id_key(batch), np.flatnonzero(batch.live).tolist()
    source_ids = [batch.detections.source_ids[row] for row in rows]
    index = find_unusual_source_ids(source_ids)[kind] if key else None
    if key and index is not None:
        source_id = source_ids[index] or ""
        shown = source_id if kind else excerpt(source_id)
        yield batch.finding(rows[index], message.format(key, shown), key, source_id)


def _report_missing_names(batch: Batch, *, have_objects: bool) -> Iterator[Finding]:
    key, names = batch.mapping.filename, batch.detections.filenames
    if key is None or batch.has_plain_names:
        return
    missing = set(batch.find_rows_without(key, names))
    case = "required" if batch.requires(key) else ""
    for row in np.flatnonzero(batch.live & ((batch.box_counts > 0) == have_objects)).tolist():
        name = names[row]
        if row in missing:
            yield batch.finding(row, f"{key} is missing", key, case=case)
        elif name is not None and not name.strip():
            yield batch.finding(row, f"{key} is empty", key)


def _report_name(batch: Batch, row: int, message: str) -> Finding:
    return batch.finding(row, message, batch.mapping.filename, batch.detections.filenames[row])

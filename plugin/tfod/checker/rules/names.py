"""NAM: the names by which people and programs find an image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

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
from tfod.example.wire import Kind
from tfod.tfrecord.image_names import split_extension

_MATCH = "opencv/cvat: apps/dataset_manager/bindings.py, match_dm_item"
_READ_BY_TENSORFLOW = ("jpeg", "png", "gif", "bmp")
_DRIVE = re.compile(r"[A-Za-z]:")
_SMALLEST_IMAGE, _LONGEST_NAME = 64, 255  # bytes
_JOINERS = "\u200c\u200d"  # Persian, Hindi and emoji need them


@rule(
    "NAM001 error: file name missing",
    why="CVAT and Datumaro match images by name, so that the objects of this one are lost; the "
    "trainer does not look at it.",
    fix="Write the image's file name.",
    source=f"{_MATCH}; Datumaro: tf_detection_api makes it the item's id",
    cases={"required": Severity.ERROR},
)
def missing(batch: Batch) -> Iterator[Finding]:
    """A record with objects has no file name, or an empty one."""
    return _without_a_name(batch, have_objects=True)


@dataset_rule(
    "NAM002 warning: file name twice",
    why="Annotations of two records end up on one image, or the second replaces the first.",
    fix="Give every image a name of its own, or merge the records.",
    source=_MATCH,
)
def duplicate_name(result: DatasetResult) -> Iterator[Finding]:
    """An earlier record of the same subset has this file name."""
    key = result.profile.field_mapping.filename

    def make(one: Repeat) -> Finding:
        name = one.place.item or ""
        message = f"{name!r:.81} is also the name of record {one.first.record} of {one.first.shard}"
        return Finding(message, key, name).at(one.place)

    return result.repeat_findings(result.duplicates.in_subset(keys.FILENAME), make)


@rule(
    "NAM003 warning: file name without an extension",
    why="Tools that write the image to disk do not know what to call it.",
    fix="Add .jpg or .png, as the image is.",
    source="cvat-ai/datumaro: the extension decides how an image is saved",
)
def no_extension(batch: Batch) -> Iterator[Finding]:
    """The file name has nothing that looks like an extension."""
    for row, name in batch.names_where(lambda one: one.strip() and not split_extension(one)[1]):
        yield _of_name(batch, row, f"{name!r:.81} has no extension")


@rule(
    "NAM004 warning: extension differs from the image",
    why="The image is saved under a name that says another format.",
    fix="Name the image as its bytes are, or encode it as its name says.",
    source="cvat-ai/datumaro#35",
)
def other_extension(batch: Batch) -> Iterator[Finding]:
    """The extension is that of another image format than the bytes are.

    But for a PNG that keeps the name of an image that TensorFlow does not read, such as a.webp.
    """
    found = batch.detections
    headers = found.headers if batch.mapping.filename is not None else ()
    for row, header in enumerate(headers):
        name = found.filenames[row]
        if header and name and batch.live[row]:
            said = FORMAT_OF_EXTENSION.get(split_extension(name)[1].lower(), header.format)
            stored_as_png = header.format == "png" and said not in _READ_BY_TENSORFLOW
            if said != header.format and not stored_as_png:
                yield _of_name(batch, row, f"{name!r:.81} holds a {header.format.upper()}")


@rule(
    "NAM005 warning: file name leads out of its folder",
    why="The path is one of another machine: it matches no frame, and unpacking it is dangerous.",
    fix="Write the name relative to the dataset's folder, with forward slashes.",
    source=f"CWE-22; {_MATCH}",
)
def path_of_another_machine(batch: Batch) -> Iterator[Finding]:
    """The name is absolute, has a backslash or a part that is two dots."""
    for row, name in batch.names_where(_leads_where):
        yield _of_name(batch, row, f"{name!r:.81} {_leads_where(name)}")


def _leads_where(name: str) -> str | None:
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        return "is an absolute path"
    if ".." in name.replace("\\", "/").split("/"):
        return "leads out of its folder"
    return "has backslashes" if "\\" in name else None


@rule(
    "NAM006 error: control character in the file name",
    why="No file can be called so on every system, and logs and terminals obey such characters.",
    fix="Remove line ends, tabs, zero bytes and other invisible characters from the name.",
    source="CWE-117; CWE-158",
)
def control_characters(batch: Batch) -> Iterator[Finding]:
    """The name has characters that are not seen."""
    for row, name in batch.names_where(_unseen):
        yield _of_name(batch, row, f"{name!r:.81} has the character {_unseen(name)!r}")


def _unseen(name: str) -> str | None:
    return next(
        (
            letter
            for letter in name
            if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
            and letter not in _JOINERS
        ),
        None,
    )


@rule(
    "NAM007 warning: source id missing",
    why="The evaluation of the OD API counts images by it: all images without one are one. "
    "TF-Vision, MediaPipe Model Maker and EfficientDet stop.",
    fix="Write a number of its own for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, a FixedLenFeature without a default",
    repair="The source id becomes a number that no other image has.",
)
def no_source_id(batch: Batch) -> Iterator[Finding]:
    """image/source_id is not there."""
    key = _source_id_key(batch)
    for row in (
        batch.without_value(key, batch.detections.source_ids)
        if key and not batch.requires(key)
        else ()
    ):
        yield batch.finding(row, f"{key} is missing", key)


def _source_id_key(batch: Batch) -> str | None:
    """The key of source ids, where records have names at all."""
    return batch.mapping.source_id if batch.mapping.filename is not None else None


@rule(
    "NAM012 warning: source id empty",
    why="The evaluation of the OD API counts images by it: all images without one are one. "
    "TF-Vision takes a hash of the image in its place.",
    fix="Write a number of its own for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, _generate_source_id",
    repair="The source id becomes a number that no other image has.",
)
def empty_source_id(batch: Batch) -> Iterator[Finding]:
    """image/source_id is empty, or nothing but white space."""
    key, texts = _source_id_key(batch), batch.detections.source_ids
    some = list(filter(None, texts))
    if len(some) == len(texts) and all(map(str.strip, some)):
        return
    for row, text in enumerate(texts if key else ()):
        if text is not None and not text.strip() and batch.live[row]:
            yield batch.finding(row, f"{key} is empty", key)


@dataset_rule(
    "NAM008 warning: source id twice",
    why="The evaluation of the OD API skips an image whose id it has seen.",
    fix="Give every image an id of its own.",
    source="tensorflow/models: metrics/coco_evaluation.py, 'Ignoring ground truth with image id'",
)
def duplicate_source_id(result: DatasetResult) -> Iterator[Finding]:
    """An earlier record of the same subset has this source id."""
    key = result.profile.field_mapping.source_id

    def make(one: Repeat) -> Finding:
        message = f"{one.source_id!r:.81} is also the source id of "
        message += f"record {one.first.record} of {one.first.shard}"
        return Finding(message, key, one.source_id).at(one.place)

    return result.repeat_findings(result.duplicates.in_subset(keys.SOURCE_ID), make)


@rule(
    "NAM009 info: file name missing where there are no objects",
    why="Nothing is lost with it, but CVAT refuses a record that matches no frame.",
    fix="Write the image's file name, or leave the record out.",
    source=_MATCH,
    cases={"required": Severity.INFO},
)
def missing_without_objects(batch: Batch) -> Iterator[Finding]:
    """As NAM001, of a record without objects."""
    return _without_a_name(batch, have_objects=False)


@rule(
    "NAM010 info: source id is not a number",
    why="TF-Vision, MediaPipe Model Maker and EfficientDet parse it as a number and stop: "
    "'StringToNumberOp could not correctly convert string'. The OD API's trainer takes any text.",
    fix="For TF-Vision, Model Maker or EfficientDet number the images: tfod reshard SOURCE "
    "FOLDER --for tf-vision.",
    source="official/vision/dataloaders/utils.py, process_source_id; google/automl: "
    "efficientdet/dataloader.py; google/automl#418",
    repair="With --for tf-vision, model-maker or efficientdet the source id becomes a "
    "number that no other image has; the text is kept in tfod/attributes.",
    once=True,
)
def not_a_number(batch: Batch) -> Iterator[Finding]:
    """image/source_id is no whole number of 64 bits; of each shard the first is reported."""
    return _odd_source_id(batch, 0, "{} {!r:.81} is not a number")


@rule(
    "NAM011 info: source id is a large number",
    why="EfficientDet parses it to a float32, in which numbers beyond 16,777,216 become each "
    "other: images are counted as one.",
    fix="If it is to read it, number the images: tfod reshard SOURCE FOLDER --for efficientdet.",
    source="google/automl: efficientdet/dataloader.py, tf.strings.to_number without a type",
    repair="With --for efficientdet likewise.",
    once=True,
)
def large_number(batch: Batch) -> Iterator[Finding]:
    """image/source_id is a number beyond 2**24; of each shard the first is reported."""
    return _odd_source_id(batch, 1, "{} {} is more than 16,777,216")


@rule(
    "NAM013 error: image or other data instead of a name",
    why="The writer exchanged two keys. No image is found by such a name, and no file can have it.",
    fix="Write the file name into image/filename and an id into image/source_id.",
    source="tensorflow/models: dataset_tools/create_pascal_tf_record.py",
)
def data_instead_of_a_name(batch: Batch) -> Iterator[Finding]:
    """image/filename or image/source_id is an image, also as text, or longer than a file's name."""
    for key in (keys.FILENAME, keys.SOURCE_ID):
        column = batch.detections.column(key, Kind.BYTES)
        rows, spans = select_single_values(column)
        for at in np.flatnonzero(spans[:, 1] >= _SMALLEST_IMAGE).tolist():
            start, length = spans[at].tolist()
            end = start + length
            if length > _LONGEST_NAME or column.buffer.find(b"\0", start, end) >= 0:
                look = looks_like(column.buffer, start, end).removesuffix(" with a damaged header")
                if look not in ("", "text", "a path", "a URL"):
                    message = f"{column.key} holds an image or other data: {look}, {size(length)}"
                    yield batch.finding(int(rows[at]), message, column.key)


def _odd_source_id(batch: Batch, which: int, message: str) -> Iterator[Finding]:
    """The first id that some receivers do not read as the number it is."""
    key, rows = _source_id_key(batch), np.flatnonzero(batch.live).tolist()
    texts = [batch.detections.source_ids[row] for row in rows]
    odd = find_unusual_source_ids(texts)[which] if key else None
    if key and odd is not None:
        text = texts[odd] or ""
        yield batch.finding(rows[odd], message.format(key, text), key, text)


def _without_a_name(batch: Batch, *, have_objects: bool) -> Iterator[Finding]:
    key, names = batch.mapping.filename, batch.detections.filenames
    if key is None or batch.has_plain_names:
        return
    missing = set(batch.without_value(key, names))
    case = "required" if batch.requires(key) else ""
    for row in np.flatnonzero(batch.live & ((batch.box_counts > 0) == have_objects)).tolist():
        name = names[row]
        if row in missing:
            yield batch.finding(row, f"{key} is missing", key, case=case)
        elif name is not None and not name.strip():
            yield batch.finding(row, f"{key} is empty", key)


def _of_name(batch: Batch, row: int, message: str) -> Finding:
    """A finding about a file name."""
    return batch.finding(row, message, batch.mapping.filename, batch.detections.filenames[row])

"""NAM: the names by which people and programs find an image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from tfod.check.findings.finding import Place, Problem
from tfod.check.rules.registry import rule
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.tfrecord.image_names import split_extension

_MATCH = "opencv/cvat: apps/dataset_manager/bindings.py, match_dm_item"
_DRIVE = re.compile(r"[A-Za-z]:")
_JOINERS = "\u200c\u200d"  # Persian, Hindi and emoji need them


class NameFacts(NamedTuple):
    """The names of a record. None is a feature that is not there, or that has no value.

    The keys are None where another rule reports that the feature is missing. ``format`` is that
    of the encoded bytes, None where there are none or they are unknown. ``has_objects`` is whether
    the record has any.
    """

    filename: str | None
    filename_key: str | None
    source_id: str | None
    source_id_key: str | None
    format: str | None
    has_objects: bool = True


@rule(
    "NAM001 error: file name missing",
    why="CVAT and Datumaro match images by name, so that the objects of this one are lost; the "
    "trainer does not look at it.",
    fix="Write the image's file name.",
    source=f"{_MATCH}; Datumaro: tf_detection_api makes it the item's id",
)
def missing(names: NameFacts) -> Iterator[Problem]:
    """A record with objects has no file name, or an empty one."""
    if names.has_objects:
        yield from _without_a_name(names)


@rule(
    "NAM002 warning: file name twice",
    why="Annotations of two records end up on one image, or the second replaces the first.",
    fix="Give every image a name of its own, or merge the records.",
    source=_MATCH,
)
def duplicate_name(name: str, key: str, first: Place) -> Iterator[Problem]:
    """An earlier record of the same subset has this file name."""
    yield Problem(f"{name!r} is also the name of {_record(first)}", key, name, identity=name)


@rule(
    "NAM003 warning: file name without an extension",
    why="Tools that write the image to disk do not know what to call it.",
    fix="Add .jpg or .png, as the image is.",
    source="cvat-ai/datumaro: the extension decides how an image is saved",
)
def no_extension(names: NameFacts) -> Iterator[Problem]:
    """The file name has nothing that looks like an extension."""
    if names.filename and names.filename.strip() and not split_extension(names.filename)[1]:
        yield Problem(f"{names.filename!r} has no extension", names.filename_key, names.filename)


@rule(
    "NAM004 warning: extension differs from the image",
    why="The image is saved under a name that says another format.",
    fix="Name the image as its bytes are, or encode it as its name says.",
    source="cvat-ai/datumaro#35",
)
def other_extension(names: NameFacts) -> Iterator[Problem]:
    """The extension is that of another image format than the bytes are."""
    if not names.filename or not names.format:
        return
    said = FORMAT_OF_EXTENSION.get(split_extension(names.filename)[1].lower())
    if said and said != names.format:
        message = f"{names.filename!r} holds a {names.format.upper()}"
        yield Problem(message, names.filename_key, names.filename)


@rule(
    "NAM005 warning: file name leads out of its folder",
    why="The path is one of another machine: it matches no frame, and unpacking it is dangerous.",
    fix="Write the name relative to the dataset's folder, with forward slashes.",
    source=f"CWE-22; {_MATCH}",
)
def path_of_another_machine(names: NameFacts) -> Iterator[Problem]:
    """The name is absolute, has a backslash or a part that is two dots."""
    name = names.filename or ""
    if name.startswith(("/", "\\")) or _DRIVE.match(name):
        what = "is an absolute path"
    elif ".." in name.replace("\\", "/").split("/"):
        what = "leads out of its folder"
    elif "\\" in name:
        what = "has backslashes"
    else:
        return
    yield Problem(f"{name!r} {what}", names.filename_key, name)


@rule(
    "NAM006 error: control character in the file name",
    why="No file can be called so on every system, and logs and terminals obey such characters.",
    fix="Remove line ends, tabs, zero bytes and other invisible characters from the name.",
    source="CWE-117; CWE-158",
)
def control_characters(names: NameFacts) -> Iterator[Problem]:
    """The name has characters that are not seen."""
    name = names.filename or ""
    for letter in name:
        if letter in _JOINERS:
            continue
        if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            yield Problem(f"{name!r} has the character {letter!r}", names.filename_key, name)
            return


@rule(
    "NAM007 warning: source id missing",
    why="The evaluation of the OD API counts images by it: all images without one are one. "
    "TF-Vision, MediaPipe Model Maker and EfficientDet stop.",
    fix="Write a number of its own for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, a FixedLenFeature without a default",
)
def no_source_id(names: NameFacts) -> Iterator[Problem]:
    """image/source_id is not there."""
    if names.source_id_key is not None and names.source_id is None:
        yield Problem(f"{names.source_id_key} is missing", names.source_id_key)


@rule(
    "NAM012 warning: source id empty",
    why="The evaluation of the OD API counts images by it: all images without one are one. "
    "TF-Vision takes a hash of the image in its place.",
    fix="Write a number of its own for every image.",
    source="tensorflow/models: metrics/coco_evaluation.py, image_id; "
    "official/vision/dataloaders/tf_example_decoder.py, _generate_source_id",
)
def empty_source_id(names: NameFacts) -> Iterator[Problem]:
    """image/source_id is empty, or nothing but white space."""
    key = names.source_id_key
    if key is not None and names.source_id is not None and not names.source_id.strip():
        yield Problem(f"{key} is empty", key)


@rule(
    "NAM008 warning: source id twice",
    why="The evaluation of the OD API skips an image whose id it has seen.",
    fix="Give every image an id of its own.",
    source="tensorflow/models: metrics/coco_evaluation.py, 'Ignoring ground truth with image id'",
)
def duplicate_source_id(source_id: str, key: str, first: Place) -> Iterator[Problem]:
    """An earlier record of the same subset has this source id."""
    message = f"{source_id!r} is also the source id of {_record(first)}"
    yield Problem(message, key, source_id, identity=source_id)


@rule(
    "NAM009 info: file name missing where there are no objects",
    why="Nothing is lost with it, but CVAT refuses a record that matches no frame.",
    fix="Write the image's file name, or leave the record out.",
    source=_MATCH,
)
def missing_without_objects(names: NameFacts) -> Iterator[Problem]:
    """As NAM001, of a record without objects."""
    if not names.has_objects:
        yield from _without_a_name(names)


@rule(
    "NAM010 info: source id is not a number",
    why="TF-Vision, MediaPipe Model Maker and EfficientDet parse it as a number and stop: "
    "'StringToNumberOp could not correctly convert string'. The OD API's trainer takes any text.",
    fix="For TF-Vision, Model Maker or EfficientDet number the images: tfod reshard SOURCE "
    "FOLDER --for tf-vision.",
    source="official/vision/dataloaders/utils.py, process_source_id; google/automl: "
    "efficientdet/dataloader.py; google/automl#418",
)
def not_a_number(source_id: str, key: str) -> Iterator[Problem]:
    """image/source_id is no whole number of 64 bits; of each shard the first is reported."""
    yield Problem(f"{key} {source_id!r} is not a number", key, source_id, once=True)


@rule(
    "NAM011 info: source id is a large number",
    why="EfficientDet parses it to a float32, in which numbers beyond 16,777,216 become each "
    "other: images are counted as one.",
    fix="If it is to read it, number the images: tfod reshard SOURCE FOLDER --for efficientdet.",
    source="google/automl: efficientdet/dataloader.py, tf.strings.to_number without a type",
)
def large_number(source_id: str, key: str) -> Iterator[Problem]:
    """image/source_id is a number beyond 2**24; of each shard the first is reported."""
    yield Problem(f"{key} {source_id} is more than 16,777,216", key, source_id, once=True)


def _without_a_name(names: NameFacts) -> Iterator[Problem]:
    if names.filename_key and not (names.filename or "").strip():
        what = "is missing" if names.filename is None else "is empty"
        yield Problem(f"{names.filename_key} {what}", names.filename_key)


def _record(place: Place) -> str:
    return f"record {place.record} of {place.shard}"

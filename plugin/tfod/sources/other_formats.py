"""What people have in place of shards: which format it is, and what makes shards of it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from tfod.errors import ShardsNotFoundError
from tfod.tfrecord.shard_sets.search import files_below

_SIGNS = (
    ("COCO", r"(.*/)?((instances|person_keypoints|panoptic)_[^/]*|_annotations\.coco)\.json"),
    ("Datumaro", r"(.*/)?annotations/[^/]*\.json"),
    ("Pascal VOC", r"(.*/)?(annotations/.*\.xml|imagesets/.*\.txt)"),
    ("YOLO", r"(.*/)?(obj\.(data|names)|(data|dataset)\.ya?ml|labels/.*\.txt)"),
    ("CVAT for images or video", r"([^/]*/)?annotations\.xml"),
)
"""Formats of annotations, and a path that says so."""
_BESIDE_IMAGES = {".xml": "Pascal VOC", ".txt": "YOLO"}
"""Of a file beside each image, as Roboflow has them."""
_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
_TABLE = b"filename"
"""What a CSV of boxes begins with."""


def other_format(paths: Sequence[str]) -> str | None:
    """Which format of annotations files without shards are; None where their names do not say."""
    for name, sign in _SIGNS:
        pattern = re.compile(sign, re.IGNORECASE)
        if any(map(pattern.fullmatch, paths)):
            return name
    parts = [os.path.splitext(path) for path in paths]
    images = {stem for stem, extension in parts if extension.lower() in _IMAGES}
    beside = {extension.lower() for stem, extension in parts if stem in images}
    return next((name for end, name in _BESIDE_IMAGES.items() if end in beside), None)


def no_shards_error(source: str, error: ShardsNotFoundError) -> ShardsNotFoundError:
    """Return an error that says what a source without shards holds instead, if that is known."""
    if os.path.isdir(source):
        return ShardsNotFoundError(_none_in_folder(source) or str(error))
    if os.path.isfile(source):
        return ShardsNotFoundError(other_format_in_zip(source) or str(error))
    return error


def _none_in_folder(folder: str) -> str | None:
    """What a folder without shards holds instead, and what to type."""
    files = sorted(files_below(folder))
    what = other_format([os.path.relpath(one, folder).replace(os.sep, "/") for one in files])
    table = next((one for one in files if one.lower().endswith(".csv") and _is_table(one)), None)
    if what is not None:
        command = _command(what, folder)
    elif table is not None:
        what, command = "a CSV of boxes", f"tfod convert {shlex.quote(table)} shards"
    else:
        return None
    return f"{folder}: holds {what}, and no shards; to make some type: {command}"


def other_format_in_zip(archive: str) -> str | None:
    """What a zip without shards holds instead, and what to type; None where names do not say.

    Raises:
        ShardError: it is damaged.
        OSError: it cannot be opened.
    """
    from tfod.tfrecord.storage.archive import sound_content  # needed for zips alone

    what = other_format([one.inside for one in sound_content(archive).entries.values()])
    if what is None:
        return None
    command = _command(what, os.path.splitext(os.path.basename(archive))[0])
    return f"{archive}: holds {what}, and no shards; unpack it first, then type: {command}"


def _command(what: str, folder: str) -> str:
    """What makes shards of a folder with annotations of this format."""
    if what == "Datumaro":
        return f"datum convert -i {shlex.quote(folder)} -if datumaro -f tf_detection_api"
    target = "../shards" if folder == os.curdir else "shards"
    return f"tfod convert {shlex.quote(folder)} {target}"


def _is_table(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_TABLE)) == _TABLE
    except OSError:
        return False

"""Rules about the CVAT task that a shard is meant for.

How CVAT finds the frame of an image: ``match_dm_item`` and ``find_dataset_root`` in its
``dataset_manager/bindings.py``; :mod:`tfod.check.cvat_task.frames` does the same.
"""

from __future__ import annotations

import enum
import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.check.finding import Place, Problem
from tfod.check.rules.near_names import NearNames
from tfod.check.rules.registry import rule

if TYPE_CHECKING:
    from tfod.check.cvat_task.task import Frame
from tfod.detection import keys

_BINDINGS = "cvat/apps/dataset_manager/bindings.py"
_NAMES_SHOWN = 5


@dataclass(frozen=True)
class ClassInUse:
    """A class that boxes of the shard have, and the classes of the task.

    ``boxes`` is how many have it.
    """

    text: str
    boxes: int
    labels: frozenset[str]


class MatchedBy(enum.Enum):
    """What CVAT went by when it found the frame of an image."""

    NAME = "name"
    NUMBER = "number"
    DIGITS = "digits"


@dataclass(frozen=True)
class Attachment:
    """An image of the shard, and the frame that CVAT would attach it to.

    Attributes:
        filename, height, width: of the record.
        frame: None where CVAT finds none.
        by: how it was found.
        nearest: name of the frame that may have been meant, where there is no frame.
        earlier: the first image that went to the same frame.
        numbers_guessed: frame numbers follow from the order of the names.
    """

    filename: str
    height: int | None
    width: int | None
    frame: Frame | None
    by: MatchedBy = MatchedBy.NAME
    nearest: str | None = None
    earlier: Place | None = None
    numbers_guessed: bool = False


@dataclass(frozen=True)
class Coverage:
    """What the task's frames got from the shards.

    Attributes:
        frames: how many the task has.
        without_record, without_boxes: how many got no record, and a record without boxes.
        first_without_record, first_without_boxes: names of the first of them.
    """

    frames: int
    without_record: int
    without_boxes: int
    first_without_record: Sequence[str]
    first_without_boxes: Sequence[str]


@dataclass(frozen=True)
class NoFrames:
    """A description of the task that does not name its frames."""

    source: str


@rule(
    "TSK001 error: class is not a label of the task",
    why="CVAT stops the whole import at the first annotation whose label the task lacks.",
    fix="Add the label to the task, or rename the class in the shard.",
    source=f"{_BINDINGS}, _get_label_id; cvat-ai/cvat#6304",
)
def unknown_label(used: ClassInUse) -> Iterator[Problem]:
    """Names are compared as they are: case and spaces count."""
    if used.text in used.labels:
        return
    near = nearest_label(used.text, used.labels)
    yield Problem(
        f"class {used.text!r} of {_boxes(used.boxes)} is not a label of the task, which has "
        + _listed(used.labels)
        + (f"; did you mean {near!r}?" if near else ""),
        feature=keys.CLASS_TEXT,
        value=used.text,
        fix=f"Rename the class to {near!r}, or add {used.text!r} to the task." if near else None,
    )


def nearest_label(text: str, labels: frozenset[str]) -> str | None:
    """The label that was probably meant: the same but for case and spaces, or a letter off."""
    return _near_labels(labels).nearest(text)


@functools.lru_cache(4)
def _near_labels(labels: frozenset[str]) -> NearNames:
    return NearNames(sorted(labels), plain_letters)


@functools.lru_cache(4)
def _listed(labels: frozenset[str]) -> str:
    """The first labels of the task, for a message."""
    listed = ", ".join(map(repr, heapq.nsmallest(_NAMES_SHOWN, labels)))
    more = len(labels) - _NAMES_SHOWN
    return f"{listed} and {more} more" if more > 0 else listed


@rule(
    "TSK002 error: image matches no frame of the task",
    why="CVAT stops the whole import at the first image that it cannot match with a frame.",
    fix="Rename the image to its frame's name with folders, or leave the record out.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#9307, #4433",
)
def no_frame(image: Attachment) -> Iterator[Problem]:
    """Folders count, extensions do not."""
    if image.frame is not None:
        return
    if not image.filename:
        yield Problem("record has no file name, so that it matches no frame", feature=keys.FILENAME)
        return
    near = image.nearest
    yield Problem(
        f"image {image.filename!r} matches no frame of the task"
        + (f"; the nearest is {near!r}" if near else ""),
        feature=keys.FILENAME,
        value=image.filename,
    )


@rule(
    "TSK003 warning: name is read as a frame number",
    why="No frame has this name, so CVAT takes the number in it for a frame and attaches the "
    "annotations there without a word, to another image maybe.",
    fix="Rename the image to the name of the frame that is meant.",
    source=f"{_BINDINGS}, match_dm_item; cvat-ai/cvat#8410",
)
def read_as_number(image: Attachment) -> Iterator[Problem]:
    """A name that is a number, or in a video has digits from its seventh letter on."""
    frame = image.frame
    if frame is None or image.by is MatchedBy.NAME:
        return
    how = "" if image.by is MatchedBy.NUMBER else " for the digits after its sixth letter"
    order = (
        " if the task's images are in the order of their names" if (image.numbers_guessed) else ""
    )
    yield Problem(
        f"image {image.filename!r} is the name of no frame and goes to frame {frame.number}, "
        f"{frame.name!r}{how}{order}",
        feature=keys.FILENAME,
        value=image.filename,
    )


@rule(
    "TSK004 error: size differs from the frame's",
    why="CVAT scales boxes by the size in the record and draws them on its own frame, where they "
    "are off; it does not compare the sizes.",
    fix="Make the shard from the images that the task has.",
    source=f"{_BINDINGS}, import_dm_annotations",
)
def other_size(image: Attachment) -> Iterator[Problem]:
    """Width and height as the record says, not as the encoded image has them."""
    frame = image.frame
    if frame is None or None in (image.height, image.width, frame.height, frame.width):
        return
    if (image.height, image.width) == (frame.height, frame.width):
        return
    turned = (image.height, image.width) == (frame.width, frame.height)
    wrong = keys.WIDTH if image.width != frame.width else keys.HEIGHT
    yield Problem(
        f"image is {image.width}x{image.height}, frame {frame.name!r} is "
        f"{frame.width}x{frame.height}"
        + (": one of them is turned, as EXIF orientation does" if turned else ""),
        feature=wrong,
        value=image.width if wrong == keys.WIDTH else image.height,
    )


@rule(
    "TSK005 info: frames without annotation",
    why="An import replaces what the task has: these frames end up empty.",
    fix="Check that the shard is complete, if these frames should have annotations.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def bare_frames(coverage: Coverage) -> Iterator[Problem]:
    """Said once for the task."""
    bare = coverage.without_record + coverage.without_boxes
    if not bare:
        return
    parts = []
    if coverage.without_record:
        names = _some(coverage.first_without_record, coverage.without_record)
        parts.append(f"{coverage.without_record} without a record ({names})")
    if coverage.without_boxes:
        names = _some(coverage.first_without_boxes, coverage.without_boxes)
        parts.append(f"{coverage.without_boxes} with a record without boxes ({names})")
    yield Problem(
        f"{bare} of the task's {coverage.frames} frames get no annotation: {', '.join(parts)}",
        value=bare,
    )


@rule(
    "TSK006 error: two images go to one frame",
    why="CVAT puts the annotations of both on the one frame.",
    fix="Leave one of the records out, or rename it to the frame that is meant.",
    source=f"{_BINDINGS}, match_dm_item",
)
def shared_frame(image: Attachment) -> Iterator[Problem]:
    """Extensions do not count, so a.jpg and a.png go to the same frame."""
    if image.frame is None or image.earlier is None:
        return
    earlier = image.earlier
    where = ", ".join(
        part
        for part in (earlier.shard, "" if earlier.record is None else f"record {earlier.record}")
        if part
    )
    yield Problem(
        f"image {image.filename!r} goes to frame {image.frame.name!r}, as does "
        f"{earlier.item!r}" + (f" ({where})" if where else ""),
        feature=keys.FILENAME,
        value=image.filename,
    )


@rule(
    "TSK007 info: description of the task names no frames",
    why="CVAT for video 1.1 of a task of images holds no names, and an export may be empty; the "
    "images were not compared with the task.",
    fix="Export the task as CVAT for images 1.1, or give its images with --images.",
    source="cvat/apps/dataset_manager/formats/cvat.py, dump_as_cvat_interpolation",
)
def nameless_frames(description: NoFrames) -> Iterator[Problem]:
    """Said once for the task."""
    yield Problem(f"{description.source} names no frames, so that images were not compared")


def plain_letters(text: str) -> str:
    """What is left of a name without case, spaces and punctuation."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _boxes(count: int) -> str:
    return "1 box" if count == 1 else f"{count} boxes"


def _some(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")

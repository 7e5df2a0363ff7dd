"""Rules about the CVAT task that a shard is meant for.

How CVAT finds the frame of an image: ``match_dm_item`` and ``find_dataset_root`` in its
``dataset_manager/bindings.py``; :mod:`tfod.check.references.cvat_task.frames` does the same.
"""

from __future__ import annotations

import enum
import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.check.findings.finding import Place, Problem, first_of
from tfod.check.rules.registry import rule
from tfod.detection.labels.near_names import names_near_labels

if TYPE_CHECKING:
    from tfod.check.references.cvat_task.task import Frame
from tfod.detection import keys

_BINDINGS = "cvat/apps/dataset_manager/bindings.py"
_NAMES_SHOWN = 5


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


@rule(
    "TSK001 error: class is not a label of the task",
    why="CVAT stops the whole import at the first annotation whose label the task lacks.",
    fix="Add the label to the task, or rename the class in the shard.",
    source=f"{_BINDINGS}, _get_label_id; cvat-ai/cvat#6304",
)
def unknown_label(text: str, boxes: int, labels: frozenset[str]) -> Iterator[Problem]:
    """The class of so many boxes is none of the labels; case and spaces count."""
    if text in labels:
        return
    near = names_near_labels(labels).nearest(text)
    message = f"class {text!r} of {boxes} {'box' if boxes == 1 else 'boxes'} is not a label of the "
    message += f"task, which has {_listed(labels)}"
    fix = f"Rename the class to {near!r}, or add {text!r} to the task." if near else None
    hint = f"; did you mean {near!r}?" if near else ""
    yield Problem(message + hint, keys.CLASS_TEXT, text, fix)


@functools.lru_cache(4)
def _listed(labels: frozenset[str]) -> str:
    """The first labels of the task; there may be as many unknown classes as labels."""
    first = heapq.nsmallest(_NAMES_SHOWN, labels)
    return first_of([*map(repr, first)], _NAMES_SHOWN, len(labels))


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
        yield Problem("record has no file name, so that it matches no frame", keys.FILENAME)
        return
    near = f"; the nearest is {image.nearest!r}" if image.nearest else ""
    message = f"image {image.filename!r} matches no frame of the task{near}"
    yield Problem(message, keys.FILENAME, image.filename)


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
    order = " if the task's images are in the order of their names" * image.numbers_guessed
    message = f"image {image.filename!r} is the name of no frame and goes to frame {frame.number}, "
    yield Problem(f"{message}{frame.name!r}{how}{order}", keys.FILENAME, image.filename)


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
    own, its = f"{image.width}x{image.height}", f"{frame.width}x{frame.height}"
    message = f"image is {own}, frame {frame.name!r} is {its}"
    if (image.height, image.width) == (frame.width, frame.height):
        message += ": one of them is turned, as EXIF orientation does"
    if image.width != frame.width:
        yield Problem(message, keys.WIDTH, image.width)
    else:
        yield Problem(message, keys.HEIGHT, image.height)


@rule(
    "TSK005 info: frames without annotation",
    why="An import replaces what the task has: these frames end up empty.",
    fix="Check that the shard is complete, if these frames should have annotations.",
    source="cvat-sdk 2.80, import_annotations: import_mode is replace by default",
)
def bare_frames(
    frames: int, without_record: Sequence[str], without_boxes: Sequence[str]
) -> Iterator[Problem]:
    """Said once for the task, of its number of frames and the names of the bare ones."""
    bare = len(without_record) + len(without_boxes)
    parts = [
        f"{len(names)} {what} ({', '.join(names[:_NAMES_SHOWN])}"
        f"{', …' * (len(names) > _NAMES_SHOWN)})"
        for what, names in (
            ("without a record", without_record),
            ("with a record without boxes", without_boxes),
        )
        if names
    ]
    if bare:
        some = f"{bare} of the task's {frames} frames get no annotation"
        yield Problem(f"{some}: {', '.join(parts)}", value=bare)


@rule(
    "TSK006 error: two images go to one frame",
    why="CVAT puts the annotations of both on the one frame.",
    fix="Leave one of the records out, or rename it to the frame that is meant.",
    source=f"{_BINDINGS}, match_dm_item",
)
def shared_frame(image: Attachment) -> Iterator[Problem]:
    """Extensions do not count where no frame has the whole name."""
    if image.frame is None or image.earlier is None:
        return
    earlier = image.earlier
    record = "" if earlier.record is None else f"record {earlier.record}"
    where = ", ".join(filter(None, (earlier.shard, record)))
    message = f"image {image.filename!r} goes to frame {image.frame.name!r}, as does "
    message += f"{earlier.item!r}" + (f" ({where})" if where else "")
    yield Problem(message, keys.FILENAME, image.filename, identity=image.frame.name)


@rule(
    "TSK007 info: description of the task names no frames",
    why="CVAT for video 1.1 of a task of images holds no names, and an export may be empty; the "
    "images were not compared with the task.",
    fix="Export the task as CVAT for images 1.1, or give its images with --images.",
    source="cvat/apps/dataset_manager/formats/cvat.py, dump_as_cvat_interpolation",
)
def nameless_frames(source: str) -> Iterator[Problem]:
    """Said once for the task."""
    yield Problem(f"{source} names no frames, so that images were not compared")

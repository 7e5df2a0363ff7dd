"""CVAT's own XML, "CVAT for images 1.1" and "CVAT for video 1.1", as it streams past.

Exports of a task, a job and a project are read. Source: CVAT's
``dataset_manager/formats/cvat.py`` and ``bindings.py``, and its page on the XML format.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfod.errors import TfodError

from tfod_validator.safe_xml import iterate, open_xml

_MOST_FRAMES = 10_000_000
_NO_SHAPES = ("tag", "attribute")


@dataclass(frozen=True)
class CvatBox:
    """A rectangle: class and corners in pixels; a rotated one is its enclosing rectangle."""

    label: str
    xmin: float
    ymin: float
    xmax: float
    ymax: float


@dataclass(frozen=True)
class CvatMeta:
    """What the head of the document says.

    Attributes:
        labels: names of the classes; parts of skeletons are none.
        tasks: how many tasks the document holds: one, unless it is a project's.
        project: whether it is a project's.
        video: the frames come from a video, so that they are called ``frame_000000``.
        first: number that frame 0 of the task has in the document.
        step: how far the numbers of neighbouring frames are apart.
        numbers: of the frames, as in the document; empty when the head does not say.
        height, width: of the video's frames.
    """

    labels: tuple[str, ...]
    tasks: int
    project: bool
    video: bool
    first: int
    step: int
    numbers: range
    height: int | None
    width: int | None

    def frame_name(self, number: int) -> str:
        """What CVAT calls a frame of a video."""
        return f"frame_{number:06d}"


@dataclass(frozen=True)
class CvatImage:
    """One ``<image>`` of "CVAT for images"."""

    number: int
    name: str
    subset: str
    height: int | None
    width: int | None
    boxes: tuple[CvatBox, ...]
    other_shapes: int


@dataclass(frozen=True)
class CvatTrack:
    """One ``<track>`` of "CVAT for video": its visible boxes by frame number."""

    boxes: tuple[tuple[int, CvatBox], ...]
    other_shapes: int


def read_cvat_xml(path: str) -> Iterator[CvatMeta | CvatImage | CvatTrack]:
    """Read a document piece by piece, from a file or from ``annotations.xml`` in a zip.

    The head comes first.

    Raises:
        TfodError: it cannot be read, or is not CVAT's XML; with the line.
    """
    with open_xml(path) as (stream, name):
        seen_meta = False
        for element in iterate(stream, name, "annotations", ("meta", "image", "track")):
            if element.tag == "meta":
                seen_meta = True
                yield _read_meta(element, name)
            elif not seen_meta:
                raise TfodError(f"{name} has no <meta> before <{element.tag}>; export it again")
            else:
                yield (_read_image if element.tag == "image" else _read_track)(element, name)
        if not seen_meta:
            raise TfodError(f"{name} has no <meta>; export the task as CVAT for images 1.1")


def _read_meta(meta: Any, name: str) -> CvatMeta:
    labels = [
        label.findtext("name") or ""
        for label in meta.iterfind(".//labels/label")
        if not label.findtext("parent")
    ]
    project = meta.find("project")
    tasks = meta.findall("project/tasks/task") if project is not None else []
    one = tasks[0] if len(tasks) == 1 else meta.find("task")
    if one is None:
        one = meta.find("job")
    size = meta.find(".//original_size")
    # CVAT numbers the frames of a project's tasks on, so that numbers say nothing of a task.
    first, step, numbers = (0, 1, range(0)) if one is None else _read_numbers(one, name)
    return CvatMeta(
        labels=tuple(labels),
        tasks=max(1, len(tasks)),
        project=project is not None,
        video=one is not None and one.findtext("mode") == "interpolation",
        first=first,
        step=step,
        numbers=numbers,
        height=None if size is None else _whole(size.findtext("height"), size, name),
        width=None if size is None else _whole(size.findtext("width"), size, name),
    )


def _read_numbers(task: Any, name: str) -> tuple[int, int, range]:
    """Number of the task's frame 0, the step, and the numbers of the frames written here."""

    def number(tag: str) -> int | None:
        return _whole(task.findtext(tag), task, name)

    step = 1
    key, _, value = (task.findtext("frame_filter") or "").partition("=")
    if key.strip() == "step":
        step = max(1, _whole(value, task, name) or 1)
    start, stop, size = number("start_frame"), number("stop_frame"), number("size")
    if start is None:
        start = 0
    if stop is None:
        stop = start + ((size or 0) - 1) * step
    numbers = range(start, stop + 1, step)
    if len(numbers) > _MOST_FRAMES:
        raise TfodError(f"{name} claims {len(numbers)} frames, above {_MOST_FRAMES}")
    # A job's frames start in the middle of its task.
    starts = [_whole(one.text, one, name) or 0 for one in task.iterfind("segments/segment/start")]
    return start - min(starts, default=0) * step, step, numbers


def _read_image(image: Any, name: str) -> CvatImage:
    boxes = tuple(_read_box(box, box.get("label"), name) for box in image.iterfind("box"))
    return CvatImage(
        number=_whole(image.get("id"), image, name) or 0,
        name=image.get("name") or "",
        subset=image.get("subset") or "",
        height=_whole(image.get("height"), image, name),
        width=_whole(image.get("width"), image, name),
        boxes=boxes,
        other_shapes=_count_others(image),
    )


def _read_track(track: Any, name: str) -> CvatTrack:
    label = track.get("label")
    boxes = tuple(
        (_whole(box.get("frame"), box, name) or 0, _read_box(box, label, name))
        for box in track.iterfind("box")
        if box.get("outside") != "1"
    )
    return CvatTrack(boxes, _count_others(track))


def _count_others(element: Any) -> int:
    tags = Counter(child.tag for child in element)
    return sum(count for tag, count in tags.items() if tag not in ("box", *_NO_SHAPES))


def _read_box(box: Any, label: str | None, name: str) -> CvatBox:
    xmin, ymin, xmax, ymax = (_real(box, side, name) for side in ("xtl", "ytl", "xbr", "ybr"))
    if box.get("rotation"):
        angle = math.radians(_real(box, "rotation", name))
        cos, sin = abs(math.cos(angle)), abs(math.sin(angle))
        width, height = xmax - xmin, ymax - ymin
        half_width = (width * cos + height * sin) / 2
        half_height = (width * sin + height * cos) / 2
        x, y = (xmin + xmax) / 2, (ymin + ymax) / 2
        xmin, ymin, xmax, ymax = x - half_width, y - half_height, x + half_width, y + half_height
    return CvatBox(label or "", xmin, ymin, xmax, ymax)


def _whole(text: str | None, element: Any, name: str) -> int | None:
    if text is None or not text.strip():
        return None
    # int() is slow on very long texts, and nothing that is counted here needs as many digits.
    if len(text) <= 20:
        with contextlib.suppress(ValueError):
            return int(text)
    raise _no_number(text, element, name)


def _real(element: Any, attribute: str, name: str) -> float:
    text = element.get(attribute) or ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _no_number(text, element, name, f" {attribute}")
    return value


def _no_number(text: str, element: Any, name: str, attribute: str = "") -> TfodError:
    return TfodError(
        f"{name}, line {element.sourceline}: <{element.tag}>{attribute} "
        f"has {text[:40]!r} where a number is expected; export it again"
    )

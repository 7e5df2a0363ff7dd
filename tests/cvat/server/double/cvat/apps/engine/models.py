"""The enumerations of ``cvat.apps.engine.models``, and plain values in place of its tables.

Facts: each enumeration is a str whose ``str()`` is its value. A video task is in the mode
``interpolation`` and its data have a ``video``; frames count from 0 without gaps ("relative"),
frame numbers of the source are ``start_frame + step * relative`` ("absolute").
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any


def __getattr__(name: str) -> Any:
    """The tables, which need Django's settings, unlike the rest."""
    if name not in ("LabeledImage", "LabeledShape", "LabeledTrack", "TrackedShape"):
        raise AttributeError(name)
    from cvat.apps.engine import tables

    return getattr(tables, name)


class _Text(str, Enum):
    def __str__(self) -> str:
        return str(self.value)


class DimensionType(_Text):
    DIM_3D = "3d"
    DIM_2D = "2d"


class ShapeType(_Text):
    RECTANGLE = "rectangle"  # x0, y0, x1, y1
    POLYGON = "polygon"  # x0, y0, ..., xn, yn
    POLYLINE = "polyline"
    POINTS = "points"
    ELLIPSE = "ellipse"  # cx, cy, right, top
    CUBOID = "cuboid"
    MASK = "mask"  # run lengths, left, top, right, bottom
    SKELETON = "skeleton"


class TaskMode(_Text):
    ANNOTATION = "annotation"
    INTERPOLATION = "interpolation"


class JobType(_Text):
    ANNOTATION = "annotation"
    GROUND_TRUTH = "ground_truth"


class AttributeType(_Text):
    CHECKBOX = "checkbox"
    RADIO = "radio"
    NUMBER = "number"
    TEXT = "text"
    SELECT = "select"


class SourceType(_Text):
    AUTO = "auto"
    SEMI_AUTO = "semi-auto"
    MANUAL = "manual"
    FILE = "file"


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute that a label has; values are always texts."""

    name: str
    input_type: AttributeType = AttributeType.TEXT
    default_value: str = ""
    mutable: bool = False
    values: str = ""


@dataclass
class Label:
    """A label; ``attributes`` grows when an import into a project meets new ones.

    ``parent`` is the label of the skeleton that it is a part of.
    """

    name: str
    attributes: list[AttributeSpec] = field(default_factory=list)
    type: str = "any"
    color: str = "#33ddff"
    parent: str | None = None

    def spec(self, name: str) -> AttributeSpec | None:
        return next((one for one in self.attributes if one.name == name), None)


@dataclass(frozen=True)
class Frame:
    """A frame: its name in the task, its size in pixels, and its bytes or what reads them."""

    name: str
    width: int
    height: int
    data: bytes | Callable[[], bytes] = b""

    def read(self) -> bytes:
        return self.data() if callable(self.data) else self.data


@dataclass
class Annotations:
    """What is stored of a task: dicts of plain values with relative frames and label names."""

    shapes: list[dict[str, Any]] = field(default_factory=list)
    tracks: list[dict[str, Any]] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)

    def __len__(self) -> int:
        shapes = sum(len(track["shapes"]) for track in self.tracks)
        return len(self.tags) + len(self.shapes) + shapes

    def add(self, other: Annotations) -> None:
        self.shapes.extend(other.shapes)
        self.tracks.extend(other.tracks)
        self.tags.extend(other.tags)

    def within(self, start: int, stop: int, *, inside: bool = True) -> Annotations:
        """What is on the relative frames from start to stop, both included; or what is not."""

        def is_there(one: dict[str, Any]) -> bool:
            return (start <= one["frame"] <= stop) == inside

        kinds = (self.shapes, self.tracks, self.tags)
        return Annotations(*([one for one in kind if is_there(one)] for kind in kinds))


@dataclass
class Task:
    """A task, its frames and what is drawn on them.

    ``placeholders`` are frames that stand for one of the task's validation frames, under its name
    (2.73; "honeypots"): they are no part of an export, and nothing is matched to them. What is on
    validation frames then is of the job of ground truth, and an import replaces it as well
    (``TaskAnnotation.db_jobs``).
    """

    frames: Sequence[Frame]
    own_labels: list[Label] = field(default_factory=list)
    annotations: Annotations = field(default_factory=Annotations)
    id: int = 1
    name: str = "task"
    subset: str = ""
    start_frame: int = 0
    step: int = 1
    deleted_frames: Sequence[int] = ()
    placeholders: Sequence[int] = ()
    is_video: bool = False
    project: Project | None = None

    @property
    def labels(self) -> list[Label]:
        return self.project.labels if self.project else self.own_labels

    @property
    def validation_frames(self) -> set[int]:
        names = {self.frames[number].name for number in self.placeholders}
        there = {number for number, one in enumerate(self.frames) if one.name in names}
        return there.difference(self.placeholders)

    @property
    def mode(self) -> str:
        return str(TaskMode.INTERPOLATION if self.is_video else TaskMode.ANNOTATION)

    @property
    def data(self) -> Any:
        """The task's data, as far as formats look at it; ``video`` is there for videos only."""
        stop_frame = self.start_frame + self.step * max(0, len(self.frames) - 1)
        data = SimpleNamespace(
            size=len(self.frames),
            start_frame=self.start_frame,
            stop_frame=stop_frame,
            frame_filter=f"step={self.step}" if self.step > 1 else "",
            deleted_frames=list(self.deleted_frames),
            get_frame_step=lambda: self.step,
            validation_mode="gt_pool" if self.placeholders else None,
        )
        if self.is_video:
            first = self.frames[0]
            data.video = SimpleNamespace(width=first.width, height=first.height, path="video.mp4")
        return data


@dataclass
class Job:
    """A job: the relative frames from start to stop of its task, both included.

    Of ground truth, the ``chosen`` ones of them.
    """

    task: Task
    start: int
    stop: int
    id: int = 7
    type: JobType = JobType.ANNOTATION
    chosen: Sequence[int] | None = None

    @property
    def segment(self) -> Any:
        return SimpleNamespace(start_frame=self.start, stop_frame=self.stop, task=self.task)


@dataclass
class Project:
    """A project; its tasks have its labels."""

    labels: list[Label]
    tasks: list[Task] = field(default_factory=list)
    id: int = 3
    name: str = "project"

    def add(self, task: Task) -> Task:
        """Adopt a task, under the next free number."""
        task.id = 1 + max((one.id for one in self.tasks), default=0)
        task.project = self
        self.tasks.append(task)
        return task


def frame_of(name: str, data: bytes) -> Frame:
    """A frame from an uploaded file; what is no image is refused, as by CVAT's media reader."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        return Frame(name, *opened.size, data)

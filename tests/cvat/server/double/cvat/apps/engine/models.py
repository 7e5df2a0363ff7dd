"""The enumerations of ``cvat.apps.engine.models``, and plain values instead of its tables.

Facts: each enumeration is a str, and ``str()`` returns its value. The mode of a video task is
``interpolation``. Relative frames count from 0; absolute frames are ``start_frame + step *
relative``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any


def __getattr__(name: str) -> Any:
    """Import a table, which needs Django's settings."""
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


class AttributeType(_Text):
    CHECKBOX = "checkbox"
    RADIO = "radio"
    NUMBER = "number"
    TEXT = "text"
    SELECT = "select"


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute of a label; its values are texts."""

    name: str
    input_type: AttributeType = AttributeType.TEXT
    default_value: str = ""
    mutable: bool = False
    values: str = ""


@dataclass
class Label:
    """A label; ``parent`` is the label of the skeleton to which this one belongs."""

    name: str
    attributes: list[AttributeSpec] = field(default_factory=list)
    type: str = "any"
    color: str = "#33ddff"
    parent: str | None = None

    def spec(self, name: str) -> AttributeSpec | None:
        return next((one for one in self.attributes if one.name == name), None)


@dataclass(frozen=True)
class Frame:
    """A frame: its name and size, and its bytes or a function that reads them."""

    name: str
    width: int
    height: int
    data: bytes | Callable[[], bytes] = b""

    def read(self) -> bytes:
        return self.data() if callable(self.data) else self.data


@dataclass
class Annotations:
    """The stored annotations: dicts of plain values with relative frames and label names."""

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
        """Return the annotations on the relative frames from start to stop, or on the others."""
        kinds = (self.shapes, self.tracks, self.tags)
        return Annotations(
            *([one for one in kind if (start <= one["frame"] <= stop) == inside] for kind in kinds)
        )


@dataclass
class Task:
    """A task with its frames and annotations.

    ``placeholders`` are copies of validation frames with their names (2.73; "honeypots"), which are
    not exported and match no image. The annotations on validation frames belong to the job of
    ground truth, and an import also replaces them (``TaskAnnotation.db_jobs``).
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
        validation = {number for number, one in enumerate(self.frames) if one.name in names}
        return validation.difference(self.placeholders)

    @property
    def mode(self) -> str:
        return "interpolation" if self.is_video else "annotation"

    @property
    def data(self) -> Any:
        """The data of the task that formats use."""
        return SimpleNamespace(
            size=len(self.frames),
            start_frame=self.start_frame,
            stop_frame=self.start_frame + self.step * max(0, len(self.frames) - 1),
            frame_filter=f"step={self.step}" if self.step > 1 else "",
            validation_mode="gt_pool" if self.placeholders else None,
        )


@dataclass
class Job:
    """The relative frames of a task from start to stop, or the ``chosen`` ones of ground truth."""

    task: Task
    start: int
    stop: int
    id: int = 7
    type: str = "annotation"
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
        """Add a task with the next number."""
        task.id = 1 + max((one.id for one in self.tasks), default=0)
        task.project = self
        self.tasks.append(task)
        return task


def frame_of(name: str, data: bytes) -> Frame:
    """Return the frame of an uploaded image; CVAT refuses other files."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        return Frame(name, *opened.size, data)

"""A task, a job or a project as the server has it now: labels and frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfod.check.references.cvat_task import Frame, Task
from tfod.cvat.attributes import AttributeSpec
from tfod.cvat.client.changes import Held
from tfod.cvat.client.server import Server, ServerError
from tfod.cvat.records import Labels
from tfod.errors import TfodError
from tfod.formats.cvat_shapes import KINDS as KINDS_OF_SHAPES

TASK, JOB, PROJECT = "task", "job", "project"
KINDS = (TASK, JOB, PROJECT)
_VIDEO = "interpolation"
_FLAT = "2d"


@dataclass(frozen=True)
class Target:
    """A task, a job or a project by its number."""

    kind: str
    number: int

    @classmethod
    def typed(cls, kind: str, number: str) -> Target:
        """What ``--cvat KIND ID`` names. Raises TfodError where that is nothing."""
        if kind not in KINDS or not number.isascii() or not number.isdigit():
            raise TfodError(f"--cvat {kind} {number}: name {', '.join(KINDS)}, then its number")
        return cls(kind, int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def path(self) -> str:
        """Where the server has it."""
        return f"/api/{self.kind}s/{self.number}"

    def retrieve(self, server: Server) -> dict[str, object]:
        """What the server says of it. Raises TfodError: it is not there, or not for us."""
        try:
            found = server.get(self.path)
        except ServerError as error:
            if error.status == 404:
                raise TfodError(
                    f"{server.host} has no {self}, or does not show it to you; look at the number "
                    "in the address of its page, and at CVAT_ORGANIZATION"
                ) from None
            raise
        with server.expected():
            about = dict(found)
            if about["id"] != self.number:
                raise ValueError(f"{self} has the number {about['id']}")
            return about


@dataclass(frozen=True)
class LiveTask:
    """What the server says.

    Attributes:
        target: what was asked for.
        name: of the task.
        task: labels and frames, as the checker wants them. Of a job, those of its whole task: a
            zip of the task's is known by them.
        labels: the attributes of each, by name.
        held: its annotations; none of a project.
        own: numbers of the frames that annotations may come to.
        deleted: names of frames that were deleted; they are not among the frames.
        first, step: number of frame 0 in CVAT's XML, and how far neighbours are apart there.
    """

    target: Target
    name: str
    task: Task
    labels: Labels
    held: Held = field(default_factory=Held)
    own: frozenset[int] = frozenset()
    deleted: tuple[str, ...] = ()
    first: int = 0
    step: int = 1


@dataclass(frozen=True)
class _Frames:
    """The frames of a task or a job; in a job, too, numbers count from the task's beginning."""

    frames: tuple[Frame, ...]
    deleted: tuple[Frame, ...]
    first: int
    step: int


def fetch_task(server: Server, target: Target) -> LiveTask:
    """Ask the server for labels and frames.

    Raises:
        TfodError: there is no such thing, or it has no images.
    """
    with server.expected():
        return _fetch(server, target)


def _fetch(server: Server, target: Target) -> LiveTask:
    about: Any = target.retrieve(server)
    if about.get("dimension", _FLAT) not in (_FLAT, None):
        raise TfodError(f"{target} has {about['dimension']} data; only images have boxes")
    name = str(about.get("name") or target)
    found = server.list("/api/labels", **{f"{target.kind}_id": target.number})
    # A part of a skeleton is no label: no shape of its own can have it.
    known = [one for one in found if one.get("parent_id") is None]
    labels = {
        one["name"]: {each["name"]: AttributeSpec.of(each) for each in one.get("attributes", ())}
        for one in known
    }
    if target.kind == PROJECT:
        # An import makes new tasks: the frames of those that are there do not matter.
        return LiveTask(target, name, Task(labels=frozenset(labels), new_tasks=True), labels)
    own = _fetch_frames(server, target, about)
    others = _other_frames(server, about, own) if target.kind == JOB else ()
    numbers = frozenset(one.number for one in own.frames if one.number is not None)
    annotations = server.get(f"{target.path}/annotations")
    held = Held.of(annotations, {one["id"]: one["name"] for one in known}, numbers)
    return LiveTask(
        target=target,
        name=name,
        task=Task(
            labels=frozenset(labels),
            frames=(*others, *own.frames),  # of equal names the last counts: the job's own
            video=about.get("mode") == _VIDEO,
            not_carried=held.others,
            annotated=frozenset(held.frames),
            own=numbers if target.kind == JOB else None,
        ),
        labels=labels,
        held=held,
        own=numbers,
        deleted=tuple(one.name for one in own.deleted),
        first=own.first,
        step=own.step,
    )


def count_tracks(server: Server, target: Target) -> int:
    """How many tracks there are, of kinds that shards have."""
    if target.kind == PROJECT:
        tasks = server.list("/api/tasks", project_id=target.number)
        return sum(count_tracks(server, Target(TASK, one["id"])) for one in tasks)
    with server.expected():
        tracks = server.get(f"{target.path}/annotations")["tracks"]
        kinds = [shape["type"] for one in tracks for shape in one["shapes"][:1]]
        return sum(kind in KINDS_OF_SHAPES for kind in kinds)


def _other_frames(server: Server, job: Any, own: _Frames) -> list[Frame]:
    """The frames of a job's task that are not the job's; none where the user may not see them."""
    numbers = {one.number for one in (*own.frames, *own.deleted)}
    try:
        frames = _fetch_frames(server, Target(TASK, job["task_id"]), job).frames
    except ServerError as error:
        if error.status in (403, 404):
            return []
        raise
    return [one for one in frames if one.number not in numbers]


def _fetch_frames(server: Server, target: Target, about: Any) -> _Frames:
    meta = server.get(f"{target.path}/data/meta")
    step = _step(meta.get("frame_filter") or "")
    first = about.get("start_frame", 0) if target.kind == JOB else 0
    # Where the task's frame 0 is in the document: the meta of a job begins with the job.
    origin = meta["start_frame"] - first * step
    deleted = set(meta.get("deleted_frames") or ())
    images: list[Any] = meta["frames"]
    included = meta.get("included_frames")
    count = int(meta.get("size") or len(images))
    numbers = list(range(first, first + count))
    if included is not None:
        numbers = sorted((number - origin) // step for number in included)
    is_video = about.get("mode") == _VIDEO
    frames = []
    for number in numbers:
        # A job of chosen frames, as ground truth, lists its whole range with placeholders.
        image = images[0 if is_video else number - first]
        name = f"frame_{origin + number * step:06d}" if is_video else image["name"]
        size = image.get("height") or None, image.get("width") or None
        frames.append(Frame(name, number, *size))
    return _Frames(
        frames=tuple(one for one in frames if one.number not in deleted),
        deleted=tuple(one for one in frames if one.number in deleted),
        first=origin,
        step=step,
    )


def _step(frame_filter: str) -> int:
    key, _, value = frame_filter.partition("=")
    return max(1, int(value)) if key.strip() == "step" and value.strip().isdigit() else 1

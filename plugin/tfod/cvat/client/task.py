"""A task, a job or a project as the server has it now: labels, frames, annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfod.check.references.cvat_task import Frame, Task
from tfod.cvat.attributes import AttributeSpec
from tfod.cvat.client.changes import Held
from tfod.cvat.client.connection import JOB, PROJECT, TASK, Server, ServerError, Target
from tfod.cvat.records import Labels
from tfod.errors import TfodError

_VIDEO = "interpolation"
_FLAT = "2d"


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


def fetch_task(server: Server, target: Target) -> LiveTask:
    """Ask the server for labels, frames and annotations.

    Raises:
        TfodError: there is no such thing, or it has no images.
    """
    about = server.retrieve(target)
    if about.get("dimension", _FLAT) not in (_FLAT, None):
        raise TfodError(f"{target} has {about['dimension']} data; only images have boxes")
    name = str(about.get("name") or target)
    found = server.list("labels", **{f"{target.kind}_id": target.number})
    with server.errors():
        # A part of a skeleton is no label: no shape of its own can have it.
        known = [one for one in found if one.get("parent_id") is None]
        labels = {
            one["name"]: {each["name"]: AttributeSpec.of(each) for each in one["attributes"]}
            for one in known
        }
        if target.kind == PROJECT:
            # An import makes new tasks: the frames of those that are there do not matter.
            task = Task(labels=frozenset(labels), new_tasks=True)
            return LiveTask(target, name, task, labels)
        frames, deleted, first, step = _fetch_frames(server, target, about)
        others = _other_frames(server, about, {**frames, **deleted}) if target.kind == JOB else []
        annotations = server.get(f"{target.path}/annotations")
        held = Held.of(annotations, {one["id"]: one["name"] for one in known}, frames)
        return LiveTask(
            target=target,
            name=name,
            task=Task(
                labels=frozenset(labels),
                frames=(*others, *frames.values()),  # of equal names the last counts: its own
                video=about.get("mode") == _VIDEO,
                not_carried=held.others,
                annotated=frozenset(held.frames),
                own=frozenset(frames) if target.kind == JOB else None,
            ),
            labels=labels,
            held=held,
            own=frozenset(frames),
            deleted=tuple(one.name for one in deleted.values()),
            first=first,
            step=step,
        )


def count_tracks(server: Server, target: Target) -> int:
    """How many tracks there are, of kinds that shards have."""
    if target.kind == PROJECT:
        tasks = server.list("tasks", project_id=target.number)
        return sum(count_tracks(server, Target(TASK, one["id"])) for one in tasks)
    with server.errors():
        annotations = server.get(f"{target.path}/annotations")
        return Held.of({**annotations, "shapes": [], "tags": []}, {}, ()).tracks


def _other_frames(server: Server, job: Any, own: Mapping[int, Frame]) -> list[Frame]:
    """The frames of a job's task that are not the job's; none where the user may not see them."""
    try:
        frames, *_ = _fetch_frames(server, Target(TASK, job["task_id"]), job)
    except ServerError as error:
        if error.status in (403, 404):
            return []
        raise
    return [one for number, one in frames.items() if number not in own]


def _fetch_frames(
    server: Server, target: Target, about: Any
) -> tuple[dict[int, Frame], dict[int, Frame], int, int]:
    """The frames of a task or a job by their number in the task, those that were deleted, and as
    LiveTask has them, where they begin and their step in CVAT's XML.
    """
    meta = server.get(f"{target.path}/data/meta")
    key, _, value = (meta.get("frame_filter") or "").partition("=")
    step = max(1, int(value)) if key.strip() == "step" else 1
    begin = about.get("start_frame", 0) if target.kind == JOB else 0
    # Where the task's frame 0 is in the document: the meta of a job begins with the job.
    first = meta["start_frame"] - begin * step
    images: list[Any] = meta["frames"]
    included = meta.get("included_frames")
    numbers: Sequence[int] = range(begin, begin + int(meta.get("size") or len(images)))
    if included is not None:
        numbers = sorted((number - first) // step for number in included)
    is_video = about.get("mode") == _VIDEO
    deleted_numbers = set(meta.get("deleted_frames") or ())
    frames: dict[int, Frame] = {}
    deleted: dict[int, Frame] = {}
    for number in numbers:
        # A job of chosen frames, as ground truth, lists its whole range with placeholders.
        image = images[0 if is_video else number - begin]
        name = f"frame_{first + number * step:06d}" if is_video else image["name"]
        size = image.get("height") or None, image.get("width") or None
        of = deleted if number in deleted_numbers else frames
        of[number] = Frame(name, number, *size)
    return frames, deleted, first, step

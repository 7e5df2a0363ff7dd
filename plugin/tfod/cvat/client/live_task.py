"""A task, a job or a project as the server has it now, and what an import would change of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfod.checker.references.cvat_task import Frame, Task, shown
from tfod.checker.reporters.escaping import in_columns
from tfod.cvat.client.connection import JOB, PROJECT, TASK, Server, ServerError, Target
from tfod.cvat.records import AttributeSpec, Labels
from tfod.detection.losses import listed
from tfod.formats.cvat.shapes import BOX, KINDS, CvatShape, CvatTag, make_shape

_Key = tuple[str, str, tuple[int, ...]]
"""Class, kind and corners of a shape: what makes it the same as another on its frame."""
_COLUMNS = ("class", "now", "in the file", "added", "removed")


_VIDEO = "interpolation"


@dataclass
class ServerAnnotations:
    """What the server has of a task or a job.

    Attributes:
        keys: of the shapes and tags on each frame.
        others: shapes and tracks that no shard can hold, by kind.
        outlines: masks, polygons and ellipses, and their tracks, by kind.
        frames: numbers of the frames that have annotations, also those where a track shows.
        tracks: how many tracks there are besides those among the others.
    """

    keys: dict[int, Counter[_Key]] = field(default_factory=lambda: defaultdict(Counter))
    others: Counter[str] = field(default_factory=Counter)
    outlines: Counter[str] = field(default_factory=Counter)
    frames: set[int] = field(default_factory=set)
    tracks: int = 0

    @classmethod
    def of(
        cls, annotations: Any, names: Mapping[int, str], frames: Iterable[int]
    ) -> ServerAnnotations:
        """From the annotations of the server's API.

        Args:
            annotations: as the API has them.
            names: of the classes by number.
            frames: that annotations may be on.
        """
        held, there = cls(), sorted(frames)
        for one in annotations["shapes"]:
            held.frames.add(one["frame"])
            if one["type"] not in KINDS:
                held.others[one["type"]] += 1
                continue
            held.outlines[one["type"]] += KINDS[one["type"]] != BOX
            label, rotation = names.get(one["label_id"], ""), one.get("rotation") or 0.0
            key = _key(make_shape(one["type"], one["points"], rotation, label=label))
            held.keys[one["frame"]][key] += 1
        for one in annotations["tags"]:
            held.frames.add(one["frame"])
            held.keys[one["frame"]][_key(CvatTag(names.get(one["label_id"], "")))] += 1
        for track in annotations["tracks"]:
            keyframes = sorted((one["frame"], one["outside"]) for one in track["shapes"])
            held.frames |= shown(keyframes, there)
            kind = track["shapes"][0]["type"] if track["shapes"] else "empty"
            if kind in KINDS:
                held.tracks += 1
                held.outlines[f"{kind} tracks"] += KINDS[kind] != BOX
            else:
                held.others[f"{kind} tracks"] += 1
        if annotations.get("intervals"):  # of sounds, since 2.73
            held.others["intervals"] = len(annotations["intervals"])
        held.frames.intersection_update(there)
        held.outlines = +held.outlines
        return held


@dataclass(frozen=True)
class LiveTask:
    """What the server says.

    Attributes:
        target: what was asked for.
        task: labels and frames, as the checker wants them. Of a job, those of its whole task: a
            zip of the task's is known by them.
        labels: the attributes of each, by name.
        held: its annotations; none of a project.
        first, step: number of frame 0 in CVAT's XML, and how far neighbours are apart there.
    """

    target: Target
    task: Task
    labels: Labels
    held: ServerAnnotations = field(default_factory=ServerAnnotations)
    first: int = 0
    step: int = 1


def fetch_task(server: Server, target: Target) -> LiveTask:
    """Ask the server for labels, frames and annotations.

    Raises:
        TfodError: as :meth:`Server.retrieve`.
    """
    about = server.retrieve(target)
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
            task = Task(labels=frozenset(labels) or None, new_tasks=True)
            return LiveTask(target, task, labels)
        frames, deleted, first, step = _fetch_frames(server, target, about)
        others = _other_frames(server, about, frames) if target.kind == JOB else []
        annotations = server.get(f"{target.path}/annotations")
        names = {one["id"]: one["name"] for one in known}
        held = ServerAnnotations.of(annotations, names, frames)
        last = {one.name: number for number, one in frames.items()}
        # Placeholders, which CVAT fills with a copy of the last frame of the name.
        honeypots = {number for number, one in frames.items() if last[one.name] != number}
        for number in honeypots:
            held.keys.pop(number, None)
        hidden = (held.frames & honeypots) - deleted if target.kind == TASK else ()
        return LiveTask(
            target=target,
            task=Task(
                labels=frozenset(labels),
                frames=(*others, *frames.values()),  # of equal names the last counts: its own
                video=about.get("mode") == _VIDEO,
                attributes=labels,
                unsupported_shapes=held.others,
                outlines=held.outlines,
                hidden=+Counter(deleted=len(held.frames & deleted), honeypots=len(hidden)),
                annotated=frozenset(held.frames - deleted),
                own=frozenset(frames) if target.kind == JOB else None,
            ),
            labels=labels,
            held=held,
            first=first,
            step=step,
        )


def count_unexported(server: Server, target: Target) -> tuple[Counter[str], int]:
    """Count the frames that the server does not export, and its tracks."""
    targets = [target]
    if target.kind == PROJECT:
        tasks = server.list("tasks", project_id=target.number)
        targets = [Target(TASK, one["id"]) for one in tasks if one.get("size")]
    live = (fetch_task(server, part) for part in targets)
    counts = [(Counter(one.task.hidden), one.held.tracks) for one in live]
    return sum((one for one, _ in counts), Counter()), sum(tracks for _, tracks in counts)


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
) -> tuple[dict[int, Frame], set[int], int, int]:
    """The frames of a task or a job by their number in the task, which of them were deleted, and as
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
    frames: dict[int, Frame] = {}
    for number in numbers:
        # A job of chosen frames, as ground truth, lists its whole range with placeholders.
        image = images[0 if is_video else number - begin]
        name = f"frame_{first + number * step:06d}" if is_video else image["name"]
        size = image.get("height") or None, image.get("width") or None
        frames[number] = Frame(name, number, *size)
    return frames, set(meta.get("deleted_frames") or ()), first, step


class Changes:
    """Collects the comparison of a file with what the server has, frame by frame."""

    def __init__(self, held: ServerAnnotations, append: bool) -> None:
        self._held = held
        self._append = append
        # By class and kind: on the server, in the file, added, removed.
        self._rows: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def compare(self, frame: int, file: Iterable[CvatShape | CvatTag]) -> None:
        """Add what the file has for a frame."""
        self._compare(self._held.keys.pop(frame, Counter()), Counter(map(_key, file)))

    def _compare(self, here: Counter[_Key], there: Counter[_Key]) -> None:
        for key in here.keys() | there.keys():
            row, now, file = self._rows[key[:2]], here[key], there[key]
            row[0] += now
            row[1] += file
            row[2] += file if self._append else max(0, file - now)
            row[3] += 0 if self._append else max(0, now - file)

    def text(self) -> str:
        """A table, one line a class and kind; last, when all frames were compared."""
        for left in self._held.keys.values():  # frames that no record is for
            self._compare(left, Counter())
        others, tracks = self._held.others, self._held.tracks
        if not self._rows and not others and not tracks:
            return "no annotations, neither on the server nor in the file"
        rows = (
            (f"{label} ({kind})", *map(str, row))
            for (label, kind), row in sorted(self._rows.items())
        )
        lines = [*in_columns([_COLUMNS, *rows])]
        if others and not self._append:
            lines.append(f"also removed: {listed(others)}")
        if tracks and not self._append:
            lines.append(f"tracks that become single shapes, one a frame: {tracks}")
        return "\n".join(lines)


def _key(one: CvatShape | CvatTag) -> _Key:
    """What a shape or a tag is compared by: its corners in whole pixels.

    What a shard's numbers cannot hold of a hundredth is left out.
    """
    if isinstance(one, CvatTag):
        return one.label, "tag", ()
    turned = "rotated " if one.kind == BOX and one.rotation else ""
    corners = tuple(math.floor(round(side, 2) + 0.5) for side in one.corners)
    return one.label, turned + one.kind, corners

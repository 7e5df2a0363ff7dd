"""A task, a job or a project on the server, and the changes that an import would make to it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfod.checker.references.cvat_task import Frame, Task, find_visible_frames
from tfod.checker.reporters.escaping import format_columns
from tfod.cvat.client.connection import JOB, PROJECT, TASK, Server, ServerError, Target
from tfod.cvat.records import AttributeSpec, Labels
from tfod.detection.losses import format_counts
from tfod.formats.cvat.shapes import BOX, KINDS, CvatShape, CvatTag, make_shape

_Key = tuple[str, str, tuple[int, ...]]
"""Class, kind and corners of a shape. Shapes of a frame with the same key count as the same."""
_COLUMNS = ("class", "now", "in the file", "added", "removed")
_VIDEO = "interpolation"


@dataclass
class ServerAnnotations:
    """The annotations of a task or a job on the server.

    Attributes:
        keys: keys of the shapes and tags on each frame.
        unsupported: number of shapes and tracks that a shard cannot store, by kind.
        outlines: number of masks, polygons, ellipses and their tracks, by kind.
        frames: numbers of the frames that have annotations, including visible tracks.
        tracks: number of tracks, except for unsupported ones.
    """

    keys: dict[int, Counter[_Key]] = field(default_factory=lambda: defaultdict(Counter))
    unsupported: Counter[str] = field(default_factory=Counter)
    outlines: Counter[str] = field(default_factory=Counter)
    frames: set[int] = field(default_factory=set)
    tracks: int = 0

    @classmethod
    def from_api(
        cls, annotations: Any, names: Mapping[int, str], frames: Iterable[int]
    ) -> ServerAnnotations:
        """Create them from JSON of the server's API, on frames with the given numbers."""
        result, numbers = cls(), sorted(frames)
        for shape in annotations["shapes"]:
            result.frames.add(shape["frame"])
            kind = shape["type"]
            if kind not in KINDS:
                result.unsupported[kind] += 1
                continue
            result.outlines[kind] += KINDS[kind] != BOX
            label, rotation = names.get(shape["label_id"], ""), shape.get("rotation") or 0.0
            key = _make_key(make_shape(kind, shape["points"], rotation, label=label))
            result.keys[shape["frame"]][key] += 1
        for tag in annotations["tags"]:
            result.frames.add(tag["frame"])
            result.keys[tag["frame"]][_make_key(CvatTag(names.get(tag["label_id"], "")))] += 1
        for track in annotations["tracks"]:
            keyframes = sorted((shape["frame"], shape["outside"]) for shape in track["shapes"])
            result.frames |= find_visible_frames(keyframes, numbers)
            kind = track["shapes"][0]["type"] if track["shapes"] else "empty"
            if kind in KINDS:
                result.tracks += 1
                result.outlines[f"{kind} tracks"] += KINDS[kind] != BOX
            else:
                result.unsupported[f"{kind} tracks"] += 1
        if annotations.get("intervals"):  # of audio, since 2.73
            result.unsupported["intervals"] = len(annotations["intervals"])
        result.frames.intersection_update(numbers)
        result.outlines = +result.outlines
        return result


@dataclass(frozen=True)
class LiveTask:
    """A task, a job or a project on the server.

    Attributes:
        task: labels and frames for the checker. A job has the frames of its whole task, so that a
            zip of the task can be recognized.
        labels: attributes of each label, by name.
        annotations: annotations of a task or job; empty for a project.
        first, step: number of frame 0 in CVAT's XML, and the difference between neighbors there.
    """

    target: Target
    task: Task
    labels: Labels
    annotations: ServerAnnotations = field(default_factory=ServerAnnotations)
    first: int = 0
    step: int = 1


def fetch_task(server: Server, target: Target) -> LiveTask:
    """Fetch labels, frames and annotations, or raise TfodError like :meth:`Server.retrieve`."""
    about = server.retrieve(target)
    items = server.list("labels", **{f"{target.kind}_id": target.number})
    with server.convert_errors():
        # Parts of skeletons have a parent, and are not labels of shapes.
        items = [item for item in items if item.get("parent_id") is None]
        labels = {
            item["name"]: {row["name"]: AttributeSpec.from_cvat(row) for row in item["attributes"]}
            for item in items
        }
        if target.kind == PROJECT:
            # An import creates new tasks, so the frames of existing ones do not matter.
            task = Task(labels=frozenset(labels) or None, new_tasks=True)
            return LiveTask(target, task, labels)
        frames, deleted, first, step = _fetch_frames(server, target, about)
        other_frames = _fetch_other_frames(server, about, frames) if target.kind == JOB else []
        annotations = ServerAnnotations.from_api(
            server.get(f"{target.path}/annotations"),
            {item["id"]: item["name"] for item in items},
            frames,
        )
        last = {frame.name: number for number, frame in frames.items()}
        # Honeypots are placeholders, which CVAT fills with a copy of the last frame of this name.
        honeypots = {number for number, frame in frames.items() if last[frame.name] != number}
        for number in honeypots:
            annotations.keys.pop(number, None)
        annotated = annotations.frames
        hidden = (annotated & honeypots) - deleted if target.kind == TASK else ()
        return LiveTask(
            target=target,
            task=Task(
                labels=frozenset(labels),
                frames=(*other_frames, *frames.values()),  # the last of equal names counts
                video=about.get("mode") == _VIDEO,
                attributes=labels,
                unsupported_shapes=annotations.unsupported,
                outlines=annotations.outlines,
                hidden=+Counter(deleted=len(annotated & deleted), honeypots=len(hidden)),
                annotated=frozenset(annotated - deleted),
                job_frames=frozenset(frames) if target.kind == JOB else None,
            ),
            labels=labels,
            annotations=annotations,
            first=first,
            step=step,
        )


def count_unexported(server: Server, target: Target) -> tuple[Counter[str], int]:
    """Count the annotated frames that the server does not export, and its tracks."""
    targets = [target]
    if target.kind == PROJECT:
        tasks = server.list("tasks", project_id=target.number)
        targets = [Target(TASK, task["id"]) for task in tasks if task.get("size")]
    hidden, tracks = Counter[str](), 0
    for part in targets:
        live = fetch_task(server, part)
        hidden.update(live.task.hidden)
        tracks += live.annotations.tracks
    return hidden, tracks


def _fetch_other_frames(server: Server, job: Any, in_job: Mapping[int, Frame]) -> list[Frame]:
    """Fetch the other frames of a job's task; the list is empty if the user has no access."""
    try:
        frames, *_ = _fetch_frames(server, Target(TASK, job["task_id"]), job)
    except ServerError as error:
        if error.status in (403, 404):
            return []
        raise
    return [frame for number, frame in frames.items() if number not in in_job]


def _fetch_frames(
    server: Server, target: Target, about: Any
) -> tuple[dict[int, Frame], set[int], int, int]:
    """Fetch frames by their number in the task, deleted frames, and LiveTask's first and step."""
    meta = server.get(f"{target.path}/data/meta")
    key, _, value = (meta.get("frame_filter") or "").partition("=")
    step = max(1, int(value)) if key.strip() == "step" else 1
    begin = about.get("start_frame", 0) if target.kind == JOB else 0
    # The number of the task's frame 0 in the XML; a job's metadata begins with the job.
    first = meta["start_frame"] - begin * step
    images: list[Any] = meta["frames"]
    included = meta.get("included_frames")
    numbers: Sequence[int] = range(begin, begin + int(meta.get("size") or len(images)))
    if included is not None:
        numbers = sorted((number - first) // step for number in included)
    is_video = about.get("mode") == _VIDEO
    frames: dict[int, Frame] = {}
    for number in numbers:
        # A job with selected frames, such as ground truth, lists placeholders for the others.
        image = images[0 if is_video else number - begin]
        name = f"frame_{first + number * step:06d}" if is_video else image["name"]
        size = image.get("height") or None, image.get("width") or None
        frames[number] = Frame(name, number, *size)
    return frames, set(meta.get("deleted_frames") or ()), first, step


class Changes:
    """Compares a file with the annotations on the server, frame by frame."""

    def __init__(self, annotations: ServerAnnotations, append: bool) -> None:
        self._annotations = annotations
        self._append = append
        # Numbers by class and kind: on the server, in the file, added, removed.
        self._rows: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def compare(self, frame: int, shapes: Iterable[CvatShape | CvatTag]) -> None:
        """Add the shapes and tags that the file has on a frame."""
        existing = self._annotations.keys.pop(frame, Counter())
        self._compare(existing, Counter(map(_make_key, shapes)))

    def _compare(self, existing: Counter[_Key], imported: Counter[_Key]) -> None:
        for key in existing.keys() | imported.keys():
            row, now, file = self._rows[key[:2]], existing[key], imported[key]
            row[0] += now
            row[1] += file
            row[2] += file if self._append else max(0, file - now)
            row[3] += 0 if self._append else max(0, now - file)

    def text(self) -> str:
        """Return a table with a line per class and kind, after all frames were compared."""
        for existing in self._annotations.keys.values():  # on frames without a record
            self._compare(existing, Counter())
        unsupported, tracks = self._annotations.unsupported, self._annotations.tracks
        if not self._rows and not unsupported and not tracks:
            return "there are no annotations on the server or in the file"
        items = sorted(self._rows.items())
        rows = ((f"{label} ({kind})", *map(str, row)) for (label, kind), row in items)
        lines = [*format_columns([_COLUMNS, *rows])]
        if unsupported and not self._append:
            lines.append(f"also removed: {format_counts(unsupported)}")
        if tracks and not self._append:
            lines.append(f"tracks that become single shapes, one per frame: {tracks}")
        return "\n".join(lines)


def _make_key(annotation: CvatShape | CvatTag) -> _Key:
    """Return the key of a shape or a tag, with corners in whole pixels."""
    if isinstance(annotation, CvatTag):
        return annotation.label, "tag", ()
    prefix = "rotated " if annotation.kind == BOX and annotation.rotation else ""
    corners = tuple(math.floor(round(side, 2) + 0.5) for side in annotation.corners)
    return annotation.label, prefix + annotation.kind, corners

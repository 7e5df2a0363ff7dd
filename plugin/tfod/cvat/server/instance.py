"""What CVAT's task, job or project expects of an upload: labels, attributes, frames."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfod.checker.references.cvat_task import Frame, Task, shown
from tfod.cvat.records import AttributeSpec, Labels
from tfod.errors import TfodError

_log = logging.getLogger("tfod.cvat")
_PROJECT, _JOB = "project", "job"  # META_FIELD
_VIDEO = "interpolation"  # TaskMode.INTERPOLATION
_NOT_CARRIED = ("skeleton", "points", "polyline", "cuboid")  # of ShapeType
_OUTLINES = ("mask", "polygon", "ellipse")  # the same, which an import without masks replaces
_ANNOTATION, _GROUND_TRUTH = "annotation", "ground_truth"  # of JobType
_POOL = "gt_pool"  # ValidationMode.GT_POOL: an import replaces also what the ground truth has


@dataclass(frozen=True)
class Instance:
    """What is imported into.

    Attributes:
        noun: ``task``, ``job`` or ``project``.
        task: labels and frames, as the checker wants them. Of a job, those of its whole task: a
            zip of the task's is known by them. Of a project none: its tasks are yet to be made.
        attributes: of each label, by name.
        takes_new_attributes: CVAT makes attributes that a label lacks.
    """

    noun: str
    task: Task
    attributes: Labels
    takes_new_attributes: bool


def option(name: str, *choices: str) -> str:
    """Return the value of an environment variable, by default the first choice.

    Raises:
        TfodError: the value is another.
    """
    value = os.environ.get(name) or choices[0]
    if value not in choices:
        raise TfodError(f"{name} is {value!r}; set it to {' or '.join(choices)} on the server")
    return value


def describe_instance(instance_data: Any) -> Instance:
    """Describe CVAT's ``TaskData``, ``JobData`` or ``ProjectData``."""
    noun: str = instance_data.META_FIELD
    meta = instance_data.meta[noun]
    # Parts of skeletons have a parent; no annotation of ours can be one.
    labels = [label for _, label in meta["labels"] if not label.get("parent")]
    frames: tuple[Frame, ...] | None = None
    own: Mapping[int, Any] = {}
    own_frames: frozenset[int] = frozenset()
    held = _Held(Counter(), frozenset())
    if noun != _PROJECT:
        own = instance_data.frame_info
        own_frames = frozenset(own)
        if noun == _JOB:  # of ground truth, it has chosen frames of the range that CVAT describes
            own_frames &= {*instance_data.get_included_frames(), *instance_data.deleted_frames}
        others = _other_frames(instance_data) if noun == _JOB else {}
        held = _deleted(instance_data, sorted(own_frames))
        frames = tuple(
            Frame(info["path"], number, info["height"], info["width"])
            # Of equal names the last counts, so that a job's placeholders come before the others.
            for number, info in [*others.items(), *own.items()]
        )
    outlines = Counter({kind: n for kind, n in held.shapes.items() if kind.startswith(_OUTLINES)})
    attributes = {
        label["name"]: {one["name"]: AttributeSpec.of(one) for _, one in label["attributes"]}
        for label in labels
    }
    return Instance(
        noun=noun,
        task=Task(
            # CVAT makes the labels of a project that has none.
            labels=frozenset(label["name"] for label in labels) if labels else None,
            frames=frames,
            video=frames is not None and meta["mode"] == _VIDEO,
            new_tasks=frames is None,
            attributes={} if frames is None else attributes,
            unsupported_shapes=held.shapes - outlines,
            outlines=outlines,
            hidden={} if frames is None else _hidden(instance_data, held.frames),
            annotated=held.frames.intersection(
                () if frames is None else instance_data.get_included_frames()
            ),
            own=own_frames if noun == _JOB else None,
            skips_others=option("TFOD_CVAT_OTHER_FRAMES", "refuse", "skip") == "skip",
        ),
        attributes=attributes,
        takes_new_attributes=bool(instance_data.soft_attribute_import),
    )


def _other_frames(job_data: Any) -> dict[int, Any]:
    """What CVAT knows of the frames of a job's task that are not the job's."""
    from cvat.apps.dataset_manager.bindings import TaskData

    task_data = TaskData(job_data.data, job_data.db_instance.segment.task)
    own = job_data.frame_info
    return {number: info for number, info in task_data.frame_info.items() if number not in own}


class _Held(NamedTuple):
    """What the tables have: shapes but rectangles by kind, and frames with annotations."""

    shapes: Counter[str]
    frames: frozenset[int]


def count_hidden(instance_data: Any) -> Counter[str]:
    """Count the frames with annotations of a task, job or project that its export leaves out."""
    parts = [instance_data]
    try:
        if instance_data.META_FIELD == _PROJECT:
            from cvat.apps.dataset_manager.bindings import TaskData

            parts = [TaskData(None, task) for task in instance_data.tasks]
        looks = [(part, _look(part, sorted(part.frame_info)).frames) for part in parts]
        return sum((_hidden(part, frames) for part, frames in looks), Counter())
    except Exception:  # an export is better than none, should a version have other tables
        _log.exception("TFRecord: annotations on deleted frames could not be looked at")
        return Counter()


def _hidden(instance_data: Any, annotated: frozenset[int]) -> Counter[str]:
    hidden = annotated - {*instance_data.get_included_frames()}
    deleted = hidden.intersection(instance_data.deleted_frames)
    honeypots = hidden - deleted if instance_data.META_FIELD != _JOB else ()
    return +Counter({"deleted": len(deleted), "honeypots": len(honeypots)})


def _deleted(instance_data: Any, frames: Sequence[int]) -> _Held:
    """What this transaction has deleted, which is what was there but for an import that adds.

    Args:
        instance_data: CVAT's ``TaskData`` or ``JobData``, while it imports.
        frames: that annotations may be on, in order.
    """
    try:
        with ThreadPoolExecutor(1) as outside:  # Django has a connection for each thread
            before = outside.submit(_look_and_close, instance_data, frames).result()
        now = _look(instance_data, frames) if before.frames or before.shapes else before
        return _Held(before.shapes - now.shapes, before.frames - now.frames)
    except Exception:  # an import is better than none, should a version have other tables
        _log.exception("TFRecord: what an import replaces could not be looked at")
        return _Held(Counter(), frozenset())


def _look_and_close(instance_data: Any, frames: Sequence[int]) -> _Held:
    from django.db import connection

    try:
        return _look(instance_data, frames)
    finally:
        connection.close()


def _look(instance_data: Any, frames: Sequence[int]) -> _Held:
    from cvat.apps.engine import models
    from django.db.models import Count

    number = instance_data.db_instance.id
    if instance_data.META_FIELD == _JOB:
        jobs = {"job_id": number}
    else:
        data = instance_data.db_data
        is_pool = str(getattr(data, "validation_mode", None)) == _POOL
        types = [_ANNOTATION, _GROUND_TRUTH] if is_pool else [_ANNOTATION]
        jobs = {"job__segment__task_id": number, "job__type__in": types}
    shapes = models.LabeledShape.objects.filter(parent=None, **jobs)
    tracked = models.TrackedShape.objects.filter(
        track__parent=None, **{f"track__{name}": value for name, value in jobs.items()}
    )
    found: Counter[str] = Counter()
    kinds = _NOT_CARRIED + _OUTLINES
    counts = shapes.filter(type__in=kinds).values_list("type").annotate(Count("id"))
    for kind, count in counts.order_by():
        found[kind] += count
    tracks = tracked.filter(type__in=kinds).values_list("type")
    for kind, count in tracks.annotate(Count("track_id", distinct=True)).order_by():
        found[f"{kind} tracks"] += count
    intervals = getattr(models, "LabeledInterval", None)  # since 2.73
    if intervals is not None:
        found["intervals"] += intervals.objects.filter(**jobs).count()
    tags = models.LabeledImage.objects.filter(**jobs)
    there = {frame for one in (shapes, tags) for (frame,) in one.values_list("frame").distinct()}
    keyframes = tracked.values_list("track_id", "frame", "outside").order_by("track_id", "frame")
    for _, own in itertools.groupby(keyframes, lambda one: one[0]):
        there |= shown([one[1:] for one in own], frames)
    return _Held(+found, frozenset(there).intersection(frames))

"""Labels, attributes and frames of the task, job or project of an import into CVAT."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfod.checker.references.cvat_task import Frame, Task, find_visible_frames
from tfod.cvat.records import AttributeSpec, Labels
from tfod.errors import TfodError

_log = logging.getLogger("tfod.cvat")
_PROJECT, _JOB = "project", "job"  # META_FIELD
_VIDEO = "interpolation"  # TaskMode.INTERPOLATION
_UNSUPPORTED = ("skeleton", "points", "polyline", "cuboid")  # ShapeType
_OUTLINES = ("mask", "polygon", "ellipse")  # ShapeType; an import without masks replaces them
_ANNOTATION, _GROUND_TRUTH = "annotation", "ground_truth"  # JobType
_POOL = "gt_pool"  # ValidationMode.GT_POOL: an import also replaces annotations of ground truth


@dataclass(frozen=True)
class Instance:
    """The target of an import.

    Attributes:
        noun: ``task``, ``job`` or ``project``.
        task: labels and frames for the checker. A job has the frames of its whole task, so that a
            zip of the task can be recognized. A project has none, since an import creates tasks.
        takes_new_attributes: whether CVAT adds missing attributes to a label.
    """

    noun: str
    task: Task
    attributes: Labels
    takes_new_attributes: bool


def read_option(name: str, *choices: str) -> str:
    """Return the value of an environment variable, by default the first of the choices."""
    value = os.environ.get(name) or choices[0]
    if value not in choices:
        raise TfodError(f"{name} is {value!r}; set it to {' or '.join(choices)} on the server")
    return value


def describe_instance(instance_data: Any) -> Instance:
    """Describe CVAT's ``TaskData``, ``JobData`` or ``ProjectData``."""
    noun: str = instance_data.META_FIELD
    meta = instance_data.meta[noun]
    # Parts of skeletons have a parent; tfod cannot import annotations of them.
    labels = [label for _, label in meta["labels"] if not label.get("parent")]
    frames: tuple[Frame, ...] | None = None
    frame_info: Mapping[int, Any] = {}
    numbers: frozenset[int] = frozenset()
    replaced = _Annotations(Counter(), frozenset())
    if noun != _PROJECT:
        frame_info = instance_data.frame_info
        numbers = frozenset(frame_info)
        if noun == _JOB:  # a job of ground truth has only some frames of the range in frame_info
            numbers &= {*instance_data.get_included_frames(), *instance_data.deleted_frames}
        other_frames = _find_other_frames(instance_data) if noun == _JOB else {}
        replaced = _find_deleted(instance_data, sorted(numbers))
        frames = tuple(
            Frame(info["path"], number, info["height"], info["width"])
            # The last of equal names counts, so the frames of the job follow the others.
            for number, info in [*other_frames.items(), *frame_info.items()]
        )
    kinds = replaced.shapes.items()
    outlines = Counter({kind: count for kind, count in kinds if kind.startswith(_OUTLINES)})
    attributes = {
        label["name"]: {row["name"]: AttributeSpec.from_cvat(row) for _, row in label["attributes"]}
        for label in labels
    }
    return Instance(
        noun=noun,
        task=Task(
            # None: CVAT creates the labels of a project that has none.
            labels=frozenset(label["name"] for label in labels) if labels else None,
            frames=frames,
            video=frames is not None and meta["mode"] == _VIDEO,
            new_tasks=frames is None,
            attributes={} if frames is None else attributes,
            unsupported_shapes=replaced.shapes - outlines,
            outlines=outlines,
            hidden={} if frames is None else _count_hidden(instance_data, replaced.frames),
            annotated=replaced.frames.intersection(
                () if frames is None else instance_data.get_included_frames()
            ),
            job_frames=numbers if noun == _JOB else None,
            skips_others=read_option("TFOD_CVAT_OTHER_FRAMES", "refuse", "skip") == "skip",
        ),
        attributes=attributes,
        takes_new_attributes=bool(instance_data.soft_attribute_import),
    )


def _find_other_frames(job_data: Any) -> dict[int, Any]:
    """Return CVAT's description of those frames of a job's task that are not in the job."""
    from cvat.apps.dataset_manager.bindings import TaskData

    task_data = TaskData(job_data.data, job_data.db_instance.segment.task)
    in_job = job_data.frame_info
    return {number: info for number, info in task_data.frame_info.items() if number not in in_job}


class _Annotations(NamedTuple):
    """Annotations in CVAT's database: number of shapes by kind, except for rectangles; frames."""

    shapes: Counter[str]
    frames: frozenset[int]


def count_hidden(instance_data: Any) -> Counter[str]:
    """Count the annotated frames of a task, job or project that its export omits."""
    parts = [instance_data]
    try:
        if instance_data.META_FIELD == _PROJECT:
            from cvat.apps.dataset_manager.bindings import TaskData

            parts = [TaskData(None, task) for task in instance_data.tasks]
        queried = [(part, _query(part, sorted(part.frame_info)).frames) for part in parts]
        return sum((_count_hidden(part, frames) for part, frames in queried), Counter())
    except Exception:  # if the tables of this version of CVAT differ, export without the counts
        _log.exception("TFRecord: failed to count the annotations on deleted frames")
        return Counter()


def _count_hidden(instance_data: Any, annotated: frozenset[int]) -> Counter[str]:
    hidden = annotated - {*instance_data.get_included_frames()}
    deleted = hidden.intersection(instance_data.deleted_frames)
    honeypots = hidden - deleted if instance_data.META_FIELD != _JOB else ()
    return +Counter({"deleted": len(deleted), "honeypots": len(honeypots)})


def _find_deleted(instance_data: Any, frames: Sequence[int]) -> _Annotations:
    """Return the annotations that CVAT's current transaction has deleted.

    These are all existing annotations, unless the import appends to them. ``instance_data`` is
    CVAT's ``TaskData`` or ``JobData`` during the import; ``frames`` are sorted.
    """
    try:
        # Another thread has another connection of Django, which is outside the transaction.
        with ThreadPoolExecutor(1) as outside:
            before = outside.submit(_query_and_close, instance_data, frames).result()
        now = _query(instance_data, frames) if before.frames or before.shapes else before
        return _Annotations(before.shapes - now.shapes, before.frames - now.frames)
    except Exception:  # if the tables of this version of CVAT differ, import without the check
        _log.exception("TFRecord: failed to find the annotations that an import replaces")
        return _Annotations(Counter(), frozenset())


def _query_and_close(instance_data: Any, frames: Sequence[int]) -> _Annotations:
    from django.db import connection

    try:
        return _query(instance_data, frames)
    finally:
        connection.close()


def _query(instance_data: Any, frames: Sequence[int]) -> _Annotations:
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
    counter: Counter[str] = Counter()
    kinds = _UNSUPPORTED + _OUTLINES
    counts = shapes.filter(type__in=kinds).values_list("type").annotate(Count("id"))
    for kind, count in counts.order_by():
        counter[kind] += count
    tracks = tracked.filter(type__in=kinds).values_list("type")
    for kind, count in tracks.annotate(Count("track_id", distinct=True)).order_by():
        counter[f"{kind} tracks"] += count
    intervals = getattr(models, "LabeledInterval", None)  # since 2.73
    if intervals is not None:
        counter["intervals"] += intervals.objects.filter(**jobs).count()
    annotated: set[int] = set()
    for query in (shapes, models.LabeledImage.objects.filter(**jobs)):
        annotated.update(frame for (frame,) in query.values_list("frame").distinct())
    keyframes = tracked.values_list("track_id", "frame", "outside").order_by("track_id", "frame")
    for _, rows in itertools.groupby(keyframes, lambda row: row[0]):
        annotated |= find_visible_frames([row[1:] for row in rows], frames)
    return _Annotations(+counter, frozenset(annotated).intersection(frames))

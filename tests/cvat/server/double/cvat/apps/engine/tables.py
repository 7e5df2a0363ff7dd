"""The tables of annotations that a format can query, in SQLite.

Facts: fields and relations are those of ``cvat/apps/engine/models.py`` of 2.15 and 2.73. The double
stores plain values (:mod:`cvat.apps.engine.models`). An import writes them into the tables before
its transaction, so that another connection can read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection, models

if TYPE_CHECKING:
    from cvat.apps.engine.models import Annotations, Task


class _Table(models.Model):
    class Meta:
        abstract = True
        app_label = "engine"


class TaskRow(_Table):
    pass


class SegmentRow(_Table):
    task = models.ForeignKey(TaskRow, models.CASCADE)


class JobRow(_Table):
    segment = models.ForeignKey(SegmentRow, models.CASCADE)
    type = models.CharField(max_length=32, default="annotation")


class LabeledImage(_Table):
    job = models.ForeignKey(JobRow, models.CASCADE)
    frame = models.PositiveIntegerField()


class LabeledShape(_Table):
    job = models.ForeignKey(JobRow, models.CASCADE)
    frame = models.PositiveIntegerField()
    type = models.CharField(max_length=16)
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="elements")


class LabeledTrack(_Table):
    job = models.ForeignKey(JobRow, models.CASCADE)
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="elements")


class TrackedShape(_Table):
    track = models.ForeignKey(LabeledTrack, models.CASCADE)
    frame = models.PositiveIntegerField()
    outside = models.BooleanField()
    type = models.CharField(max_length=16)


TABLES = (TaskRow, SegmentRow, JobRow, LabeledImage, LabeledShape, LabeledTrack, TrackedShape)


def reset() -> None:
    """Create the tables, or delete their rows."""
    if TaskRow._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            for table in TABLES:
                editor.create_model(table)
    TaskRow.objects.all().delete()


def store(task: Task, job_id: int, annotations: Annotations) -> None:
    """Add annotations to a job, or to the ground truth of the task."""
    segment = SegmentRow.objects.create(task=TaskRow.objects.create(id=task.id))
    job = JobRow.objects.create(id=job_id, segment=segment)
    truth = JobRow.objects.create(id=job_id + 1000, segment=segment, type="ground_truth")
    jobs = dict.fromkeys(task.validation_frames, truth)
    for tag in annotations.tags:
        LabeledImage.objects.create(job=jobs.get(tag["frame"], job), frame=tag["frame"])
    for shape in annotations.shapes:
        common = {"job": jobs.get(shape["frame"], job), "frame": shape["frame"]}
        row = LabeledShape.objects.create(type=shape["type"], **common)
        for element in shape["elements"]:
            LabeledShape.objects.create(type=element["type"], parent=row, **common)
    for track in annotations.tracks:
        row = LabeledTrack.objects.create(job=job)
        for shape in track["shapes"]:
            own = {name: shape[name] for name in ("type", "frame", "outside")}
            TrackedShape.objects.create(track=row, **own)


def clear() -> None:
    """Delete all annotations, like an import that replaces them."""
    for table in (LabeledImage, LabeledShape, LabeledTrack):
        table.objects.all().delete()

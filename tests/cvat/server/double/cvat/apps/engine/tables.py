"""The tables of annotations, as far as a format may look into them: real ones, in SQLite.

Facts: fields and relations are those of ``cvat/apps/engine/models.py`` of 2.15 and 2.73. What the
double stores of a task is plain values (:mod:`cvat.apps.engine.models`); an import puts it into the
tables first, outside of its transaction, where another connection sees it.
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
    """Make the tables, empty."""
    if TaskRow._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            for table in TABLES:
                editor.create_model(table)
    TaskRow.objects.all().delete()


def store(task: Task, job_id: int, annotations: Annotations) -> None:
    """Put annotations into the tables, under one job, or that of ground truth."""
    segment = SegmentRow.objects.create(task=TaskRow.objects.create(id=task.id))
    job = JobRow.objects.create(id=job_id, segment=segment)
    truth = JobRow.objects.create(id=job_id + 1000, segment=segment, type="ground_truth")
    jobs = dict.fromkeys(task.validation_frames, truth)
    LabeledImage.objects.bulk_create(
        LabeledImage(job=jobs.get(tag["frame"], job), frame=tag["frame"])
        for tag in annotations.tags
    )
    shapes, elements = list[LabeledShape](), list[LabeledShape]()
    for shape in annotations.shapes:
        common = {"job": jobs.get(shape["frame"], job), "frame": shape["frame"]}
        parent = LabeledShape(type=shape["type"], **common)
        shapes.append(parent)
        for element in shape["elements"]:
            elements.append(LabeledShape(type=element["type"], parent=parent, **common))
    for rows in (shapes, elements):  # the elements need the ids of their parents
        LabeledShape.objects.bulk_create(rows)
    for track in annotations.tracks:
        row = LabeledTrack.objects.create(job=job)
        TrackedShape.objects.bulk_create(
            TrackedShape(track=row, **{name: shape[name] for name in ("type", "frame", "outside")})
            for shape in track["shapes"]
        )


def clear() -> None:
    """What an import does that replaces."""
    LabeledImage.objects.all().delete()
    LabeledShape.objects.all().delete()
    LabeledTrack.objects.all().delete()

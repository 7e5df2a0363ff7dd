"""What an import would delete for good: shapes that no shard can hold.

CVAT deletes the old annotations before it calls a format, in the transaction that it calls it in
(``import_annotations`` in ``dataset_manager/task.py``), unless it was asked to append; it does not
say which. And it shows nothing of an import that succeeded. So the format looks from outside the
transaction, and refuses.
"""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_log = logging.getLogger("tfod.cvat")
_NOT_CARRIED = ("skeleton", "points", "polyline", "cuboid")  # of ShapeType
_ANNOTATION = "annotation"  # JobType.ANNOTATION
_JOB = "job"  # META_FIELD


def shapes_lost(instance_data: Any) -> Counter[str]:
    """Shapes and tracks that this transaction has deleted and no shard can bring back, by kind.

    Args:
        instance_data: CVAT's ``TaskData`` or ``JobData``, while it imports.
    """
    try:
        with ThreadPoolExecutor(1) as outside:  # Django has a connection for each thread
            before = outside.submit(_count_and_close, instance_data).result()
        return before - _count(instance_data) if before else before
    except Exception:  # an import is better than none, should a version have other tables
        _log.exception("TFRecord: what an import replaces could not be looked at")
        return Counter()


def _count_and_close(instance_data: Any) -> Counter[str]:
    from django.db import connection

    try:
        return _count(instance_data)
    finally:
        connection.close()


def _count(instance_data: Any) -> Counter[str]:
    from cvat.apps.engine import models
    from django.db.models import Count

    number = instance_data.db_instance.id
    if instance_data.META_FIELD == _JOB:
        jobs = {"job_id": number}
    else:
        jobs = {"job__segment__task_id": number, "job__type": _ANNOTATION}
    shapes = models.LabeledShape.objects.filter(parent=None, type__in=_NOT_CARRIED, **jobs)
    tracks = models.TrackedShape.objects.filter(
        track__parent=None,
        type__in=_NOT_CARRIED,
        **{f"track__{name}": value for name, value in jobs.items()},
    )
    found: Counter[str] = Counter()
    for kind, count in shapes.values_list("type").annotate(Count("id")).order_by():
        found[kind] += count
    found_tracks = tracks.values_list("type").annotate(Count("track_id", distinct=True)).order_by()
    for kind, count in found_tracks:
        found[f"{kind} tracks"] += count
    intervals = getattr(models, "LabeledInterval", None)  # since 2.73
    if intervals is not None:
        found["intervals"] += intervals.objects.filter(**jobs).count()
    return +found

"""Export and import of a task or a job by the server's workers.

Facts: an import is a transaction; if it fails, the old annotations return. The importer gets an
open file, a temporary folder and ``conv_mask_to_poly``. The user reads the message of exactly a
``CvatImportError``; for other errors and subclasses, old servers show a traceback and status 500.
An import into a job only replaces the job's frames. The transaction deletes the replaced
annotations before it calls the importer, which does not get the mode, ``replace`` or ``append``
(since 2.65).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from cvat.apps.engine.models import Annotations, Job, Project, Task


class ServerError(Exception):
    """Status 500 and a traceback."""


@contextmanager
def transaction(part: Task | Project) -> Iterator[None]:
    """Restore the annotations and tasks if the block fails, and raise the error of the API."""
    from cvat.apps.dataset_manager.bindings import CvatImportError

    tasks = [part] if isinstance(part, Task) else list(part.tasks)
    stored = [(task, copy.deepcopy(task.annotations)) for task in tasks]
    try:
        yield
    except BaseException as error:
        for task, annotations in stored:
            task.annotations = annotations
        if isinstance(part, Project):
            part.tasks = tasks
        if type(error) is CvatImportError or not isinstance(error, Exception):
            raise
        raise ServerError(f"{type(error).__name__}: {error}") from error


REPLACE = "replace"


@contextmanager
def _replacing(task: Task, job_id: int, old: Annotations, import_mode: str) -> Iterator[None]:
    """Start the transaction of the tables."""
    from django.db import transaction as database

    from cvat.apps.engine import tables

    tables.reset()
    tables.store(task, job_id, old)
    with database.atomic():
        if import_mode == REPLACE:
            tables.clear()
        yield


def import_task_annotations(
    src_file: str | os.PathLike[str],
    task: Task,
    format_name: str,
    conv_mask_to_poly: bool = True,
    temp_root: str | None = None,
    import_mode: str = REPLACE,
) -> None:
    """Replace a task's annotations, or add to them. ``temp_root`` is only for tests."""
    from cvat.apps.dataset_manager.bindings import TaskData

    with transaction(task), _replacing(task, 1, task.annotations, import_mode):
        if import_mode == REPLACE:
            task.annotations = Annotations()
        data = TaskData(Annotations(), task)
        _run_importer(src_file, data, format_name, temp_root, conv_mask_to_poly)
        task.annotations.add(data.data)


def import_job_annotations(
    src_file: str | os.PathLike[str],
    job: Job,
    format_name: str,
    conv_mask_to_poly: bool = True,
    temp_root: str | None = None,
) -> None:
    """Replace the annotations of a job."""
    from cvat.apps.dataset_manager.bindings import JobData

    task = job.task
    own = task.annotations.within(job.start, job.stop)
    with transaction(task), _replacing(task, job.id, own, REPLACE):
        task.annotations = task.annotations.within(job.start, job.stop, inside=False)
        data = JobData(Annotations(), job)
        _run_importer(src_file, data, format_name, temp_root, conv_mask_to_poly)
        task.annotations.add(data.data.within(job.start, job.stop))


def _run_importer(
    src_file: Any, data: Any, format_name: str, temp_root: str | None, conv_mask_to_poly: bool
) -> None:
    from cvat.apps.dataset_manager.formats.registry import make_importer

    importer = make_importer(format_name)
    with open(src_file, "rb") as file, TemporaryDirectory(dir=temp_root) as temp_dir:
        importer(file, temp_dir, data, conv_mask_to_poly=conv_mask_to_poly)


def export(
    instance: Task | Job | Project,
    dst_file: str | os.PathLike[str],
    format_name: str,
    save_images: bool = False,
    temp_root: str | None = None,
) -> None:
    """Export a task, a job or a project into a file."""
    from cvat.apps.dataset_manager.formats.registry import make_exporter

    data = load(instance)
    exporter = make_exporter(format_name)
    with open(dst_file, "wb") as file, TemporaryDirectory(dir=temp_root) as temp_dir:
        exporter(file, temp_dir, data, save_images=save_images)


def load(instance: Task | Job | Project) -> Any:
    """Put the annotations into the tables, and return them as CVAT gives them to an exporter."""
    from cvat.apps.dataset_manager.bindings import JobData, ProjectData, TaskData
    from cvat.apps.engine import tables

    tables.reset()
    if isinstance(instance, Project):
        for task in instance.tasks:
            tables.store(task, task.id, task.annotations)
        return ProjectData(instance)
    if isinstance(instance, Job):
        own = instance.task.annotations.within(instance.start, instance.stop)
        tables.store(instance.task, instance.id, own)
        return JobData(instance.task.annotations, instance)
    tables.store(instance, 1, instance.annotations)
    return TaskData(instance.annotations, instance)

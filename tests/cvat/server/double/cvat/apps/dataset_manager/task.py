"""Export and import of a task or a job, as the server's workers do them.

Facts: an import replaces what is there, in a transaction: when it fails, the old annotations are
back. The importer gets an open file, a temporary folder and ``conv_mask_to_poly``. The user reads
the message of what is exactly a ``CvatImportError`` or one of Datumaro's dataset errors; of
anything else, subclasses included, old servers show a traceback and status 500. Of a job only its
own frames are replaced. What is replaced is gone from the tables within the transaction before the
importer is called; it does not get the mode, ``replace`` or ``append`` (since 2.65).
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
def transaction(*parts: Task | Project) -> Iterator[None]:
    """What was stored comes back when the block fails; the error is what the API would answer."""
    from cvat.apps.dataset_manager.bindings import CvatImportError

    tasks = [task for part in parts for task in getattr(part, "tasks", [part])]
    stored = [(task, copy.deepcopy(task.annotations)) for task in tasks]
    known = [(part, list(part.tasks)) for part in parts if isinstance(part, Project)]
    try:
        yield
    except BaseException as error:
        for task, annotations in stored:
            task.annotations = annotations
        for project, its_tasks in known:
            project.tasks = its_tasks
        if type(error) is CvatImportError or not isinstance(error, Exception):
            raise
        raise ServerError(f"{type(error).__name__}: {error}") from error


REPLACE, APPEND = "replace", "append"


@contextmanager
def _replacing(task: Task, job_id: int, old: Annotations, import_mode: str) -> Iterator[None]:
    """The transaction in the tables: what is replaced is deleted before the format is called."""
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
    """Replace a task's annotations, or add to them.

    ``temp_root`` is where the temporary folder is made, for tests that look into it.
    """
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
    """Replace the annotations of a job, and leave those of its task's other jobs alone."""
    from cvat.apps.dataset_manager.bindings import JobData

    task = job.task
    own = task.annotations.within(job.start, job.stop)
    with transaction(task), _replacing(task, job.id, own, REPLACE):
        task.annotations = task.annotations.within(job.start, job.stop, inside=False)
        data = JobData(Annotations(), job)
        _run_importer(src_file, data, format_name, temp_root, conv_mask_to_poly)
        task.annotations.add(data.data.within(job.start, job.stop))


def _run_importer(
    src_file: str | os.PathLike[str],
    data: Any,
    format_name: str,
    temp_root: str | None,
    conv_mask_to_poly: bool,
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

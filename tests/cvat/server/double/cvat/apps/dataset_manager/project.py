"""Import of a dataset into a project.

Facts: the importer gets ``load_data_callback``, which old servers pass by position. The files of a
task must be in one folder, and their names are relative to it. A task needs images. A label of a
project gets the attributes that it does not have.
"""

from __future__ import annotations

import os
import os.path as osp
from tempfile import TemporaryDirectory
from typing import Any

import cvat
from cvat.apps.dataset_manager.bindings import ProjectData, load_dataset_data
from cvat.apps.dataset_manager.formats.registry import make_importer
from cvat.apps.dataset_manager.task import transaction
from cvat.apps.engine.models import Project, Task, frame_of


class ProjectAnnotation:
    def __init__(self, project: Project) -> None:
        self.db_project = project

    def load_dataset_data(self, *args: Any, **kwargs: Any) -> None:
        load_dataset_data(self, *args, **kwargs)

    def add_task(self, fields: dict[str, str], files: dict[str, Any], data: ProjectData) -> None:
        """Make a task of files."""
        root = files["data_root"]
        if not files["media"]:
            raise ValueError("No media data found")
        frames = []
        for name in sorted(path.split(root)[1] for path in files["media"]):
            path = osp.join(root, name)
            if not osp.realpath(path).startswith(osp.realpath(root) + osp.sep):
                raise ValueError("Bad file path: " + name)
            with open(path, "rb") as file:
                frames.append(frame_of(name, file.read()))
        task = self.db_project.add(Task(frames, **fields))
        data.new_tasks.add(task.id)
        data.init()


def import_dataset_as_project(
    src_file: str | os.PathLike[str],
    project: Project,
    format_name: str,
    conv_mask_to_poly: bool = True,
    temp_root: str | None = None,
) -> None:
    with transaction(project):
        data = ProjectData(project, is_import=True)
        data.soft_attribute_import = True
        importer = make_importer(format_name)
        options: dict[str, Any] = {"conv_mask_to_poly": conv_mask_to_poly}
        callback: tuple[Any, ...] = (ProjectAnnotation(project).load_dataset_data,)
        if cvat.IS_NEW:
            options["load_data_callback"], callback = callback[0], ()
        with open(src_file, "rb") as file, TemporaryDirectory(dir=temp_root) as temp_dir:
            importer(file, temp_dir, data, *callback, **options)
        for task in project.tasks:
            if task.id in data.new_tasks:
                task.annotations.add(data.imported(task.id))

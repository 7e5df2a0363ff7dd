"""Import of a dataset into a project.

Facts: the importer gets ``load_data_callback`` (old servers pass it by position). A task is made
of the files that it names: they must lie below one folder, by whose path their names are made.
A task without images cannot be made. In a project, attributes that a label does not have are
added to it.
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
        """Make a task of files on disk; names are what follows the folder's path."""
        root = files["data_root"]
        names = []
        for path in files["media"]:
            _, name = path.split(root)
            names.append(name)
        if not names:
            raise ValueError("No media data found")
        frames = []
        for name in sorted(names):
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
    """Make tasks of a dataset."""
    with transaction(project):
        annotation = ProjectAnnotation(project)
        data = ProjectData(project, is_import=True)
        data.soft_attribute_import = True
        importer = make_importer(format_name)
        options = {"conv_mask_to_poly": conv_mask_to_poly}
        callback = annotation.load_dataset_data
        with open(src_file, "rb") as file, TemporaryDirectory(dir=temp_root) as temp_dir:
            if cvat.IS_NEW:
                importer(file, temp_dir, data, load_data_callback=callback, **options)
            else:
                importer(file, temp_dir, data, callback, **options)
        for task in project.tasks:
            if task.id in data.new_tasks:
                task.annotations.add(data.imported(task.id))

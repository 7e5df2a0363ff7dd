"""``ProjectData``: a project with the interface for formats.

Facts: the keys of ``frame_info`` are task and relative frame; tasks are in the order of their
subsets; the subset of a task without one is ``default``, or ``default_1`` if another has that name.
``init()`` adds the tasks of an import, and ``split_dataset`` yields their parts. (Not copied: names
that a subset has twice get numbers, and the frames of its tasks are counted together.)
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import cvat
from cvat.apps.dataset_manager._task_data import DEFAULT_SUBSET, LabelData, TaskData, meta_of_task
from cvat.apps.engine.models import Annotations, Project

_OldProjectFrame = namedtuple(
    "Frame", "idx, id, frame, name, width, height, labeled_shapes, tags, task_id, subset"
)


class ProjectData(LabelData):
    """A project with its tasks in the order of their subsets."""

    META_FIELD = "project"

    def __init__(self, project: Project, is_import: bool = False) -> None:
        super().__init__(project.labels)
        self.db_project = project
        self.new_tasks: set[int] = set()
        self._is_import = is_import
        self._tasks_data: dict[int, TaskData] = {}
        self.init()

    def init(self) -> None:
        """Read the tasks again."""
        self.tasks = sorted(self.db_project.tasks, key=lambda task: (task.subset, task.id))
        self._db_tasks = {task.id: task for task in self.tasks}
        self.subsets = list({task.subset for task in self.tasks})
        self.deleted_frames = {
            (task.id, frame): True for task in self.tasks for frame in task.deleted_frames
        }
        self.frame_info: dict[tuple[int, int], dict[str, Any]] = {}
        for task in self.tasks:
            subset = defaulted_subset(task.subset, self.subsets)
            for idx, info in self._task_data(task.id).frame_info.items():
                self.frame_info[task.id, idx] = dict(info, subset=subset)
        self.meta = {self.META_FIELD: self._meta()}

    def __len__(self) -> int:
        return sum(len(task.frames) for task in self.tasks)

    def _meta(self) -> dict[str, Any]:
        return {
            "id": str(self.db_project.id),
            "name": self.db_project.name,
            "tasks": [("task", meta_of_task(task)) for task in self.tasks],
            "subsets": "\n".join(one or DEFAULT_SUBSET for one in self.subsets),
            "labels": self._meta_of_labels(),
        }

    def _task_data(self, task_id: int) -> TaskData:
        if task_id not in self._tasks_data:
            task = self._db_tasks[task_id]
            data = TaskData(Annotations() if self._is_import else task.annotations, task)
            data.soft_attribute_import = self.soft_attribute_import
            self._tasks_data[task_id] = data
        return self._tasks_data[task_id]

    def imported(self, task_id: int) -> Annotations:
        """Return the annotations that an import has added to a task."""
        return self._task_data(task_id).data

    def group_by_frame(self, include_empty: bool = False) -> Iterator[Any]:
        for task_id in self._db_tasks if cvat.IS_NEW else sorted(self._db_tasks):
            for frame in self._task_data(task_id).group_by_frame(include_empty):
                subset = self.frame_info[task_id, frame.idx]["subset"]
                if cvat.IS_NEW:
                    frame.subset = subset
                    yield frame
                else:
                    yield _OldProjectFrame(*frame[:8], task_id, subset)

    def split_dataset(self, dataset: Any) -> Iterator[tuple[Any, TaskData]]:
        """Yield the parts of an imported dataset with their new tasks."""
        for task in self.tasks:
            if task.id in self.new_tasks:
                yield dataset.subsets()[task.subset].as_dataset(), self._task_data(task.id)


def defaulted_subset(subset: str, subsets: list[str]) -> str:
    """Return the name of a subset, or a default name that no other subset has."""
    names = [DEFAULT_SUBSET, *(f"{DEFAULT_SUBSET}_{number}" for number in range(1, 99))]
    return subset or next(name for name in names if name not in subsets)

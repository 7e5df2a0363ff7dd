"""``ProjectData``: a project as a format sees it.

Facts: ``frame_info`` goes by task and relative frame; tasks come in the order of their subsets; a
task without a subset is of ``default``, or of ``default_1`` where another has that name. After
``init()`` the tasks that an import made are there, and ``split_dataset`` deals them theirs. (Left
out: names that a subset has twice are numbered, and the frames of its tasks counted on.)
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import cvat
from cvat.apps.dataset_manager._task_data import DEFAULT_SUBSET, LabelData, TaskData, meta_of_task
from cvat.apps.engine.models import Annotations, Project, Task

_OldProjectFrame = namedtuple(
    "Frame", "idx, id, frame, name, width, height, labeled_shapes, tags, task_id, subset"
)


class ProjectData(LabelData):
    """A project: its tasks in the order of their subsets."""

    META_FIELD = "project"

    def __init__(self, project: Project, is_import: bool = False) -> None:
        super().__init__(project.labels)
        self.db_project = project
        self.new_tasks: set[int] = set()
        self._is_import = is_import
        self._tasks_data: dict[int, TaskData] = {}
        self._is_soft = False
        self.init()

    def init(self) -> None:
        """Look at the tasks again."""
        tasks = sorted(self.db_project.tasks, key=lambda task: (task.subset, task.id))
        self._db_tasks = {task.id: task for task in tasks}
        self.subsets = list({task.subset for task in tasks})
        self.frame_step = {task.id: task.step for task in tasks}
        self.deleted_frames = {
            (task.id, frame): True for task in tasks for frame in task.deleted_frames
        }
        self._name_frames()
        self.meta = {self.META_FIELD: self._meta()}

    @property
    def tasks(self) -> list[Task]:
        return list(self._db_tasks.values())

    @property
    def soft_attribute_import(self) -> bool:
        return self._is_soft

    @soft_attribute_import.setter
    def soft_attribute_import(self, value: bool) -> None:
        self._is_soft = value
        for data in self._tasks_data.values():
            data.soft_attribute_import = value

    def __len__(self) -> int:
        return sum(len(task.frames) for task in self.tasks)

    def _name_frames(self) -> None:
        self.frame_info: dict[tuple[int, int], dict[str, Any]] = {}
        for task in self.tasks:
            subset = defaulted_subset(task.subset, self.subsets)
            for idx, info in self._task_data(task.id).frame_info.items():
                self.frame_info[task.id, idx] = dict(info, subset=subset)

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
            stored = Annotations() if self._is_import else task.annotations
            data = TaskData(stored, task)
            data.soft_attribute_import = self.soft_attribute_import
            self._tasks_data[task_id] = data
        return self._tasks_data[task_id]

    def imported(self, task_id: int) -> Annotations:
        """What an import has added to a task and was not relieved of."""
        return self._task_data(task_id).data

    def abs_frame_id(self, task_id: int, relative_id: int) -> int:
        return self._task_data(task_id).abs_frame_id(relative_id)

    def rel_frame_id(self, task_id: int, absolute_id: int) -> int:
        return self._task_data(task_id).rel_frame_id(absolute_id)

    def group_by_frame(self, include_empty: bool = False) -> Iterator[Any]:
        frames = self._stream(include_empty)
        return frames if cvat.IS_NEW else iter(list(frames))

    def _stream(self, include_empty: bool) -> Iterator[Any]:
        for task_id in self._db_tasks if cvat.IS_NEW else sorted(self._db_tasks):
            for frame in self._task_data(task_id).group_by_frame(include_empty):
                info = self.frame_info[task_id, frame.idx]
                if cvat.IS_NEW:
                    frame.subset = info["subset"]
                    yield frame
                    continue
                yield _OldProjectFrame(*frame[:8], task_id, info["subset"])

    def split_dataset(self, dataset: Any) -> Iterator[tuple[Any, TaskData]]:
        """The parts of an imported dataset, each with the new task that was made of it."""
        for task in self.tasks:
            if task.id in self.new_tasks:
                yield dataset.subsets()[task.subset].as_dataset(), self._task_data(task.id)


def defaulted_subset(subset: str, subsets: list[str]) -> str:
    """Name a subset that has none, without taking another's name."""
    names = [DEFAULT_SUBSET, *(f"{DEFAULT_SUBSET}_{number}" for number in range(1, 99))]
    return subset or next(name for name in names if name not in subsets)

"""``ProjectData``: a project as a format sees it.

Facts: ``frame_info`` goes by task and relative frame; tasks come in the order of their subsets;
names that a subset has twice are numbered (``a_1.jpg``), the frames of a subset's tasks are counted
on; a task without a subset is of ``default``, or of ``default_1`` where another has that name.
After ``init()`` the tasks that an import made are there, and ``split_dataset`` deals them theirs.
"""

from __future__ import annotations

import os.path as osp
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
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
        self._count_frames()
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

    def _count_frames(self) -> None:
        self._offsets: dict[int, int] = {}
        offset, subset = 0, None
        for task in self.tasks:
            if task.subset != subset:
                offset, subset = 0, task.subset
            self._offsets[task.id] = offset
            offset += task.start_frame + task.step * len(task.frames)

    def _name_frames(self) -> None:
        self.frame_info: dict[tuple[int, int], dict[str, Any]] = {}
        seen: dict[tuple[str, str], int] = {}
        for task in self.tasks:
            subset = defaulted_subset(task.subset, self.subsets)
            for idx in range(len(task.frames)):
                info = dict(self._task_data(task.id).frame_info[idx], subset=subset)
                if task.is_video:
                    info["path"] = f"frame_{self.abs_frame_id(task.id, idx):06d}"
                else:
                    info["path"] = _mangled(info["path"], subset, seen)
                self.frame_info[task.id, idx] = info

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
            data = TaskData(stored, task, task.annotations.add if self._is_import else None)
            data.soft_attribute_import = self.soft_attribute_import
            self._tasks_data[task_id] = data
        return self._tasks_data[task_id]

    def imported(self, task_id: int) -> Annotations:
        """What an import has added to a task and was not relieved of."""
        return self._task_data(task_id).data

    def abs_frame_id(self, task_id: int, relative_id: int) -> int:
        return self._task_data(task_id).abs_frame_id(relative_id) + self._offsets[task_id]

    def rel_frame_id(self, task_id: int, absolute_id: int) -> int:
        return self._task_data(task_id).rel_frame_id(absolute_id)

    def group_by_frame(self, include_empty: bool = False) -> Iterator[Any]:
        frames = self._stream(include_empty)
        return frames if cvat.IS_NEW else iter(list(frames))

    def _stream(self, include_empty: bool) -> Iterator[Any]:
        for task_id in self._db_tasks if cvat.IS_NEW else sorted(self._db_tasks):
            for frame in self._task_data(task_id).group_by_frame(include_empty):
                info = self.frame_info[task_id, frame.idx]
                offset = self._offsets[task_id]
                name, subset = info["path"], info["subset"]
                if cvat.IS_NEW:
                    yield frame.moved(offset, name, subset)
                    continue
                values = frame._replace(frame=frame.frame + offset, name=name)[:8]
                yield _OldProjectFrame(*values, task_id, subset)

    def match_frame_fuzzy(self, path: str, *, path_has_ext: bool = True) -> int | None:
        parts = Path(osp.splitext(path)[0] if path_has_ext else path).parts
        for (_, idx), info in self.frame_info.items():
            if Path(osp.splitext(info["path"])[0]).parts[-len(parts) :] == parts:
                return idx
        return None

    def split_dataset(self, dataset: Any) -> Iterator[tuple[Any, TaskData]]:
        """The parts of an imported dataset, each with the new task that was made of it."""
        for task in self.tasks:
            if task.id in self.new_tasks:
                yield dataset.subsets()[task.subset].as_dataset(), self._task_data(task.id)


def defaulted_subset(subset: str, subsets: list[str]) -> str:
    """Name a subset that has none, without taking another's name."""
    names = [DEFAULT_SUBSET, *(f"{DEFAULT_SUBSET}_{number}" for number in range(1, 99))]
    return subset or next(name for name in names if name not in subsets)


def _mangled(path: str, subset: str, seen: dict[tuple[str, str], int]) -> str:
    name, dot, extension = path.rpartition(".")
    count = seen.get((subset, name), 0)
    seen[subset, name] = count + 1
    return f"{name}_{count}{dot}{extension}" if count else path

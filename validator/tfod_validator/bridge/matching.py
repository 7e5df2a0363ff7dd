"""Which frame each record of a zip goes to, in the way the checker and CVAT find it."""

from __future__ import annotations

from collections.abc import Iterable

from tfod.errors import TfodError
from tfod.naming import safe_relative_path

from tfod_validator.frames import FrameIndex, root_of
from tfod_validator.task import Task


class Matcher:
    """Finds frames by the file names of records.

    Args:
        task: the frames.
        filenames: of all records; the deepest one tells which folder they may lack.
    """

    def __init__(self, task: Task, filenames: Iterable[str]) -> None:
        self._index = FrameIndex(task)
        deepest, parts = "", 0
        for filename in filenames:
            root = root_of(filename)
            if root.count("/") + 1 > parts:
                deepest, parts = root, root.count("/") + 1
        self._hint = self._index.root_hint(deepest)

    def place(self, filename: str, where: str) -> int:
        """The place in the task's frames.

        Raises:
            TfodError: there is none.
        """
        found = self._index.by_name(safe_relative_path(filename), root_of(filename))
        if found is None:
            found, _ = self._index.by_other_means(filename, self._hint)
        if found is None:
            raise TfodError(f"{where}: picture {filename!r} matches no frame of the task")
        return found

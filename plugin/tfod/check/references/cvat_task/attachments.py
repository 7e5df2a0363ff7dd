"""The records of a data set, and the frame of the task that CVAT would attach each to."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tfod.check.findings.finding import Place
from tfod.check.records.result import ImageRow
from tfod.check.references.cvat_task.frames import FrameIndex, MatchedBy, root_of
from tfod.check.references.cvat_task.task import Frame, Task


@dataclass(frozen=True)
class Attachment:
    """A record, and the frame that CVAT would attach its image to.

    Attributes:
        row: the record.
        frame: None where CVAT finds none.
        by: how it was found.
        nearest: name of the frame that may have been meant, where there is no frame.
        earlier: the first record that went to the same frame.
    """

    row: ImageRow
    frame: Frame | None
    by: MatchedBy = MatchedBy.NAME
    nearest: str | None = None
    earlier: Place | None = None


class Attachments:
    """Those of all records; linear in records and frames.

    Images that no frame has the name of are looked at once all were seen, since the folder that
    names lack is known only then.

    Attributes:
        of_records: in the order of the data, those that have no frame's name last.
        without_record, without_boxes: names of the frames that get no record, and none with boxes.
    """

    def __init__(self, task: Task, rows: Iterable[ImageRow]) -> None:
        self._frames = task.frames or ()
        self._first: dict[int, Place] = {}
        self._annotated = bytearray(len(self._frames))
        # In a project, a name that tasks share may come once for each of them.
        self._alike = _alike_frames(self._frames) if task.project else {}
        self.of_records = list(self._attach(FrameIndex(task), rows))
        names = [frame.name for frame in self._frames]
        self.without_record = [one for at, one in enumerate(names) if at not in self._first]
        self.without_boxes = [names[at] for at in sorted(self._first) if not self._annotated[at]]

    def _attach(self, index: FrameIndex, rows: Iterable[ImageRow]) -> Iterator[Attachment]:
        strangers: list[ImageRow] = []
        deepest, depth = "", -1
        for row in rows:
            root = root_of(row.filename)
            if root.count("/") > depth:
                deepest, depth = root, root.count("/")
            number = index.by_name(row.filename)
            if number is None:
                strangers.append(row)
            else:
                yield self._attached(row, number, MatchedBy.NAME, None)
        hint = index.root_hint(deepest, (row.filename for row in strangers))
        for row in strangers:
            number, by = index.by_other_means(row.filename, hint)
            near = index.nearest(row.filename) if number is None else None
            yield self._attached(row, number, by, near)

    def _attached(
        self, row: ImageRow, at: int | None, by: MatchedBy, near: str | None
    ) -> Attachment:
        if at is None:
            return Attachment(row, None, by, near)
        while at in self._first and at in self._alike:
            at = self._alike[at]
        earlier = self._first.get(at)
        self._first.setdefault(at, row.place)
        self._annotated[at] |= row.boxes > 0
        return Attachment(row, self._frames[at], by, near, earlier)


def _alike_frames(frames: tuple[Frame, ...]) -> dict[int, int]:
    """For each frame whose name has come before: the last place where it did."""
    seen: dict[str, int] = {}
    found: dict[int, int] = {}
    for place, frame in enumerate(frames):
        root = os.path.splitext(frame.name)[0]
        if root in seen:
            found[place] = seen[root]
        seen[root] = place
    return found

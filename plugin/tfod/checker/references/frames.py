"""Which frame of a task each image goes to.

Source: ``match_dm_item``, ``match_frame`` and ``find_dataset_root`` in CVAT's
``dataset_manager/bindings.py``. CVAT looks names up without their extension, so ``a.png`` matches
``a.jpg``; then behind the folder that all names seem to lack; then it takes the name for a number;
then, in a video, what follows the sixth letter. Our import goes to the frame that has the whole
name first, since CVAT takes any of ``a.jpg`` and ``a.png``, and to no frame where names may lack
one of several folders, of which CVAT takes any. Where the folder of a name is none of the task's,
as in ``JPEGImages/a.jpg``, it goes to the only frame with the same last part.
"""

from __future__ import annotations

import contextlib
import enum
import os.path
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfod.checker.analysis.batch import ImageRow
from tfod.checker.finding import Place
from tfod.checker.references.cvat_task import Frame, Task
from tfod.detection.labels.fuzzy_names import FuzzyNames, strip_punctuation
from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path, split_extension

_LONGEST_NUMBER = 20
_VIDEO_NAME = "frame_"


class MatchedBy(enum.Enum):
    """What CVAT went by when it found the frame of an image."""

    NAME = "name"
    NUMBER = "number"
    DIGITS = "digits"


def root_of(filename: str) -> str:
    """The id that an image gets on its way to CVAT: a relative path without extension."""
    return split_extension(safe_relative_path(filename))[0]


class Matcher:
    """Finds frames by the names of records; answers are places in ``task.frames``."""

    def __init__(self, task: Task, filenames: Iterable[str]) -> None:
        self._frames = task.frames or ()
        self._video, self._is_exact = task.video, task.skips_others
        # Of equal names, and of a.jpg and a.png for a.gif, the last wins, as in CVAT.
        self._by_name = {one.name: place for place, one in enumerate(self._frames)}
        self._by_root = {_root(one.name): place for place, one in enumerate(self._frames)}
        self._by_last: dict[str, int | None] = {}  # None where several frames have it
        for root, place in self._by_root.items():
            last = posixpath.basename(root)
            self._by_last[last] = None if last in self._by_last else place
        self._folders = {posixpath.dirname(root) for root in self._by_root} - {""}
        self._by_number = {one.number: place for place, one in enumerate(self._frames)}
        self._hint = self._root_hint(list(filenames))

    def find(self, filename: str) -> tuple[int | None, MatchedBy]:
        """The frame of this name, behind the folder that all lack, or of the number in it."""
        found, root = self._named(filename), root_of(filename)
        if self._is_exact:  # the image of another task may have the same last part or number
            return found, MatchedBy.NAME
        if found is None and self._hint:
            found = self._by_root.get(posixpath.join(self._hint, root))
        if found is None and posixpath.dirname(root) not in self._folders:
            found = self._by_last.get(posixpath.basename(root))
        if found is not None:
            return found, MatchedBy.NAME
        number = _to_int(root)
        if number is not None or not self._video:
            return self._numbered(number), MatchedBy.NUMBER
        # CVAT cuts six letters off, whether or not they are "frame_".
        digits = _to_int(posixpath.basename(root)[len(_VIDEO_NAME) :])
        return self._numbered(digits), MatchedBy.DIGITS

    def place(self, filename: str, where: str) -> int | None:
        """The frame for an import; None for an image that the task skips.

        Raises:
            TfodError: there is none.
        """
        found, by = self.find(filename)
        if self._is_exact:
            return found
        name = posixpath.basename(root_of(filename))
        # CVAT takes kitten3.jpg for frame 3.
        if found is None or (by is MatchedBy.DIGITS and not name.startswith(_VIDEO_NAME)):
            raise TfodError(f"{where}: image {filename!r:.81} matches no frame of the task")
        return found

    def is_reached_by_cvat(self, frame: Frame) -> bool:
        """Whether CVAT's own lookup finds this frame of the task's by its name."""
        return self._frames[self._by_root[_root(frame.name)]] is frame

    def nearest(self, filename: str) -> str | None:
        """The frame's name that is the same but for case, spaces, punctuation and folders."""
        return self._near_names.find_same(filename)

    @cached_property
    def _near_names(self) -> FuzzyNames:
        return FuzzyNames((one.name for one in self._frames), _plain)

    def _named(self, filename: str) -> int | None:
        """The frame of this name, or else of its relative path without its extension."""
        path = safe_relative_path(filename)
        # Dots in a name without extension are no extension: the second lookup of CVAT.
        root = split_extension(path)[0]
        # A frame may be called a\b.jpg, a record of it too.
        found = (self._by_name.get(filename), self._by_name.get(path), self._by_root.get(root))
        return next((one for one in found if one is not None), self._by_root.get(path))

    def _numbered(self, number: int | None) -> int | None:
        return None if number is None else self._by_number.get(number)

    def _root_hint(self, filenames: Sequence[str]) -> str:
        """The folder that the names lack, by the one that has the most parts.

        Of several folders it is the one that has all strangers; none where several have them.
        """
        deepest = max(map(root_of, filenames), key=lambda one: one.count("/"), default="")
        ending = "/" + deepest
        behind = (root for root in self._by_root if deepest and ("/" + root).endswith(ending))
        folders = {root[: -len(deepest)].removesuffix("/") for root in behind}
        if "" in folders:
            return ""
        for filename in filenames:
            if len(folders) < 2:
                break
            if self._named(filename) is None:
                root = root_of(filename)
                folders = {one for one in folders if posixpath.join(one, root) in self._by_root}
        return folders.pop() if len(folders) == 1 else ""


@dataclass(frozen=True)
class Attachment:
    """A record, and the frame that CVAT would attach its image to.

    Attributes:
        row: the record.
        place: of the frame in ``task.frames``; None where CVAT finds none.
        by: how it was found.
        nearest: name of the frame that may have been meant, where there is no frame.
        earlier: the first record that went to the same frame.
    """

    row: ImageRow
    place: int | None
    by: MatchedBy
    nearest: str | None
    earlier: Place | None


def attach(task: Task, rows: Sequence[ImageRow]) -> list[Attachment]:
    """The frame of each record, in their order; linear in records and frames."""
    matcher = Matcher(task, (row.filename for row in rows))
    frames = task.frames or ()
    twins: dict[str, list[int]] = {}  # in a project, a name may come once for each task
    for number, frame in enumerate(frames if task.project else ()):
        twins.setdefault(frame.name, []).append(number)
    first: dict[int, Place] = {}
    found = []
    for row in rows:
        place, by = matcher.find(row.filename)
        near = matcher.nearest(row.filename) if place is None else None
        earlier = None
        if place is not None:
            left = twins.get(frames[place].name)
            place = left.pop() if left else place
            earlier = first.get(place)
            first.setdefault(place, row.place)
        found.append(Attachment(row, place, by, near, earlier))
    return found


def _to_int(text: str) -> int | None:
    """As CVAT casts: whatever Python's ``int`` takes, spaces and underscores included."""
    if len(text) <= _LONGEST_NUMBER:
        with contextlib.suppress(ValueError):
            return int(text)
    return None


def _root(frame: str) -> str:
    return os.path.splitext(frame)[0]


def _plain(filename: str) -> str:
    name = posixpath.basename(root_of(filename))
    return strip_punctuation(name) or name

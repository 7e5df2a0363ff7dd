"""Which frame of a task each image goes to.

Source: ``match_dm_item``, ``match_frame`` and ``find_dataset_root`` in CVAT's
``dataset_manager/bindings.py``. CVAT looks names up without their extension, so ``a.png`` matches
``a.jpg``; then behind the folder that all names seem to lack; then it takes the name for a number;
then, in a video, what follows the sixth letter. Our import goes to the frame that has the whole
name first, since CVAT takes any of ``a.jpg`` and ``a.png``, and to no frame where names may lack
one of several folders, of which CVAT takes any.
"""

from __future__ import annotations

import bisect
import contextlib
import enum
import itertools
import os.path
import posixpath
from collections.abc import Iterable

from tfod.check.references.cvat_task.task import Task
from tfod.detection.labels.near_names import plain_letters
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


class FrameIndex:
    """Looks up frames; answers are places in ``task.frames``."""

    def __init__(self, task: Task) -> None:
        self._frames = task.frames or ()
        self._video = task.video
        self._by_name: dict[str, int] = {}
        self._by_root: dict[str, int] = {}
        self._by_number: dict[int, int] = {}
        for place, frame in enumerate(self._frames):
            self._by_name[frame.name] = place
            # Of a.jpg and a.png the latter wins for a.gif, as in CVAT.
            self._by_root[os.path.splitext(frame.name)[0]] = place
            if frame.number is not None:
                self._by_number[frame.number] = place
        self._plain: dict[str, int] | None = None
        self._sorted: list[str] = []

    def by_name(self, filename: str) -> int | None:
        """The frame of this name, or else of its relative path without its extension."""
        path = safe_relative_path(filename)
        found = self._by_name.get(path)
        if found is None:
            found = self._by_root.get(split_extension(path)[0])
        # Dots in a name without extension are no extension: the second lookup of CVAT.
        return self._by_root.get(path) if found is None else found

    def by_root(self, place: int) -> int:
        """The frame that CVAT takes for this one's name: the last that has it, but for the end."""
        return self._by_root[os.path.splitext(self._frames[place].name)[0]]

    def by_other_means(self, filename: str, hint: str) -> tuple[int | None, MatchedBy]:
        """The frame behind the folder ``hint``, of this number, or of these digits."""
        root = root_of(filename)
        if hint:
            found = self._by_root.get(posixpath.join(hint, root))
            if found is not None:
                return found, MatchedBy.NAME
        number = _to_int(root)
        if number is not None or not self._video:
            return self._frame_numbered(number), MatchedBy.NUMBER
        # CVAT cuts six letters off, whether or not they are "frame_".
        digits = _to_int(posixpath.basename(root)[len(_VIDEO_NAME) :])
        return self._frame_numbered(digits), MatchedBy.DIGITS

    def _frame_numbered(self, number: int | None) -> int | None:
        return None if number is None else self._by_number.get(number)

    def root_hint(self, deepest: str, strangers: Iterable[str]) -> str:
        """The folder that the shard's names lack, by the one name that has the most parts.

        Of several folders it is the one that has all strangers; none where several have them.
        """
        ending = "/" + deepest
        behind = (root for root in self._by_root if deepest and ("/" + root).endswith(ending))
        folders = {root[: -len(deepest)].removesuffix("/") for root in behind}
        if "" in folders:
            return ""
        for root in map(root_of, strangers):
            if len(folders) < 2:
                break
            folders = {one for one in folders if posixpath.join(one, root) in self._by_root}
        return folders.pop() if len(folders) == 1 else ""

    def nearest(self, filename: str) -> str | None:
        """Name of the frame that may have been meant.

        The same but for case, spaces, punctuation and folders; or the neighbour in the alphabet
        that starts alike. Quick, for there may be as many strangers as records.
        """
        if self._plain is None:
            self._plain = {_plain(root): place for root, place in reversed(self._by_root.items())}
            self._sorted = sorted(self._by_root)
        root = root_of(filename)
        same = self._plain.get(_plain(root))
        if same is not None:
            return self._frames[same].name
        place = bisect.bisect(self._sorted, root)
        around = self._sorted[max(0, place - 1) : place + 1]
        alike = max(around, key=lambda one: _common(one, root), default="")
        if 2 * _common(alike, root) < len(root) or not root:
            return None
        return self._frames[self._by_root[alike]].name


class Matcher:
    """Finds frames by the names of records, of which the deepest tells what folder they lack."""

    def __init__(self, task: Task, filenames: Iterable[str]) -> None:
        self._index = index = FrameIndex(task)
        names = list(filenames)
        deepest = max(map(root_of, names), key=lambda one: one.count("/"), default="")
        strangers = (name for name in names if index.by_name(name) is None)
        self._hint = index.root_hint(deepest, strangers)

    def place(self, filename: str, where: str) -> int:
        """The place in the task's frames.

        Raises:
            TfodError: there is none.
        """
        found = self._index.by_name(filename)
        if found is not None:
            return found
        found, by = self._index.by_other_means(filename, self._hint)
        name = posixpath.basename(root_of(filename))
        # CVAT cuts six letters off, and takes kitten3.jpg for frame 3.
        if found is None or (by is MatchedBy.DIGITS and not name.startswith(_VIDEO_NAME)):
            raise TfodError(f"{where}: image {filename!r} matches no frame of the task")
        return found

    def is_reached_by_cvat(self, place: int) -> bool:
        """Whether CVAT's own lookup finds this frame by its name."""
        return self._index.by_root(place) == place


def of_other_jobs(job: object, images: int) -> str:
    """What to say where none of the images is in the job that they are imported into."""
    which = "the image is not a frame" if images == 1 else f"none of the {images} images is a frame"
    return f"{which} of {job}, but of the task's other jobs"


def _to_int(text: str) -> int | None:
    """As CVAT casts: whatever Python's ``int`` takes, spaces and underscores included."""
    if len(text) <= _LONGEST_NUMBER:
        with contextlib.suppress(ValueError):
            return int(text)
    return None


def _plain(root: str) -> str:
    name = posixpath.basename(root)
    return plain_letters(name) or name


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))

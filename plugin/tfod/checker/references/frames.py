"""Matching of images with the frames of a CVAT task.

Source: ``match_dm_item``, ``match_frame`` and ``find_dataset_root`` in CVAT's
``dataset_manager/bindings.py``. CVAT ignores extensions, so that ``a.png`` matches ``a.jpg``. It
tries the name, then the name in the folder that all names seem to lack, then the name as a frame
number, then, in a video, the text after the first six letters as a frame number.

The import of tfod differs in three ways. It prefers the frame with exactly the same name, while
CVAT chooses any of ``a.jpg`` and ``a.png``. If names may lack one of several folders, it matches no
frame, while CVAT chooses any. If the folder of a name does not occur in the task, as in
``JPEGImages/a.jpg``, it matches the only frame with the same base name.
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
from tfod.checker.finding import Location
from tfod.checker.references.cvat_task import Frame, Task
from tfod.detection.labels.fuzzy_names import FuzzyNames, strip_punctuation
from tfod.errors import TfodError, excerpt
from tfod.tfrecord.image_names import safe_relative_path, split_extension

_MAX_NUMBER_LENGTH = 20
_VIDEO_NAME = "frame_"


class MatchedBy(enum.Enum):
    """The property by which CVAT finds the frame of an image."""

    NAME = "name"
    NUMBER = "number"
    DIGITS = "digits"


def to_image_id(filename: str) -> str:
    """Return the id of an image in an import to CVAT: a relative path without extension."""
    return split_extension(safe_relative_path(filename))[0]


class Matcher:
    """Finds frames by the names of records. Frames are indices in ``task.frames``."""

    def __init__(self, task: Task, filenames: Iterable[str]) -> None:
        self._frames = task.frames or ()
        self._video, self._is_exact = task.video, task.skips_others
        # If several frames match (equal names, or a.jpg and a.png for a.gif), the last is used, as
        # in CVAT.
        self._by_name = {frame.name: index for index, frame in enumerate(self._frames)}
        self._by_root = {_root(frame.name): index for index, frame in enumerate(self._frames)}
        self._by_base_name: dict[str, int | None] = {}  # None if several frames have it
        for root, index in self._by_root.items():
            name = posixpath.basename(root)
            self._by_base_name[name] = None if name in self._by_base_name else index
        self._folders = {posixpath.dirname(root) for root in self._by_root} - {""}
        self._by_number = {frame.number: index for index, frame in enumerate(self._frames)}
        self._missing_folder = self._find_missing_folder(list(filenames))

    def find(self, filename: str) -> tuple[int | None, MatchedBy]:
        """Find the frame of an image by its name, or by the number in it, as CVAT does."""
        index, root = self._find_by_name(filename), to_image_id(filename)
        if self._is_exact:  # an image of another task may have the same base name or number
            return index, MatchedBy.NAME
        if index is None and self._missing_folder:
            index = self._by_root.get(posixpath.join(self._missing_folder, root))
        if index is None and posixpath.dirname(root) not in self._folders:
            index = self._by_base_name.get(posixpath.basename(root))
        if index is not None:
            return index, MatchedBy.NAME
        number = _to_int(root)
        if number is not None or not self._video:
            return self._find_by_number(number), MatchedBy.NUMBER
        # CVAT removes six letters, even if they are not "frame_".
        digits = _to_int(posixpath.basename(root)[len(_VIDEO_NAME) :])
        return self._find_by_number(digits), MatchedBy.DIGITS

    def match(self, filename: str, location: str) -> int | None:
        """Find the frame of an image for an import, or None if the task skips the image."""
        index, matched_by = self.find(filename)
        if self._is_exact:
            return index
        name = posixpath.basename(to_image_id(filename))
        # CVAT matches kitten3.jpg with frame 3.
        if index is None or (matched_by is MatchedBy.DIGITS and not name.startswith(_VIDEO_NAME)):
            raise TfodError(f"{location}: image {excerpt(filename)} matches no frame of the task")
        return index

    def is_reached_by_cvat(self, frame: Frame) -> bool:
        """Return whether CVAT's own lookup finds this frame of the task by its name."""
        return self._frames[self._by_root[_root(frame.name)]] is frame

    def find_similar(self, filename: str) -> str | None:
        """Return a frame name that differs only in case, spaces, punctuation or folders."""
        return self._fuzzy_names.find_same(filename)

    @cached_property
    def _fuzzy_names(self) -> FuzzyNames:
        return FuzzyNames((frame.name for frame in self._frames), _simplify)

    def _find_by_name(self, filename: str) -> int | None:
        path = safe_relative_path(filename)
        root = split_extension(path)[0]
        # The file name itself comes first, because a frame may be called a\b.jpg. The path comes
        # last, as in CVAT, in case the name has a dot but no extension.
        indices = (
            self._by_name.get(filename),
            self._by_name.get(path),
            self._by_root.get(root),
            self._by_root.get(path),
        )
        return next((index for index in indices if index is not None), None)

    def _find_by_number(self, number: int | None) -> int | None:
        return None if number is None else self._by_number.get(number)

    def _find_missing_folder(self, filenames: Sequence[str]) -> str:
        """Find the only folder that all names seem to lack, by the name with the most parts."""
        deepest = max(map(to_image_id, filenames), key=lambda root: root.count("/"), default="")
        ending = "/" + deepest
        roots = (root for root in self._by_root if deepest and ("/" + root).endswith(ending))
        folders = {root[: -len(deepest)].removesuffix("/") for root in roots}
        if "" in folders:
            return ""
        for filename in filenames:
            if len(folders) < 2:
                break
            if self._find_by_name(filename) is None:
                root = to_image_id(filename)
                folders = {path for path in folders if posixpath.join(path, root) in self._by_root}
        return folders.pop() if len(folders) == 1 else ""


@dataclass(frozen=True)
class Attachment:
    """A record, and the frame to which CVAT would attach its image.

    Attributes:
        frame_index: index of the frame in ``task.frames``; None if CVAT does not find a frame.
        matched_by: property by which the frame was found.
        similar_name: similar name of a frame, if no frame was found.
        earlier: location of the first record with the same frame.
    """

    row: ImageRow
    frame_index: int | None
    matched_by: MatchedBy
    similar_name: str | None
    earlier: Location | None


def attach(task: Task, rows: Sequence[ImageRow]) -> list[Attachment]:
    """Find the frame of each record. Takes linear time in records and frames."""
    matcher = Matcher(task, (row.filename for row in rows))
    frames = task.frames or ()
    same_name: dict[str, list[int]] = {}  # in a project, several tasks can have the same name
    for index, frame in enumerate(frames if task.project else ()):
        same_name.setdefault(frame.name, []).append(index)
    first: dict[int, Location] = {}
    attachments = []
    for row in rows:
        match, matched_by = matcher.find(row.filename)
        similar_name = matcher.find_similar(row.filename) if match is None else None
        earlier = None
        if match is not None:
            remaining = same_name.get(frames[match].name)
            match = remaining.pop() if remaining else match
            earlier = first.get(match)
            first.setdefault(match, row.location)
        attachments.append(Attachment(row, match, matched_by, similar_name, earlier))
    return attachments


def _to_int(text: str) -> int | None:
    """Convert text as CVAT does, with Python's ``int``, which accepts spaces and underscores."""
    if len(text) <= _MAX_NUMBER_LENGTH:
        with contextlib.suppress(ValueError):
            return int(text)
    return None


def _root(frame: str) -> str:
    return os.path.splitext(frame)[0]


def _simplify(filename: str) -> str:
    name = posixpath.basename(to_image_id(filename))
    return strip_punctuation(name) or name

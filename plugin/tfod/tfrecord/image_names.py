"""File names in records, and the names that images get from them.

Names in the wild are full paths of somebody's disk, Windows paths, duplicates, or missing. An
image's id is made from them so that it is relative, harmless as a path, and unique.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# .jpg, .JPEG, .e; but not the number in frame.000123 nor the hash that Roboflow appends.
_EXTENSION = re.compile(r"(?<=[^/])\.[A-Za-z][A-Za-z0-9]{0,4}\Z")
# Names that need no care, which most are.
_HARMLESS = re.compile(r"\w[\w. -]*\w\Z")
_DRIVE = re.compile(r"\A[A-Za-z]:")


def safe_relative_path(filename: str) -> str:
    """A record's file name as a relative path with forward slashes that stays in its folder.

    Of an absolute path, of either system, only the last part is kept: the folders are those of
    another machine. ``..`` and the like are dropped. May be empty.
    """
    if _HARMLESS.match(filename) and ".." not in filename:
        return filename
    path = filename.replace("\\", "/").replace("\0", "_")
    absolute = path.startswith("/") or _DRIVE.match(path)
    path = _DRIVE.sub("", path)
    # Windows trims dots and spaces at the end of a part, so '.. ' is as bad as '..'.
    parts = [part for part in path.split("/") if part.rstrip(" .")]
    return parts[-1] if absolute and parts else "/".join(parts)


def split_extension(path: str) -> tuple[str, str]:
    """Split a path into its root and its extension; what follows a dot need not be one."""
    match = _EXTENSION.search(path)
    return (path[: match.start()], match[0]) if match else (path, "")


@dataclass
class IdMaker:
    """Gives every image of a subset an id of its own.

    ``1.jpg`` becomes ``1``; a ``1.png`` beside it becomes ``1.png``; another record of the same
    file name becomes ``1~2``.
    """

    _ids: set[str] = field(default_factory=set)
    _paths: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)  # the last number behind each root

    def make(self, path: str, fallback: str) -> tuple[str, str]:
        """Make the id for a safe relative path, or from the fallback where that is empty.

        Returns also the extension that the path has.
        """
        root, extension = split_extension(path)
        root = root or fallback
        new_path = path not in self._paths
        self._paths.add(path)
        name = root
        if name in self._ids and new_path and path:
            name = path
        # Ids stay taken: of a name that a million records have, no number is tried twice.
        while name in self._ids:
            self._counts[root] = self._counts.get(root, 1) + 1
            name = f"{root}~{self._counts[root]}"
        self._ids.add(name)
        return name, extension

    def take(self, roots: Sequence[str], paths: Sequence[str]) -> bool:
        """Make the roots of many paths their ids; False, and nothing is made, if one is taken."""
        if len({*roots}) < len(roots) or not self._ids.isdisjoint(roots):
            return False
        self._ids.update(roots)
        self._paths.update(paths)
        return True


def is_id_of(item_id: str, filename: str) -> bool:
    """Whether an id can have been made from this file name by :class:`IdMaker`."""
    path = safe_relative_path(filename)
    root = split_extension(path)[0]
    return item_id in (root, path) or re.fullmatch(re.escape(root) + r"~\d+", item_id) is not None


def names_in_folder(folder: str) -> frozenset[str]:
    """Names of what lies in a folder; none when there is no such folder."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()

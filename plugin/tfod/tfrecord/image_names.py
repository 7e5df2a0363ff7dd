"""Image ids from the file names in records: relative, safe as a path, and unique.

File names may be absolute paths of another computer, Windows paths, duplicates, or missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# Matches .jpg, .JPEG and .e, but not the number in frame.000123 or the hash of Roboflow.
_EXTENSION = re.compile(r"(?<=[^/])\.[A-Za-z][A-Za-z0-9]{0,4}\Z")
# Most names are safe; this avoids the slower check.
_HARMLESS = re.compile(r"\w[\w. -]*\w\Z")
_DRIVE = re.compile(r"\A[A-Za-z]:")


def safe_relative_path(filename: str) -> str:
    """Convert a record's file name to a relative path that cannot leave its folder.

    Slashes become forward slashes. Only the last part of an absolute path is kept, and parts such
    as ``..`` are dropped, so the result may be empty.
    """
    if _HARMLESS.match(filename) and ".." not in filename:
        return filename
    path = filename.replace("\\", "/").replace("\0", "_")
    absolute = path.startswith("/") or _DRIVE.match(path)
    path = _DRIVE.sub("", path)
    # Windows strips dots and spaces from the end of a part, so '.. ' means '..'.
    parts = [part for part in path.split("/") if part.rstrip(" .")]
    return parts[-1] if absolute and parts else "/".join(parts)


def split_extension(path: str) -> tuple[str, str]:
    """Split a path into root and extension; not every text after a dot is an extension."""
    match = _EXTENSION.search(path)
    return (path[: match.start()], match[0]) if match else (path, "")


@dataclass
class IdMaker:
    """A generator of unique ids for the images of a subset.

    ``1.jpg`` becomes ``1``, then ``1.png`` stays ``1.png``, and another ``1.jpg`` becomes ``1~2``.
    """

    _ids: set[str] = field(default_factory=set)
    _paths: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)  # last number used for each root

    def make(self, path: str, fallback: str) -> tuple[str, str]:
        """Return the id for a safe path, or for the fallback if it is empty, and the extension."""
        root, extension = split_extension(path)
        root = root or fallback
        is_new = path not in self._paths
        self._paths.add(path)
        name = root
        if name in self._ids and is_new and path:
            name = path
        # Numbers continue from the last one, because a million records may have the same name.
        while name in self._ids:
            self._counts[root] = self._counts.get(root, 1) + 1
            name = f"{root}~{self._counts[root]}"
        self._ids.add(name)
        return name, extension

    def take(self, roots: Sequence[str], paths: Sequence[str]) -> bool:
        """Use the roots of many paths as ids; return False without any change if one is in use."""
        if len({*roots}) < len(roots) or not self._ids.isdisjoint(roots):
            return False
        self._ids.update(roots)
        self._paths.update(paths)
        return True


def is_id_for(item_id: str, filename: str) -> bool:
    """Return whether :class:`IdMaker` may have made an id from this file name."""
    path = safe_relative_path(filename)
    root = split_extension(path)[0]
    return item_id in (root, path) or re.fullmatch(re.escape(root) + r"~\d+", item_id) is not None


def list_names(folder: str) -> frozenset[str]:
    """Return the names of the entries of a folder; empty if the folder does not exist."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()

"""Unpacking the shards of a zip, for those who need files: under the limits of the checker."""

from __future__ import annotations

import os
import shutil

from tfod_validator.archive import Archive, ArchiveLimits
from tfod_validator.archive_contents import look_through
from tfod_validator.collector import Collector
from tfod_validator.profile import Policy

_LABEL_MAP_EXTENSION = ".pbtxt"
_STEP = 1 << 20


def unpack_shards(path: str, folder: str, limits: ArchiveLimits | None = None) -> None:
    """Write the shards and label maps of a zip below a folder, with the zip's own folders.

    Nothing else is written. What is refused by the rules for archives is left out: let the checker
    judge the zip first.

    Raises:
        ArchiveDamageError: an entry is damaged, or a limit is reached.
        OSError: a file cannot be written.
    """
    name = os.path.basename(path)
    collector = Collector(Policy(), 0)
    with Archive(path, name, collector, limits) as archive:
        contents = look_through(archive, collector)
        texts = [one for one in contents.others if one.path.endswith(_LABEL_MAP_EXTENSION)]
        for entry in (*contents.shards.values(), *texts):
            target = os.path.join(folder, *entry.path.split("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(entry) as source, open(target, "xb") as file:
                shutil.copyfileobj(source, file, _STEP)

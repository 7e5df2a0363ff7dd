"""Unpacking the shards of a zip, for those who need files: under the limits of the checker."""

from __future__ import annotations

import os
import shutil

from tfod.check.archive import Archive, ArchiveLimits
from tfod.check.archive_contents import look_through
from tfod.check.collector import Collector
from tfod.check.profiles.profile import Policy
from tfod.tfrecord.shards import shard_file_names
from tfod.tfrecord.zip_directory import Entry

_LABEL_MAP = "label_map.pbtxt"
_STEP = 1 << 20


def unpack_shards(path: str, folder: str, limits: ArchiveLimits | None = None) -> None:
    """Write the shards of a zip below a folder, each with its label map in a folder of its own.

    Names and folders are ours, so that whoever looks for shards there finds exactly these, with
    the subsets and the label maps that the zip's own names give them. Nothing else is written.
    What is refused by the rules for archives is left out, as are files of no bytes: let the checker
    judge the zip first.

    Raises:
        ArchiveDamageError: an entry is damaged, or a limit is reached.
        OSError: a file cannot be written.
    """
    name = os.path.basename(path)
    collector = Collector(Policy(), 0)
    with Archive(path, name, collector, limits) as archive:
        contents = look_through(archive, collector)
        number = 0
        for group in contents.shard_sets:
            (name,) = shard_file_names(group.subset, 1)
            for shard in group.paths:
                if not contents.shards[shard].size:
                    continue  # of a numbered set; here it would be one alone, which is refused
                beside = os.path.join(folder, f"{number:06d}")
                os.makedirs(beside)
                _copy(archive, contents.shards[shard], os.path.join(beside, name))
                label_map = contents.label_maps.get(shard)
                if label_map is not None:
                    _copy(archive, label_map, os.path.join(beside, _LABEL_MAP))
                number += 1


def _copy(archive: Archive, entry: Entry, path: str) -> None:
    with archive.open(entry) as source, open(path, "xb") as file:
        shutil.copyfileobj(source, file, _STEP)

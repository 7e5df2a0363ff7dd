"""The shards of a zip, unpacked under names and into folders of ours."""

from __future__ import annotations

import os
import shutil

from tfod.check.dataset import File
from tfod.check.find import zip_dataset
from tfod.detection.labels.search import LABEL_MAP_FILE
from tfod.tfrecord.shard_sets.names import shard_file_names
from tfod.tfrecord.storage.archive import ZipLimits

_COPY_STEP = 1 << 20


def unpack_shards(path: str, folder: str, limits: ZipLimits | None = None) -> None:
    """Write the shards of a zip below a folder, each with its label map in a folder of its own.

    A search for shards there finds exactly these, with the subsets and the label maps that the
    zip's own names give them. Nothing else is written. What is refused by the rules for archives is
    left out, as are files of no bytes: let the checker check the zip first.

    Raises:
        ZipEntryError: an entry is damaged.
        OSError: a file cannot be written.
    """
    dataset = zip_dataset(File.at(path, os.path.basename(path)), limits or ZipLimits())
    # An empty one is of a numbered set; here it would be one alone, which is refused.
    filled = [shard for shard in dataset.shards if shard.size]
    for number, shard in enumerate(filled):
        (name,) = shard_file_names(shard.subset, 1)
        beside = os.path.join(folder, f"{number:06d}")
        os.makedirs(beside)
        with shard.open() as source, open(os.path.join(beside, name), "xb") as file:
            shutil.copyfileobj(source, file, _COPY_STEP)
        label_map = dataset.label_map_of(shard)
        if label_map is not None:
            with open(os.path.join(beside, LABEL_MAP_FILE), "xb") as file:
                file.write(label_map.data)

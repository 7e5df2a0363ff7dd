"""The records of a zip of shards, read one after the other under limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfod.check.archive import Archive, ArchiveLimits
from tfod.check.archive_contents import look_through, read_entry
from tfod.check.collector import Collector
from tfod.check.label_maps import label_map_file
from tfod.check.profiles.profile import Policy
from tfod.detection.columns import Detections
from tfod.detection.detection import Detection
from tfod.detection.label_map import LONGEST_LABEL_MAP, LabelMap, load_label_map
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.reader import read_record_batch_stream


@dataclass(frozen=True)
class ZipRecord:
    """A record as a Detection, and how its shard names classes.

    Attributes:
        subset: that its shard belongs to.
        where: shard and number, for messages.
        detection: valid until the next record is asked for.
        label_map: of its shard.
    """

    subset: str
    where: str
    detection: Detection
    label_map: LabelMap | None

    def class_name(self, text: str | None, label: int | None) -> str:
        """The class that an object's text and id name: the text, or what the id is called.

        Raises:
            TfodError: they name none.
        """
        if text:
            return text
        item = self.label_map.find_id(label) if self.label_map and label is not None else None
        if item is None:
            raise TfodError(f"{self.where}: an object has no class; give it one, or leave it out")
        return item.class_name

    def class_names(self) -> list[str]:
        """The classes of all objects."""
        detection = self.detection
        count = len(detection.boxes)
        texts = detection.class_text or (None,) * count
        labels = detection.class_label or (None,) * count
        return [self.class_name(*pair) for pair in zip(texts, labels, strict=True)]


def read_zip(
    path: str, label_map: str | None = None, limits: ArchiveLimits | None = None
) -> Iterator[ZipRecord]:
    """Read all records of all shards in a zip that the checker has no errors against.

    Args:
        path: the zip.
        label_map: file or name of one for all shards, in place of those in the zip.
        limits: where reading stops.

    Raises:
        TfodError: it cannot be read.
    """
    named = load_label_map(label_map)[0] if label_map is not None else None
    collector = Collector(Policy(), 1)
    try:
        archive = Archive(path, path, collector, limits)
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    with archive:
        contents = look_through(archive, collector, needs_label_map=named is None)
        for group in contents.shard_sets:
            for shard in group.paths:
                entry = contents.shards[shard]
                map_entry = contents.label_maps.get(shard)
                own = named
                if named is None and map_entry is not None:
                    data = read_entry(archive, map_entry, LONGEST_LABEL_MAP + 1)
                    own = label_map_file(data, map_entry.path).label_map
                name = archive.place(entry).shard
                with archive.open(entry) as stream:
                    for records in read_record_batch_stream(stream, name):
                        found = Detections(ExampleBatch.of(records))
                        for number, detection in enumerate(found, records.first):
                            where = f"{name}, record {number}"
                            yield ZipRecord(group.subset, where, detection, own)

"""Reading shards whose names say how many records they have."""

from __future__ import annotations

from tfod.datumaro.reader import TfDetectionApiBase
from tfod.tfrecord.counted_names import EXTENSION, parse_file_name
from tfod.tfrecord.shards import ShardSet


class CountedShardsBase(TfDetectionApiBase):
    """Takes subsets from such names, and sees whether a shard has as many records as it says."""

    def _find_sets(self, path: str) -> list[ShardSet]:
        found: dict[str, list[str]] = {}
        missing: dict[str, list[str]] = {}
        for one in super()._find_sets(path):
            # The folder of a split names a subset too, and so does the caller.
            is_own = parse_file_name(one.subset + EXTENSION) is not None
            for shard in one.paths:
                name = parse_file_name(shard) if is_own else None
                found.setdefault(name.subset if name else one.subset, []).append(shard)
            missing.setdefault(one.subset, []).extend(one.missing)
        return [
            ShardSet(subset, tuple(paths), tuple(missing.get(subset, ())))
            for subset, paths in found.items()
        ]

    def _note_length(self, shard: str, records: int) -> None:
        name = parse_file_name(shard)
        if name is not None and name.records != records:
            self._notes.odd_lengths.append(
                f"{shard} has {records} records where its name says {name.records}"
            )

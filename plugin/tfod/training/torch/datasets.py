"""Datasets of PyTorch over shards: one that reads them through, one that reads by number."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import Record, RecordBatch, read_record_batches
from tfod.tfrecord.record_index import RecordIndex
from tfod.training.torch.samples import SampleMaker, Transform
from tfod.training.training_input import LabelMapLike, shards_to_read

_SHUFFLED_RECORDS = 1000


class Detections(IterableDataset):
    """The images of shards with their boxes, read from the start to the end.

    Yields ``(image, target)`` as torchvision's detection models take them: ``image`` a uint8 tensor
    of shape (3, height, width), RGB; ``target`` a dict of ``boxes`` float32 (n, 4), pixels ``xmin,
    ymin, xmax, ymax``; ``labels`` int64 (n,): the id of the text in the label map, -1 for a text
    that it does not have, and the record's id where there is no text; ``image_id`` int, unique
    in the dataset: number of the shard times 2**32 plus number of the record; ``area`` float32
    (n,), pixels: the record's, or else the box's; ``iscrowd`` int64 (n,), 0 or 1; ``source_id`` and
    ``filename`` str, empty where the record has none; and ``masks`` uint8 (n, height, width), 0 or
    1, if asked for. For a ``DataLoader``, with ``collate_fn=tfod.torch.collate``.

    Its workers, and those of all ranks, share the shards; where there are more of them than
    shards, they share the records of a shard. Each record comes once in an epoch. Parts differ
    in length by whole shards: where each rank must take as many steps as the others, take
    :class:`DetectionsByIndex` and a ``DistributedSampler``.

    Args:
        pattern: a file, a folder or a glob; shards in zips too.
        label_map: a label map, its path, or the name of one that tfod ships; None takes the one
            beside the shards, if there is one.
        masks: whether targets have masks; an object without one has zeros.
        transform: called with image and target; what it returns is yielded.
        shuffle: True, or how many records the buffer holds that is drawn from; also puts the
            shards into another order. Records wait undecoded.
        seed: of the shuffle; the same on every rank.
        rank, world_size: which process of how many this is. Without them
            ``torch.distributed`` is asked when the dataset is made, so make it behind
            ``init_process_group``.

    Raises:
        ShardsNotFoundError, LabelMapError: when made: no shard, or no plain label map.
        ShardError: while read: a shard is damaged.
        RecordError: while read: a record has no image, or one that cannot be decoded, or is no
            sound Example. A DataLoader's worker passes these on with its own words in front.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        label_map: LabelMapLike | None = None,
        masks: bool = False,
        transform: Transform | None = None,
        shuffle: bool | int = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._paths = shards_to_read(pattern)
        self._samples = SampleMaker(self._paths, label_map, masks, transform)
        self._buffer = _SHUFFLED_RECORDS if shuffle is True else int(shuffle)
        self._seed = seed
        self._rank, self._world_size = _place_among_ranks(rank, world_size)
        # Shared, since workers that persist have copies of the dataset from before.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of a shuffled dataset for the passes that begin from now on."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Any]:
        random_order = random.Random(f"{self._seed} {int(self._epoch)}")
        shards = list(range(len(self._paths)))
        if self._buffer:
            random_order.shuffle(shards)  # alike in every worker of every rank
        worker = get_worker_info()
        count, number = (worker.num_workers, worker.id) if worker else (1, 0)
        workers, place = count * self._world_size, self._rank * count + number
        batches = (
            (shard, records, np.flatnonzero(records.numbers % of == part).tolist())
            for shard, of, part in _share(shards, workers, place)
            for records in read_record_batches(self._paths[shard])
        )
        if self._buffer:
            random_order.seed(f"{self._seed} {int(self._epoch)} {place}")
            waiting = (
                (shard, records.record(row)) for shard, records, rows in batches for row in rows
            )
            batches = (
                (shard, RecordBatch.of(record, self._paths[shard]), [0])
                for shard, record in _shuffled(waiting, self._buffer, random_order)
            )
        for batch in batches:
            yield from self._samples.make(*batch)


class DetectionsByIndex(Dataset):
    """The same by number, for samplers: ``len``, ``dataset[17]``, ``DataLoader(shuffle=True)``.

    Making it walks over the record headers of plain shards; compressed ones are read, and are
    written to temporary files when their first record is asked for. Elements, ``label_map``,
    ``masks``, ``transform`` and errors are those of :class:`Detections`.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        label_map: LabelMapLike | None = None,
        masks: bool = False,
        transform: Transform | None = None,
    ) -> None:
        paths = shards_to_read(pattern)
        self._samples = SampleMaker(paths, label_map, masks, transform)
        self._shards = [RecordIndex(path) for path in paths]
        self._ends = list(itertools.accumulate(map(len, self._shards)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        shard = int(np.searchsorted(self._ends, number, side="right"))
        index = self._shards[shard]
        place = number - self._ends[shard] + len(index)
        payload = bytearray(index[place])
        offset = index.span(place).offset - HEADER_BYTES
        record = Record(place, offset, payload, 0, len(payload))
        return next(self._samples.make(shard, RecordBatch.of(record, index.path)))


def collate(batch: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    """Make a batch a tuple of images and a tuple of targets, as torchvision's models take it."""
    return tuple(zip(*batch, strict=True))


def _place_among_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Which process of how many this is: as told, or as ``torch.distributed`` knows."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size go together")
    if rank is None or world_size is None:
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, which is not one of {world_size}")
    return rank, world_size


def _share(shards: Sequence[int], workers: int, place: int) -> Iterator[tuple[int, int, int]]:
    """What one of so many workers reads: shards, and of each every n-th record from the m-th on.

    Yields:
        The shard, n and m.
    """
    if workers <= len(shards):
        for shard in shards[place::workers]:
            yield shard, 1, 0
        return
    mine = place % len(shards)
    # Workers deal themselves to the shards in turn; those of one shard deal its records.
    yield shards[mine], len(range(mine, workers, len(shards))), place // len(shards)


def _shuffled(
    records: Iterable[tuple[int, Record]], size: int, order: random.Random
) -> Iterator[tuple[int, Record]]:
    """Records in the order in which they are drawn from a buffer that is always full."""
    waiting: list[tuple[int, Record]] = []
    for shard, record in records:
        # A copy: a record keeps the whole buffer of the reader alive.
        kept = shard, record._replace(buffer=bytearray(record.payload), start=0)
        if len(waiting) < size:
            waiting.append(kept)
            continue
        place = order.randrange(size)
        drawn, waiting[place] = waiting[place], kept
        yield drawn
    order.shuffle(waiting)
    yield from waiting

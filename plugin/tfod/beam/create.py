"""Making shards on Apache Beam: this machine reads annotations, workers make records of images.

A worker makes whole shards. What each is made from is dealt into files of a work folder, and so are
the shards, which are made anew when it is done again.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfod.beam.errors import require_here
from tfod.beam.run import PipelineRunner, run_tasks
from tfod.shards.create.output import CreatedSet, PlannedSet, first_numbers, make_record
from tfod.shards.create.problems import Problems
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.writer import RecordWriter

_AT_ONCE = 1 << 12  # items that are held before they go into files
_Numbered = tuple[int, int, Any]
"""What problems are put in order by, the image's number, and the item."""


@dataclass(frozen=True)
class _Task:
    """One shard to be made: paths of what makes records, of their items, and of the shard."""

    make: str
    items: str
    file: str


def make_on_beam(
    planned: Sequence[PlannedSet],
    problems: Problems,
    work: str,
    largest: int | None,
    runner: PipelineRunner,
) -> list[CreatedSet]:
    """Make the shards of sets in the work folder.

    ``problems`` has what was odd with their items, and gets what was odd with their records;
    ``largest`` is which source ids stay, see :class:`tfod.shards.create.output.Options`.

    Raises:
        TfodError: whatever items and records raise, or the pipeline failed.
    """
    numbers, images = itertools.count(), first_numbers(planned, largest)
    tasks = [
        _deal(one, os.path.join(work, f"set-{place}"), numbers, images, problems, largest)
        for place, one in enumerate(planned)
    ]
    every = [task for some in tasks for task in some]
    done = dict(zip(every, run_tasks(_make, every, work, runner), strict=True))
    for task, (size, _, _, found) in done.items():
        require_here(task.file, size)
        problems.merge(found)
    return [
        CreatedSet(
            tuple(task.file for task in some),
            sum(done[task][1] for task in some),
            sum(done[task][2] for task in some),
        )
        for some in tasks
    ]


def _deal(
    planned: PlannedSet,
    prefix: str,
    numbers: Iterator[int],
    images: Iterator[int],
    problems: Problems,
    largest: int | None,
) -> list[_Task]:
    """Deal the items of a set into one file for each shard."""
    make = f"{prefix}-make"
    with open(make, "wb") as file:
        pickle.dump((planned.make, problems.policy, largest), file)
    dealt: dict[int, list[_Numbered]] = defaultdict(list)
    items = iter(planned.items)
    count = 0
    while True:
        number = next(numbers)
        problems.begin(number)
        try:
            item = next(items)
        except StopIteration:
            break
        shard = count % planned.num_shards if planned.shard_of is None else planned.shard_of(item)
        dealt[shard].append((number, next(images), item))
        count += 1
        if count % _AT_ONCE == 0:
            _put_away(dealt, prefix)
    _put_away(dealt, prefix)
    return [
        _Task(make, f"{prefix}-items-{shard}", f"{prefix}-{shard}")
        for shard in range(max(1, min(planned.num_shards, count)))
    ]


def _put_away(dealt: dict[int, list[_Numbered]], prefix: str) -> None:
    for shard, items in dealt.items():
        with open(f"{prefix}-items-{shard}", "ab") as file:
            pickle.dump(items, file)
    dealt.clear()


def _make(task: _Task) -> tuple[int, int, int, Problems]:
    """Make one shard; return its bytes, images and objects, and what was odd with them."""
    with open(task.make, "rb") as stream:
        make, policy, largest = pickle.load(stream)
    problems = Problems(policy)
    images = objects = 0
    with AtomicFile(task.file) as output:
        writer = RecordWriter(output)
        for number, image, item in _items(task.items):
            problems.begin(number, is_made=True)
            made = make_record(make, item, problems, image, largest)
            if made is not None:
                writer.write(made[0])
                images += 1
                objects += made[1]
    return os.path.getsize(task.file), images, objects, problems


def _items(path: str) -> Iterator[_Numbered]:
    if not os.path.exists(path):  # a set without images is one empty file
        return
    with open(path, "rb") as file:
        while file.peek(1):
            yield from pickle.load(file)

"""Resharding on Apache Beam: a pipeline that finds the records, and one that copies them.

A worker writes whole shards, and fetches the records of each from wherever they are: they are never
sent from one worker to another. All workers need the same files under the same paths. What they
leave lies in a work folder inside the output folder, and is written anew when it is done again.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.beam.errors import require_here
from tfod.beam.record_table import Cut, RecordTable, Surveyed, bounds_file, cuts, survey
from tfod.beam.run import PipelineRunner, run_tasks
from tfod.errors import TfodError
from tfod.shards.reshard import CopiedSubset, Subset
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.writer import RecordWriter

_AT_ONCE = 1 << 16  # records whose positions a worker holds


@dataclass(frozen=True)
class _Recipe:
    """What all shards of a subset have in common; a file in the work folder.

    Attributes:
        table: the records that there are.
        order: file of their numbers in the order in which they are written, int64; None is 0, 1, …
        compression: of each shard.
    """

    table: RecordTable
    order: str | None
    compression: Compression

    def numbers(self, cut: Cut) -> Iterator[np.ndarray]:
        """The numbers of a shard's records, some at a time."""
        order = np.load(self.order, mmap_mode="r") if self.order and cut.stop else None
        for start in range(cut.start, cut.stop, cut.step * _AT_ONCE):
            stop = min(start + cut.step * _AT_ONCE, cut.stop)
            places = slice(start, stop, cut.step)
            yield np.arange(*places.indices(stop)) if order is None else np.array(order[places])


@dataclass(frozen=True)
class _Task:
    """One shard to be written: paths of the recipe and of it, and which records."""

    recipe: str
    file: str
    cut: Cut


def copy_on_beam(
    subsets: Sequence[Subset], work: str, runner: PipelineRunner
) -> list[CopiedSubset]:
    """Write the shards of subsets into the work folder.

    Raises:
        ShardError: a shard is damaged.
        WriteError: the work folder cannot be written to.
        TfodError: a pipeline failed.
    """
    shards = [one for subset in subsets for one in subset.shards]
    surveyed = run_tasks(functools.partial(_survey, work), [*enumerate(shards)], work, runner)
    for number in range(len(shards)):
        require_here(bounds_file(number, work))
    tasks: list[list[_Task]] = []
    records = []
    first = 0
    for subset in subsets:
        table = RecordTable.write(surveyed[first : first + len(subset.shards)], first, work)
        tasks.append(_plan(subset, table, os.path.join(work, f"subset-{len(tasks)}")))
        records.append(table.records)
        first += len(subset.shards)
    every = [task for some in tasks for task in some]
    for task, size in zip(every, run_tasks(_copy, every, work, runner), strict=True):
        require_here(task.file, size)
    return [
        CopiedSubset(count, tuple(task.file for task in some))
        for count, some in zip(records, tasks, strict=True)
    ]


def _survey(work: str, numbered: tuple[int, str]) -> Surveyed:
    number, shard = numbered
    try:
        return survey(shard, number, work)
    except OSError as error:
        raise TfodError(f"{shard}: a worker cannot read it ({error.strerror or error})") from None


def _plan(subset: Subset, table: RecordTable, prefix: str) -> list[_Task]:
    """Write down what the shards of a subset have in common; return what differs."""
    order = None
    sizes = table.sizes()
    if subset.shuffle is not None:
        # As tfod.shards.reshard has it.
        numbers = np.random.RandomState(subset.shuffle).permutation(table.records)
        order = f"{prefix}-order.npy"
        np.save(order, numbers.astype(np.int64))
        if subset.layout.shard_size is not None:
            sizes = iter([np.concatenate(list(sizes))[numbers]])
    recipe = _Recipe(table, order, subset.layout.compression or Compression.NONE)
    with open(f"{prefix}-recipe", "wb") as file:
        pickle.dump(recipe, file)
    return [
        _Task(f"{prefix}-recipe", f"{prefix}-{number}", cut)
        for number, cut in enumerate(cuts(subset.layout, table.records, sizes))
    ]


def _copy(task: _Task) -> int:
    """Write one shard; return its size."""
    with open(task.recipe, "rb") as file:
        recipe: _Recipe = pickle.load(file)
    with AtomicFile(task.file) as output:
        writer = RecordWriter(output, recipe.compression)
        for numbers in recipe.numbers(task.cut):
            for framed in recipe.table.framed(numbers):
                writer.copy(framed)
        writer.finish()
    return os.path.getsize(task.file)

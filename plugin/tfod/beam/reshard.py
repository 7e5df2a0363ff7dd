"""Resharding on Apache Beam: a pipeline that finds the records, and one that copies them.

A worker writes whole shards, and fetches the records of each from wherever they are: they are never
sent from one worker to another. All workers need the same files under the same paths. What they
leave lies in a work folder inside the output folder, and is written anew by whoever does it again.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfod.beam.errors import errors_in_utf8, require_here, require_shared
from tfod.beam.record_table import Cut, RecordTable, Surveyed, cuts, survey
from tfod.beam.run import PipelineRunner, run_pipeline
from tfod.errors import TfodError
from tfod.shards.reshard import CopiedSubset, Subset
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.writer import RecordWriter

if TYPE_CHECKING:
    import apache_beam as beam

_AT_ONCE = 1 << 16  # records whose places a worker holds


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
class _Numbered:
    """A shard to be surveyed. Not a tuple: its path need be no UTF-8, as strings of Beam's are."""

    number: int
    shard: str


@dataclass(frozen=True)
class _Task:
    """One shard to be written: its number, paths of the recipe and of it, and which records."""

    number: int
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
    surveyed = _survey([one for subset in subsets for one in subset.shards], work, runner)
    tasks: list[list[_Task]] = []
    records = []
    first = 0
    for subset in subsets:
        table = RecordTable.write(surveyed[first : first + len(subset.shards)], first, work)
        first_task = sum(map(len, tasks))
        tasks.append(_plan(subset, table, os.path.join(work, f"subset-{len(tasks)}"), first_task))
        records.append(table.records)
        first += len(subset.shards)
    _copy([task for some in tasks for task in some], runner)
    return [
        CopiedSubset(count, tuple(task.file for task in some))
        for count, some in zip(records, tasks, strict=True)
    ]


def _survey(shards: Sequence[str], work: str, runner: PipelineRunner) -> list[Surveyed]:
    found = dict(run_pipeline(functools.partial(_survey_steps, shards, work), runner))
    for number in found:
        require_here(os.path.join(work, f"bounds-{number}"))
    return [found[number] for number in range(len(shards))]


def _survey_steps(
    shards: Sequence[str], work: str, pipeline: beam.Pipeline
) -> beam.PCollection[tuple[int, Surveyed]]:
    import apache_beam as beam

    return (
        pipeline
        | "shards" >> beam.Create([_Numbered(number, shard) for number, shard in enumerate(shards)])
        | "deal shards" >> beam.Reshuffle()
        | "survey" >> beam.Map(functools.partial(_survey_one, work))
    )


@errors_in_utf8()
def _survey_one(work: str, numbered: _Numbered) -> tuple[int, Surveyed]:
    number, shard = numbered.number, numbered.shard
    require_shared(work)
    try:
        return number, survey(shard, number, work)
    except OSError as error:
        raise TfodError(f"{shard}: a worker cannot read it ({error.strerror or error})") from None


def _plan(subset: Subset, table: RecordTable, prefix: str, first: int) -> list[_Task]:
    """Write down what the shards of a subset have in common; return what differs.

    Args:
        subset: to be written.
        table: its records.
        prefix: of paths in the work folder.
        first: number of the first task.
    """
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
        _Task(first + number, f"{prefix}-recipe", f"{prefix}-{number}", cut)
        for number, cut in enumerate(cuts(subset.layout, table.records, sizes))
    ]


def _copy(tasks: Sequence[_Task], runner: PipelineRunner) -> None:
    written = dict(run_pipeline(functools.partial(_copy_steps, tasks), runner))
    for task in tasks:
        require_here(task.file, written[task.number])


def _copy_steps(
    tasks: Sequence[_Task], pipeline: beam.Pipeline
) -> beam.PCollection[tuple[int, int]]:
    import apache_beam as beam

    return (
        pipeline
        | "new shards" >> beam.Create(tasks)
        | "deal new shards" >> beam.Reshuffle()
        | "copy" >> beam.Map(_copy_one)
    )


@errors_in_utf8()
def _copy_one(task: _Task) -> tuple[int, int]:
    """Write one shard; return its number and size."""
    where, name = os.path.split(task.file)
    require_shared(where)
    with open(task.recipe, "rb") as file:
        recipe: _Recipe = pickle.load(file)
    output = AtomicFile(where, name)
    try:
        writer = RecordWriter(output, recipe.compression)
        for numbers in recipe.numbers(task.cut):
            for framed in recipe.table.framed(numbers):
                writer.copy(framed)
        writer.finish()
        output.publish(name)
    finally:
        output.discard()
    return task.number, os.path.getsize(task.file)

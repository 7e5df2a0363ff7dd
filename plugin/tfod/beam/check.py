"""The work of a check, done by Apache Beam.

The same inputs as on one machine, split by workers; their small results are combined, and
what only shows when all records are known is grouped by hash: each worker compares the rows of a
range of hashes. Beam is not imported until a pipeline is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.beam.run import PipelineRunner, run_pipeline
from tfod.check.duplicates.compare import Wanted, duplicates_in, look_up, wanted_rows
from tfod.check.duplicates.row_blocks import BUCKETS, KEYED_ROWS, Key, RowBlock, RowStore
from tfod.check.engine.inputs import (
    ArchiveInput,
    Input,
    ShardInput,
    examine,
    in_parts,
    total_bytes,
)
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result
from tfod.check.sources.inventory import Location
from tfod.errors import TfodError

if TYPE_CHECKING:
    import apache_beam as beam

_BYTES_OF_A_BUCKET = 1 << 30  # of shards: some millions of rows at most


def examine_on_beam(
    inputs: Sequence[Input], instructions: Instructions, keeps_rows: bool, runner: PipelineRunner
) -> Result:
    """Examine all inputs.

    Raises:
        TfodError: the pipeline cannot run or has failed, or workers on other machines cannot reach
            what is to be checked.
    """
    reachable = [_for_workers(one, runner) for one in inputs]
    found = Result(instructions.max_findings, most_duplicates=instructions.most_duplicates)
    for part in run_pipeline(partial(_build, reachable, instructions, keeps_rows), runner):
        found += part
    found.blocks.sort(key=lambda block: (block.work, block.shard, block.first))
    return found


def _for_workers(one: Input, runner: PipelineRunner) -> Input:
    """The same by a path that does not depend on the working directory."""
    if isinstance(one, ShardInput):
        location = _reachable(one.location, runner)
        return replace(one, shard=replace(one.shard, location=location))
    if isinstance(one, ArchiveInput):
        return replace(one, location=_reachable(one.location, runner))
    return replace(one, location=_absolute(one.location))


def _reachable(location: Location, runner: PipelineRunner) -> Location:
    is_copy = not location.remote and os.path.abspath(location.name) != os.path.abspath(
        location.path
    )
    if is_copy and not runner.is_here:
        raise TfodError(
            f"{location.name}: is read through a copy on this machine, which workers of "
            f"{runner.name} may not see; put the file where they can read it, and name it there"
        )
    return _absolute(location)


def _absolute(location: Location) -> Location:
    # The real path: /dev/stdin is another file in another process.
    return location if location.remote else replace(location, path=os.path.realpath(location.path))


def _buckets(total_bytes: int) -> int:
    """A power of two that divides the ranges of hashes evenly."""
    wanted = min(max(total_bytes // _BYTES_OF_A_BUCKET, 1), BUCKETS)
    return 1 << (wanted - 1).bit_length()


def _build(
    inputs: Sequence[Input],
    instructions: Instructions,
    keeps_rows: bool,
    pipeline: beam.Pipeline,
) -> beam.PCollection[Result]:
    import apache_beam as beam

    most = instructions.max_findings
    buckets = _buckets(total_bytes(inputs))
    pieces = (
        pipeline
        | "inputs" >> beam.Create(inputs)
        | "spread inputs" >> beam.Reshuffle()
        | "split" >> beam.FlatMap(in_parts, instructions)
        | "spread parts" >> beam.Reshuffle()
    )
    results, blocks = _examined(pieces, instructions)
    total = results | "combine" >> beam.CombineGlobally(partial(_total, most))
    compared = (
        blocks
        | "key" >> beam.FlatMap(_keyed_rows, buckets)
        | "group" >> beam.GroupByKey()
        | "compare" >> beam.Map(_duplicates_in, buckets, instructions.most_duplicates)
    )
    combine = partial(_total, instructions.most_duplicates)
    duplicates = compared | "combine duplicates" >> beam.CombineGlobally(combine)
    wanted = duplicates | "name" >> beam.Map(lambda one: wanted_rows(one.duplicates.places()))
    facts = blocks | "look up" >> beam.FlatMap(_looked_up, beam.pvalue.AsSingleton(wanted), most)
    found = [total, duplicates, facts]
    if keeps_rows:
        found.append(blocks | "keep rows" >> beam.Map(lambda block: Result(most, blocks=[block])))
    return found | "all" >> beam.Flatten()


def _examined(
    pieces: beam.PCollection[Input], instructions: Instructions
) -> tuple[beam.PCollection[Result], beam.PCollection[RowBlock]]:
    """The results and the rows of all inputs."""
    import apache_beam as beam

    found = pieces | "examine" >> beam.FlatMap(_examine, instructions)
    return (
        found | "results" >> beam.FlatMap(_of_type, Result),
        found | "rows" >> beam.FlatMap(_of_type, RowBlock),
    )


def _examine(one: Input, instructions: Instructions) -> Iterator[Result | RowBlock]:
    """The result without its rows, and each block of rows."""
    result = examine(one, instructions, lambda *_: None, RowStore(None))
    yield from result.blocks
    yield replace(result, blocks=[])


def _of_type(found: Result | RowBlock, kind: type[Any]) -> Iterator[Any]:
    # Told apart by type: both come out of one step.
    if isinstance(found, kind):
        yield found


def _total(most: int, parts: Iterable[Result]) -> Result:
    total = Result(most)
    for part in parts:
        total += part
    return total


def _keyed_rows(block: RowBlock, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The rows of a block by key and range of hashes, as one number."""
    step = BUCKETS // buckets
    for key in Key:
        for bucket in range(buckets):
            rows = block.keyed_rows(key, bucket * step, (bucket + 1) * step)
            if len(rows):
                yield key * buckets + bucket, rows.tobytes()


def _duplicates_in(group: tuple[int, Iterable[bytes]], buckets: int, most: int) -> Result:
    number, parts = group
    rows = np.concatenate([np.frombuffer(part, KEYED_ROWS) for part in parts])
    return Result(most, duplicates=duplicates_in(Key(number // buckets), rows, most))


def _looked_up(block: RowBlock, wanted: Wanted, most: int) -> Iterator[Result]:
    facts = look_up([block], wanted)
    if facts:
        yield Result(most, facts=facts)

"""The work of a check, done by Apache Beam.

The same pieces of work as on one machine, split by workers; their small results are combined, and
what only shows when all records are known is grouped by hash: each worker compares the rows of a
range of hashes. Beam is not imported until a pipeline is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.beam.run import PipelineRunner, run_pipeline
from tfod.beam.runners import is_on_this_machine
from tfod.check.compare_records import Examination
from tfod.check.examined import Instructions
from tfod.check.plan import Plan, in_parts
from tfod.check.repeats import Repeats, Wanted, look_up, repeats_in, wanted_rows
from tfod.check.row_blocks import BUCKETS, KEYED_ROWS, Key, RowBlock, RowFacts, RowPlace
from tfod.check.row_store import RowStore
from tfod.check.sources import Location
from tfod.check.tally import Tally, WorkResult
from tfod.check.work import ArchiveWork, HashWork, ShardWork, Work, do_work, number_of, place_of
from tfod.errors import TfodError
from tfod.tfrecord.remote import set_patience

if TYPE_CHECKING:
    import apache_beam as beam

_BYTES_OF_A_BUCKET = 1 << 30  # of shards: some millions of rows at most


@dataclass(frozen=True)
class _Job:
    """What the pipeline is made of.

    Attributes:
        works: what is to be done.
        instructions: the same for all of it.
        part_bytes: large shards are split into parts of about so many bytes.
        buckets: ranges of hashes, each of which is compared by one worker.
        keeps_rows: whether the rows of all records are a part of the result.
    """

    works: list[Work]
    instructions: Instructions
    part_bytes: int
    buckets: int
    keeps_rows: bool


def examine_on_beam(plan: Plan, runner: PipelineRunner) -> Examination:
    """Do all the work.

    Raises:
        TfodError: the pipeline cannot run or has failed, or workers on other machines cannot reach
            what is to be checked.
    """
    most = plan.instructions.max_findings
    works = [_for_workers(work, runner) for work in plan.works]
    job = _Job(
        works + [HashWork(number_of(len(works) + number), _absolute(one))
                 for number, one in enumerate(plan.to_hash)],
        plan.instructions,
        plan.part_bytes,
        _buckets(plan.total_bytes),
        plan.keeps_rows,
    )  # fmt: skip
    found = Examination(Tally(most), Repeats(most), {}, [])
    for element in run_pipeline(partial(_build, job), runner):
        if isinstance(element, Tally):
            found.tally.merge(element)
        elif isinstance(element, Repeats):
            found.repeats.merge(element)
        elif isinstance(element, RowBlock):
            found.blocks.append(element)
        else:
            found.facts.update(element)
    found.blocks.sort(key=lambda block: (block.work, block.shard, block.first))
    return found


def _for_workers(work: Work, runner: PipelineRunner) -> Work:
    """The same by a path that does not depend on the working directory."""
    if isinstance(work, ShardWork):
        location = _reachable(work.shard.location, runner)
        return replace(work, shard=replace(work.shard, location=location))
    if isinstance(work, ArchiveWork):
        return replace(work, archive=_reachable(work.archive, runner))
    return work


def _reachable(location: Location, runner: PipelineRunner) -> Location:
    is_copy = not location.remote and os.path.abspath(location.name) != os.path.abspath(
        location.path
    )
    if is_copy and not is_on_this_machine(runner.name):
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


def _build(job: _Job, pipeline: beam.Pipeline) -> beam.PCollection[Any]:
    import apache_beam as beam

    most = job.instructions.max_findings
    pieces = (
        pipeline
        | "work" >> beam.Create(job.works)
        | "spread work" >> beam.Reshuffle()
        | "split" >> beam.FlatMap(_split, job.part_bytes, job.instructions.patience)
        | "spread parts" >> beam.Reshuffle()
    )
    results, blocks = _examined(pieces, job.instructions)
    tally = (
        results
        | "count" >> beam.Map(_tally_of, most)
        | "combine" >> beam.CombineGlobally(partial(_merged, Tally, most))
    )
    repeats = (
        blocks
        | "key" >> beam.FlatMap(_keyed_rows, job.buckets)
        | "group" >> beam.GroupByKey()
        | "compare" >> beam.Map(_repeats_in, job.buckets, most)
        | "combine repeats" >> beam.CombineGlobally(partial(_merged, Repeats, most))
    )
    wanted = repeats | "name" >> beam.Map(_wanted)
    facts = blocks | "look up" >> beam.FlatMap(_looked_up, beam.pvalue.AsSingleton(wanted))
    found = [tally, repeats, facts] + ([blocks] if job.keeps_rows else [])
    return found | "all" >> beam.Flatten()


def _split(work: Work, part_bytes: int, patience: float) -> Iterator[Work]:
    set_patience(patience)
    return in_parts(work, part_bytes)


def _examined(
    pieces: beam.PCollection[Work], instructions: Instructions
) -> tuple[beam.PCollection[WorkResult], beam.PCollection[RowBlock]]:
    """The results and the rows of all work.

    Where a part is not what the index of its shard says, that part and all behind it are examined
    anew as one.
    """
    import apache_beam as beam

    first = pieces | "examine" >> beam.FlatMap(_examine, instructions)
    unsound = (
        first
        | "unsound" >> beam.Filter(_is_a, ShardWork)
        | "by shard" >> beam.Map(_by_place)
        | "first unsound" >> beam.CombinePerKey(_earliest)
    )
    again = (
        unsound | "rest" >> beam.Values() | "examine rest" >> beam.FlatMap(_examine, instructions)
    )
    kept = first | "sound" >> beam.FlatMap(_sound, beam.pvalue.AsDict(unsound))
    found = (kept, again) | "examined" >> beam.Flatten()
    return (
        found | "results" >> beam.Filter(_is_a, WorkResult),
        found | "rows" >> beam.Filter(_is_a, RowBlock),
    )


def _examine(work: Work, instructions: Instructions) -> Iterator[WorkResult | RowBlock | ShardWork]:
    """The result without its rows, and each block of rows; or what is to be done instead.

    They are told apart by their types, since not every runner knows tagged outputs (DaskRunner).
    """
    result = do_work(work, instructions, _untold, RowStore(None))
    if result.instead is not None:
        yield result.instead
        return
    yield from result.blocks
    yield replace(result, blocks=[])


def _is_a(one: object, kind: type[Any]) -> bool:
    return isinstance(one, kind)


def _untold(_: int, __: int) -> None:
    pass


def _by_place(work: ShardWork) -> tuple[int, ShardWork]:
    return place_of(work.number), work


def _earliest(works: Iterable[ShardWork]) -> ShardWork:
    return min(works, key=lambda work: work.number)


def _sound(
    one: WorkResult | RowBlock | ShardWork, cuts: Mapping[int, ShardWork]
) -> Iterator[WorkResult | RowBlock]:
    """What stands in front of the place where an index is wrong."""
    if not isinstance(one, ShardWork):
        cut = cuts.get(place_of(one.work))
        if cut is None or one.work < cut.number:
            yield one


def _tally_of(result: WorkResult, most: int) -> Tally:
    tally = Tally(most)
    tally.add(result)
    return tally


def _merged(kind: type[Any], most: int, parts: Iterable[Any]) -> Any:
    """A new Tally, or new Repeats, of them all."""
    found = kind(most)
    for part in parts:
        found.merge(part)
    return found


def _keyed_rows(block: RowBlock, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The rows of a block by key and range of hashes, as one number."""
    step = BUCKETS // buckets
    for key in Key:
        for bucket in range(buckets):
            rows = block.keyed_rows(key, bucket * step, (bucket + 1) * step)
            if len(rows):
                yield key * buckets + bucket, rows.tobytes()


def _repeats_in(group: tuple[int, Iterable[bytes]], buckets: int, most: int) -> Repeats:
    number, parts = group
    rows = np.concatenate([np.frombuffer(part, KEYED_ROWS) for part in parts])
    return repeats_in(Key(number // buckets), rows, most)


def _wanted(repeats: Repeats) -> Wanted:
    return wanted_rows(repeats.places())


def _looked_up(block: RowBlock, wanted: Wanted) -> Iterator[dict[RowPlace, RowFacts]]:
    found = look_up([block], wanted)
    if found:
        yield found

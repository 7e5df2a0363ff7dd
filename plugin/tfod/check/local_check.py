"""The work of a check, done by this process, or by several on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain

from tfod.check.compare_records import Examination, examination_of
from tfod.check.hashing import hashing
from tfod.check.plan import Plan, in_parts
from tfod.check.pool import do_all
from tfod.check.row_blocks import RowBlock
from tfod.check.row_store import RowStore
from tfod.check.tally import Tally, WorkResult
from tfod.check.work import Progress, Work, do_work, place_of


def examine_here(plan: Plan, jobs: int, progress: Progress, folder: str | None) -> Examination:
    """Do all the work.

    Args:
        plan: what is to be done.
        jobs: how many processes; small data is left to one, since another takes half a second to
            start.
        progress: told of what was read.
        folder: where rows go that memory is too small for; None to keep all in memory.

    Raises:
        TfodError: a process died, for want of memory mostly, or there is no room for the rows.
    """
    if plan.total_bytes < 2 * plan.part_bytes:
        jobs = 1
    work: Iterable[Work] = plan.works
    if jobs > 1:
        work = chain.from_iterable(in_parts(one, plan.part_bytes) for one in plan.works)
    most = plan.instructions.max_findings
    tally = Tally(most)
    blocks: list[RowBlock] = []
    with hashing(plan.to_hash) as digests:
        results = do_all(work, plan.instructions, jobs, progress, folder)
        for result in _settled(results, plan, progress, folder):
            tally.add(result)
            blocks += result.blocks
        examination = examination_of(tally, blocks, most)
        tally.digests.update(digests())
    return examination


def _settled(
    results: Iterable[WorkResult], plan: Plan, progress: Progress, folder: str | None
) -> Iterator[WorkResult]:
    """The results, in order, with what an unsound index has cut in the wrong places done anew."""
    done = -1
    with closing(RowStore(folder)) as store:
        for result in results:
            if place_of(result.work) == done:
                continue  # of a part behind that one
            if result.instead is not None:
                done = place_of(result.work)
                result = do_work(result.instead, plan.instructions, progress, store)
            yield result

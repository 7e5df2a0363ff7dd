"""Examines all inputs of a check on this machine, in this process or in several."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from tfod.check.duplicates.row_blocks import RowStore
from tfod.check.engine.dataset_checks import find_all_duplicates
from tfod.check.engine.inputs import (
    HashInput,
    Input,
    Progress,
    examine,
    sha256_of,
    total_bytes,
)
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result
from tfod.check.sources.archive_contents import Archives


def examine_here(
    inputs: Sequence[Input],
    instructions: Instructions,
    jobs: int,
    progress: Progress,
    folder: str | None,
    archives: Archives,
) -> Result:
    """Examine all inputs.

    Args:
        inputs: what is to be examined.
        instructions: the same for all of them.
        jobs: how many processes; small data is left to one, since another takes half a second to
            start.
        progress: is given what was read.
        folder: where rows go that memory is too small for; None to keep all in memory.
        archives: opens the zips that this process examines.

    Raises:
        TfodError: a process died, mostly because memory ran out, or the disk is full.
    """
    total = Result(instructions.max_findings, most_duplicates=instructions.most_duplicates)
    to_hash = [one.location for one in inputs if isinstance(one, HashInput)]
    others = [one for one in inputs if not isinstance(one, HashInput)]
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread, closing(RowStore(folder)) as store:
        digests = thread.submit(lambda: {one.name: sha256_of(one, stop) for one in to_hash})
        try:
            if jobs <= 1 or total_bytes(others) < 2 * instructions.part_bytes:
                for one in others:
                    total += examine(one, instructions, progress, store, archives)
            else:
                from tfod.check.engine.pool import examine_in_processes  # its imports take a while

                for result in examine_in_processes(others, instructions, jobs, progress, folder):
                    total += result
            find_all_duplicates(total)
            known = digests.result().items()
            total.digests.update({name: digest for name, digest in known if digest})
        finally:
            stop.set()
    return total

"""The stages of one check, one after the other in this process: ``scale_stages.py FOLDER``.

Prints JSON: of each stage its processor time in seconds, and the highest resident memory meanwhile
in bytes, with all that the stages before it have left behind. The sources are hashed as a stage of
its own, where a check does it in a thread beside the examination.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from measure import forget_peak_memory, peak_memory
from tfod.check import check
from tfod.check.duplicates.row_blocks import FileSpan
from tfod.check.engine import run
from tfod.check.engine.inputs import sha256_of
from tfod.check.records.result import Result
from tfod.check.reporters.json_and_junit import render_json
from tfod.check.sources.search import take_inventory
from tfod.tfrecord.reader import read_record_batches

STAGES = {
    "list": "list the files, find sets and label maps",
    "frame": "(read, and verify the checksums of all records: the examination does it too)",
    "hash": "SHA-256 of the files",
    "sample": "choose the profile, read the label maps",
    "examine": "examine all records, remember rows",
    "compare": "names and images that come again",
    "conclude": "check what all shards have together, make the report",
    "render": "write the report as JSON",
}


costs: dict[str, tuple[float, int]] = {}
"""By stage: seconds, and bytes."""
_begun: list[tuple[str, float]] = []


def _count(name: str, seconds: float) -> None:
    before, memory = costs.get(name, (0.0, 0))
    costs[name] = before + seconds, max(memory, peak_memory())
    forget_peak_memory()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Count what happens to a stage, and not to the one around it."""
    now = time.process_time()
    if _begun:
        _count(_begun[-1][0], now - _begun[-1][1])
    else:
        forget_peak_memory()
    _begun.append((name, now))
    yield
    now = time.process_time()
    _count(name, now - _begun.pop()[1])
    if _begun:
        _begun[-1] = (_begun[-1][0], now)


def staged(name: str, function: str) -> None:
    """Let a function of the check be a stage."""
    module = run if hasattr(run, function) else check
    original = getattr(module, function)

    def wrapper(*arguments: Any, **options: Any) -> Any:
        with stage(name):
            return original(*arguments, **options)

    setattr(module, function, wrapper)


def main() -> None:
    with stage("list"):
        listing = take_inventory(sys.argv[1:])
        inventory = listing.__enter__()
    with stage("frame"):
        for shard in inventory.shards:
            for _ in read_record_batches(shard.location.path):
                pass
    with stage("hash"):
        for location in inventory.locations:
            sha256_of(location)
    for name, function in (
        ("sample", "choose_decoding"),
        ("sample", "profile_of"),
        ("examine", "examine"),
        ("compare", "find_all_duplicates"),
    ):
        staged(name, function)
    sizes = {"row_bytes": 0, "spilled": 0}
    check_together = check.check_together

    def weigh(result: Result, *arguments: Any, **options: Any) -> None:
        for block in result.blocks:
            sizes["row_bytes"] += sum(block.lengths)
            sizes["spilled"] += block.data.length if isinstance(block.data, FileSpan) else 0
        check_together(result, *arguments, **options)

    check.check_together = weigh
    with stage("conclude"):
        report = check.check(inventory, check.Options(hash_sources=False))
    with stage("render"):
        render_json(report)
    assert report.valid
    print(json.dumps({"costs": costs, **sizes}))


if __name__ == "__main__":
    main()

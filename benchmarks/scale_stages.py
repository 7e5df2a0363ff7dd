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
from pathlib import Path

from measure import forget_peak_memory, peak_memory
from tfod.check import check, local_check
from tfod.check.compare_records import examination_of
from tfod.check.conclusion import conclude
from tfod.check.datasets import Dataset
from tfod.check.decoding import choose_decoding
from tfod.check.hashing import sha256_of
from tfod.check.receivers import ANY
from tfod.check.reporters import render_json
from tfod.check.row_store import scratch_folder
from tfod.check.sources import take_inventory
from tfod.tfrecord.records import read_record_batches

STAGES = {
    "list": "list the files, find sets and label maps",
    "frame": "(read, and verify the checksums of all records: the examination does it too)",
    "hash": "SHA-256 of the files",
    "sample": "choose the profile, read the label maps",
    "examine": "examine all records, remember rows",
    "compare": "names and images that come again",
    "conclude": "judge what all shards have together, make the report",
    "render": "write the report as JSON",
}


def main() -> None:
    costs: dict[str, tuple[float, int]] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        forget_peak_memory()
        begin = time.process_time()
        yield
        costs[name] = (time.process_time() - begin, peak_memory())

    # What the examination hands on to the comparison is kept, to measure them apart.
    local_check.examination_of = lambda *found: found
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
    with stage("sample"):
        began, options = time.monotonic(), check.Options(hash_sources=False)
        decoding = choose_decoding(
            options.decode,
            inventory,
            max_record_bytes=options.max_record_bytes,
            limits=options.archive_limits,
        )
        run = check._Run(options, ANY, Dataset("", inventory), decoding)
    with scratch_folder() as folder:
        with stage("examine"):
            found = run.examine(lambda *_: None, folder)
        with stage("compare"):
            examination = examination_of(*found)
        row_bytes = sum(sum(block.lengths) for block in examination.blocks)
        spilled = sum(path.stat().st_size for path in Path(folder).iterdir())
    with stage("conclude"):
        judged = [run.judge(examination)]
        report = conclude(judged, receiver=ANY.name, fail_on=options.fail_on, began=began)
    with stage("render"):
        render_json(report)
    assert report.valid
    print(json.dumps({"costs": costs, "row_bytes": row_bytes, "spilled": spilled}))


if __name__ == "__main__":
    main()

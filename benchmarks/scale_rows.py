"""The tables of scale: one function a section."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from scale_data import write_shards
from scale_measure import Cost, in_turn, run_tfod
from scale_sizes import Dataset, ScaleSizes

_SMALL = Dataset(1, 1)
_FLAT = 1.10
_LEAST_JUDGED = 10_000
"""Of fewer records the start's own noise is more than what is checked."""
_MOST_SECONDS, _MOST_BYTES = 4e-6, 120e6
_SEVERAL = 1_000_000


class Scale:
    """What the sections share: the data, which is made when it is needed, and the verdicts."""

    def __init__(self, folder: Path, sizes: ScaleSizes) -> None:
        self._folder = folder
        self.sizes = sizes
        self.missed = 0
        self._bytes: dict[str, int] = {}

    def folder_of(self, data: Dataset) -> Path:
        """The folder of these shards."""
        name = f"{data.records}-{data.shards}"
        if name not in self._bytes:
            self._bytes[name] = write_shards(self._folder / name, data.records, data.shards)
        return self._folder / name

    def bytes_of(self, data: Dataset) -> int:
        """How large they are together."""
        return self._bytes[self.folder_of(data).name]

    def forget(self) -> None:
        """Remove all data."""
        for name in self._bytes:
            shutil.rmtree(self._folder / name)
        self._bytes.clear()

    def repeats(self, data: Dataset) -> int:
        """How many rounds: more of small data, whose cost is little beside the start."""
        if data.records > _SEVERAL:
            return 1
        return self.sizes.repeats * (1 if data.records > 100_000 else 3)

    def verdict(self, what: str, met: bool) -> str:
        """A target, met or missed, as a line of a list."""
        self.missed += not met
        return f"- {what}: {'met' if met else '**missed**'}"

    def check(self, data: Dataset, jobs: int) -> Cost:
        """Check these shards."""
        return run_tfod("check", str(self.folder_of(data)), "--jobs", str(jobs))


def shard_rows(scale: Scale) -> Iterator[str]:
    """The same records in more and more shards."""
    sizes = scale.sizes
    cases = [Dataset(sizes.records_in_shards, shards) for shards in sizes.shards]
    yield f"{sizes.records_in_shards:,} records, {_size(scale.bytes_of(cases[0]))}:"
    yield ""
    yield from _growth(scale, cases, "shards", lambda data: f"{data.shards:,}")
    scale.forget()


def record_rows(scale: Scale) -> Iterator[str]:
    """More and more records in the same number of shards."""
    sizes = scale.sizes
    cases = [Dataset(records, sizes.shards_of_records) for records in sizes.records]
    yield f"{sizes.shards_of_records} shards, up to {_size(scale.bytes_of(cases[-1]))}:"
    yield ""
    yield from _growth(scale, cases, "records", lambda data: f"{data.records:,}")
    scale.forget()


def _growth(
    scale: Scale, cases: Sequence[Dataset], what: str, shown: Callable[[Dataset], str]
) -> Iterator[str]:
    """A row for each case, and whether cost and memory stay as they are."""
    single = in_turn([_SMALL, *cases], lambda data: scale.check(data, 1), scale.repeats)
    double = {data: scale.check(data, 2) for data in cases}
    start = single.pop(_SMALL)
    yield f"| {what} | time | processor, a record | peak | 2 processes: time | peak of all |"
    yield "|---:|---:|---:|---:|---:|---:|"
    per_record: dict[Dataset, float] = {}
    for data, cost in single.items():
        per_record[data] = (cost.cpu_seconds - start.cpu_seconds) / data.records
        yield (
            f"| {shown(data)} | {cost.seconds:.1f} s | {per_record[data] * 1e6:.1f} µs "
            f"| {_megabytes(cost.peak_bytes)} | {double[data].seconds:.1f} s "
            f"| {_megabytes(double[data].peak_bytes)} |"
        )
    yield ""
    yield (
        f"- The start, {start.seconds:.2f} s with {start.cpu_seconds:.2f} s of processor and "
        f"{_megabytes(start.peak_bytes)}, is what the check of one record costs; it is not in "
        "the cost of a record."
    )
    checked = [cost for data, cost in per_record.items() if data.records >= _LEAST_JUDGED]
    ratio = max(checked) / min(checked)
    yield scale.verdict(
        f"From {min(checked) * 1e6:.1f} to {max(checked) * 1e6:.1f} µs a record is "
        f"{ratio - 1:.0%} apart; flat to {_FLAT - 1:.0%}",
        ratio <= _FLAT,
    )
    yield scale.verdict(
        f"At most {_MOST_SECONDS * 1e6:g} µs a record", max(checked) <= _MOST_SECONDS
    )
    peak = max(cost.peak_bytes for cost in single.values())
    yield scale.verdict(
        f"{_megabytes(peak)} of memory; at most {_megabytes(_MOST_BYTES)}", peak <= _MOST_BYTES
    )


def _size(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


SECTIONS: Mapping[str, Callable[[Scale], Iterator[str]]] = {
    "shards": shard_rows,
    "records": record_rows,
}

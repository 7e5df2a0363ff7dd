"""What a check of Open Images would take, from rates that were measured on one worker."""

from __future__ import annotations

import math
from dataclasses import dataclass

IMAGES = 1_900_000
BYTES = 557e9
SHARDS = 2800
NETWORK = 100e6
"""Bytes a second that one worker gets from a bucket: assumed, not measured."""
WORKERS = (1, 16, 256)


@dataclass(frozen=True)
class Rates:
    """What one core does.

    Attributes:
        check: bytes a second with SHA-256 of the files; checking without decoding.
        decode: likewise with --decode all.
        start: seconds before a worker reads its first byte.
        compare: seconds for names and images that come again, a record; one worker does it.
        row_bytes: what is remembered of a record.
    """

    check: float
    decode: float
    start: float
    compare: float
    row_bytes: float


def estimate_lines(rates: Rates) -> list[str]:
    """The arithmetic, and a table of hours and minutes for each number of workers."""
    per_shard = BYTES / SHARDS
    lines = [
        f"- a shard: 557 GB / 2,800 = {per_shard / 1e6:.0f} MB, "
        f"{IMAGES / SHARDS:.0f} images of {BYTES / IMAGES / 1e3:.0f} kB",
        f"- over the network: {per_shard / 1e6:.0f} MB / {NETWORK / 1e6:.0f} MB/s = "
        f"**{per_shard / NETWORK:.2f} s** a shard (assumed)",
        f"- the check, one core: {per_shard / 1e6:.0f} MB / {rates.check / 1e6:.0f} MB/s = "
        f"**{per_shard / rates.check:.2f} s** a shard; with `--decode all` "
        f"{per_shard / 1e6:.0f} MB / {rates.decode / 1e6:.0f} MB/s = "
        f"**{per_shard / rates.decode:.2f} s** (measured)",
        "- a shard is read ahead in a thread, so the slower of the two counts: "
        f"**{_shard_seconds(rates.check):.2f} s**, with `--decode all` "
        f"**{_shard_seconds(rates.decode):.2f} s**",
        f"- what comes again: 1,900,000 x {rates.compare * 1e6:.2f} µs = "
        f"{IMAGES * rates.compare:.1f} s, by one worker, of "
        f"1,900,000 x {rates.row_bytes:.0f} bytes = {IMAGES * rates.row_bytes / 1e6:.0f} MB",
        f"- start of a worker: {rates.start:.1f} s; the start of its machine is not in here",
        "",
        "| workers of one core | shards of the busiest | read and check | with `--decode all` |",
        "|---:|---:|---:|---:|",
    ]
    for workers in WORKERS:
        shards = math.ceil(SHARDS / workers)
        plain, decoded = (_total(rates, workers, rate) for rate in (rates.check, rates.decode))
        lines.append(f"| {workers} | {shards:,} | {_time(plain)} | {_time(decoded)} |")
    return lines


def _shard_seconds(rate: float) -> float:
    """A shard's reading and checking go on at the same time."""
    return BYTES / SHARDS / min(rate, NETWORK)


def _total(rates: Rates, workers: int, rate: float) -> float:
    """The busiest worker's shards, then the comparison of all records."""
    shards = math.ceil(SHARDS / workers) * _shard_seconds(rate)
    return rates.start + shards + IMAGES * rates.compare


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"

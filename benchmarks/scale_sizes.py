"""How much the table of scale measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """Shards that are checked."""

    records: int
    shards: int


@dataclass(frozen=True)
class ScaleSizes:
    """What is measured.

    Attributes:
        shards: so many shards in turn.
        records_in_shards: records that these have together.
        records: so many records in turn.
        shards_of_records: in so many shards.
        repeats: rounds; small data gets three times as many, millions of records get one.
    """

    shards: tuple[int, ...]
    records_in_shards: int
    records: tuple[int, ...]
    shards_of_records: int
    repeats: int


FULL = ScaleSizes(
    shards=(1, 10, 100, 1000, 2000),
    records_in_shards=1_000_000,
    records=(1000, 10_000, 100_000, 1_000_000, 10_000_000),
    shards_of_records=10,
    repeats=3,
)
QUICK = ScaleSizes(
    shards=(1, 10, 200),
    records_in_shards=100_000,
    records=(1000, 10_000, 100_000),
    shards_of_records=10,
    repeats=1,
)

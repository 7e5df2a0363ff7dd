"""When a repair would do more harm than good: too many boxes moved, too much removed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

from tfod.check.findings.finding import plural
from tfod.check.records.column_order import MOST_SLIPS, BoxColumns, is_many
from tfod.shards.repair.record import Changes
from tfod.shards.repair.shard import ShardRepair

_CLIPPED = frozenset({"BOX003", "BOX004"})
# Repairs that give a box other coordinates, which is right where it is a slip of that box.
_ONE_BY_ONE = _CLIPPED | {"BOX006"}


def why_refused(
    source: str,
    repairs: Sequence[ShardRepair],
    changes: Changes,
    codes: frozenset[str],
    most: float,
) -> Iterator[str]:
    """Reasons against the repairs of all shards of a source; none where they may be published.

    ``codes`` are those that were to be repaired, ``most`` is the largest share of the objects or of
    the records that may be removed.
    """
    slips = _why_not_one_by_one(source, repairs, codes)
    if slips:
        yield slips
    # A set without its objects or its records is valid, and useless. Of a record that is there
    # twice nothing is lost; damaged ones were never read.
    objects = sum(one.objects for one in repairs)
    records = changes.records_dropped - sum(one.duplicates for one in repairs)
    all_records = changes.records_dropped + sum(one.written for one in repairs)
    if changes.objects_dropped > most * objects:
        yield _too_many(changes.objects_dropped, objects, "object", most)
    elif is_many(records, all_records, most):
        yield _too_many(records, all_records, "record", most)


def _too_many(dropped: int, of: int, what: str, most: float) -> str:
    share = math.ceil(100 * dropped / of)
    return (
        f"{dropped:,} of {plural(of, what)} ({share} %) would be removed, more than "
        f"{most * 100:.0f} %; look at them with --dry-run, then pass "
        f"--max-dropped {share} to remove them"
    )


def _why_not_one_by_one(
    source: str, repairs: Sequence[ShardRepair], codes: frozenset[str]
) -> str | None:
    """Of each shard and each set, and of all together: a shard or a set may have few boxes."""
    whole = reduce(add, (one.columns for one in repairs), BoxColumns())
    columns: dict[str, BoxColumns] = {}
    for one in repairs:
        subset = f"{source}, {one.shard.subset}"
        columns[subset] = columns.get(subset, BoxColumns()) + one.columns
    # Of few boxes in one of many shards it is the whole that tells.
    parts = [*((one.shard.name, one.columns) for one in repairs), *columns.items()]
    parts = [one for one in parts if one[1].improper > MOST_SLIPS or one[1] == whole]
    found = []
    for where, boxes in (*parts, (source, whole)):
        why = _why_not_slips(boxes, codes)
        if why is not None:
            found.append((bool(boxes.candidates), boxes.boxes, f"{where}: {why}"))
    # One that names the order of the columns says more, and the most boxes say it best.
    return max(found, key=lambda one: one[:2])[2] if found else None


def _why_not_slips(columns: BoxColumns, codes: frozenset[str]) -> str | None:
    """Why boxes are not to be repaired one by one; None where they may be."""
    orders = [str(order) for order in columns.candidates]
    if orders and codes & _ONE_BY_ONE:
        return (
            f"{columns.improper:,} of {columns.boxes:,} boxes are inverted or far outside, and "
            f"none is with other columns: pass {' or '.join(orders)}, and look at the result with "
            f"tfod show; or pass --skip {_listed(codes & _ONE_BY_ONE)} to leave them"
        )
    if is_many(columns.inverted, columns.boxes) and "BOX006" in codes:
        return (
            f"{columns.inverted:,} of {columns.boxes:,} boxes are inverted, which are too many for "
            "slips of single boxes; correct the script that wrote them, pass --columns if you know "
            "which of their columns it mixed up, or --skip BOX006 to leave them"
        )
    if is_many(columns.outside, columns.boxes) and codes & _CLIPPED:
        return (
            f"{columns.outside:,} of {columns.boxes:,} boxes are far outside the image, which are "
            "too many for slips of single boxes; correct the script that wrote them, or pass "
            f"--skip {_listed(codes & _CLIPPED)} to leave them"
        )
    return None


def _listed(codes: frozenset[str]) -> str:
    return ",".join(sorted(codes))

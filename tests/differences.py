"""The differences between two datasets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfod.formats.options import OddBoxes, Options
from tfod.shards.diff import Diff, read_side


def diff(a: str | Path, b: str | Path, **options: Any) -> Diff:
    """Compare two datasets with their masks and all their boxes."""
    read = Options(odd_boxes=OddBoxes.KEEP, masks=True)
    return Diff(read_side(str(a), read), read_side(str(b), read), **options)


def counts(found: Diff) -> Mapping[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in found.counts.items() if count}

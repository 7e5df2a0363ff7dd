"""Progress bars, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], object]
"""Told how much was done since the last time."""


@contextmanager
def progress_bar(description: str, total: int | None, unit: str) -> Iterator[Advance]:
    """A bar on standard error if that is a terminal, and tqdm is there.

    Args:
        description: what is being done.
        total: how much there is to do, if that is known.
        unit: of what; ``B`` for bytes, ``%`` for a share.
    """
    options = bar_options()
    if options is None:
        yield _ignore
        return
    from tqdm import tqdm

    if unit == "%":
        options["bar_format"] = "{desc}: {percentage:.0f}% |{bar}| {elapsed}"
    scale = unit == "B"
    with tqdm(total=total, desc=description, unit=unit, unit_scale=scale, **options) as bar:
        yield bar.update


def bar_options() -> dict[str, Any] | None:
    """How our bars look; None where there is to be none."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return None
    return {"file": sys.stderr, "leave": False, "dynamic_ncols": True}


def _ignore(_: int) -> None:
    pass

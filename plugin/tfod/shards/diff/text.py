"""What differs, as text for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from tfod.check.findings.finding import plural
from tfod.check.reporters.escaping import escape_json, in_columns, visible
from tfod.shards.diff.result import Diff, counted, ordered

_MOST_ROWS = 20


def render_json(found: Diff) -> str:
    """Write it as JSON, to be saved as UTF-8."""
    document = json.dumps(found.to_json(), ensure_ascii=False, allow_nan=False, indent=1)
    return escape_json(document) + "\n"


def render_text(found: Diff) -> str:
    """Write it as text: the verdict, figures by subset and class, and the listed differences."""
    return "".join(f"{visible(line)}\n" for line in _lines(found))


def _lines(found: Diff) -> Iterator[str]:
    verdict = "EQUAL" if found.is_equal else "DIFFERENT"
    yield f"{verdict}: {found.totals or 'no differences'}"
    for letter, side in (("A", found.a), ("B", found.b)):
        amounts = f"{plural(len(side.names), 'record')}, {plural(len(side.boxes), 'box')}"
        yield f"{letter}: {side.path} ({side.format}): {amounts}"
    for table in found.tables if found.counts else ():
        yield ""
        yield from _set(table)
    if found.values:
        counts = (f"{name} ({count:,})" for name, count in sorted(found.values.items()))
        yield ""
        yield f"Values changed: {', '.join(counts)}"
    for (subset, image), some in groupby(found.listed, lambda one: (one.subset, one.image)):
        yield ""
        yield f"{subset}: {image}" if image else "classes"
        yield from (f"  {one}" for one in some)
    left = Counter(found.counts)
    left.subtract(one.change for one in found.listed)
    rest = ", ".join(counted(change, count) for change, count in ordered(left))
    if rest:
        yield ""
        yield f"Not listed: {rest} (see --max-differences)"
    if found.notes:
        yield ""
        yield from (f"Note: {note}" for note in found.notes)


def _set(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Set a table in columns, numbers to the right; of many rows only those with differences."""
    head, *rows = [[visible(cell) for cell in row] for row in table]
    if len(rows) > _MOST_ROWS:
        own = 3 if "records" in head else 2
        differing = [row for row in rows if any(row[own:]) or any("→" in one for one in row)]
        rows = differing[:_MOST_ROWS]
    yield from in_columns([head, *rows])
    left = len(table) - 1 - len(rows)
    if left:
        yield f"and {plural(left, 'row')} more"

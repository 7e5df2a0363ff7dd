"""What a repair has done: every change as JSON, and a text of what was changed and what is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfod.check.findings.finding import Finding, Place, Severity, plural
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.text import group_lines
from tfod.check.reporters.wording import group_findings, place_of
from tfod.check.rules.registry import all_rules
from tfod.shards.repair.record import Change
from tfod.shards.repair.run import Outcome

REPORT_VERSION = 2
_SHOWN = 3


class JsonReport:
    """Writes each change as it is made, a line of JSON, and the outcome last: one JSON object."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._separator = "\n"
        write(f'{{"repair_report_version": {REPORT_VERSION},\n"changes": [')

    def add(self, change: str) -> None:
        """Write a change."""
        self._write(f"{self._separator}{change}")
        self._separator = ",\n"

    def end(self, outcome: Outcome) -> None:
        """Write the rest."""
        rest: dict[str, Any] = {
            "source": outcome.source,
            "output": outcome.output,
            "counts": {
                "shards": outcome.shards,
                "records_read": outcome.records,
                "records_written": outcome.written,
                "records_changed": outcome.changes.records_changed,
                "records_dropped": outcome.changes.records_dropped,
                "by_code": dict(sorted(outcome.changes.by_code.items())),
            },
            "label_maps": list(outcome.label_maps),
            "remaining": outcome.remaining.to_json(),
        }
        self._write(f"\n],\n{json.dumps(rest, ensure_ascii=True, indent=1)[2:]}\n")


def render_text(outcome: Outcome) -> str:
    """What was changed, by rule, and what is left to decide."""
    return "\n".join(_lines(outcome)) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    changes = outcome.changes
    total = sum(changes.by_code.values())
    verb = "would be made" if outcome.output is None else "made"
    if not total:
        yield "Nothing to repair."
    else:
        yield (
            f"{plural(total, 'change')} {verb}: {plural(changes.records_changed, 'record')} "
            f"changed, {changes.records_dropped:,} dropped"
        )
    yield (
        f"{plural(outcome.shards, 'shard')}, {plural(outcome.records, 'record')} read, "
        f"{outcome.written:,} {'written to ' + outcome.output if outcome.output else 'left'}"
    )
    for code, rule in all_rules().items():
        if count := changes.by_code[code]:
            yield f"\n{code} fixed: {rule.title}" + (f" ({count:,})" if count > 1 else "")
            yield from _examples(changes.listed[code][:_SHOWN], count)
    if outcome.remaining.valid:
        yield "\nNothing is left to decide."
        return
    yield "\nLeft for you to decide, by the record numbers of the result:"
    for group in group_findings(outcome.remaining):
        if group.severity is not Severity.INFO:
            yield from group_lines(group, color=False)


def _examples(listed: Sequence[tuple[Place, Change]], count: int) -> Iterator[str]:
    for place, change in listed:
        yield f"  {place_of(Finding(change.what).at(place))}:"
        yield f"    {visible(change.what)}"
    if count > len(listed):
        yield f"  and {count - len(listed):,} more"

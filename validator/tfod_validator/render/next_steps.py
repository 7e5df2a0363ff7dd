"""What somebody does next who has read the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tfod_validator.finding import Finding, Severity
from tfod_validator.receivers import ANY, CVAT
from tfod_validator.render.visible import visible
from tfod_validator.repair.table import REPAIRED
from tfod_validator.report import Report


@dataclass(frozen=True)
class Step:
    """A sentence, and a command that does it."""

    text: str
    command: str = ""


def next_steps(report: Report) -> list[Step]:
    """What to do next, first things first."""
    return list(_after_valid(report) if report.valid else _after_invalid(report))


def _after_valid(report: Report) -> Iterator[Step]:
    if report.receiver == CVAT.name:
        yield Step(
            "In CVAT open the menu of the task or job, choose Upload annotations, then "
            "TFRecord 1.0 and this file."
        )
    elif report.receiver == ANY.name:
        yield Step("It is fit to be read. To know whether CVAT takes it, check it for CVAT.")
    else:
        yield Step("Train on it: point the trainer at the shards and at their label map.")
    if report.counts.by_severity.get(Severity.WARNING):
        yield Step("Look at the warnings below; they stop nobody, but may not be what you want.")


def _after_invalid(report: Report) -> Iterator[Step]:
    failing = [one for one in report.findings if one.severity.rank >= report.fail_on.rank]
    kinds = {one.code: one for one in failing}
    if len({one.remedy for one in failing}) == 1:
        yield Step(failing[0].remedy)
        if not kinds.keys() & REPAIRED:
            return
    counts = {code: report.counts.by_code.get(code, 0) for code in kinds}
    total = sum(counts.values())
    repaired = sum(count for code, count in counts.items() if code in REPAIRED)
    if repaired:
        which = "all of this" if repaired == total else f"up to {repaired:,} of the {total:,}"
        yield Step(
            f"Repair a copy: tfod can fix {which} without guessing, and says what it changed.",
            _repair(report, [one for one in failing if one.code in REPAIRED]),
        )
    if len({one.remedy for one in failing}) != 1 and repaired < total:
        which = "the others" if repaired else "these"
        yield Step(
            f"Fix {which} where the images were annotated, then export again and check again."
        )


def _repair(report: Report, findings: list[Finding]) -> str:
    """The command for the first file with findings; those of a zip's shards begin with its name."""
    names = [one.name for one in report.sources]
    hit = (name for name in names for one in findings if one.shard.startswith(name))
    name = next(hit, names[0] if names else ".")
    return f"tfod repair {shlex.quote(visible(name))} -o repaired"

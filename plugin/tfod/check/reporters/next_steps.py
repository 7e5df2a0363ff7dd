"""What somebody does next who has read the verdict."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tfod.check.findings.finding import Severity, plural
from tfod.check.findings.report import Report
from tfod.check.receivers import ANY, CVAT
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.wording import is_to_be_zipped
from tfod.check.rules.repairs import REPAIRED_WHOLLY, REPAIRS

_MOST_STEPS = 3
_LOST_WITH_OTHERS = frozenset({"TFR003", "TFR005", "TFR007", "TFR011"})
"""Rules whose repair leaves out what cannot be read, however many records that were."""
_LOST = _LOST_WITH_OTHERS | {"TFR004", "TFR009", "EXA001"}
"""Rules whose repair leaves records out."""


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
        what = "this file"
        if is_to_be_zipped(report):
            what = "a zip of these shards and their label map (label_map.pbtxt)"
        yield Step(
            "In CVAT open the menu of the task or job, choose Upload annotations, then "
            f"TFRecord 1.0 and {what}."
        )
    elif report.receiver == ANY.name:
        yield Step("It can be read. Who takes it, and who does not, is below.")
    else:
        yield Step("Train on it: point the trainer at the shards and at their label map.")
    if any(one.severity is Severity.WARNING for one in report.findings):
        yield Step("Look at the warnings; they stop nothing, but may not be what you want.")


def _after_invalid(report: Report) -> Iterator[Step]:
    failing = [one for one in report.findings if one.severity.rank >= report.fail_on.rank]
    counts = {one.code: report.counts.by_code.get(one.code, 0) for one in failing}
    fixes = {one.code: one.fix for one in reversed(failing)}
    is_one = len({one.fix for one in failing}) == 1
    # No annotation tool can fix what is about files as a whole.
    of_files = [one for one in counts if one[:3] in ("ZIP", "TFR", "SET", "CFG") or one == "EXA010"]
    for code in list(fixes)[:1] if is_one else of_files[:_MOST_STEPS]:
        yield Step(fixes[code])
    repairs = list(_repairs(report, counts.keys()))
    for number, one in enumerate(repairs[:_MOST_STEPS]):
        yield one.step(number, len(repairs))
    repaired = sum(sum(one.repaired.values()) for one in repairs)
    listed = sum(counts[code] for code in of_files if code not in REPAIRS)
    if not is_one and repaired + listed < sum(counts.values()):
        which = "the others" if repaired or of_files else "these"
        yield Step(
            f"Fix {which} where the images were annotated, then export again and check again."
        )


@dataclass(frozen=True)
class _Repair:
    """What ``tfod repair`` does for a file or folder.

    Attributes:
        total, repaired: how many findings in it fail, and how many are repaired, by code.
        receiver: for whom it numbers images, if it has to.
    """

    name: str
    total: int
    repaired: Mapping[str, int]
    receiver: str = ""

    def step(self, number: int, of: int) -> Step:
        """As one of several steps."""
        what = f"{visible(self.name)}: " if of > 1 else ""
        output = f"repaired-{number + 1}" if number else "repaired"
        options = f" --for {self.receiver}" if self.receiver else ""
        more = of - _MOST_STEPS if number == _MOST_STEPS - 1 else 0
        return Step(
            what + self._text() + (f" Likewise for {more:,} more." if more > 0 else ""),
            f"tfod repair {shlex.quote(visible(self.name))} {output}{options}",
        )

    def _text(self) -> str:
        lost = sum(count for code, count in self.repaired.items() if code in _LOST)
        fixed = sum(self.repaired.values()) - lost
        which = f"up to {fixed:,} of the {self.total:,} without guessing"
        if fixed == self.total:
            is_sure = self.repaired.keys() <= REPAIRED_WHOLLY.keys()
            which = "all of this without guessing" if is_sure else "this where it need not guess"
        parts = [f"can fix {which}"] if fixed else []
        if lost:
            least = "at least " if self.repaired.keys() & _LOST_WITH_OTHERS else ""
            parts.append(f"leaves out {least}{plural(lost, 'damaged record')}")
        parts.append("and says what it changed")
        return f"Repair a copy: tfod {', '.join(parts)}."


def _repairs(report: Report, failing: Set[str]) -> Iterator[_Repair]:
    """What can be repaired: for each dataset, or where it is not a folder, each of its files."""
    counts_of = _counts_of_sources(report, failing)
    for dataset in report.datasets:
        found = {name: counts_of.get(name, Counter[str]()) for name in dataset.sources}
        hit = [name for name, counts in found.items() if counts.keys() & REPAIRS]
        folder = "" if dataset.name == "." else f"{dataset.name.rstrip('/')}/"
        together = len(hit) > 1 and all(name.startswith(folder) for name in hit)
        parts = {dataset.name: hit} if together else {name: [name] for name in hit}
        for name, sources in parts.items():
            counts = sum((found[one] for one in sources), Counter[str]())
            repaired = {code: count for code, count in counts.items() if code in REPAIRS}
            receiver = report.receiver if repaired.keys() & {"NAM010", "NAM011"} else ""
            yield _Repair(name, counts.total(), repaired, receiver)


def _counts_of_sources(report: Report, failing: Set[str]) -> dict[str, Counter[str]]:
    """What fails in each file, by code; a zip's shards begin with its name."""
    found: dict[str, Counter[str]] = {}
    for shard, counts in report.counts.by_shard.items():
        total = found.setdefault(report.source_of(shard), Counter())
        total.update({code: count for code, count in counts.items() if code in failing})
    return found

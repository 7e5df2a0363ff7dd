"""What somebody does next who has read the verdict."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tfod.check.findings.finding import Severity, plural
from tfod.check.findings.report import DatasetReport, Report
from tfod.check.receivers import ANY, CVAT
from tfod.check.records.column_order import MOST_SLIPS, is_many
from tfod.check.reporters.escaping import visible
from tfod.check.rules.repairs import MAX_DROPPED, REPAIRED_WHOLLY, REPAIRS

_MOST_STEPS = 3
_OPTION = re.compile(r"--(?:pixel-)?columns=[a-z=,]*[a-z]")
_LOST_WITH_OTHERS = frozenset({"TFR003", "TFR005", "TFR007", "TFR011"})
"""Rules whose repair leaves out what cannot be read, however many records that were."""
_LOST = _LOST_WITH_OTHERS | {"TFR004", "TFR009", "EXA001"}
"""Rules whose repair leaves records out."""
_WITHOUT_OBJECTS = frozenset({"BOX002", "BOX007", "BOX009"})
"""Rules whose repair removes objects."""


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
    repairs = [one for one in _repairs(report, counts.keys()) if one.repaired]
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
        columns: the options of an order of columns, where that is what is to be repaired.
        inverted: whether it has more inverted boxes than a repair takes for slips.
        receiver: for whom it numbers images, if it has to.
        removes_much: whether a repair refuses without ``--max-dropped``, so much is left out.
    """

    name: str
    total: int
    repaired: Mapping[str, int]
    columns: Sequence[str] = ()
    inverted: bool = False
    receiver: str = ""
    removes_much: bool = False

    def step(self, number: int, of: int) -> Step:
        """As one of several steps."""
        what = f"{visible(self.name)}: " if of > 1 else ""
        output = f"-o repaired-{number + 1}" if number else "-o repaired"
        output = "--dry-run" if self.removes_much else output
        options = "".join(f" {one}" for one in self.columns[:1]) + " --skip BOX006" * self.inverted
        options += f" --for {self.receiver}" if self.receiver else ""
        more = of - _MOST_STEPS if number == _MOST_STEPS - 1 else 0
        return Step(
            what + self._text() + (f" Likewise for {more:,} more." if more > 0 else ""),
            f"tfod repair {shlex.quote(visible(self.name))} {output}{options}",
        )

    def _text(self) -> str:
        if self.columns:
            others = f"; {' or '.join(self.columns[1:])} fits as well" if self.columns[1:] else ""
            return (
                "The columns of the boxes look mixed up: repair a copy with them in this order, "
                f"and look at the boxes with tfod show{others}."
            )
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
        look = " That is a large share: look first at what would be left out."
        return f"Repair a copy: tfod {', '.join(parts)}.{look * self.removes_much}"


def _repairs(report: Report, failing: Set[str]) -> Iterator[_Repair]:
    """What can be repaired: for each dataset, or where it is not a folder, each of its files."""
    shards = _shards_of_sources(report)
    for dataset in report.datasets:
        found = {name: _total(shards.get(name, {}).values(), failing) for name in dataset.sources}
        hit = [name for name, counts in found.items() if counts.keys() & REPAIRS]
        folder = "" if dataset.name == "." else f"{dataset.name.rstrip('/')}/"
        together = len(hit) > 1 and all(name.startswith(folder) for name in hit)
        in_hit = {shard for name in hit for shard in shards[name]}
        options = _columns(report, dataset, in_hit) if "BOX013" in failing else None
        parts = {dataset.name: hit} if together else {name: [name] for name in hit}
        for name, sources in parts.items():
            counts = sum((found[one] for one in sources), Counter[str]())
            if options is not None:
                if options:
                    yield _Repair(name, counts.total(), counts, options)
                continue
            repaired = {code: count for code, count in counts.items() if code in REPAIRS}
            of = dataset.sources if together else sources
            parts_of = [part for source in of for part in shards.get(source, {}).values()]
            inverted = _has_many_inverted(dataset, [one.get("BOX006", 0) for one in parts_of])
            if inverted:
                repaired.pop("BOX006", None)
            lost = sum(repaired.get(code, 0) for code in _LOST)  # which are not read, nor counted
            objects = sum(repaired.get(code, 0) for code in _WITHOUT_OBJECTS)
            yield _Repair(
                name,
                counts.total(),
                repaired,
                inverted=inverted,
                receiver=report.receiver if repaired.keys() & {"NAM010", "NAM011"} else "",
                removes_much=lost > MAX_DROPPED * (dataset.counts.records + lost)
                or objects > MAX_DROPPED * dataset.counts.boxes,
            )


def _shards_of_sources(report: Report) -> dict[str, dict[str, Mapping[str, int]]]:
    """The findings by code of each shard of each file; a zip's shards begin with its name."""
    found: dict[str, dict[str, Mapping[str, int]]] = {}
    for shard, counts in report.counts.by_shard.items():
        found.setdefault(report.source_of(shard), {})[shard] = counts
    return found


def _total(shards: Iterable[Mapping[str, int]], failing: Set[str]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in shards:
        total.update({code: count for code, count in counts.items() if code in failing})
    return total


def _columns(report: Report, dataset: DatasetReport, shards: Set[str]) -> Sequence[str] | None:
    """The options that BOX013 names; empty where they are not those of all shards, None without."""
    options = [
        tuple(_OPTION.findall(one.message))
        for one in report.findings
        if one.code == "BOX013" and one.shard in shards
    ]
    if not options:
        return None
    same = len(options) == dataset.counts.shards and len(set(options)) == 1
    return options[0] if same else ()


def _has_many_inverted(dataset: DatasetReport, counts: Sequence[int]) -> bool:
    """Whether ``tfod repair`` may refuse them: too many of a shard, or of all, to be slips."""
    # How many boxes a shard of several has is not in the report.
    several = dataset.counts.shards != 1
    return (several and max(counts, default=0) > MOST_SLIPS) or is_many(
        sum(counts), dataset.counts.boxes
    )

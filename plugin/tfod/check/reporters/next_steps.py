"""What somebody does next who has read the verdict."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tfod.check.amounts import plural
from tfod.check.box_columns import MOST_SLIPS, is_many
from tfod.check.finding import Severity
from tfod.check.receivers import ANY, CVAT
from tfod.check.report import DatasetReport, Report
from tfod.check.reporters.escaping import visible
from tfod.check.rules.repairs import MAX_DROPPED, REPAIRS

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
        yield Step("It is fit to be read. To know whether CVAT takes it, check it for CVAT.")
    else:
        yield Step("Train on it: point the trainer at the shards and at their label map.")
    if report.counts.by_severity.get(Severity.WARNING):
        yield Step("Look at the warnings below; they stop nobody, but may not be what you want.")


def _after_invalid(report: Report) -> Iterator[Step]:
    failing = [one for one in report.findings if one.severity.rank >= report.fail_on.rank]
    codes = {one.code for one in failing}
    fixes = {one.code: one.fix for one in reversed(failing)}
    is_one = len({one.fix for one in failing}) == 1
    of_files = [code for code in dict.fromkeys(one.code for one in failing) if _is_of_files(code)]
    for code in list(fixes)[:1] if is_one else of_files[:_MOST_STEPS]:
        yield Step(fixes[code])
    repairs = [one for one in _repairs(report, codes) if one.repaired]
    for number, one in enumerate(repairs[:_MOST_STEPS]):
        yield one.step(number, len(repairs))
    counts = {code: report.counts.by_code.get(code, 0) for code in codes}
    repaired = sum(sum(one.repaired.values()) for one in repairs)
    told = sum(counts[code] for code in of_files if code not in REPAIRS)
    if not is_one and repaired + told < sum(counts.values()):
        which = "the others" if repaired or of_files else "these"
        yield Step(
            f"Fix {which} where the images were annotated, then export again and check again."
        )


def _is_of_files(code: str) -> bool:
    """Whether a rule is about files as a whole, which no annotation tool can mend."""
    return code.startswith(("ZIP", "TFR", "SET")) or code == "EXA010"


@dataclass(frozen=True)
class _Repair:
    """What ``tfod repair`` does for a file or folder.

    Attributes:
        name: of the file or folder.
        total: how many findings in it fail.
        repaired: how many of them are repaired, by code.
        columns: the options of an order of columns, where that is what is to be repaired.
        inverted: whether it has more inverted boxes than a repair takes for slips.
        removes_much: whether so much is left out that a repair asks before.
    """

    name: str
    total: int
    repaired: Mapping[str, int]
    columns: Sequence[str] = ()
    inverted: bool = False
    removes_much: bool = False

    def step(self, number: int, of: int) -> Step:
        """As one of several steps."""
        what = f"{visible(self.name)}: " if of > 1 else ""
        output = f"-o repaired-{number + 1}" if number else "-o repaired"
        output = "--dry-run" if self.removes_much else output
        options = "".join(f" {one}" for one in self.columns[:1]) + " --skip BOX006" * self.inverted
        more = of - _MOST_STEPS if number == _MOST_STEPS - 1 else 0
        return Step(
            f"{what}{self._columns_text() if self.columns else self._text()}"
            + (f" Likewise for {more:,} more." if more > 0 else ""),
            f"tfod repair {shlex.quote(visible(self.name))} {output}{options}",
        )

    def _columns_text(self) -> str:
        others = f"; {' or '.join(self.columns[1:])} fits as well" if self.columns[1:] else ""
        return (
            "The columns of the boxes look mixed up: repair a copy with them in this order, and "
            f"look at the boxes with tfod show{others}."
        )

    def _text(self) -> str:
        lost = sum(count for code, count in self.repaired.items() if code in _LOST)
        fixed = sum(self.repaired.values()) - lost
        which = "all of this" if fixed == self.total else f"up to {fixed:,} of the {self.total:,}"
        parts = [f"can fix {which} without guessing"] if fixed else []
        if lost:
            least = "at least " if self.repaired.keys() & _LOST_WITH_OTHERS else ""
            parts.append(f"leaves out {least}{plural(lost, 'damaged record')}")
        parts.append("and says what it changed")
        look = " That is a large share: look first at what would be left out."
        return f"Repair a copy: tfod {', '.join(parts)}.{look * self.removes_much}"


def _repairs(report: Report, failing: Set[str]) -> Iterator[_Repair]:
    """What can be repaired: for each dataset, or where it is not a folder, each of its files."""
    for dataset in report.datasets:
        sources = {name: _counts(report, name, failing) for name in dataset.sources}
        hit = [name for name, counts in sources.items() if counts.keys() & REPAIRS]
        together = len(hit) > 1 and all(_is_in(dataset.name, name) for name in hit)
        options = _columns(report, dataset, hit) if "BOX013" in failing else None
        whole = sum((sources[name] for name in hit), Counter[str]())
        for name in [dataset.name] if together else hit:
            counts = whole if together else sources[name]
            if options is not None:
                if options:
                    yield _Repair(name, sum(counts.values()), counts, options)
                continue
            repaired = {code: count for code, count in counts.items() if code in REPAIRS}
            inverted = _has_many_inverted(report, dataset, name if not together else "")
            if inverted:
                repaired.pop("BOX006", None)
            lost = sum(repaired.get(code, 0) for code in _LOST)  # which are not read, nor counted
            yield _Repair(
                name,
                sum(counts.values()),
                repaired,
                inverted=inverted,
                removes_much=_is_much(repaired, _LOST, dataset.counts.records + lost)
                or _is_much(repaired, _WITHOUT_OBJECTS, dataset.counts.boxes),
            )


def _counts(report: Report, name: str, failing: Set[str]) -> Counter[str]:
    """The findings that fail in a file, by code; names of a zip's shards begin with its name."""
    found: Counter[str] = Counter()
    for shard, counts in report.counts.by_shard.items():
        if _is_of(shard, name):
            found.update({code: count for code, count in counts.items() if code in failing})
    return found


def _is_much(repaired: Mapping[str, int], codes: Set[str], of: int) -> bool:
    """Whether a repair that leaves out so many is refused without ``--max-dropped``."""
    return sum(repaired.get(code, 0) for code in codes) > MAX_DROPPED * of


def _is_of(shard: str, name: str) -> bool:
    return shard == name or shard.startswith(f"{name}:")


def _is_in(folder: str, name: str) -> bool:
    return folder == "." or name.startswith(f"{folder.rstrip('/')}/")


def _columns(report: Report, dataset: DatasetReport, hit: Sequence[str]) -> Sequence[str] | None:
    """The options that BOX013 names; empty where they are not those of all shards, None without."""
    said = [
        tuple(_OPTION.findall(one.message))
        for one in report.findings
        if one.code == "BOX013" and any(_is_of(one.shard, name) for name in hit)
    ]
    if not said:
        return None
    return said[0] if len(said) == dataset.counts.shards and len(set(said)) == 1 else ()


def _has_many_inverted(report: Report, dataset: DatasetReport, name: str) -> bool:
    """Whether ``tfod repair`` may refuse them: too many of a shard, or of all, to be slips."""
    shards = {
        shard: counts.get("BOX006", 0)
        for shard, counts in report.counts.by_shard.items()
        if (_is_of(shard, name) if name else any(_is_of(shard, one) for one in dataset.sources))
    }
    if dataset.counts.shards == 1:
        return is_many(sum(shards.values()), dataset.counts.boxes)
    # How many boxes a shard of several has is not in the report.
    return any(count > MOST_SLIPS for count in shards.values()) or is_many(
        sum(shards.values()), dataset.counts.boxes
    )

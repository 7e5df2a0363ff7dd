"""The rows of the table, and their formatting."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WIDTH = 96


class Verdict(Enum):
    """The verdict of a row: whether its target is met. Some rows have no target."""

    MET = "met"
    MISSED = "MISSED"
    NONE = ""


@dataclass(frozen=True)
class Section:
    title: str
    peer: str


@dataclass(frozen=True)
class Row:
    title: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    target: str = ""
    verdict: Verdict = Verdict.NONE


def faster(title: str, ours: float, theirs: float, target: float | None) -> Row:
    ratio = theirs / ours
    if target is None:
        return Row(title, duration(ours), duration(theirs), f"{ratio:.1f}x")
    verdict = Verdict.MET if ratio >= target else Verdict.MISSED
    return Row(
        title, duration(ours), duration(theirs), f"{ratio:.1f}x", f">= {target:.2g}x", verdict
    )


def at_most(title: str, ours: float, theirs: float | None, target: float, unit: str) -> Row:
    verdict = Verdict.MET if ours <= target else Verdict.MISSED
    their_amount = "" if theirs is None else _amount(theirs, unit)
    return Row(title, _amount(ours, unit), their_amount, "", f"<= {target:.3g} {unit}", verdict)


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs" if seconds >= 1e-5 else f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def megabytes(size: float) -> float:
    return size / 1e6


def format_line(line: Section | Row) -> str:
    if isinstance(line, Section):
        return "\n" + _columns(f"{line.title} ", "tfod", line.peer, "ratio", "target", fill="-")
    values = line.title, line.ours, line.theirs, line.ratio, line.target
    return f"{_columns(*values)} {line.verdict.value}".rstrip()


def _columns(
    title: str, ours: str, theirs: str, ratio: str, target: str, *, fill: str = " "
) -> str:
    return f"{title:{fill}<47} {ours:>9} {theirs:>14} {ratio:>6} {target:>9}"


def _amount(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if abs(value) >= 10 else f"{value:.1f} {unit}"

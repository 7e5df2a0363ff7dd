"""The table: rows as they are measured, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WIDTH = 96


class Verdict(Enum):
    """Whether a row's target is met; some rows have none."""

    MET = "met"
    MISSED = "MISSED"
    NONE = ""


@dataclass(frozen=True)
class Section:
    """A heading: what the rows below measure, and who the peer is."""

    title: str
    peer: str


@dataclass(frozen=True)
class Row:
    """One line of the table; all values are texts with their units."""

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    target: str = ""
    verdict: Verdict = Verdict.NONE


def faster(what: str, ours: float, theirs: float, target: float | None) -> Row:
    """A row of seconds per record, with how many times faster tfod is."""
    ratio = theirs / ours
    if target is None:
        return Row(what, duration(ours), duration(theirs), f"{ratio:.1f}x")
    verdict = Verdict.MET if ratio >= target else Verdict.MISSED
    return Row(what, duration(ours), duration(theirs), f"{ratio:.1f}x", f">= {target:g}x", verdict)


def at_most(what: str, ours: float, theirs: float | None, target: float, unit: str) -> Row:
    """A row of an amount that must not be more than the target, in the target's unit."""
    verdict = Verdict.MET if ours <= target else Verdict.MISSED
    shown = "" if theirs is None else _amount(theirs, unit)
    return Row(what, _amount(ours, unit), shown, "", f"<= {target:.3g} {unit}", verdict)


def duration(seconds: float) -> str:
    """Seconds as a text: 92 µs, 1.4 ms, 2.31 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs" if seconds >= 1e-5 else f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def megabytes(size: float) -> float:
    """Bytes as megabytes."""
    return size / 1e6


def text_of(line: Section | Row) -> str:
    """A line of the table."""
    if isinstance(line, Section):
        return "\n" + _columns(f"{line.title} ", "tfod", line.peer, "ratio", "target", fill="-")
    values = line.what, line.ours, line.theirs, line.ratio, line.target
    return f"{_columns(*values)} {line.verdict.value}".rstrip()


def _columns(what: str, ours: str, theirs: str, ratio: str, target: str, *, fill: str = " ") -> str:
    return f"{what:{fill}<47} {ours:>9} {theirs:>14} {ratio:>6} {target:>9}"


def _amount(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if abs(value) >= 10 else f"{value:.1f} {unit}"

"""The report as text for a terminal: the verdict, then what to mend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfod.check.finding import Finding, Severity
from tfod.check.report import Report
from tfod.check.reporters.escaping import columns, visible
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.wording import (
    about_dataset,
    amounts,
    decoded,
    place_parts,
    tally,
    verdict,
)
from tfod.check.rules.registry import Rule

_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_COLORS = {
    Severity.ERROR: "\x1b[1;31m",
    Severity.WARNING: "\x1b[1;33m",
    Severity.INFO: "\x1b[1;36m",
}
_VALID = "\x1b[1;32m"


def render_text(
    report: Report,
    *,
    color: bool,
    width: int = 80,
    examples: int = 3,
    rules: Mapping[str, Rule] | None = None,
) -> str:
    """Write a report as text.

    Args:
        report: the report.
        color: whether to colour it with ANSI sequences; those of shards are never passed on.
        width: columns; only a word or a name that is longer goes beyond.
        examples: findings that are shown of each rule; the others are counted.
        rules: where titles and fixes come from; all rules by default.
    """
    groups = group_findings(report, rules)
    lines = list(_head(report, width))
    if color:
        lines[0] = _paint(lines[0], verdict(report), _paint_of(report.valid))
    if len(report.datasets) > 1:
        lines += _datasets(report, width, color)
    for group in groups:
        extent = f" ({group.extent})" if group.total > 1 else ""
        heading = list(_wrap(f"{group.heading}{extent}".split(" "), width, 0, 2))
        if color:
            mark = f"{group.code} {group.severity.value}"
            heading[0] = _paint(heading[0], mark, _COLORS[group.severity])
        lines += ["", *heading, *_examples(group, width, examples)]
        if group.fix:
            fix = list(_wrap(["Fix:", *visible(group.fix).split(" ")], width, 2, 4))
            if color:
                fix[0] = _paint(fix[0], "Fix:", _BOLD)
            lines += fix
    if groups:
        hint = f"More about a rule: tfod rules {groups[0].code}"
        lines += ["", _paint(hint, hint, _DIM) if color else hint]
    return "\n".join(lines) + "\n"


def _head(report: Report, width: int) -> Iterator[str]:
    yield from _wrap([f"{verdict(report)}:", *tally(report).split()], width, 0, 2)
    yield from _wrap(["Checked:", *amounts(report.counts).split()], width, 0, 2)
    yield from _wrap(["Decoded:", *decoded(report).split()], width, 0, 2)
    profile = report.profile
    reason = f" ({profile.reason})" if profile.reason else ""
    yield from _wrap(["Profile:", *visible(profile.name + reason).split(" ")], width, 0, 2)


def _datasets(report: Report, width: int, color: bool) -> Iterator[str]:
    """The verdict on each dataset, and what it was judged by."""
    yield "Datasets:"
    for one in report.datasets:
        word = "VALID" if one.valid else "INVALID"
        words = [word, f"{visible(one.name)}:", *about_dataset(one).split(" ")]
        first, *others = _wrap(words, width, 2, 4)
        yield _paint(first, word, _paint_of(one.valid)) if color else first
        yield from others


def _examples(group: Group, width: int, most: int) -> Iterator[str]:
    """Examples of a rule's findings: where, and below it what. The same words are said once."""
    shown = group.examples(most)
    places: dict[tuple[str, str], list[Finding]] = {}
    for finding in shown:
        places.setdefault((visible(finding.message), finding.fix), []).append(finding)
    for (message, fix), findings in places.items():
        for number, finding in enumerate(findings, 1):
            place = list(place_parts(finding))
            if place and number == len(findings):
                place[-1] += ":"
            yield from _wrap(place, width, 2, 6)
        indent = 4 if place else 2  # nothing to be below of
        yield from _wrap(message.split(" "), width, indent, indent + 2)
        if fix and fix != group.fix:
            yield from _wrap(["Fix", "here:", *visible(fix).split(" ")], width, 4, 6)
    rest = group.rest(shown)
    if rest:
        yield f"  {rest}"


def _wrap(words: Iterable[str], width: int, indent: int, hanging: int) -> Iterator[str]:
    """Set words in lines. No word is broken; one that is too long gets a line of its own."""
    line, used = " " * indent, indent
    empty = True
    for word in words:
        size = columns(word)
        if not empty and used + 1 + size > width:
            yield line
            line, used, empty = " " * hanging, hanging, True
        line += word if empty else f" {word}"
        used += size if empty else size + 1
        empty = False
    if not empty:
        yield line


def _paint_of(valid: bool) -> str:
    return _VALID if valid else _COLORS[Severity.ERROR]


def _paint(line: str, part: str, paint: str) -> str:
    return line.replace(part, f"{paint}{part}{_RESET}", 1)

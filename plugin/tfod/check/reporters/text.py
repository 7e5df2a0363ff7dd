"""The report as text for a terminal: the verdict, then what to fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tfod.check.findings.finding import Finding, plural
from tfod.check.findings.report import Report
from tfod.check.reporters.escaping import WIDTH, columns, visible
from tfod.check.reporters.wording import (
    Group,
    about_dataset,
    amounts,
    decoded,
    group_findings,
    next_steps,
    place_parts,
    totals,
    verdict,
)

_EXAMPLES = 3  # findings that are shown of each rule; the others are counted
_COLOURS = {"INVALID": "1;31", "error": "1;31", "warning": "1;33", "info": "1;36", "VALID": "1;32"}
_BOLD, _DIM = "1", "2"
_COLOURED = re.compile(
    r"^ {0,2}(?:((?:IN)?VALID)\b|[A-Z]{3}\d{3} (error|warning|info):|(Fix:)|More about .*)", re.M
)
"""What is seen first: verdicts, the headings of rules, and what to do."""


def render_text(
    report: Report,
    *,
    color: bool,
    receivers: bool = False,
    quiet: bool = False,
) -> str:
    """Write a report as text.

    ANSI sequences of shards are never passed on. ``receivers`` lists what each makes of the shards,
    ``quiet`` leaves the findings alone, and of what is valid nothing.
    """
    if quiet and report.valid:
        return ""
    groups = group_findings(report)
    lines = [] if quiet else [*_head(report)]
    lines += _receivers(report) if receivers and not quiet else ()
    for group in groups:
        lines += ["", *group_lines(group)]
    if not quiet and groups:
        lines += [*_next(report, groups), "", f"More about a rule: tfod rules {groups[0].code}"]
    text = "\n".join(lines[1:] if quiet else lines) + "\n"
    return _COLOURED.sub(_paint, text) if color else text


def _paint(match: re.Match[str]) -> str:
    verdict_or_severity = match[1] or match[2]
    colour = _COLOURS[verdict_or_severity] if verdict_or_severity else _BOLD if match[3] else _DIM
    return f"\x1b[{colour}m{match[0]}\x1b[0m"


def _next(report: Report, groups: Sequence[Group]) -> Iterator[str]:
    """What to do next about what fails; a fix that is the only one is said above."""
    steps = list(next_steps(report, groups)) if not report.valid else []
    steps = steps if len(groups) > 1 else steps[1:]
    yield from [""] if steps else ()
    for number, (sentence, command) in enumerate(steps):
        yield from _wrap(f"{'Then' if number else 'Next'}: {visible(sentence)}", 0, 2)
        if command:
            yield f"  {command}"


def _head(report: Report) -> Iterator[str]:
    reason = f" ({report.profile.reason})" if report.profile.reason else ""
    yield from _wrap(f"{verdict(report)}: {totals(report)}", 0, 2)
    yield from _wrap(f"Checked: {amounts(report.counts)}", 0, 2)
    yield from _wrap(f"Decoded: {decoded(report)}", 0, 2)
    yield from _wrap(f"Profile: {visible(report.profile.name + reason)}", 0, 2)
    if report.configuration is not None:
        yield from _wrap(f"Configuration: {visible(report.configuration)}", 0, 2)
    if len(report.datasets) > 1:
        yield "Datasets:"
        for one in report.datasets:
            about = about_dataset(one).split(" ")
            words = ["VALID" if one.valid else "INVALID", f"{visible(one.name)}:", *about]
            yield from _wrap(words, 2, 4)


def group_lines(group: Group) -> Iterator[str]:
    """The findings of a rule below its title, some of them as examples."""
    extent = f" ({group.total:,} in {plural(group.files, 'file')})" if group.total > 1 else ""
    yield from _wrap(f"{group.code} {group.severity.value}: {group.rule.title}{extent}", 0, 2)
    yield from _examples(group)
    if group.fix:
        yield from _wrap(f"Fix: {visible(group.fix)}", 2, 4)


def _receivers(report: Report) -> Iterator[str]:
    yield "Receivers:"
    longest = max(len(one.receiver.name) for one in report.verdicts)
    for one in report.verdicts:
        why = f": {'; '.join(one.reasons)}" if one.reasons else ""
        words = [f"{one.receiver.name:<{longest}} ", *f"{one.verdict.value}{why}".split(" ")]
        yield from _wrap(words, 2, longest + 4)


def _examples(group: Group) -> Iterator[str]:
    """Examples of a rule's findings: where, and below it what. The same words are said once."""
    shown = group.examples_first(_EXAMPLES)[:_EXAMPLES]
    by_words: dict[tuple[str, str], list[Finding]] = {}
    for finding in shown:
        by_words.setdefault((visible(finding.message), finding.fix), []).append(finding)
    for (message, fix), findings in by_words.items():
        for finding in findings:
            place = list(place_parts(finding))
            if place and finding is findings[-1]:
                place[-1] += ":"
            yield from _wrap(place, 2, 6)
        indent = 4 if place else 2  # nothing to be below of
        yield from _wrap(message, indent, indent + 2)
        if fix and fix != group.fix:
            yield from _wrap(f"Fix here: {visible(fix)}", 4, 6)
    if group.total > len(shown):
        yield f"  and {group.total - len(shown):,} more"


def _wrap(words: str | Iterable[str], indent: int, hanging: int) -> Iterator[str]:
    """Set a text, or words that may hold spaces, in lines. No word is broken, however long it is.

    ``textwrap`` counts characters, of which some take two cells of a terminal and some none.
    """
    line: list[str] = []
    used = indent - 1
    for word in words.split(" ") if isinstance(words, str) else words:
        size = columns(word)
        if line and used + 1 + size > WIDTH:
            yield " " * indent + " ".join(line)
            line, indent, used = [], hanging, hanging - 1
        line.append(word)
        used += 1 + size
    if line:
        yield " " * indent + " ".join(line)

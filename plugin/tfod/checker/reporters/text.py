"""The report as text for a terminal: the verdict, then what to fix."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from tfod.checker.finding import Severity, join_names, plural
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import WIDTH, visible
from tfod.checker.reporters.wording import (
    Group,
    about_dataset,
    amounts,
    decoded,
    for_whom,
    group_findings,
    next_steps,
    place_of,
    totals,
)

_EXAMPLES = 3  # findings that are shown of each rule; the others are counted
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_RED, _YELLOW, _CYAN, _GREEN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m", "\x1b[1;32m"
_COLORS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.INFO: _CYAN}


def render_text(
    report: Report, *, color: bool, receivers: bool = False, quiet: bool = False
) -> str:
    """Write a report as text.

    ANSI sequences of shards are never passed on: what is of a shard goes through ``visible``, here
    or in ``wording``. ``receivers`` lists what each makes of the shards, for a check for any of
    them; ``quiet`` leaves the findings alone, and of what is valid nothing.
    """
    if quiet and report.valid:
        return ""
    groups = group_findings(report)
    found = [line for group in groups for line in ("", *group_lines(group, color))]
    if quiet:
        return "\n".join(found[1:]) + "\n"
    lines = [*_head(report, color, receivers), *found]
    steps = next_steps(report, groups)
    if not report.valid and len(groups) == 1:
        steps = steps[1:]  # the first is the only fix, which is said above
    for number, (sentence, command) in enumerate(steps):
        lines += [
            *([] if number else [""]),
            _wrapped(f"{'Then' if number else 'Next'}: {sentence}", 0),
        ]
        lines += [f"  {command}"] if command else []
    if groups:
        hint = f"More about a rule: tfod rules {groups[0].code}"
        lines += ["", _wrapped(hint, 0, hint, _DIM if color else "")]
    return "\n".join(lines) + "\n"


def _head(report: Report, color: bool, receivers: bool) -> Iterator[str]:
    verdict = ("VALID" if report.valid else "INVALID") + for_whom(report)
    paint = _GREEN if report.valid else _RED
    yield _wrapped(f"{verdict}: {totals(report)}", 0, verdict, paint if color else "")
    yield _wrapped(f"Checked: {amounts(report.counts)}", 0)
    yield _wrapped(f"Decoded: {decoded(report)}", 0)
    reason = f" ({report.profile.reason})" if report.profile.reason else ""
    yield _wrapped(f"Profile: {report.profile.name}{reason}", 0)
    label_maps = [name for one in report.datasets for name in one.label_maps]
    if label_maps:
        yield _wrapped(f"Label map: {join_names(label_maps, _EXAMPLES)}", 0)
    if report.configuration is not None:
        yield _wrapped(f"Configuration: {report.configuration}", 0)
    if len(report.datasets) > 1:
        yield "Datasets:"
        for one in report.datasets:
            word, paint = ("VALID", _GREEN) if one.valid else ("INVALID", _RED)
            text = f"{word} {one.name}: {about_dataset(one)}"
            yield _wrapped(text, 2, word, paint if color else "")
    if receivers:
        yield "Receivers:"
        longest = max(len(one.receiver.name) for one in report.verdicts)
        for each in report.verdicts:
            why = f": {'; '.join(each.reasons)}" if each.reasons else ""
            yield _wrapped(f"{each.receiver.name:<{longest}}  {each.verdict.value}{why}", 2)


def group_lines(group: Group, color: bool) -> Iterator[str]:
    """The findings of a rule below its title, some of them as examples: where, and below it what.

    The same words are said once.
    """
    mark = f"{group.code} {group.severity.value}"
    extent = f" ({group.total:,} in {plural(group.files, 'file')})" if group.total > 1 else ""
    heading = f"{mark}: {group.rule.title}{extent}"
    yield _wrapped(heading, 0, mark, _COLORS[group.severity] if color else "")
    shown = group.findings[:_EXAMPLES]
    by_words: dict[tuple[str, str], list[str]] = {}
    for one in shown:
        by_words.setdefault((one.message, one.fix), []).append(place_of(one))
    for (message, fix), places in by_words.items():
        yield from (f"  {place}" for place in places[:-1])
        if places[-1]:  # may hold the path of a file, which is not broken
            yield f"  {places[-1]}:"
        yield _wrapped(message, 4 if places[-1] else 2)
        if fix and fix != group.fix:
            yield _wrapped(f"Fix here: {fix}", 4)
    if group.total > len(shown):
        yield f"  and {group.total - len(shown):,} more"
    if group.fix:
        yield _wrapped(f"Fix: {group.fix}", 2, "Fix:", _BOLD if color else "")


def _wrapped(text: str, indent: int, part: str = "", paint: str = "") -> str:
    """A text in lines, a part of it painted. No word is broken."""
    lines = textwrap.fill(
        visible(text),
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(part, f"{paint}{part}{_RESET}", 1) if paint else lines

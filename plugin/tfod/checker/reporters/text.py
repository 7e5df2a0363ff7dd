"""The report as text for a terminal: the verdict, then the findings and their fixes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from tfod.checker.advice import split_command
from tfod.checker.finding import Severity, join_names, plural
from tfod.checker.receivers import VERDICT_TEXTS
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import WIDTH, visible
from tfod.checker.reporters.groups import Group, group_findings
from tfod.checker.reporters.wording import (
    describe_dataset,
    format_amounts,
    format_dataset_verdict,
    format_decoded,
    format_location,
    format_verdict,
    next_steps,
)

_EXAMPLES = 3  # findings that are shown for each rule; the others are counted
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_RED, _YELLOW, _CYAN, _GREEN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;36m", "\x1b[1;32m"
_COLORS = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.INFO: _CYAN}


def render_text(
    report: Report, *, color: bool, receivers: bool = False, quiet: bool = False
) -> str:
    """Format a report as text.

    Texts from shards are escaped with ``visible``, here or in ``wording``, so that ANSI sequences
    have no effect. ``receivers`` lists the verdicts of all receivers, if the check was for any.
    ``quiet`` prints only the findings, and nothing if the report is valid.
    """
    if quiet and report.valid:
        return ""
    groups = group_findings(report)
    findings = [line for group in groups for line in ("", *group_lines(group, color))]
    if quiet:
        return "\n".join(findings[1:]) + "\n"
    lines = [*_head(report, color, receivers), *findings]
    steps = next_steps(report, groups)
    if not report.valid and len(groups) == 1:
        steps = steps[1:]  # the only fix is already shown with its findings
    for number, (sentence, command) in enumerate(steps):
        if number == 0:
            lines.append("")
        lines.append(_wrap(f"{'Then' if number else 'Next'}: {sentence}", 0))
        if command:
            lines.append(f"  {command}")
    if groups:
        hint = f"More about a rule: tfod rules {groups[0].code}"
        lines += ["", _wrap(hint, 0, hint, _DIM if color else "")]
    return "\n".join(lines) + "\n"


def _head(report: Report, color: bool, receivers: bool) -> Iterator[str]:
    paint = (_YELLOW if report.baseline else _GREEN) if report.valid else _RED
    line = format_verdict(report)
    yield _wrap(line, 0, re.split("[:;]", line)[0], paint if color else "")
    yield _wrap(f"Checked: {format_amounts(report.counts)}", 0)
    yield _wrap(f"Decoded: {format_decoded(report)}", 0)
    reason = f" ({report.profile.reason})" if report.profile.reason else ""
    yield _wrap(f"Profile: {report.profile.name}{reason}", 0)
    label_maps = [name for dataset in report.datasets for name in dataset.label_maps]
    if label_maps:
        yield _wrap(f"Label map: {join_names(label_maps, _EXAMPLES)}", 0)
    if report.configuration is not None:
        yield _wrap(f"Configuration: {report.configuration}", 0)
    if len(report.datasets) > 1:
        yield "Datasets:"
        for dataset in report.datasets:
            word = format_dataset_verdict(report, dataset)
            paint = (_YELLOW if report.baseline else _GREEN) if dataset.valid else _RED
            text = f"{word} {dataset.name}: {describe_dataset(dataset)}"
            yield _wrap(text, 2, word, paint if color else "")
    if receivers:
        yield "Receivers:"
        width = max(len(item.receiver.name) for item in report.verdicts)
        for item in report.verdicts:
            why = f": {'; '.join(item.reasons)}" if item.reasons else ""
            yield _wrap(f"{item.receiver.name:<{width}}  {VERDICT_TEXTS[item.verdict]}{why}", 2)


def group_lines(group: Group, color: bool) -> Iterator[str]:
    """Yield the title of a rule, with the locations and messages of some of its findings.

    Findings with the same message are listed together.
    """
    mark = f"{group.code} {group.severity.value}"
    extent = f" ({group.total:,} in {plural(group.files, 'file')})" if group.total > 1 else ""
    heading = f"{mark}: {group.rule.title}{extent}"
    yield _wrap(heading, 0, mark, _COLORS[group.severity] if color else "")
    shown = group.findings[:_EXAMPLES]
    by_message: dict[tuple[str, str], list[str]] = {}
    for finding in shown:
        by_message.setdefault((finding.message, finding.fix), []).append(format_location(finding))
    for (message, fix), locations in by_message.items():
        yield from (f"  {location}" for location in locations[:-1])
        if locations[-1]:  # not wrapped, because it may contain a path
            yield f"  {locations[-1]}:"
        yield _wrap(message, 4 if locations[-1] else 2)
        if fix:
            yield from _fix_lines("Fix here:", fix, 4, "")
    if group.total > len(shown):
        yield f"  and {group.total - len(shown):,} more"
    if group.fix:
        yield from _fix_lines("Fix:", group.fix, 2, _BOLD if color else "")


def _fix_lines(label: str, fix: str, indent: int, paint: str) -> Iterator[str]:
    """Yield a fix, with its command unwrapped on a line of its own."""
    sentence, command = split_command(fix)
    yield _wrap(f"{label} {sentence}", indent, label, paint)
    if command:
        yield f"{' ' * (indent + 2)}{command}"


def _wrap(text: str, indent: int, part: str = "", paint: str = "") -> str:
    """Wrap a text without breaking words, and colour a part of it."""
    lines = textwrap.fill(
        visible(text),
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(part, f"{paint}{part}{_RESET}", 1) if paint else lines

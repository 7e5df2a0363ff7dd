"""The findings as lines that GitHub Actions shows beside files.

It shows them beside lines of source code. A shard has none: the message says which record and byte.
Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
"""

from __future__ import annotations

import os
from itertools import chain, zip_longest

from tfod.checker.finding import Finding, Severity, plural
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.wording import SEVEREST_FIRST, group_findings, place_of
from tfod.tfrecord.storage.urls import is_url

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MOST_SHOWN = 10
"""Of each command that GitHub shows for a step; https://docs.github.com/rest/checks/runs."""


def render_github(report: Report) -> str:
    """Write findings as workflow commands: as many as GitHub shows, of all rules that fired."""
    groups = group_findings(report)
    titles = {one.code: f"{one.code} {one.rule.title}" for one in groups}
    in_turn = [one for one in chain(*zip_longest(*(group.findings for group in groups))) if one]
    lines = []
    for severity in SEVEREST_FIRST:
        of_severity = [one for one in in_turn if one.severity is severity]
        lines += [_command(report, one, titles[one.code]) for one in of_severity[:_MOST_SHOWN]]
    if report.total > len(lines):
        shown = f"GitHub shows {_MOST_SHOWN} errors and {_MOST_SHOWN} warnings of a step"
        lines.append(f"{plural(report.total - len(lines), 'finding')} more: {shown}")
    return "".join(f"{line}\n" for line in lines)


def _command(report: Report, finding: Finding, title: str) -> str:
    """The file, of an entry of a zip that of the zip; and where in it, what is wrong, the fix."""
    source = report.source_of(finding.shard)
    path = source or (report.sources[0].name if report.sources else ".")
    folder = os.path.join(os.getcwd(), "")
    if not is_url(path) and os.path.abspath(path).startswith(folder):
        path = os.path.relpath(path)
    entry = finding.shard[len(source) :].lstrip(":")
    parts = (place_of(finding, entry), visible(finding.message))
    text = ": ".join(filter(None, parts)) + (
        f"\nFix: {visible(finding.fix)}" if finding.fix else ""
    )
    file, title = (_escaped(visible(one), ":,") for one in (path.replace(os.sep, "/"), title))
    return f"::{_COMMANDS[finding.severity]} file={file},title={title}::{_escaped(text)}"


def _escaped(text: str, others: str = "") -> str:
    """As @actions/core does it; ``escapeData`` of ``packages/core/src/command.ts``."""
    return "".join(f"%{ord(one):02X}" if one in f"%\r\n{others}" else one for one in text)

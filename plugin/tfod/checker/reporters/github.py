"""Findings as workflow commands, which GitHub Actions shows next to files.

A shard has no lines of source code, so the message contains the record and the byte.
Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
"""

from __future__ import annotations

import os
from itertools import chain, zip_longest

from tfod.checker.finding import Finding, Severity, plural
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.groups import group_findings
from tfod.checker.reporters.wording import SEVEREST_FIRST, format_location, format_verdict
from tfod.tfrecord.storage.urls import is_url

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MAX_SHOWN = 10  # commands of each kind that GitHub shows for a step


def render_github(report: Report) -> str:
    """Format the verdict, and the findings that GitHub shows, with some of each rule."""
    groups = group_findings(report)
    titles = {group.code: f"{group.code} {group.rule.title}" for group in groups}
    # The first finding of each rule, then the second of each rule, and so on.
    rounds = chain(*zip_longest(*(group.findings for group in groups)))
    fixes = {(group.code, group.cause): group.fix for group in groups}
    findings = [
        item._replace(fix=item.fix or fixes[item.code, item.cause]) for item in rounds if item
    ]
    lines = []
    for severity in SEVEREST_FIRST:
        matches = [finding for finding in findings if finding.severity is severity]
        for finding in matches[:_MAX_SHOWN]:
            lines.append(_format_command(report, finding, titles[finding.code]))
    if report.total > len(lines):
        shown = f"GitHub shows {_MAX_SHOWN} errors and {_MAX_SHOWN} warnings per step"
        lines.append(f"{plural(report.total - len(lines), 'finding')} more: {shown}")
    return "".join(f"{line}\n" for line in (format_verdict(report), *lines))


def _format_command(report: Report, finding: Finding, title: str) -> str:
    """Format a finding as a workflow command. For a zip entry, the file is the zip."""
    source = report.find_source(finding.shard)
    path = source or (report.sources[0].name if report.sources else ".")
    folder = os.path.join(os.getcwd(), "")
    if not is_url(path) and os.path.abspath(path).startswith(folder):
        path = os.path.relpath(path)
    entry = finding.shard[len(source) :].lstrip(":")
    parts = (format_location(finding, entry), visible(finding.message))
    fix = f"\nFix: {visible(finding.fix)}" if finding.fix else ""
    text = ": ".join(filter(None, parts)) + fix
    file, title = (_escape(visible(part), ":,") for part in (path.replace(os.sep, "/"), title))
    return f"::{_COMMANDS[finding.severity]} file={file},title={title}::{_escape(text)}"


def _escape(text: str, more: str = "") -> str:
    # Same as escapeData of @actions/core, packages/core/src/command.ts.
    special = f"%\r\n{more}"
    return "".join(f"%{ord(char):02X}" if char in special else char for char in text)

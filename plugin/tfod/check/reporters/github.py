"""The findings as lines that GitHub Actions shows beside files.

It shows them beside lines of source code. A shard has none: the message says which record and byte.
Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, zip_longest

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.report import Report
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import group_findings
from tfod.check.reporters.wording import SEVEREST_FIRST, place_parts
from tfod.tfrecord.storage.urls import is_url

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MOST_SHOWN = 10
"""Of each command that GitHub shows for a step; https://docs.github.com/rest/checks/runs."""


def render_github(report: Report) -> str:
    """Write findings as workflow commands: as many as GitHub shows, of all rules that fired."""
    return "".join(f"{line}\n" for line in _commands(report))


def _commands(report: Report) -> Iterator[str]:
    groups = group_findings(report)
    titles = {one.code: visible(f"{one.code} {one.title}".rstrip()) for one in groups}
    in_turn = chain.from_iterable(zip_longest(*(one.findings for one in groups)))
    findings = [one for one in in_turn if one is not None]
    shown = 0
    for severity in SEVEREST_FIRST:
        for one in [one for one in findings if one.severity is severity][:_MOST_SHOWN]:
            path, text = _place_and_text(report, one)
            place = f"file={_property(path)},title={_property(titles[one.code])}"
            yield f"::{_COMMANDS[severity]} {place}::{_data(text)}"
            shown += 1
    if report.total > shown:
        more = plural(report.total - shown, "finding")
        yield f"{more} more: GitHub shows {_MOST_SHOWN} errors and {_MOST_SHOWN} warnings of a step"


def _place_and_text(report: Report, finding: Finding) -> tuple[str, str]:
    """The file, of an entry of a zip that of the zip; and where in it, what is wrong, the fix."""
    source = report.source_of(finding.shard)
    name = source or (report.sources[0].name if report.sources else ".")
    entry = finding.shard[len(source) :].lstrip(":")
    parts = (" ".join(place_parts(replace(finding, shard=entry))), visible(finding.message))
    fix = f"\nFix: {visible(finding.fix)}" if finding.fix else ""
    return visible(_path_in_folder(name)), ": ".join(filter(None, parts)) + fix


def _path_in_folder(name: str) -> str:
    """A file's path with slashes: relative to the working folder, if it is in it."""
    if is_url(name):
        return name
    path = os.path.abspath(name)
    if os.path.join(path, "").startswith(os.path.join(os.getcwd(), "")):
        path = os.path.relpath(path)
    return path.replace(os.sep, "/")


def _data(text: str) -> str:
    """As @actions/core escapes messages: ``escapeData`` of ``packages/core/src/command.ts``."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

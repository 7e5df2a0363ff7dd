"""The findings as lines that GitHub Actions shows beside files, and as GitLab's code quality."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from tfod.check.findings.finding import Severity, plural
from tfod.check.findings.report import Report
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.file_findings import file_findings
from tfod.check.reporters.groups import group_findings
from tfod.check.reporters.json_and_junit import dump_json
from tfod.check.reporters.wording import SEVEREST_FIRST

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MOST_SHOWN = 10
"""Of each command that GitHub shows for a step; https://docs.github.com/rest/checks/runs."""
_IN_GITLAB = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


def render_github(report: Report) -> str:
    """Write findings as workflow commands: as many as GitHub shows, of all rules that fired.

    Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
    """
    return "".join(f"{line}\n" for line in _commands(report))


def _commands(report: Report) -> Iterator[str]:
    findings = file_findings(report, group_findings(report))
    shown = 0
    for severity in SEVEREST_FIRST:
        for one in [one for one in findings if one.finding.severity is severity][:_MOST_SHOWN]:
            place = f"file={_property(visible(one.path))},title={_property(visible(one.title))}"
            yield f"::{_COMMANDS[severity]} {place}::{_data(one.text)}"
            shown += 1
    if report.total > shown:
        more = plural(report.total - shown, "finding")
        yield f"{more} more: GitHub shows {_MOST_SHOWN} errors and {_MOST_SHOWN} warnings of a step"


def protect_from_commands(text: str) -> str:
    """Text that GitHub takes no commands from: names in shards may look like some."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}::{token}::\n"


def _data(text: str) -> str:
    """As @actions/core escapes messages: ``escapeData`` of ``packages/core/src/command.ts``."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_gitlab(report: Report) -> str:
    """Write findings as a report of code quality, to be saved as UTF-8.

    Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format.
    """
    return dump_json(
        [
            {
                "description": f"{visible(one.title)}: {one.text}",
                "check_name": one.group.code,
                "fingerprint": one.fingerprint,
                "severity": _IN_GITLAB[one.finding.severity],
                "location": {"path": visible(one.path), "lines": {"begin": 1}},
            }
            for one in file_findings(report, group_findings(report))
        ]
    )

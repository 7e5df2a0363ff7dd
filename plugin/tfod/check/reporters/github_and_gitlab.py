"""The findings as services for CI take them: each in a file of the working folder; as lines that
GitHub Actions shows beside files, and as GitLab's code quality.

Such services show findings beside lines of source code. A shard has no lines: the message says
which record and byte, and all is in line 1.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.fingerprints import digest_of, fingerprint_of
from tfod.check.findings.report import Report
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.json_and_junit import dump_json
from tfod.check.reporters.wording import SEVEREST_FIRST, place_parts
from tfod.tfrecord.storage.urls import is_url

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MOST_SHOWN = 10
"""Of each command that GitHub shows for a step; https://docs.github.com/rest/checks/runs."""
_IN_GITLAB = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}
RULES_PAGES = "https://github.com/tfod/tfod/blob/main/docs/rules"
"""Where the pages of the rules are; see ``Documentation`` in ``pyproject.toml``."""


@dataclass(frozen=True)
class FileFinding:
    """A finding, and what is said of it in a file.

    Attributes:
        finding: what was found.
        group: all that is known of its rule's findings.
        path: of the file, with slashes: relative to the working folder if it is in it; of an entry
            of a zip that of the zip. A URL where the file is remote.
        message: where in the file, and what is wrong.
        fingerprint: what a baseline knows the finding by, and which one of several it is; no two
            of a report have the same.
    """

    finding: Finding
    group: Group
    path: str
    message: str
    fingerprint: str

    @property
    def title(self) -> str:
        """Code and title of the rule."""
        return f"{self.group.code} {self.group.title}".rstrip()

    @property
    def text(self) -> str:
        """The message, and what to do."""
        fix = visible(self.finding.fix)
        return f"{self.message}\nFix: {fix}" if fix else self.message


def file_findings(report: Report, groups: Sequence[Group]) -> list[FileFinding]:
    """The listed findings: severest first, and of each severity one of each rule first.

    So the few that a service shows are of all rules.
    """
    seen: Counter[str] = Counter()
    by_rule = [[_in_file(report, group, one, seen) for one in group.findings] for group in groups]
    in_turn = filter(None, chain.from_iterable(zip_longest(*by_rule)))
    return sorted(in_turn, key=lambda one: -one.finding.severity.rank)


def _in_file(report: Report, group: Group, finding: Finding, seen: Counter[str]) -> FileFinding:
    source = report.source_of(finding.shard)
    name = source or (report.sources[0].name if report.sources else ".")
    entry = finding.shard[len(source) :].lstrip(":")
    place = " ".join(place_parts(replace(finding, shard=entry)))
    message = visible(finding.message)
    fingerprint = digest_of(fingerprint_of(finding, group.title, None)).hex()
    seen[fingerprint] += 1
    return FileFinding(
        finding,
        group,
        path_in_folder(name),
        f"{place}: {message}" if place else message,
        f"{fingerprint}:{seen[fingerprint]}",
    )


def path_in_folder(name: str) -> str:
    """A file's path with slashes: relative to the working folder, if it is in it."""
    if is_url(name):
        return name
    path = os.path.abspath(name)
    if os.path.join(path, "").startswith(os.path.join(os.getcwd(), "")):
        path = os.path.relpath(path)
    return path.replace(os.sep, "/")


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

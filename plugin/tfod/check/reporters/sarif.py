"""The report as SARIF 2.1.0, which GitHub's code scanning, Azure DevOps and editors read.

Sources: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html, and what GitHub requires
beyond it: https://docs.github.com/code-security/reference/code-scanning/sarif-files
(sarif-support-for-code-scanning): texts that are not empty, a region in lines, and
``primaryLocationLineHash``, by which it knows an alert again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from tfod.check.findings.finding import Severity, plural
from tfod.check.findings.report import Report
from tfod.check.reporters.github_and_gitlab import RULES_PAGES, FileFinding, file_findings
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.json_and_junit import dump_json
from tfod.tfrecord.storage.urls import is_url

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_NO_LINES = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
"""A shard has no lines; GitHub shows nothing without."""
_IN_URLS = "/:%?#[]@!$&'()*+,;="
_SAID_ELSEWHERE = ("code", "severity", "message")


def render_sarif(report: Report) -> str:
    """Write a report as SARIF, to be saved as UTF-8: the rules that fired, the listed findings.

    A result's record, byte, feature and value are its properties.
    """
    groups = group_findings(report)
    run = {
        "tool": {
            "driver": {
                "name": "tfod",
                "version": report.version,
                "informationUri": RULES_PAGES.partition("/blob/")[0],
                "rules": [_rule(group) for group in groups],
            }
        },
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": text}} for text in _not_listed(report)
                ],
            }
        ],
        "results": [_result(one, groups) for one in file_findings(report, groups)],
        "properties": {"valid": report.valid, "receiver": report.receiver},
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return dump_json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _rule(group: Group) -> dict[str, Any]:
    title, why = group.title or group.code, group.why or group.title or group.code
    fix = f"What to do: {group.fix}" if group.fix else ""
    source = f"Source: {group.source}" if group.source else ""
    return {
        "id": group.code,
        "shortDescription": {"text": title},
        "fullDescription": {"text": why},
        "help": {"text": "\n\n".join(filter(None, (why, fix, source)))},
        "helpUri": f"{RULES_PAGES}/{group.code[:3]}.md#{group.code.lower()}",
        "defaultConfiguration": {"level": _LEVELS[group.severity]},
    }


def _result(one: FileFinding, groups: Sequence[Group]) -> dict[str, Any]:
    properties = one.finding.to_json()
    location = {"artifactLocation": {"uri": _uri(one.path)}, "region": _NO_LINES}
    return {
        "ruleId": one.group.code,
        "ruleIndex": groups.index(one.group),
        "level": _LEVELS[one.finding.severity],
        "message": {"text": one.text},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"primaryLocationLineHash": one.fingerprint},
        "properties": {
            key: value
            for key, value in properties.items()
            if key not in _SAID_ELSEWHERE and value is not None
        },
    }


def _uri(path: str) -> str:
    """A path as a URI, relative where the path is; a colon in a name is not that of a scheme."""
    if is_url(path):
        return quote(path, safe=_IN_URLS, errors="surrogatepass")
    uri = quote(path, errors="surrogatepass")
    if path.startswith("/"):
        return f"file://{uri}"
    return f"file:///{uri}" if path[1:2] == ":" and path[2:3] == "/" else uri  # Windows


def _not_listed(report: Report) -> list[str]:
    count = report.total - len(report.findings)
    return [f"{plural(count, 'finding')} more than are listed"] if count > 0 else []

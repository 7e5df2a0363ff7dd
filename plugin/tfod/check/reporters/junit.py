"""The report as JUnit XML, which Jenkins, GitLab and their like show beside other tests.

A test suite is a shard (or another file, or the data set as a whole); a test case is a rule that
fired there. It has failed when the rule's severity fails the check; findings of lesser severity
are the output of a test that has passed. A file without failures has one more test that has
passed, so that each file is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from tfod.check.amounts import plural
from tfod.check.finding import Finding
from tfod.check.report import Report, SourceFile
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import Group, group_findings
from tfod.check.reporters.wording import decoded, place_parts
from tfod.check.rules.registry import Rule

_EVERYTHING = "the data set"
"""Name of the suite of findings that are about no single file."""
_UNLISTED = "findings that are not listed"


def render_junit(report: Report, *, rules: Mapping[str, Rule] | None = None) -> str:
    """Write a report as JUnit XML, to be saved as UTF-8.

    Args:
        report: the report.
        rules: where titles, reasons and fixes come from; all rules by default.
    """
    groups = group_findings(report, rules)
    sources = {one.name: one for one in report.sources}
    root = ElementTree.Element("testsuites", name="tfod check", time=f"{report.duration:.3f}")
    for name, counts in _suites(report, groups).items():
        suite = ElementTree.SubElement(root, "testsuite", name=visible(name) or _EVERYTHING)
        _add_properties(suite, report, name, sources.get(name))
        for group in groups:
            if counts.get(group.code):
                _add_case(suite, name, group, counts[group.code], report)
        _close(suite, report)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, 0)) for suite in root)))
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


def _suites(report: Report, groups: list[Group]) -> dict[str, dict[str, int]]:
    """Findings by rule of each file, sources first; no finding is left out."""
    suites: dict[str, dict[str, int]] = {source.name: {} for source in report.sources}
    for group in groups:
        by_shard = dict(group.by_shard)
        if not by_shard:
            for finding in group.findings:
                by_shard[finding.shard] = by_shard.get(finding.shard, 0) + 1
        left = group.total - sum(by_shard.values())
        if left > 0:
            by_shard[_UNLISTED] = left
        for shard, count in by_shard.items():
            suites.setdefault(shard, {})[group.code] = count
    # An archive of which only entries have findings is told by those.
    told = {name for name in suites if not suites[name] and _has_entries(name, suites)}
    return {name: codes for name, codes in suites.items() if name not in told} or {"": {}}


def _has_entries(archive: str, suites: dict[str, dict[str, int]]) -> bool:
    return any(name.startswith(f"{archive}:") and codes for name, codes in suites.items())


def _add_properties(
    suite: ElementTree.Element, report: Report, name: str, source: SourceFile | None
) -> None:
    dataset = report.dataset_of(name)
    values = {
        "receiver": report.receiver,
        "dataset": dataset.name if dataset else "",
        "profile": dataset.profile.name if dataset else report.profile.name,
        "decoded": decoded(report),
    }
    if source:
        values.update(bytes=str(source.bytes or ""), sha256=source.sha256 or "")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in values.items():
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=visible(value))


def _add_case(
    suite: ElementTree.Element, shard: str, group: Group, count: int, report: Report
) -> None:
    listed = [one for one in group.findings if one.shard == shard]
    case = _case(suite, f"{group.code} {group.title}".rstrip())
    text = "\n".join(_lines(group, listed, count))
    if group.severity.rank < report.fail_on.rank:
        ElementTree.SubElement(case, "system-out").text = f"{group.severity.value}\n{text}"
        return
    first = visible(listed[0].message if listed else group.title)
    message = first if count == 1 else f"{plural(count, 'finding')}, the first: {first}"
    failure = ElementTree.SubElement(case, "failure", message=message, type=group.severity.value)
    failure.text = text


def _lines(group: Group, listed: list[Finding], count: int) -> Iterator[str]:
    """What a failed test prints: the findings, and what to do about them."""
    for finding in listed:
        place = " ".join(place_parts(finding))
        message = visible(finding.message)
        yield f"{place}: {message}" if place else message
        if finding.fix != group.fix:
            yield f"    {visible(finding.fix)}"
    if count > len(listed):
        yield f"and {count - len(listed):,} more"
    if group.why:
        yield f"Why: {visible(group.why)}"
    if group.fix:
        yield f"Fix: {visible(group.fix)}"


def _close(suite: ElementTree.Element, report: Report) -> None:
    """Say that a file is sound if it is, and count."""
    if suite.find("testcase/failure") is None:
        _case(suite, f"nothing found that fails ({report.fail_on.value} or worse)")
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", "0")
    suite.set("time", "0.000")  # shards are not timed one by one; the root has the duration


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    # Jenkins takes what is before the last dot for a package and shows one folder for each.
    classname = "tfod." + suite.get("name", "").replace(".", "_")
    return ElementTree.SubElement(
        suite, "testcase", name=visible(name), classname=classname, time="0.000"
    )

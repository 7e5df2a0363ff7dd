"""The report as the JUnit XML that Jenkins and GitLab show beside tests.

A test suite is a shard (or another file, or the data set as a whole), and a test case is a rule
that fired there. It has failed when the rule's severity fails the check; findings of lesser
severity are the output of a test that has passed. A file without failures has one more test that
has passed, so that each file is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tfod.check.findings.finding import Finding, plural
from tfod.check.findings.report import Report, SourceFile
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.wording import Group, decoded, group_findings, place_parts

_EVERYTHING = "the data set"
"""Name of the suite of findings that are about no single file."""


def render_junit(report: Report) -> str:
    """Write a report as JUnit XML, to be saved as UTF-8."""
    groups = group_findings(report)
    sources = {one.name: one for one in report.sources}
    root = Element("testsuites", name="tfod check", time=f"{report.duration:.3f}")
    for name, counts in _suites(report).items():
        suite = SubElement(root, "testsuite", name=visible(name) or _EVERYTHING)
        properties = SubElement(suite, "properties")
        for key, value in filter(all, _properties(report, name, sources.get(name)).items()):
            SubElement(properties, "property", name=key, value=visible(value))
        for group in (one for one in groups if one.code in counts):
            _add_case(suite, name, group, counts[group.code], report)
        if suite.find("testcase/failure") is None:
            _case(suite, f"nothing found that fails ({report.fail_on.value} or worse)")
        suite.set("skipped", "0")
        suite.set("time", "0.000")  # shards are not timed one by one; the root has the duration
    for one in (root, *root):
        one.set("tests", str(len(one.findall(".//testcase"))))
        one.set("failures", str(len(one.findall(".//failure"))))
        one.set("errors", "0")
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suites(report: Report) -> Mapping[str, Mapping[str, int]]:
    """Findings by rule of each file, sources first; no finding is left out."""
    found = report.counts.by_shard
    suites = {one.name: found.get(one.name, {}) for one in report.sources} | dict(found)
    # An archive whose only findings are in its entries is shown by those.
    inside = {report.source_of(name) for name in found}
    shown = {name: codes for name, codes in suites.items() if codes or name not in inside}
    return shown or {"": {}}


def _properties(report: Report, name: str, source: SourceFile | None) -> dict[str, str]:
    dataset = report.dataset_of(name)
    return {
        "receiver": report.receiver,
        "dataset": dataset.name if dataset else "",
        "profile": dataset.profile.name if dataset else report.profile.name,
        "decoded": decoded(report),
        "bytes": str(source.bytes or "") if source else "",
        "sha256": (source.sha256 or "") if source else "",
    }


def _add_case(suite: Element, shard: str, group: Group, count: int, report: Report) -> None:
    listed = [one for one in group.findings if one.shard == shard]
    case = _case(suite, f"{group.code} {group.rule.title}")
    text = "\n".join(_lines(group, listed, count))
    if group.severity.rank < report.fail_on.rank:
        SubElement(case, "system-out").text = f"{group.severity.value}\n{text}"
        return
    first = visible(listed[0].message if listed else group.rule.title)
    message = first if count == 1 else f"{plural(count, 'finding')}, the first: {first}"
    SubElement(case, "failure", message=message, type=group.severity.value).text = text


def _lines(group: Group, listed: Sequence[Finding], count: int) -> Iterator[str]:
    """What a failed test prints: the findings, and what to do about them."""
    for finding in listed:
        place = " ".join(place_parts(finding))
        message = visible(finding.message)
        yield f"{place}: {message}" if place else message
        if finding.fix != group.fix:
            yield f"    {visible(finding.fix)}"
    if count > len(listed):
        yield f"and {count - len(listed):,} more"
    if group.rule.why:
        yield f"Why: {visible(group.rule.why)}"
    yield f"Fix: {visible(group.fix)}"


def _case(suite: Element, name: str) -> Element:
    # Jenkins takes what is before the last dot for a package and shows one folder for each.
    classname = "tfod." + suite.get("name", "").replace(".", "_")
    return SubElement(suite, "testcase", name=visible(name), classname=classname, time="0.000")

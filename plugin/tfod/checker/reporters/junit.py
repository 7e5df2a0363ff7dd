"""The report as the JUnit XML that Jenkins and GitLab show beside tests.

A test suite is a file that was checked (or a label map, or the data set as a whole), and a test
case is a rule that fired there. It has failed when the rule's severity fails the check; findings of
lesser severity are the output of a test that has passed. A file without failures has one more test
that has passed, so that each file is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tfod.checker.finding import Finding, plural
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.wording import Group, group_findings, place_of

_EVERYTHING = "the data set"
"""Name of the suite of findings that are about no single file."""


def render_junit(report: Report) -> str:
    """Write a report as JUnit XML, to be saved as UTF-8."""
    groups = group_findings(report)
    root = Element("testsuites", name="tfod check", time=f"{report.duration:.3f}")
    for name, counts in _by_file(report).items():
        # Files are not timed one by one; the root has the duration.
        suite = SubElement(
            root, "testsuite", name=visible(name) or _EVERYTHING, skipped="0", time="0.000"
        )
        properties = SubElement(suite, "properties")
        dataset = report.dataset_of(name)
        profile = (dataset or report).profile.name
        known = {"receiver": report.receiver, "profile": profile}
        known |= {"dataset": dataset.name} if dataset else {}
        for key, value in known.items():
            SubElement(properties, "property", name=key, value=visible(value))
        for group in (one for one in groups if one.code in counts):
            listed = [one for one in group.findings if report.source_of(one.shard) == name]
            _add_case(suite, group, listed, counts[group.code], report)
        if suite.find("testcase/failure") is None:
            _case(suite, f"nothing found that fails ({report.fail_on.value} or worse)")
    for one in (root, *root):
        one.set("tests", str(len(one.findall(".//testcase"))))
        one.set("failures", str(len(one.findall(".//failure"))))
        one.set("errors", "0")
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _by_file(report: Report) -> Mapping[str, Mapping[str, int]]:
    """Findings by rule of each file, sources first; no finding is left out."""
    files: dict[str, Counter[str]] = {one.name: Counter() for one in report.sources}
    for shard, found in report.counts.by_shard.items():
        files.setdefault(report.source_of(shard), Counter()).update(found)
    return files or {"": {}}


def _add_case(
    suite: Element, group: Group, listed: Sequence[Finding], count: int, report: Report
) -> None:
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
        yield ": ".join(filter(None, (place_of(finding), visible(finding.message))))
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

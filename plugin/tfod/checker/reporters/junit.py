"""The report as JUnit XML, which Jenkins and GitLab show with test results.

A test suite is a file that was checked, a label map, or the whole dataset. A test case is a rule
with findings; it passes if their severity does not fail the check. A file without failures has
another passing test, so that every file is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tfod.checker.finding import Finding, plural
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.groups import Group, group_findings
from tfod.checker.reporters.wording import format_location, format_verdict

_WHOLE_DATASET = "the dataset"  # name of the suite with the findings that do not concern one file


def render_junit(report: Report) -> str:
    """Format a report as JUnit XML, to be saved as UTF-8."""
    groups = group_findings(report)
    root = Element("testsuites", name="tfod check", time=f"{report.duration:.3f}")
    for name, counts in _by_file(report).items():
        # The root has the duration, since files are not timed separately.
        title = visible(name) or _WHOLE_DATASET
        suite = SubElement(root, "testsuite", name=title, skipped="0", time="0.000")
        properties = SubElement(suite, "properties")
        dataset = report.find_dataset(name)
        profile = (dataset or report).profile.name
        values = {"receiver": report.receiver, "profile": profile}
        values |= {"dataset": dataset.name} if dataset else {}
        values |= {"verdict": format_verdict(report)}
        for key, value in values.items():
            SubElement(properties, "property", name=key, value=visible(value))
        for group in (group for group in groups if group.code in counts):
            listed = [item for item in group.findings if report.find_source(item.shard) == name]
            parts = [item for item in groups if item.code == group.code]
            if len(parts) == 1:  # otherwise, another rule explains some of the findings
                _add_rule(suite, group, listed, counts[group.code], report)
            elif listed:
                _add_rule(suite, group, listed, len(listed), report)
        if suite.find("testcase/failure") is None:
            new = "" if report.baseline is None else "new "
            _add_case(suite, f"no {new}findings that fail ({report.fail_on.value} or worse)")
    for element in (root, *root):
        element.set("tests", str(len(element.findall(".//testcase"))))
        element.set("failures", str(len(element.findall(".//failure"))))
        element.set("errors", "0")
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _by_file(report: Report) -> Mapping[str, Mapping[str, int]]:
    """Count all findings by file and rule, with the sources first."""
    files: dict[str, Counter[str]] = {source.name: Counter() for source in report.sources}
    for shard, counts in report.counts.by_shard.items():
        files.setdefault(report.find_source(shard), Counter()).update(counts)
    return files or {"": {}}


def _add_rule(
    suite: Element, group: Group, listed: Sequence[Finding], count: int, report: Report
) -> None:
    case = _add_case(suite, f"{group.code} {group.rule.title}")
    text = "\n".join(_format_lines(group, listed, count))
    if group.severity.rank < report.fail_on.rank:
        SubElement(case, "system-out").text = f"{group.severity.value}\n{text}"
        return
    first = visible(listed[0].message if listed else group.rule.title)
    message = first if count == 1 else f"{plural(count, 'finding')}, the first: {first}"
    SubElement(case, "failure", message=message, type=group.severity.value).text = text


def _format_lines(group: Group, listed: Sequence[Finding], count: int) -> Iterator[str]:
    """Yield the output of a test: the findings, and how to fix them."""
    for finding in listed:
        yield ": ".join(filter(None, (format_location(finding), visible(finding.message))))
        if finding.fix:
            yield f"    {visible(finding.fix)}"
    if count > len(listed):
        yield f"and {count - len(listed):,} more"
    if group.rule.why:
        yield f"Why: {visible(group.rule.why)}"
    yield f"Fix: {visible(group.fix)}"


def _add_case(suite: Element, name: str) -> Element:
    # Jenkins treats the text before the last dot as a package, and shows a folder for each.
    classname = "tfod." + suite.get("name", "").replace(".", "_")
    return SubElement(suite, "testcase", name=visible(name), classname=classname, time="0.000")

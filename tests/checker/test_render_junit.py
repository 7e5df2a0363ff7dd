"""The report as JUnit XML: what Jenkins and GitLab make of it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from tfod.checker.report import Report
from tfod.checker.reporters.junit import render_junit

from tests.checker.reports import HOSTILE, WARNING, found, make_report

pytestmark = pytest.mark.usefixtures("made_up_rules")

SHAPE = etree.RelaxNG(
    etree.fromstring(
        """
<grammar xmlns="http://relaxng.org/ns/structure/1.0"
         datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
  <define name="counts">
    <attribute name="tests"><data type="nonNegativeInteger"/></attribute>
    <attribute name="failures"><data type="nonNegativeInteger"/></attribute>
    <attribute name="errors"><data type="nonNegativeInteger"/></attribute>
    <attribute name="time"><data type="decimal"/></attribute>
    <attribute name="name"/>
  </define>
  <start>
    <element name="testsuites"><ref name="counts"/><oneOrMore>
      <element name="testsuite"><ref name="counts"/>
        <attribute name="skipped"><data type="nonNegativeInteger"/></attribute>
        <element name="properties"><zeroOrMore>
          <element name="property"><attribute name="name"/><attribute name="value"/></element>
        </zeroOrMore></element>
        <oneOrMore><element name="testcase">
          <attribute name="name"/><attribute name="classname"/>
          <attribute name="time"><data type="decimal"/></attribute>
          <optional><choice>
            <element name="failure">
              <attribute name="message"/><attribute name="type"/><text/>
            </element>
            <element name="system-out"><text/></element>
          </choice></optional>
        </element></oneOrMore>
      </element>
    </oneOrMore></element>
  </start>
</grammar>"""
    )
)
"""What the schemas of Jenkins' xUnit plugin and of Surefire have in common."""


def suites(report: Report) -> dict[str, ElementTree.Element]:
    """The suites by name, of XML that has the right shape and counts."""
    document = render_junit(report).encode()
    SHAPE.assertValid(etree.fromstring(document))
    root = ElementTree.fromstring(document)
    for total, path in (("tests", ".//testcase"), ("failures", ".//failure")):
        for one in (root, *root):
            assert int(one.get(total, "")) == len(one.findall(path))
    return {one.get("name", ""): one for one in root}


def names(suite: ElementTree.Element, path: str = "testcase") -> list[str]:
    return [one.get("name", "") for one in suite.findall(path)]


def failures(suite: ElementTree.Element) -> list[str]:
    return names(suite, "testcase[failure]")


def test_each_file_is_a_suite_and_each_rule_that_fails_a_failed_test() -> None:
    findings = [
        found("BOX903", "box 1 is outside", record=1, offset=2, item="1.jpg"),
        found("BOX903", "box 2 is outside", record=3, offset=4),
        found("LAB906", "'A' is 'a' in the map", record=1),
    ]
    both = suites(make_report(findings, sources=["a.record", "b.record"]))
    assert list(both) == ["a.record", "b.record"]
    bad, clean = both.values()
    assert failures(bad) == ["BOX903 box outside the image"]
    failure = bad.find(".//failure")
    assert failure is not None and failure.get("type") == "error"
    assert failure.get("message") == "2 findings, the first: box 1 is outside"
    assert (failure.text or "").splitlines() == [
        "a.record, record 1, byte 2 (1.jpg): box 1 is outside",
        "a.record, record 3, byte 4: box 2 is outside",
        "Why: The trainer stops on coordinates above 1.1.",
        "Fix: Clip boxes to the image.",
    ]
    assert "'A' is 'a' in the map" in (bad.findtext("testcase/system-out") or "")
    assert names(clean) == ["no findings that fail (error or worse)"]
    assert failures(clean) == []
    # Jenkins makes a package of what is in front of a dot.
    assert [one.get("classname") for one in clean] == [None, "tfod.b_record"]
    assert list(suites(make_report(sources=[]))) == ["the dataset"]


def test_the_failing_level_decides() -> None:
    one = [found("LAB906", "x", record=1)]
    passed, failed = suites(make_report(one)), suites(make_report(one, fail_on=WARNING))
    assert failures(passed["a.record"]) == []
    assert len(names(passed["a.record"])) == 2
    assert len(failures(failed["a.record"])) == 1


def test_files_that_are_no_source_and_the_set_as_a_whole() -> None:
    found_there = suites(
        make_report([found("SET901", "one is missing", ""), found("BOX903", "x", "z.zip/b.record")])
    )
    assert set(found_there) == {"a.record", "the dataset", "z.zip/b.record"}
    assert failures(found_there["the dataset"]) == ["SET901 a shard of the set is missing"]


def test_findings_that_are_not_listed_fail_as_well() -> None:
    findings = [found("BOX903", f"x {n}", "ab"[n > 2] + ".record", record=n) for n in range(9)]
    there = suites(make_report(findings, most=2, sources=["a.record", "b.record"]))
    assert [name for name in there if failures(there[name])] == ["a.record", "b.record"]
    assert "and 1 more\n" in (there["a.record"].findtext(".//failure") or "")
    assert "and 6 more\n" in (there["b.record"].findtext(".//failure") or "")


@given(st.text() | st.sampled_from(HOSTILE))
def test_any_text_makes_valid_xml(text: str) -> None:
    finding = found("BOX903", text, text, item=text, feature=text, fix=text)
    suites(make_report([finding], sources=[text, "b"]))

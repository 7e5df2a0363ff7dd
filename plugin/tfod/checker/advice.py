"""Advice of a report: the causes of findings, and fixes with commands that can be typed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING

from tfod.checker.finding import Finding, Rule, plural
from tfod.checker.receivers import ANY, CVAT
from tfod.checker.reporters.escaping import visible
from tfod.checker.rules.registry import all_rules
from tfod.errors import excerpt

if TYPE_CHECKING:
    from tfod.checker.report import DatasetReport, Report

_COMMAND = re.compile(r"(.*: )((?:tfod|datum) [a-z]+ .*[^.])", re.DOTALL)
_OTHER_WAY = re.compile(r"(,? or |\. To )(?:(?!,? or |\. ).)*:$")
_NOT_ON_PAGE = re.compile(r"--[a-z]|TFOD_|\btfod (?!do)|\bgit ")
_SOURCE = re.compile(r"(?<=\btfod )([a-z]+) SOURCE\b( [a-z]\w*)?")
_PLACEHOLDER = re.compile(r"\{(script|tool|box|image|file)\}")
_GENERAL = {
    "script": "the script that wrote the shard",
    "tool": "the annotation tool",
    "box": "the box",
    "image": "the image",
    "file": "the file",
}


def advise(report: Report) -> list[Finding]:
    """Return the findings of a report with their causes and complete commands in their fixes.

    A finding that another one explains names that one instead of a fix of its own.
    """
    causes, sources, findings = Causes(report), dict[tuple[str, str], str](), []
    for finding in report.findings:
        fix, cause = finding.fix, causes.find(finding.code, finding.shard, finding.record)
        if cause:
            fix = f"See {cause}, the cause of this: {all_rules()[cause].title}."
        elif " SOURCE" in fix:
            dataset = report.find_dataset(finding.shard)
            key = finding.code, dataset.name if dataset else ""
            if key not in sources:
                shards = [
                    shard
                    for shard, counts in report.counts.by_shard.items()
                    if finding.code in counts and not causes.find(finding.code, shard)
                ]
                datasets = [dataset] if dataset else report.datasets
                sources[key] = find_source_with(report, shards, datasets)
            fix = complete_command(report, fix, sources[key])
        finding = finding._replace(template=name_tool(report, fix), cause=cause)
        findings.append(finding._replace(fix=fill_in(finding.template, [finding])))
    return findings


def name_tool(report: Report, fix: str) -> str:
    """Name the tool in which boxes are drawn, as far as the receiver of a report tells it."""
    is_cvat = report.receiver in (ANY.name, CVAT.name)
    return fix.replace("{tool}", "CVAT") if is_cvat else fix


def fill_in(template: str, findings: Sequence[Finding] = ()) -> str:
    """Name the script, box, image or file of the first finding in a fix, and count its images."""
    names = dict(_GENERAL)
    if findings:
        finding = next((item for item in findings if item.record is not None), findings[0])
        count = len({(item.shard, item.record) for item in findings}) - 1
        more = plural(count, "more image") if count else ""
        names |= {"file": finding.shard, "script": f"the script that wrote {finding.shard}"}
        if finding.record is not None:
            image = finding.item or f"record {finding.record} of {finding.shard}"
            records = f"the records of {image} and {more}" if more else f"the record of {image}"
            names["script"] = f"the script that wrote {records if finding.item else image}"
            names["image"] = f"{image} (the same applies to {more})" if more else image
        number = finding.value.get("object") if isinstance(finding.value, dict) else None
        name = excerpt(finding.object_class) if finding.object_class else number
        names |= {"box": f"box {name}"} if name is not None else {}
    return _PLACEHOLDER.sub(lambda match: names[match[1]], template)


def fit_to_page(template: str, rule: Rule) -> str:
    """Return a fix for users of the service, who have no command line, and perhaps no script."""
    if _NOT_ON_PAGE.search(template) and rule.on_page:
        return rule.on_page
    return ask_author(template)


def ask_author(template: str) -> str:
    """Return a fix without a command, for people who did not write the script."""
    return strip_command(template).replace("In {script}, ", "Ask the author of {script} to ")


def complete_command(report: Report, fix: str, source: str) -> str:
    """Replace SOURCE in the command of a fix, and write next to the current folder.

    ``tfod repair`` gets the receiver and the profile of the check, so that it counts the same
    errors.
    """
    options = {"--for": report.receiver, "--profile": report.profile.argument}
    given = "".join(
        f" {name} {shlex.quote(visible(value))}"
        for name, value in options.items()
        if value not in ("", ANY.name)
    )

    def name_source(match: re.Match[str]) -> str:
        target = (match[2] or "").lstrip()
        if target:
            target += "2" if target in os.path.normpath(source).split(os.sep)[:1] else ""
            target = f" ../{target}" if os.path.normpath(source) == os.curdir else f" {target}"
        more = given if match[1] == "repair" else ""
        return f"{match[1]} {shlex.quote(visible(source))}{target}{more}"

    return _SOURCE.sub(name_source, fix) if source else fix


def split_command(fix: str) -> tuple[str, str]:
    """Split a fix into its sentence and the command at its end, or an empty text."""
    match = _COMMAND.fullmatch(fix)
    return (match[1].rstrip(), match[2]) if match else (fix, "")


def strip_command(fix: str) -> str:
    """Return a fix without the way that is a command, for people without a command line."""
    sentence, command = split_command(fix)
    return f"{_OTHER_WAY.sub('', sentence).rstrip(':.')}." if command else fix


def find_source_with(
    report: Report, shards: Iterable[str], datasets: Iterable[DatasetReport]
) -> str:
    """Return the file or folder that contains these shards, or those of these label maps, or ""."""
    names = set(shards)
    names |= {shard.name for shard in report.shards if shard.label_map in names}
    sources = set(map(report.find_source, names))
    for dataset in datasets:
        files = [name for name in dataset.sources if name in sources and not name.startswith("<")]
        folder = "" if dataset.name == "." else f"{dataset.name.rstrip('/')}/"
        is_folder = len(files) > 1 and all(name.startswith(folder) for name in files)
        if files:
            return dataset.name if is_folder else files[0]
    return ""


class Causes:
    """The rules whose findings explain those of other rules, by code and location."""

    def __init__(self, report: Report) -> None:
        rules = all_rules()
        self._report = report
        self._codes: dict[tuple[str, str, int | None], str] = {}
        self._boxes = {shard.name: shard.boxes for shard in report.shards}
        candidates = [
            finding
            for finding in report.findings
            if finding.code in rules and rules[finding.code].explains
        ]

        def add(cause: Finding) -> None:
            record = None if self._is_general(cause) else cause.record
            for code in rules[cause.code].explains:
                self._codes.setdefault((code, cause.shard, record), cause.code)
                for name in cause.covers:
                    self._codes.setdefault((code, name, None), cause.code)

        for candidate in candidates:
            add(candidate)
        roots = [item for item in candidates if not self.find(item.code, item.shard, item.record)]
        self._codes.clear()
        for root in roots:
            add(root)

    def _is_general(self, finding: Finding) -> bool:
        """Return whether a finding is about a whole shard, not a slip in one record."""
        count = self._report.counts.by_shard.get(finding.shard, {}).get(finding.code, 0)
        return finding.record is None or 2 * count > self._boxes.get(finding.shard, count) > 0

    def find_general(self, codes: Set[str]) -> list[Finding]:
        """Return the findings about whole shards that explain findings of these rules."""
        rules = all_rules()
        return [
            finding
            for finding in self._report.findings
            if rules[finding.code].explains & codes and self._is_general(finding)
        ]

    def find(self, code: str, shard: str, record: int | None = None) -> str:
        """Return the code of the rule that explains a finding; "" if there is none."""
        source = self._report.find_source(shard)
        keys = (code, shard, record), (code, shard, None), (code, source, None)
        return next((self._codes[key] for key in keys if key in self._codes), "")

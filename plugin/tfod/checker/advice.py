"""Advice of a report: the causes of findings, and fixes with commands that can be typed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from tfod.checker.finding import Finding
from tfod.checker.reporters.escaping import visible
from tfod.checker.rules.registry import all_rules

if TYPE_CHECKING:
    from tfod.checker.report import DatasetReport, Report

_COMMAND = re.compile(r"(.*: )((?:tfod|datum) [a-z]+ .*[^.])", re.DOTALL)
_SOURCE = re.compile(r"(?<=\btfod )([a-z]+) SOURCE\b( [a-z]\w*)?")
_LABEL_MAP = re.compile(r"(?<=--label-map )MAP\b")


def advise(report: Report) -> list[Finding]:
    """Return the findings of a report with their causes and complete commands in their fixes.

    A finding that another one explains names that one instead of a fix of its own.
    """
    causes, sources, label_maps = Causes(report), dict[tuple[str, str], str](), dict[str, str]()
    label_maps |= {shard.name: shard.label_map for shard in report.shards if shard.label_map}
    findings = []
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
            label_map = label_maps.get(finding.shard, "")
            is_file = label_map and report.find_source(label_map) == label_map
            if _LABEL_MAP.search(fix) and not is_file:  # commands cannot name a file in a zip
                fix = strip_command(fix)
            fix = _complete(fix, sources[key], label_map)
        findings.append(finding._replace(fix=fix, cause=cause))
    return findings


def _complete(fix: str, source: str, label_map: str) -> str:
    """Replace SOURCE and MAP in the command of a fix, and write next to the current folder."""

    def name_source(match: re.Match[str]) -> str:
        target = (match[2] or "").lstrip()
        if target:
            target += "2" if target in os.path.normpath(source).split(os.sep)[:1] else ""
            target = f" ../{target}" if os.path.normpath(source) == os.curdir else f" {target}"
        return f"{match[1]} {shlex.quote(visible(source))}{target}"

    if label_map:
        fix = _LABEL_MAP.sub(lambda _: shlex.quote(visible(label_map)), fix)
    return _SOURCE.sub(name_source, fix) if source else fix


def split_command(fix: str) -> tuple[str, str]:
    """Split a fix into its sentence and the command at its end, or an empty text."""
    match = _COMMAND.fullmatch(fix)
    return (match[1].rstrip(), match[2]) if match else (fix, "")


def strip_command(fix: str) -> str:
    """Return the sentence of a fix without its command, for people without a command line."""
    sentence, command = split_command(fix)
    return f"{sentence.rstrip(':')}." if command else fix


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

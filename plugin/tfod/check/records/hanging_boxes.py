"""Boxes that hang far over the edge of their image, told from boxes in pixels.

Whether a shard is in pixels shows when all its boxes were seen (:mod:`tfod.detection.boxes`),
and shards are read in parts. BOX005 is therefore said of every box that may be in pixels, and what
it turns out to be instead, BOX003, is put right here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Finding, Severity
from tfod.check.findings.fingerprints import Recognised
from tfod.check.records.result import ShardSummary
from tfod.check.rules.boxes import far_outside_message
from tfod.check.rules.registry import Rule, all_rules
from tfod.detection.boxes import touch_image

_PIXELS, _OUTSIDE = "BOX005", "BOX003"


def settle_hanging_boxes(shards: Sequence[ShardSummary], collector: Collector) -> None:
    """Turn findings of BOX005 into such of BOX003, in shards that are not in pixels."""
    tallies = {one.name: one.box_figures for one in shards}
    findings = collector.findings
    counts = findings.counts.get(_PIXELS, Counter[str]())
    hanging = {
        shard: tallies[shard].hanging
        for shard in counts
        if shard in tallies and tallies[shard].far > tallies[shard].in_pixels
    }
    if not hanging:
        return
    rule = all_rules()[_OUTSIDE]
    severity = collector.policy.severity(rule)
    listed = findings.listed[_PIXELS]
    moved = [one for one in listed if one.shard in hanging and _touches(one)]
    for shard, number in hanging.items():
        counts[shard] -= number
        if not counts[shard]:
            del counts[shard]
        if severity is not None:
            findings.count(_OUTSIDE, severity, shard, number)
    for known in findings.recognised.values():
        if known.last[-1].code == _PIXELS and _touches(known.last[-1]):
            _move_known(known, hanging.keys(), rule, severity)
    findings.listed[_PIXELS] = [
        one for one in listed if one.shard not in hanging or not _touches(one)
    ]
    if not counts:
        del findings.counts[_PIXELS], findings.listed[_PIXELS], findings.severities[_PIXELS]
    if moved and severity is not None:
        outside = [_outside(one, rule, severity) for one in moved[: findings.room(_OUTSIDE)]]
        findings.listed[_OUTSIDE].extend(outside)


def _move_known(
    known: Recognised, hanging: Collection[str], rule: Rule, severity: Severity | None
) -> None:
    """The same for findings that a baseline may have."""
    counts, known.counts = known.counts, Counter()
    for (code, shard), number in counts.items():
        if shard not in hanging:
            known.counts[code, shard] += number
        elif severity is not None:
            known.counts[_OUTSIDE, shard] += number
    if severity is not None:
        known.last = [
            _outside(one, rule, severity) if one.shard in hanging else one for one in known.last
        ]


def _corners(finding: Finding) -> list[float]:
    assert isinstance(finding.value, dict)  # of every finding about a box
    corners = finding.value["box"]
    assert isinstance(corners, list)
    return [float(str(one)) for one in corners]


def _touches(finding: Finding) -> bool:
    return bool(touch_image(np.array([_corners(finding)]))[0])


def _outside(finding: Finding, rule: Rule, severity: Severity) -> Finding:
    assert isinstance(finding.value, dict)
    number = finding.value["object"]
    assert isinstance(number, int)
    message = far_outside_message(number, _corners(finding))
    return replace(finding, code=rule.code, severity=severity, message=message, fix=rule.fix)

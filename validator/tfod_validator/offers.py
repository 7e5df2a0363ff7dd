"""What the page offers to do with an upload: repair a copy, or convert it to shards.

The page says before the click what a repair changes, and which errors then remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tfod.checker.finding import Finding, Severity
from tfod.checker.receivers import RECEIVERS
from tfod.checker.report import Report
from tfod.checker.rules.registry import all_rules
from tfod.formats.reading.odd_boxes import OVER_THE_EDGE, list_box_defects
from tfod.sources.format_recognition import FORMATS, recognize_annotations

_SOURCE_ID_RULES = ("NAM010", "NAM011")
_NEW_SOURCE_ID = "The source id becomes a new number; the text is kept in tfod/attributes."
"""The repair for these rules if they are errors for the receiver; else they are not repaired."""
_BOX_RULES = frozenset(("BOX002", "BOX003", "BOX004", "BOX006", "BOX007"))
_CAUSES = frozenset(("BOX005", "BOX012", "BOX013", "BOX022"))
"""Rules about all boxes of a shard, because of which no single box may be clipped or dropped."""
_NO_SHARD = "ZIP013"


def list_offers(report: Report, *, is_repaired: bool) -> list[dict[str, Any]]:
    """Return the repairs that change something, as JSON; none if no record could be read.

    Each has ``odd_boxes`` (``clip``, ``drop`` or empty); ``changes``: code, title, and description
    of a repair or number of boxes; and ``remaining``: code, title and number of errors. A repaired
    copy is only repaired again if its boxes need a decision.
    """
    if not report.counts.records:
        return []
    repairs = {} if is_repaired else _list_repairs(report)
    described = [(code, text) for code, text in repairs.items()]
    offers = [_make_offer(report, "", described, repairs)] if repairs else []
    for odd_boxes in () if _CAUSES & report.counts.by_code.keys() else ("clip", "drop"):
        counts = Counter(item.code for item in report.findings if _is_changed(item, odd_boxes))
        if counts:
            offers.append(_make_offer(report, odd_boxes, sorted(counts.items()), repairs))
    return offers


def _list_repairs(report: Report) -> dict[str, str]:
    """Return the repairs that need no decision, by code."""
    severities = RECEIVERS[report.receiver].severities(None)
    repairs = {code: rule.repair for code, rule in all_rules().items() if rule.repair}
    for code in _SOURCE_ID_RULES:
        repairs[code] = _NEW_SOURCE_ID if severities.get(code) is Severity.ERROR else ""
    codes = dict.fromkeys(item.code for item in report.findings if item.is_repairable)
    return {code: repairs[code] for code in codes if repairs.get(code)}


def _make_offer(
    report: Report,
    odd_boxes: str,
    changes: Sequence[tuple[str, str | int]],
    repairs: dict[str, str],
) -> dict[str, Any]:
    errors = [item for item in report.findings if item.severity.rank >= report.fail_on.rank]
    remaining = Counter(
        item.code
        for item in errors
        if not (item.code in repairs and item.is_repairable)
        and not _is_changed(item, odd_boxes)
        and not item.code.startswith("ZIP")  # the copy is packed again
    )
    listed = Counter(item.code for item in report.findings)
    for code in remaining:  # findings that are not listed
        remaining[code] += report.counts.by_code[code] - listed[code]
    rules = all_rules()
    return {
        "odd_boxes": odd_boxes,
        "changes": [(code, rules[code].title, change) for code, change in changes],
        "remaining": [
            (code, rules[code].title, count) for code, count in sorted(remaining.items())
        ],
    }


def _is_changed(finding: Finding, odd_boxes: str) -> bool:
    """Return whether a repair with this treatment of boxes changes the box of a finding."""
    value = finding.value
    if not odd_boxes or finding.code not in _BOX_RULES or not isinstance(value, dict):
        return False
    (defect,) = list_box_defects(np.array([value["box"]], np.float64))
    return defect == OVER_THE_EDGE if odd_boxes == "clip" else bool(defect)


def find_convertible(report: Report) -> str:
    """Return the title of the format of the only file, a zip without shards; "" if unclear."""
    if _NO_SHARD not in report.counts.by_code or len(report.sources) != 1:
        return ""
    names = recognize_annotations(report.sources[0].name).names
    return FORMATS[names[0]].title if len(names) == 1 else ""

"""What the page offers to do with an upload: repair a copy, or convert it to shards.

The page says before the click what a repair changes, and which errors then remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tfod.checker.finding import Finding, Severity
from tfod.checker.receivers import RECEIVERS
from tfod.checker.report import Report
from tfod.checker.rules.registry import all_rules
from tfod.formats.options import OddBoxes
from tfod.shards.box_repair import find_causes, removes
from tfod.sources.format_recognition import FORMATS, recognize_annotations

_SOURCE_ID_RULES = ("NAM010", "NAM011")
_NEW_SOURCE_ID = "The source id becomes a new number; the text is kept in tfod/attributes."
"""The repair for these rules if they are errors for the receiver; else they are not repaired."""
_NO_SHARD = "ZIP013"
LABELS = {
    "": "Repair a copy",
    "clip": "Clip boxes to the image",
    "drop": "Drop these boxes",
    "convert": "Convert this and check it",
}
"""The labels of the buttons, by ``odd_boxes`` of a repair, or ``convert``."""


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
    for odd_boxes in () if find_causes(report) else ("clip", "drop"):
        changed = [item for item in report.findings if _is_changed(item, odd_boxes)]
        boxes = {(item.shard, item.record, str(item.value)) for item in changed}
        if changed and (odd_boxes == "clip" or len(boxes) < report.counts.boxes):
            counts = Counter(item.code for item in changed)
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
    return bool(odd_boxes) and removes(OddBoxes(odd_boxes), finding)


def list_buttons(offers: Sequence[dict[str, Any]], convertible: str) -> dict[str, list[str]]:
    """Return the labels of the buttons that remove findings, by the code of their rule."""
    buttons = {_NO_SHARD: [LABELS["convert"]]} if convertible else {}
    for offer in offers:
        for code, *_ in offer["changes"]:
            buttons.setdefault(code, []).append(LABELS[offer["odd_boxes"]])
    return buttons


def find_convertible(report: Report) -> str:
    """Return the title of the format of the only file, a zip without shards; "" if unclear."""
    if _NO_SHARD not in report.counts.by_code or len(report.sources) != 1:
        return ""
    names = recognize_annotations(report.sources[0].name).names
    return FORMATS[names[0]].title if len(names) == 1 else ""

"""The repairs that the page offers, and the errors that remain after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check, check_sources
from tfod.checker.finding import Severity
from tfod.checker.receivers import RECEIVERS
from tfod.checker.report import Report
from tfod.formats.options import OddBoxes
from tfod.shards.repair import repair
from tfod.shards.repair_options import Options as RepairOptions
from tfod.sources.resolver import resolve
from tfod_validator.offers import LABELS, find_convertible, list_buttons, list_offers

from tests.mutants.make import all_mutants
from tests.mutants.registry import LIMITS, Mutant
from tests.mutants.sound import CAT_BOX, LABEL_MAP, flip, other, record, shard, with_boxes
from tests.zip_forge import real_zip

OUTSIDE = (0.5, 0.25, 1.3, 0.75)
WHOLLY_OUTSIDE = (1.5, 0.25, 1.8, 0.75)
INVERTED = (0.5, 0.25, 0.25, 0.75)
FLAT = (0.5, 0.25, 0.5, 0.75)
INFINITE = (float("nan"), 0.25, 0.5, 0.75)
PIXELS = (8, 4, 20, 16)


def report_of(path: Path, content: bytes) -> Report:
    """The report of a zip for the OD API's trainer."""
    path.write_bytes(content)
    with resolve([str(path)]) as sources:
        return check(sources, Options(receiver=RECEIVERS["od-api"]))


def zipped(*payloads: bytes) -> bytes:
    return real_zip([("a.record", shard(*payloads)), ("label_map.pbtxt", LABEL_MAP)])


def codes(items: list[tuple[str, str, Any]]) -> dict[str, Any]:
    return {code: number for code, _, number in items}


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        ([], {}),
        ([OUTSIDE], {"clip": ({"BOX003": 1}, {}), "drop": ({"BOX003": 1}, {})}),
        (
            [OUTSIDE, WHOLLY_OUTSIDE],
            {"clip": ({"BOX003": 1}, {"BOX003": 1}), "drop": ({"BOX003": 2}, {})},
        ),
        ([WHOLLY_OUTSIDE], {"drop": ({"BOX003": 1}, {})}),
        (
            [OUTSIDE, INVERTED],
            {"clip": ({"BOX003": 1}, {"BOX006": 1}), "drop": ({"BOX003": 1, "BOX006": 1}, {})},
        ),
        ([INFINITE], {"drop": ({"BOX002": 1}, {})}),
        ([FLAT], {"drop": ({"BOX007": 1}, {})}),
        ([PIXELS], {"drop": ({"BOX005": 1}, {})}),
        ([PIXELS] * 5, {}),  # most boxes
        ([INVERTED, INVERTED], {"drop": ({"BOX006": 2, "BOX009": 1}, {})}),
    ],
)
def test_boxes(tmp_path: Path, boxes: Any, expected: Any) -> None:
    report = report_of(tmp_path / "a.zip", zipped(with_boxes([CAT_BOX, *boxes]), other()))
    offers = {
        offer["odd_boxes"]: (codes(offer["changes"]), codes(offer["remaining"]))
        for offer in list_offers(report, is_repaired=False)
    }
    assert offers == expected


def test_other_repairs_are_offered_once(tmp_path: Path) -> None:
    damaged = flip(shard(with_boxes([CAT_BOX, OUTSIDE]), other()), -1)
    content = real_zip([("a.record", damaged), ("label_map.pbtxt", LABEL_MAP)])
    report = report_of(tmp_path / "a.zip", content)
    plain, clip, drop = list_offers(report, is_repaired=False)
    assert codes(plain["changes"]) == {"TFR004": "The record is removed."}
    assert codes(plain["remaining"]) == {"BOX003": 1}
    assert not clip["remaining"] and not drop["remaining"]
    buttons = list_buttons([plain, clip, drop], "")
    assert buttons == {"TFR004": [LABELS[""]], "BOX003": [LABELS["clip"], LABELS["drop"]]}
    again = list_offers(report, is_repaired=True)
    assert [offer["odd_boxes"] for offer in again] == ["clip", "drop"]


REPAIRED = [
    mutant
    for mutant in all_mutants()
    if mutant.fires and not mutant.options.keys() & {"pipeline_config", *LIMITS}
]
NOT_FORESEEN = "LAB014-empty-texts-fail-b"
"""LAB020 is reported for a class, although another object has none."""


@pytest.mark.parametrize("mutant", REPAIRED, ids=lambda mutant: mutant.name)
def test_the_announced_errors_remain(mutant: Mutant, mutants: Path, tmp_path: Path) -> None:
    for receiver in ("any", "efficientdet"):
        report = check_sources([mutant.path(mutants)], Options(receiver=RECEIVERS[receiver]))
        for offer in list_offers(report, is_repaired=False):
            odd_boxes = OddBoxes(offer["odd_boxes"]) if offer["odd_boxes"] else None
            options = RepairOptions(receiver=receiver, odd_boxes=odd_boxes)
            target = tmp_path / f"{receiver}-{odd_boxes}"
            outcome = repair(mutant.path(mutants), str(target), options)
            levels = outcome.remaining.severities.items()
            errors = {code for code, severity in levels if severity is Severity.ERROR}
            if mutant.name != NOT_FORESEEN:
                assert codes(offer["remaining"]).keys() == errors
                assert not outcome.is_useless and target.exists()


@pytest.mark.parametrize(
    ("files", "title"),
    [
        ([("a.xml", b"<annotation><object><bndbox/></object></annotation>")], "Pascal VOC"),
        ([("a.txt", b"hello")], ""),
        ([("a.record", shard(record()))], ""),
    ],
)
def test_conversions(tmp_path: Path, files: Any, title: str) -> None:
    assert find_convertible(report_of(tmp_path / "a.zip", real_zip(files))) == title

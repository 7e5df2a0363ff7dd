"""``--for``: the verdict for a receiver, and how severe each rule is to each receiver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Severity
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import OFF, READY, features_to_profile
from tfod.checker.receivers import ANY, CVAT, OD_API, RECEIVERS, Receiver, Verdict, choose_receiver
from tfod.checker.references.cvat_task import Frame, Task
from tfod.checker.rules.registry import all_rules

from tests.checker.conftest import ReportOf
from tests.checker.test_check import training
from tests.commands import Run
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of
from tests.records import encode, image, objects, write_shard

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
LABEL_MAP = "item { id: 1 name: 'cat' }"


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """A shard without images whose box is outside the image: CVAT cuts it at the edge."""
    annotated = image("a.jpg", 20, 40) | objects([(0.5, 0.5, 1.5, 0.9)], ["cat"], [1])
    return write_shard(tmp_path, "x", encode(annotated | {"image/source_id": "1"}))


@pytest.mark.parametrize(
    ("options", "receiver", "verdict"),
    [
        ("", "any", "INVALID: 1 error,"),
        ("--for any", "any", "INVALID: 1 error,"),
        ("--for od-api", "od-api", "INVALID for the OD API's trainer: "),
        ("--for cvat", "cvat", "VALID for CVAT: 0 errors, 1 warning,"),
        ("--profile cvat", "cvat", "VALID for CVAT: 0 errors, 1 warning,"),
        ("--profile cvat --for any", "any", "INVALID: 1 error,"),
        ("--for cvat --severity BOX003=error", "cvat", "INVALID for CVAT: 1 "),
    ],
)
def test_verdicts(
    check: Run, report_of: ReportOf, outside: str, options: str, receiver: str, verdict: str
) -> None:
    is_invalid = verdict.startswith("IN")
    done, text, _ = check(outside, *options.split())
    assert (done, text[: len(verdict)]) == (is_invalid, verdict)
    report = report_of(outside, *options.split())[1]
    assert report["receiver"] == receiver
    assert report["severities"]["BOX003"] == ("error" if is_invalid else "warning")


def test_html_and_junit_name_the_receiver(check: Run, outside: str) -> None:
    page = check(outside, "--for", "cvat", "--format", "html").out
    ready = "Ready for CVAT once it is zipped with its label map: 1 image, 1 box"
    assert f'<h1 class="verdict">{ready}</h1>' in page and f"<title>{ready}" in page
    text = check(outside, "--for", "cvat").out
    assert text.splitlines()[0].endswith(" infos; zip it with its label map")
    page = check(outside, "--format", "html").out
    assert '<h1 class="verdict">1 error in 1 of 1 image</h1>' in page
    document = check(outside, "--for", "od-api", "--format", "junit").out
    assert '<property name="receiver" value="od-api" />' in document


ROBOFLOW, LABELS = READY["roboflow"], Task(labels=frozenset(("cat",)))


@pytest.mark.parametrize(
    ("receiver", "profile", "task", "expected"),
    [
        (None, None, None, ANY),
        (None, READY["cvat"], None, CVAT),
        (None, ROBOFLOW, None, ANY),
        (None, features_to_profile("cvat", "of the same name", {}), None, ANY),
        (None, None, LABELS, CVAT),
        (None, ROBOFLOW, LABELS, ANY),
        (CVAT, ROBOFLOW, None, CVAT),
        (ANY, READY["cvat"], LABELS, ANY),
        (ANY, None, LABELS, ANY),
        (OD_API, None, None, OD_API),
    ],
)
def test_default_receiver(receiver: Any, profile: Any, task: Any, expected: Receiver) -> None:
    assert choose_receiver(receiver, profile, task) is expected


@pytest.mark.parametrize(
    ("features", "profile", "code"),
    [
        (image("a.jpg", 20, 40) | objects([(0.1, 0.1, 0.9, 0.9)], ["cat"]), "cvat", 0),
        (objects([(0.1, 0.1, 0.9, 0.9)], ["cat"]), "cvat", 1),  # IMG015
        ({"image_raw": b"x", "height": 1, "width": 1, "depth": 3, "label": 0}, "none", 1),
    ],
)
def test_other_records_are_not_for_cvat(
    report_of: ReportOf, tmp_path: Path, features: Any, profile: str, code: int
) -> None:
    done, report = report_of(write_shard(tmp_path, "x", encode(features)), "--for", "cvat")
    assert (done, report["profile"]["name"]) == (code, profile)
    assert ("EXA010" in report["severities"]) is (profile == "none")


TABLE = {"fare": 1.5, "cabin": "C85", "age": 22.0, "sex": "male"}


@pytest.mark.parametrize(
    ("receiver", "title"), [("cvat", "CVAT"), ("od-api", "the OD API's trainer"), ("any", None)]
)
def test_tables(
    check: Run, report_of: ReportOf, tmp_path: Path, receiver: str, title: str | None
) -> None:
    shard = write_shard(tmp_path, "x", *[encode(TABLE)] * 30)
    code, report = report_of(shard, "--for", receiver)
    (finding,) = report["findings"]
    assert (code, finding["code"]) == (1, "EXA010")
    fix = f", for {title}." if title else f"tfod describe {shard} --as-profile"
    assert fix in finding["fix"]
    keys = f"their features are {', '.join(TABLE)}"
    assert finding["message"].endswith(keys)
    page = check(shard, "--for", receiver, "--format", "html").out
    (headline,) = re.findall(r'<h1 class="verdict">(.*?)</h1>', page)
    assert headline.endswith(f"match no profile; {keys}")
    # The same with a few detection records.
    write_shard(tmp_path, "some", training("a.jpg"), training("b.jpg"))
    code, report = report_of(tmp_path, "--for", receiver)
    assert (code, report["profile"]["name"]) == (1, "none")
    assert report["counts"]["by_code"]["EXA010"] == 1


def test_precedence_of_severities() -> None:
    """The user's take precedence over the receiver's, and these over the profile's."""
    receiver = {"BOX": INFO, "BOX003": WARNING}
    for levels, expected in (
        ([{"BOX": OFF}], OFF),
        ([{"BOX003": OFF}, {"BOX": INFO}], INFO),
        ([{"BOX003": OFF}, receiver], WARNING),
        ([{"BOX003": OFF}, receiver, {"BOX": ERROR}], ERROR),
        ([{}, {}, {}], ERROR),
    ):
        assert resolve_levels(*levels)["BOX003"] is expected


SITUATIONS = (
    (ANY, None),
    (OD_API, None),
    (CVAT, None),
    (CVAT, Task(frames=(Frame("a.jpg", 0, 20, 40),))),
    (CVAT, Task(new_tasks=True)),
)
"""Any reader; the OD API's trainer; CVAT: without a task, a task, a project."""
_SEVERITIES = [
    ("WEWWW", "TFR010"),  # The trainer opens shards without a compression_type.
    ("IEIII", "TFR014"),
    ("EEWWW", "EXA003 BOX003 BOX012 BOX023"),  # CVAT needs only names and boxes, and cuts boxes.
    ("EEWWW", "LAB003 LAB004 LAB005 LAB006 LAB010 LAB011 LAB012 LAB015"),  # The text decides.
    ("IIEEE", "LAB018"),  # These objects have no label in any task.
    ("EEWWW", "SET004 BOX021"),  # CVAT does not import keypoints.
    ("EE--E", "IMG001"),  # A task has images; a project gets them from the zip.
    ("EEW-E", "IMG002 IMG009"),
    ("EEW-W", "IMG003 IMG005 IMG014 IMG017"),
    ("WWW-W", "IMG004 IMG007 IMG008 IMG010 IMG011 IMG013"),
    ("EWW-E", "IMG006"),
    ("EWEEE", "IMG012 IMG015 NAM006"),  # The trainer needs sizes only for numeric masks.
    ("WW---", "IMG016"),
    ("EWEWW", "NAM001"),
    ("WWEWW", "NAM002"),
    ("IIEII", "NAM009"),
    ("EWEEE", "NAM013 TSK001 TSK002 TSK004 TSK006"),
    ("WWEEW", "TSK003"),
    ("WWEEE", "BOX017"),  # CVAT draws masks on its frames.
    ("I----", "NAM010 NAM011 LAB020 BOX019"),  # Only other receivers need numbers, see below.
]
DIFFERENT = {code: letters for letters, codes in _SEVERITIES for code in codes.split()}
"""The rules that are not equally severe to all, in the order of the situations; - is off."""


def test_severity_of_each_rule_to_each_receiver() -> None:
    found = dict.fromkeys(all_rules(), "")
    for receiver, task in SITUATIONS:
        levels = resolve_levels(receiver=receiver.severities(task))
        for code in found:
            found[code] += levels[code].value[0].upper() if levels[code] else "-"
    assert {code: letters for code, letters in found.items() if len({*letters}) > 1} == DIFFERENT


@pytest.mark.parametrize(
    ("source_id", "refusing"),
    [
        ("a.jpg", {"tf-vision", "model-maker", "efficientdet"}),
        ("16777217", {"efficientdet"}),
        ("16777216", set()),
    ],
)
def test_numeric_source_ids(check: Run, tmp_path: Path, source_id: str, refusing: set[str]) -> None:
    shard = write_shard(tmp_path, "x", training("a.jpg", **{"image/source_id": source_id}))
    readers = RECEIVERS.keys() - {"keras", "cvat"}
    assert {name for name in readers if check(shard, "--for", name).code} == refusing
    assert ("is not a number" in check(shard).out) is (source_id == "a.jpg")


@pytest.mark.parametrize(("count", "refusing"), [(99, []), (100, ["efficientdet"])])
def test_a_hundred_objects(check: Run, tmp_path: Path, count: int, refusing: list[str]) -> None:
    """EfficientDet pads to 100 and asserts that there are fewer (tf.assert_less)."""
    boxes = [(0.1, 0.1, 0.9, 0.1 + n / 200) for n in range(1, count + 1)]
    shard = write_shard(tmp_path, "x", training("a.jpg", boxes, **{"image/source_id": "7"}))
    readers = ("od-api", "tf-vision", "model-maker", "efficientdet")
    assert [name for name in readers if check(shard, "--for", name).code] == refusing


NOT_SEEN = {
    # TF-Vision reads masks as PNG; others also as numbers, which depends on the layout.
    (receiver, f"{mutant}.tfrecord")
    for receiver in ("tf-vision", "model-maker")
    for mutant in ("BOX015-of-both-pass-a", "BOX023-inverted-numbers-fail-d")
}
_MUTANTS = (one for one in all_mutants() if set(one.options) <= {"profile"})


@pytest.mark.parametrize("mutant", parameters_of(_MUTANTS, lambda one: not one.fires))
def test_the_list_of_all_receivers(mutant: Mutant, mutants: Path) -> None:
    """It agrees with a check for each receiver."""
    sources = [mutant.path(mutants)]
    for one in check_sources(sources, Options(receiver=ANY)).verdicts:
        takes = one.verdict is not Verdict.FAILS
        valid = check_sources(sources, Options(receiver=one.receiver)).valid
        assert (takes == valid) is ((one.receiver.name, mutant.name) not in NOT_SEEN)


@pytest.mark.parametrize("receiver", ["od-api", "any"])
@pytest.mark.parametrize(
    ("changes", "label_map", "valid"),
    [
        ({}, LABEL_MAP, True),
        ({"image/object/class/label": [2]}, LABEL_MAP, True),
        ({"image/object/class/label": [0]}, LABEL_MAP, True),
        ({"image/object/class/label": [0]}, None, True),
        ({"image/object/class/label": [0], "image/object/class/text": []}, None, False),
        ({"image/object/class/text": ["dog"]}, LABEL_MAP, False),
        ({"image/object/bbox/xmax": [0.1]}, LABEL_MAP, True),
        ({"image/object/bbox/xmax": [0.05]}, LABEL_MAP, False),
        ({}, "item { id: 1 name: \u201ccat\u201d }", False),
        ({}, f"\ufeff{LABEL_MAP}", False),
        ({"image/format": "raw"}, LABEL_MAP, False),
    ],
)
def test_records_for_the_trainer(
    check: Run, tmp_path: Path, receiver: str, changes: Any, label_map: str | None, valid: bool
) -> None:
    shard = write_shard(tmp_path, "train", training(**changes), label_map=label_map)
    code, text, _ = check(shard, "--for", receiver)
    assert (code == 0) is valid, text

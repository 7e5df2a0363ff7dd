"""For whom a verdict is: ``--for``, and how severe each rule is to each receiver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Rule, Severity
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


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """Annotations alone whose box reaches out of the image: CVAT cuts it at the edge."""
    annotated = image("a.jpg", 20, 40) | objects([(0.5, 0.5, 1.5, 0.9)], ["cat"], [1])
    return write_shard(tmp_path, "x", encode(annotated | {"image/source_id": "1"}))


@pytest.mark.parametrize(
    ("options", "receiver", "verdict", "severity"),
    [
        ((), "any", "INVALID: 1 error,", ERROR),
        (("--for", "any"), "any", "INVALID: 1 error,", ERROR),
        (("--for", "od-api"), "od-api", "INVALID for the OD API's trainer: ", ERROR),
        (("--for", "cvat"), "cvat", "VALID for CVAT: 0 errors, 1 warning,", WARNING),
        (("--profile", "cvat"), "cvat", "VALID for CVAT: 0 errors, 1 warning,", WARNING),
        (("--profile", "cvat", "--for", "any"), "any", "INVALID: 1 error,", ERROR),
        (("--for", "cvat", "--severity", "BOX003=error"), "cvat", "INVALID for CVAT: 1 ", ERROR),
    ],
)
def test_one_verdict_for_each_receiver(
    check: Run,
    report_of: ReportOf,
    outside: str,
    options: tuple[str, ...],
    receiver: str,
    verdict: str,
    severity: Severity,
) -> None:
    done, text, _ = check(outside, *options)
    assert (done, text[: len(verdict)]) == (int(verdict.startswith("IN")), verdict)
    done, report = report_of(outside, *options)
    assert report["receiver"] == receiver
    assert report["severities"]["BOX003"] == severity.value


def test_html_and_junit_say_for_whom(check: Run, outside: str) -> None:
    _, page, _ = check(outside, "--for", "cvat", "--format", "html")
    ready = "Ready for CVAT once it is zipped with its label map: 1 image, 1 box"
    assert f'<h1 class="verdict">{ready}</h1>' in page
    assert f"<title>{ready}" in page
    _, text, _ = check(outside, "--for", "cvat")
    assert text.splitlines()[0].endswith(" infos; zip it with its label map")
    _, page, _ = check(outside, "--format", "html")
    assert '<h1 class="verdict">1 error in 1 of 1 image</h1>' in page
    _, document, _ = check(outside, "--for", "od-api", "--format", "junit")
    assert '<property name="receiver" value="od-api" />' in document


OWN = features_to_profile("cvat", "of the same name", {})
LABELS = Task(labels=frozenset(("cat",)))


@pytest.mark.parametrize(
    ("receiver", "profile", "task", "expected"),
    [
        (None, None, None, ANY),
        (None, READY["cvat"], None, CVAT),
        (None, READY["roboflow"], None, ANY),
        (None, OWN, None, ANY),
        (None, None, LABELS, CVAT),
        (None, READY["roboflow"], LABELS, ANY),
        (CVAT, READY["roboflow"], None, CVAT),
        (ANY, READY["cvat"], LABELS, ANY),
        (ANY, None, LABELS, ANY),
        (OD_API, None, None, OD_API),
    ],
)
def test_what_is_not_named_follows_from_what_is(
    receiver: Any, profile: Any, task: Task | None, expected: Receiver
) -> None:
    assert choose_receiver(receiver, profile, task) is expected


@pytest.mark.parametrize(
    ("features", "profile", "code"),
    [
        (image("a.jpg", 20, 40) | objects([(0.1, 0.1, 0.9, 0.9)], ["cat"]), "cvat", 0),
        (objects([(0.1, 0.1, 0.9, 0.9)], ["cat"]), "cvat", 1),  # IMG015
        ({"image_raw": b"x", "height": 1, "width": 1, "depth": 3, "label": 0}, "none", 1),
    ],
)
def test_records_of_another_kind_are_not_for_cvat(
    report_of: ReportOf, tmp_path: Path, features: dict[str, Any], profile: str, code: int
) -> None:
    shard = write_shard(tmp_path, "x", encode(features))
    done, report = report_of(shard, "--for", "cvat")
    assert (done, report["profile"]["name"]) == (code, profile)
    assert ("EXA010" in report["severities"]) is (profile == "none")


TABLE = {"fare": 1.5, "cabin": "C85", "age": 22.0, "sex": "male"}


@pytest.mark.parametrize("receiver", ["cvat", "od-api", "any"])
def test_a_table_is_to_be_another_dataset(
    check: Run, report_of: ReportOf, tmp_path: Path, receiver: str
) -> None:
    shard = write_shard(tmp_path, "x", *[encode(TABLE)] * 30)
    code, report = report_of(shard, "--for", receiver)
    (finding,) = report["findings"]
    assert (code, finding["code"]) == (1, "EXA010")
    own = f"tfod describe {shard} --as-profile" in finding["fix"]
    title = {"cvat": "CVAT", "od-api": "the OD API's trainer"}.get(receiver)
    other = f"Export an object detection dataset, with image/filename and boxes, for {title}."
    assert own if title is None else finding["fix"] == other
    keys = list(TABLE)
    assert finding["message"].endswith(f"their features are {', '.join(keys)}")
    _, page, _ = check(shard, "--for", receiver, "--format", "html")
    (headline,) = re.findall(r'<h1 class="verdict">(.*?)</h1>', page)
    assert headline.endswith(f"match no profile; their features are {', '.join(keys)}")


def test_a_few_records_of_detection_beside_a_table(report_of: ReportOf, tmp_path: Path) -> None:
    write_shard(tmp_path, "some", training("a.jpg"), training("b.jpg"))
    write_shard(tmp_path, "table", *[encode(TABLE)] * 5)
    for receiver in ("cvat", "od-api", "any"):
        code, report = report_of(str(tmp_path), "--for", receiver)
        assert (code, report["profile"]["name"]) == (1, "none")
        assert report["counts"]["by_code"]["EXA010"] == 1


def test_the_user_then_the_receiver_then_the_profile() -> None:
    rule = all_rules()["BOX003"]
    output = {"BOX": INFO, "BOX003": WARNING}
    assert resolve_levels({"BOX": OFF})[rule.code] is OFF
    assert resolve_levels({"BOX003": OFF}, {"BOX": INFO})[rule.code] is INFO
    assert resolve_levels({"BOX003": OFF}, output)[rule.code] is WARNING
    assert resolve_levels({"BOX003": OFF}, output, {"BOX": ERROR})[rule.code] is ERROR
    assert resolve_levels({}, {}, {})[rule.code] is ERROR


SITUATIONS = (
    (ANY, None),
    (OD_API, None),
    (CVAT, None),
    (CVAT, Task(frames=(Frame("a.jpg", 0, 20, 40),))),
    (CVAT, Task(new_tasks=True)),
)
"""Whoever reads it; the OD API's trainer; CVAT: a task not known, a task, a project."""
DIFFERENT = {
    # It opens shards without a compression_type; tfod finds the compression by itself.
    "TFR010": "WEWWW",
    "TFR014": "IEIII",
    # CVAT's import needs names and boxes alone, and cuts boxes at the edge.
    **dict.fromkeys(("EXA003", "BOX003", "BOX012", "BOX023"), "EEWWW"),
    # The class text decides; a label map is only asked for ids without one.
    **dict.fromkeys((f"LAB{n:03}" for n in (3, 4, 5, 6, 10, 11, 12, 15)), "EEWWW"),
    # No label is found for such an object, whatever labels there are.
    "LAB018": "IIEEE",
    "SET004": "EEWWW",
    # A task has its own images; of a project they become the tasks' frames.
    "IMG001": "EE--E",
    **dict.fromkeys(("IMG002", "IMG009"), "EEW-E"),
    **dict.fromkeys(("IMG003", "IMG005", "IMG014", "IMG017"), "EEW-W"),
    **dict.fromkeys((f"IMG{n:03}" for n in (4, 7, 8, 10, 11, 13)), "WWW-W"),
    "IMG006": "EWW-E",
    "NAM013": "EWEEE",
    "IMG016": "WW---",
    # The trainer reads height and width for masks of numbers alone, and no names.
    **dict.fromkeys(("IMG012", "IMG015", "NAM006"), "EWEEE"),
    "NAM001": "EWEWW",
    "NAM002": "WWEWW",
    "NAM009": "IIEII",
    # CVAT's import draws masks on its frames.
    "BOX017": "WWEEE",
    # Nor has it a place for keypoints.
    "BOX021": "EEWWW",
    # Numbers are what others want, see below.
    **dict.fromkeys(("NAM010", "NAM011", "LAB020", "BOX019"), "I----"),
    **dict.fromkeys(("TSK001", "TSK002", "TSK004", "TSK006"), "EWEEE"),
    "TSK003": "WWEEW",
}
"""The rules that are not equally severe to all, in the order of the situations; - is off."""


def test_how_severe_each_rule_is_to_each_receiver() -> None:
    found = {
        code: "".join(_letter(rule, receiver, task) for receiver, task in SITUATIONS)
        for code, rule in all_rules().items()
    }
    assert {code: output for code, output in found.items() if len(set(output)) > 1} == DIFFERENT


@pytest.mark.parametrize(
    ("source_id", "receivers"),
    [
        ("a.jpg", {"tf-vision", "model-maker", "efficientdet"}),
        ("16777217", {"efficientdet"}),
        ("16777216", set()),
    ],
)
def test_source_ids_are_numbers_to_some(
    check: Run, tmp_path: Path, source_id: str, receivers: set[str]
) -> None:
    record = training("a.jpg", **{"image/source_id": source_id})
    shard = write_shard(tmp_path, "x", record)
    readers = RECEIVERS.keys() - {"keras", "cvat"}
    refused = {name for name in readers if check(shard, "--for", name)[0]}
    assert refused == receivers
    assert ("is not a number" in check(shard)[1]) is (source_id == "a.jpg")


def test_a_hundred_objects_stop_efficientdet(check: Run, tmp_path: Path) -> None:
    """It pads to 100 and asserts that there are fewer (tf.assert_less)."""
    for count, receivers in ((99, []), (100, ["efficientdet"]), (101, ["efficientdet"])):
        boxes = [(0.1, 0.1, 0.9, 0.1 + n / 200) for n in range(1, count + 1)]
        lists = objects(boxes, ["cat"] * count, [1] * count)
        changes = {**lists, "image/source_id": "7"}
        shard = write_shard(tmp_path, str(count), training("a.jpg", **changes))
        readers = ("od-api", "tf-vision", "model-maker", "efficientdet")
        assert [name for name in readers if check(shard, "--for", name)[0]] == receivers


NOT_SEEN = {
    # TF-Vision reads masks as PNG; other receivers as numbers, too, which is the layout's affair.
    (receiver, f"{mutant}.tfrecord")
    for receiver in ("tf-vision", "model-maker")
    for mutant in ("BOX015-of-both-pass-a", "BOX023-inverted-numbers-fail-d")
}


@pytest.mark.parametrize(
    "mutant",
    parameters_of(
        (one for one in all_mutants() if set(one.options) <= {"profile"}), lambda one: not one.fires
    ),
)
def test_the_list_of_all_receivers_says_what_each_of_them_is_told(
    mutant: Mutant, mutants: Path
) -> None:
    sources = [mutant.path(mutants)]
    for one in check_sources(sources, Options(receiver=ANY)).verdicts:
        takes = one.verdict is not Verdict.FAILS
        valid = check_sources(sources, Options(receiver=one.receiver)).valid
        assert (takes == valid) is ((one.receiver.name, mutant.name) not in NOT_SEEN)


def _letter(rule: Rule, receiver: Receiver, task: Task | None) -> str:
    severity = resolve_levels(receiver=receiver.severities(task))[rule.code]
    return severity.value[0].upper() if severity else "-"


@pytest.mark.parametrize("receiver", ["od-api", "any"])
@pytest.mark.parametrize(
    ("changes", "label_map", "valid"),
    [
        ({}, "item { id: 1 name: 'cat' }", True),
        ({"image/object/class/label": [2]}, "item { id: 1 name: 'cat' }", True),
        ({"image/object/class/label": [0]}, "item { id: 1 name: 'cat' }", True),
        ({"image/object/class/label": [0]}, None, True),
        ({"image/object/class/label": [0], "image/object/class/text": []}, None, False),
        ({"image/object/class/text": ["dog"]}, "item { id: 1 name: 'cat' }", False),
        ({"image/object/bbox/xmax": [0.1]}, "item { id: 1 name: 'cat' }", True),
        ({"image/object/bbox/xmax": [0.05]}, "item { id: 1 name: 'cat' }", False),
        ({}, "item { id: 1 name: \u201ccat\u201d }", False),
        ({}, "\ufeffitem { id: 1 name: 'cat' }", False),
        ({"image/format": "raw"}, "item { id: 1 name: 'cat' }", False),
    ],
)
def test_what_the_trainer_reads(
    check: Run,
    tmp_path: Path,
    receiver: str,
    changes: dict[str, Any],
    label_map: str | None,
    valid: bool,
) -> None:
    shard = write_shard(tmp_path, "train", training(**changes))
    if label_map is None:
        (tmp_path / "label_map.pbtxt").unlink()
    else:
        (tmp_path / "label_map.pbtxt").write_text(label_map, encoding="utf-8")
    code, text, _ = check(shard, "--for", receiver)
    assert (code == 0) is valid, text

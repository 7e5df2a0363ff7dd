"""For whom a verdict is: ``--for``, and how severe each rule is to each receiver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tfod_validator.cli import main
from tfod_validator.finding import Severity
from tfod_validator.profile import OFF, READY, Policy, profile_of_features
from tfod_validator.receivers import ANY, CVAT, TRAINING, receiver_and_profile
from tfod_validator.rules.registry import all_rules
from tfod_validator.task import Task

from tests.checker.test_check import write
from tests.conftest import encode, objects, picture

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """Annotations alone whose box reaches out of the image: CVAT cuts it at the edge."""
    annotated = picture("a.jpg", 20, 40) | objects([(0.5, 0.5, 1.5, 0.9)], ["cat"], [1])
    return write(tmp_path, "x", encode(annotated | {"image/source_id": "1"}))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "receiver", "verdict", "severity"),
    [
        ((), "any", "INVALID: 1 error,", ERROR),
        (("--for", "any"), "any", "INVALID: 1 error,", ERROR),
        (("--for", "training"), "training", "INVALID for training: ", ERROR),
        (("--for", "cvat"), "cvat", "VALID for CVAT: 0 errors, 1 warning,", WARNING),
        (("--profile", "cvat"), "cvat", "VALID for CVAT: 0 errors, 1 warning,", WARNING),
        (("--profile", "cvat", "--for", "any"), "any", "INVALID: 1 error,", ERROR),
        (("--for", "cvat", "--severity", "BOX003=error"), "cvat", "INVALID for CVAT: 1 ", ERROR),
    ],
)
def test_one_verdict_for_each_receiver(
    capsys: Any,
    outside: str,
    options: tuple[str, ...],
    receiver: str,
    verdict: str,
    severity: Severity,
) -> None:
    done, text = run(capsys, outside, *options)
    assert (done, text[: len(verdict)]) == (int(verdict.startswith("IN")), verdict)
    done, text = run(capsys, outside, *options, "--format", "json")
    report = json.loads(text)
    assert report["receiver"] == receiver
    assert report["severities"]["BOX003"] == severity.value


def test_html_and_junit_say_for_whom(capsys: Any, outside: str) -> None:
    _, page = run(capsys, outside, "--for", "cvat", "--format", "html")
    assert '<h1 class="verdict">Ready for CVAT: ' in page
    assert "<title>Ready for CVAT: " in page
    _, page = run(capsys, outside, "--format", "html")
    assert '<h1 class="verdict">1 error in 1 of 1 image</h1>' in page
    _, document = run(capsys, outside, "--for", "training", "--format", "junit")
    assert '<property name="receiver" value="training" />' in document


OWN = profile_of_features("cvat", "of the same name", {})
LABELS = Task(labels=frozenset(("cat",)))


@pytest.mark.parametrize(
    ("receiver", "profile", "task", "expected"),
    [
        (None, None, None, (ANY, None)),
        (None, READY["cvat"], None, (CVAT, READY["cvat"])),
        (None, READY["roboflow"], None, (ANY, READY["roboflow"])),
        (None, OWN, None, (ANY, OWN)),
        (None, None, LABELS, (CVAT, READY["cvat"])),
        (None, READY["roboflow"], LABELS, (ANY, READY["roboflow"])),
        (CVAT, None, None, (CVAT, READY["cvat"])),
        (CVAT, READY["roboflow"], None, (CVAT, READY["roboflow"])),
        (ANY, READY["cvat"], LABELS, (ANY, READY["cvat"])),
        (ANY, None, LABELS, (ANY, None)),
        (TRAINING, None, None, (TRAINING, None)),
    ],
)
def test_what_is_not_named_follows_from_what_is(
    receiver: Any, profile: Any, task: Task | None, expected: object
) -> None:
    assert receiver_and_profile(receiver, profile, task) == expected


def test_the_user_then_the_receiver_then_the_profile() -> None:
    rule = all_rules()["BOX003"]
    said = {"BOX": INFO, "BOX003": WARNING}
    assert Policy({"BOX": OFF}).severity(rule) is OFF
    assert Policy({"BOX003": OFF}, {"BOX": INFO}).severity(rule) is INFO
    assert Policy({"BOX003": OFF}, said).severity(rule) is WARNING
    assert Policy({"BOX003": OFF}, said, {"BOX": ERROR}).severity(rule) is ERROR
    assert Policy({}, {}, {}).severity(rule) is ERROR

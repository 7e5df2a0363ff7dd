"""Fixtures of the tests of the check."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tfod.checker.rules.registry import all_rules

from tests.checker.reports import RULES
from tests.commands import Run
from tests.files import write_file
from tests.records import encode, frame, image, objects

ReportOf: TypeAlias = "Callable[..., tuple[int, dict[str, Any]]]"


@pytest.fixture(scope="session")
def shard() -> bytes:
    """A shard of two equal records."""
    record = encode({**image(), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])})
    return frame(record, record)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Write a file into the test's folder and return its path."""
    return lambda name, content: str(write_file(tmp_path / name, content))


@pytest.fixture
def made_up_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the texts of the rules in :mod:`tests.checker.reports`."""
    every = {**all_rules(), **RULES}
    for module in ("html", "wording", "groups"):
        monkeypatch.setattr(f"tfod.checker.reporters.{module}.all_rules", lambda: every)


@pytest.fixture
def report_of(run: Run) -> ReportOf:
    """Run ``tfod check --format json``; its exit status and its report."""

    def checked(*arguments: object) -> tuple[int, dict[str, Any]]:
        ran = run("check", *arguments, "--format", "json")
        return ran.code, json.loads(ran.out)

    return checked


@pytest.fixture
def check(run: Run) -> Run:
    """Run ``tfod check``."""
    return partial(run, "check")

"""Fixtures of all tests: the corpus of real shards, and new shards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tfod.cli.main import main
from tfod.tfrecord.writer import write_records

from tests.chromium import chromium, open_page  # noqa: F401
from tests.commands import Result, Run
from tests.records import encode

_IS_CI = bool(os.environ.get("CI"))
_SHARES = {"few": 0.1, "half": 0.5, "default": 1.0, "thorough": 20.0}
_SHARE = _SHARES[os.environ.get("HYPOTHESIS_PROFILE", "default")]


def examples(count: int) -> settings:
    """Return the settings of a property with another number of examples instead of 100.

    ``HYPOTHESIS_PROFILE=thorough`` multiplies the number by 20, ``half`` is for `.ci/run`, and
    ``few``, a tenth, for tests that are repeated with other versions of Python and Datumaro.
    """
    return settings(max_examples=max(1, round(count * _SHARE)))


# Numbers of single precision as people type them: 0.1, which shards give back, not 0.10000000149.
typed_numbers = st.floats(width=32, allow_nan=False).map(
    lambda number: number if number.is_integer() else float(str(np.float32(number)))
)

# No deadlines, since machines are noisy. CI always tries the same examples. The examples of a test
# may share its folder.
settings.register_profile(
    "tfod",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=_IS_CI,
    max_examples=max(1, round(100 * _SHARE)),
)
settings.load_profile("tfod")
for _name in ("GITHUB_ACTIONS", "FORCE_COLOR"):  # the output is the same on every machine
    os.environ.pop(_name, None)
CORPUS = Path(__file__).with_name("corpus")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real shards."""
    return CORPUS


@pytest.fixture(scope="session")
def figures(corpus: Path) -> dict[str, Any]:
    """The counts by TensorFlow in the corpus, by shard."""
    return json.loads((corpus / "figures.json").read_text())


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Replace Ghostscript by a program; return a function that tells whether it was started."""
    from PIL import EpsImagePlugin

    folder = tmp_path / "ghostscript"
    log = folder / "started"
    folder.mkdir()
    (folder / "gs").write_text(f"#!/bin/sh\n: > {log}\n")
    (folder / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow searches again
    return log.exists


@pytest.fixture(scope="session")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all mutants, for reading."""
    from tests.mutants.make import write_mutants  # imports the rules of the checker

    folder = tmp_path_factory.mktemp("mutants")
    write_mutants(folder)
    return folder


@pytest.fixture
def make_shard(tmp_path: Path) -> Callable[..., str]:
    """Write a shard from dicts of plain values: ``make_shard("train", {...}, {...})``."""

    def make(subset: str, *records: Mapping[str, Any], folder: Path | None = None) -> str:
        return write_records(folder or tmp_path, subset, [encode(one) for one in records])[0]

    return make


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``tfod …`` in this process: ``run("check", path)``."""

    def run_tfod(*arguments: object) -> Result:
        capsys.readouterr()
        return Result(main([str(one) for one in arguments]), *capsys.readouterr())

    return run_tfod

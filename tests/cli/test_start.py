"""Modules that a command loads before it begins."""

from __future__ import annotations

import pytest

from tests.commands import run_python
from tests.records import encode, frame, image, objects

SHARED = {"main", "arguments", "printing", "progress_line"}
HEAVY = {
    *("PIL", "asyncio", "concurrent", "email", "fsspec", "google.protobuf", "http", "jinja2"),
    *("jsonschema", "logging", "lxml", "multiprocessing", "numpy.ma", "socket", "ssl", "tqdm"),
    *("yaml", "tfod.beam", "tfod.checker.processes", "tfod.checker.references", "tfod.cvat"),
    *("tfod.formats", "tfod.datumaro", "tfod.shards", "tfod_validator"),
}


def loaded_by(*command: str) -> set[str]:
    """Return the modules that a command in a new process has loaded when it ends."""
    code = (
        "import sys; from tfod.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    return set(run_python("-c", code, *command).out.splitlines()[-1].split())


def test_the_version_needs_no_numpy() -> None:
    loaded = loaded_by("--version")
    assert "tfod.version" in loaded
    assert loaded.isdisjoint({"numpy", "dataclasses", *HEAVY})


def test_a_check_of_a_shard_loads_no_heavy_module(tmp_path) -> None:
    record = encode({**image("a.jpg"), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])})
    shard = tmp_path / "one.record"
    shard.write_bytes(frame(record))
    loaded = loaded_by("check", str(shard))
    assert "tfod.checker.analysis.examine" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("command", ["describe", "rules", "reshard"])
def test_a_command_loads_no_other(command: str) -> None:
    loaded = {one for one in loaded_by(command, "--help") if one.startswith("tfod.cli.")}
    assert loaded == {f"tfod.cli.{one}" for one in SHARED | {command}}

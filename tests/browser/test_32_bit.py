"""The core of tfod where the indices of NumPy have 32 bits: in Pyodide, which Node runs."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod.tfrecord.framing import FOOTER_BYTES, FRAME_BYTES, encode_header

from tests.browser.pyodide import ROOT
from tests.commands import require, run_command, run_python
from tests.kernel.test_outputs import folder_to_run_in
from tests.mutants.make import all_mutants, write_mutants
from tests.records import encode, frame, image, objects

# Without tests of processes and threads.
TESTS = (
    *("kernel/test_kernel.py", "detection", "example", "tfrecord/test_records.py"),
    *("tfrecord/test_damage.py", "checker/test_batch.py", "checker/test_column_order.py"),
    *("checker/test_duplicates.py", "shards/test_describe.py", "shards/test_diff.py"),
    *("shards/test_fixes.py", "shards/test_joined_label_maps.py", "shards/test_repair_mutants.py"),
    "viewer/test_session.py",
)
# They need programs, files of Linux, or lxml.
OTHERS = "ghostscript or other_files or voc or cvat_xml"
RunInPyodide = Callable[[str, Path], str]
Check = tuple[str, str, Mapping[str, str], Sequence[str]]


@pytest.fixture(scope="module")
def run_in_pyodide(browser_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunInPyodide:
    """Return a function that runs code in a folder, and returns what it prints."""
    require("node", shutil.which("node") is not None)
    base, wheels = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("wheels")
    options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version=3.12")
    target = ("--implementation=py", "--abi=none", "--platform=any", "--dest", wheels)
    requirement = Path(__file__).with_name("pytest.txt")
    done = run_python("-m", "pip", "download", *options, *target, "--requirement", requirement)
    require("pytest for Pyodide", done.code == 0)

    def run(code: str, folder: Path) -> str:
        start = f"import os, sys; os.chdir({str(folder)!r}); sys.path.insert(0, {str(ROOT)!r})"
        program = Path(__file__).with_name("in_node.cjs")
        command = ("node", program, browser_folder, wheels, f"{start}\n{code}", ROOT, base)
        done = run_command(*command)
        assert done.code == 0, done.out[-3000:] + done.err[-3000:]
        return done.out

    return run


@pytest.fixture
def run_in_both(
    run_in_pyodide: RunInPyodide, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Iterator[tuple[Any, Any]]]:
    """Return a function that yields each line of JSON that code prints here and in Pyodide."""

    def run(code: str) -> Iterator[tuple[Any, Any]]:
        parent = tmp_path_factory.mktemp("run")
        here, there = (folder_to_run_in(parent, name) for name in ("here", "there"))
        done = run_python("-c", code, folder=here, PYTHONPATH=str(ROOT))
        done.succeeded()
        texts = done.out, run_in_pyodide(code, there)
        return zip(*(map(json.loads, text.splitlines()) for text in texts), strict=True)

    return run


@pytest.fixture(scope="module")
def shared_mutants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mutants, without links, which are damaged in Pyodide's view of this machine."""
    folder = tmp_path_factory.mktemp("mutants")
    write_mutants(folder)
    for path in [path for path in folder.rglob("*") if path.is_symlink()]:
        shutil.rmtree(path.parent)
    return folder


def compare_reports(run_in_both: Any, checks: Sequence[Check], file: Path) -> list[Any]:
    """Assert that the reports are equal, and return them, without those that need lxml there."""
    file.write_text(json.dumps(checks))
    code = f"from tests.browser.reports import print_reports; print_reports({str(file)!r})"
    reports = []
    for (name, *here), (_, *there) in run_in_both(code):
        if not (name.startswith("TSK") and "needs lxml" in there[2]):  # a CVAT task in XML
            assert here == there, name
            reports.append(here[1])
    return reports


def test_mutants(run_in_both: Any, shared_mutants: Path, tmp_path: Path) -> None:
    checks = [
        (
            mutant.name,
            mutant.path(shared_mutants) if "pipeline_config" in mutant.options else str(tmp_path),
            mutant.environment,
            mutant.arguments(shared_mutants),
        )
        for mutant in all_mutants()
    ]
    assert len(compare_reports(run_in_both, checks, tmp_path / "checks.json")) > 450


def test_commands(run_in_both: Any, shared_mutants: Path) -> None:
    call = f"run_all({str(shared_mutants)!r}, with_images=False)"
    code = f"from tests.kernel.test_outputs import run_all; {call}"
    commands = set()
    for here, there in run_in_both(code):
        assert here == there
        commands.add((here[0][0], here[1]))
    assert {name for name, status in commands if status < 2} == {
        *("check", "convert", "describe", "diff", "repair", "reshard", "rules", "show")
    }


LARGE = 3 << 30
RECORD = frame(encode(image() | objects([[0.1, 0.1, 0.5, 0.5]], ["cat"], [(1 << 40) + 3])))


def test_offsets_and_ids_of_more_than_32_bits(run_in_both: Any, tmp_path: Path) -> None:
    """The file system does not store the bytes that a damaged record, or a zip, does not use."""
    path, zipped = tmp_path / "a.tfrecord", tmp_path / "a.zip"
    with path.open("wb") as file:
        file.write(encode_header(LARGE))
        file.seek(LARGE + FOOTER_BYTES, 1)
        file.write(RECORD * 2 + b"the end")
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("readme.txt", "")
        archive.start_dir += LARGE
        archive.writestr("a.tfrecord", RECORD * 3)
    checks = [(path.name, str(tmp_path), {}, [str(path)]) for path in (path, zipped)]
    report, of_zip = compare_reports(run_in_both, checks, tmp_path / "checks.json")
    offsets = {finding["record"]: finding["offset"] for finding in report["findings"]}
    assert offsets[1] == LARGE + FRAME_BYTES and offsets[2] == offsets[1] + len(RECORD)
    assert of_zip["counts"]["records"] == 3 and "ZIP012" not in of_zip["counts"]["by_code"]
    reader = f"RecordReader(lambda: open_stream({str(path)!r}))"
    code = f"""if True:
        from tfod.tfrecord.random_access import RecordReader
        from tfod.tfrecord.storage.open import open_stream
        record = {reader}.read({offsets[2]})
        print(record is not None and len(record.payload))
    """
    assert list(run_in_both(code)) == [(len(RECORD) - FRAME_BYTES,) * 2]
    path.unlink()
    zipped.unlink()


def test_properties(run_in_pyodide: RunInPyodide, tmp_path: Path) -> None:
    options = ["-q", "-m", "not slow", "-k", f"not ({OTHERS})", "--capture=sys"]
    options += ["-p", "no:cacheprovider", "-p", "no:faulthandler"]
    paths = [str(ROOT / "tests" / name) for name in TESTS]
    printed = run_in_pyodide(
        f"import pytest; assert pytest.main({options + paths!r}) == 0", tmp_path
    )
    assert int(printed.split(" passed")[0].split()[-1].lstrip("m")) > 600

"""Pipelines that fail with one line, without a process or file left, and reports on Beam."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from tfod.beam import Runner, _run_pipeline, _write
from tfod.checker.analysis.examine import Instructions, examine
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY
from tfod.checker.report import Report
from tfod.checker.reporters.json import render_json
from tfod.errors import ShardError, TfodError
from tfod.sources.resolved import Shard

from tests.beam.conftest import DIRECT, PROCESSES
from tests.commands import TIMEOUT, free_port, wait_until
from tests.mutants.make import all_mutants
from tests.mutants.sound import TF

INSTRUCTIONS = Instructions(READY["tf_detection_api"], resolve_levels({}))


class RaisingShard(Shard):
    """A shard that raises an error when it is opened; its name determines the error."""

    def open(self, *, read_ahead: bool = True) -> NoReturn:
        if self.name.endswith("ours"):
            raise ShardError("is damaged", shard="a.record", record=2, fix="repair it")
        raise ZeroDivisionError("two [while running 'it']")


def shards(*paths: Path) -> Sequence[Shard]:
    """Shards as a check names them."""
    return [Shard(name=str(one), path=str(one), subset="a") for one in paths]


def raising(name: str, folder: Path) -> Sequence[Shard]:
    """An empty shard and one that raises an error."""
    (folder / "empty").touch()
    path = str(folder / name)
    return [*shards(folder / "empty"), RaisingShard(name=path, path=path, subset="a")]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """A shard that is never written, so that its reader waits."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    file = os.open(path, os.O_RDWR)
    yield path
    os.close(file)


def processes(matches: Callable[[Path], bool]) -> list[int]:
    """Other processes, by their folders in /proc."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if int(one.name) != os.getpid() and matches(one):
                found.append(int(one.name))
    return found


def readers_of(path: Path) -> list[int]:
    """The processes that only read a file; forks of this process can also write it."""
    return processes(
        lambda process: any(
            os.readlink(one) == str(path) and not one.lstat().st_mode & stat.S_IWUSR
            for one in (process / "fd").iterdir()
        )
    )


def processes_in(folder: Path) -> list[int]:
    """The processes with a temporary folder below a folder."""
    variable = f"TMPDIR={folder}{os.sep}".encode()
    return processes(lambda one: variable in (one / "environ").read_bytes())


def failure_of(runner: Runner, which: Sequence[Shard]) -> str:
    """The error of an examination, which is one line."""
    with pytest.raises(TfodError) as caught:
        list(runner.examine(which, INSTRUCTIONS))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("runner", ["direct-2"], indirect=True)
def test_an_error_of_ours_is_its_line(runner: Runner, tmp_path: Path) -> None:
    found = runner.examine(raising("ours", tmp_path), INSTRUCTIONS)
    assert next(found).name == str(tmp_path / "empty")
    with pytest.raises(TfodError, match=r"^a.record, record 2: is damaged; repair it$"):
        next(found)


@pytest.mark.parametrize("runner", ["direct-1", "portable"], indirect=True)
def test_another_error_is_one_line_and_a_log(
    runner: Runner, tmp_path: Path, temporary: Path
) -> None:
    line = failure_of(runner, raising("another", tmp_path))
    error = "ZeroDivisionError: two [while running 'it']"
    assert line.startswith(f"{runner.name}: {error} (see Beam's log: {temporary}/")
    (log,) = temporary.iterdir()
    assert "Traceback" in log.read_text()
    log.unlink()


@pytest.mark.parametrize("runner", ["direct-1", "direct-2", "portable"], indirect=True)
def test_a_dead_worker_is_one_line(runner: Runner, pipe: Path, temporary: Path) -> None:
    def kill_its_reader() -> None:
        os.kill(wait_until(lambda: readers_of(pipe))[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_its_reader, daemon=True)
    thread.start()
    line = failure_of(runner, shards(pipe))
    thread.join()
    assert line == f"{runner.name}: a worker died; try fewer workers or more memory"
    # The workers have been killed; the kernel needs a moment to end them.
    wait_until(lambda: not processes_in(temporary))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_remains_after_a_signal(number: int, pipe: Path, temporary: Path) -> None:
    lines = (
        "import signal, sys; from pathlib import Path; from tfod.beam import Runner",
        "from tests.beam.test_runner import INSTRUCTIONS, shards",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))",  # as the command does
        "signal.signal(signal.SIGINT, signal.default_int_handler)",  # also in the background
        f"list(Runner('direct', {PROCESSES}).examine(shards(Path({str(pipe)!r})), INSTRUCTIONS))",
    )
    process = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stderr=subprocess.DEVNULL)
    (reader,) = wait_until(lambda: readers_of(pipe))
    assert reader in processes_in(temporary)
    os.kill(reader, signal.SIGSTOP)  # it cannot react to the end of the pipeline
    process.send_signal(number)
    assert process.wait(TIMEOUT) != 0
    wait_until(lambda: not processes_in(temporary) and not list(temporary.iterdir()))


def test_folders_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/null/x")
    message = "/dev/null/x: Beam's temporary files cannot be written (Not a directory)"
    assert list(DIRECT.examine([], INSTRUCTIONS)) == []
    assert failure_of(DIRECT, shards(Path("a.record"))).startswith(message)
    with pytest.raises(TfodError, match=r"^/dev/null/x: the result cannot be written \(File"):
        _write((0, []), "/dev/null/x")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("NoRunner", (), "--runner NoRunner: Unexpected pipeline runner: NoRunner. Valid values"),
        ("no.such.Runner", (), "--runner no.such.Runner: No module named 'no'"),
        ("DirectRunner", ("--frobnicate",), "-- --frobnicate: DirectRunner has no such option"),
        ("direct", ("--direct_num_workers=x",), "-- --direct_num_workers: invalid int value: 'x'"),
        (
            "portable",
            ("--job_endpoint=localhost:PORT",),
            "-- --job_endpoint: no job server answers at localhost:PORT (Connection refused)",
        ),
        ("direct", ("--temp_location=/dev/null/x",), "--temp_location /dev/null/x: cannot be"),
    ],
)
def test_invalid_options(
    name: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    port = str(free_port())
    runner = Runner(name, [one.replace("PORT", port) for one in arguments])
    with pytest.raises(TfodError) as caught:
        _run_pipeline(str(tmp_path), runner, str(tmp_path), [], INSTRUCTIONS)
    assert str(caught.value).startswith(message.replace("PORT", port))
    assert "\n" not in str(caught.value)


def test_other_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = [replace(one, name="<stdin>") for one in shards(tmp_path / "copy")]
    assert "<stdin>: is read from a local copy" in failure_of(Runner("flink"), copy)
    monkeypatch.delitem(sys.modules, "tfod.beam")
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(TfodError, match="--runner needs Apache Beam; pip install"):
        importlib.import_module("tfod.beam")


# A check on Beam: the same report as in one process, to the byte


def same_report(sources: list[str], options: Options, runner: Runner) -> Report:
    """The report of one process, which equals the runner's to the byte, except for the time."""
    here = check_sources(sources, options)
    there = check_sources(sources, replace(options, runner=runner))
    assert render_json(replace(there, duration=here.duration)) == render_json(here)
    return here


@pytest.mark.parametrize("runner", ["direct-2", "portable"], indirect=True)
def test_mutants(mutants: Path, runner: Runner) -> None:
    """Mutants that are a single file without options; each zip would be a separate pipeline."""
    some = [one for one in all_mutants() if not one.is_folder and one.options in ({}, TF)]
    paths = [path for path in (one.path(mutants) for one in some) if not path.endswith(".zip")]
    options = Options(profile=READY["tf_detection_api"], max_findings=500, decode=9)
    found = same_report(paths, options, runner).counts.by_code
    assert {code[:3] for code in found} >= {"TFR", "EXA", "BOX", "LAB", "NAM", "IMG"}


def test_repeated_records(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across shards and subsets, more records are repeated than are listed."""
    for copy in ("train-00000-of-00002", "train-00001-of-00002", "val-00000-of-00001"):
        shutil.copy(next((corpus / "hyphal-tips").glob("*.record")), tmp_path / f"{copy}.record")
    # Names are relative to this folder; a file with the name of a module is not imported.
    monkeypatch.chdir(tmp_path)
    Path("queue.py").write_text("raise SystemExit('the file was run')")
    report = same_report(["train*", "val*"], Options(max_findings=20), DIRECT)
    assert {"NAM002", "IMG010", "IMG011"} <= report.counts.by_code.keys()
    assert report.total > len(report.findings) == 20


def test_rows_for_a_task(corpus: Path) -> None:
    some = shards(*sorted(corpus.glob("d*/*.tfrecord")), corpus / "nowhere.record")
    instructions = INSTRUCTIONS._replace(keeps_rows=True)
    there = list(DIRECT.examine(some, instructions))
    assert [one.rows for one in there] == [examine(one, instructions).rows for one in some]
    assert sum(len(one.rows) for one in there) > 10 and there[-1].unreadable

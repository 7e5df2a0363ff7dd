"""Pipelines on every runner that can be had here: what comes back, and what is left when not."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tfod.beam import Runner, run_pipeline
from tfod.beam.job import _without_step
from tfod.errors import TfodError

from tests.beam import steps
from tests.beam.clusters import children_of, command_of
from tests.beam.conftest import direct
from tests.commands import free_port, wait_until

SUMS = [("remainder 0", 4, 18), ("remainder 1", 3, 12), ("remainder 2", 3, 15)]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which is empty again in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    # Workers find the steps of the tests; the current folder is not looked into.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []


# From other runners: the tests of dead workers.
def test_elements_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file beside the shards that is called like a module is not taken for one.
    (tmp_path / "queue.py").write_text("raise SystemExit('the file was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert sorted(run_pipeline(partial(steps.sums_by_remainder, 10), direct(2))) == SUMS


@pytest.mark.usefixtures("in_this_process")
def test_no_elements_come_back() -> None:
    assert run_pipeline(steps.nothing, direct(1)) == []


@pytest.mark.parametrize("runner", ["direct-2", "portable"], indirect=True)
def test_an_error_of_ours_is_its_line(runner: Runner) -> None:
    with pytest.raises(TfodError, match=r"^a\.record, record 2: is damaged; repair it$"):
        run_pipeline(partial(steps.failing, "shard"), runner)


@pytest.mark.parametrize(
    "runner", ["direct-1", pytest.param("portable", marks=pytest.mark.slow)], indirect=True
)
def test_another_error_is_one_line_and_a_log(runner: Runner, temporary: Path) -> None:
    with pytest.raises(TfodError) as caught:
        run_pipeline(partial(steps.failing, "other"), runner)
    log = next(temporary.iterdir())
    assert str(caught.value) == (
        f"{runner.name}: ZeroDivisionError: two (all that Beam said is in {log})"
    )
    log.unlink()


# Of DirectRunner: test_check.py.
def test_work_of_a_dead_worker_is_done_again(
    portable: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    with WorkerKiller(notes):
        assert sorted(run_pipeline(partial(steps.noted, notes, 4, 0.3), portable)) == [0, 1, 2, 3]
    assert capsys.readouterr().err == (
        "tfod: PortableRunner: a worker process died; all its work is done again (attempt 2 of 3)\n"
    )


def test_another_end_is_one_line_and_nothing_is_done_again(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TfodError) as caught:
        run_pipeline(steps.leaving, direct(1))
    log = next(temporary.iterdir())
    assert str(caught.value) == (
        f"DirectRunner: SystemExit: enough (all that Beam said is in {log})"
    )
    assert capsys.readouterr().err == ""
    log.unlink()


def test_only_the_step_at_the_end_is_cut_off() -> None:
    name = "a [while running 'b'].record"
    assert _without_step(f"{name}: is damaged [while running 'step']") == f"{name}: is damaged"
    assert _without_step(f"{name}: is damaged") == f"{name}: is damaged"


def test_a_temporary_folder_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # it would write, too
    process = program(
        "steps.large, 1", 1, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    )
    assert re.search(
        r"TfodError: .*/temporary: what a pipeline needs cannot be written there "
        r"\(File too large\); make room, or name another folder with TMPDIR$",
        process.communicate()[1].rstrip(),
    )


def test_what_dies_again_and_again(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TfodError) as caught:
        run_pipeline(steps.dying, direct(1))
    died = "DirectRunner: its process died (SIGKILL)"
    log = next(temporary.iterdir())
    assert str(caught.value) == (
        f"{died}, 3 times; is there enough memory? try fewer workers "
        f"(all that Beam said is in {log})"
    )
    log.unlink()
    assert capsys.readouterr().err.splitlines() == [
        f"tfod: {died}; all its work is done again (attempt {attempt} of 3)" for attempt in (2, 3)
    ]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_nothing_is_left_of_an_end(number: int, tmp_path: Path, temporary: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    process = program(f"steps.noted, Path({str(notes)!r}), 4, 60", 2)
    wait_until(lambda: list(notes.iterdir()))
    started = children_of(process.pid)
    # One that does not even notice that nobody is there any more.
    os.kill(next(one for one in started if is_worker(one)), signal.SIGSTOP)
    process.send_signal(number)
    assert process.communicate()[1] == ""
    wait_until(lambda: not any(map(command_of, started)))
    wait_until(lambda: not list(temporary.iterdir()))


def test_a_result_that_finds_no_room(tmp_path: Path) -> None:
    process = program(
        "steps.large, 10_000_000",
        1,
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )
    _, output = process.communicate()
    assert re.search(
        r"TfodError: .*/result.pickle: the result cannot be written \(File too large\); make room "
        r"there, or name another folder with --temp_location$",
        output.rstrip(),
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("NoRunner", (), "--runner NoRunner: Unexpected pipeline runner: NoRunner. Valid values"),
        ("no.such.Runner", (), "--runner no.such.Runner: No module named 'no'"),
        ("DirectRunner", ("--frobnicate",), "-- --frobnicate: DirectRunner has no such option"),
        ("direct", ("--direct_num_workers=x",), "-- --direct_num_workers: invalid int value: 'x'"),
        ("portable", (), "portable: NotImplementedError: You must specify a --job_endpoint when"),
        (
            "portable",
            ("--job_endpoint=localhost:PORT",),
            "-- --job_endpoint: no job server answers at localhost:PORT (Connection refused)",
        ),
        ("direct", ("--temp_location=/dev/null/x",), "--temp_location: /dev/null/x/tfod-"),
        (
            "spark",
            ("--spark_job_server_jar=/nowhere/x.jar",),
            'spark: ValueError: Unable to parse jar URL "/nowhere/x.jar". If using',
        ),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_options_that_lead_nowhere(
    name: str, arguments: tuple[str, ...], message: str, temporary: Path
) -> None:
    port = str(free_port())
    given = [one.replace("PORT", port) for one in arguments]
    with pytest.raises(TfodError) as caught:
        run_pipeline(steps.nothing, Runner(name, given))
    assert str(caught.value).startswith(message.replace("PORT", port))
    assert "\n" not in str(caught.value)
    for log in temporary.iterdir():
        log.unlink()


@pytest.mark.usefixtures("in_this_process")
def test_the_result_passes_through_the_place_that_workers_share(tmp_path: Path) -> None:
    runner = Runner("direct", (f"--temp_location={tmp_path / 'shared'}",))
    assert len(run_pipeline(partial(steps.sums_by_remainder, 10), runner)) == 3
    assert list((tmp_path / "shared").iterdir()) == []


class WorkerKiller:
    """Kills one worker, as soon as it is at an element."""

    def __init__(self, notes: Path) -> None:
        notes.mkdir()
        self._notes = notes
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def _kill(self) -> None:
        wait_until(lambda: list(self._notes.iterdir()))
        note = next(self._notes.iterdir())
        os.kill(int(note.name.split()[0]), signal.SIGKILL)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def is_worker(pid: int) -> bool:
    return "-m apache_beam.runners.worker" in command_of(pid)


def program(
    steps_of: str, workers: int, before: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    """A program that runs these steps, and ends as programs do."""
    lines = (
        "import signal, sys; from functools import partial; from pathlib import Path",
        "from tests.beam import steps; from tests.beam.conftest import direct",
        "from tfod.beam import run_pipeline",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))",
        f"run_pipeline(partial({steps_of}), direct({workers}))",
    )
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )

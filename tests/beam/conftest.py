"""The runners that a pipeline is tried on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tfod.beam import Runner, job
from tfod.beam.run import Outcome

from tests.beam.clusters import portable_cluster

_PROCESSES = ("--direct_running_mode=multi_processing",)


def direct(workers: int) -> Runner:
    """Beam's DirectRunner: one worker in the pipeline's own process, more as processes."""
    if workers == 1:
        return Runner("DirectRunner")
    return Runner("DirectRunner", (*_PROCESSES, f"--direct_num_workers={workers}"))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pipelines run in this process, where one of its own is not what is tested.

    Beam is then imported once, which takes longer than most pipelines of tests.
    """

    def run_once(_: object, folder: str) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", folder)
            return job.outcome_of(folder)

    usual = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("tfod.beam.run._run_once", run_once)
    yield
    signal.signal(signal.SIGTERM, usual)


@pytest.fixture(scope="package")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A job server, and workers that it has not started itself."""
    with portable_cluster(tmp_path_factory.mktemp("portable")) as options:
        yield Runner("PortableRunner", tuple(options))


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Runner:
    """A runner by its name: ``@pytest.mark.parametrize("runner", ["direct-2"], indirect=True)``."""
    kind, _, workers = request.param.partition("-")
    if kind == "direct":
        return direct(int(workers))
    found: Runner = request.getfixturevalue(kind)
    return found

"""Several machines: RQ's workers on a real Redis, and the data folder that all of them share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError
from tfod_validator.folder import DataFolder, Request
from tfod_validator.settings import Settings
from tfod_validator.workers import RedisQueue

from tests.commands import free_port, require, run_python, wait_until
from tests.validator.conftest import Service, running_service
from tests.validator.heavy import begin, record_of

_PASSWORD = "open-sesame"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """URL of a Redis of our own, with a password."""
    require("Redis", shutil.which("redis-server") is not None)
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", _PASSWORD, "--save", ""]
    server = subprocess.Popen(
        ["redis-server", *options, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL
    )
    url = f"redis://:{_PASSWORD}@127.0.0.1:{port}"
    try:
        client = Redis.from_url(url)

        def answers() -> Any:
            with suppress(RedisError):
                return client.ping()

        wait_until(answers)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def test_workers_that_die_lose_nothing(redis: str, tmp_path: Path) -> None:
    """Of two workers each is killed with its checks while it works; all reports come, once."""
    data, environment = tmp_path / "data", {"TFOD_QUEUE": redis}
    with ExitStack() as stack:
        web = stack.enter_context(running_service(data, environment=environment))
        assert web.get("/readyz").json()["checks"]["workers"] == "failing"
        assert web.checks() == []

        def start_worker() -> Service:
            return stack.enter_context(running_service(data, "--worker", environment=environment))

        workers = [start_worker() for _ in range(2)]
        wait_until(lambda: web.get("/readyz").status_code == 200)
        keys = [begin(web, record_of() * 200) for _ in range(20)]
        for worker in workers:  # the horse too: then nobody goes on with its check
            os.kill(worker.process.pid, signal.SIGKILL)
            worker.process.wait(60)
            start_worker()
        for key in keys:
            assert web.wait_until_over(key)["state"] == "finished"
        wait_until(lambda: not web.folder("waiting"))
        assert sorted(keys) == web.folder("reports")


def test_uploads_are_accepted_while_redis_is_away(tmp_path: Path) -> None:
    gone = {"TFOD_QUEUE": f"redis://127.0.0.1:{free_port()}"}
    with running_service(tmp_path, environment=gone) as web:
        key = begin(web, record_of())
        assert web.get(f"/api/v1/validations/{key}").json()["state"] == "queued"
        assert web.get("/readyz").json()["checks"]["workers"] == "failing"


def test_what_was_accepted_while_redis_was_away_is_queued_later(redis: str, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", queue=redis)
    folder = DataFolder(settings)
    folder.create()
    folder.accept(folder.begin_upload(), Request())
    queue = RedisQueue(settings)
    queue.start()
    wait_until(lambda: queue.count("")[1] == 1)
    queue.stop()


def test_a_check_that_always_dies_is_reported(redis: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"TFOD_QUEUE": redis, "TFOD_MAX_ATTEMPTS": "2"}
    with (
        running_service(data, environment=environment) as web,
        running_service(data, "--worker", environment=environment) as worker,
    ):
        key = begin(web, record_of() * 100_000)
        while web.folder("waiting"):
            for check in worker.checks():
                with suppress(OSError):
                    if _is_check(check, worker):
                        os.kill(check, signal.SIGKILL)
            time.sleep(0.02)
        failure = web.wait_until_over(key)["failure"]
        assert "was started 2 times and never finished" in failure["detail"]


def _is_check(pid: int, worker: Service) -> bool:
    """Whether a process is the child of a work horse, which is the child of the worker."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    parent = int(stat[1])
    above = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    return int(above[1]) == worker.process.pid


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "set TFOD_QUEUE to the URL of the Redis"),
        ("sesame@redis", "TFOD_QUEUE: expected redis://:PASSWORD@HOST:6379"),
        ("redis://:sesame@127.0.0.1:1", "Redis does not respond (Error 111 connecting"),
    ],
)
def test_a_worker_without_a_queue_says_what_to_do(tmp_path: Path, url: str, said: str) -> None:
    refused = run_python(
        *("-m", "tfod.cli.main", "serve", "--worker"), folder=tmp_path, TFOD_QUEUE=url
    ).refused()
    assert said in refused and "sesame" not in refused

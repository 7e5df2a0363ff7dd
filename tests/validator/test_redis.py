"""Several machines: RQ's workers on a real Redis, and a data folder that all of them share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError
from tfod_validator.folder import DataFolder, Request
from tfod_validator.settings import Settings
from tfod_validator.workers import RedisQueue

from tests.commands import free_port, parent_of, require, run_python, wait_until
from tests.validator.conftest import UPLOADS, Start, record_of


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """The URL of a Redis for this test, with a password."""
    require("Redis", shutil.which("redis-server") is not None)
    port, password = free_port(), "open-sesame"
    options = f"--port {port} --bind 127.0.0.1 --requirepass {password} --save".split()
    command = ["redis-server", *options, "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://:{password}@127.0.0.1:{port}"
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


def test_workers_that_die_lose_nothing(redis: str, start_service: Start) -> None:
    """Two workers are killed while they check; all reports are published, once."""
    web = start_service(TFOD_QUEUE=redis)
    assert web.get("/readyz").json()["checks"]["workers"] == "failing"
    assert web.checks() == []
    workers = [start_service("--worker", TFOD_QUEUE=redis) for _ in range(2)]
    wait_until(lambda: web.get("/readyz").status_code == 200)
    keys = [web.begin(record_of() * 200) for _ in range(20)]
    for worker in workers:  # also ends its child, which runs the check
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait(60)
        start_service("--worker", TFOD_QUEUE=redis)
    for key in keys:
        assert web.wait_until_over(key)["state"] == "finished"
    wait_until(lambda: not web.folder("waiting"))
    assert sorted(keys) == web.folder("reports")


def test_uploads_are_accepted_while_redis_is_away(start_service: Start) -> None:
    web = start_service(TFOD_QUEUE=f"redis://127.0.0.1:{free_port()}")
    key = web.begin(record_of())
    assert web.get(f"{UPLOADS}/{key}").json()["state"] == "queued"
    assert web.get("/readyz").json()["checks"]["workers"] == "failing"


def test_uploads_accepted_while_redis_was_away_are_queued_later(redis: str, tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", queue=redis)
    folder = DataFolder(settings)
    folder.create()
    folder.accept(folder.begin_upload(), Request())
    queue = RedisQueue(settings)
    queue.start()
    wait_until(lambda: queue.count("")[1] == 1)
    queue.stop()


def test_a_check_that_always_dies_is_reported(redis: str, start_service: Start) -> None:
    limits = {"TFOD_QUEUE": redis, "TFOD_MAX_ATTEMPTS": "2"}
    web, worker = start_service(**limits), start_service("--worker", **limits)
    key = web.begin(record_of() * 100_000)
    while web.folder("waiting"):
        for check in worker.checks():
            # A check is a child of the worker's child.
            if parent_of(parent_of(check)) == worker.process.pid:
                with suppress(OSError):
                    os.kill(check, signal.SIGKILL)
        time.sleep(0.02)
    failure = web.wait_until_over(key)["failure"]
    assert "was started 2 times and never finished" in failure["detail"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "set TFOD_QUEUE to the URL of the Redis"),
        ("sesame@redis", "TFOD_QUEUE: expected redis://:PASSWORD@HOST:6379"),
        ("redis://:sesame@127.0.0.1:1", "Redis does not respond (Error 111 connecting"),
    ],
)
def test_a_worker_needs_a_queue(tmp_path: Path, url: str, said: str) -> None:
    refused = run_python(
        *("-m", "tfod.cli.main", "serve", "--worker"), folder=tmp_path, TFOD_QUEUE=url
    ).refused()
    assert said in refused and "sesame" not in refused

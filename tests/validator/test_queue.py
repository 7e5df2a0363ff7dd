"""The folder that is the queue: accepted uploads survive any crash, and are published once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from redis import Redis, RedisError
from tfod_validator.folder import DataFolder, Request, Result
from tfod_validator.settings import Settings
from tfod_validator.workers import LocalQueue, RedisQueue

from tests.commands import free_port, parent_of, require, run_python, wait_until
from tests.validator.conftest import UPLOADS, Service, Start, problem, record_of, zip_of
from tests.validator.sockets import ask, head_of


class TestTurns:
    @pytest.fixture
    def workers(self, tmp_path: Path) -> LocalQueue:
        """A queue for two checks at the same time, without threads."""
        return LocalQueue(Settings(data=tmp_path, checks=2))

    def test_addresses_take_turns(self, workers: LocalQueue) -> None:
        for key in ("a1", "a2", "a3", "b1", "c1", "a1"):  # the last is already waiting
            workers.add(key, key[0])
        taken = []
        for _ in range(5):
            taken.append(workers.take() or "")
            workers.finish(taken[-1])
        assert taken == ["a1", "b1", "c1", "a2", "a3"]

    def test_an_address_leaves_a_check_to_others(self, workers: LocalQueue) -> None:
        for key in ("a1", "a2"):
            workers.add(key, "a")
        assert workers.take() == "a1"
        workers.add("b1", "b")
        assert workers.take() == "b1"  # a check of a is running
        workers.add("a1", "a")  # is already running
        assert workers.count("a") == (1, 1)
        workers.finish("a1")
        assert workers.take() == "a2"

    def test_a_stop_ends_waiting(self, workers: LocalQueue) -> None:
        waiting = threading.Thread(target=workers.take)
        waiting.start()
        workers.stop()
        waiting.join(60)
        assert not waiting.is_alive() and workers.take() is None


def run_all(threads: Sequence[threading.Thread], between: Any) -> None:
    """Start threads, call a function, and wait for the threads."""
    for thread in threads:
        thread.start()
    between()
    for thread in threads:
        thread.join(60)


def test_other_addresses_do_not_wait_for_a_crowd(start_service: Start) -> None:
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", TFOD_CHECKS="2")
    _, check = running.hold_check("10.0.0.1")
    crowd = [running.begin(record_of(), "10.0.0.1") for _ in range(3)]
    running.wait_until_over(running.begin(record_of(), "10.0.0.2"))
    assert {running.get(f"{UPLOADS}/{key}").json()["state"] for key in crowd} == {"queued"}
    os.kill(check, signal.SIGCONT)
    for key in crowd:
        running.wait_until_over(key)


def test_many_waiting_uploads_are_refused(start_service: Start) -> None:
    limits = {"TFOD_MAX_WAITING_PER_CLIENT": "2", "TFOD_MAX_WAITING": "3", "TFOD_CHECKS": "2"}
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", **limits)
    held = [running.hold_check(address)[1] for address in ("10.0.0.1", "10.0.0.9")]

    def refused(address: str) -> Any:
        file = {"file": ("a.tfrecord", b"x")}
        response = running.upload(file, {"X-Forwarded-For": address}, wait=0)
        assert int(response.headers["Retry-After"]) > 0
        return problem(response, 429)["limit"]

    for _ in range(2):
        running.begin(b"x", "10.0.0.1")
    assert refused("10.0.0.1") == "max_waiting_per_client"
    running.begin(b"x", "10.0.0.2")
    assert refused("10.0.0.3") == "max_waiting"
    assert running.folder("incoming") == []
    for check in held:
        os.kill(check, signal.SIGCONT)


def test_nothing_is_lost_when_all_is_killed(start_service: Start, good_zip: bytes) -> None:
    """At random moments under load; accepted uploads are checked after the next start, once."""
    accepted: list[str] = []
    for _ in range(4):
        running = start_service(TFOD_MAX_ATTEMPTS="10")

        def upload(service: Service = running) -> None:
            with suppress(requests.RequestException):
                answer = service.upload({"file": ("a.zip", good_zip)}, wait=0)
                accepted.append(answer.json()["id"])

        def kill(service: Service = running) -> None:
            time.sleep(random.uniform(0, 0.5))
            service.kill()

        run_all([threading.Thread(target=upload) for _ in range(15)], kill)
    assert accepted
    running = start_service(TFOD_MAX_ATTEMPTS="10")
    for key in accepted:
        assert running.wait_until_over(key)["valid"] is True
    wait_until(lambda: not running.folder("waiting"), running.lines)
    assert set(accepted) <= set(running.folder("reports"))


def test_a_check_that_dies_is_begun_again(start_service: Start) -> None:
    running = start_service(TFOD_MAX_ATTEMPTS="3")
    key, check = running.hold_check()
    os.kill(check, signal.SIGKILL)
    assert running.wait_until_over(key)["state"] == "finished"
    key = running.begin(record_of() * 200_000)
    while key in running.folder("waiting"):
        for check in running.checks():
            with suppress(ProcessLookupError):
                os.kill(check, signal.SIGKILL)
    found = running.wait_until_over(key)
    assert (found["state"], found["failure"]["status"]) == ("failed", 500)
    assert "was started 3 times and never finished" in found["failure"]["detail"]
    problem(running.get(found["links"]["html"]), 500)


def test_a_stop_does_not_count_as_an_attempt(start_service: Start) -> None:
    running = start_service()
    key, check = running.hold_check()
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(120)
    assert not Path(f"/proc/{check}").exists()
    assert not list((running.data / "waiting" / key).glob("attempt-*"))
    again = start_service(TFOD_MAX_ATTEMPTS="1")
    assert again.wait_until_over(key)["state"] == "finished"


def test_waiting_clients_get_an_answer_before_a_stop(start_service: Start) -> None:
    running = start_service(TFOD_CHECKS="1")
    key, check = running.hold_check()
    answers: list[Any] = []

    def ask() -> None:
        answers.append(running.get(f"{UPLOADS}/{key}?wait=60").json()["state"])

    def stop() -> None:
        wait_until(lambda: _connections_of(running) >= 10)
        running.get("/healthz")  # after this answer, the other requests have been read
        running.process.send_signal(signal.SIGTERM)

    run_all([threading.Thread(target=ask) for _ in range(10)], stop)
    os.kill(check, signal.SIGCONT)
    assert answers == ["running"] * 10


def _connections_of(service: Service) -> int:
    """Return the number of established connections to the port of a service."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{service.port:04X}") and row[3] == "01" for row in rows)


def test_a_deleted_upload_is_not_checked_further(start_service: Start) -> None:
    running = start_service()
    uploaded = running.upload({"file": ("a.tfrecord", record_of() * 20_000)}, wait=0).json()
    address = uploaded["links"]["self"]
    assert running.ask("DELETE", f"{address}?token={uploaded['token']}").status_code == 204
    wait_until(lambda: not running.checks())
    assert problem(running.get(address), 404)
    assert running.folder("reports") == [] == running.folder("waiting")


def test_limits_of_a_check(start_service: Start) -> None:
    limits = {"MAX_CHECK_BYTES": 400 << 20, "MAX_RECORD_BYTES": 1 << 30, "MAX_RECORDS": 1000}
    limits |= {"MAX_ARCHIVE_ENTRIES": 5, "MAX_ARCHIVE_RATIO": 20}
    running = start_service(**{f"TFOD_{name}": str(limit) for name, limit in limits.items()})
    small = start_service(TFOD_MAX_REPORT_BYTES="1000", data="small")
    for service, limit, content in (
        (running, "max_check_bytes", record_of(200 << 20)),
        (running, "max_records", record_of() * 1001),
        (small, "max_report_bytes", record_of()),
    ):
        failure = service.check(("a.tfrecord", content))["failure"]
        assert (failure["status"], failure["limit"]) == (422, limit)
    many = zip_of({f"{n}.txt": b"x" for n in range(6)})
    dense = zip_of({"a.tfrecord": bytes(8 << 20)})
    for content, said in ((many, "more than 5 entries"), (dense, "the maximum is 20 times")):
        findings = running.check(("a.zip", content))["report"]["findings"]
        assert any(said in finding["message"] for finding in findings)


def test_the_time_of_a_check_is_limited(start_service: Start) -> None:
    running = start_service(TFOD_MAX_CHECK_SECONDS="1")
    failure = running.wait_until_over(running.hold_check()[0])["failure"]
    assert (failure["status"], failure["limit"]) == (422, "max_check_seconds")
    assert "took longer than 1 seconds" in failure["detail"]


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> DataFolder:
        folder = DataFolder(Settings(data=tmp_path, upload_seconds=60, report_seconds=3600))
        folder.create()
        return folder

    def accept(self, folder: DataFolder) -> str:
        return folder.accept(folder.begin_upload(), Request()).id

    def attempt(self, folder: DataFolder, key: str, records: int = 0) -> Path:
        """Begin and finish an attempt without publishing it."""
        attempt, _ = folder.begin_attempt(key)
        folder.write_result(attempt, Result(True, 0.0, 1.0, records=records))
        return attempt

    def test_only_the_first_finished_attempt_is_kept(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        key = self.accept(folder)
        attempts = [self.attempt(folder, key, number) for number in range(2)]
        published = [folder.publish(attempt) for attempt in reversed(attempts)]
        assert [result and result.records for result in published] == [1, None]
        found = folder.find(key)
        assert found is not None and found.result is not None and found.result.records == 1
        assert folder.list_waiting() == [] == [*tmp_path.rglob("attempt-*")]

    def test_a_report_published_before_a_crash_is_not_made_again(self, folder: DataFolder) -> None:
        key = self.accept(folder)
        attempt = self.attempt(folder, key)
        attempt.rename(attempt.parent / "report")  # then all processes were killed
        found = folder.find(key)
        assert found is not None and found.state == "queued"
        assert folder.list_waiting() == [] and folder.upload_ends(key) is not None

    def test_one_process_locks_an_upload(self, folder: DataFolder) -> None:
        key = self.accept(folder)
        with folder.lock(key) as mine, folder.lock(key) as other, folder.lock("0" * 22) as gone:
            assert (mine, other, gone) == (True, False, False)

    def test_a_deleted_upload_does_not_come_back(self, folder: DataFolder, tmp_path: Path) -> None:
        key = self.accept(folder)
        attempt, _ = folder.begin_attempt(key)
        folder.delete(key)
        with pytest.raises(FileNotFoundError):
            folder.write_result(attempt, Result(True, 0.0, 1.0))
        assert folder.publish(attempt) is None and folder.find(key) is None
        assert not [*tmp_path.glob("*/*")]
        (attempt / "tmp").mkdir(parents=True)  # by a repair that is still running
        assert folder.list_waiting() == [] and not [*tmp_path.glob("*/*")]

    def test_invalid_requests_do_not_stop_the_others(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        key = self.accept(folder)
        for name, text in (("a" * 22, ""), ("b" * 22, "[]"), ("c" * 22, '{"files": [{"x": 1}]}')):
            (tmp_path / "waiting" / name).mkdir()
            (tmp_path / "waiting" / name / "request.json").write_text(text)
        assert [name for name, _ in folder.list_waiting()] == [key]
        assert folder.find("a" * 22) is None

    def test_expired_files_are_removed(self, folder: DataFolder, tmp_path: Path) -> None:
        key, arriving = self.accept(folder), folder.begin_upload()
        assert folder.publish(self.attempt(folder, key)) is not None
        folder.clean()
        assert folder.upload_ends(key) is not None
        report = tmp_path / "reports" / key / "report"
        for seconds, is_kept in ((time.time() - 61, True), (0, False)):
            for path in (report, arriving):
                os.utime(path, (seconds, seconds))
            folder.clean()
            assert folder.upload_ends(key) is None
            assert (folder.find(key) is not None) == arriving.exists() == is_kept

    def test_keys_do_not_become_paths(self, folder: DataFolder) -> None:
        for key in ("..", "a/b", "../waiting", "\0" * 22, "x" * 23, ""):
            assert folder.find(key) is None


def test_a_full_disk_leaves_no_incomplete_files(start_service: Start, tmp_path: Path) -> None:
    """The data folder is on a disk of 20 MB."""
    data = tmp_path / "small"
    data.mkdir()
    mounted = os.system(f"mount -t tmpfs -o size=20m tmpfs {data} 2>/dev/null") == 0
    require("a mount", mounted)
    try:
        running = start_service(data="small", TFOD_MIN_FREE_BYTES="1")
        answer = ask(running, head_of(f"Content-Length: {15 << 20}"))
        assert answer.limit() == (507, "min_free_bytes")
        assert running.folder("incoming") == [] == running.folder("waiting")
        assert running.check(("a.tfrecord", record_of()))["state"] == "finished"
    finally:
        for _ in range(50):
            if os.system(f"umount {data} 2>/dev/null || umount -l {data}") == 0:
                break


# Several machines: RQ's workers on a real Redis, and a data folder that all of them share


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
    ("option", "name", "value", "said"),
    [
        ("--worker", "QUEUE", "", "set TFOD_QUEUE to the URL of the Redis"),
        ("--worker", "QUEUE", "sesame@redis", "expected redis://:PASSWORD@HOST:6379"),
        ("--worker", "QUEUE", "redis://:sesame@127.0.0.1:1", "does not respond (Error 111 connect"),
        (
            "--port=0",
            "MAX_CHECK_BYTES",
            "1000",
            "'1000' is not a whole number of 419430400 or more",
        ),
    ],
)
def test_invalid_settings(tmp_path: Path, option: str, name: str, value: str, said: str) -> None:
    command = ("-m", "tfod.cli.main", "serve", option)
    refused = run_python(*command, folder=tmp_path, **{f"TFOD_{name}": value}).refused()
    assert said in refused and "sesame" not in refused

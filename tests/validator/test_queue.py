"""The folder that is the queue: what was accepted is checked, whoever dies, and published once."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod_validator.folder import DataFolder, Request, Result
from tfod_validator.settings import Settings
from tfod_validator.workers import LocalQueue

from tests.commands import require, run_python, wait_until
from tests.validator.conftest import Service, zip_of
from tests.validator.heavy import begin, held_check, record_of
from tests.validator.sockets import ask, head_of
from tests.validator.test_api import problem

Start = Callable[..., Service]


class TestTurns:
    @pytest.fixture
    def workers(self, tmp_path: Path) -> LocalQueue:
        """Two places, without threads."""
        return LocalQueue(Settings(data=tmp_path, checks=2))

    def test_addresses_take_turns(self, workers: LocalQueue) -> None:
        for key in ("a1", "a2", "a3", "b1", "c1", "a1"):  # the last waits already
            workers.add(key, key[0])
        taken = []
        for _ in range(5):
            taken.append(workers.take() or "")
            workers.finish(taken[-1])
        assert taken == ["a1", "b1", "c1", "a2", "a3"]

    def test_one_place_is_left_to_others(self, workers: LocalQueue) -> None:
        for key in ("a1", "a2"):
            workers.add(key, "a")
        assert workers.take() == "a1"
        workers.add("b1", "b")
        assert workers.take() == "b1"  # since one of a runs
        workers.add("a1", "a")  # which runs
        assert workers.count("a") == (1, 1)
        workers.finish("a1")
        assert workers.take() == "a2"

    def test_an_end(self, workers: LocalQueue) -> None:
        waiting = threading.Thread(target=workers.take)
        waiting.start()
        workers.stop()
        waiting.join(60)
        assert not waiting.is_alive() and workers.take() is None


def test_other_addresses_do_not_wait_for_a_crowd(start_service: Start) -> None:
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", TFOD_CHECKS="2")
    _, check = held_check(running, "10.0.0.1")
    crowd = [begin(running, record_of(), "10.0.0.1") for _ in range(3)]
    other = begin(running, record_of(), "10.0.0.2")
    running.wait_until_over(other)
    states = {running.get(f"/api/v1/validations/{key}").json()["state"] for key in crowd}
    assert states == {"queued"}
    os.kill(check, signal.SIGCONT)
    for key in crowd:
        running.wait_until_over(key)


def test_who_waits_too_often_is_told(start_service: Start) -> None:
    limits = {"TFOD_MAX_WAITING_PER_CLIENT": "2", "TFOD_MAX_WAITING": "3"}
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", TFOD_CHECKS="2", **limits)
    held_check(running, "10.0.0.1")
    held_check(running, "10.0.0.9")
    file = {"file": ("a.tfrecord", b"x")}
    for _ in range(2):
        begin(running, b"x", "10.0.0.1")
    refused = running.upload(file, {"X-Forwarded-For": "10.0.0.1"}, wait=0)
    assert problem(refused, 429)["limit"] == "max_waiting_per_client"
    assert int(refused.headers["Retry-After"]) > 0
    begin(running, b"x", "10.0.0.2")
    refused = running.upload(file, {"X-Forwarded-For": "10.0.0.3"}, wait=0)
    assert problem(refused, 429)["limit"] == "max_waiting"
    assert running.folder("incoming") == []


def test_nothing_is_lost_when_all_is_killed(start_service: Start, good_zip: bytes) -> None:
    """At random moments under load; what was accepted is checked after the next start, once."""
    accepted: list[str] = []
    for _ in range(4):
        running = start_service(TFOD_MAX_ATTEMPTS="10")

        def ask(service: Service = running) -> None:
            with suppress(requests.RequestException):
                answer = service.upload({"file": ("a.zip", good_zip)}, wait=0)
                accepted.append(answer.json()["id"])

        askers = [threading.Thread(target=ask) for _ in range(15)]
        for one in askers:
            one.start()
        time.sleep(random.uniform(0, 0.5))
        running.kill()
        for one in askers:
            one.join()
    assert accepted
    running = start_service(TFOD_MAX_ATTEMPTS="10")
    for key in accepted:
        assert running.wait_until_over(key)["valid"] is True
    wait_until(lambda: not running.folder("waiting"), running.lines)
    assert set(accepted) <= set(running.folder("reports"))


def test_a_check_that_dies_is_begun_again(start_service: Start) -> None:
    running = start_service(TFOD_MAX_ATTEMPTS="3")
    key, check = held_check(running)
    os.kill(check, signal.SIGKILL)
    assert running.wait_until_over(key)["state"] == "finished"
    key = begin(running, record_of() * 200_000)
    while key in running.folder("waiting"):
        for check in running.checks():
            with suppress(ProcessLookupError):
                os.kill(check, signal.SIGKILL)
    found = running.wait_until_over(key)
    assert (found["state"], found["failure"]["status"]) == ("failed", 500)
    assert "was started 3 times and never finished" in found["failure"]["detail"]
    problem(running.get(found["links"]["html"]), 500)


def test_a_stop_is_no_attempt(start_service: Start) -> None:
    running = start_service()
    key, check = held_check(running)
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(120)
    assert not Path(f"/proc/{check}").exists()
    assert not list((running.data / "waiting" / key).glob("attempt-*"))
    again = start_service(TFOD_MAX_ATTEMPTS="1")
    assert again.wait_until_over(key)["state"] == "finished"


def test_who_waits_is_answered_at_the_end(start_service: Start) -> None:
    running = start_service(TFOD_CHECKS="1")
    key, check = held_check(running)
    answers: list[Any] = []

    def ask() -> None:
        answers.append(running.get(f"/api/v1/validations/{key}?wait=60").json()["state"])

    askers = [threading.Thread(target=ask) for _ in range(10)]
    for one in askers:
        one.start()
    wait_until(lambda: _connections_of(running) >= 10)
    running.get("/healthz")  # when this is answered, the others have been read
    running.process.send_signal(signal.SIGTERM)
    for one in askers:
        one.join(60)
    os.kill(check, signal.SIGCONT)
    assert answers == ["running"] * 10


def _connections_of(service: Service) -> int:
    """How many connections to its port are established."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(row[1].endswith(f":{service.port:04X}") and row[3] == "01" for row in rows)


def test_what_is_deleted_is_not_checked_further(start_service: Start) -> None:
    running = start_service()
    uploaded = running.upload({"file": ("a.tfrecord", record_of() * 20_000)}, wait=0).json()
    address = running.url + uploaded["links"]["self"]
    answer = requests.delete(address, params={"token": uploaded["token"]}, timeout=60)
    assert answer.status_code == 204
    wait_until(lambda: not running.checks())
    assert problem(requests.get(address, timeout=60), 404)
    assert running.folder("reports") == [] == running.folder("waiting")


class TestLimitsOfAChild:
    def failure(self, running: Service, content: bytes) -> dict[str, Any]:
        found = running.upload({"file": ("a.tfrecord", content)}).json()
        assert found["state"] == "failed", found
        failure: dict[str, Any] = found["failure"]
        return failure

    def test_time(self, start_service: Start) -> None:
        running = start_service(TFOD_MAX_CHECK_SECONDS="1")
        key, _ = held_check(running)
        failure = running.wait_until_over(key)["failure"]
        assert (failure["status"], failure["limit"]) == (422, "max_check_seconds")
        assert "took longer than 1 seconds" in failure["detail"]

    def test_memory(self, start_service: Start) -> None:
        limits = {"TFOD_MAX_CHECK_BYTES": str(400 << 20), "TFOD_MAX_RECORD_BYTES": str(1 << 30)}
        failure = self.failure(start_service(**limits), record_of(600 << 20))
        assert (failure["status"], failure["limit"]) == (422, "max_check_bytes")

    def test_records(self, start_service: Start) -> None:
        failure = self.failure(start_service(TFOD_MAX_RECORDS="1000"), record_of() * 1001)
        assert (failure["status"], failure["limit"]) == (422, "max_records")

    def test_length_of_a_report(self, start_service: Start) -> None:
        failure = self.failure(start_service(TFOD_MAX_REPORT_BYTES="1000"), record_of())
        assert (failure["status"], failure["limit"]) == (422, "max_report_bytes")

    def test_less_memory_than_a_check_needs_is_refused(self, tmp_path: Path) -> None:
        refused = run_python(
            *("-m", "tfod.cli.main", "serve"), folder=tmp_path, TFOD_MAX_CHECK_BYTES="1000"
        ).refused()
        assert "TFOD_MAX_CHECK_BYTES: '1000' is not a whole number of 419430400 or more" in refused

    def test_archives(self, start_service: Start) -> None:
        running = start_service(TFOD_MAX_ARCHIVE_ENTRIES="5", TFOD_MAX_ARCHIVE_RATIO="20")
        many = zip_of({f"{n}.txt": b"x" for n in range(6)})
        dense = zip_of({"a.tfrecord": bytes(8 << 20)})
        for content, said in ((many, "more than 5 entries"), (dense, "the maximum is 20 times")):
            report = running.upload({"file": ("a.zip", content)}).json()["report"]
            assert any(said in one["message"] for one in report["findings"])


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> DataFolder:
        folder = DataFolder(Settings(data=tmp_path, upload_seconds=60, report_seconds=3600))
        folder.create()
        return folder

    def accept(self, folder: DataFolder) -> str:
        return folder.accept(folder.begin_upload(), Request()).id

    def publish(self, folder: DataFolder) -> str:
        key = self.accept(folder)
        attempt, _ = folder.begin_attempt(key)
        folder.write_result(attempt, Result(True, 0.0, 1.0))
        assert folder.publish(attempt) is not None
        return key

    def test_the_first_attempt_that_ends_is_the_report(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        """Of others nothing is kept."""
        key = self.accept(folder)
        attempts = [folder.begin_attempt(key)[0] for _ in range(2)]
        for number, attempt in enumerate(attempts):
            folder.write_result(attempt, Result(True, 0.0, 1.0, records=number))
        published = [folder.publish(one) for one in reversed(attempts)]
        assert [one and one.records for one in published] == [1, None]
        found = folder.find(key)
        assert found is not None and found.result is not None and found.result.records == 1
        assert folder.list_waiting() == [] == [*tmp_path.rglob("attempt-*")]

    def test_what_was_published_before_a_crash_is_not_checked_again(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        key = self.accept(folder)
        attempt, _ = folder.begin_attempt(key)
        folder.write_result(attempt, Result(True, 0.0, 1.0))
        attempt.rename(attempt.parent / "report")  # and then all was killed
        found = folder.find(key)
        assert found is not None and found.state == "queued"
        assert folder.list_waiting() == [] and folder.upload_ends(key) is not None

    def test_one_process_holds_what_waits(self, folder: DataFolder) -> None:
        key = self.accept(folder)
        with folder.lock(key) as mine, folder.lock(key) as other:
            assert (mine, other) == (True, False)
        with folder.lock("0" * 22) as gone:
            assert gone is False

    def test_what_is_deleted_meanwhile_does_not_come_back(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        key = self.accept(folder)
        attempt, _ = folder.begin_attempt(key)
        folder.delete(key)
        with pytest.raises(FileNotFoundError):
            folder.write_result(attempt, Result(True, 0.0, 1.0))
        assert folder.publish(attempt) is None and folder.find(key) is None
        assert not [*tmp_path.glob("*/*")]
        (attempt / "tmp").mkdir(parents=True)  # as a repair does that has not been ended yet
        assert folder.list_waiting() == [] and not [*tmp_path.glob("*/*")]

    def test_what_nobody_can_read_does_not_stop_the_others(
        self, folder: DataFolder, tmp_path: Path
    ) -> None:
        key = self.accept(folder)
        for name, text in (("a" * 22, ""), ("b" * 22, "[]"), ("c" * 22, '{"files": [{"x": 1}]}')):
            (tmp_path / "waiting" / name).mkdir()
            (tmp_path / "waiting" / name / "request.json").write_text(text)
        assert [one for one, _ in folder.list_waiting()] == [key]
        assert folder.find("a" * 22) is None

    def test_what_has_expired_is_removed(self, folder: DataFolder, tmp_path: Path) -> None:
        key, arriving = self.publish(folder), folder.begin_upload()
        folder.clean()
        assert folder.upload_ends(key) is not None
        report = tmp_path / "reports" / key / "report"
        for one in (report, arriving):
            os.utime(one, (time.time() - 61,) * 2)
        folder.clean()
        assert folder.upload_ends(key) is None and folder.find(key) is not None
        assert arriving.exists()
        for one in (report, arriving):
            os.utime(one, (0, 0))
        folder.clean()
        assert folder.find(key) is None and not arriving.exists()

    @pytest.mark.parametrize("key", ["..", "a/b", "../waiting", "\0" * 22, "x" * 23, ""])
    def test_keys_are_no_paths(self, folder: DataFolder, key: str) -> None:
        assert folder.find(key) is None


def test_a_full_disk_leaves_nothing_half(start_service: Start, tmp_path: Path) -> None:
    """The data folder is a disk of 20 MB of its own."""
    data = tmp_path / "small"
    data.mkdir()
    mounted = os.system(f"mount -t tmpfs -o size=20m tmpfs {data} 2>/dev/null") == 0
    require("a mount", mounted)
    try:
        running = start_service(data="small", TFOD_MIN_FREE_BYTES="1")
        answer = ask(running, head_of(f"Content-Length: {15 << 20}"))
        assert (answer.status, answer.problem()["limit"]) == (507, "min_free_bytes")
        assert running.folder("incoming") == [] == running.folder("waiting")
        small = running.upload({"file": ("a.tfrecord", record_of())})
        assert small.json()["state"] == "finished"
    finally:
        for _ in range(50):
            if os.system(f"umount {data} 2>/dev/null || umount -l {data}") == 0:
                break

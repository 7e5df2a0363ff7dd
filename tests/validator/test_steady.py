"""Plugs are pulled: whatever was accepted gets its report, and nothing is left over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from tfod_validator.jobs import sandbox
from tfod_validator.jobs.check_upload import run_check
from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database
from tfod_validator.jobs.request import REPORTS, FilesAwayError, Request, UploadedFile
from tfod_validator.jobs.worker import Worker
from tfod_validator.settings import Settings

from tests.commands import parent_of
from tests.validator.conftest import REMOTE_TIMEOUT, Service, running_service
from tests.validator.heavy import (
    begin,
    check_of,
    held_check,
    record_of,
    slow_shard,
    wait_for,
    worker_of,
)
from tests.validator.sockets import answer_on
from tests.validator.test_api import problem
from tests.validator.test_limits import send

Start = Callable[..., Service]


@pytest.fixture(scope="module")
def slow() -> bytes:
    """A shard of which the check takes some seconds."""
    return slow_shard(100_000)


def kill_check(service: Service) -> None:
    """Kill the process of the check, as soon as there is one."""

    def kill() -> bool:
        with suppress(ValueError, OSError):
            os.kill(check_of(service), signal.SIGKILL)
            return True
        return False

    wait_for(kill, service)


def attempts_of(service: Service, key: str) -> int:
    return attempts_in(Settings(data=service.data), key)


def attempts_in(settings: Settings, key: str) -> int:
    store = Database(settings)
    found = store.find(key)

    assert found is not None
    return found.attempts


def leftovers(data: Path) -> list[Path]:
    """Files of uploads that are there."""
    return [*(data / "uploads").iterdir(), *(data / "incoming").iterdir()]


def tidy(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do at once what workers do when files have been there for a while."""
    for name in ("_ABANDONED_AFTER", "_ORPHANED_AFTER"):
        monkeypatch.setattr("tfod_validator.jobs.data_folder." + name, 0.0)
    settings = Settings(data=data)
    DataFolder(settings, Database(settings), takes_uploads=False).clean()


def test_a_check_is_killed_and_deleted_and_the_service_goes_on(
    start_service: Start, slow: bytes
) -> None:
    running = start_service("--checks", "1")
    key = begin(running, slow)
    kill_check(running)
    wait_for(lambda: attempts_of(running, key) == 2, running)
    kill_check(running)
    found = running.wait_until_over(key)
    assert (found["state"], found["failure"]["status"]) == ("failed", 500)
    assert "killed the check's process (SIGKILL) each time" in found["failure"]["detail"]
    assert attempts_of(running, key) == 2

    key, check = held_check(running)
    forked_from = Path(f"/proc/{parent_of(check)}/maps")
    assert "/lxml/etree." in forked_from.read_text()  # as all that checks need
    os.kill(check, signal.SIGKILL)
    assert running.wait_until_over(key)["state"] == "finished"
    assert attempts_of(running, key) == 2

    key, check = held_check(running)
    address = f"{running.url}/api/v1/validations/{key}"
    assert requests.delete(address, timeout=60).status_code == 204
    wait_for(lambda: check not in running.children(), running)
    problem(requests.get(address, timeout=60), 404)

    assert running.upload({"file": ("a.tfrecord", record_of())}).json()["state"] == "finished"
    wait_for(lambda: leftovers(running.data) == [], running)


def test_a_worker_is_killed(start_service: Start) -> None:
    running = start_service()
    key, check = held_check(running)
    os.kill(worker_of(running), signal.SIGKILL)
    os.kill(check, signal.SIGCONT)
    wait_for(lambda: check not in running.children(), running)
    assert running.wait_until_over(key)["state"] == "finished"
    assert attempts_of(running, key) == 2
    wait_for(lambda: leftovers(running.data) == [], running)


class TestFilesThatAreNotThere:
    """A machine that does not see an upload says nothing about it."""

    def begin(self, start_app: Start) -> tuple[Settings, Database, str]:
        """An upload that waits."""
        idle = start_app()
        key = begin(idle, record_of())
        settings = Settings(data=idle.data)
        return settings, Database(settings), key

    def work(self, settings: Settings) -> None:
        """Do what a worker of another machine does, until there is nothing that it may do."""
        worker = Worker(settings)
        sandbox.prepare()
        worker.work()

    def test_another_worker_does_it(self, start_app: Start) -> None:
        settings, store, key = self.begin(start_app)
        folder = settings.uploads / key
        hidden = folder.rename(settings.data / "hidden")
        self.work(settings)
        found = store.find(key)
        assert found is not None and (found.state, found.attempts) == ("queued", 1)
        hidden.rename(folder)
        self.work(settings)
        found = store.find(key)
        assert found is not None and (found.state, found.attempts) == ("finished", 2)
        assert store.document(key, REPORTS["json"]) is not None

    @pytest.mark.parametrize("damage", ["no folder", "no file", "short file"])
    def test_there_is_never_a_verdict(self, start_app: Start, damage: str) -> None:
        settings, store, key = self.begin(start_app)
        folder = settings.uploads / key
        (file,) = folder.iterdir()
        if damage == "no folder":
            shutil.rmtree(folder)
        elif damage == "no file":
            file.unlink()
        else:
            os.truncate(file, file.stat().st_size - 1)
        for state in ("queued", "queued", "failed"):
            self.work(settings)
            found = store.find(key)
            assert found is not None and found.state == state
        assert found.failure is not None and found.valid is None
        assert found.failure["status"] == 500
        assert "does not find, or cannot read, the files" in found.failure["detail"]
        assert store.document(key, REPORTS["json"]) is None

    def test_a_disk_that_fails_while_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "0").symlink_to("/proc/self/mem")  # has a size of 0, and reading it fails
        request = Request((UploadedFile("a.tfrecord", 0, "file", "0"),), "none")
        with pytest.raises(FilesAwayError):
            run_check(tmp_path, request, Settings(tmp_path).limits, lambda *_: None)


def test_another_data_folder(start_app: Start, start_service: Start, postgresql: str) -> None:
    servers = {"TFOD_DATABASE_URL": postgresql}
    web = start_app(**servers)
    key = begin(web, record_of())
    assert web.get("/readyz").json()["checks"] == {
        **dict.fromkeys(("database", "disk", "folder"), "ok"),
        "workers": "failing",
    }
    lost = start_service("--web", "0", "--workers", "1", data="elsewhere", **servers)
    mark = (web.data / "mark").read_text().strip()
    wait_for(lambda: any(f"write {mark} into" in line for line in lost.lines), lost)
    assert attempts_in(Settings(web.data, database_url=postgresql), key) == 0
    assert web.get("/readyz").json()["checks"]["workers"] == "failing"
    other = start_app(data="third", **servers)
    assert other.get("/readyz").json()["checks"]["folder"] == "failing"
    refused = other.upload({"file": ("a.tfrecord", record_of())}, wait=0)
    assert "does not find its disk" in problem(refused, 503)["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    (other.data / "mark").write_text(mark + "\n")  # as its log says
    assert other.get("/readyz").json()["checks"]["folder"] == "ok"
    found = start_service("--workers", "1", **servers).wait_until_over(key)
    assert found["state"] == "finished"


def test_a_check_that_takes_its_worker_along(
    start_app: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = start_app()
    key = begin(idle, record_of())
    store = Database(Settings(data=idle.data))
    for _ in range(3):
        found = store.claim("a worker that is gone", time.time() - 1, 4)
        assert found is not None and found.id == key
    sandbox.prepare()
    Worker(Settings(data=idle.data)).work()
    over = idle.get(f"/api/v1/validations/{key}").json()
    assert (over["state"], over["failure"]["status"]) == ("failed", 500)
    assert "begun 3 times" in over["failure"]["detail"]
    tidy(idle.data, monkeypatch)
    assert leftovers(idle.data) == []


def test_sigterm_drains(start_service: Start) -> None:
    running = start_service("--checks", "1")
    key, check = held_check(running)
    answers: list[requests.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(running.upload({"file": ("b", record_of())}, wait=50))
    )
    waiting.start()
    wait_for(lambda: len(leftovers(running.data)) == 2, running)
    running.process.send_signal(signal.SIGTERM)
    waiting.join(REMOTE_TIMEOUT)  # the web process is ending, and so is the worker
    assert answers[0].status_code == 202
    with suppress(ProcessLookupError):
        os.kill(check, signal.SIGCONT)
    assert running.stop() == 0
    wait_for(lambda: not running.children(), running)
    store = Database(Settings(data=running.data))
    ended, waits = store.find(key), store.find(answers[0].json()["id"])
    assert ended is not None and ended.state == "finished"
    assert waits is not None and waits.state == "queued"
    again = start_service()
    assert again.wait_until_over(waits.id)["state"] == "finished"
    wait_for(lambda: leftovers(running.data) == [], running)


def test_without_its_supervisor_a_worker_gives_back(start_service: Start) -> None:
    running = start_service()
    key, _ = held_check(running)
    os.kill(running.process.pid, signal.SIGKILL)
    wait_for(lambda: not running.children(), running)
    store = Database(Settings(data=running.data))
    found = store.find(key)
    assert found is not None and (found.state, found.attempts) == ("queued", 0)
    assert start_service().wait_until_over(key)["state"] == "finished"
    wait_for(lambda: leftovers(running.data) == [], running)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    room = {"TFOD_MIN_FREE_BYTES": str(1 << 20)}
    with running_service(small_disk / "data", environment=room) as running:
        url = f"{running.url}/api/v1/validations?filename=a.tfrecord"
        length = {"file": ("a.tfrecord", bytes(12 << 20))}
        assert problem(running.upload(length), 507)["limit"] == "min_free_bytes"
        for size in (12, 20):  # their lengths are not known before they have arrived
            body = (bytes(1 << 20) for _ in range(size))
            problem(requests.post(url, data=body, timeout=60), 507)
            wait_for(lambda: leftovers(running.data) == [], running)
        with send(running, "Transfer-Encoding: chunked", b"c00000\r\n" + bytes(12 << 20)) as slow:
            assert answer_on(slow).status == 507  # though it sends nothing more
        wait_for(lambda: shutil.disk_usage(small_disk).free > 8 << 20, running)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        problem(running.upload({"file": ("a.tfrecord", record_of())}), 507)
        assert running.get("/readyz").json()["checks"]["disk"] == "failing"
        assert running.get("/healthz").status_code == 200
        filler.unlink()
        over = running.upload({"file": ("a.tfrecord", record_of())}).json()
        assert over["state"] == "finished"
        wait_for(lambda: leftovers(running.data) == [], running)

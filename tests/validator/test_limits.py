"""Each limit is reached once: what clients are told, and that the service goes on."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod_validator.jobs.data_folder import DataFolder
from tfod_validator.jobs.database import Database
from tfod_validator.jobs.request import Result
from tfod_validator.settings import Limits, Settings

from tests.image_kinds import plain_image
from tests.mutants.sound import frame
from tests.records import encode, image
from tests.validator.conftest import Service, running_service, zip_of
from tests.validator.heavy import held_check, record_of, slow_shard, wait_for
from tests.validator.test_api import problem
from tests.zip_forge import Item, deflate, forge, quoting_zip

Start = Callable[..., Service]
_MIB = 1 << 20
_SMALL = {
    "max_body_bytes": 4 * _MIB,
    "max_files": 3,
    "max_uploads_per_client": 2,
    "max_archive_entries": 5,
    "max_archive_ratio": 20,
    "max_archive_bytes": 10 * _MIB,
    "max_records": 1000,
    "max_record_bytes": _MIB,
    "max_findings": 5,
    "max_images": 2,
    "max_wait_seconds": 2,
    "max_event_streams": 1,
}


def variables(limits: dict[str, int]) -> dict[str, str]:
    """Limits as the environment has them."""
    return {f"TFOD_{name.upper()}": str(value) for name, value in limits.items()}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that allows little."""
    data = tmp_path_factory.mktemp("strict")
    with running_service(data, environment=variables(_SMALL)) as running:
        yield running


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that allows little time, too, and has no workers: what is uploaded waits."""
    limits = variables(_SMALL | {"max_upload_seconds": 2})
    data = tmp_path_factory.mktemp("idle")
    with running_service(data, "--workers", "0", environment=limits) as running:
        yield running


def send(service: Service, head: str, body: bytes = b"") -> socket.socket:
    """A connection on which an upload has begun."""
    port = int(service.url.rpartition(":")[2])
    one = socket.create_connection(("127.0.0.1", port), 60)
    target = "POST /api/v1/validations?filename=a.tfrecord HTTP/1.1"
    one.sendall(f"{target}\r\nHost: localhost\r\n{head}\r\n\r\n".encode() + body)
    return one


def records_of(service: Service, *shards: bytes, **more: Any) -> Any:
    """The answer to an upload of shards."""
    files = [("file", (f"{number}.tfrecord", one)) for number, one in enumerate(shards)]
    return service.upload(files, **more).json()


class TestUploads:
    def test_length(self, strict: Service) -> None:
        response = strict.upload({"file": ("a.tfrecord", bytes(4 * _MIB))})
        assert problem(response, 413)["limit"] == "max_body_bytes"

    def test_length_that_is_not_told(self, strict: Service) -> None:
        url = f"{strict.url}/api/v1/validations?filename=a.tfrecord"
        pieces = (bytes(100_000) for _ in range(50))
        assert problem(requests.post(url, data=pieces, timeout=60), 413)["limit"] == (
            "max_body_bytes"
        )

    def test_time(self, idle: Service) -> None:
        url = f"{idle.url}/api/v1/validations?filename=a.tfrecord"

        def slowly() -> Iterator[bytes]:
            for _ in range(30):
                yield bytes(10_000)
                time.sleep(0.1)

        assert problem(requests.post(url, data=slowly(), timeout=60), 408)["limit"] == (
            "max_upload_seconds"
        )

    def test_files(self, strict: Service) -> None:
        files = [("file", (f"{number}.tfrecord", b"x")) for number in range(4)]
        assert problem(strict.upload(files), 413)["limit"] == "max_files"

    def test_uploads_at_the_same_time(self, strict: Service) -> None:
        held = [send(strict, "Content-Length: 100", b"a") for _ in range(2)]
        wait_for(lambda: len(list((strict.data / "incoming").iterdir())) == 2, strict)

        def ask() -> requests.Response:
            found: requests.Response = strict.upload({"file": ("a", b"x")}, wait=0)
            return found

        response = ask()
        assert problem(response, 429)["limit"] == "max_uploads_per_client"
        assert int(response.headers["Retry-After"]) > 0
        for one in held:
            one.close()
        wait_for(lambda: ask().status_code == 202, strict)

    def test_waits_and_streams_of_events(self, idle: Service) -> None:
        response = idle.upload({"file": ("a", b"x")}, wait=60)
        assert response.status_code == 202
        assert response.elapsed.total_seconds() < 60
        state = requests.get(
            idle.url + response.headers["Location"], params={"wait": 60}, timeout=60
        )
        assert (state.status_code, state.json()["state"]) == (200, "queued")
        links = response.json()["links"]
        with requests.get(idle.url + links["events"], stream=True, timeout=60) as first:
            assert first.status_code == 200
            refused = problem(idle.get(links["events"]), 503)
        assert refused["limit"] == "max_event_streams"


class TestQueue:
    @pytest.fixture
    def ask(self, start_app: Start) -> Callable[..., Any]:
        """Uploads from an address to a service with limits."""

        def start(**limits: int) -> Callable[[str], requests.Response]:
            running = start_app("--trusted-proxies", "1", **variables(limits))
            file = {"file": ("a.tfrecord", b"x")}
            return lambda address: running.upload(file, {"X-Forwarded-For": address}, wait=0)

        return start

    def test_crowds(self, ask: Callable[..., Any]) -> None:
        ask = ask(max_queued_per_client=2, max_queued=3)
        assert [ask("10.0.0.1").status_code for _ in range(2)] == [202, 202]
        refused = ask("10.0.0.1")
        assert problem(refused, 429)["limit"] == "max_queued_per_client"
        assert int(refused.headers["Retry-After"]) > 0
        assert ask("10.0.0.2").status_code == 202
        assert problem(ask("10.0.0.3"), 429)["limit"] == "max_queued"

    def test_uploads_in_a_minute(self, ask: Callable[..., Any]) -> None:
        ask = ask(max_uploads_per_minute=3)
        assert [ask("10.0.0.1").status_code for _ in range(3)] == [202] * 3
        refused = ask("10.0.0.1")
        output = problem(refused, 429)
        assert output["limit"] == "max_uploads_per_minute"
        assert output["detail"].startswith("There were too many uploads (3 in a minute are")
        assert 0 < int(refused.headers["Retry-After"]) <= 20
        assert ask("10.0.0.2").status_code == 202

    def test_turns_come_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = Database(Settings(data=tmp_path))
        store.create_tables()
        now = 1000.0
        monkeypatch.setattr(time, "time", lambda: now)
        assert [store.take("a", 3, 60.0) for _ in range(5)] == [0, 0, 0, 20, 20]
        now += 15
        assert store.take("a", 3, 60.0) == 5
        assert store.take("b", 3, 60.0) == 0
        now += 5
        assert [store.take("a", 3, 60.0) for _ in range(2)] == [0, 20]
        now += 600
        store.delete_expired()
        assert [store.take("a", 3, 60.0) for _ in range(4)] == [0, 0, 0, 20]

    def test_clients_take_turns(self, start_app: Start) -> None:
        running = start_app("--trusted-proxies", "1")
        wanted = ["1", "1", "1", "2", "2", "3"]
        for address in wanted:
            sent = {"X-Forwarded-For": f"10.0.0.{address}"}
            running.upload({"file": (address, b"x")}, sent, wait=0)
        store = Database(Settings(data=running.data))
        turns = []
        for number in range(6):
            found = store.claim(f"worker {number}", time.time() + 600, 4)
            assert found is not None
            turns.append(found.request.files[0].name)
            assert store.finish(found.id, f"worker {number}", Result({}, True))
        assert turns == ["1", "2", "3", "1", "2", "1"]
        assert store.claim("worker", time.time() + 600, 4) is None

    def test_what_a_worker_is_checking_is_no_work_for_it(self, start_app: Start) -> None:
        """Not even when its lease has ended, as after a pause of the machine."""
        running = start_app()
        running.upload({"file": ("a", b"x")}, wait=0)
        store = Database(Settings(data=running.data))
        found = store.claim("worker", time.time() - 1, 4)
        assert found is not None
        assert store.claim("worker", time.time() + 600, 4, (found.id,)) is None
        again = store.claim("another", time.time() + 600, 4)
        assert again is not None and (again.id, again.attempts) == (found.id, 2)

    def test_a_client_leaves_a_place_to_others(
        self, start_service: Start, start_app: Start
    ) -> None:
        before = start_app("--trusted-proxies", "1")
        keys = {}
        for name, address in (("long", "1"), ("next", "1"), ("other", "2")):
            sent = {"X-Forwarded-For": f"10.0.0.{address}"}
            response = before.upload({"file": ("a.tfrecord", record_of())}, sent, wait=0)
            keys[name] = response.json()["id"]
        store = Database(Settings(data=before.data))
        held = store.claim("a worker with a long check", time.time() + 600, 4)
        assert held is not None and held.id == keys["long"]
        running = start_service("--checks", "2")
        assert running.wait_until_over(keys["other"])["valid"] is not None
        assert running.get(f"/api/v1/validations/{keys['next']}").json()["state"] == "queued"
        assert store.release(held.id, "a worker with a long check", counts=False)
        assert running.wait_until_over(keys["next"])["state"] == "finished"

    def test_checks_of_a_client_at_the_same_time(self, start_service: Start) -> None:
        limits = variables({"max_running_per_client": 1})
        running = start_service("--trusted-proxies", "1", "--checks", "3", **limits)
        slow = slow_shard(5_000)
        found = []
        for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"):
            files = {"file": ("a.tfrecord", slow)}
            response = running.upload(files, {"X-Forwarded-For": address}, wait=0)
            found.append(response.json()["id"])
        over = [running.wait_until_over(key) for key in found]
        spans = sorted((one["started"], one["ended"]) for one in over[:3])
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert over[3]["started"] < spans[-1][0]  # another client does not wait for all of them


class TestArchives:
    def checked(self, service: Service, content: bytes) -> dict[str, Any]:
        response = service.upload({"file": ("a.zip", content)}, fail="error")
        assert response.status_code == 422
        assert response.json()["valid"] is False
        findings = response.json()["report"]["findings"]
        return {one["code"]: one["message"] for one in findings}

    def test_entries(self, strict: Service) -> None:
        found = self.checked(strict, zip_of({f"{n}.txt": b"x" for n in range(6)}))
        assert "more than 5 entries" in found["ZIP007"]

    def test_ratio(self, strict: Service) -> None:
        found = self.checked(strict, zip_of({"a.tfrecord": bytes(8 * _MIB)}))
        assert "20 times are allowed" in found["ZIP007"]

    def test_bytes(self, strict: Service) -> None:
        packed = zip_of({f"{n}.tfrecord": bytes(3_900_000) for n in range(3)})
        assert "more than 10485760 bytes" in self.checked(strict, packed)["ZIP007"]

    def test_bombs_cost_nothing(self, service: Service) -> None:
        before = service.memory()
        for bomb in (overlapping(), quoting_zip(), zip_of({"a.tfrecord": bytes(300 * _MIB)})):
            found = service.upload({"file": ("a.zip", bomb)}, decode="all").json()
            assert found["valid"] is False
            assert any(code.startswith("ZIP") for code in found["report"]["counts"]["by_code"])
            assert not list(service.data.glob("*/*.tfrecord"))
        assert service.memory() - before < 100 * _MIB


def overlapping() -> bytes:
    """42 kB whose 250 entries share one kernel of 10 MB (Fifield)."""
    kernel = deflate(bytes(10_000_000))
    first = Item("0.tfrecord", packed=kernel, size=10_000_000, crc=zlib.crc32(bytes(10_000_000)))
    others = [dataclasses.replace(first, name=f"{n}.tfrecord", start=0) for n in range(1, 250)]
    return forge(first, *others)


class TestChecks:
    def test_records(self, strict: Service) -> None:
        shard = record_of() * 1001
        found = records_of(strict, shard)
        assert found["state"] == "failed"
        failure = found["failure"]
        assert (failure["status"], failure["limit"]) == (422, "max_records")
        response = strict.upload({"file": ("a.tfrecord", shard)}, fail="error")
        assert problem(response, 422)["limit"] == "max_records"

    def test_length_of_a_record(self, strict: Service) -> None:
        found = records_of(strict, record_of() + record_of(3 * _MIB) + record_of())
        output = [one for one in found["report"]["findings"] if one["code"] == "TFR012"]
        assert "limit of 1,048,576" in output[0]["message"]

    def test_findings_are_counted(self, strict: Service) -> None:
        report = records_of(strict, record_of() * 500)["report"]
        assert sum(report["counts"]["by_code"].values()) > 500
        assert len(report["findings"]) <= 5

    def test_images(self, strict: Service) -> None:
        assert len(records_of(strict, frame(broken_image()) * 20)["images"]) <= 2

    def test_time(self, start_service: Start) -> None:
        hasty = start_service(TFOD_MAX_CHECK_SECONDS="1")
        slow = hasty.wait_until_over(held_check(hasty)[0])
        assert (slow["failure"]["status"], slow["failure"]["limit"]) == (422, "max_check_seconds")
        wait_for(lambda: not list((hasty.data / "uploads").iterdir()), hasty)


def broken_image() -> bytes:
    """A record whose box is inverted."""
    encoded = {"image/encoded": plain_image((20, 10)), "image/format": "jpeg"}
    corners = {"xmin": 0.9, "xmax": 0.1, "ymin": 0.9, "ymax": 0.1}
    boxed = {f"image/object/bbox/{name}": [value] for name, value in corners.items()}
    return encode(image("a.jpg", 10, 20) | encoded | boxed)


def test_reports_expire(start_app: Start) -> None:
    running = start_app(TFOD_REPORT_SECONDS="3")
    found = running.upload({"file": ("a.tfrecord", record_of())}, wait=0).json()
    store = Database(Settings(data=running.data))
    held = store.claim("a worker", time.time() + 600, 4)
    assert held is not None and store.finish(held.id, "a worker", Result({}, True))
    wait_for(lambda: running.get(found["links"]["self"]).status_code == 404, running)
    for name in ("self", "html", "events", "page"):
        assert running.get(found["links"][name]).status_code == 404
    settings = Settings(data=running.data)
    DataFolder(settings, Database(settings), takes_uploads=False).clean()
    assert 'tfod_validations{state="finished"} 0.0' in running.get("/metrics").text
    assert not list((running.data / "uploads").iterdir())


def test_no_limit_is_forgotten() -> None:
    elsewhere = {"max_attempts", "min_free_bytes"}  # in test_steady.py
    elsewhere |= {"max_report_bytes", "max_check_bytes"}  # in test_job.py
    elsewhere |= {"max_sign_ins_per_minute"}  # in test_security.py
    reached = {*_SMALL, "max_queued_per_client", "max_queued", "max_running_per_client"}
    reached |= {"max_uploads_per_minute", "max_upload_seconds"}
    reached |= {"max_check_seconds", "report_seconds"}
    assert {one.name for one in dataclasses.fields(Limits)} == reached | elsewhere

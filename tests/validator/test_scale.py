"""Many clients, long uploads, several processes, and servers that go away and come back."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod_validator.jobs.database import Database
from tfod_validator.settings import Settings

from tests.commands import free_port
from tests.mutants.sound import frame
from tests.records import encode, image
from tests.validator.conftest import REMOTE_TIMEOUT, Service, new_database, running_service
from tests.validator.heavy import long_body, record_of, slow_shard, wait_for
from tests.validator.sockets import answer_on
from tests.validator.test_api import problem

Start = Callable[..., Service]
_MANY = 24


@pytest.fixture(scope="module")
def scaled(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: str
) -> Iterator[tuple[Service, Service]]:
    """A service of two web processes, and workers elsewhere that share its data folder."""
    data = tmp_path_factory.mktemp("scaled")
    environment = {"TFOD_DATABASE_URL": new_database(postgresql_server)}
    with ExitStack() as stack:
        start = stack.enter_context
        web = start(running_service(data, "--web", "2", "--workers", "0", environment=environment))
        workers = start(
            running_service(data, "--web", "0", "--workers", "2", environment=environment)
        )
        wait_for(lambda: web.get("/readyz").status_code == 200, web)
        yield web, workers
        wait_for(lambda: not list((data / "uploads").iterdir()), workers)


def upload_many(service: Service, content: bytes, count: int = _MANY) -> list[str]:
    """Upload at the same time; return the ids."""
    with ThreadPoolExecutor(count) as pool:
        found = list(
            pool.map(
                lambda _: service.upload({"file": ("a.tfrecord", content)}, wait=0), range(count)
            )
        )
    assert Counter(one.status_code for one in found) == {202: count}
    return [one.json()["id"] for one in found]


def all_finish(service: Service, keys: list[str]) -> None:
    for key in keys:
        assert service.wait_until_over(key)["state"] == "finished"


def logged(service: Service, message: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in service.lines if line.startswith("{")]
    return [one for one in found if one["message"] == message]


def test_many_uploads_and_processes(scaled: tuple[Service, Service]) -> None:
    web, workers = scaled
    keys: list[str] = []

    def all_are_busy() -> bool:
        """Upload once more, until both processes of either kind have had something to do."""
        keys.extend(upload_many(web, record_of()))
        all_finish(web, keys[-_MANY:])
        answered = {one["process"] for one in logged(web, "request") if one["status"] == 202}
        checked = {one["process"] for one in logged(workers, "checked")}
        return (len(answered), len(checked)) == (2, 2)

    wait_for(all_are_busy, workers)
    wait_for(lambda: len(logged(workers, "checked")) >= len(keys), workers)
    counts = Counter(one["validation"] for one in logged(workers, "checked"))
    assert set(counts.values()) == {1}


def test_workers_alone(scaled: tuple[Service, Service]) -> None:
    web, workers = scaled
    assert workers.lines[0].startswith("tfod: working with 2 workers (data in ")
    wait_for(lambda: len(workers.workers()) == 2, workers)
    assert workers.web() == [] and len(web.web()) == 2


def test_a_killed_worker_s_checks_run_elsewhere(scaled: tuple[Service, Service]) -> None:
    web, workers = scaled
    keys = upload_many(web, slow_shard(10_000), 6)
    wait_for(lambda: 'tfod_validations{state="running"} 4' in web.get("/metrics").text, web)
    killed = workers.workers()[0]
    os.kill(killed, signal.SIGKILL)
    all_finish(web, keys)


def test_the_database_is_away(start_service: Start, postgresql: str) -> None:
    with Door(postgresql) as door:
        running = start_service(TFOD_DATABASE_URL=door.url)
        keys = [running.upload({"file": ("a", slow_shard(20_000))}, wait=0).json()["id"]]
        wait_for(lambda: door.connections, running)
        door.close()
        response = running.upload({"file": ("a", record_of())}, wait=0)
        assert "database" in problem(response, 503)["detail"]
        assert response.headers["Retry-After"]
        problem(running.get(f"/api/v1/validations/{keys[0]}"), 503)
        assert running.get("/readyz").json()["checks"]["database"] == "failing"
        assert running.get("/healthz").status_code == 200
        door.open()
        keys.append(running.upload({"file": ("a", record_of())}, wait=0).json()["id"])
        all_finish(running, keys)
        wait_for(lambda: not list((running.data / "uploads").iterdir()), running)


class Door:
    """What stands between the service and its database, and can be shut."""

    def __init__(self, url: str) -> None:
        user, _, rest = url.partition("@")
        place, _, name = rest.partition("/")
        host, _, port = place.partition(":")
        self._target = (host, int(port))
        self._port = free_port()
        self.url = f"{user}@127.0.0.1:{self._port}/{name}"
        self.connections: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> Door:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and take no more."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        cut, self.connections = self.connections, []
        for one in cut:
            one.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self.connections += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def test_fifty_uploads_beside_slow_clients(service: Service) -> None:
    address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    target = "POST /api/v1/validations?filename=a HTTP/1.1\r\nHost: localhost\r\n"
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(20)]
        for number, one in enumerate(slow):
            ending = "Content-Length: 1000\r\n\r\nab" if number % 2 else "X-Slow: a"
            one.sendall((target + ending).encode())
        all_finish(service, upload_many(service, small_shard(), 50))
        for one in slow[1::2]:
            one.sendall(bytes(998))
            assert answer_on(one).status == 202


def small_shard() -> bytes:
    return frame(encode(image("a.jpg") | {"image/encoded": os.urandom(100_000)})) * 3


@pytest.mark.parametrize("mebibytes", [64, pytest.param(2048, marks=pytest.mark.slow)])
def test_an_upload_is_not_held_in_memory(start_service: Start, mebibytes: int) -> None:
    running = start_service()
    running.upload({"file": ("a", record_of())})  # now all that a check needs is imported
    peak = [running.memory()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak.append(running.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        url = f"{running.url}/api/v1/validations"
        form = {"Content-Type": "multipart/form-data; boundary=limit"}
        key = requests.post(
            url, data=long_form(mebibytes << 20), headers=form, timeout=REMOTE_TIMEOUT
        ).json()["id"]
        found = running.wait_until_over(key)
    finally:
        done.set()
        watcher.join()
    assert found["report"]["counts"]["records"] == mebibytes
    print(f"peak {max(peak) >> 20} MiB, before {peak[0] >> 20} MiB")
    assert max(peak) - peak[0] < min(mebibytes - 8, 140) << 20


def long_form(length: int) -> Iterator[bytes]:
    yield b'--limit\r\nContent-Disposition: form-data; name="file"; filename="a.tfrecord"\r\n\r\n'
    yield from long_body(length)
    yield b"\r\n--limit--\r\n"


def test_rates_are_counted_while_old_ones_are_forgotten(postgresql: str, tmp_path: Path) -> None:
    store = Database(Settings(data=tmp_path, database_url=postgresql))
    store.create_tables()
    counted = threading.Event()

    def forget() -> None:
        while not counted.is_set():
            store.delete_expired()

    with ThreadPoolExecutor(2) as pool:
        forgets = pool.submit(forget)
        try:
            # So many a second that each is old at once.
            assert [store.take("a", 10**6, 1.0) for _ in range(100)] == [0] * 100
        finally:
            counted.set()
        forgets.result()
    store.close()

"""Requests that are refused before a body is on the disk: by waitress's guard, and by nginx.

nginx runs with the configuration of docker/compose.scale.yml, in front of a service.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod_validator.folder import DataFolder
from tfod_validator.guard import REJECTED, Guard, Parser
from tfod_validator.settings import Settings
from waitress.adjustments import Adjustments

from tests.commands import free_port, require, wait_until
from tests.mutants.sound import frame
from tests.records import encode, image, objects
from tests.validator.conftest import UPLOADS, Service, Start, record_of, running_service
from tests.validator.sockets import FORM, HEALTH, SLOW, TOKEN, answer_on, ask, connect, head_of

CONFIGURATION = Path(__file__).parents[2] / "docker" / "nginx.conf"
_MIB = 1 << 20
LENGTHS = ("Content-Length: 1000000000", "Transfer-Encoding: chunked")
_CONNECTIONS = 64  # per address, in the configuration of nginx


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that requires a token and has low limits."""
    numbers = {"THREADS": 2, "MAX_BODY_BYTES": 4 * _MIB, "MAX_CONNECTIONS": _CONNECTIONS}
    limits = {f"TFOD_{name}": str(number) for name, number in numbers.items()}
    with running_service(tmp_path_factory.mktemp("guarded"), TFOD_TOKEN=TOKEN, **limits) as running:
        yield running


@contextmanager
def nginx_before(url: str, folder: Path, **directives: str) -> Iterator[int]:
    """Run nginx with its configuration, except for these directives, and return its port."""
    require("nginx", shutil.which("nginx") is not None)
    folder.mkdir()
    port, text = free_port(), CONFIGURATION.read_text()
    changes = {
        "listen 8080": f"listen 127.0.0.1:{port}",
        "server web:8080": "server " + url.removeprefix("http://"),
        "/tmp/|/var/cache/nginx/": f"{folder}/",
        **{rf"{name} \w+": f"{name} {value}" for name, value in directives.items()},
    }
    for pattern, replacement in changes.items():
        text, count = re.subn(pattern, replacement, text)
        assert count
    (folder / "nginx.conf").write_text(text)
    user = "user root;" if os.geteuid() == 0 else ""  # the owner of the folder
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        assert server.poll() is None
        with suppress(OSError):
            connect(port, "").close()
            return True
        return False

    try:
        wait_until(listens)
        yield port
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    """A service with two threads and a token, and the port of nginx in front of it."""
    data = tmp_path_factory.mktemp("proxied")
    settings = {"TFOD_THREADS": "2", "TFOD_TRUSTED_PROXY": "*", "TFOD_TOKEN": TOKEN}
    with (
        running_service(data, **settings) as service,
        nginx_before(service.url, data / "nginx") as port,
    ):
        yield service, port


class TestBoth:
    """The properties that a service has with and without nginx."""

    @pytest.fixture(params=["guarded", "proxied"])
    def port(self, request: pytest.FixtureRequest) -> int:
        found: Any = request.getfixturevalue(request.param)
        return found.port if isinstance(found, Service) else found[1]

    @pytest.mark.parametrize("length", LENGTHS)
    def test_a_wrong_token_is_refused_by_the_head(self, port: int, length: str) -> None:
        answer = ask(port, head_of(length, token="wrong"))
        assert answer.status == 401 and "A token is needed" in answer.problem()["detail"]
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("expects", [[], ["Expect: 100-continue"]])
    def test_a_length_is_refused_by_the_head(self, port: int, expects: list[str]) -> None:
        answer = ask(port, head_of(f"Content-Length: {(4 << 30) + 1}", *expects))
        assert answer.limit() == (413, "max_body_bytes")
        assert answer.headers["Connection"] == "close"

    def test_other_bodies_are_short(self, port: int) -> None:
        head = head_of("Content-Length: 100000").replace(f"POST {UPLOADS}", "DELETE /x")
        assert ask(port, head).limit() == (413, "max_body_bytes")

    @pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
    def test_slow_clients_hold_no_thread(self, port: int, text: str) -> None:
        """Others, and one of fifty slow clients that continues, get their answers."""
        with ExitStack() as stack:
            slow = [stack.enter_context(connect(port, text)) for _ in range(50)]
            assert [ask(port, HEALTH).status for _ in range(10)] == [200] * 10
            if text == SLOW["head"]:
                rest = head_of(f"Content-Length: {len(FORM)}")[len(text) :]
                slow[7].sendall(rest.encode() + FORM)
                assert answer_on(slow[7]).status == 202

    def test_connections_of_one_client(self, port: int) -> None:
        with ExitStack() as stack:
            held = []

            def is_refused() -> bool:
                text = head_of("Content-Length: 10") + "a"
                held.append(stack.enter_context(connect(port, text)))
                answer = ask(port, HEALTH)
                assert answer.headers["Retry-After"] == ("10" if answer.status == 429 else None)
                return answer.status == 429

            wait_until(is_refused)
            assert len(held) < 2 * _CONNECTIONS  # closed ones may still count, or new ones not yet
            held[0].sendall(b"a" * 9)
            assert answer_on(held[0]).status == 400  # not a form
        wait_until(lambda: ask(port, HEALTH).status == 200)


def test_a_body_without_a_length_is_refused_when_it_is_too_long(guarded: Service) -> None:
    piece = b"%x\r\n%b\r\n" % (100_000, bytes(100_000))
    with connect(guarded, head_of("Transfer-Encoding: chunked")) as connection:

        def send() -> None:
            with suppress(OSError):
                for _ in range(50):
                    connection.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        answer = answer_on(connection)
        sender.join()
    assert answer.limit() == (413, "max_body_bytes")


def test_chunk_sizes_and_trailers_are_short(guarded: Service) -> None:
    """waitress would keep all of them in memory."""
    for text in (b"1" * 100_000, b"1\r\na\r\n0\r\nX: " + b"a" * 100_000):
        answer = ask(guarded, head_of("Transfer-Encoding: chunked"), text)
        assert answer.limit() == (413, "max_body_bytes")


def test_the_first_of_several_requests_is_the_last_of_its_connection(guarded: Service) -> None:
    with connect(guarded, HEALTH * 3) as connection:
        answer = answer_on(connection)
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert connection.recv(1) == b""


def test_a_body_of_no_bytes_is_not_awaited(guarded: Service) -> None:
    answer = ask(guarded, head_of("Content-Length: 0", "Expect: 100-continue"))
    assert answer.status == 400


def test_a_body_that_trickles_is_ended(start_service: Start) -> None:
    """Each byte arrives in time, but the whole body takes too long."""
    running = start_service(TFOD_MAX_UPLOAD_SECONDS="2")
    with connect(running, head_of("Content-Length: 1000000")) as connection:
        connection.settimeout(0.2)
        while True:
            with suppress(TimeoutError):
                connection.send(b"a")
                answer = answer_on(connection)
                break
    assert answer.limit() == (408, "max_upload_seconds")


def test_a_body_that_arrives_too_slowly_is_ended(tmp_path: Path) -> None:
    """A thousand of them would hold all connections for an hour."""
    parser = Parser(Guard(Settings(data=tmp_path, min_free_bytes=1)), Adjustments())
    parser.received(head_of("Content-Length: 100000").encode() + bytes(10))
    assert not parser.completed
    parser.started -= 60
    parser.received(bytes(50_000))  # enough for a minute
    assert not parser.completed
    parser.started -= 600
    parser.received(b"a")
    assert parser.completed and parser.headers[REJECTED] == "max_upload_seconds"


def test_a_full_disk_is_noticed_by_the_head(start_service: Start) -> None:
    running = start_service(TFOD_MIN_FREE_BYTES=str(1 << 60))
    for length in LENGTHS:
        assert ask(running, head_of(length)).limit() == (507, "min_free_bytes")
    assert running.get("/").status_code == 200
    assert running.get("/readyz").json()["checks"]["disk"] == "failing"


def test_arriving_bodies_reserve_space(start_service: Start) -> None:
    """The disk has space for each of two bodies, but not for both."""
    running = start_service(TFOD_MAX_BODY_BYTES=str(1 << 60))
    free = DataFolder(Settings(data=running.data)).free_bytes()
    length = f"Content-Length: {int(free * 0.3)}"  # there will be two copies of each
    with connect(running, head_of(length), b"a"):

        def refusal() -> Any:
            answer = ask(running, head_of(length, "Expect: 100-continue"))
            return answer if answer.status != 100 else None

        assert wait_until(refusal).limit() == (507, "min_free_bytes")


def test_a_proxy_connects_for_many_clients(start_service: Start) -> None:
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", TFOD_MAX_CONNECTIONS="1")
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(running, ""))
        assert running.get("/healthz").status_code == 200


def test_clients_cannot_set_the_header_of_the_guard(guarded: Service) -> None:
    for name in ("Tfod-Refused", "TFOD_REFUSED"):
        text = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{name}: token\r\n\r\n"
        assert ask(guarded, text).status == 200


def test_slow_readers_cost_neither_memory_nor_disk(service: Service) -> None:
    """A report has megabytes; the service holds only the next piece."""
    boxes = [objects([(0.5, 0.1, 0.1, 0.5)], [f"{n}" + "x" * 5000], [1]) for n in range(1000)]
    wrong = [frame(encode(image(f"{n}.jpg") | box)) for n, box in enumerate(boxes)]
    links = service.check(("a.tfrecord", b"".join(wrong)))["links"]
    assert len(service.get(links["page"]).content) > 2 * _MIB
    before, process = service.memory(), Path(f"/proc/{service.process.pid}")
    for name in ("page", "self", "html"):
        with ExitStack() as stack:
            target = f"GET {links[name]} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for reader in [stack.enter_context(connect(service, target)) for _ in range(50)]:
                assert reader.recv(1) == b"H"
            assert service.memory() - before < 50 * _MIB
            unnamed = [os.readlink(file) for file in process.glob("fd/*") if not file.exists()]
            assert not [file for file in unnamed if str(service.data) in file]


def test_a_client_that_stops_waiting_frees_its_thread(start_service: Start) -> None:
    """Half of the threads may wait; other requests are answered at once."""
    running = start_service(TFOD_THREADS="2", TFOD_MAX_WAIT_SECONDS="3600", TFOD_CHECKS="1")
    key, check = running.hold_check()
    address = f"{UPLOADS}/{key}?wait=3600"

    def is_answered_at_once() -> bool:
        try:
            found = requests.get(running.url + address, timeout=2).json()
        except requests.Timeout:
            return False
        assert found["state"] == "running"
        return True

    with connect(running, f"GET {address} HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        wait_until(is_answered_at_once)
    wait_until(lambda: not is_answered_at_once())  # since this request waits now
    os.kill(check, signal.SIGCONT)


def test_an_upload_that_ends_early_leaves_no_file_behind(guarded: Service) -> None:
    connect(guarded, head_of(f"Content-Length: {_MIB}"), bytes(200_000)).close()
    incoming = guarded.data / "incoming"
    wait_until(lambda: sum(file.stat().st_size for file in incoming.rglob("*")) == 0)
    assert guarded.folder("waiting") == []


class TestNginx:
    def test_uploads_pass(self, proxied: tuple[Service, int]) -> None:
        service, port = proxied
        lines = head_of().splitlines()[2:4]
        headers = dict(line.split(": ") for line in lines)
        for body in (FORM, iter([FORM])):  # the second one is in chunks
            url = f"http://127.0.0.1:{port}{UPLOADS}"
            found = requests.post(url, data=body, headers=headers, timeout=60)
            assert found.status_code == 202
            service.wait_until_over(found.json()["id"], headers)
        files = service.data.glob("reports/*/request.json")
        clients = [json.loads(file.read_text())["client"] for file in files]
        assert {*clients} == {"127.0.0.1"} and len(clients) >= 2

    def test_silent_clients_are_cut_off(self, proxied: tuple[Service, int], tmp_path: Path) -> None:
        timeouts = {"client_header_timeout": "1s", "client_body_timeout": "1s"}
        with nginx_before(proxied[0].url, tmp_path / "nginx", **timeouts) as port:
            for text in SLOW.values():
                with connect(port, text) as connection, suppress(ConnectionResetError):
                    assert connection.recv(1) == b""

    def test_the_name_of_another_service(self, tmp_path: Path) -> None:
        settings = {"TFOD_TRUSTED_HOSTS": "tfod.example.net", "TFOD_TRUSTED_PROXY": "*"}
        with (
            running_service(tmp_path, **settings) as service,
            nginx_before(service.url, tmp_path / "nginx") as port,
        ):
            url = f"http://127.0.0.1:{port}{UPLOADS}"
            files = {"file": ("a.tfrecord", record_of())}
            for name, status in (("tfod.example.net", 202), ("tfod.example.org", 400)):
                answer = requests.post(url, files=files, headers={"Host": name}, timeout=60)
                assert (answer.status_code, answer.json().get("status", 202)) == (status, status)

    def test_a_service_that_does_not_run(self, tmp_path: Path) -> None:
        with nginx_before(f"http://127.0.0.1:{free_port()}", tmp_path / "nginx") as port:
            for target in ("GET /healthz", "POST /validations"):
                answer = ask(port, f"{target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
                assert answer.status == 503 and answer.problem()

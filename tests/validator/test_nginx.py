"""The service as compose.scale.yml deploys it: behind nginx, which holds slow clients off."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import requests

from tests.commands import free_port, require, wait_until
from tests.validator.conftest import Service, running_service
from tests.validator.heavy import record_of
from tests.validator.sockets import (
    FORM,
    HEALTH,
    KIND,
    SLOW,
    TOKEN,
    UPLOAD,
    Answer,
    ask,
    assert_no_thread_is_held,
    connect,
    head_of,
)

CONFIGURATION = Path(__file__).parents[2] / "docker" / "nginx.conf"
_TIMEOUT = 60


@contextmanager
def nginx_before(service: Service, folder: Path, **changes: str) -> Iterator[int]:
    """Debian's nginx with the configuration of the compose file; the port that it listens at.

    ``changes`` are values of directives.
    """
    require("nginx", shutil.which("nginx") is not None)
    folder.mkdir()
    port = free_port()
    text = CONFIGURATION.read_text()
    for old, new in (
        ("listen 8080", f"listen 127.0.0.1:{port}"),
        ("server web:8080", "server " + service.url.removeprefix("http://")),
        ("/tmp/", "/var/cache/nginx/"),
        ("/var/cache/nginx", str(folder)),
        *((f"{name} {was}", f"{name} {value}") for name, value, was in _values(text, changes)),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    user = "user root;" if os.geteuid() == 0 else ""  # whose folder is the test's
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + _TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end
                time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait(_TIMEOUT)


def _values(text: str, changes: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for name, value in changes.items():
        yield name, value, text.partition(f"{name} ")[2].partition(";")[0].split()[-1]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, int]]:
    """A service with two threads and a token, and the port of nginx before it."""
    data = tmp_path_factory.mktemp("behind")
    chosen = {"TFOD_THREADS": "2", "TFOD_TRUSTED_PROXY": "*", "TFOD_TOKEN": TOKEN}
    with (
        running_service(data, environment=chosen) as service,
        nginx_before(service, data / "nginx") as port,
    ):
        yield service, port


def get(port: int, path: str = "/api/v1/rules/BOX003") -> int:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return requests.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=60).status_code


def test_uploads_pass(behind: tuple[Service, int]) -> None:
    service, port = behind
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": KIND.partition(": ")[2]}
    for body in (FORM, iter([FORM])):  # the second is in chunks
        found = requests.post(
            f"http://127.0.0.1:{port}/api/v1/validations", data=body, headers=headers, timeout=60
        )
        assert found.status_code == 202
        service.wait_until_over(found.json()["id"], headers)
    requests_of = [
        json.loads(one.read_text())["client"] for one in service.data.glob("reports/*/request.json")
    ]
    assert requests_of == ["127.0.0.1"] * 2


def test_a_token_is_looked_at_before_the_body(behind: tuple[Service, int]) -> None:
    _, port = behind
    for length in ("Content-Length: 1000000000", "Transfer-Encoding: chunked"):
        answer = ask(port, f"{UPLOAD}Authorization: Bearer wrong\r\n{length}\r\n\r\n")
        assert answer.status == 401
        assert "A token is needed" in answer.problem()["detail"]
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_lengths_are_refused_by_the_head(behind: tuple[Service, int]) -> None:
    _, port = behind
    answer = ask(port, head_of(f"Content-Length: {(4 << 30) + 1}"))
    assert (answer.status, answer.problem()["limit"]) == (413, "max_body_bytes")
    answer = ask(port, "POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
    assert answer.status == 413 and answer.problem()


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_slow_clients_hold_no_thread(behind: tuple[Service, int], text: str) -> None:
    assert_no_thread_is_held(behind[1], text, lambda: get(behind[1]))


def test_connections_of_one_client(behind: tuple[Service, int]) -> None:
    _, port = behind
    with ExitStack() as stack:
        for _ in range(70):  # as many more as may be asked meanwhile
            one = stack.enter_context(connect(port, head_of("Content-Length: 10") + "a"))
        answers: list[Answer] = []

        def is_refused() -> bool:
            answers.append(ask(port, HEALTH))
            return answers[-1].status == 429

        wait_until(is_refused)
        assert answers[-1].problem()["limit"] == "max_connections"
        assert answers[-1].headers["Retry-After"] == "10"
        del one
    wait_until(lambda: get(port) == 200)


def test_clients_that_say_nothing_more_are_cut_off(
    behind: tuple[Service, int], tmp_path: Path
) -> None:
    service, _ = behind
    timeouts = {"client_header_timeout": "1s", "client_body_timeout": "1s"}
    with nginx_before(service, tmp_path / "nginx", **timeouts) as port:
        for text in SLOW.values():
            with connect(port, text) as one, suppress(ConnectionResetError):
                assert one.recv(1) == b""


def test_a_name_that_the_service_does_not_have(tmp_path: Path) -> None:
    environment = {"TFOD_TRUSTED_HOSTS": "tfod.example.net", "TFOD_TRUSTED_PROXY": "*"}
    with (
        running_service(tmp_path, environment=environment) as service,
        nginx_before(service, tmp_path / "nginx") as port,
    ):
        url = f"http://127.0.0.1:{port}/api/v1/validations"
        files = {"file": ("a.tfrecord", record_of())}
        for name, status in (("tfod.example.net", 202), ("tfod.example.org", 400)):
            answer = requests.post(url, files=files, headers={"Host": name}, timeout=60)
            assert (answer.status_code, answer.json().get("status", 202)) == (status, status)


def test_the_service_is_away(tmp_path: Path) -> None:
    # No process is behind it, and nothing is asked of one.
    gone = Service(None, f"http://127.0.0.1:{free_port()}", tmp_path)  # type: ignore[arg-type]
    with nginx_before(gone, tmp_path / "nginx") as port:
        for target in ("GET /healthz", "POST /validations"):
            answer = ask(port, f"{target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            assert answer.status == 503 and answer.problem()

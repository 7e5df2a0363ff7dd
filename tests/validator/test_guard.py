"""What the guard refuses before a body is on the disk, on plain sockets."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tfod_validator.folder import DataFolder
from tfod_validator.guard import REJECTED, Guard, Parser
from tfod_validator.settings import Settings
from waitress.adjustments import Adjustments

from tests.commands import wait_until
from tests.mutants.sound import frame
from tests.records import encode, image, objects
from tests.validator.conftest import Service, running_service
from tests.validator.heavy import held_check
from tests.validator.sockets import (
    HEALTH,
    SLOW,
    TOKEN,
    Answer,
    answer_on,
    ask,
    assert_no_thread_is_held,
    connect,
    head_of,
)

Start = Callable[..., Service]
_MIB = 1 << 20
LENGTHS = ("Content-Length: 1000000", "Transfer-Encoding: chunked")
_LIMITS = {
    "TFOD_TOKEN": TOKEN,
    "TFOD_MAX_BODY_BYTES": str(4 * _MIB),
    "TFOD_MAX_UPLOAD_SECONDS": "3",
    "TFOD_MAX_CONNECTIONS": "8",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that asks for a token, and allows little."""
    with running_service(tmp_path_factory.mktemp("guarded"), environment=_LIMITS) as running:
        yield running


def spooled(service: Service) -> int:
    """Bytes of bodies that the service has on the disk, without names."""
    return sum(one.stat().st_size for one in (service.data / "incoming").rglob("*"))


@pytest.mark.parametrize("length", LENGTHS)
def test_a_wrong_token_is_refused_by_the_head(guarded: Service, length: str) -> None:
    answer = ask(guarded, head_of(length, token="wrong"))
    assert answer.status == 401
    assert "A token is needed" in answer.problem()["detail"]
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("expects", [[], ["Expect: 100-continue"]])
def test_a_length_is_refused_by_the_head(guarded: Service, expects: list[str]) -> None:
    answer = ask(guarded, head_of(f"Content-Length: {4 * _MIB + 1}", *expects))
    assert (answer.status, answer.problem()["limit"]) == (413, "max_body_bytes")
    assert answer.headers["Connection"] == "close"


def test_other_bodies_are_short(guarded: Service) -> None:
    head = head_of("Content-Length: 100000").replace("POST /api/v1/validations", "DELETE /x")
    answer = ask(guarded, head)
    assert (answer.status, answer.problem()["limit"]) == (413, "max_body_bytes")


def test_a_length_that_is_not_told_is_refused_on_the_way(guarded: Service) -> None:
    piece = b"%x\r\n%b\r\n" % (100_000, bytes(100_000))
    with connect(guarded, head_of("Transfer-Encoding: chunked")) as one:

        def send() -> None:
            with suppress(OSError):
                for _ in range(50):
                    one.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        answer = answer_on(one)
        sender.join()
    assert (answer.status, answer.problem()["limit"]) == (413, "max_body_bytes")


def test_what_says_how_long_a_chunk_is_has_an_end(guarded: Service) -> None:
    """waitress would keep it in memory, for as long as it goes on."""
    for text in (b"1" * 100_000, b"1\r\na\r\n0\r\nX: " + b"a" * 100_000):
        answer = ask(guarded, head_of("Transfer-Encoding: chunked"), text)
        assert (answer.status, answer.problem()["limit"]) == (413, "max_body_bytes")


def test_requests_sent_at_once_do_not_pile_up(guarded: Service) -> None:
    """The first is answered, and is the last of its connection."""
    with connect(guarded, HEALTH * 3) as one:
        answer = answer_on(one)
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert one.recv(1) == b""


def test_nobody_waits_for_a_body_of_no_bytes(guarded: Service) -> None:
    with connect(guarded, head_of("Content-Length: 0", "Expect: 100-continue")) as one:
        assert answer_on(one).status == 400


def test_a_body_that_trickles_is_ended(guarded: Service) -> None:
    """Each byte comes in time; it is the whole that takes too long."""
    with connect(guarded, head_of("Content-Length: 1000000")) as one:
        one.settimeout(0.2)
        while True:
            try:
                one.send(b"a")
                answer = answer_on(one)
                break
            except TimeoutError:
                continue
    assert (answer.status, answer.problem()["limit"]) == (408, "max_upload_seconds")


def test_a_body_that_comes_too_slowly_is_ended(tmp_path: Path) -> None:
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


def test_room_on_the_disk_is_looked_at_by_the_head(start_service: Start) -> None:
    running = start_service(TFOD_MIN_FREE_BYTES=str(1 << 60))
    for length in LENGTHS:
        answer = ask(running, head_of(length))
        assert (answer.status, answer.problem()["limit"]) == (507, "min_free_bytes")
    assert running.get("/").status_code == 200
    assert running.get("/readyz").json()["checks"]["disk"] == "failing"


def test_room_for_what_arrives_is_counted(start_service: Start) -> None:
    """Two bodies find room alone, but not together."""
    running = start_service(TFOD_MAX_BODY_BYTES=str(1 << 60))
    free = DataFolder(Settings(data=running.data)).free_bytes()
    length = f"Content-Length: {int(free * 0.3)}"  # there will be two copies of each
    with connect(running, head_of(length), b"a"):
        refused: list[Answer] = []

        def is_refused() -> bool:
            with connect(running, head_of(length, "Expect: 100-continue")) as one:
                refused.append(answer_on(one))
            return refused[-1].status != 100

        wait_until(is_refused)
        assert (refused[-1].status, refused[-1].problem()["limit"]) == (507, "min_free_bytes")


def test_connections_of_one_address(guarded: Service) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connect(guarded, "")) for _ in range(8)]
        with connect(guarded, HEALTH) as one:
            refused = answer_on(one)
        assert (refused.status, refused.headers["Retry-After"]) == (429, "10")
        held[0].sendall(HEALTH.encode())
        assert answer_on(held[0]).status == 200
    wait_until(lambda: ask(guarded, HEALTH).status == 200)


def test_a_proxy_has_the_connections_of_many(start_service: Start) -> None:
    running = start_service(TFOD_TRUSTED_PROXY="127.0.0.1", TFOD_MAX_CONNECTIONS="1")
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(running, ""))
        assert running.get("/healthz").status_code == 200


def test_nobody_says_that_the_guard_has_refused(guarded: Service) -> None:
    for name in ("Tfod-Refused", "TFOD_REFUSED"):
        text = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{name}: token\r\n\r\n"
        assert ask(guarded, text).status == 200


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_slow_clients_hold_no_thread(start_service: Start, text: str) -> None:
    running = start_service(TFOD_THREADS="2")
    assert_no_thread_is_held(running, text, lambda: running.get("/healthz").status_code)


def test_slow_readers_cost_neither_memory_nor_disk(service: Service) -> None:
    """Of a report of megabytes the service holds only what is sent next."""
    boxes = [objects([(0.5, 0.1, 0.1, 0.5)], [f"{n}" + "x" * 5000], [1]) for n in range(1000)]
    wrong = [frame(encode(image(f"{n}.jpg") | box)) for n, box in enumerate(boxes)]
    links = service.upload({"file": ("a.tfrecord", b"".join(wrong))}).json()["links"]
    assert len(service.get(links["page"]).content) > 2 * _MIB
    before, process = service.memory(), Path(f"/proc/{service.process.pid}")
    for name in ("page", "self", "html"):
        with ExitStack() as stack:
            target = f"GET {links[name]} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for one in [stack.enter_context(connect(service, target)) for _ in range(50)]:
                assert one.recv(1) == b"H"
            assert service.memory() - before < 50 * _MIB
            unnamed = [os.readlink(one) for one in process.glob("fd/*") if not one.exists()]
            assert not [one for one in unnamed if str(service.data) in one]


def test_who_waits_and_leaves_gives_the_place_free(start_service: Start) -> None:
    """Half of the threads may wait; others are answered at once."""
    running = start_service(TFOD_THREADS="2", TFOD_MAX_WAIT_SECONDS="3600", TFOD_CHECKS="1")
    key, _ = held_check(running)
    target = f"GET /api/v1/validations/{key}?wait=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(running, target):
        wait_until(lambda: _is_answered_at_once(running, key))
    wait_until(lambda: not _is_answered_at_once(running, key))  # it waits in its place


def _is_answered_at_once(running: Service, key: str) -> bool:
    """Whether another who would wait gets the state that there is."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=2)
    try:
        connection.request("GET", f"/api/v1/validations/{key}?wait=3600")
        found: Any = json.loads(connection.getresponse().read())
    except TimeoutError:
        return False
    finally:
        connection.close()
    assert found["state"] == "running"
    return True


def test_what_ends_early_leaves_nothing(guarded: Service) -> None:
    connect(guarded, head_of(f"Content-Length: {_MIB}"), bytes(200_000)).close()
    wait_until(lambda: spooled(guarded) == 0)
    assert guarded.folder("waiting") == []

"""The web server on real sockets: limits at the head, politeness, patience, drain."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tfod_validator.refusals import Refusal
from tfod_validator.settings import Limits
from tfod_validator.web_server import Server

_PATIENCE = 300
_NO_ENTRY = Refusal(401, "Unauthorized", "Send a token.", (("WWW-Authenticate", "Bearer"),))


class Site:
    """A WSGI app, and what it has seen."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Semaphore(0)
        self.seen: list[str] = []
        self.left = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        path = environ["PATH_INFO"]
        self.seen.append(path)
        if path == "/fail":
            raise RuntimeError("a mistake")
        if path == "/wait":
            self.entered.release()
            assert self.release.wait(_PATIENCE)
        if path == "/watch":
            self.entered.release()
            while not environ["waitress.client_disconnected"]():
                time.sleep(0.01)
            self.left.set()
        length = 0
        while piece := environ["wsgi.input"].read(1 << 16):
            length += len(piece)
        answer = b"x" * (8 << 20) if path == "/long" else f"{path} {length}".encode()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]


class Running:
    """A server in a thread of its own, and clients of it."""

    def __init__(self, site: Site, server: Server, port: int) -> None:
        self.site, self.server, self.port = site, server, port
        self.thread = threading.Thread(target=server.run)
        self.thread.start()

    def connect(self, text: bytes = b"") -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE)
        one.sendall(text)
        return one

    def ask(self, text: bytes) -> Answer:
        with self.connect(text) as one:
            return answer_on(one)

    def get(self, path: str = "/hello") -> Answer:
        return self.ask(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


class Answer:
    """An answer that was read to its end."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        response.begin()
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    def problem(self) -> Any:
        assert self.headers["Content-Type"] == "application/problem+json"
        found = json.loads(self.body)
        assert found["type"] == "about:blank"
        assert found["status"] == self.status
        assert found["title"]
        assert found["detail"].endswith(".")
        return found


def answer_on(one: socket.socket) -> Answer:
    return Answer(http.client.HTTPResponse(one))


def head(path: str = "/length", **fields: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"POST {path} HTTP/1.1", "Host: a", *(f"{key}: {named[key]}" for key in named)]
    return "\r\n".join([*lines, "", ""]).encode()


def all_of(one: socket.socket) -> bytes:
    """What comes until the other side closes."""
    return b"".join(iter(lambda: one.recv(1 << 16), b""))


def is_closed(one: socket.socket) -> bool:
    """Whether the other side ends the connection without a word."""
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts servers; they end with the test."""
    running: list[Running] = []

    def begin(limits: Limits | None = None, patience: Mapping[str, int] | None = None, **more: Any):
        site = Site()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        port = listener.getsockname()[1]
        server = Server(site, listener, limits=limits or Limits(), **({"threads": 4} | more))
        for name, seconds in (patience or {}).items():
            setattr(server, name, seconds)
        running.append(Running(site, server, port))
        return running[-1]

    yield begin
    for one in running:
        one.site.release.set()
        one.server.drain(5)
        one.thread.join(_PATIENCE)
        assert not one.thread.is_alive()


class TestOrdinaryRequests:
    def test_connection_is_kept(self, start) -> None:
        with start().connect() as one:
            for _ in range(3):
                one.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
                assert answer_on(one).body == b"/hello 0"

    def test_server_says_no_version(self, start) -> None:
        assert start().get().headers["Server"] == "tfod"

    def test_pipelined_requests_are_answered_in_order(self, start) -> None:
        text = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(4))
        last = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        with start().connect(text + last) as one:
            assert re.findall(rb"\r\n\r\n/(\w+) 0", all_of(one)) == [*b"0 1 2 3 last".split()]

    @pytest.mark.parametrize("length", [1, 8191, 65_536, 300_000, 3_000_000])
    def test_body_arrives(self, start, length: int) -> None:
        running = start()
        assert running.ask(head(Content_Length=str(length)) + b"a" * length).body == (
            b"/length %d" % length
        )

    def test_chunks_arrive_however_small(self, start) -> None:
        text = head(Transfer_Encoding="chunked") + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n"
        with start().connect(text) as one:
            assert answer_on(one).body == b"/length 100000"
            one.sendall(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer_on(one).status == 200

    def test_long_answer_to_a_slow_reader_holds_no_thread(self, start) -> None:
        running = start(threads=1)
        with running.connect(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n") as slow:
            assert running.get().status == 200
            assert len(answer_on(slow).body) == 8 << 20

    def test_app_hears_that_the_client_has_left(self, start) -> None:
        running = start()
        with running.connect(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n"):
            assert running.site.entered.acquire(timeout=_PATIENCE)
        assert running.site.left.wait(_PATIENCE)

    def test_ipv4_address_on_a_socket_of_ipv6(self) -> None:
        assert Server.fix_addr(None, ("::ffff:10.0.0.1", 5, 0, 0))[0] == "10.0.0.1"


class TestGate:
    def test_answer_is_seen_by_a_client_that_sends_all_first(self, start) -> None:
        running = start(gate=lambda _: _NO_ENTRY)
        length = 50 << 20
        with running.connect(head(Content_Length=str(length))) as one:
            one.sendall(bytes(length))
            answer = answer_on(one)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.headers["Connection"] == "close"
            assert answer.problem()["detail"] == "Send a token."
            assert is_closed(one)
        assert running.site.seen == []

    def test_client_that_asks_first_is_not_told_to_go_on(self, start) -> None:
        running = start(gate=lambda _: _NO_ENTRY)
        answer = running.ask(head(Content_Length="1000", Expect="100-continue"))
        assert answer.status == 401  # http.client would have skipped a 100
        assert answer.problem()

    def test_client_that_may_is_told_to_go_on(self, start) -> None:
        with start(gate=lambda _: None).connect(
            head(Content_Length="3", Expect="100-continue")
        ) as one:
            assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            one.sendall(b"abc")
            assert answer_on(one).body == b"/length 3"

    def test_expectation_without_a_body_is_answered(self, start) -> None:
        assert start().ask(head(Expect="100-continue", Content_Length="0")).status == 200

    def test_what_it_sees(self, start) -> None:
        seen: list[dict[str, Any]] = []
        running = start(gate=seen.append)
        running.get()
        running.ask(head("/a%20b?c=d", Content_Length="1", Content_Type="x/y", X_One="1") + b"a")
        (environ,) = seen  # a request without a body is not asked about
        expected = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/a b",
            "QUERY_STRING": "c=d",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_LENGTH": "1",
            "CONTENT_TYPE": "x/y",
            "HTTP_X_ONE": "1",
            "tfod.uploads": 0,
        }
        assert {key: environ[key] for key in expected} == expected
        assert environ["wsgi.input"].read() == b""

    def test_refusal_waits_for_the_answers_before_it(self, start) -> None:
        running = start(gate=lambda _: _NO_ENTRY)
        text = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + head(Content_Length="9")
        with running.connect(text) as one:
            assert running.site.entered.acquire(timeout=_PATIENCE)
            running.site.release.set()
            assert re.findall(rb"HTTP/1.1 (\d+)", all_of(one)) == [b"200", b"401"]

    def test_refused_body_is_no_request(self, start) -> None:
        asked: list[str] = []

        def gate(environ: dict[str, Any]) -> Refusal:
            asked.append(environ["PATH_INFO"])
            return _NO_ENTRY

        running = start(gate=gate)
        hidden = head("/hidden", Content_Length="1") + b"a"
        assert running.ask(head(Content_Length=str(len(hidden))) + hidden).status == 401
        assert asked == ["/length"]
        assert running.site.seen == []

    def test_failing_gate_refuses(self, start) -> None:
        def gate(_: dict[str, Any]) -> None:
            raise RuntimeError("a mistake")

        answer = start(gate=gate).ask(head(Content_Length="1"))
        assert answer.status == 500
        assert "mistake" in answer.problem()["detail"]

    def test_refusal_needs_no_free_thread(self, start) -> None:
        running = start(gate=lambda _: _NO_ENTRY, threads=1)
        with running.connect(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"):
            assert running.site.entered.acquire(timeout=_PATIENCE)
            assert running.ask(head(Content_Length="1")).status == 401

    def test_uploads_of_an_address_are_counted(self, start) -> None:
        counts: list[int] = []
        running = start(gate=lambda environ: counts.append(environ["tfod.uploads"]))
        first = running.connect(head(Content_Length="2"))
        wait_for(lambda: len(counts) == 1)
        second = running.connect(head(Content_Length="2"))
        wait_for(lambda: len(counts) == 2)
        first.sendall(b"ab")
        assert answer_on(first).status == 200
        second.close()
        wait_for(lambda: not running.server.uploads_of("127.0.0.1"))
        first.close()
        running.ask(head(Content_Length="1") + b"a")
        assert counts == [0, 1, 0]

    def test_address_before_trusted_proxies(self, start) -> None:
        counts: dict[str, int] = {}

        def gate(environ: dict[str, Any]) -> None:
            counts[environ["PATH_INFO"]] = environ["tfod.uploads"]

        running = start(gate=gate, trusted_proxies=1)
        others = [
            running.connect(head(f"/{name}", Content_Length="2", X_Forwarded_For=f"lie, {name}"))
            for name in "abb"
        ]
        wait_for(lambda: counts == {"/a": 0, "/b": 1})
        for one in others:
            one.close()


class TestLimits:
    limits = Limits(max_body_bytes=100_000)

    def test_declared_length(self, start) -> None:
        running = start(self.limits)
        with running.connect(head(Content_Length="100001")) as one:
            one.sendall(bytes(100_001))
            answer = answer_on(one)
        assert answer.status == 413
        assert answer.problem()["limit"] == "max_body_bytes"
        assert "100000 bytes" in answer.problem()["detail"]

    def test_declared_length_with_an_expectation(self, start) -> None:
        answer = start(self.limits).ask(head(Content_Length="100001", Expect="100-continue"))
        assert answer.problem()["limit"] == "max_body_bytes"

    def test_chunks(self, start) -> None:
        running = start(self.limits)
        with running.connect(head(Transfer_Encoding="chunked")) as one:
            for _ in range(500):  # 50 MB, all of which the client sends before it listens
                one.sendall(b"186a0\r\n" + bytes(100_000) + b"\r\n")
            answer = answer_on(one)
        assert answer.status == 413
        assert answer.problem()["limit"] == "max_body_bytes"
        assert running.site.seen == []

    def test_exact_length_is_allowed(self, start) -> None:
        running = start(self.limits)
        declared = running.ask(head(Content_Length="100000") + bytes(100_000))
        chunks = b"2710\r\n" + bytes(10_000) + b"\r\n"
        chunked = running.ask(head(Transfer_Encoding="chunked") + chunks * 10 + b"0\r\n\r\n")
        assert declared.body == chunked.body == b"/length 100000"

    def test_slow_upload(self, start) -> None:
        running = start(Limits(max_upload_seconds=1))
        with running.connect(head(Content_Length="100000")) as one:
            while not select.select([one], [], [], 0.05)[0]:
                one.sendall(b"a")
            answer = answer_on(one)
        assert answer.status == 408
        assert answer.problem()["limit"] == "max_upload_seconds"

    def test_upload_that_stalls(self, start) -> None:
        running = start(patience={"idle_seconds": 1})
        answer = running.ask(head(Content_Length="100000") + b"a")
        assert answer.status == 408
        assert "1 seconds" in answer.problem()["detail"]

    def test_slow_head(self, start) -> None:
        running = start(patience={"head_seconds": 1})
        with running.connect(b"GET / HT") as one:
            answer = answer_on(one)
            assert is_closed(one)
        assert answer.status == 408
        assert answer.problem()

    def test_silence(self, start) -> None:
        with start(patience={"head_seconds": 1}).connect() as one:
            assert is_closed(one)
        running = start(patience={"idle_seconds": 1})
        with running.connect(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n") as one:
            assert answer_on(one).status == 200
            assert is_closed(one)

    def test_client_that_does_not_read(self, start) -> None:
        running = start(patience={"idle_seconds": 1})
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(_PATIENCE)
        one.connect(("127.0.0.1", running.port))
        one.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for(lambda: running.site.seen == ["/long"])
        wait_for(lambda: not running.server.active_channels)
        one.close()

    @pytest.mark.parametrize("patience", ["linger_seconds", "linger_idle_seconds"])
    def test_refused_client_that_never_leaves(self, start, patience: str) -> None:
        running = start(gate=lambda _: _NO_ENTRY, patience={patience: 1})
        with running.connect(head(Content_Length="100000")) as one:
            assert answer_on(one).status == 401
            wait_for(lambda: not running.server.active_channels)

    def test_full_disk(self, tmp_path: Path) -> None:
        """In a process that may write files of 1 MB only."""
        code = (
            "import resource, socket, sys, threading\n"
            "from tfod_validator.settings import Limits\n"
            "from tfod_validator.web_server import Server\n"
            "from tests.service.test_web_server import Running, Site, head\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))\n"
            "listener = socket.create_server(('127.0.0.1', 0))\n"
            "port = listener.getsockname()[1]\n"
            "server = Server(Site(), listener, limits=Limits(), threads=2)\n"
            "running = Running(server.application, server, port)\n"
            "for _ in range(2):\n"
            "    with running.connect(head(Content_Length=str(9 << 20))) as one:\n"
            "        one.sendall(bytes(9 << 20))\n"
            "        print(one.recv(12).decode())\n"
            "print(running.ask(head(Content_Length='1000') + bytes(1000)).status)\n"
            "server.drain(1)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert done.stdout.split("\n")[:3] == ["HTTP/1.1 507", "HTTP/1.1 507", "200"], done.stderr
        assert list(tmp_path.iterdir()) == []


class TestBadRequests:
    @pytest.mark.parametrize(
        ("text", "status"),
        [
            (b"nonsense\r\n\r\n", 400),
            (b"get / HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
            (b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (head(Content_Length="ten"), 400),
            (head(Content_Length="-1"), 400),
            (head(Content_Length="9" * 5000), 400),
            (head(Content_Length="9" * 4000), 413),
            (head(Transfer_Encoding="gzip"), 501),
            (head(Transfer_Encoding="chunked") + b"xyz\r\n", 400),
            (head(Transfer_Encoding="chunked") + b"1\r\nabc\r\n", 400),
            (head(Transfer_Encoding="chunked") + b"1;" + b"a" * 5000, 400),
            (head(Transfer_Encoding="chunked") + b"0\r\na: " + b"b" * 10_000, 400),
            (b"GET / HTTP/1.1\r\nA: " + b"b" * 40_000 + b"\r\n\r\n", 431),
            (b"GET /" + b"a" * 40_000, 431),
        ],
        ids=range(16),
    )
    def test_are_answered_with_a_problem(self, start, text: bytes, status: int) -> None:
        running = start()
        answer = running.ask(text)
        assert answer.status == status
        assert answer.problem()
        assert running.site.seen == []
        assert running.get().status == 200

    def test_failing_app(self, start) -> None:
        answer = start().get("/fail")
        assert answer.status == 500
        assert "a mistake;" in answer.problem()["detail"]
        assert b"RuntimeError" not in answer.body


class TestManyClients:
    def test_unfinished_heads_hold_up_nobody(self, start) -> None:
        running = start(threads=2)
        slow = [running.connect(b"POST /length HTTP/1.1\r\nHo") for _ in range(200)]
        assert [running.get().status for _ in range(20)] == [200] * 20
        slow[7].sendall(b"st: a\r\nContent-Length: 1\r\n\r\na")
        assert answer_on(slow[7]).body == b"/length 1"
        for one in slow:
            one.close()

    def test_unfinished_bodies_hold_up_nobody(self, start) -> None:
        running = start(threads=2)
        slow = [running.connect(head(Content_Length="9") + b"abc") for _ in range(200)]
        assert [running.get().status for _ in range(20)] == [200] * 20
        slow[7].sendall(b"defghi")
        assert answer_on(slow[7]).body == b"/length 9"
        for one in slow:
            one.close()

    def test_idle_ones_make_room(self, start) -> None:
        running = start()
        running.server.adj.connection_limit = 30
        upload = running.connect(head(Content_Length="3"))
        wait_for(lambda: running.server.uploads_of("127.0.0.1") == 1)
        idle = [running.connect(b"GET / HT") for _ in range(100)]
        assert running.get().status == 200
        upload.sendall(b"abc")
        assert answer_on(upload).body == b"/length 3"
        for one in (upload, *idle):
            one.close()

    def test_bodies_leave_no_files(self, start, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        running = start(Limits(max_body_bytes=1_000_000))

        def held() -> list[str]:
            links = Path("/proc/self/fd").iterdir()
            return [found for link in links if (found := _target(link)).startswith(str(tmp_path))]

        done = running.connect(head(Content_Length="1000000") + bytes(1_000_000))
        assert answer_on(done).status == 200
        gone = running.connect(head(Content_Length="1000000") + bytes(900_000))
        if Path("/proc/self/fd").exists():
            wait_for(lambda: bool(held()))
        assert list(tmp_path.iterdir()) == []  # they have no names
        gone.close()
        text = head(Transfer_Encoding="chunked") + b"fffffff\r\n" + bytes(2_000_000)
        with running.connect(text) as refused:
            assert answer_on(refused).status == 413
            if Path("/proc/self/fd").exists():
                wait_for(lambda: not held())
        done.close()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


class TestDrain:
    def test_what_runs_is_finished(self, start) -> None:
        draining = threading.Event()
        running = start(draining=draining)
        idle = running.connect(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer_on(idle).status == 200
        waiting = running.connect(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        assert running.site.entered.acquire(timeout=_PATIENCE)
        upload = running.connect(head(Content_Length="6") + b"abc")
        wait_for(lambda: running.server.uploads_of("127.0.0.1") == 1)
        assert not draining.is_set()
        running.server.drain(_PATIENCE)
        assert draining.wait(_PATIENCE)
        assert is_closed(idle)
        with pytest.raises(OSError):
            running.connect()
        upload.sendall(b"def")
        assert answer_on(upload).body == b"/length 6"
        running.site.release.set()
        assert answer_on(waiting).body == b"/wait 0"
        running.thread.join(_PATIENCE)
        assert not running.thread.is_alive()
        for one in (idle, waiting, upload):
            one.close()

    def test_what_takes_too_long_is_cut_off(self, start) -> None:
        running = start()
        with running.connect(head(Content_Length="6") + b"abc") as upload:
            wait_for(lambda: running.server.uploads_of("127.0.0.1") == 1)
            running.server.drain(_PATIENCE)
            running.server.drain(0.1)
            running.thread.join(_PATIENCE)
            assert not running.thread.is_alive()
            assert is_closed(upload)

    def test_afterwards_it_does_nothing(self, start) -> None:
        running = start()
        running.server.drain(1)
        running.thread.join(_PATIENCE)
        running.server.drain(1)

"""Requests and answers on plain sockets, as only hostile or broken clients send them."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.validator.heavy import record_of

UPLOAD = "POST /api/v1/validations HTTP/1.1\r\nHost: localhost\r\n"
"""The head of an upload, which does not end."""
HEALTH = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKEN = "Sesame-1234"
KIND = "Content-Type: multipart/form-data; boundary=b"
_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.tfrecord"\r\n\r\n'
FORM = _PART + record_of() + b"\r\n--b--\r\n"


def head_of(*fields: str, token: str = TOKEN) -> str:
    """The head of an upload whose form has the boundary b."""
    return UPLOAD + "\r\n".join([f"Authorization: Bearer {token}", KIND, *fields, "", ""])


SLOW = {"head": UPLOAD, "body": head_of("Content-Length: 1000") + "a"}
"""What a slow client sends and does not go on with."""


def assert_no_thread_is_held(server: Any, text: str, health: Callable[[], int]) -> None:
    """Assert that fifty slow clients keep nobody waiting, nor an upload that they go on with."""
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server, text)) for _ in range(50)]
        assert [health() for _ in range(10)] == [200] * 10
        if text == UPLOAD:
            rest = head_of(f"Content-Length: {len(FORM)}")[len(UPLOAD) :]
            slow[7].sendall(rest.encode() + FORM)
            assert answer_on(slow[7]).status == 202


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


def connect(server: Any, text: str | bytes, body: bytes = b"") -> socket.socket:
    """A connection to a service, or to a port, on which something was sent."""
    port = server if isinstance(server, int) else server.port
    one = socket.create_connection(("127.0.0.1", port), 60)
    one.sendall((text.encode("latin-1") if isinstance(text, str) else text) + body)
    return one


def answer_on(one: socket.socket) -> Answer:
    return Answer(http.client.HTTPResponse(one))


def ask(server: Any, text: str | bytes, body: bytes = b"") -> Answer:
    """The answer to a request as it is written here."""
    with connect(server, text, body) as one:
        return answer_on(one)

"""Requests and answers on plain sockets, as only hostile or broken clients send them."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any


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

"""Requests and answers on plain sockets, as only hostile or broken clients send them."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from tests.validator.conftest import record_of

UPLOAD = "POST /api/v1/validations HTTP/1.1\r\nHost: localhost\r\n"
"""The beginning of the head of an upload."""
HEALTH = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKEN = "Sesame-1234"
KIND = "Content-Type: multipart/form-data; boundary=b"
_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.tfrecord"\r\n\r\n'
FORM = _PART + record_of() + b"\r\n--b--\r\n"


def head_of(*fields: str, token: str = TOKEN) -> str:
    """Return the head of an upload whose form has the boundary b."""
    return UPLOAD + "\r\n".join([f"Authorization: Bearer {token}", KIND, *fields, "", ""])


SLOW = {"head": UPLOAD, "body": head_of("Content-Length: 1000") + "a"}
"""Requests that a slow client does not complete."""


class Answer:
    """An answer that was read to its end."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        response.begin()
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def problem(self) -> Any:
        """Return the problem document of the answer, after checking that it is complete."""
        assert self.headers["Content-Type"] == "application/problem+json"
        document = json.loads(self.body)
        assert (document["status"], document["type"]) == (self.status, "about:blank")
        assert document["title"] and document["detail"].endswith(".")
        return document

    def limit(self) -> tuple[int, str]:
        """Return the status and the name of the limit that was exceeded."""
        return self.status, self.problem()["limit"]


def connect(server: Any, text: str | bytes, body: bytes = b"") -> socket.socket:
    """Connect to a service or port, and send something."""
    port = server if isinstance(server, int) else server.port
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall((text.encode("latin-1") if isinstance(text, str) else text) + body)
    return connection


def answer_on(connection: socket.socket) -> Answer:
    return Answer(http.client.HTTPResponse(connection))


def ask(server: Any, text: str | bytes, body: bytes = b"") -> Answer:
    """Return the answer to a request."""
    with connect(server, text, body) as connection:
        return answer_on(connection)

"""Answers on plain sockets, for requests as only hostile or broken clients send them."""

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


def answer_on(one: socket.socket) -> Answer:
    return Answer(http.client.HTTPResponse(one))

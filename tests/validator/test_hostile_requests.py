"""Requests, forms and names as only hostile or broken clients send them."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import requests

from tests.validator.conftest import Service
from tests.validator.heavy import record_of
from tests.validator.sockets import answer_on
from tests.validator.test_api import problem


def connect(service: Service, text: str | bytes) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), 60)
    one.sendall(text.encode() if isinstance(text, str) else text)
    return one


def ask(service: Service, target: str, *fields: str, body: bytes = b"") -> Any:
    """The answer to a request as it is written here."""
    head = "\r\n".join([f"{target} HTTP/1.1", "Host: localhost", *fields, "", ""])
    with connect(service, head.encode() + body) as one:
        return answer_on(one)


def test_two_lengths(service: Service) -> None:
    """What two servers read differently is refused, or is the last on its connection."""
    target, hidden = "POST /api/v1/validations?filename=a", b"GET /healthz HTTP/1.1\r\n\r\n"
    for fields in (
        ["Content-Length: 4", "Transfer-Encoding: chunked"],
        ["Content-Length: 4", "Content-Length: 30"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding : chunked"],
        ["Content-Length: +4"],
    ):
        head = "\r\n".join([f"{target} HTTP/1.1", "Host: localhost", *fields, "", ""])
        with connect(service, head.encode() + b"0\r\n\r\n" + hidden) as one:
            answer = answer_on(one)
            assert answer.status in (400, 501), fields
            assert one.recv(100) == b""


def test_long_heads(service: Service) -> None:
    assert ask(service, "GET /", "X: " + "a" * 1_000_000).status == 431
    assert ask(service, "GET /?" + "a" * 100_000).status == 414


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=", b"--\r\n", 400),
        ("multipart/form-data; boundary=\xe9", b"--\xe9\r\n", 400),
        ("multipart/form-data; boundary=b", b"", 400),
        ("multipart/form-data; boundary=b", b"no boundary at all", 400),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nno head\r\n--b--\r\n", 400),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"a" * 3_000_000, 413),
        ("multipart/mixed; boundary=b", b"--b--", 415),
    ],
    ids=range(8),
)
def test_forms_that_are_none(service: Service, kind: str, body: bytes, status: int) -> None:
    fields = (f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    head = "\r\n".join(["POST /api/v1/validations HTTP/1.1", "Host: localhost", *fields, "", ""])
    with connect(service, head.encode("latin-1") + body) as one:
        answer = answer_on(one)
    assert answer.status == status
    assert answer.problem()


def post_form(service: Service, body: bytes, query: str = "") -> requests.Response:
    """A form whose boundary is b."""
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    url = f"{service.url}/api/v1/validations{query}"
    return requests.post(url, data=body, headers=headers, timeout=60)


def test_forms_cut_short(service: Service) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    for body in (head, head + b"abc", head + b"abc\r\n--b"):
        problem(post_form(service, body), 400)
    assert not list((service.data / "incoming").iterdir())


FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nabc\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("kind", "body", "length"),
    [
        ("application/octet-stream", b"", 9),
        ("application/octet-stream", record_of(), 1_000_000),
        ("multipart/form-data; boundary=b", FORM, len(FORM) + 9),
        ("multipart/form-data; boundary=b", FORM[:-2], len(FORM)),
    ],
    ids=["none of a file", "some of a file", "all but the epilogue", "all but the last line end"],
)
def test_connections_that_end_early(service: Service, kind: str, body: bytes, length: int) -> None:
    """What has arrived of a shard may be whole records, and would be found valid."""
    fields = (f"Content-Type: {kind}", f"Content-Length: {length}")
    target = "POST /api/v1/validations?filename=a.tfrecord HTTP/1.1"
    with connect(service, "\r\n".join([target, "Host: localhost", *fields, "", ""])) as one:
        one.sendall(body)
        one.shutdown(socket.SHUT_WR)
        answer = answer_on(one)
    assert "has ended early" in answer.problem()["detail"]
    assert answer.status == 400
    assert not list((service.data / "incoming").iterdir())


def test_forms_of_many_fields(service: Service) -> None:
    fields = [("a", (None, "x"))] * 10_000
    assert problem(service.upload(fields), 413)["limit"] == "max_files"
    texts = [("cvat_labels", (None, "x" * 1_000_000))] * 3
    assert problem(service.upload([("file", ("a", b"x")), *texts]), 413)


def test_forms_in_forms(service: Service) -> None:
    inner = b'--c\r\nContent-Disposition: file; filename="b"\r\n\r\nxyz\r\n--c--\r\n'
    part = ("a.tfrecord", inner, "multipart/mixed; boundary=c")
    found = service.upload({"file": part}).json()
    assert found["files"] == [{"name": "a.tfrecord", "bytes": len(inner), "role": "file"}]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"\xff\xfe\x80", 400),
        (b"a\xc0\xaf", 400),
        (b'a"; x="', 200),
        (b"\xe2\x80\xae.fdp", 200),
        (b"<b>&amp;", 200),
    ],
)
def test_names_of_strange_letters(service: Service, name: bytes, status: int) -> None:
    disposition = b'form-data; name="file"; filename="' + name.replace(b'"', b"%22") + b'"'
    body = b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\nabc\r\n--b--\r\n"
    response = service.end_of(post_form(service, body, "?wait=30"))
    assert response.status_code == status
    if status != 200:
        return
    found = response.json()
    page = service.get(found["links"]["page"])
    assert page.status_code == 200 and "<b>" not in page.text


@pytest.mark.parametrize("disposition", [b'form-data; filename="a"', b"form-data"])
def test_parts_without_a_name(service: Service, disposition: bytes) -> None:
    body = b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\nabc\r\n--b--\r\n"
    assert post_form(service, body).status_code == 400


def test_addresses_that_are_none(service: Service) -> None:
    assert service.get("/reports/a%00b").status_code == 404
    url = f"{service.url}/api/v1/validations"
    assert requests.post(f"{url}?key=1", data=b"x", timeout=60).status_code == 400
    origin = {"Origin": "http://["}
    refused = requests.post(url, data=b"x", headers=origin, timeout=60)
    assert refused.status_code == 403


def test_names_do_not_reach_headers(service: Service) -> None:
    url = f"{service.url}/api/v1/validations?wait=30&filename=a%0d%0aX-Evil:%201%22.tfrecord"
    response = service.end_of(requests.post(url, data=record_of(), timeout=60))
    assert response.status_code == 200
    saved = service.get(response.json()["links"]["html"])
    for one in (response, saved):
        assert "X-Evil" not in one.headers
    assert saved.headers["Content-Disposition"] == "attachment; filename=tfod-report.html"


def test_nothing_is_served_as_what_it_was(service: Service) -> None:
    evil = b"<script>alert(1)</script>"
    for name in ("a.html", "a.svg", "a.js", "a.zip"):
        links = service.upload({"file": (name, evil, "text/html")}).json()["links"]
        for link in (*links.values(), f"{links['self']}/images/0", f"{links['self']}/{name}"):
            response = service.get(link)
            assert evil not in response.content
            assert response.headers["X-Content-Type-Options"] == "nosniff"

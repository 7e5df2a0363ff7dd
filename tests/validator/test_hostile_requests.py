"""Requests, forms, names and files as only hostile or broken clients send them."""

from __future__ import annotations

import dataclasses
import resource
import zlib

import pytest
import requests

from tests.validator import sockets
from tests.validator.conftest import UPLOADS, Service, Start, problem, record_of, zip_of
from tests.validator.sockets import KIND, Answer
from tests.zip_forge import Item, deflate, forge, quoting_zip

_MIB = 1 << 20


def ask(service: Service, target: str, *fields: str, body: bytes = b"") -> Answer:
    head = "\r\n".join([f"{target} HTTP/1.1", "Host: localhost", *fields, "", ""])
    return sockets.ask(service, head, body)


class TestHeads:
    def test_two_lengths(self, service: Service) -> None:
        """If two servers may read a request differently, it is the last of its connection."""
        hidden = b"GET /healthz HTTP/1.1\r\n\r\n"
        for fields in (
            ["Content-Length: 4", "Transfer-Encoding: chunked"],
            ["Content-Length: 4", "Content-Length: 30"],
            ["Transfer-Encoding: chunked, identity"],
            ["Transfer-Encoding: xchunked"],
            ["Transfer-Encoding : chunked"],
            ["Content-Length: +4"],
        ):
            answer = ask(service, f"POST {UPLOADS}", *fields, body=b"0\r\n\r\n" + hidden)
            assert answer.status in (400, 415, 501), fields

    def test_invalid_heads(self, service: Service) -> None:
        assert sockets.ask(service, "GET /healthz HTTP/1.0\r\n\r\n").status == 200  # no host
        assert ask(service, "GET /", "X: " + "a" * 1_000_000).status == 431
        assert ask(service, "GET http://[").status == 400
        assert service.get("/reports/a%00b").status_code == 404
        assert service.post(f"{UPLOADS}?key=1", data=b"x").status_code == 400
        origin = {"Origin": "http://["}
        assert service.post(UPLOADS, data=b"x", headers=origin).status_code == 403

    @pytest.mark.parametrize(
        "key", ["..", "..%2f..%2fetc", "..%2f..%2flock", "%2e%2e%2fwaiting", "%00", "a%0d%0aX:y"]
    )
    def test_ids_do_not_become_paths(self, service: Service, key: str) -> None:
        targets = [f"GET {folder}/{key}" for folder in (UPLOADS, "/reports", "/static")]
        for target in (*targets, f"DELETE {UPLOADS}/{key}", f"POST /reports/{key}/delete"):
            assert ask(service, target).status == 404
        assert (service.data / "waiting").is_dir()


class TestForms:
    @pytest.mark.parametrize(
        ("kind", "body", "status"),
        [
            ("multipart/form-data", b"", 400),
            ("multipart/form-data; boundary=", b"--\r\n", 400),
            ("multipart/form-data; boundary=b", b"", 400),
            ("multipart/form-data; boundary=b", b"no boundary at all", 400),
            ("multipart/form-data; boundary=b", b"--b\r\n\r\nno head\r\n--b--\r\n", 400),
            ("multipart/form-data; boundary=b", b"--b\r\n" + b"a" * 3_000_000, 413),
            ("multipart/mixed; boundary=b", b"--b--", 415),
            ("application/x-www-form-urlencoded", b"file=x", 415),
        ],
        ids=range(8),
    )
    def test_invalid_forms(self, service: Service, kind: str, body: bytes, status: int) -> None:
        fields = (f"Content-Type: {kind}", f"Content-Length: {len(body)}")
        answer = ask(service, f"POST {UPLOADS}", *fields, body=body)
        assert answer.status == status and answer.problem()

    def post(self, service: Service, disposition: bytes, rest: bytes) -> requests.Response:
        """Post a form with one part."""
        body = b"--b\r\nContent-Disposition: form-data" + disposition + b"\r\n\r\n" + rest
        headers = dict([KIND.split(": ")])
        return service.end_of(service.post(f"{UPLOADS}?wait=30", data=body, headers=headers))

    def test_truncated_forms(self, service: Service) -> None:
        for rest in (b"", b"abc", b"abc\r\n--b"):
            problem(self.post(service, b'; name="file"; filename="a"', rest), 400)
        assert service.folder("incoming") == []

    def test_many_or_long_fields(self, service: Service) -> None:
        fields = [("a", (None, "x"))] * 10_000
        assert problem(service.upload(fields), 413)["limit"] == "max_files"
        text = ("cvat_labels", (None, "x" * 1_000_000))
        assert problem(service.upload([("file", ("a", b"x")), text]), 413)

    def test_many_files_are_not_open_at_once(self, start_service: Start) -> None:
        running = start_service()
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        files = [("file", (f"{number}.txt", b"x")) for number in range(300)]
        assert running.upload(files, wait=0).status_code == 202

    @pytest.mark.parametrize(
        ("disposition", "status"),
        [
            (b'; name="file"; filename="\xff\xfe\x80"', 400),
            (b'; name="file"; filename="a\xc0\xaf"', 400),
            (b'; name="file"; filename="a%22; x=%22"', 200),
            (b'; name="file"; filename="\xe2\x80\xae.fdp"', 200),
            (b'; name="file"; filename="<b>&amp;"', 200),
            (b'; filename="a"', 400),
            (b"", 400),
        ],
    )
    def test_unusual_names(self, service: Service, disposition: bytes, status: int) -> None:
        response = self.post(service, disposition, b"abc\r\n--b--\r\n")
        assert response.status_code == status
        if status == 200:
            page = service.get(response.json()["links"]["page"])
            assert page.status_code == 200 and "<b>" not in page.text

    def test_names_do_not_reach_headers(self, service: Service) -> None:
        files = {"file": ('a\r\nX-Evil: 1".tfrecord', record_of())}
        uploaded = service.upload(files, wait=0).json()
        repaired = service.change(uploaded)["links"]["repaired"]
        for saved in (service.get(uploaded["links"]["html"]), service.get(repaired)):
            assert saved.status_code == 200 and "X-Evil" not in saved.headers

    def test_uploads_are_not_served_to_browsers(self, service: Service) -> None:
        evil = b"<script>alert(1)</script>"
        for name in ("a.html", "a.svg", "a.js", "a.zip"):
            links = service.upload({"file": (name, evil, "text/html")}).json()["links"]
            for link in (*links.values(), f"{links['self']}/repaired", f"{links['self']}/{name}"):
                response = service.get(link)
                assert evil not in response.content
                assert response.headers["X-Content-Type-Options"] == "nosniff"

    def test_headers_do_not_change_the_client_without_a_proxy(self, service: Service) -> None:
        for name in ("X-Forwarded-For", "Forwarded", "X-Forwarded-Host"):
            files = {"file": ("a.tfrecord", record_of())}
            service.upload(files, {name: "for=10.9.8.7, 10.9.8.7"}, wait=0)
        assert not any("10.9.8.7" in line for line in service.lines)


class TestFiles:
    def test_bombs_cost_nothing(self, service: Service) -> None:
        before = service.memory()
        for bomb in (_overlapping(), quoting_zip(), zip_of({"a.tfrecord": bytes(300 * _MIB)})):
            found = service.check(("a.zip", bomb))
            assert found["valid"] is False
            assert any(code.startswith("ZIP") for code in found["report"]["counts"]["by_code"])
        assert service.memory() - before < 100 * _MIB

    def test_profiles_run_no_code_and_do_not_grow(self, service: Service) -> None:
        laughs = "a0: &a0 [x]\n" + "".join(
            f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
        )
        code = "name: !!python/object/apply:os.system ['touch /tmp/tfod-was-here']\n"
        shard = ("a.tfrecord", record_of())
        for text in (laughs, code, "{" * 100_000, "a: " + "9" * 100_000):
            for name in ("p.yaml", "p.json", "p.py"):
                files = {"file": shard, "profile": (name, text.encode())}
                found = service.upload(files).json()
                assert (found["state"], found["failure"]["status"]) == ("failed", 422), name
                assert str(service.data) not in found["failure"]["detail"]


def _overlapping() -> bytes:
    """Return 42 kB whose 250 entries share one kernel of 10 MB (Fifield)."""
    kernel = deflate(bytes(10_000_000))
    first = Item("0.tfrecord", packed=kernel, size=10_000_000, crc=zlib.crc32(bytes(10_000_000)))
    others = [dataclasses.replace(first, name=f"{n}.tfrecord", start=0) for n in range(1, 250)]
    return forge(first, *others)

"""Requests, forms, names and files as only hostile or broken clients send them."""

from __future__ import annotations

import base64
import dataclasses
import resource
import zlib
from collections.abc import Callable

import pytest
import requests
from tfod_validator.access import get_network, is_allowed

from tests.validator import sockets
from tests.validator.conftest import Service, zip_of
from tests.validator.heavy import record_of
from tests.validator.sockets import Answer
from tests.validator.test_api import problem
from tests.zip_forge import Item, deflate, forge, quoting_zip

_FILE = {"file": ("a.tfrecord", record_of())}
_MIB = 1 << 20


def ask(service: Service, target: str, *fields: str, body: bytes = b"") -> Answer:
    head = "\r\n".join([f"{target} HTTP/1.1", "Host: localhost", *fields, "", ""])
    return sockets.ask(service, head, body)


class TestHeads:
    def test_two_lengths(self, service: Service) -> None:
        """What two servers read differently is refused, or is the last on its connection."""
        target, hidden = "POST /api/v1/validations", b"GET /healthz HTTP/1.1\r\n\r\n"
        for fields in (
            ["Content-Length: 4", "Transfer-Encoding: chunked"],
            ["Content-Length: 4", "Content-Length: 30"],
            ["Transfer-Encoding: chunked, identity"],
            ["Transfer-Encoding: xchunked"],
            ["Transfer-Encoding : chunked"],
            ["Content-Length: +4"],
        ):
            answer = ask(service, target, *fields, body=b"0\r\n\r\n" + hidden)
            assert answer.status in (400, 415, 501), fields

    def test_without_a_host(self, service: Service) -> None:
        assert sockets.ask(service, "GET /healthz HTTP/1.0\r\n\r\n").status == 200

    def test_long_ones(self, service: Service) -> None:
        assert ask(service, "GET /", "X: " + "a" * 1_000_000).status == 431

    def test_addresses_that_are_none(self, service: Service) -> None:
        assert service.get("/reports/a%00b").status_code == 404
        assert ask(service, "GET http://[").status == 400
        url = f"{service.url}/api/v1/validations"
        assert requests.post(f"{url}?key=1", data=b"x", timeout=60).status_code == 400
        origin = {"Origin": "http://["}
        assert requests.post(url, data=b"x", headers=origin, timeout=60).status_code == 403

    @pytest.mark.parametrize(
        "key", ["..", "..%2f..%2fetc", "..%2f..%2flock", "%2e%2e%2fwaiting", "%00", "a%0d%0aX:y"]
    )
    def test_ids_are_no_paths(self, service: Service, key: str) -> None:
        for path in (f"/api/v1/validations/{key}", f"/reports/{key}", f"/static/{key}"):
            assert ask(service, f"GET {path}").status == 404
        assert ask(service, f"DELETE /api/v1/validations/{key}").status == 404
        assert ask(service, f"POST /reports/{key}/delete").status == 404
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
    def test_that_are_none(self, service: Service, kind: str, body: bytes, status: int) -> None:
        fields = (f"Content-Type: {kind}", f"Content-Length: {len(body)}")
        answer = ask(service, "POST /api/v1/validations", *fields, body=body)
        assert answer.status == status
        assert answer.problem()

    def post(self, service: Service, body: bytes) -> requests.Response:
        """A form whose boundary is b."""
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        url = f"{service.url}/api/v1/validations?wait=30"
        return service.end_of(requests.post(url, data=body, headers=headers, timeout=60))

    def test_cut_short(self, service: Service) -> None:
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for body in (head, head + b"abc", head + b"abc\r\n--b"):
            problem(self.post(service, body), 400)
        assert service.folder("incoming") == []

    def test_of_many_fields(self, service: Service) -> None:
        fields = [("a", (None, "x"))] * 10_000
        assert problem(service.upload(fields), 413)["limit"] == "max_files"
        text = ("cvat_labels", (None, "x" * 1_000_000))
        assert problem(service.upload([("file", ("a", b"x")), text]), 413)

    def test_many_files_are_not_open_at_once(self, start_service: Callable[..., Service]) -> None:
        running = start_service()
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        files = [("file", (f"{number}.txt", b"x")) for number in range(900)]
        assert running.upload(files, wait=0).status_code == 202

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
    def test_names_of_strange_letters(self, service: Service, name: bytes, status: int) -> None:
        disposition = b'form-data; name="file"; filename="' + name.replace(b'"', b"%22") + b'"'
        body = b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\nabc\r\n--b--\r\n"
        found = self.post(service, body)
        assert found.status_code == status
        if status != 200:
            return
        page = service.get(found.json()["links"]["page"])
        assert page.status_code == 200 and "<b>" not in page.text

    @pytest.mark.parametrize("disposition", [b'form-data; filename="a"', b"form-data"])
    def test_parts_without_a_name(self, service: Service, disposition: bytes) -> None:
        body = b"--b\r\nContent-Disposition: " + disposition + b"\r\n\r\nabc\r\n--b--\r\n"
        assert self.post(service, body).status_code == 400

    def test_names_do_not_reach_headers(self, service: Service) -> None:
        files = {"file": ('a\r\nX-Evil: 1".tfrecord', record_of())}
        uploaded = service.upload(files, wait=0).json()
        repaired = service.repair(uploaded)["links"]["repaired"]
        for saved in (service.get(uploaded["links"]["html"]), service.get(repaired)):
            assert saved.status_code == 200 and "X-Evil" not in saved.headers

    def test_nothing_is_served_as_what_it_was(self, service: Service) -> None:
        evil = b"<script>alert(1)</script>"
        for name in ("a.html", "a.svg", "a.js", "a.zip"):
            links = service.upload({"file": (name, evil, "text/html")}).json()["links"]
            for link in (*links.values(), f"{links['self']}/repaired", f"{links['self']}/{name}"):
                response = service.get(link)
                assert evil not in response.content
                assert response.headers["X-Content-Type-Options"] == "nosniff"


class TestAccess:
    @pytest.mark.parametrize(
        "given",
        [
            *("", "Bearer", "Bearer nonsense", "Bearer Sesame", "Bearer sesame-1", "Sesame-1"),
            *("Bearer \xff", "Basic Sesame-1", "Basic !", "Digest Sesame-1"),
            "Basic " + base64.b64encode(b"Sesame-1:").decode(),
            "Basic " + base64.b64encode(b"a:Sesame-1:").decode(),
            "Basic " + base64.b64encode(b"\xff:Sesame-1").decode(),
        ],
    )
    def test_without_the_token(self, given: str) -> None:
        for path in ("/", "/api/v1/rules", "/metrics", "/nothing", "//healthz", "/reports/x"):
            assert not is_allowed(path, given, "Sesame-1")
        assert is_allowed("/healthz", given, "Sesame-1") and is_allowed("/", given, "")

    @pytest.mark.parametrize(
        "given",
        [
            "Bearer Sesame-1",
            "bearer  Sesame-1 ",
            "Basic " + base64.b64encode(b"a:Sesame-1").decode(),
        ],
    )
    def test_with_the_token(self, given: str) -> None:
        assert is_allowed("/", given, "Sesame-1")

    def test_a_network_of_ipv6_is_one_client(self) -> None:
        one, other = get_network("2001:db8::1"), get_network("2001:db8::ffff:2")
        assert one == other == "2001:db8::/64"
        assert get_network("2001:db8:0:1::1") != one
        assert get_network("fe80::1%eth0") == "fe80::/64"
        assert get_network("::ffff:10.0.0.1") == get_network("10.0.0.1") == "10.0.0.1"
        assert get_network("unknown") == "unknown"

    def test_who_asks_is_not_what_headers_say(self, service: Service) -> None:
        """Without a proxy that is trusted."""
        for name in ("X-Forwarded-For", "Forwarded", "X-Forwarded-Host"):
            service.upload(_FILE, {name: "for=10.9.8.7, 10.9.8.7"}, wait=0)
        assert not any("10.9.8.7" in line for line in service.lines)


class TestFiles:
    def test_bombs_cost_nothing(self, service: Service) -> None:
        before = service.memory()
        for bomb in (_overlapping(), quoting_zip(), zip_of({"a.tfrecord": bytes(300 * _MIB)})):
            found = service.upload({"file": ("a.zip", bomb)}).json()
            assert found["valid"] is False
            assert any(code.startswith("ZIP") for code in found["report"]["counts"]["by_code"])
        assert service.memory() - before < 100 * _MIB

    def test_profiles_build_nothing(self, service: Service) -> None:
        laughs = "a0: &a0 [x]\n" + "".join(
            f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
        )
        code = "name: !!python/object/apply:os.system ['touch /tmp/tfod-was-here']\n"
        for text in (laughs, code, "{" * 100_000, "a: " + "9" * 100_000):
            for name in ("p.yaml", "p.json", "p.py"):
                found = service.upload({**_FILE, "profile": (name, text.encode())}).json()
                assert (found["state"], found["failure"]["status"]) == ("failed", 422), name
                assert str(service.data) not in found["failure"]["detail"]


def _overlapping() -> bytes:
    """42 kB whose 250 entries share one kernel of 10 MB (Fifield)."""
    kernel = deflate(bytes(10_000_000))
    first = Item("0.tfrecord", packed=kernel, size=10_000_000, crc=zlib.crc32(bytes(10_000_000)))
    others = [dataclasses.replace(first, name=f"{n}.tfrecord", start=0) for n in range(1, 250)]
    return forge(first, *others)

"""What a hostile client tries: tokens, cookies, other people's reports, headers, forms, files."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
import requests
from tfod_validator import security

from tests.validator.conftest import Service, running_service, zip_of
from tests.validator.heavy import record_of
from tests.validator.test_api import problem
from tests.validator.test_hostile_requests import ask

Start = Callable[..., Service]
_TOKEN, _OTHER = "first-Sesame-1234", "second-Sesame-5678"
_GIB = 1 << 30
_FILE = {"file": ("a.tfrecord", record_of())}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that asks for tokens, and allows a client one validation that waits."""
    environment = {"TFOD_TOKENS": f"{_TOKEN},{_OTHER}", "TFOD_MAX_QUEUED_PER_CLIENT": "1"}
    data = tmp_path_factory.mktemp("guarded")
    with running_service(data, "--workers", "0", environment=environment) as running:
        yield running


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def upload_on_page(service: Service, browser: requests.Session) -> requests.Response:
    """Upload as the page's script does."""
    url, headers = f"{service.url}/validations", {"Accept": "application/json"}
    return browser.post(url, files=_FILE, headers=headers, timeout=60)


class TestTokens:
    @pytest.mark.parametrize(
        "header",
        [
            "",
            "Bearer",
            "Bearer nonsense",
            f"Bearer {_TOKEN[:-1]}",
            f"Bearer {_TOKEN.lower()}",
            f"Bearer {_TOKEN}{_OTHER}",
            f"Bearer {_TOKEN},{_OTHER}",
            f"Basic {_TOKEN}",
            "Bearer \xff",
        ],
    )
    def test_without_a_right_one(self, guarded: Service, header: str) -> None:
        given = {"Authorization": header.encode("latin-1")} if header else {}
        for path in ("/api/v1/rules", "/metrics", "/openapi.json", "/nothing", "/api/v1/nothing"):
            response = guarded.get(path, headers=given)
            assert problem(response, 401)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert problem(guarded.upload(_FILE, given), 401)

    def test_with_one(self, guarded: Service) -> None:
        for token in (_TOKEN, _OTHER):
            assert guarded.get("/api/v1/rules", headers=bearer(token)).status_code == 200
        assert guarded.get("/healthz").status_code == 200

    @pytest.mark.parametrize(
        ("target", "status"),
        [
            ("POST /api/v1/validations?filename=a", 401),
            ("POST /validations", 401),
            ("POST /nothing", 401),
            ("POST /sign-in", 413),
            ("DELETE /api/v1/validations/some", 401),
        ],
    )
    def test_nobody_sends_a_long_body_for_nothing(
        self, guarded: Service, target: str, status: int
    ) -> None:
        for length in (f"Content-Length: {_GIB}", "Transfer-Encoding: chunked"):
            assert ask(guarded, target, length).status == status

    def test_limits_are_of_tokens_and_addresses(self, guarded: Service) -> None:
        assert guarded.upload(_FILE, bearer(_TOKEN), wait=0).status_code == 202
        for scheme in ("Bearer", "bearer", "Bearer "):
            refused = guarded.upload(_FILE, {"Authorization": f"{scheme} {_TOKEN}"}, wait=0)
            assert problem(refused, 429)["limit"] == "max_queued_per_client"
        assert guarded.upload(_FILE, bearer(_OTHER), wait=0).status_code == 202


class TestCookies:
    def sign_in(self, service: Service, token: str, target: str = "/") -> requests.Session:
        browser = service.browser()
        url = f"{service.url}/sign-in"
        self.answer = browser.post(
            url, {"token": token}, params={"next": target}, allow_redirects=False, timeout=60
        )
        return browser

    def test_signing_in_and_out(self, guarded: Service) -> None:
        page = guarded.get("/rules", allow_redirects=False)
        assert page.headers["Location"] == "/sign-in?next=/rules"
        browser = self.sign_in(guarded, _TOKEN, "/rules")
        assert (self.answer.status_code, self.answer.headers["Location"]) == (303, "/rules")
        cookie = self.answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        content = cookie.partition("=")[2].split(".")[0]
        assert _TOKEN.encode() not in base64.urlsafe_b64decode(content + "==")
        assert browser.get(f"{guarded.url}/rules", timeout=60).status_code == 200
        browser.post(f"{guarded.url}/sign-out", timeout=60)
        assert "/sign-in" in browser.get(f"{guarded.url}/rules", timeout=60).url

    def test_changed_ones(self, guarded: Service) -> None:
        browser = self.sign_in(guarded, _TOKEN)
        content, when, signature = str(browser.cookies["tfod"]).rsplit(".", 2)
        forged = base64.urlsafe_b64encode(b'{"token":"x"}').decode().rstrip("=")
        for value in (
            f"{forged}.{when}.{signature}",
            f"{content}.{when}.{signature[:-2]}AA",
            f"{content}.{when}.",
            content,
            "a" * 4000,
        ):
            headers = {"Cookie": f"tfod={value}"}
            assert problem(guarded.get("/api/v1/rules", headers=headers), 401)

    def test_a_wrong_token(self, guarded: Service) -> None:
        browser = self.sign_in(guarded, "guess")
        assert self.answer.status_code == 403
        assert "/sign-in" in browser.get(f"{guarded.url}/rules", timeout=60).url

    @pytest.mark.parametrize(
        "target",
        [
            *("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example"),
            *("/\t/evil.example", "/\n/evil.example", "\t//evil.example", "///evil.example"),
            *("javascript:alert(1)", "http:evil.example", "/%0d%0aSet-Cookie:a=b\r\nX: y", "@evil"),
        ],
    )
    def test_the_way_back_leads_nowhere_else(self, guarded: Service, target: str) -> None:
        self.sign_in(guarded, _TOKEN, target)
        place = self.answer.headers["Location"]
        assert self.answer.status_code == 303
        assert re.match(r"/(?![/\\\s])", place + "x"), place
        assert "X" not in self.answer.headers

    def test_guesses_in_a_minute(self, start_app: Start) -> None:
        running = start_app(TFOD_MAX_SIGN_INS_PER_MINUTE="3", TFOD_TOKENS=_TOKEN)
        for _ in range(3):
            self.sign_in(running, "guess")
            assert self.answer.status_code == 403
        for token in ("guess", _TOKEN):  # a right guess is not told either
            self.sign_in(running, token)
            output = problem(self.answer, 429)
            assert output["limit"] == "max_sign_ins_per_minute"
            assert "too many attempts to sign in" in output["detail"]
            assert 0 < int(self.answer.headers["Retry-After"]) <= 20


class TestOwners:
    def delete(self, service: Service, key: str, asks: requests.Session, **more: Any) -> None:
        """Delete a report in both ways that there are, where that is allowed."""
        page = f"{service.url}/reports/{key}"
        address = f"{service.url}/api/v1/validations/{key}"
        allowed = more.pop("allowed")
        offers = "Delete it now" in asks.get(page, timeout=60, **more).text
        assert offers == allowed
        if allowed:
            assert asks.delete(address, timeout=60, **more).status_code == 204
            assert asks.get(address, timeout=60, **more).status_code == 404
            return
        for refused in (
            asks.delete(address, timeout=60, **more),
            asks.post(f"{page}/delete", timeout=60, **more),
        ):
            assert "can be deleted only" in problem(refused, 403)["detail"]
        assert asks.get(address, timeout=60, **more).status_code == 200

    def test_of_tokens(self, start_app: Start) -> None:
        running = start_app(TFOD_TOKENS=f"{_TOKEN},{_OTHER}")
        signed_in = {token: TestCookies().sign_in(running, token) for token in (_TOKEN, _OTHER)}
        anybody = running.browser()
        for with_cookie in (False, True):
            for deletes_with_cookie in (False, True):
                if with_cookie:
                    answer = upload_on_page(running, signed_in[_TOKEN])
                else:
                    answer = running.upload(_FILE, bearer(_TOKEN), wait=0)
                assert answer.status_code == 202
                for token, allowed in ((_OTHER, False), (_TOKEN, True)):
                    asks = signed_in[token] if deletes_with_cookie else anybody
                    more = {} if deletes_with_cookie else {"headers": bearer(token)}
                    self.delete(running, answer.json()["id"], asks, **more, allowed=allowed)

    def test_of_browsers(self, start_app: Start) -> None:
        running = start_app()
        mine, other = running.browser(), running.browser()
        upload_on_page(running, other)
        key = upload_on_page(running, mine).json()["id"]
        for one, allowed in ((running.browser(), False), (other, False), (mine, True)):
            self.delete(running, key, one, allowed=allowed)

    def test_of_addresses(self, start_app: Start) -> None:
        running = start_app("--trusted-proxies", "1")
        for address in ("10.0.0.1", "10.0.0.1"):
            key = running.upload(_FILE, {"X-Forwarded-For": address}, wait=0).json()["id"]
        for address, allowed in (("10.0.0.2", False), ("10.0.0.1", True)):
            headers = {"X-Forwarded-For": address}
            self.delete(running, key, running.browser(), headers=headers, allowed=allowed)


class TestAddresses:
    def test_ids_cannot_be_guessed(self) -> None:
        found = {security.new_id() for _ in range(2000)}
        assert len(found) == 2000
        assert min(map(len, found)) >= 22
        assert all(re.fullmatch(r"[A-Za-z0-9_-]+", one) for one in found)

    @pytest.mark.parametrize(
        "key",
        ["..", "..%2f..%2fetc", "..%2f..%2flock", "%2e%2e%2freports.sqlite3", "%00", "a%0d%0aX:y"],
    )
    def test_ids_are_no_paths(self, service: Service, key: str) -> None:
        for path in (f"/api/v1/validations/{key}", f"/reports/{key}", f"/static/{key}"):
            assert ask(service, f"GET {path}").status == 404
        assert ask(service, f"DELETE /api/v1/validations/{key}").status == 404
        assert (service.data / "reports.sqlite3").exists()

    def test_who_asks_is_not_what_headers_say(self, start_app: Start) -> None:
        running = start_app(TFOD_MAX_QUEUED_PER_CLIENT="1")
        assert running.upload(_FILE, wait=0).status_code == 202
        for number in range(3):
            reported = {"X-Forwarded-For": f"10.0.0.{number}", "Forwarded": f"for=10.0.0.{number}"}
            for headers in (reported, bearer(f"new-{number}")):
                problem(running.upload(_FILE, headers, wait=0), 429)


def test_hosts() -> None:
    known = ("localhost", "[::1]", "::1", "Example.org", ".example.net")
    right = ("localhost", "localhost:80", "[::1]", "[::1]:80", "EXAMPLE.org", "a.example.net:1")
    assert all(security.is_known_host(one, known) for one in right)
    wrong = ("", "localhost.evil", "evil", "example.org.", "[::2]:80", "evilexample.net")
    assert not any(security.is_known_host(one, known) for one in wrong)


def test_loopback_of_ipv6(start_service: Start) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    running = start_service("--host", "::1", "--workers", "0")
    assert running.url.startswith("http://[::1]:")
    assert running.upload(_FILE, wait=0).status_code == 202


def test_a_network_of_ipv6_is_one_client() -> None:
    one, other = security.network_of("2001:db8::1"), security.network_of("2001:db8::ffff:2")
    assert one == other == "2001:db8::/64"
    assert security.network_of("2001:db8:0:1::1") != one
    assert security.network_of("fe80::1%eth0") == "fe80::/64"
    assert security.network_of("10.0.0.1") == "10.0.0.1"
    assert security.network_of("::ffff:10.0.0.1") == "10.0.0.1"  # at a socket for both
    assert security.network_of("unknown") == "unknown"


class Listener(BaseHTTPRequestHandler):
    """Notes who calls."""

    calls: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.calls.append(self.path)
        self.send_error(404)


def test_xml_calls_nobody_and_reads_nothing(service: Service) -> None:
    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/dtd"
    secret = (service.data / "secret-key").read_text()
    kinds = {
        "file": f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{service.data}/secret-key">]>',
        "call": f'<!DOCTYPE a [<!ENTITY x SYSTEM "{url}">]>',
        "dtd": f'<!DOCTYPE a SYSTEM "{url}" [<!ENTITY x "y">]>',
        "parameter": f'<!DOCTYPE a [<!ENTITY % p SYSTEM "{url}"> %p; <!ENTITY x "y">]>',
        "laughs": "<!DOCTYPE a ["
        + "<!ENTITY x0 'ha'>"
        + "".join(f"<!ENTITY x{n} '{f'&x{n - 1};' * 10}'>" for n in range(1, 12))
        + "<!ENTITY x '&x11;'>]>",
    }
    labels = "<meta><task><labels><label><name>&x;</name></label></labels></task></meta>"
    for head in kinds.values():
        xml = f"{head}<annotations>{labels}</annotations>".encode()
        files = {**_FILE, "cvat_xml": ("a.xml", xml), "profile": (None, "cvat")}
        text = service.upload(files).text
        assert secret not in text and "root:" not in text
        packed = zip_of({"annotations.xml": xml, "a.tfrecord": record_of()})
        assert secret not in service.upload({"file": ("a.zip", packed)}).text
    server.shutdown()
    server.server_close()
    assert Listener.calls == []


def test_profiles_build_nothing(service: Service) -> None:
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    code = "name: !!python/object/apply:os.system ['touch /tmp/tfod-was-here']\n"
    grows = "a0 = 9\n" + "".join(f"a{n} = a{n - 1} * a{n - 1}\n" for n in range(1, 13))
    grows += "f = {'k': tf.io.FixedLenFeature([a12], tf.int64)}"
    found = service.upload({**_FILE, "profile": ("p.py", grows.encode())}).json()
    assert found["failure"]["detail"] == (
        "The check could not run: p.py:14: a12 is no literal; write its value instead"
    )
    for text in (laughs, code, "{" * 100_000, "[" * 100_000, "a: " + "9" * 100_000):
        for name in ("p.yaml", "p.json", "p.py"):
            found = service.upload({**_FILE, "profile": (name, text.encode())}).json()
            assert (found["state"], found["failure"]["status"]) == ("failed", 422), (name, found)


def test_logs_keep_secrets(start_service: Start) -> None:
    running = start_service(TFOD_TOKENS=_TOKEN)
    file = {"file": ("Geheim.tfrecord", record_of() + b"Inhalt")}
    keys = [running.upload(file, bearer(_TOKEN)).json()["id"] for _ in range(2)]
    for path in ("/reports/", "/api/v1/validations/"):
        for tail in ("", "/events", "/images/0", "?format=html", "/nothing"):
            running.get(f"{path}{keys[0]}{tail}", headers=bearer(_TOKEN))
        running.get(path + keys[0], headers=bearer("Falsch"))
        ask(running, f"POST {path}{keys[0]}/delete", f"Content-Length: {_GIB}")
        ask(running, f"GET {path}{keys[0]}", "X: " + "a" * 100_000)
    address = f"{running.url}/api/v1/validations/{keys[0]}"
    requests.delete(address, headers=bearer(_TOKEN), timeout=60)
    (running.data / "reports.sqlite3").write_bytes(b"no database any more" * 500)
    running.get(f"/api/v1/validations/{keys[1]}", headers=bearer(_TOKEN))
    running.stop()
    text = "".join(running.lines[1:])
    for secret in ("Geheim", "Inhalt", _TOKEN, "Falsch", *keys):
        assert secret not in text
    for line in running.lines:
        assert line.startswith("tfod: ") or json.loads(line)["level"], line

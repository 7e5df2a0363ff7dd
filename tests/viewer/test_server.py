"""``tfod show --serve``: addresses, refused requests, its end, and wrong arguments."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from tests.commands import TIMEOUT, Run, wait_until
from tests.files import write_files
from tests.mutants.sound import LABEL_MAP, other, record, shard, with_boxes


@contextmanager
def served(source: Path, *options: str) -> Iterator[str]:
    """Run the command until the end of the context, and yield its address."""
    command = [sys.executable, "-m", "tfod", "show", "--serve", str(source), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell may have started the tests in the background, where Ctrl-C is ignored.
    handled = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, text=True, preexec_fn=handled, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            match = re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stdout.readline())
            assert match
            yield match[0]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(TIMEOUT) == 0
            finally:
                process.kill()
            assert (process.stdout.read(), process.stderr.read()) == ("", "")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outside = with_boxes([(0.5, 0.25, 1.6, 0.75)], filename="<b>.jpg")
    files = {"a.tfrecord": shard(record(), other(), outside), "label_map.pbtxt": LABEL_MAP}
    return write_files(tmp_path_factory.mktemp("<served>"), files) / "a.tfrecord"


@pytest.fixture(scope="module")
def url(source: Path) -> Iterator[str]:
    with served(source) as url:
        yield url


def get(url: str, **headers: str) -> requests.Response:
    return requests.get(url, headers=headers, timeout=TIMEOUT)


def ask(url: str, method: str, **arguments: object) -> requests.Response:
    return get(f"{url}{method}?{quote(json.dumps(arguments))}")


def test_the_page_and_its_files(url: str) -> None:
    page = get(url)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<title>a.tfrecord" in page.text and "{" not in page.text
    names = re.findall(r'(?:href|src)="([^"]*)"', page.text)
    assert sorted(names) == ["data:,", "report.css", "serve.js", "viewer.css"]
    for name in ("report.css", "serve.js", "viewer.css", "viewer.js"):
        assert get(url + name).status_code == 200
        assert "http:" not in get(url + name).text.replace("http://www.w3.org", "")


def test_answers_are_json(url: str) -> None:
    wait_until(lambda: ask(url, "overview").json()["complete"])
    rows = ask(url, "select", rule="BOX003").json()["rows"]
    assert [(row["number"], row["name"]) for row in rows] == [(2, "<b>.jpg")]
    assert "&lt;b&gt;.jpg" in ask(url, "record", number=2).json()["html"]
    for method, arguments in (("record", {"number": 3}), ("select", {"start": "x"})):
        refused = ask(url, method, **arguments)
        assert refused.status_code == 400 and refused.json()["error"]
    for query in ("%", "[1]", "3", "{", "[" * 9999):
        assert get(f"{url}overview?{query}").status_code == 400


def test_requests_without_the_token_or_for_another_host_are_refused(url: str) -> None:
    port = int(url.split("/")[2].rpartition(":")[2])
    base = f"http://127.0.0.1:{port}/"
    token = url.removeprefix(base)
    for path in ("", "viewer.js", "overview", "x" * 43 + "/", token[:-2] + "/", f"?{token}"):
        refused = get(base + path)
        assert refused.status_code == 403 and "tfod show --serve" in refused.text
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
        assert get(url, Host=host).status_code == 403
    assert get(url.replace("127.0.0.1", "localhost")).status_code == 200
    for path in ("../server.py", "x", "page/viewer.js", "close", "viewer.html"):
        assert get(url + quote(path, safe="")).status_code == 404
    for method in ("POST", "PUT", "OPTIONS", "HEAD"):
        assert requests.request(method, url, timeout=TIMEOUT).status_code == 501
    for target in (b"/", b"http://[/", url.encode()):
        with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
            connection.sendall(b"GET %b HTTP/1.1\r\n\r\n" % target)
            assert connection.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_a_browser_that_closes_its_connections_is_not_an_error(source: Path) -> None:
    """The command prints nothing."""
    with served(source) as url:
        _, _, host, token, _ = url.split("/")
        request = f"GET /{token}/viewer.js HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        for sent in (request[:9], request, 20 * request):
            with socket.create_connection(("127.0.0.1", int(host[10:])), TIMEOUT) as connection:
                connection.sendall(sent)
                # Closes the connection by a reset.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert ask(url, "overview").ok


def test_headers(url: str) -> None:
    """All answers have the policy; none allows another website."""
    for answer in (get(url), get(url + "viewer.js"), ask(url, "overview"), get(url[:-9])):
        headers = answer.headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


def test_only_the_loopback_interface(url: str) -> None:
    port = int(url.split("/")[2].rpartition(":")[2])
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), port)}
    for address in own - {"127.0.0.1", "::1"} or {"127.0.0.2"}:
        with pytest.raises(OSError), socket.create_connection((str(address), port), TIMEOUT):
            pass


def test_the_class_is_part_of_the_address(source: Path) -> None:
    with served(source, "--class", "traffic light & co") as url:
        assert url.endswith("/#class=traffic+light+%26+co")


def test_the_name_of_the_source_is_not_markup(source: Path, tmp_path: Path) -> None:
    named = tmp_path / "<i>{version}.tfrecord"
    named.write_bytes(source.read_bytes())
    with served(named) as url:
        assert get(url).text.count("&lt;i&gt;{version}.tfrecord") == 2


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--serve", "-o", "x.html"], "--serve writes no page"),
        (["--port", "3"], "add --serve"),
        (["--serve", "--label-map", "nope"], "nope: no such label map"),
    ],
)
def test_wrong_arguments(options: list[str], output: str, run: Run, source: Path) -> None:
    assert output in run("show", source, *options).refused()
    for choice in (["--first", "3"], ["--records", "3"], ["--port", "65536"]):
        with pytest.raises(SystemExit):
            run("show", source, "--serve", *choice)


def test_a_port_in_use_and_sources_without_images(
    run: Run, source: Path, corpus: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in run("show", source, "--serve", "--port", port).refused()
    refused = run("show", corpus / "titanic-table", "--serve").refused()
    assert "no images or boxes" in refused
    (tmp_path / "empty").mkdir()
    assert str(tmp_path) in run("show", tmp_path / "empty", "--serve").refused()

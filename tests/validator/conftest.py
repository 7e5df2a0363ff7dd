"""The service as users start it, and the servers that it can use."""

from __future__ import annotations

import io
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import urllib3
from flask import Flask
from requests.adapters import HTTPAdapter
from tfod.cli.arguments import build_parser
from tfod.tfrecord.writer import write_records
from tfod_validator.app import create_app
from tfod_validator.jobs.database import Database
from tfod_validator.serve.command import settings_from
from tfod_validator.serve.processes import make_folders

from tests.commands import free_port, parent_of, require, wait_until
from tests.image_kinds import plain_image
from tests.records import encode, image, objects
from tests.zip_forge import real_zip

_GREETING = re.compile(r"tfod: (?:serving on (\S+)|working) ")
REMOTE_TIMEOUT = 240
"""Seconds until what does not happen is a failure; on a busy machine all takes its time."""
_COUNTER = itertools.count()
_MARK = "SERVICE_OF_TEST"
"""A variable in the environment of all processes of a service, which also finds orphans."""
_IN_A_HURRY = {"TFOD_MAX_UPLOADS_PER_MINUTE": "100000", "TFOD_MAX_SIGN_INS_PER_MINUTE": "100000"}


@dataclass
class Service:
    """A service that runs, or one of this process that only takes uploads and answers.

    Attributes:
        process: the first of its processes; None of one that is in this process.
        url: where it listens; empty for one without web processes.
        data: its folder.
        lines: what it has written on standard error so far.
        app: the application, of one that is in this process.
    """

    process: Any
    url: str
    data: Path
    lines: list[str] = field(default_factory=list)
    app: Flask | None = None

    def browser(self) -> requests.Session:
        """What keeps cookies."""
        found = requests.Session()
        if self.app is not None:
            found.mount(self.url, _InThisProcess(self.app))
        return found

    def upload(self, files: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        """POST files, as a dict or list of parts; ``more`` are parameters of the address.

        The answer is that of a check that has ended, unless ``wait`` says otherwise.
        """
        url = f"{self.url}/api/v1/validations"
        asked = {"wait": 60} | more
        found = self.browser().post(
            url, files=files, params=asked, headers=headers, timeout=REMOTE_TIMEOUT
        )
        return found if "wait" in more else self.end_of(found, headers, **more)

    def end_of(
        self, found: requests.Response, headers: Mapping[str, str] | None = None, **more: Any
    ) -> requests.Response:
        """An answer, or in place of one that came too early what is said when the check ends."""
        place = found.headers.get("Location")
        asked = {"wait": 60} | {name: more[name] for name in ("fail", "format") if name in more}
        while place and _is_early(found):
            found = requests.get(
                self.url + place, params=asked, headers=headers, timeout=REMOTE_TIMEOUT
            )
        return found

    def get(self, path: str, **more: Any) -> requests.Response:
        """GET an address of the service."""
        return self.browser().get(self.url + path, timeout=REMOTE_TIMEOUT, **more)

    def wait_until_over(self, key: str) -> dict[str, Any]:
        """The validation when its check has ended."""
        end = time.monotonic() + REMOTE_TIMEOUT
        while time.monotonic() < end:
            try:
                found: dict[str, Any] = self.get(f"/api/v1/validations/{key}").json()
            except requests.ConnectionError:
                found = {"state": "unreachable"}
            if found["state"] in ("finished", "failed"):
                return found
            time.sleep(0.1)
        raise AssertionError(f"{key} has not ended: {found}; {self.lines[-20:]}")

    def children(self, command: str = "") -> list[int]:
        """Process ids of what the first process has started, and of what these have."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid != self.process.pid and self._is_ours(pid):
                written = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
                if command in written and _state_of(pid) != "Z":
                    found.append(pid)
        return found

    def _is_ours(self, pid: int) -> bool:
        return f"{_MARK}={self.data}\0" in _read(f"/proc/{pid}/environ")

    def forked(self) -> list[int]:
        """The web processes and the workers."""
        return [pid for pid in self.children() if parent_of(pid) == self.process.pid]

    def web(self) -> list[int]:
        """The web processes: those that listen."""
        return [pid for pid in self.forked() if self._listens(pid)]

    def workers(self) -> list[int]:
        """The worker processes."""
        return [pid for pid in self.forked() if not self._listens(pid)]

    def _listens(self, pid: int) -> bool:
        port = self.url.rpartition(":")[2]
        tables = [_read(f"/proc/{pid}/net/{name}").splitlines()[1:] for name in ("tcp", "tcp6")]
        rows = [line.split() for lines in tables for line in lines]
        listening = {row[9] for row in rows if port and row[1].endswith(f":{int(port):04X}")}
        open_sockets = set()
        with suppress(OSError):  # it has ended meanwhile
            open_sockets = {_target_of(one) for one in Path(f"/proc/{pid}/fd").iterdir()}
        return any(f"socket:[{inode}]" in open_sockets for inode in listening - {"0"})

    def memory(self) -> int:
        """Bytes that all its processes hold, shared ones shared out (PSS)."""
        total = 0
        for pid in [self.process.pid, *self.children()]:
            for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def stop(self, seconds: float = REMOTE_TIMEOUT) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


class _InThisProcess(HTTPAdapter):
    """Has requests answered by an application, without a server."""

    def __init__(self, app: Flask) -> None:
        super().__init__()
        self._client = app.test_client(use_cookies=False)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        headers = list(request.headers.items())
        answer = self._client.open(
            request.path_url, method=request.method, headers=headers, data=request.body
        )
        message = HTTPMessage()  # where requests looks for cookies
        for name, value in answer.headers:
            message.add_header(name, value)
        raw = urllib3.HTTPResponse(
            io.BytesIO(answer.data),
            dict(answer.headers),
            answer.status_code,
            preload_content=False,
            original_response=SimpleNamespace(msg=message, isclosed=lambda: True),
        )
        return self.build_response(request, raw)


def _is_early(found: requests.Response) -> bool:
    if found.status_code != 200 or found.headers["Content-Type"] != "application/json":
        return found.status_code in (202, 409)
    return found.json()["state"] in ("queued", "running")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _target_of(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _state_of(pid: int) -> str:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


@contextmanager
def running_service(
    data: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """``tfod serve`` on a free port until the block ends; it must then end by itself."""
    command = [sys.executable, "-m", "tfod.cli.main", "serve", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data", str(data), *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_IN_A_HURRY, **(environment or {}), _MARK: str(data)},
    )
    service = Service(process, "", data)
    reported = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            service.lines.append(line)
            found = _GREETING.match(line)
            if found:
                service.url = found[1] or ""
                reported.set()
        reported.set()

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        assert reported.wait(REMOTE_TIMEOUT), service.lines
        assert process.poll() is None, service.lines
        if service.url and "--workers" not in options:
            _wait_until_ready(service)
        yield service
    finally:
        try:
            status = service.stop()
        finally:
            process.kill()
            process.wait()
            reader.join(10)
    assert status in (0, -signal.SIGKILL), service.lines[-20:]


def _wait_until_ready(service: Service) -> None:
    wait_until(lambda: service.get("/readyz").status_code == 200, service.lines)


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services with options; they end with the test."""
    with ExitStack() as stack:

        def start(*options: str, data: str = "data", **environment: str) -> Service:
            return stack.enter_context(
                running_service(tmp_path / data, *options, environment=environment)
            )

        yield start


@pytest.fixture
def start_app(tmp_path: Path) -> Callable[..., Service]:
    """Makes services of this process, which have no workers, with options."""

    def start(*options: str, data: str = "data", **environment: str) -> Service:
        folder = str(tmp_path / data)
        given = build_parser("serve").parse_args(["serve", "--data", folder, *options])
        settings = settings_from(given, _IN_A_HURRY | environment)
        make_folders(settings)
        Database(settings).create_tables()
        app = create_app(settings)
        return Service(None, "http://localhost", settings.data, app=app)

    return start


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with its defaults for all tests that leave it as it is."""
    data = tmp_path_factory.mktemp("service")
    limits = {"TFOD_MAX_QUEUED_PER_CLIENT": "1000"}
    with running_service(data, environment=limits) as running:
        yield running
        # Checks that nobody has waited for.
        wait_until(lambda: not list((data / "uploads").iterdir()), running.lines)
    assert list((data / "incoming").iterdir()) == []


@pytest.fixture
def postgresql(postgresql_server: str) -> str:
    """URL of a database of the test's own: a database belongs to one data folder."""
    return new_database(postgresql_server)


def new_database(server: str) -> str:
    """URL of a new database of a PostgreSQL server."""
    import psycopg.sql  # of the extra 'scale'

    name = f"tfod{next(_COUNTER)}"
    with psycopg.connect(server, autocommit=True) as connection:
        identifier = psycopg.sql.Identifier(name)
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(identifier))
    return f"{server.rpartition('/')[0]}/{name}"


@pytest.fixture(scope="package")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a PostgreSQL server of our own."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    require("PostgreSQL", bool(programs))
    folder = Path("/tmp") / f"tfod-pg-{os.getpid()}"  # sockets' names are short
    folder.mkdir()
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses root
        entry = pwd.getpwnam("postgres")
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        as_user = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}"]
        as_user += ["--clear-groups"]
    binary, port = programs[-1].parent, free_port()
    initdb = [*as_user, str(binary / "initdb"), "-D", str(folder / "db")]
    subprocess.run([*initdb, "-U", "tfod", "-A", "trust"], check=True, capture_output=True)
    options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
    control = [*as_user, str(binary / "pg_ctl"), "-D", str(folder / "db"), "-w"]
    log = str(folder / "log")
    subprocess.run([*control, "-o", options, "-l", log, "start"], check=True, capture_output=True)
    try:
        yield f"postgresql://tfod@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


LABEL_MAP = b"item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n"


def shard_of(
    folder: Path, *, boxes: int = 1, xmax: float = 0.5, text: str = "cat", records: int = 3
) -> bytes:
    """A shard with an image in each record; an ``xmax`` of 0.1 or less makes boxes inverted."""
    encoded = {"image/encoded": plain_image((200, 100)), "image/format": "jpeg"}
    found = []
    for number in range(records):
        boxed = objects([(0.1, 0.1, xmax, 0.5 + 0.01 * place) for place in range(boxes)])
        classes = {
            "image/object/class/text": [text] * boxes,
            "image/object/class/label": [1] * boxes,
        }
        name = {"image/source_id": str(number)}
        found.append(encode(image(f"{number}.jpg") | encoded | boxed | classes | name))
    path = write_records(folder, "train", found)[0]
    return Path(path).read_bytes()


def zip_of(entries: Mapping[str, bytes]) -> bytes:
    """A zip."""
    return real_zip(entries.items())


@pytest.fixture
def good_zip(tmp_path: Path) -> bytes:
    """A zip in which nothing is wrong."""
    folder = tmp_path / "good"
    folder.mkdir()
    return zip_of({"default.tfrecord": shard_of(folder), "label_map.pbtxt": LABEL_MAP})


@pytest.fixture
def bad_zip(tmp_path: Path) -> bytes:
    """A zip with a box whose right side is left of its left one."""
    folder = tmp_path / "bad"
    folder.mkdir()
    return zip_of({"default.tfrecord": shard_of(folder, xmax=0.05), "label_map.pbtxt": LABEL_MAP})

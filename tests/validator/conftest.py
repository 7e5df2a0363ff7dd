"""The service as users start it, and uploads to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod.tfrecord.writer import write_records

from tests.commands import TIMEOUT, wait_until
from tests.image_kinds import plain_image
from tests.mutants.sound import LABEL_MAP, frame
from tests.records import encode, image, objects
from tests.zip_forge import real_zip

_GREETING = re.compile(r"tfod: (?:serving on (\S+)|waiting for uploads)")
_MARK = "SERVICE_OF_TEST"
"""A variable in the environment of all processes of a service, which also finds orphans."""
UPLOADS = "/api/v1/validations"


def problem(response: requests.Response, status: int) -> dict[str, Any]:
    """Return the problem document of a response, after checking that it is complete."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (document["status"], document["type"]) == (status, "about:blank")
    assert document["title"] and document["detail"]
    return document


@dataclass
class Service:
    """A running service: its process, address (empty for a worker), folder and standard error."""

    process: Any
    url: str
    data: Path
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(self, method: str, path: str, **more: Any) -> requests.Response:
        return requests.request(method, self.url + path, timeout=TIMEOUT, **more)

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.ask("GET", path, **more)

    def post(self, path: str, **more: Any) -> requests.Response:
        return self.ask("POST", path, **more)

    def upload(self, files: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        """Upload a dict or list of parts, with parameters of the address.

        Without ``wait``, return the response after the end of the check.
        """
        response = self.post(UPLOADS, files=files, params={"wait": 60} | more, headers=headers)
        return response if "wait" in more else self.end_of(response, **more)

    def check(self, *files: tuple[str, bytes], **fields: Any) -> Any:
        """Upload files and fields, and return the validation after the end of the check."""
        texts = {name.rstrip("_"): (None, text) for name, text in fields.items()}
        return self.upload([*(("file", file) for file in files), *texts.items()]).json()

    def begin(self, content: bytes, address: str = "10.0.0.1") -> str:
        """Upload a shard and return its id. Behind a proxy, the client has the address."""
        files, headers = {"file": ("a.tfrecord", content)}, {"X-Forwarded-For": address}
        response = self.upload(files, headers, wait=0)
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def hold_check(self, address: str = "10.0.0.1") -> tuple[str, int]:
        """Stop a check after it began, until SIGCONT; return the ids of upload and process."""

        def hold() -> Any:
            before = set(self.checks())
            key = self.begin(record_of() * 20_000, address)
            while key in self.folder("waiting"):
                for check in set(self.checks()) - before:
                    with suppress(OSError):  # it has already ended
                        os.kill(check, signal.SIGSTOP)
                        return key, check
            return None

        key, check = wait_until(hold, self.lines)
        return key, check

    def end_of(self, response: requests.Response, **more: Any) -> requests.Response:
        """Return the response, or the one after the end of the check if it came too early."""
        location = response.headers.get("Location")
        parameters = {"wait": 60} | {name: more[name] for name in more if name == "fail"}
        while location and response.status_code in (202, 409):
            self.wait_until_over(location.rpartition("/")[2])
            response = self.get(location, params=parameters)
        return response

    def change(self, uploaded: Any, action: str = "repair", **form: str) -> Any:
        """Return the validation of a repaired or converted copy of an upload."""
        self.wait_until_over(uploaded["id"])
        parameters = {"token": uploaded["token"], "wait": 60}
        path = f"{uploaded['links']['self']}/{action}"
        return self.end_of(self.post(path, data=form, params=parameters)).json()

    def wait_until_over(self, key: str, headers: Any = None) -> dict[str, Any]:
        """Return the validation after the end of its check."""

        def ended() -> dict[str, Any]:
            found: dict[str, Any] = self.get(f"{UPLOADS}/{key}", headers=headers).json()
            return found if found.get("state") in ("finished", "failed") else {}

        return wait_until(ended, self.lines)

    def children(self) -> list[int]:
        """Return the ids of the processes that the service has started."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid != self.process.pid:
                environment = _read(f"/proc/{pid}/environ").split("\0")
                is_alive = _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1] not in "Z"
                if f"{_MARK}={self.data}" in environment and is_alive:
                    found.append(pid)
        return found

    def checks(self) -> list[int]:
        """Return the ids of the processes of checks, which are leaders of sessions."""
        found = []
        for pid in self.children():
            with suppress(ProcessLookupError):  # it has just ended
                if os.getsid(pid) == pid:
                    found.append(pid)
        return found

    def memory(self) -> int:
        """Return the bytes that all its processes hold; shared ones count once (PSS)."""
        pids = [self.process.pid, *self.children()]
        lines = "".join(_read(f"/proc/{pid}/smaps_rollup") for pid in pids)
        return 1024 * sum(map(int, re.findall(r"^Pss: +(\d+)", lines, re.MULTILINE)))

    def folder(self, name: str) -> list[str]:
        """Return the names in a folder of its data."""
        return sorted(os.listdir(self.data / name))

    def kill(self) -> None:
        """Send SIGKILL to all its processes, as when a machine loses power."""
        for pid in (self.process.pid, *self.children()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(TIMEOUT)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


Start = Callable[..., Service]
"""The fixture ``start_service``."""


@contextmanager
def running_service(data: Path, *options: str, **environment: str) -> Iterator[Service]:
    """Run ``tfod serve`` on a free port until the block ends; it must then end by itself."""
    command = [sys.executable, "-m", "tfod.cli.main", "serve", "--port", "0", "--data", str(data)]
    process = subprocess.Popen(
        [*command, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, _MARK: str(data)},
    )
    service = Service(process, "", data)
    reported = threading.Event()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            service.lines.append(line)
            if greeting := _GREETING.match(line):
                service.url = greeting[1] or ""
                reported.set()
        reported.set()

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        assert reported.wait(TIMEOUT), service.lines
        assert process.poll() is None, service.lines
        yield service
    finally:
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            status = process.wait(TIMEOUT)
        finally:
            process.kill()
            process.wait()
            reader.join(10)
    assert status in (0, -signal.SIGKILL), service.lines[-20:]


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Start]:
    """Start services with options and variables of the environment; they end with the test."""
    with ExitStack() as stack:

        def start(*options: str, data: str = "data", **environment: str) -> Service:
            running = running_service(tmp_path / data, *options, **environment)
            return stack.enter_context(running)

        yield start


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with its defaults for all tests that do not change it."""
    with running_service(tmp_path_factory.mktemp("service")) as running:
        yield running
        wait_until(lambda: not running.folder("waiting"), running.lines)  # tests may not wait
    assert running.folder("incoming") == []


def shard_of(folder: Path, *, xmax: float = 0.5, text: str = "cat") -> bytes:
    """Write three records with an image and a box; an ``xmax`` of 0.1 or less inverts the boxes."""
    boxed = objects([(0.1, 0.1, xmax, 0.5)], [text], [1])
    pixels = {"image/encoded": plain_image((200, 100)), "image/format": "jpeg"}
    records = [
        encode(image(f"{number}.jpg") | pixels | boxed | {"image/source_id": str(number)})
        for number in range(3)
    ]
    return Path(write_records(folder, "train", records)[0]).read_bytes()


def zip_of(entries: Mapping[str, bytes]) -> bytes:
    return real_zip(entries.items())


@pytest.fixture
def good_zip(tmp_path: Path) -> bytes:
    """A zip without errors."""
    return zip_of({"default.tfrecord": shard_of(tmp_path / "good"), "label_map.pbtxt": LABEL_MAP})


@pytest.fixture
def bad_zip(tmp_path: Path) -> bytes:
    """A zip with inverted boxes."""
    shard = shard_of(tmp_path / "bad", xmax=0.05)
    return zip_of({"default.tfrecord": shard, "label_map.pbtxt": LABEL_MAP})


def record_of(padding: int = 0) -> bytes:
    """Return a framed record with one box; the padding is a feature that no rule reads."""
    boxed = objects([(0.1, 0.1, 0.5, 0.5)], ["cat"], [1])
    more = {"padding": bytes(padding)} if padding else {}
    return frame(encode(image("a.jpg") | boxed | more))

"""The service as users start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod.tfrecord.writer import write_records

from tests.commands import wait_until
from tests.image_kinds import plain_image
from tests.records import encode, image, objects
from tests.zip_forge import real_zip

_GREETING = re.compile(r"tfod: (?:serving on (\S+)|waiting for uploads)")
REMOTE_TIMEOUT = 240
"""Seconds until what does not happen is a failure; on a busy machine all takes its time."""
_MARK = "SERVICE_OF_TEST"
"""A variable in the environment of all processes of a service, which also finds orphans."""


@dataclass
class Service:
    """A service that runs.

    Attributes:
        process: the one that was started.
        url: where it listens; empty for a worker.
        data: its folder.
        lines: what it has written on standard error so far.
    """

    process: Any
    url: str
    data: Path
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def upload(self, files: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        """POST files, as a dict or list of parts; ``more`` are parameters of the address.

        The answer is that of a check that has ended, unless ``wait`` says otherwise.
        """
        url = f"{self.url}/api/v1/validations"
        asked = {"wait": 60} | more
        found = requests.post(
            url, files=files, params=asked, headers=headers, timeout=REMOTE_TIMEOUT
        )
        return found if "wait" in more else self.end_of(found, headers, **more)

    def end_of(
        self, found: requests.Response, headers: Mapping[str, str] | None = None, **more: Any
    ) -> requests.Response:
        """An answer, or in place of one that came too early what is said when the check ends."""
        place = found.headers.get("Location")
        asked = {"wait": 60} | {name: more[name] for name in ("fail", "format") if name in more}
        while place and found.status_code in (202, 409):
            self.wait_until_over(place.rpartition("/")[2], headers)
            found = requests.get(
                self.url + place, params=asked, headers=headers, timeout=REMOTE_TIMEOUT
            )
        return found

    def repair(self, uploaded: Mapping[str, Any], **form: str) -> Any:
        """What is said of a repaired copy when its check has ended; ``uploaded`` was answered."""
        self.wait_until_over(uploaded["id"])
        url = f"{self.url}{uploaded['links']['self']}/repair"
        asked = {"token": uploaded["token"], "wait": 60}
        answer = requests.post(url, data=form, params=asked, timeout=REMOTE_TIMEOUT)
        return self.end_of(answer).json()

    def get(self, path: str, **more: Any) -> requests.Response:
        """GET an address of the service."""
        return requests.get(self.url + path, timeout=REMOTE_TIMEOUT, **more)

    def wait_until_over(self, key: str, headers: Any = None) -> dict[str, Any]:
        """The validation when its check has ended."""
        end = time.monotonic() + REMOTE_TIMEOUT
        while time.monotonic() < end:
            answer = self.get(f"/api/v1/validations/{key}", headers=headers)
            found: dict[str, Any] = answer.json()
            if found.get("state") in ("finished", "failed"):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{key} has not ended: {found}; {self.lines[-20:]}")

    def children(self) -> list[int]:
        """Process ids of what the process has started, and of what these have."""
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid != self.process.pid:
                environment = _read(f"/proc/{pid}/environ").split("\0")
                is_alive = _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1] not in "Z"
                if f"{_MARK}={self.data}" in environment and is_alive:
                    found.append(pid)
        return found

    def checks(self) -> list[int]:
        """The processes of checks that run, which are leaders of sessions."""
        found = []
        for pid in self.children():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                if os.getsid(pid) == pid:
                    found.append(pid)
        return found

    def memory(self) -> int:
        """Bytes that all its processes hold, shared ones shared out (PSS)."""
        total = 0
        for pid in [self.process.pid, *self.children()]:
            for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        return total

    def folder(self, name: str) -> list[str]:
        """What is in a folder of its data, without temporary files."""
        return sorted(one.name for one in (self.data / name).iterdir())

    def kill(self) -> None:
        """SIGKILL to all its processes, as when a machine loses power."""
        for pid in (self.process.pid, *self.children()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(REMOTE_TIMEOUT)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


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
        env={**os.environ, **(environment or {}), _MARK: str(data)},
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
        yield service
    finally:
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            status = process.wait(REMOTE_TIMEOUT)
        finally:
            process.kill()
            process.wait()
            reader.join(10)
    assert status in (0, -signal.SIGKILL), service.lines[-20:]


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services with options; they end with the test."""
    with ExitStack() as stack:

        def start(*options: str, data: str = "data", **environment: str) -> Service:
            return stack.enter_context(
                running_service(tmp_path / data, *options, environment=environment)
            )

        yield start


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with its defaults for all tests that leave it as it is."""
    data = tmp_path_factory.mktemp("service")
    with running_service(data) as running:
        yield running
        wait_until(lambda: not running.folder("waiting"), running.lines)  # nobody has waited for it
    assert running.folder("incoming") == []


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
    return zip_of({"default.tfrecord": shard_of(tmp_path / "good"), "label_map.pbtxt": LABEL_MAP})


@pytest.fixture
def bad_zip(tmp_path: Path) -> bytes:
    """A zip with a box whose right side is left of its left one."""
    shard = shard_of(tmp_path / "bad", xmax=0.05)
    return zip_of({"default.tfrecord": shard, "label_map.pbtxt": LABEL_MAP})

"""A check's process has few permissions, in case a file makes a decoder run its code."""

from __future__ import annotations

import ctypes
import errno
import json
import multiprocessing
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from tfod_validator import child
from tfod_validator.folder import DataFolder, Request
from tfod_validator.landlock import describe_missing, get_abi
from tfod_validator.settings import Settings
from tfod_validator.workers import check

from tests.validator.conftest import UPLOADS, Service

ALLOWED = "allowed"


def needs(abi: int, release: str) -> pytest.MarkDecorator:
    """Skip a test if the kernel has an older version of Landlock, or none."""
    return pytest.mark.skipif(get_abi() < abi, reason=f"needs the Landlock of Linux {release}")


def outcome_of(action: Callable[[], object]) -> str:
    try:
        action()
    except Exception as error:
        return type(error).__name__
    return ALLOWED


Outcomes = Callable[[dict[str, Callable[[], object]]], dict[str, str]]


@pytest.fixture
def outcomes_in_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcomes:
    """Run actions in the process of a check, instead of its report, and return their outcomes."""
    settings = Settings(data=tmp_path / "data", max_check_bytes=1 << 40)
    folder = DataFolder(settings)
    folder.create()

    def run(actions: dict[str, Callable[[], object]]) -> dict[str, str]:
        accepted = accept_file(folder, "mine")

        def act(attempt: Path, *_: Any) -> Any:
            found = {name: outcome_of(action) for name, action in actions.items()}
            (attempt / "outcomes").write_text(json.dumps(found))
            raise MemoryError  # without a report

        with monkeypatch.context() as patch:
            patch.setattr(child, "_check", act)
            check(accepted.id, settings, multiprocessing.get_context("fork"), threading.Event())
        published = folder.find(accepted.id)
        assert published is not None and published.state == "failed"
        found: dict[str, str] = json.loads((published.folder / "report/outcomes").read_text())
        return found

    return run


def accept_file(folder: DataFolder, name: str) -> Any:
    """Accept an upload of a text file."""
    upload = folder.begin_upload()
    (upload / f"upload/file/{name}.txt").write_text(name)
    return folder.accept(upload, Request())


@needs(2, "5.19")
def test_files(outcomes_in_a_check: Outcomes, tmp_path: Path) -> None:
    other = accept_file(DataFolder(Settings(data=tmp_path / "data")), "theirs")
    theirs = other.folder / "upload/file/theirs.txt"
    (tmp_path / "data/reports/old").mkdir()
    link = "link"
    found = outcomes_in_a_check(
        {
            "read mine": lambda: Path("mine.txt").read_text(),
            "write mine": lambda: Path("new.txt").write_text("x"),
            "move mine": lambda: Path("new.txt").rename("../new.txt"),
            "temporary": lambda: tempfile.TemporaryFile().write(b"x"),
            "import": lambda: __import__("xmlrpc.client"),
            "read theirs": theirs.read_text,
            "write theirs": lambda: theirs.write_text("x"),
            "delete theirs": theirs.unlink,
            "link theirs": lambda: os.symlink(theirs, link) or Path(link).read_text(),
            "hard link theirs": lambda: os.link(theirs, "hard"),
            "list uploads": lambda: os.listdir(tmp_path / "data/waiting"),
            "list reports": lambda: os.listdir(tmp_path / "data/reports"),
            "add a report": lambda: (tmp_path / "data/reports/old/x").write_text("x"),
            "read passwords": lambda: Path("/etc/passwd").read_text(),
            "read my parent": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
            "write to /tmp": lambda: Path("/tmp/tfod-was-here").write_text("x"),
            "start a program": lambda: subprocess.run([shutil.which("true") or ""], check=True),
        }
    )
    allowed = [name for name, outcome in found.items() if outcome == ALLOWED]
    assert allowed == ["read mine", "write mine", "move mine", "temporary", "import"]
    assert {found[name] for name in found.keys() - allowed} <= {"PermissionError", "OSError"}, found
    assert theirs.read_text() == "theirs"


@needs(4, "6.7")
def test_connections(outcomes_in_a_check: Outcomes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        actions = {
            "connect": lambda: socket.create_connection(address, 5),
            "listen": lambda: socket.create_server(("127.0.0.1", 0)),
        }
        assert outcomes_in_a_check(actions) == dict.fromkeys(actions, "PermissionError")


def test_inherited_connections(outcomes_in_a_check: Outcomes) -> None:
    """A check is a fork of RQ's worker, which has connections to Redis."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert outcomes_in_a_check({"send": lambda: mine.send(b"x")}) == {"send": "OSError"}
        assert mine.send(b"y") == 1 and theirs.recv(2) == b"y"


@needs(6, "6.12")
def test_the_service(outcomes_in_a_check: Outcomes) -> None:
    """The process that starts checks listens on an abstract socket, and has more permissions."""
    name = f"\0tfod-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        actions = {
            "connect": lambda: socket.socket(socket.AF_UNIX).connect(name),
            "end my parent": lambda: os.kill(os.getppid(), signal.SIGCONT),
        }
        assert outcomes_in_a_check(actions) == dict.fromkeys(actions, "PermissionError")


def test_the_log_names_the_missing_limits_in_one_line() -> None:
    actions = ["read other uploads", "open TCP connections", "reach sockets"]
    for abi, count in ((0, 3), (1, 3), (3, 2), (5, 1)):
        text = describe_missing(abi)
        assert [text.count(action) for action in actions] == [0] * (3 - count) + [1] * count
        assert text.count(",") == count - 1 and "\n" not in text and "Linux 6.12" in text
    assert describe_missing(6) == describe_missing(7) == ""


def without_landlock() -> None:
    """Make the kernel behave as if it had no Landlock for this process, by a seccomp filter."""
    load, jump, end, allow, enosys = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000 | errno.ENOSYS
    steps = ((load, 0, 0, 0), (jump, 0, 1, 444), (end, 0, 0, enosys), (end, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((38, 1, 0, 0, 0), (22, 2, program, 0, 0)):  # no new privileges, seccomp
        assert libc.prctl(*arguments) == 0, os.strerror(ctypes.get_errno())


@needs(2, "5.19")
def test_a_kernel_without_it(tmp_path: Path, good_zip: bytes) -> None:
    """The service works, and warns once."""
    command = [sys.executable, "-m", "tfod.cli.main", "serve", "--port", "0", "--data", tmp_path]
    with subprocess.Popen(
        command, preexec_fn=without_landlock, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        while "serving on" not in "".join(lines):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        assert lines[0] == f"tfod: warning: {describe_missing(0)}\n"
        url = f"{lines[-1].split()[3]}{UPLOADS}?wait=60"
        answer = requests.post(url, files={"file": ("a.zip", good_zip)}, timeout=120)
        assert answer.json()["valid"] is True
        process.terminate()
        process.communicate(timeout=60)


def test_the_service_warns_only_of_old_kernels(service: Service) -> None:
    warnings = [line for line in service.lines if "Landlock" in line]
    assert len(warnings) == (get_abi() < 6)

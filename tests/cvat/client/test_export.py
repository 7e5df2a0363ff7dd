"""``tfod cvat export`` against the stub server."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from typing import Any

import numpy as np
import pytest
from tfod.cvat.client import connection
from tfod.tfrecord.progress import BYTES_RECEIVED, BYTES_SENT, PROGRESS

from tests.commands import free_port, run_python
from tests.cvat.client.conftest import Bridge, add_objects, shape
from tests.cvat.client.stub_server import LOGIN, TOKEN, USER, Fault, StubServer
from tests.zip_forge import real_zip

pytest.importorskip("cvat_sdk")

TASK = r"/api/tasks/1\Z"


def test_boxes_attributes_and_tags(bridge: Bridge) -> None:
    assert bridge.export() == (0, f"{bridge.out}: 3 frames, 2 objects\n", "")
    with zipfile.ZipFile(bridge.out) as archive:
        assert archive.namelist() == ["default.tfrecord", "label_map.pbtxt"]
    a, b, c = bridge.records()
    assert (a.filename, a.source_id, a.height, a.width) == ("a.jpg", "1", 100, 200)
    assert (a.encoded, a.format, a.sha256) == (b"", "", "")
    assert np.allclose(a.boxes, [[0.0525, 0.2025, 0.3, 0.7]])
    assert (a.class_text, a.class_label) == (["car"], [1])
    found = {name: list(values) for name, values in a.attributes.items()}
    assert found == {"truncated": [1], "occluded": [1], "colour": ["blue"], "age": [7]}
    assert b.filename == "day/b.jpg"
    assert (b.class_text, b.class_label, list(b.attributes["occluded"])) == (["cat"], [2], [0])
    assert len(c.boxes) == 0
    assert [(one.text, one.label) for one in c.image_labels] == [("cat", 2)]


def test_classes_keep_the_ids_of_a_label_map(bridge: Bridge) -> None:
    own = bridge.folder / "own.pbtxt"
    own.write_text("item { id: 9 name: 'cat' }")
    ran = bridge.export("--label-map", own)
    assert f"label map: {own}" in ran.out and "label map: 'car' (10)" in ran.succeeded()
    assert [one.class_label for one in bridge.records()][:2] == [[10], [9]]
    with zipfile.ZipFile(bridge.out) as archive:
        assert b"'car' (10)" in archive.read("EXPORT_NOTES.txt")


def test_images_of_the_server(bridge: Bridge) -> None:
    for record in bridge.exported("--with-images"):
        data = bridge.stub.tasks[1].images[record.filename or ""]
        assert bytes(record.encoded or b"") == data
        assert (record.format, record.sha256) == ("jpeg", hashlib.sha256(data).hexdigest())


def test_video(bridge: Bridge) -> None:
    missing, tracks, encoded = bridge.export("--with-images", of="task 2").succeeded().splitlines()
    assert missing == "tfod: 5 frames without an image file from the server"
    assert tracks == "tfod: tracks split into single shapes, one per frame: 1"
    assert encoded == "tfod: frames of videos, encoded again: 1"
    found = bridge.records()
    names = [f"frame_{number:06d}.PNG" for number in range(4, 16, 2)]
    assert [one.filename for one in found] == names
    assert [len(one.boxes) for one in found] == [0, 1, 0, 1, 0, 0]
    assert found[1].format == "jpeg"


def test_frames_that_are_left_out(bridge: Bridge) -> None:
    task = bridge.stub.tasks[1]
    assert [one.filename for one in bridge.exported(of="job 11")] == ["c.jpg"]
    task.deleted = [0]
    assert bridge.export().err == "tfod: frames left out with their annotations: 1 deleted\n"
    assert [one.filename for one in bridge.records()] == ["day/b.jpg", "c.jpg"]
    task.deleted, task.tags = [], []
    ran = bridge.export("--empty-frames", "drop")
    assert ran.out.endswith("2 frames, 2 objects; 1 empty frame left out\n")
    assert [one.filename for one in bridge.records()] == ["a.jpg", "day/b.jpg"]
    task.shapes = []
    assert "no frame has an annotation" in bridge.export("--empty-frames", "drop").refused()
    assert not bridge.out.exists()


def test_subsets(bridge: Bridge) -> None:
    """The subset of a task is a file name in the zip, and no path."""
    bridge.stub.tasks[1].project = 5
    ran = bridge.export("--with-images", of="project 5")
    assert ran == (0, f"{bridge.out}: 6 frames, 4 objects, subsets default, Train\n", "")
    with zipfile.ZipFile(bridge.out) as archive:
        assert archive.namelist() == ["Train.tfrecord", "default.tfrecord", "label_map.pbtxt"]
    bridge.stub.tasks[1].subset = "../../evil"
    assert bridge.export().code == 0
    (name, _) = zipfile.ZipFile(bridge.out).namelist()
    assert "/" not in name and not name.startswith(".")


@pytest.mark.parametrize("version", ["2.15.0", "2.39.9"])
def test_old_server(bridge: Bridge, version: str) -> None:
    bridge.stub.version = version
    assert f"runs CVAT {version}; tfod cvat needs 2.40" in bridge.export().refused()


def test_the_file_exists(bridge: Bridge) -> None:
    command = ("cvat", "export", "task", 1)
    bridge.out.write_bytes(b"before")
    assert "--overwrite" in bridge.run(*command, bridge.out).refused()
    assert bridge.out.read_bytes() == b"before"
    bridge.run(*command, bridge.out, "--overwrite").succeeded()
    assert zipfile.is_zipfile(bridge.out)
    ran = bridge.run(*command, bridge.folder / "nowhere" / "a.zip")
    assert "an existing folder" in ran.refused()


# Method, pattern, fault, and the error; cvat-sdk repeats a request twice.
FAILURES: list[tuple[str, str, dict[str, Any], str]] = [
    ("GET", TASK, {"status": 502, "times": 2}, ""),
    ("GET", "/api/requests/", {"status": 503, "times": 2}, ""),
    ("GET", "/api/requests/", {"cut": True, "times": 2}, ""),
    ("GET", "/download", {"status": 504, "times": 2}, ""),
    ("GET", TASK, {"status": 502, "times": 99}, "too many 502 error"),
    ("POST", "/dataset/export", {"status": 502}, ": server error (502: "),
    ("POST", "/dataset/export", {"cut": True}, "cannot be reached"),
    ("GET", "/download", {"cut_after": 100}, "cannot be reached"),
    ("GET", TASK, {"status": 403, "body": b'{"detail": "not\\nyours"}'}, "denied (403: not yours)"),
    ("GET", TASK, {"status": 401, "body": b'{"detail": "who?"}'}, ": not logged in (401: who?)"),
    ("GET", TASK, {"status": 200, "body": b"<html>"}, "is it a CVAT server?"),
    ("GET", "/server/about", {"status": 404, "body": b"<html>"}, "is not a CVAT server; "),
    ("POST", "/dataset/export", {"status": 400, "body": b'["Unknown"]'}, "(400): Unknown"),
    ("GET", "/download", {"status": 200, "body": b"not a zip"}, "CVAT for images 1.1"),
]


@pytest.mark.parametrize(("method", "pattern", "how", "message"), FAILURES)
def test_failures(
    bridge: Bridge, method: str, pattern: str, how: dict[str, Any], message: str
) -> None:
    bridge.stub.faults = [Fault(method, pattern, **how)]
    out = bridge.out
    out.write_bytes(b"before")
    ran = bridge.run("cvat", "export", "task", 1, out, "--overwrite")
    if message:
        assert message in ran.refused()
        assert out.read_bytes() == b"before"
        assert os.listdir(bridge.folder) == [out.name]
    else:
        assert (ran.code, ran.err, bridge.stub.faults[0].times) == (0, "", 0)
        assert len(bridge.records()) == 3


def test_a_server_that_does_not_answer(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_TIMEOUT", (5.0, 0.2))
    for times in (1, 99):
        answered = threading.Event()
        wait = functools.partial(answered.wait, 10)
        bridge.stub.faults = [Fault("GET", TASK, call=wait, times=times)]
        ran = bridge.export()
        answered.set()
        assert ran.code == 0 if times == 1 else "cannot be reached" in ran.refused()


def test_progress(bridge: Bridge) -> None:
    PROGRESS.reset()
    bridge.export().succeeded()
    assert PROGRESS.counts[BYTES_RECEIVED] > 0 and not PROGRESS.counts[BYTES_SENT]
    assert bridge.load(bridge.out).code == 0
    assert PROGRESS.counts[BYTES_SENT] > 0


def test_another_server(bridge: Bridge) -> None:
    error = bridge.export("--server", f"http://127.0.0.1:{free_port()}").refused()
    assert "--server" in error and "CVAT_HOST" in error and "cannot be reached" in error


def test_failed_request(bridge: Bridge) -> None:
    def fail() -> None:
        for work in bridge.stub.work.values():
            work.status = "failed"
            work.message = 'Traceback:\n  File "x"\ncvat.apps.CvatExportError: too\nmany'

    bridge.stub.faults = [Fault("GET", "/api/requests/", call=fail)]
    error = bridge.export().refused()
    assert error.startswith(f"tfod: {bridge.stub.url} reported an error: ")


def test_absent_project(bridge: Bridge) -> None:
    assert "project 77 does not exist" in bridge.export(of="project 77").refused()


def test_zip_bomb(bridge: Bridge) -> None:
    bomb = real_zip([("annotations.xml", b"<annotations>" + b"<x/>" * (16 << 20))])
    bridge.stub.faults = [Fault("GET", "/download", 200, bomb)]
    assert "the maximum is" in bridge.export().refused()
    assert not bridge.out.exists()


class TestLogin:
    def test_token(self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
        if not hasattr(pytest.importorskip("cvat_sdk.core.client"), "AccessTokenCredentials"):
            pytest.skip("this cvat-sdk has no tokens")
        monkeypatch.setenv("CVAT_ACCESS_TOKEN", TOKEN)
        bridge.export().succeeded()
        assert not bridge.stub.asked("login")
        monkeypatch.setenv("CVAT_ACCESS_TOKEN", "stale")
        assert "CVAT_ACCESS_TOKEN" in bridge.export().refused()

    @pytest.mark.parametrize("token", [TOKEN, ""])
    def test_no_encryption(
        self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch, token: str
    ) -> None:
        """0.0.0.0 is this machine, but its name is not known to be."""
        if token:
            monkeypatch.setenv("CVAT_ACCESS_TOKEN", token)
        address = ("--server", f"http://0.0.0.0:{bridge.stub.port}")
        assert "--insecure" in bridge.export(*address).refused()
        assert [line.split("?")[0] for line in bridge.stub.log] == ["GET /api/server/about"]
        bridge.export(*address, "--insecure").succeeded()
        for host in ("localhost", "127.0.0.1"):
            bridge.export("--server", f"http://{host}:{bridge.stub.port}").succeeded()

    def test_a_check_without_encryption(
        self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bridge.export().succeeded()
        before = len(bridge.stub.log)
        monkeypatch.setattr(StubServer, "url", f"http://0.0.0.0:{bridge.stub.port}")
        checked = bridge.run("check", bridge.out, "--cvat", "task", 1)
        assert "tfod cvat export or import with --insecure" in checked.refused()
        assert len(bridge.stub.log) == before + 1

    def test_passwords(self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", None)
        command = ("cvat", "export", "task", 1, bridge.out)
        assert f"no password for {USER}" in bridge.run(*command, password="").refused()
        error = bridge.run(*command, password="wrong").refused()
        assert f"login of {USER} failed (Unable to log in with provided credentials.)" in error

    def test_organization(self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CVAT_ORGANIZATION", "lab")
        bridge.export()
        assert set(filter(None, bridge.stub.organizations)) == {"lab"}

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
    def test_self_signed_certificate(self, bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
        pem, certificate = bridge.folder / "own.pem", bridge.folder / "c.pem"
        make = shlex.split(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x"
            " -addext subjectAltName=IP:127.0.0.1 -keyout"
        )
        subprocess.run([*make, pem, "-out", certificate], check=True, capture_output=True)
        pem.write_bytes(pem.read_bytes() + certificate.read_bytes())
        command = ("cvat", "export", "task", 1, bridge.out)
        with add_objects(StubServer(certificate=str(pem))) as secure:
            error = bridge.run(*command, at=secure).refused()
            assert "no secure connection" in error and "SSL_CERT_FILE" in error
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            assert bridge.run(*command, at=secure).succeeded() == ""

    @pytest.mark.parametrize(
        ("host", "message"),
        [
            ("http://127.0.0.1:1", "Connection refused"),
            ("https://127.0.0.1:{port}", "no secure connection"),
            ("ftp://127.0.0.1", "ftp"),
        ],
    )
    def test_address(self, bridge: Bridge, host: str, message: str) -> None:
        address = host.format(port=bridge.stub.port)
        assert message in bridge.export("--server", address).refused()


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize("full", ["download", "shards"])
def test_full_disk(bridge: Bridge, full: str) -> None:
    task, out = bridge.stub.tasks[1], bridge.out
    if full == "download":
        task.images["a.jpg"] += bytes(3 << 20)
        limit, option = 1 << 20, "--with-images"
    else:
        task.shapes = [shape(0, [10.0, 10.0, 20.0, 20.0]) for _ in range(1000)]
        limit, option = 130_000, "--save-masks"  # more than the XML, less than the masks
    out.write_bytes(b"before")
    command = ("cvat", "export", "task", 1, out, option, "--overwrite", "--server", bridge.stub.url)
    environment = {"NO_PROXY": "127.0.0.1", "TMPDIR": str(bridge.folder), **LOGIN}
    ran = run_python("-m", "tfod.cli.main", *command, largest_file=limit, **environment)
    assert "cannot be written" in ran.refused()
    assert ("default" in ran.err) == (full == "shards")
    assert out.read_bytes() == b"before"
    assert os.listdir(bridge.folder) == [out.name]

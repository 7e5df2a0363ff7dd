"""``tfod cvat export`` against the stub server."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.cvat.client import connection
from tfod.tfrecord.progress import BYTES_RECEIVED, BYTES_SENT, PROGRESS

from tests.commands import Run, free_port, run_python
from tests.cvat.client.conftest import add_objects, detections, shape
from tests.cvat.client.stub_server import LOGIN, TOKEN, USER, Fault, StubServer

pytest.importorskip("cvat_sdk")


def test_boxes_attributes_and_tags(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    ran = run("cvat", "export", "task", 1, out)
    assert ran == (0, f"{out}: 3 frames, 2 objects\n", "")
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["default.tfrecord", "label_map.pbtxt"]
        assert archive.read("label_map.pbtxt").decode() == (
            "item {\n\tid: 1\n\tname: 'car'\n}\n\nitem {\n\tid: 2\n\tname: 'cat'\n}\n\n"
        )
    a, b, c = detections(out)
    assert (a.filename, a.source_id, a.height, a.width) == ("a.jpg", "1", 100, 200)
    assert (a.encoded, a.format, a.sha256) == (b"", "", "")
    assert np.allclose(a.boxes, [[0.0525, 0.2025, 0.3, 0.7]])
    assert (a.class_text, a.class_label) == (["car"], [1])
    assert {name: list(values) for name, values in a.attributes.items()} == {
        "truncated": [1],
        "occluded": [1],
        "colour": ["blue"],
        "age": [7],
    }
    assert b.filename == "day/b.jpg"
    assert (b.class_text, b.class_label, list(b.attributes["occluded"])) == (["cat"], [2], [0])
    assert len(c.boxes) == 0
    assert [(one.text, one.label) for one in c.image_labels] == [("cat", 2)]


def test_classes_keep_the_ids_of_a_label_map(run: Run, tmp_path: Path) -> None:
    out, own = tmp_path / "anno.zip", tmp_path / "own.pbtxt"
    own.write_text("item { id: 9 name: 'cat' }")
    ran = run("cvat", "export", "task", 1, out, "--label-map", own)
    assert f"label map: {own}" in ran.out and "label map: 'car' (10)" in ran.succeeded()
    assert [one.class_label for one in detections(out)][:2] == [[10], [9]]
    with zipfile.ZipFile(out) as archive:
        assert b"'car' (10)" in archive.read("EXPORT_NOTES.txt")


def test_images_are_as_the_server_gives_them(run: Run, stub: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    assert run("cvat", "export", "task", 1, out, "--with-images").code == 0
    for one in detections(out):
        data = stub.tasks[1].images[one.filename or ""]
        assert bytes(one.encoded or b"") == data
        assert (one.format, one.sha256) == ("jpeg", hashlib.sha256(data).hexdigest())


def test_video(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    ran = run("cvat", "export", "task", 2, out, "--with-images")
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [
            "tfod: 5 frames without an image file from the server",
            "tfod: tracks split into single shapes, one per frame: 1",
            "tfod: frames of videos, encoded again: 1",
        ],
    )
    found = detections(out)
    assert [one.filename for one in found] == [
        f"frame_{number:06d}.PNG" for number in range(4, 16, 2)
    ]
    assert [len(one.boxes) for one in found] == [0, 1, 0, 1, 0, 0]
    assert found[1].format == "jpeg"


def test_empty_frames_can_be_left_out(run: Run, stub: StubServer, tmp_path: Path) -> None:
    stub.tasks[1].tags = []
    out = tmp_path / "anno.zip"
    ran = run("cvat", "export", "task", 1, out, "--empty-frames", "drop")
    assert ran.out.endswith("2 frames, 2 objects; 1 empty frame left out\n")
    assert [one.filename for one in detections(out)] == ["a.jpg", "day/b.jpg"]
    stub.tasks[1].shapes = []
    ran = run("cvat", "export", "task", 1, tmp_path / "b.zip", "--empty-frames", "drop")
    assert (ran.code, "no frame has an annotation" in ran.err) == (2, True)
    assert not (tmp_path / "b.zip").exists()


def test_a_job_and_deleted_frames(run: Run, stub: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    assert run("cvat", "export", "job", 11, out).code == 0
    assert [one.filename for one in detections(out)] == ["c.jpg"]
    stub.tasks[1].deleted = [0]
    ran = run("cvat", "export", "task", 1, tmp_path / "all.zip")
    assert ran.err == "tfod: frames left out with their annotations: 1 deleted\n"
    assert [one.filename for one in detections(tmp_path / "all.zip")] == ["day/b.jpg", "c.jpg"]


def test_project_has_subsets(run: Run, stub: StubServer, tmp_path: Path) -> None:
    stub.tasks[1].project = 5
    out = tmp_path / "anno.zip"
    ran = run("cvat", "export", "project", 5, out, "--with-images")
    assert ran.out == f"{out}: 6 frames, 4 objects, subsets default, Train\n"
    assert ran.err == ""
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == ["Train.tfrecord", "default.tfrecord", "label_map.pbtxt"]


def test_subset_of_the_task_stays_in_the_zip(run: Run, stub: StubServer, tmp_path: Path) -> None:
    stub.tasks[1].subset = "../../evil"
    out = tmp_path / "anno.zip"
    assert run("cvat", "export", "task", 1, out).code == 0
    (name, _) = zipfile.ZipFile(out).namelist()
    assert "/" not in name
    assert not name.startswith(".")


@pytest.mark.parametrize("version", ["2.15.0", "2.39.9"])
def test_old_server(run: Run, stub: StubServer, tmp_path: Path, version: str) -> None:
    stub.version = version
    ran = run("cvat", "export", "task", 1, tmp_path / "a.zip")
    assert (ran.code, f"runs CVAT {version}; tfod cvat needs 2.40" in ran.err) == (2, True)


def test_file_that_is_there(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    out.write_bytes(b"before")
    ran = run("cvat", "export", "task", 1, out)
    assert (ran.code, "--overwrite" in ran.err, out.read_bytes()) == (2, True, b"before")
    assert run("cvat", "export", "task", 1, out, "--overwrite").code == 0
    assert zipfile.is_zipfile(out)
    ran = run("cvat", "export", "task", 1, tmp_path / "nowhere" / "a.zip")
    assert (ran.code, "an existing folder" in ran.err) == (2, True)


class TestFailuresOfTheServer:
    @pytest.mark.parametrize(
        ("method", "pattern", "how", "says"),
        [
            # cvat-sdk asks again, so that two failures are none.
            ("GET", r"/api/tasks/1\Z", {"status": 502, "times": 2}, ""),
            ("GET", "/api/requests/", {"status": 503, "times": 2}, ""),
            ("GET", "/api/requests/", {"cut": True, "times": 2}, ""),
            ("GET", "/download", {"status": 504, "times": 2}, ""),
            ("GET", r"/api/tasks/1\Z", {"status": 502, "times": 99}, "too many 502 error"),
            ("POST", "/dataset/export", {"status": 502}, ": server error (502: "),
            ("POST", "/dataset/export", {"cut": True}, "cannot be reached"),
            ("GET", "/download", {"cut_after": 100}, "cannot be reached"),
            (
                "GET",
                r"/api/tasks/1\Z",
                {"status": 403, "body": b'{"detail": "not\\nyours"}'},
                ": permission denied (403: not yours)",
            ),
            (
                "GET",
                r"/api/tasks/1\Z",
                {"status": 401, "body": b'{"detail": "who?"}'},
                ": not logged in (401: who?)",
            ),
            ("GET", r"/api/tasks/1\Z", {"status": 200, "body": b"<html>"}, "is it a CVAT server?"),
            (
                "POST",
                "/dataset/export",
                {"status": 400, "body": b'["Unknown format"]'},
                "(400): Unknown format",
            ),
            ("GET", "/download", {"status": 200, "body": b"no zip"}, "CVAT for images 1.1"),
        ],
    )
    def test_failures(
        self,
        run: Run,
        stub: StubServer,
        tmp_path: Path,
        method: str,
        pattern: str,
        how: dict[str, Any],
        says: str,
    ) -> None:
        stub.faults = [Fault(method, pattern, **how)]
        out = tmp_path / "anno.zip"
        out.write_bytes(b"before")
        ran = run("cvat", "export", "task", 1, out, "--overwrite")
        if says:
            assert (ran.code, ran.err.count("\n"), says in ran.err) == (2, 1, True), ran.err
            assert out.read_bytes() == b"before"
            assert os.listdir(tmp_path) == ["anno.zip"]
        else:
            assert (ran.code, ran.err, stub.faults[0].times) == (0, "", 0)
            assert len(detections(out)) == 3

    def test_silence(
        self, run: Run, stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answered = threading.Event()
        monkeypatch.setattr(connection, "_TIMEOUT", (5.0, 0.2))
        stub.faults = [Fault("GET", r"/api/tasks/1\Z", call=lambda: answered.wait(10))]
        assert run("cvat", "export", "task", 1, tmp_path / "a.zip").code == 0
        answered.set()
        stub.faults = [Fault("GET", r"/api/tasks/1\Z", call=lambda: answered.wait(10), times=99)]
        answered.clear()
        ran = run("cvat", "export", "task", 1, tmp_path / "b.zip")
        answered.set()
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "cannot be reached" in ran.err

    def test_progress(self, run: Run, tmp_path: Path) -> None:
        zip_file = tmp_path / "a.zip"
        PROGRESS.reset()
        assert run("cvat", "export", "task", 1, zip_file).code == 0
        assert PROGRESS.counts[BYTES_RECEIVED] > 0 and not PROGRESS.counts[BYTES_SENT]
        assert run("cvat", "import", "task", 1, zip_file).code == 0
        assert PROGRESS.counts[BYTES_SENT] > 0

    @pytest.mark.parametrize("runs", [False, True])
    def test_another_server(self, run: Run, stub: StubServer, tmp_path: Path, runs: bool) -> None:
        stub.faults = [Fault("GET", "/server/about", 404, b"<html>")]
        command = ["cvat", "export", "task", 1, tmp_path / "a.zip"]
        if not runs:
            command += ["--server", f"http://127.0.0.1:{free_port()}"]
        error = run(*command).refused()
        assert "--server" in error and "CVAT_HOST" in error
        assert ("is not a CVAT server" if runs else "cannot be reached") in error

    def test_failed_work(self, run: Run, stub: StubServer, tmp_path: Path) -> None:
        def fail() -> None:
            for work in stub.work.values():
                work.status = "failed"
                work.message = 'Traceback:\n  File "x"\ncvat.apps.CvatExportError: too\nmany'

        stub.faults = [Fault("GET", "/api/requests/", call=fail)]
        ran = run("cvat", "export", "task", 1, tmp_path / "a.zip")
        assert ran.err.startswith(f"tfod: {stub.url} reported an error: ")
        assert (ran.code, ran.err.count("\n")) == (2, 1)

    def test_not_there(self, run: Run, tmp_path: Path) -> None:
        ran = run("cvat", "export", "project", 77, tmp_path / "a.zip")
        assert (ran.code, "project 77 does not exist" in ran.err) == (2, True)

    def test_hostile_zip(self, run: Run, stub: StubServer, tmp_path: Path) -> None:
        bomb = tmp_path / "bomb.zip"
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("annotations.xml", b"<annotations>" + b"<x/>" * (16 << 20))
        stub.faults = [Fault("GET", "/download", 200, bomb.read_bytes())]
        ran = run("cvat", "export", "task", 1, tmp_path / "a.zip")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "the maximum is" in ran.err
        assert not (tmp_path / "a.zip").exists()


class TestLogin:
    def test_token(
        self, run: Run, stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not hasattr(pytest.importorskip("cvat_sdk.core.client"), "AccessTokenCredentials"):
            pytest.skip("this cvat-sdk knows no tokens")
        monkeypatch.setenv("CVAT_ACCESS_TOKEN", TOKEN)
        assert run("cvat", "export", "task", 1, tmp_path / "a.zip").code == 0
        assert not stub.asked("login")
        monkeypatch.setenv("CVAT_ACCESS_TOKEN", "stale")
        ran = run("cvat", "export", "task", 1, tmp_path / "b.zip")
        assert (ran.code, "CVAT_ACCESS_TOKEN" in ran.err) == (2, True)

    @pytest.mark.parametrize("token", [TOKEN, ""])
    def test_no_encryption(
        self,
        run: Run,
        stub: StubServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        token: str,
    ) -> None:
        """0.0.0.0 is this machine, but not by its name."""
        if token:
            monkeypatch.setenv("CVAT_ACCESS_TOKEN", token)
        address = ("--server", f"http://0.0.0.0:{stub.port}")
        command = ("cvat", "export", "task", 1, tmp_path / "a.zip", *address)
        assert "--insecure" in run(*command).refused()
        assert [line.split("?")[0] for line in stub.log] == ["GET /api/server/about"]
        assert run(*command, "--insecure").code == 0
        for host in ("localhost", "127.0.0.1"):
            local = ("--server", f"http://{host}:{stub.port}", "--overwrite")
            assert run(*command, *local).code == 0, host

    def test_a_check_without_encryption(
        self, run: Run, stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run("cvat", "export", "task", 1, tmp_path / "a.zip").code == 0
        before = len(stub.log)
        monkeypatch.setattr(StubServer, "url", f"http://0.0.0.0:{stub.port}")
        checked = run("check", tmp_path / "a.zip", "--cvat", "task", 1)
        assert "tfod cvat export or import with --insecure" in checked.refused()
        assert len(stub.log) == before + 1

    def test_no_password_and_nobody_to_ask(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdin", None)
        ran = run("cvat", "export", "task", 1, tmp_path / "a.zip", password="")
        assert (ran.code, f"no password for {USER}" in ran.err) == (2, True)

    def test_wrong_password(self, run: Run, tmp_path: Path) -> None:
        ran = run("cvat", "export", "task", 1, tmp_path / "a.zip", password="wrong")
        assert ran.code == 2
        assert f"login of {USER} failed (Unable to log in with provided credentials.)" in ran.err

    def test_organization(
        self, run: Run, stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[str] = []
        monkeypatch.setenv("CVAT_ORGANIZATION", "lab")
        run("cvat", "export", "task", 1, tmp_path / "a.zip")
        with stub.lock:
            seen = [org for org in stub.organizations if org]
        assert set(seen) == {"lab"}

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
    def test_certificate_of_nobody(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pem = tmp_path / "own.pem"
        make = shlex.split(
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x"
            " -addext subjectAltName=IP:127.0.0.1 -keyout"
        )
        subprocess.run([*make, pem, "-out", tmp_path / "c.pem"], check=True, capture_output=True)
        pem.write_bytes(pem.read_bytes() + (tmp_path / "c.pem").read_bytes())
        with add_objects(StubServer(certificate=str(pem))) as secure:
            ran = run("cvat", "export", "task", 1, tmp_path / "a.zip", at=secure)
            assert (ran.code, ran.err.count("\n")) == (2, 1)
            assert "no secure connection" in ran.err
            assert "SSL_CERT_FILE" in ran.err
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "c.pem"))
            ran = run("cvat", "export", "task", 1, tmp_path / "a.zip", at=secure)
            assert (ran.code, ran.err) == (0, "")

    @pytest.mark.parametrize(
        ("host", "says"),
        [
            ("http://127.0.0.1:1", "Connection refused"),
            ("https://127.0.0.1:{port}", "no secure connection"),
            ("ftp://127.0.0.1", "ftp"),
        ],
    )
    def test_address(
        self, run: Run, stub: StubServer, tmp_path: Path, host: str, says: str
    ) -> None:
        command = ("cvat", "export", "task", 1, tmp_path / "a.zip")
        options = ("--server", host.format(port=stub.port))
        ran = run_python("-m", "tfod.cli.main", *command, *options, NO_PROXY="127.0.0.1", **LOGIN)
        assert says in ran.refused()


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize("where", ["download", "shards"])
def test_full_disk(stub: StubServer, tmp_path: Path, where: str) -> None:
    if where == "download":
        stub.tasks[1].images["a.jpg"] += bytes(3 << 20)
        limit, option = 1 << 20, "--with-images"
    else:
        stub.tasks[1].shapes = [shape(0, [10.0, 10.0, 20.0, 20.0]) for _ in range(1000)]
        limit, option = 130_000, "--save-masks"  # the XML is less, the masks are more
    out = tmp_path / "anno.zip"
    out.write_bytes(b"before")
    command = ("cvat", "export", "task", 1, out, option, "--overwrite", "--server", stub.url)
    environment = {"NO_PROXY": "127.0.0.1", "TMPDIR": str(tmp_path), **LOGIN}
    ran = run_python("-m", "tfod.cli.main", *command, largest_file=limit, **environment)
    assert "cannot be written" in ran.refused()
    assert ("default" in ran.err) == (where == "shards")
    assert out.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["anno.zip"]

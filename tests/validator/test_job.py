"""A check without the service around it: from files to documents, and what cannot be checked."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tfod.tfrecord.writer import write_records
from tfod_validator.jobs import sandbox
from tfod_validator.jobs.check_upload import run_check
from tfod_validator.jobs.request import BODY, REPORTS, Request, Result, UploadedFile
from tfod_validator.jobs.sandbox import run_in_sandbox
from tfod_validator.settings import Limits

from tests.image_kinds import plain_image
from tests.records import encode, image
from tests.validator.conftest import LABEL_MAP, shard_of

_TASK_XML = (
    b"<annotations><meta><task><name>t</name><size>1</size><labels><label><name>cat</name>"
    b"</label></labels></task></meta><image id='0' name='0.jpg' width='200' height='100'/>"
    b"</annotations>"
)


def request_of(folder: Path, files: dict[str, Any], **more: Any) -> Request:
    """A request for files that are written under numbers; names may have a role before them."""
    found = []
    for number, (name, content) in enumerate(files.items()):
        role, _, called = name.rpartition(":")
        stored = str(number) + (Path(called).suffix if role == "profile" else "")
        (folder / stored).write_bytes(content)
        found.append(UploadedFile(called, len(content), role or "file", stored))
    return Request(tuple(found), **{"decode": "1000", **more})


def check_upload(
    folder: Path, files: dict[str, Any], limits: Limits | None = None, **more: Any
) -> Result:
    reported: list[tuple[int, int]] = []
    request = request_of(folder, files, **more)
    outcome = run_check(folder, request, limits or Limits(), lambda *done: reported.append(done))
    assert reported == sorted(reported)
    assert outcome.failure or reported[-1][1] == outcome.records
    return outcome


def test_every_format(tmp_path: Path) -> None:
    outcome = check_upload(tmp_path, {"train.record": shard_of(tmp_path, xmax=0.05)})
    assert outcome.valid is False and outcome.records == 3 and outcome.failure is None
    assert {*REPORTS.values(), BODY} <= set(outcome.documents)
    report = json.loads(outcome.documents[REPORTS["json"]])
    assert report["sources"][0]["name"] == "train.record"
    assert all(b"train.record" in outcome.documents[name] for name in REPORTS.values())
    assert not any(str(tmp_path).encode() in one for one in outcome.documents.values())
    images = [name for name in outcome.documents if name.startswith("image-")]
    assert len(images) == len(outcome.images) > 0
    for name in images:
        assert b'viewBox="0 0 1000 500"' in outcome.documents[name]


def test_warnings_can_fail(tmp_path: Path) -> None:
    shard = shard_of(tmp_path)
    assert check_upload(tmp_path, {"a.record": shard}).valid is True
    assert check_upload(tmp_path, {"a.record": shard}, fail_on="warning").valid is False


def test_equal_label_maps(tmp_path: Path) -> None:
    files = {"train.record": shard_of(tmp_path), "a.pbtxt": LABEL_MAP, "b.pbtxt": LABEL_MAP}
    report = json.loads(check_upload(tmp_path, files).documents[REPORTS["json"]])
    output = [one for one in report["findings"] if "a.pbtxt" in one["message"]]
    assert output and "b.pbtxt" in output[0]["message"]


@pytest.mark.parametrize("content", [b"\xff\xfe\xfa", b"item {", b"x" * (5 << 20)])
def test_a_label_map_that_is_none(tmp_path: Path, content: bytes) -> None:
    files = {"train.record": shard_of(tmp_path), "label_map.pbtxt": content}
    report = json.loads(check_upload(tmp_path, files).documents[REPORTS["json"]])
    assert report["counts"]["by_code"]["LAB002"] == 1
    assert [one["shard"] for one in report["findings"] if one["code"] == "LAB002"] == [
        "label_map.pbtxt"
    ]


def test_a_report_as_long_as_its_class_names(tmp_path: Path) -> None:
    files = {"a.record": shard_of(tmp_path, text="x" * 200_000)}
    assert check_upload(tmp_path, files).failure is None
    failure = check_upload(tmp_path, files, Limits(max_report_bytes=200_000)).failure
    assert failure is not None
    assert (failure["status"], failure["limit"]) == (422, "max_report_bytes")


def test_a_task_from_two_files(tmp_path: Path) -> None:
    files = {
        "a.record": shard_of(tmp_path, records=1),
        "cvat_xml:a.xml": _TASK_XML,
        "cvat_labels:l.json": b'[{"name": "dog"}]',
    }
    codes = json.loads(check_upload(tmp_path, files).documents[REPORTS["json"]])["counts"][
        "by_code"
    ]
    assert "TSK001" in codes and "TSK002" not in codes


def test_a_configuration(tmp_path: Path) -> None:
    """What the upload asks for is stronger; paths are the names of what is uploaded."""
    text = b"""
        for = "cvat"
        fail_on = "warning"
        select = ["LAB", "NAM"]
        label_map = "coco"
        severity = {LAB006 = "info"}
        exclude = ["b.*"]
    """
    shard = shard_of(tmp_path, text="bird of paradise")
    files = {"a.record": shard, "b.record": b"no shard", "config:tfod.toml": text}
    documents = check_upload(tmp_path, files, fail_on=None).documents
    report = json.loads(documents[REPORTS["json"]])
    assert report["configuration"] == "tfod.toml"
    assert (report["receiver"], report["fail_on"]) == ("cvat", "warning")
    assert {one["code"][:3] for one in report["findings"]} <= {"LAB", "NAM"}
    levels = {one["severity"] for one in report["findings"] if one["code"] == "LAB006"}
    assert levels == {"info"} and report["counts"]["shards"] == 1
    assert b"Configuration: tfod.toml" in documents[REPORTS["text"]]
    documents = check_upload(tmp_path, files, receiver="any", fail_on="error").documents
    report = json.loads(documents[REPORTS["json"]])
    assert (report["receiver"], report["fail_on"]) == ("any", "error")


# What follows runs in processes of their own, as in the service.


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    sandbox.prepare()


def test_the_same_outcome_in_the_sandbox(tmp_path: Path) -> None:
    configuration = b'label_map = "coco"'
    files = {"a.record": shard_of(tmp_path, xmax=0.05), "config:tfod.toml": configuration}
    request = request_of(tmp_path, files)
    outcome = run_in_sandbox(tmp_path, request, Limits(), lambda *_: True)
    alone = run_check(tmp_path, request, Limits(), lambda *_: None)
    assert outcome.images == alone.images and outcome.valid is False
    assert outcome.documents.keys() == alone.documents.keys()
    for name in outcome.documents:
        if name.startswith("image"):
            assert outcome.documents[name] == alone.documents[name]


def test_what_every_check_needs_is_loaded_before_they_are_forked(tmp_path: Path) -> None:
    files = {"a.record": shard_of(tmp_path, xmax=0.05), "cvat_xml:a.xml": _TASK_XML}
    request = request_of(tmp_path, files)
    code = (
        "import importlib, pickle, sys; from pathlib import Path; import jinja2\n"
        "from tfod_validator.jobs.sandbox import PRELOADED\n"
        "for name in PRELOADED: importlib.import_module(name)\n"
        "jinja2.Environment.compile = None\n"
        "loaded = set(sys.modules)\n"
        "from tfod_validator.jobs.check_upload import run_check\n"
        "from tfod_validator.settings import Limits\n"
        "request = pickle.loads(sys.stdin.buffer.read())\n"
        "found = run_check(Path(sys.argv[1]), request, Limits(), lambda *_: None)\n"
        "print(found.failure, found.images != [], set(sys.modules) - loaded)"
    )
    arguments = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(arguments, input=pickle.dumps(request), capture_output=True)
    assert (done.stdout.decode(), done.stderr.decode()) == ("None True set()\n", "")


def slow_shard(folder: Path) -> bytes:
    """A shard that takes a second or more."""
    one = encode(image("a.jpg"))
    return Path(write_records(folder, "slow", [one] * 60_000)[0]).read_bytes()


def test_progress(tmp_path: Path) -> None:
    request = request_of(tmp_path, {"a.record": slow_shard(tmp_path)})
    reported: list[tuple[int, int]] = []
    outcome = run_in_sandbox(
        tmp_path, request, Limits(), lambda *done: reported.append(done) or True
    )
    assert outcome.records == 60_000
    assert reported == sorted(reported) and any(0 < records < 60_000 for _, records in reported)


def test_memory(tmp_path: Path) -> None:
    large = plain_image((7000, 7000), kind="PNG")
    one = encode(image("a.png") | {"image/encoded": large, "image/format": "png"})
    path = write_records(tmp_path, "large", [one])[0]
    request = request_of(tmp_path, {"a.record": Path(path).read_bytes()}, decode="all")
    assert run_in_sandbox(tmp_path, request, Limits(), lambda *_: True).failure is None
    for mebibytes in (400, 300, 100, 1):  # 100: less than the process has before the check
        limits = Limits(max_check_bytes=mebibytes << 20, max_check_seconds=120)
        failure = run_in_sandbox(tmp_path, request, limits, lambda *_: True).failure
        assert failure is not None  # and no finding: nothing is wrong with the image
        assert (failure["status"], failure["limit"]) == (422, "max_check_bytes")

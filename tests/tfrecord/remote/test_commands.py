"""Commands with URLs have the same results as with files on a disk."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.profiles.choice import choose_profile
from tfod.sources.resolver import resolve
from tfod.tfrecord.writer import write_records

from tests.commands import Run, run_python
from tests.files import files_in
from tests.mutants.sound import flip
from tests.records import encode, frame, image, objects
from tests.tfrecord.remote.conftest import Bucket
from tests.tfrecord.remote.servers import Web
from tests.zip_forge import real_zip

LABEL_MAP = b"item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n"
_LOOK = 1 << 18  # bytes of annotations that are read to choose the profile
LARGE = encode(image("a.jpg") | {"image/encoded": bytes(50_000)})


def records(count: int) -> list[bytes]:
    """Records of which every fifth has a box outside its image."""
    return [
        encode(
            image(f"{number}.jpg")
            | {"image/source_id": str(number), "image/format": "jpeg"}
            | objects([(0.1, 0.2, 1.5 if number % 5 == 0 else 0.5, 0.6)], ["cat"], [1])
        )
        for number in range(count)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of a set of four, of which one is damaged, and their label map."""
    folder = tmp_path / "data"
    _, missing, damaged, _ = map(Path, write_records(folder, "train", records(400), num_shards=4))
    data = damaged.read_bytes()
    damaged.write_bytes(flip(data, len(data) // 2))
    missing.unlink()
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    return folder


@pytest.fixture
def run_process(bucket: Bucket) -> Run:
    """Run ``tfod`` in a new process."""
    return partial(run_python, "-m", "tfod.cli.main", **bucket.environment())


def report_of(text: str, location: str) -> Any:
    """A report without the duration and the location of the data."""
    report = json.loads(text.replace(location, "DATA"))
    del report["duration"]
    return report


@pytest.mark.parametrize(("jobs", "what"), [(1, ""), (2, "/train-*")])
def test_the_report_is_the_same_as_of_a_disk(
    bucket: Bucket, folder: Path, run: Run, run_process: Run, jobs: int, what: str
) -> None:
    url = bucket.put_folder(folder)
    options = ("--format", "json", "--jobs", jobs)
    remote = run_process("check", f"{url}{what}", *options)
    local = run("check", f"{folder}{what}", "--format", "json")
    assert remote.code == local.code == 1
    assert remote.err == local.err == ""
    found = report_of(remote.out, url)
    assert found == report_of(local.out, str(folder))
    assert {"SET001", "TFR004"} <= {one["code"] for one in found["findings"]}


@pytest.mark.parametrize("options", [(), ("--profile", "cvat")])
@pytest.mark.parametrize("count", [1, 400])
def test_a_shard_is_read_once(bucket: Bucket, run: Run, options: Any, count: int) -> None:
    shard = frame(*[LARGE] * count)
    url = bucket.put("a.tfrecord", shard)
    bucket.forget()
    assert run("check", url, *options).code < 2
    looks = 0 if options else min(len(shard), 10 * _LOOK)
    assert bucket.line.sent < 1.01 * len(shard) + 10_000 + looks


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("count", [1, 400])
def test_web_shards_are_read_once_except_for_a_few_bytes(
    web: tuple[Web, str], run: Run, run_process: Run, jobs: int, count: int
) -> None:
    """This process reads the start to choose the profile."""
    server, url = web
    shards = {f"/{one}.tfrecord": frame(*[LARGE] * count) for one in "ab"}
    server.files.update(shards)
    check = run if jobs == 1 or count == 1 else run_process
    done = check("check", *(url + path for path in shards), "--label-map", "coco", "--jobs", jobs)
    assert done.code < 2, done.err
    size = sum(map(len, shards.values()))
    assert size <= server.sent <= 2 * size  # the start, as much as the system buffers


def test_a_label_map_by_its_url(bucket: Bucket, folder: Path, run: Run) -> None:
    url = bucket.put_folder(folder)
    other = bucket.put("elsewhere/x.pbtxt", b"item { id: 7 name: 'cow' }")
    report = json.loads(run("check", url, "--label-map", other, "--format", "json").out)
    assert any(one["code"].startswith("LAB") for one in report["findings"])
    absent = bucket.url("elsewhere/absent.pbtxt")
    refused = run("check", url, "--label-map", absent).refused()
    assert refused.startswith(f"tfod: {absent} cannot be read: does not exist; ")


def test_only_images_with_findings_are_fetched(bucket: Bucket, run: Run) -> None:
    bad = records(1)[0]
    filler = encode(image("big.jpg") | {"image/encoded": bytes(200_000)})
    url = bucket.put("a.tfrecord", frame(bad, *([filler] * 100), bad))
    bucket.forget()
    options = ("--select", "BOX", "--fail-on", "warning")
    done = run("check", url, "--profile", "cvat", "--format", "html", *options)
    assert done.code == 1 and "<svg" in done.out
    assert bucket.line.sent < 1.3 * 100 * 200_000


def test_numbered_shards_in_separate_arguments_are_a_set(web: tuple[Web, str], run: Run) -> None:
    server, url = web
    shard = frame(*records(3))
    server.files = {f"/d/train-{one:05d}-of-00003.record": shard for one in range(3)}
    query = "X-Amz-Credential=AK/2026/s3/aws4_request&X-Amz-Signature="
    signed = [f"{url}{path}?{query}{number}" for number, path in enumerate(server.files)]
    for named, missing in ((signed, 0), (signed[:1], 0), (signed[:2], 1)):
        report = json.loads(run("check", *named, "--profile", "cvat", "--format", "json").out)
        reported = [one["shard"] for one in report["findings"] if one["code"] == "SET001"]
        assert reported == [f"{url}/d/train"] * missing


def test_samples_are_not_requested_again_from_a_dead_server(web: tuple[Web, str]) -> None:
    server, url = web
    server.files = {f"/d/{one}.record": frame(b"1") for one in range(6)}
    with resolve([f"{url}/d/"]) as found:
        server.requests.clear()
        server.status = 404
        profile = choose_profile(None, found.shards, 1 << 20)[1]
        assert profile.reason == "no record could be read"
    assert len(server.requests) == 4  # two for each


def test_a_zip_is_copied_and_checked(bucket: Bucket, run: Run) -> None:
    files = [("default.tfrecord", frame(*records(4))), ("label_map.pbtxt", LABEL_MAP)]
    zipped = real_zip(files, zipfile.ZIP_STORED)
    url = bucket.put("anno.zip", zipped)
    bucket.forget()
    report = json.loads(run("check", url, "--format", "json").out)
    assert report["counts"]["records"] == 4
    assert {one["shard"] for one in report["findings"]} >= {f"{url}:default.tfrecord"}
    assert bucket.line.sent < 1.1 * len(zipped) + 3000


def test_a_server_that_stops_answering_is_a_finding(
    bucket: Bucket, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFOD_REMOTE_TIMEOUT", "2")
    shard = frame(*(bytes(100_000) for _ in range(100)))
    large = bucket.put("data/a.tfrecord", shard)
    small = bucket.put("data/b.tfrecord", frame(*records(3)))
    bucket.line.hold_after = 9 << 20
    done = run("check", large, small, "--profile", "cvat", "--format", "json")
    assert done.code == 1 and done.err == ""
    report = json.loads(done.out)
    reported = {one["shard"]: one for one in report["findings"] if one["code"] == "TFR013"}
    assert set(reported) == {large, small}
    assert "cannot be read: the server sent no data for 2 s (" in reported[large]["message"]
    assert report["counts"]["records"] > 10


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (("reshard", "SOURCE/train-*", "OUT", "--num-shards", "2"), 3),
        (("reshard", "SOURCE/train-*", "OUT", "--shuffle", "1"), 5),
        (("describe", "SOURCE/train-*"), 0),
        (("show", "SOURCE/train-*", "-o", "OUT/a.html"), 1),
    ],
)
def test_other_commands_read_from_buckets(
    bucket: Bucket, tmp_path: Path, run: Run, arguments: Sequence[str], written: int
) -> None:
    folder = tmp_path / "data"
    write_records(folder, "train", records(40), num_shards=4)
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    results = []
    for number, source in enumerate((bucket.put_folder(folder), str(folder))):
        out = tmp_path / str(number)
        out.mkdir()
        done = run(*(one.replace("SOURCE", source).replace("OUT", str(out)) for one in arguments))
        assert done.code == 0, done.err
        files = {
            name: data.replace(source.encode(), b"SOURCE") for name, data in files_in(out).items()
        }
        output = done.out.replace(source, "SOURCE").replace(str(out), "OUT")
        results.append((files, output, done.err))
    assert results[0] == results[1]
    assert len(results[0][0]) == written


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("check", "SOURCE", "--output", "s3://b/out"), "s3://b/out: cannot write to a URL; "),
        (("reshard", "SOURCE", "s3://b/out"), "s3://b/out: cannot write to a URL; "),
        (("show", "SOURCE", "-o", "s3://b/out.html"), "s3://b/out.html: cannot write to a URL; "),
        (("repair", "SOURCE", "s3://b/out"), "s3://b/out: cannot write to a URL; "),
        (("repair", "URL", "OUT"), "only files on this machine can be repaired"),
        (("reshard", "URL.zip", "OUT"), "download the zip first, or check it with: tfod check"),
        (("describe", "URL/absent*"), "no file matches this pattern"),
    ],
)
def test_arguments_that_are_refused(
    bucket: Bucket, tmp_path: Path, run: Run, arguments: Sequence[str], error: str
) -> None:
    bucket.put("a.tfrecord.zip", b"PK")
    names = {
        "SOURCE": write_records(tmp_path, "train", records(3))[0],
        "OUT": str(tmp_path / "out"),
        "URL": bucket.put("a.tfrecord", frame(*records(1))),
        "URL.zip": bucket.url("a.tfrecord.zip"),
        "URL/absent*": bucket.url("a.tfrecord/absent*"),
    }
    before = files_in(tmp_path)
    done = run(*(names.get(one, one) for one in arguments))
    assert error in done.refused() and done.out == ""
    assert files_in(tmp_path) == before

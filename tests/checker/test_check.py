"""``tfod check`` as typed: sources, options, output, exit status."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import check_sources
from tfod.cli.main import main
from tfod.tfrecord.writer import write_records

from tests.checker.conftest import ReportOf
from tests.commands import TIMEOUT, Run, wait_until
from tests.files import write_file
from tests.image_kinds import plain_image
from tests.records import encode, frame, image, objects, source_id_of, write_shard
from tests.zip_forge import real_zip

CHECK = [sys.executable, "-m", "tfod.cli.main", "check"]
INVERTED = (0.9, 0.1, 0.2, 0.9)


def training(name: str = "a.jpg", boxes: Any = ((0.1, 0.1, 0.9, 0.9),), **more: Any) -> bytes:
    """A valid record of the profile tf_detection_api."""
    features = {
        **image(name, 20, 40),
        "image/encoded": plain_image((40, 20), f"#{zlib.crc32(name.encode()) % 0xFFFFFF:06x}"),
        "image/format": "jpeg",
        "image/source_id": source_id_of(name),
        **objects(boxes, ["cat"] * len(boxes), [1] * len(boxes)),
    }
    return encode(features | more)


@pytest.fixture
def valid(tmp_path: Path) -> str:
    return write_shard(tmp_path / "valid", "train", training("a.jpg"), training("b.jpg"))


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """Record 1 has an inverted box, a warning, and a class that is not in the label map."""
    classes = {"image/object/class/text": ["cat", "dog"], "image/object/class/label": [1, 2]}
    bad = training("b.jpg", [INVERTED, (0.5, 0.5, 1.05, 0.9)], **classes)
    return write_shard(tmp_path / "broken", "train", training("a.jpg"), bad)


def test_text(check: Run, valid: str, broken: str) -> None:
    code, out, err = check(valid)
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "VALID: 0 errors, 0 warnings, 0 infos",
        "Checked: 1 shard, 2 records, 2 images, 2 boxes",
    ]
    code, out, err = check(broken)
    assert (code, err) == (1, "") and out.startswith("INVALID: 2 errors, 1 warning, 0 infos\n")
    assert f"{broken}, record 1, byte " in " ".join(out.split())
    for rule in ("BOX004 warning", "BOX006 error", "LAB006 error"):
        assert rule in out
    assert "\x1b" not in out, "no colour in a pipe"
    assert "--dry-run" not in out, "repair needs a choice for each of the errors"


def test_json_and_html(report_of: ReportOf, check: Run, broken: str) -> None:
    code, report = report_of(broken)
    found = next(one for one in report["findings"] if one["code"] == "BOX006")
    assert code == 1 and report["report_version"] == 2 and report["valid"] is False
    data = Path(broken).read_bytes()
    assert report["sources"] == [{"name": broken, "bytes": len(data)}]
    assert "xmin is larger than xmax" in found.pop("message") and found.pop("fix")
    assert found == {
        "code": "BOX006",
        "severity": "error",
        "shard": broken,
        "record": 1,
        "item": "b.jpg",
        "offset": 16 + int.from_bytes(data[:8], "little"),
        "feature": "image/object/bbox",
        "value": {"object": 0, "box": [0.9, 0.1, 0.2, 0.9]},
    }
    page = check(broken, "--format", "html").out
    assert page.count("data:image/jpeg;base64,") == 1 and "b.jpg" in page


@pytest.mark.parametrize(
    ("severities", "options", "expected"),
    [
        ("", "", 1),
        ("BOX006=off LAB=warning", "", 0),
        ("box006=OFF LAB=info", "--fail-on warning", 1),
        ("BOX=off LAB=info", "--fail-on warning", 0),
        ("LAB=off BOX=off BOX006=error", "", 1),
    ],
)
def test_severities(check: Run, broken: str, severities: str, options: str, expected: int) -> None:
    arguments = [f"--severity={one}" for one in severities.split()] + options.split()
    assert check(broken, *arguments).code == expected


@pytest.mark.parametrize(
    "name", ["MAX_RECORD_BYTES", "MAX_ARCHIVE_BYTES", "MAX_ARCHIVE_ENTRIES", "REMOTE_TIMEOUT"]
)
def test_invalid_limits(check: Run, valid: str, monkeypatch: Any, name: str) -> None:
    for text in ("0", "-1", "1.5", "1GB"):
        monkeypatch.setenv(f"TFOD_{name}", text)
        assert check(valid).refused().startswith(f"tfod: TFOD_{name}: '{text}' is not a whole num")
    monkeypatch.setenv(f"TFOD_{name}", "")
    assert check(valid).code == 0


@pytest.mark.parametrize("decode", ["1000", "none"])
def test_a_zip_is_opened_once(check: Run, valid: str, monkeypatch: Any, decode: str) -> None:
    path = write_file(
        Path(valid).with_name("a.zip"), real_zip([("train.tfrecord", Path(valid).read_bytes())])
    )
    opened = []
    whole = zipfile.ZipFile.__init__

    def counted(archive: zipfile.ZipFile, *arguments: Any) -> None:
        opened.append(archive)
        whole(archive, *arguments)

    monkeypatch.setattr("zipfile.ZipFile.__init__", counted)
    assert "2 records" in check(path, "--decode", decode, "--jobs", "1").out
    assert len(opened) == 1


def test_standard_input(report_of: ReportOf, broken: str, tmp_path: Path, monkeypatch: Any) -> None:
    shard = Path(broken).read_bytes()
    for data, name in (
        (shard, "<stdin>"),
        (real_zip([("default.tfrecord", shard)]), "<stdin>:default.tfrecord"),
        (gzip.compress(shard), "<stdin>"),
    ):
        with write_file(tmp_path / "x", data).open("rb") as stream:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
            code, report = report_of("-")
        found = next(one for one in report["findings"] if one["code"] == "BOX006")
        assert (code, found["shard"], found["record"]) == (1, name, 1)
        assert report["sources"][0]["bytes"] == len(data)


def test_findings_are_capped_and_counted(check: Run, report_of: ReportOf, tmp_path: Path) -> None:
    bad = [training(f"{n}.jpg", [INVERTED] * 3) for n in range(20)]
    shard = write_shard(tmp_path, "train", *bad, training("one.gif"))
    report = report_of(shard, "--max-findings", "7")[1]
    counts = {"BOX006": 60, "BOX009": 40, "BOX013": 1, "NAM004": 1}
    assert len(report["findings"]) == 7 and report["counts"]["by_code"] == counts
    assert {one["code"] for one in report["findings"]} == counts.keys(), "no code hides another"
    assert "and 57 more" in " ".join(check(shard).out.split())


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder whose check takes long enough to be interrupted."""
    shard = write_shard(tmp_path, "train", *[training(f"{n}.jpg") for n in range(300)])
    (tmp_path / "many").mkdir()
    for number in range(300):
        os.link(shard, tmp_path / "many" / f"{number}.tfrecord")
    return tmp_path / "many"


def start(number: int, *arguments: object, **how: Any) -> subprocess.Popen[bytes]:
    """Start a check that a signal ends, even in the background."""
    return subprocess.Popen(
        [*CHECK, *map(str, arguments), "--decode=all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        **how,
    )


def test_interrupt(many: Path) -> None:
    """Ctrl-C ends the check at once, with one line, even if several processes work."""
    process = start(signal.SIGINT, many, "--jobs=2", start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    # Both workers, and the tracker of their resources.
    wait_until(lambda: len(children.read_text().split()) >= 3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err, out) == (130, b"tfod: interrupted\n", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_leaves_nothing(many: Path, tmp_path: Path, number: int) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with (tmp_path / "train.tfrecord").open("rb") as copied:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = start(number, "-", many, "--jobs=1", stdin=copied, env=environment)
    wait_until(lambda: any(many in one.parents for one in opened_by(process)))
    assert any(temporary.glob("tfod-check-*"))
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (128 + number, b"", b"")
    assert list(temporary.iterdir()) == []


def opened_by(process: subprocess.Popen[bytes]) -> list[Path]:
    """The open files of a process."""
    found = []
    for one in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed again
            found.append(one.readlink())
    return found


def on_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """The output of a command on a terminal."""
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(command, stdout=child, stderr=child, env=environment)
    os.close(child)
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(parent, 65536):
            parts.append(part)
    process.wait(TIMEOUT)
    os.close(parent)
    return b"".join(parts)


def test_terminal_has_colour(broken: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment["TERM"] = "xterm"
    coloured = on_a_terminal([*CHECK, broken], environment)
    assert b"tfod check: " not in coloured  # takes less than two seconds
    assert b"\x1b[1" in coloured or b"\x1b[3" in coloured
    plain = on_a_terminal([*CHECK, broken], {**environment, "NO_COLOR": "1"})
    assert b"\x1b[3" not in plain.partition(b"INVALID")[2]


@pytest.mark.parametrize("form", ["text", "json", "html", "junit"])
def test_standard_output_in_ascii(tmp_path: Path, monkeypatch: Any, form: str) -> None:
    shard = write_shard(tmp_path, "train", training("кадр.jpg", [INVERTED]))
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", output)
        assert main(["check", shard, "--format", form]) == 1
        output.flush()
        assert form == "json" or "кадр.jpg" in output.buffer.getvalue().decode()


def test_empty_shards_do_not_hide_the_profile(report_of: ReportOf, tmp_path: Path) -> None:
    bad = frame(*[encode({})] * 70, training("a.jpg", [INVERTED]))
    for number in range(7):
        write_file(tmp_path / f"t-{number:05d}-of-00007", bad if number == 6 else b"")
    code, report = report_of(tmp_path)
    assert code == 1 and report["profile"]["name"] == "tf_detection_api"
    assert report["counts"]["by_code"]["BOX006"] == 1


def test_pipes_and_devices_in_a_folder_are_ignored(check: Run, valid: str) -> None:
    folder = Path(valid).parent
    os.mkfifo(folder / "pipe")
    os.symlink("/dev/zero", folder / "z.tfrecord")
    assert check(folder).code == 0


def test_a_large_number_of_shards_in_a_name(check: Run, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}-00000-of-99999999").write_bytes(b"")
    code, out, _ = check(tmp_path)
    assert code == 1 and "99,999,998 shards are missing" in " ".join(out.split())


def test_a_wrong_type_has_no_other_findings(report_of: ReportOf, tmp_path: Path) -> None:
    wrong = {"image/object/bbox/xmin": [0], "image/filename": 7, "image/encoded": 3}
    shard = write_shard(tmp_path, "train", training("a.jpg", **wrong), training("b.jpg"))
    report = report_of(shard, "--profile", "tf_detection_api")[1]
    assert set(report["counts"]["by_code"]) == {"EXA004"}


def test_keys_of_equal_length_differ(report_of: ReportOf, tmp_path: Path) -> None:
    """Records with the keys of the record before are parsed faster."""
    features = {**image("b.jpg", 20, 40), **objects([[0.1, 0.1, 0.9, 0.9]], ["cat"], [1])}
    renamed = {key.replace("filename", "filenane"): value for key, value in features.items()}
    same = {**features, "image/filename": "a.jpg"}
    shard = write_shard(tmp_path, "train", *map(encode, (same, renamed, {**same, **features})))
    found = report_of(shard, "--profile", "cvat", "--severity", "NAM007=off")[1]["findings"]
    for feature in ("image/filename", "image/filenane"):
        assert {one["record"] for one in found if one["feature"] == feature} == {1}


def test_the_box_has_the_key_of_the_profile(report_of: ReportOf, tmp_path: Path) -> None:
    numbers = {"area": 1.0, "bbox": [30.0, 5.0, -10.0, 5.0], "category_id": 1, "image_id": 1}
    record = {"image": plain_image((40, 20)), "path": "a.jpg", "id": 1, **numbers}
    report = report_of(*write_records(tmp_path, "x", [encode(record)]))[1]
    assert report["profile"]["name"] == "keras_coco"
    (found,) = [one for one in report["findings"] if one["code"] == "BOX006"]
    assert found["feature"] == "bbox"


def test_one_hot_labels_are_not_one_class(check: Run, tmp_path: Path) -> None:
    """The trainer's feature description has one value; the import reads the marked classes."""
    features = {"image": plain_image((8, 8)), "height": 8, "width": 8, "channels": 3}
    shard = write_shard(tmp_path, "x", encode({**features, "label": [0, 1, 0]}))
    assert "label holds 3 values, expected one" in check(shard).out


@pytest.mark.parametrize("options", [(), ("--for", "cvat")])
def test_segmentation(check: Run, report_of: ReportOf, tmp_path: Path, options: Any) -> None:
    """DeepLab's shards have all keys of Roboflow's images, and no boxes."""
    deeplab = {"image/format": "jpeg", "image/segmentation/class/encoded": b"PNG"}
    deeplab |= {**image("a.jpg", 20, 40), "image/encoded": plain_image((40, 20))}
    shard = write_shard(tmp_path, "x", *[encode(deeplab)] * 30)
    refused = check(shard, *options).refused()
    assert refused.startswith(f"tfod: {shard}: contains masks of whole images and no boxes, ")
    assert check(shard, "--profile", "tf_detection_api").code in (0, 1)
    # Next to other shards, it is a finding.
    report = report_of(shard, write_shard(tmp_path / "other", "y", training()), *options)[1]
    found = [one["shard"] for one in report["findings"] if one["code"] == "EXA010"]
    assert found == [shard] and report["counts"]["records"] == 31


def test_keys_that_may_be_misspelled(tmp_path: Path) -> None:
    record = objects([(0.1, 0.2, 0.5, 0.6)], ["cat"], [1])
    record["image/object/bbox/zl"] = record.pop("image/object/bbox/ymin")
    report = check_sources([write_shard(tmp_path, "a", encode({**image("a.jpg"), **record}))])
    assert report.profile.name == "cvat" and report.counts.records == 1
    found = {one.code: one for one in report.findings}
    assert "0 ymin" in found["BOX001"].message and "EXA010" not in found
    assert "did you mean image/object/bbox/ymin, which is mis" in found["EXA008"].message
    assert "write image/object/bbox/ymin instead of " in found["EXA008"].fix
    path = write_shard(tmp_path, "b", training(**{"image/object/colour": ["red"]}))
    (own,) = check_sources([path]).findings
    assert own.code == "EXA008" and "did you mean" not in own.message


@pytest.mark.parametrize("options", [(), ("--for", "datumaro"), ("--select", "BOX")])
@pytest.mark.parametrize(
    "files",
    [
        {"train.tfrecord": b""},
        {"train-00001-of-00002": b""},
        {"train.tfrecord.gz": gzip.compress(b"")},
        {"a.tfrecord.gz": gzip.compress(b""), "b.tfrecord.gz": gzip.compress(b"")},
        {"label_map.pbtxt": b"item { id: 1 name: 'cat' }"},
    ],
    ids="+".join,
)
def test_no_records(check: Run, tmp_path: Path, files: Any, options: Any) -> None:
    paths = [write_file(tmp_path / name, data) for name, data in files.items()]
    code, text, _ = check(*paths, *options)
    assert (code, text.startswith("INVALID"), "no record was read" in text) == (1, True, True)
    assert not json.loads(check(*paths, *options, "--format", "json").out)["valid"]
    assert "no record" in check(*paths, *options, "--format", "html").out


def test_the_verdict_tells_that_there_are_no_boxes(check: Run, tmp_path: Path, valid: str) -> None:
    without = write_shard(tmp_path / "without", "train", encode(image()))
    for path, end, headline in (
        (without, " infos; no boxes", "1 image, no boxes"),
        (valid, " infos", "2 images, 2 boxes"),
    ):
        (line, *_) = check(path, "--for", "cvat").out.splitlines()
        assert line.startswith("VALID for CVAT: ") and f"{end};" in line
        assert f": {headline}</h1>" in check(path, "--for", "cvat", "--format", "html").out


@pytest.mark.parametrize("height", [20, -20, -1, 0])
def test_images_with_an_invalid_size(height: int, tmp_path: Path) -> None:
    for width in (40, -40):
        sizes = {"image/height": height, "image/width": width}
        report = check_sources([write_shard(tmp_path, "train", training(**sizes))])
        assert report.image_sizes == {(20, 40): 1}


def test_a_folder_is_not_a_label_map(check: Run, tmp_path: Path) -> None:
    path = write_shard(tmp_path / "data", "train", training(), label_map=None)
    (tmp_path / "data" / "label_map.pbtxt").mkdir()
    (tmp_path / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    assert check(path).out.startswith("VALID: 0 errors, 0 warnings, 0 infos\n")


def test_only_text_gets_entries(report_of: ReportOf, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_shard(Path(), "train", training(), label_map=None)
    for name in ("train.tfrecord", "photo.jpg", "a.csv", "map.pbtxt", "map.prototxt"):
        if name != "train.tfrecord":
            Path(name).write_bytes(b"\xff\xd8\xff photo" if name == "photo.jpg" else b"a,b\n")
        (found,) = report_of("train.tfrecord", "--label-map", name)[1]["findings"]
        advice = f"In {name}, write entries" if name.startswith("map") else "with --label-map"
        assert found["code"] == "LAB002" and advice in found["fix"]

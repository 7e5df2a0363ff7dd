"""``tfod check`` as it is typed: sources, options, output, exit status."""

from __future__ import annotations

import contextlib
import gzip
import itertools
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
from tfod.tfrecord.writer import write_records

from tests.checker.conftest import ReportOf
from tests.commands import TIMEOUT, Run, wait_until
from tests.files import files_in, write_file
from tests.image_kinds import plain_image
from tests.mutants.sound import flip
from tests.records import encode, frame, image, objects, source_id_of, write_shard
from tests.zip_forge import real_zip

CHECK = [sys.executable, "-m", "tfod.cli.main", "check"]


def training(name: str = "a.jpg", boxes: Any = ((0.1, 0.1, 0.9, 0.9),), **more: Any) -> bytes:
    """A sound record of the profile tf_detection_api."""
    features = {
        **image(name, 20, 40),
        "image/encoded": plain_image((40, 20), f"#{zlib.crc32(name.encode()) % 0xFFFFFF:06x}"),
        "image/format": "jpeg",
        "image/source_id": source_id_of(name),
        **objects(boxes, ["cat"] * len(boxes), [1] * len(boxes)),
        **more,
    }
    return encode(features)


@pytest.fixture
def sound(tmp_path: Path) -> str:
    return write_shard(tmp_path / "sound", "train", training("a.jpg"), training("b.jpg"))


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """Record 1 has an inverted box, a warning, and a class that the map has not."""
    bad = training(
        "b.jpg",
        [(0.9, 0.1, 0.2, 0.9), (0.5, 0.5, 1.05, 0.9)],
        **{"image/object/class/text": ["cat", "dog"], "image/object/class/label": [1, 2]},
    )
    return write_shard(tmp_path / "broken", "train", training("a.jpg"), bad)


def test_sound_shard(check: Run, sound: str) -> None:
    code, out, err = check(sound)
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "VALID: 0 errors, 0 warnings, 0 infos",
        "Checked: 1 shard, 2 records, 2 images, 2 boxes",
    ]


def test_broken_shard(check: Run, broken: str) -> None:
    code, out, err = check(broken)
    assert (code, err) == (1, "")
    assert out.startswith("INVALID: 2 errors, 1 warning, 0 infos\n")
    assert f"{broken}, record 1, byte " in " ".join(out.split())
    for code_of_rule in ("BOX004 warning", "BOX006 error", "LAB006 error"):
        assert code_of_rule in out
    assert "\x1b" not in out, "no colour in a pipe"
    assert "--dry-run" not in out, "it can fix none of the errors without a choice"


def test_finding_has_every_field(report_of: ReportOf, broken: str) -> None:
    code, report = report_of(broken)
    found = next(one for one in report["findings"] if one["code"] == "BOX006")
    assert code == 1 and report["report_version"] == 2 and report["valid"] is False
    assert found["severity"] == "error"
    assert found["shard"] == broken and found["record"] == 1 and found["item"] == "b.jpg"
    data = Path(broken).read_bytes()
    assert found["offset"] == 16 + int.from_bytes(data[:8], "little")
    assert found["feature"] == "image/object/bbox"
    assert found["value"] == {"object": 0, "box": [0.9, 0.1, 0.2, 0.9]}
    assert "xmin is larger than xmax" in found["message"] and found["fix"]
    assert report["sources"] == [{"name": broken, "bytes": len(data)}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), 1),
        (("--severity", "BOX006=off", "--severity", "LAB=warning"), 0),
        (("--severity", "box006=OFF", "--severity", "LAB=info", "--fail-on", "warning"), 1),
        (("--severity", "BOX=off", "--severity", "LAB=info", "--fail-on", "warning"), 0),
        (("--severity", "LAB=off", "--severity", "BOX=off", "--severity", "BOX006=error"), 1),
    ],
)
def test_severities_and_exit_status(
    check: Run, broken: str, arguments: tuple[str, ...], expected: int
) -> None:
    assert check(broken, *arguments)[0] == expected


@pytest.mark.parametrize(
    "name", ["MAX_RECORD_BYTES", "MAX_ARCHIVE_BYTES", "MAX_ARCHIVE_ENTRIES", "REMOTE_TIMEOUT"]
)
def test_limits_that_are_none(
    check: Run, sound: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for text in ("0", "-1", "1.5", "1GB"):
        monkeypatch.setenv(f"TFOD_{name}", text)
        said = f"tfod: TFOD_{name}: '{text}' is not a whole number of 1 or more\n"
        assert check(sound).refused() == said
    monkeypatch.setenv(f"TFOD_{name}", "")
    assert check(sound).code == 0


def test_folder_set_glob_and_zip(check: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    records = [training(f"{number}.jpg") for number in range(4)]
    data.mkdir()
    write_records(data, "train", records, num_shards=2)
    (data / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    archive = tmp_path / "anno.zip"
    archive.write_bytes(real_zip(sorted(files_in(data).items())))
    for source in (data, f"{data}/train-*", archive):
        checked = check(source)
        assert checked.succeeded() == ""
        assert "Checked: 2 shards, 4 records, 4 images, 4 boxes" in checked.out
    (data / "train-00001-of-00002.tfrecord").unlink()
    code, out, _ = check(str(data))
    assert code == 1 and "SET001" in out and "train-00001-of-00002.tfrecord" in out


@pytest.mark.parametrize("decode", ["1000", "none"])
def test_a_zip_is_opened_once(
    check: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decode: str
) -> None:
    """The images to decode, the profile and the records come from one look at its entries."""
    path = write_shard(tmp_path, "train", *(training(f"{number}.jpg") for number in range(3)))
    (tmp_path / "a.zip").write_bytes(real_zip([("train.tfrecord", Path(path).read_bytes())]))
    opened = []
    whole = zipfile.ZipFile.__init__

    def counted(archive: zipfile.ZipFile, *arguments: Any) -> None:
        opened.append(archive)
        whole(archive, *arguments)

    monkeypatch.setattr("zipfile.ZipFile.__init__", counted)
    _, out, _ = check(str(tmp_path / "a.zip"), "--decode", decode, "--jobs", "1")
    assert "3 records" in out
    assert len(opened) == 1


def test_standard_input(broken: str, tmp_path: Path) -> None:
    shard = Path(broken).read_bytes()
    for data, name in (
        (shard, "<stdin>"),
        (real_zip([("default.tfrecord", shard)]), "<stdin>:default.tfrecord"),
        (gzip.compress(shard), "<stdin>"),
    ):
        with write_file(tmp_path / "x", data).open("rb") as stream:
            command = [*CHECK, "-", "--format=json"]
            done = subprocess.run(command, stdin=stream, capture_output=True, check=False)
        report = json.loads(done.stdout)
        assert done.returncode == 1 and done.stderr == b""
        found = next(one for one in report["findings"] if one["code"] == "BOX006")
        assert (found["shard"], found["record"]) == (name, 1)
        assert report["sources"][0]["bytes"] == len(data)


def test_the_walk_goes_on_behind_a_damage(report_of: ReportOf, tmp_path: Path) -> None:
    records = [training(f"{number}.jpg") for number in range(6)]
    shard = Path(write_shard(tmp_path, "train", *records))
    starts = [0, *itertools.accumulate(len(record) + 16 for record in records)]
    data_of_1, length_of_3 = starts[1] + 40, starts[3] + 2
    shard.write_bytes(flip(flip(shard.read_bytes(), data_of_1), length_of_3))
    code, report = report_of(str(shard))
    found = [(one["code"], one["record"], one["offset"]) for one in report["findings"]]
    assert code == 1
    assert found == [("TFR004", 1, starts[1]), ("TFR003", 3, starts[3])]
    assert report["counts"]["records"] == 4
    skipped = report["findings"][1]
    assert skipped["value"] == starts[4] - starts[3]
    assert f"{starts[4] - starts[3]:,} bytes further on" in skipped["message"]


def test_html_shows_the_offending_image(check: Run, broken: str) -> None:
    _, out, _ = check(broken, "--format", "html")
    assert out.count("data:image/jpeg;base64,") == 1
    assert "b.jpg" in out


def test_findings_are_capped_and_counted(check: Run, tmp_path: Path) -> None:
    bad = [training(f"{n}.jpg", [(0.9, 0.1, 0.2, 0.9)] * 3) for n in range(20)]
    shard = write_shard(tmp_path, "train", *bad, training("one.gif"))
    _, out, _ = check(shard, "--format", "json", "--max-findings", "7")
    report = json.loads(out)
    assert len(report["findings"]) == 7
    assert report["counts"]["by_code"] == {"BOX006": 60, "BOX009": 40, "BOX013": 1, "NAM004": 1}
    # No code hides another.
    assert {one["code"] for one in report["findings"]} == {"BOX006", "BOX009", "BOX013", "NAM004"}
    _, out, _ = check(shard)
    assert "and 57 more" in " ".join(out.split())


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends the check at once, with one line, also when several processes work."""
    many = _many_shards(tmp_path)
    process = subprocess.Popen(
        [*CHECK, many, "--jobs=2", "--decode=all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background lets them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    # Both workers, and the tracker of their resources.
    wait_until(lambda: len(children.read_text().split()) >= 3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err, out) == (130, "tfod: interrupted\n", "")


def _many_shards(folder: Path) -> Path:
    """A folder whose check takes long enough to be interrupted."""
    shard = Path(write_shard(folder, "train", *[training(f"{n}.jpg") for n in range(300)]))
    many = folder / "many"
    many.mkdir()
    for number in range(300):
        os.link(shard, many / f"{number}.tfrecord")
    return many


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_leaves_nothing(tmp_path: Path, number: int) -> None:
    many, temporary = _many_shards(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    with (tmp_path / "train.tfrecord").open("rb") as copied:
        process = subprocess.Popen(
            [*CHECK, "-", many, "--jobs=1", "--decode=all"],
            stdin=copied,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )
    wait_until(lambda: any(many in one.parents for one in _opened_by(process)))
    assert any(temporary.glob("tfod-check-*"))
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (128 + number, b"", b"")
    assert list(temporary.iterdir()) == []


def _opened_by(process: subprocess.Popen[bytes]) -> list[Path]:
    """The files that it has open."""
    found = []
    for one in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it is closed again
            found.append(one.readlink())
    return found


def on_a_terminal(command: list[str], environment: dict[str, str]) -> bytes:
    """What a command prints on a terminal."""
    import fcntl
    import pty
    import struct
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
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
    command = [*CHECK, broken]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment["TERM"] = "xterm"
    coloured = on_a_terminal(command, environment)
    assert b"tfod check: " not in coloured  # takes less than two seconds
    assert b"\x1b[1" in coloured or b"\x1b[3" in coloured
    plain = on_a_terminal(command, {**environment, "NO_COLOR": "1"})
    assert b"\x1b[3" not in plain.partition(b"INVALID")[2]


@pytest.mark.parametrize("form", ["text", "json", "html", "junit"])
def test_standard_output_of_another_encoding(tmp_path: Path, form: str) -> None:
    shard = write_shard(tmp_path, "train", training("кадр.jpg", [(0.9, 0.1, 0.2, 0.9)]))
    done = subprocess.run(
        [*CHECK, shard, "--format", form],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"")
    if form != "json":
        assert "кадр.jpg" in done.stdout.decode()


def test_empty_shards_in_front_do_not_hide_the_profile(report_of: ReportOf, tmp_path: Path) -> None:
    bad = frame(*[encode({})] * 70, training("a.jpg", [(0.9, 0.1, 0.2, 0.9)]))
    for number in range(7):
        write_file(tmp_path / f"t-{number:05d}-of-00007", bad if number == 6 else b"")
    code, report = report_of(tmp_path)
    assert code == 1 and report["profile"]["name"] == "tf_detection_api"
    assert report["counts"]["by_code"]["BOX006"] == 1


def test_records_of_another_message_fit_no_profile(report_of: ReportOf, tmp_path: Path) -> None:
    # Event: wall_time as field 1, fixed64; as TensorBoard's logs begin.
    event = b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"
    path = write_records(tmp_path, "events", [event] * 5)[0]
    code, report = report_of(path)
    assert code == 1 and set(report["counts"]["by_code"]) & {"EXA010", "EXA001"}


def test_pipes_and_devices_in_a_folder_are_left_alone(check: Run, sound: str) -> None:
    folder = Path(sound).parent
    os.mkfifo(folder / "pipe")
    os.symlink("/dev/zero", folder / "z.tfrecord")
    assert check(str(folder))[0] == 0


def test_a_promise_of_many_shards_costs_nothing(check: Run, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}-00000-of-99999999").write_bytes(b"")
    code, out, _ = check(str(tmp_path))
    assert code == 1 and "99,999,998 shards are missing" in " ".join(out.split())


def test_another_kind_does_not_start_a_cascade(report_of: ReportOf, tmp_path: Path) -> None:
    odd = {"image/object/bbox/xmin": [0], "image/filename": 7, "image/encoded": 3}
    shard = write_shard(tmp_path, "train", training("a.jpg", **odd), training("b.jpg"))
    _, report = report_of(shard, "--profile", "tf_detection_api")
    assert set(report["counts"]["by_code"]) == {"EXA004"}


def test_keys_of_equal_length_are_told_apart(report_of: ReportOf, tmp_path: Path) -> None:
    """A record is read quickly where its keys are those of the record before it, to the letter."""
    features = {**image("b.jpg", 20, 40), **objects([[0.1, 0.1, 0.9, 0.9]], ["cat"], [1])}
    renamed = {key.replace("filename", "filenane"): value for key, value in features.items()}
    same = {**features, "image/filename": "a.jpg"}
    shard = write_shard(tmp_path, "train", *map(encode, (same, renamed, {**same, **features})))
    _, report = report_of(shard, "--profile", "cvat", "--severity", "NAM007=off")
    found = report["findings"]
    missing = [one["record"] for one in found if one["feature"] == "image/filename"]
    unknown = [one["record"] for one in found if one["feature"] == "image/filenane"]
    assert (set(missing), set(unknown)) == ({1}, {1})


def test_what_a_profile_calls_its_box(report_of: ReportOf, tmp_path: Path) -> None:
    numbers = {"area": 1.0, "bbox": [30.0, 5.0, -10.0, 5.0], "category_id": 1, "image_id": 1}
    record = {"image": plain_image((40, 20)), "path": "a.jpg", "id": 1, **numbers}
    _, report = report_of(*write_records(tmp_path, "x", [encode(record)]))
    assert report["profile"]["name"] == "keras_coco"
    (found,) = [one for one in report["findings"] if one["code"] == "BOX006"]
    assert found["feature"] == "bbox"


def test_one_hot_labels_are_not_one_class(check: Run, tmp_path: Path) -> None:
    """As the trainer's feature description has it; the import reads what they mark."""
    features = {"image": plain_image((8, 8)), "height": 8, "width": 8, "channels": 3}
    shard = write_shard(tmp_path, "x", encode({**features, "label": [0, 1, 0]}))
    assert "label holds 3 values, expected one" in check(shard).out


@pytest.mark.parametrize("options", [(), ("--for", "cvat")])
def test_segmentation_is_not_checked(
    check: Run, report_of: ReportOf, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """DeepLab's shards have all keys that Roboflow's images have, and no boxes."""
    deeplab = {"image/format": "jpeg", "image/segmentation/class/encoded": b"PNG"}
    deeplab |= {**image("a.jpg", 20, 40), "image/encoded": plain_image((40, 20))}
    shard = write_shard(tmp_path, "x", *[encode(deeplab)] * 30)
    refused = check(shard, *options).refused()
    assert refused.startswith(f"tfod: {shard}: contains masks of whole images and no boxes, ")
    assert check(shard, "--profile", "tf_detection_api").code in (0, 1)
    # Beside others, whose report is wanted, it is a finding.
    beside = write_shard(tmp_path / "other", "y", training("a.jpg"))
    _, report = report_of(shard, beside, *options)
    found = [one["shard"] for one in report["findings"] if one["code"] == "EXA010"]
    assert found == [shard] and report["counts"]["records"] == 31


def test_a_misspelt_box_key_is_named_and_all_else_is_checked(
    report_of: ReportOf, tmp_path: Path
) -> None:
    record = objects([(0.1, 0.2, 0.5, 0.6)], ["cat"], [1])
    record["image/object/bbox/zl"] = record.pop("image/object/bbox/ymin")
    path = write_shard(tmp_path, "train", encode({**image("a.jpg", 20, 40), **record}))
    _, report = report_of(path)
    assert report["profile"]["name"] == "cvat"
    found = {one["code"]: one for one in report["findings"]}
    assert "0 ymin" in found["BOX001"]["message"]
    assert "did you mean image/object/bbox/ymin, which is missing?" in found["EXA008"]["message"]
    assert found["EXA008"]["fix"].startswith(
        "In the script that wrote the record of a.jpg, write image/object/bbox/ymin instead of "
    )
    assert report["counts"]["records"] == 1 and "EXA010" not in found


def test_an_attribute_of_somebody_s_own_is_not_taken_for_a_key(tmp_path: Path) -> None:
    path = write_shard(tmp_path, "train", training(**{"image/object/colour": ["red"]}))
    (found,) = check_sources([path]).findings
    assert found.code == "EXA008" and "did you mean" not in found.message


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
    ids=lambda files: "+".join(files),
)
def test_what_has_no_record_is_valid_for_nobody(
    check: Run, tmp_path: Path, files: dict[str, bytes], options: tuple[str, ...]
) -> None:
    paths = [str(write_file(tmp_path / name, data)) for name, data in files.items()]
    code, text, _ = check(*paths, *options)
    assert (code, text.startswith("INVALID"), "no record was read" in text) == (1, True, True)
    assert not json.loads(check(*paths, *options, "--format", "json").out)["valid"]
    assert "no record" in check(*paths, *options, "--format", "html").out


def test_a_shard_without_boxes_says_so(check: Run, tmp_path: Path, sound: str) -> None:
    nothing = write_shard(tmp_path / "nothing", "train", encode(image()))
    for path, end, said in (
        (nothing, " infos; no boxes", "1 image, no boxes"),
        (sound, " infos", "2 images, 2 boxes"),
    ):
        (line, *_) = check(path, "--for", "cvat").out.splitlines()
        assert line.startswith("VALID for CVAT: ") and f"{end};" in line
        page = check(path, "--for", "cvat", "--format", "html").out
        assert f": {said}</h1>" in page


@pytest.mark.parametrize("stated", [(20, 40), (-20, 40), (20, -40), (-1, -1), (0, 40)])
def test_an_image_whose_stated_size_is_none_is_counted_by_its_header(
    check: Run, tmp_path: Path, stated: tuple[int, int]
) -> None:
    sizes = dict(zip(("image/height", "image/width"), stated, strict=True))
    path = write_shard(tmp_path, "train", training(**sizes))
    found = json.loads(check(path, "--format", "json").out)["statistics"]
    assert found["image_sizes"] == [{"height": 20, "width": 40, "images": 1}]


def test_a_folder_is_no_label_map(check: Run, tmp_path: Path) -> None:
    path = write_shard(tmp_path / "data", "train", training(), label_map=None)
    (tmp_path / "data" / "label_map.pbtxt").mkdir()
    (tmp_path / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    assert check(path).out.startswith("VALID: 0 errors, 0 warnings, 0 infos\n")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("train.tfrecord", "with --label-map"),
        ("photo.jpg", "with --label-map"),
        ("a.csv", "with --label-map"),
        ("map.pbtxt", "In map.pbtxt, write entries"),
        ("map.prototxt", "In map.prototxt, write entries"),
    ],
)
def test_entries_are_written_only_into_text(
    name: str, advice: str, check: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_shard(Path(), "train", training(), label_map=None)
    for path in ("photo.jpg", "a.csv", "map.pbtxt", "map.prototxt"):
        Path(path).write_bytes(b"\xff\xd8\xff photo" if path == "photo.jpg" else b"a,b\n")
    report = json.loads(check("train.tfrecord", "--label-map", name, "--format", "json").out)
    assert [(found["code"], advice in found["fix"]) for found in report["findings"]] == [
        ("LAB002", True)
    ]

"""``tfod repair``: what it prints and writes, where, and what it leaves when it is stopped."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod.cli.main import main
from tfod.shards.repair import repair
from tfod.tfrecord.writer import write_records

from tests.commands import TIMEOUT
from tests.files import files_in, write_files
from tests.mutants.sound import (
    LABEL_MAP,
    flip,
    frame,
    jpeg,
    other,
    png,
    record,
    shard,
    with_boxes,
)
from tests.shards.test_output_folder import killed_export

BAD_FORMAT = record(format="png")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A shard with a record to fix, one to drop and one that is sound."""
    broken = flip(shard(BAD_FORMAT, record("c.jpg", encoded=jpeg(quality=50)), other()),
                  len(frame(BAD_FORMAT)) + 100)  # fmt: skip
    return write_files(tmp_path / "in", {"train.tfrecord": broken, "label_map.pbtxt": LABEL_MAP})


def run_repair(*arguments: Any) -> int:
    """Run the command; return its exit status."""
    return main(["repair", *map(str, arguments)])


def test_no_other_numbering_stays_beside_the_result(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_files(tmp_path / "out", {"train-00000-of-00001.tfrecord": shard(other())})
    before = files_in(old)
    assert run_repair(source, old) == 2
    assert "train-00000-of-00001.tfrecord is there already" in capsys.readouterr().err
    assert files_in(old) == before
    assert run_repair(source, old, "--overwrite") == 0
    assert sorted(files_in(old)) == ["label_map.pbtxt", "train.tfrecord"]


def test_a_shard_of_the_subset_in_another_folder_is_left(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_files(tmp_path / "out", {"train/a.tfrecord": shard(other())})
    before = files_in(old)
    for more in ([], ["--overwrite"]):
        assert run_repair(source, old, *more) == 2
        assert "would be in one subset with what is written" in capsys.readouterr().err
        assert files_in(old) == before


def test_what_it_says_and_writes(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, report = files_in(source), tmp_path / "report.json"
    assert run_repair(source, tmp_path / "out", "--output", report) == 0
    output = capsys.readouterr().out
    assert output.startswith("2 changes made: 1 record changed, 1 dropped\n")
    assert f"1 shard, 2 records read, 2 written to {tmp_path / 'out'}\n" in output
    assert "\nTFR004 fixed: checksum of the data is wrong\n" in output
    assert f"  {source}/train.tfrecord, record 1, byte {len(frame(BAD_FORMAT))}:\n" in output
    assert output.endswith("\nNothing is left to decide.\n")
    assert files_in(source) == before
    assert files_in(tmp_path / "out") == {
        "label_map.pbtxt": LABEL_MAP,
        "train.tfrecord": shard(record(), other()),
    }
    changes = json.loads(report.read_text())["changes"]
    assert [(one["code"], one["record"], one["record_dropped"]) for one in changes] == [
        ("IMG004", 0, False),
        ("TFR004", 1, True),
    ]
    assert (changes[0]["before"], changes[0]["after"]) == ("png", "jpeg")
    assert changes[0]["feature"] == "image/format" and changes[0]["item"] == "a.jpg"


def test_a_dry_run_says_the_same_and_writes_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_repair(source, "--dry-run", "--output", tmp_path / "a.json") == 0
    output = capsys.readouterr().out
    assert output.startswith("2 changes would be made: ") and "2 left\n" in output
    assert sorted(os.listdir(tmp_path)) == ["a.json", "in"]
    assert run_repair(source, tmp_path / "out", "--output", tmp_path / "b.json") == 0
    dry, wet = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert dry["changes"] == wet["changes"] and dry["counts"] == wet["counts"]


def test_what_is_left_is_named_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = record(text=["cat", "bird"], format="png")
    source = write_files(tmp_path / "in", {"a.tfrecord": shard(odd), "label_map.pbtxt": LABEL_MAP})
    assert run_repair(source, tmp_path / "out") == 1
    output = capsys.readouterr().out
    assert "IMG004 fixed" in output and "\nLeft for you to decide" in output
    assert "LAB006 error: class is not in the label map\n" in output
    place = f" {tmp_path}/out/a.tfrecord, record 0, byte 0, image/object/class/text"
    assert place in " ".join(output.split())
    assert "\n  Fix: Add the class to the label map" in output


def test_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = {"a.record": shard(record(), other()), "label_map.pbtxt": LABEL_MAP}
    assert run_repair(write_files(tmp_path / "in", sound), tmp_path / "out") == 0
    assert capsys.readouterr().out.startswith("Nothing to repair.\n")
    assert files_in(tmp_path / "out") == sound


def test_many_changes_are_counted_and_few_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [with_boxes([(0.5, 0.25, 1.02, 0.5)], filename=f"{n}.jpg") for n in range(1200)]
    write_records(tmp_path / "in", "a", many)
    write_files(tmp_path / "in", {"label_map.pbtxt": LABEL_MAP})
    run_repair(tmp_path / "in", tmp_path / "out", "--output", tmp_path / "r.json", "--only", "BOX")
    output = capsys.readouterr().out
    assert "BOX004 fixed: box reaches beyond the image (1,200)\n" in output
    assert output.count(" clipped to the image: ") == 3 and "  and 1,197 more\n" in output
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["changes"]) == report["counts"]["by_code"]["BOX004"] == 1200


def test_layout_names_and_compression_stay(tmp_path: Path) -> None:
    packed = gzip.compress(shard(BAD_FORMAT), mtime=0)
    source = write_files(
        tmp_path / "in",
        {
            "train/a.record-00000-of-00002": shard(BAD_FORMAT),
            "train/a.record-00001-of-00002": shard(other()),
            "valid/a.tfrecord.gz": packed,
            "valid/a_label_map.pbtxt": LABEL_MAP,
            "label_map.pbtxt": LABEL_MAP,
            "notes.txt": b"of nobody's concern",
        },
    )
    assert run_repair(source, tmp_path / "out", "--skip", "IMG011") in (0, 1)
    found = files_in(tmp_path / "out")
    assert sorted(found) == sorted(set(files_in(source)) - {"notes.txt"})
    assert found["train/a.record-00000-of-00002"] == shard(record())
    assert found["train/a.record-00001-of-00002"] == shard(other())
    assert gzip.decompress(found["valid/a.tfrecord.gz"]) == shard(record())
    assert found["valid/a_label_map.pbtxt"] == LABEL_MAP
    # A glob, and a single shard with its label map one folder up.
    run_repair(f"{source}/train/a*", tmp_path / "glob")
    assert sorted(files_in(tmp_path / "glob")) == [
        *("a.record-00000-of-00002", "a.record-00001-of-00002", "label_map.pbtxt"),
    ]
    run_repair(source / "valid" / "a.tfrecord.gz", tmp_path / "one")
    assert sorted(files_in(tmp_path / "one")) == ["a.tfrecord.gz", "a_label_map.pbtxt"]


def test_a_label_map_for_all_shards_takes_the_place_of_theirs(tmp_path: Path) -> None:
    other_ids = b"item { id: 7 name: 'cat' }\nitem { id: 8 name: 'dog' }\n"
    source = write_files(tmp_path / "in", {"a.tfrecord": shard(record()), "a.pbtxt": LABEL_MAP})
    write_files(tmp_path, {"new.pbtxt": other_ids})
    assert run_repair(source, tmp_path / "out", "--label-map", tmp_path / "new.pbtxt") == 0
    assert sorted(files_in(tmp_path / "out")) == ["a.tfrecord", "label_map.pbtxt"]
    assert files_in(tmp_path / "out")["a.tfrecord"] == shard(record(label=[7, 8]))
    assert run_repair(source, tmp_path / "none", "--label-map", "no-such-map") == 2
    assert not (tmp_path / "none").exists()


def test_a_zip_becomes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as archive:
        archive.writestr("set/train/a.tfrecord", shard(BAD_FORMAT))
        archive.writestr("set/val/a.tfrecord", shard(other()))
        archive.writestr("set/label_map.pbtxt", LABEL_MAP)
        archive.writestr("set/readme.txt", "hello")
    assert run_repair(tmp_path / "in.zip", tmp_path / "out") == 0
    assert files_in(tmp_path / "out") == {
        "set/label_map.pbtxt": LABEL_MAP,
        "set/train/a.tfrecord": shard(record()),
        "set/val/a.tfrecord": shard(other()),
    }
    with zipfile.ZipFile(tmp_path / "in.zip", "a") as archive:
        archive.writestr("../evil.tfrecord", shard(other()))
    capsys.readouterr()
    assert run_repair(tmp_path / "in.zip", tmp_path / "again") == 1
    assert "ZIP002 error" in capsys.readouterr().out
    assert files_in(tmp_path / "again").keys() == files_in(tmp_path / "out").keys()
    assert not (tmp_path / "evil.tfrecord").exists()


def test_several_zips_are_repaired_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as archive:
            archive.writestr("train.tfrecord", shard(record(f"{name}.jpg")))
    assert run_repair(tmp_path, tmp_path / "out") == 2
    assert "several zips; repair them one by one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "behind SOURCE, or pass --dry-run"),
        (["in"], "is read, and would be replaced; write to another folder"),
        (["in", "--overwrite"], "is read, and would be replaced; write to another folder"),
        (["there"], "there/train.tfrecord is there already; write to another folder"),
        (["new", "--output", "there/train.tfrecord"], "there/train.tfrecord is"),
        (["new", "--only", "BOX0O6"], "--only: there is no rule or family 'BOX0O6'"),
        (["new", "--skip", "TFR004"], "what cannot be read cannot be copied"),
        (["train.txt/new"], "cannot write there"),
        ([""], "the name of what to write is empty"),
        (["new", "--output", ""], "the name of what to write is empty"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    arguments: list[str],
    output: str,
    source: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(source.parent)
    write_files(source.parent, {"there/train.tfrecord": b"precious", "train.txt": b""})
    before = files_in(source.parent)
    assert run_repair("in", *arguments) == 2
    printed = capsys.readouterr()
    assert output in printed.err and printed.err.count("\n") == 1 and not printed.out
    assert files_in(source.parent) == before and not Path("new").exists()


def test_the_largest_record_is_of_the_environment(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_files(source, {"train.tfrecord": shard(other(), record(encoded=jpeg() + bytes(700_000)))})
    monkeypatch.setenv("TFOD_MAX_RECORD_BYTES", "600000")
    assert run_repair(source, tmp_path / "out") == 2
    assert "raise TFOD_MAX_RECORD_BYTES" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("TFOD_MAX_RECORD_BYTES", "many")
    assert run_repair(source, "--dry-run") == 2
    assert "TFOD_MAX_RECORD_BYTES: 'many' is not a whole number" in capsys.readouterr().err
    monkeypatch.setenv("TFOD_MAX_RECORD_BYTES", "800000")
    assert run_repair(source, "--dry-run") == 0


def test_a_label_map_that_is_too_long_is_not_cut(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(source, {"label_map.pbtxt": b"# x\n" * (2 << 20)})
    assert run_repair(source, tmp_path / "out") == 2
    assert "is too long for a label map (above 4 MiB)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_overwriting_is_asked_for(source: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "out", {"train.tfrecord": b"old", "more.txt": b"stays"})
    assert run_repair(source, tmp_path / "out", "--overwrite") == 0
    assert sorted(files_in(tmp_path / "out")) == ["label_map.pbtxt", "more.txt", "train.tfrecord"]
    assert files_in(tmp_path / "out")["train.tfrecord"] == shard(record(), other())


def test_no_label_map_of_other_shards_is_overwritten(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = {"val.tfrecord": b"", "label_map.pbtxt": b"item { id: 1 name: 'another' }"}
    old = write_files(tmp_path / "out", classes)
    assert run_repair(source, old, "--overwrite") == 2
    assert "label_map.pbtxt is the label map of val.tfrecord, too" in capsys.readouterr().err
    assert files_in(old) == classes
    write_files(old, {"label_map.pbtxt": (source / "label_map.pbtxt").read_bytes()})
    assert run_repair(source, old, "--overwrite") == 0


def test_an_index_of_a_shard_that_is_replaced_goes_with_it(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = write_files(
        tmp_path / "out", {"train.tfrecord.idx": b"0 9\n", "val.tfrecord.idx": b"0 7\n"}
    )
    before = files_in(out)
    assert run_repair(source, out) == 2
    assert "train.tfrecord.idx is there already" in capsys.readouterr().err
    assert files_in(out) == before
    assert run_repair(source, out, "--overwrite") == 0
    assert sorted(files_in(out)) == ["label_map.pbtxt", "train.tfrecord", "val.tfrecord.idx"]


def test_standard_input_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_files(tmp_path, {"a": shard(record())}) / "a"
    with path.open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert run_repair("-", tmp_path / "out") == 2
    assert "only files on this machine can be repaired" in capsys.readouterr().err


# Stopped in the middle


def large(path: Path) -> Path:
    """Two shards of some megabytes each, all of whose records are to be fixed."""
    noise = os.urandom(200_000)
    for part in (0, 1):
        records = (
            record(f"{part}-{n}.png", encoded=png() + noise, format="gif") for n in range(40)
        )
        write_records(path, f"part{part}", records)
    return write_files(path, {"label_map.pbtxt": LABEL_MAP})


def start(arguments: Sequence[str], **how: Any) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "tfod.cli.main", "repair", *arguments]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes, **how)


def test_on_a_full_disk_nothing_is_left(tmp_path: Path) -> None:
    source = large(tmp_path / "in")
    before = files_in(source)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))

    process = start([str(source), str(tmp_path / "out" / "deep")], preexec_fn=limit)
    _, output = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2 and "cannot be written (File too large)" in output
    assert output.count("\n") == 1
    assert files_in(source) == before and os.listdir(tmp_path) == ["in"]


def test_where_the_report_cannot_be_written_nothing_is_published(tmp_path: Path) -> None:
    """The disk is full when its last bytes are written."""
    boxes = [(n / 4000, 0.5, 0.75, 1.01) for n in range(2000)]
    source = write_files(
        tmp_path / "in", {"a.tfrecord": shard(with_boxes(boxes)), "label_map.pbtxt": LABEL_MAP}
    )
    arguments = [str(source), f"{tmp_path}/out", "--output", f"{tmp_path}/report.json"]
    assert run_repair(*arguments) == 1
    most = (tmp_path / "report.json").stat().st_size - 100
    assert (tmp_path / "out" / "a.tfrecord").stat().st_size < most
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "report.json").unlink()

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    process = start(arguments, preexec_fn=limit)
    output, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, output, err.count("\n")) == (2, "", 1)
    assert "report.json: cannot be written (File too large)" in err
    assert os.listdir(tmp_path) == ["in"]


def test_at_ctrl_c_nothing_is_left(tmp_path: Path) -> None:
    source = large(tmp_path / "in")
    before, reported = files_in(source), []

    def interrupt(change: str) -> None:
        reported.append(change)
        if len(reported) == 50:  # in the middle of the second shard
            assert len(list((tmp_path / "out").iterdir())) == 2
            signal.raise_signal(signal.SIGINT)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            repair(str(source), str(tmp_path / "out"), write=interrupt)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert files_in(source) == before and os.listdir(tmp_path) == ["in"]


def test_a_report_takes_the_place_of_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = files_in(source), tmp_path / "out"
    for name in ("train.tfrecord", "label_map.pbtxt"):
        for more in ([out], ["--dry-run"]):
            assert run_repair(source, *more, "--output", source / name, "--overwrite") == 2
            assert "name another file" in capsys.readouterr().err
        assert run_repair(source, out, "--output", out / name) == 2
        assert "name another file" in capsys.readouterr().err
    assert files_in(source) == before and not out.exists()
    assert run_repair(source, out, "--output", out / "changes.json") == 0


def test_a_folder_in_which_a_writer_was_killed_is_put_back(source: Path, tmp_path: Path) -> None:
    killed_export(tmp_path / "out")
    (source / "train.tfrecord").rename(source / "test.tfrecord")
    assert run_repair(source, tmp_path / "out") == 0
    assert (tmp_path / "out" / "val" / "s.tfrecord").read_bytes() == shard(b"old")


def test_all_files_appear_or_none(source: Path, tmp_path: Path) -> None:
    """One that cannot take its place leaves the others as they were."""
    (source / "val.tfrecord").write_bytes(shard(other()))
    out = write_files(tmp_path / "out", {"train.tfrecord": b"old", "val.tfrecord/x": b"in the way"})
    before = files_in(out)
    assert run_repair(source, out, "--overwrite") == 2
    assert files_in(out) == before

"""The command ``tfod repair``: its output, its files, and its errors."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check_sources

from tests.commands import Run, run_python
from tests.files import files_in, write_file, write_files
from tests.mutants.sound import LABEL_MAP, flip, frame, jpeg, other, record, shard, with_boxes
from tests.zip_forge import real_zip

BAD_FORMAT = record(format="png")


@pytest.fixture
def run(run: Run) -> Run:
    """Run ``tfod repair …``."""
    return partial(run, "repair")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A shard with a record to fix, one to drop and a valid one."""
    broken = flip(shard(BAD_FORMAT, record("c.jpg", encoded=jpeg(quality=50)), other()),
                  len(frame(BAD_FORMAT)) + 100)  # fmt: skip
    return write_files(tmp_path / "in", {"train.tfrecord": broken, "label_map.pbtxt": LABEL_MAP})


@pytest.mark.parametrize(
    ("existing", "error", "after"),
    [
        ({"train.tfrecord": b"old", "more.txt": b"stays"}, "train.tfrecord already exists",
         ["label_map.pbtxt", "more.txt", "train.tfrecord"]),
        ({"train-00000-of-00001.tfrecord": shard(other())},
         "train-00000-of-00001.tfrecord already exists", ["label_map.pbtxt", "train.tfrecord"]),
        # Files that --overwrite does not replace, either.
        ({"train/a.tfrecord": shard(other())}, "would be in the same subset as", None),
        ({"val.tfrecord": b"", "label_map.pbtxt": b"item { id: 1 name: 'another' }"},
         "label_map.pbtxt is also the label map of val.tfrecord", None),
        # If one file cannot be written, none is.
        ({"train.tfrecord": b"old", "label_map.pbtxt/x": b"a folder"}, "label_map.pbtxt", None),
    ],
)  # fmt: skip
def test_existing_files(
    run: Run, source: Path, tmp_path: Path, existing: Any, error: str, after: list[str] | None
) -> None:
    out = write_files(tmp_path / "out", existing)
    before = files_in(out)
    assert error in run(source, out, *([] if after else ["--overwrite"])).refused()
    assert files_in(out) == before
    if after is None:
        assert run(source, out).code == 2 and files_in(out) == before
    else:
        assert run(source, out, "--overwrite").code == 0
        assert sorted(files_in(out)) == after
        assert files_in(out)["train.tfrecord"] == shard(record(), other())


def test_output_and_report(run: Run, source: Path, tmp_path: Path) -> None:
    before = files_in(source)
    dry = run(source, "--dry-run", "--output", tmp_path / "a.json")
    assert dry.code == 0
    assert dry.out.startswith("2 changes would be made: ") and "2 would be written\n" in dry.out
    assert sorted(os.listdir(tmp_path)) == ["a.json", "in"]
    code, output, _ = run(source, tmp_path / "out", "--output", tmp_path / "b.json")
    assert code == 0
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
    planned, made = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert planned["changes"] == made["changes"] and planned["counts"] == made["counts"]
    first, second = made["changes"]
    assert (first["code"], first["record"], first["record_dropped"]) == ("IMG004", 0, False)
    assert (second["code"], second["record"], second["record_dropped"]) == ("TFR004", 1, True)
    assert (first["before"], first["after"]) == ("png", "jpeg")
    assert first["feature"] == "image/format" and first["item"] == "a.jpg"


def test_remaining_findings_have_status_1(run: Run, tmp_path: Path) -> None:
    bird = record(text=["cat", "bird"], format="png")
    source = write_files(tmp_path / "in", {"a.tfrecord": shard(bird), "label_map.pbtxt": LABEL_MAP})
    code, output, _ = run(source, tmp_path / "out")
    assert code == 1
    assert "IMG004 fixed" in output and "\nLeft for you to decide" in output
    assert "LAB006 error: class is not in the label map\n" in output
    place = f" {tmp_path}/out/a.tfrecord, record 0 (the first), byte 0, image/object/class/text"
    assert place in " ".join(output.split())
    assert "\n    tfod convert " in output


def test_layout_names_and_compression_stay(run: Run, tmp_path: Path) -> None:
    packed = gzip.compress(shard(BAD_FORMAT), mtime=0)
    source = write_files(
        tmp_path / "in",
        {
            "train/a.record-00000-of-00002": shard(BAD_FORMAT),
            "train/a.record-00001-of-00002": shard(other()),
            "valid/a.tfrecord.gz": packed,
            "valid/a_label_map.pbtxt": LABEL_MAP,
            "label_map.pbtxt": LABEL_MAP,
            "notes.txt": b"not copied",
        },
    )
    assert run(source, tmp_path / "out", "--ignore", "IMG011").code in (0, 1)
    found = files_in(tmp_path / "out")
    assert sorted(found) == sorted(set(files_in(source)) - {"notes.txt"})
    assert found["train/a.record-00000-of-00002"] == shard(record())
    assert found["train/a.record-00001-of-00002"] == shard(other())
    assert gzip.decompress(found["valid/a.tfrecord.gz"]) == shard(record())
    assert found["valid/a_label_map.pbtxt"] == LABEL_MAP
    # A glob, and a single shard with its label map one folder up.
    run(f"{source}/train/a*", tmp_path / "glob")
    shards = [f"a.record-0000{number}-of-00002" for number in range(2)]
    assert sorted(files_in(tmp_path / "glob")) == [*shards, "label_map.pbtxt"]
    run(source / "valid" / "a.tfrecord.gz", tmp_path / "one")
    assert sorted(files_in(tmp_path / "one")) == ["a.tfrecord.gz", "a_label_map.pbtxt"]


def test_a_label_map_for_all_shards_replaces_theirs(run: Run, tmp_path: Path) -> None:
    label_map = b"item { id: 7 name: 'cat' }\nitem { id: 8 name: 'dog' }\n"
    source = write_files(tmp_path / "in", {"a.tfrecord": shard(record()), "a.pbtxt": LABEL_MAP})
    path = write_file(tmp_path / "new.pbtxt", label_map)
    assert run(source, tmp_path / "out", "--label-map", path).code == 0
    assert sorted(files_in(tmp_path / "out")) == ["a.tfrecord", "label_map.pbtxt"]
    assert files_in(tmp_path / "out")["a.tfrecord"] == shard(record(label=[7, 8]))
    assert run(source, tmp_path / "none", "--label-map", "no-such-map").code == 2
    assert not (tmp_path / "none").exists()


def test_a_zip_becomes_a_folder(run: Run, tmp_path: Path) -> None:
    files = {"set/val/a.tfrecord": shard(other()), "set/label_map.pbtxt": LABEL_MAP}
    entries = {"set/train/a.tfrecord": shard(BAD_FORMAT), **files, "set/readme.txt": b"hello"}
    write_file(tmp_path / "in.zip", real_zip(entries.items()))
    assert run(tmp_path / "in.zip", tmp_path / "out").code == 0
    assert files_in(tmp_path / "out") == {**files, "set/train/a.tfrecord": shard(record())}
    entries["../evil.tfrecord"] = shard(other())
    write_file(tmp_path / "in.zip", real_zip(entries.items()))
    done = run(tmp_path / "in.zip", tmp_path / "again")
    assert done.code == 1 and "ZIP002 error" in done.out
    assert files_in(tmp_path / "again").keys() == files_in(tmp_path / "out").keys()
    assert not (tmp_path / "evil.tfrecord").exists()


def test_several_datasets(run: Run, tmp_path: Path) -> None:
    """They may have the same images and different label maps."""
    cow = LABEL_MAP.replace(b"cat", b"cow")
    for name, label_map in (("a", LABEL_MAP), ("b", cow)):
        files = {"train.tfrecord": shard(BAD_FORMAT), "label_map.pbtxt": label_map}
        write_files(tmp_path / "in" / name, files)
        write_file(tmp_path / "zips" / f"{name}.zip", real_zip(files.items()))
    report = tmp_path / "r.json"
    assert run(tmp_path / "in", tmp_path / "out", "--output", report).code == 1
    remaining = json.loads(report.read_text())["remaining"]
    checked = check_sources([str(tmp_path / "out")], CheckOptions(decode=0)).to_json()
    assert remaining["counts"] == checked["counts"]
    assert remaining["counts"]["by_code"]["LAB006"] == 1
    names = [one["name"] for one in remaining["datasets"]]
    assert names == [f"{tmp_path}/out/{name}" for name in "ab"]
    # Zips are repaired one by one.
    assert "several zips" in run(tmp_path / "zips", tmp_path / "none").refused()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "after SOURCE, or pass --dry-run"),
        (["in"], "is an input"),
        (["in", "--overwrite"], "is an input"),
        (["there"], "there/train.tfrecord already exists; write to another folder"),
        (["new", "--output", "there/train.tfrecord"], "there/train.tfrecord is a shard"),
        (["new", "--select", "BOX0O6"], "--select: there is no rule or family 'BOX0O6'"),
        (["new", "--ignore", "TFR004"], "--ignore TFR004: unreadable"),
        (["train.txt/new"], "cannot write there"),
        ([""], "the output path is empty"),
        (["new", "--output", ""], "the output path is empty"),
    ],
)
def test_wrong_arguments_change_nothing(
    run: Run, arguments: list[str], output: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    write_files(source.parent, {"there/train.tfrecord": b"precious", "train.txt": b""})
    before = files_in(source.parent)
    done = run("in", *arguments)
    assert output in done.refused() and not done.out
    assert files_in(source.parent) == before and not Path("new").exists()


def test_sources_that_are_refused(
    run: Run, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with (source / "train.tfrecord").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert "only files on this machine can be repaired" in run("-", out).refused()
    write_files(source, {"train.tfrecord": shard(other(), record(encoded=jpeg() + bytes(700_000)))})
    monkeypatch.setenv("TFOD_MAX_RECORD_BYTES", "600000")
    assert "TFOD_MAX_RECORD_BYTES" in run(source, out).refused()
    monkeypatch.setenv("TFOD_MAX_RECORD_BYTES", "800000")
    assert run(source, "--dry-run").code == 0
    write_files(source, {"label_map.pbtxt": b"# x\n" * (2 << 20)})
    assert "is too long for a label map (above 4 MiB)" in run(source, out).refused()
    assert not out.exists()


def test_nothing_is_written_if_the_report_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """The disk is full when its last bytes are written."""
    boxes = [(n / 4000, 0.5, 0.75, 1.01) for n in range(2000)]  # each a change
    files = {"a.tfrecord": shard(with_boxes(boxes)), "label_map.pbtxt": LABEL_MAP}
    source = write_files(tmp_path / "in", files)
    arguments = [str(source), f"{tmp_path}/out", "--output", f"{tmp_path}/report.json"]
    done = run(*arguments)
    assert done.code == 1
    assert "BOX004 fixed: box extends slightly beyond the image (2,000)\n" in done.out
    assert done.out.count(" clipped to the image: ") == 3 and "  and 1,997 more\n" in done.out
    assert len(json.loads((tmp_path / "report.json").read_text())["changes"]) == 2000
    largest = (tmp_path / "report.json").stat().st_size - 100
    assert (tmp_path / "out" / "a.tfrecord").stat().st_size < largest
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "report.json").unlink()

    done = run_python("-m", "tfod.cli.main", "repair", *arguments, largest_file=largest)
    assert "report.json: cannot be written (File too large)" in done.refused() and not done.out
    assert os.listdir(tmp_path) == ["in"]

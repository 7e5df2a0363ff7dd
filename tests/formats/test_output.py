"""Files appear complete or not at all, and other files are kept."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from PIL import Image
from tfod.formats.table import FORMATS, TARGETS

from tests.commands import Run
from tests.files import files_in, write_files
from tests.formats import one_image
from tests.formats.conftest import IMAGES, VOC, by_filename
from tests.image_kinds import file_of
from tests.renames import at_rename, fail

BOX = (20, 10, 100, 50)
FILES = {"shards": "x.record", "coco": "x.json", "csv": "x.csv", "cvat_xml": "x.xml"}
"""The formats that have a name for one file."""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A CSV of one image."""
    (tmp_path / "in").mkdir()
    shutil.copy(IMAGES / "shapes_01.jpg", tmp_path / "in" / one_image.NAME)
    return Path(str(one_image.csv(tmp_path / "in", None, [BOX])[0]))


def change(dataset: Path) -> None:
    dataset.write_text(dataset.read_text().replace("20,10,", "30,20,"))


@pytest.mark.parametrize("target", FORMATS)
def test_only_overwrite_replaces_files(
    convert: Run, tmp_path: Path, dataset: Path, target: str
) -> None:
    """Only files of the same names are replaced."""
    out, mine = tmp_path / "out", {"mine.txt": b"1", "images/mine.txt": b"2", ".a/b/c": b"3"}
    convert(dataset, out, "--to", target).succeeded()
    write_files(out, mine)
    before = files_in(out)
    change(dataset)
    line = convert(dataset, out, "--to", target).refused()
    assert f"tfod: {out}" in line and "already exists; " in line and "--overwrite" in line
    assert files_in(out) == before
    convert(dataset, out, "--to", target, "--overwrite").succeeded()
    convert(dataset, tmp_path / "new", "--to", target).succeeded()
    assert files_in(out) == files_in(tmp_path / "new") | mine != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "new", "out"]


@pytest.mark.parametrize("target", FORMATS)
def test_a_folder_is_not_replaced(convert: Run, tmp_path: Path, dataset: Path, target: str) -> None:
    out = tmp_path / "out"
    convert(dataset, out, "--to", target).succeeded()
    change(dataset)
    for name, content in files_in(out).items():
        (out / name).unlink()
        write_files(out, {f"{name}/mine.txt": b"1"})
        before = files_in(out)
        line = convert(dataset, out, "--to", target, "--overwrite").refused()
        assert str(out / name) in line and files_in(out) == before, name
        assert "is a folder" in line or "is not a regular file" in line
        shutil.rmtree(out / name)
        (out / name).write_bytes(content)


@pytest.mark.parametrize("target", FORMATS)
def test_a_failure_changes_nothing(
    convert: Run, tmp_path: Path, dataset: Path, target: str
) -> None:
    """Each rename fails once, first without and then with existing files."""
    out = tmp_path / "out"
    before: dict[str, bytes] = {}
    for _ in range(2):
        for number in itertools.count(1):
            with at_rename(number, fail) as renames:
                done = convert(dataset, out, "--to", target, "--overwrite")
            if not renames.reached:
                break
            assert "Input/output error" in done.refused(), number
            assert files_in(out) == before and out.exists() is bool(before)
        assert done.code == 0 and number > 1
        before = files_in(out)
        change(dataset)


@pytest.mark.parametrize("target", FORMATS)
def test_inputs_and_subsets_of_a_folder(convert: Run, tmp_path: Path, target: str) -> None:
    data = tmp_path / "data"
    convert(VOC, data / "in", "--to", target).succeeded()
    before = files_in(data)
    for out in (data / "in", data / "in" / "out"):
        line = convert(data / "in", out, "--to", target, "--overwrite").refused()
        assert "an input; choose another location" in line
    assert files_in(data) == before
    out = tmp_path / "b"
    done = convert(data / "in", out, "--set", "val", "--to", "shards")
    assert done.out.startswith(f"{out}: val: 4 images, 14 objects\nlabel map: ")
    line = convert(data / "in", tmp_path / "c", "--set", "tset", "--to", "shards").refused()
    assert "choose another --set: train, val\n" in line and not (tmp_path / "c").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_a_dry_run_says_what_the_conversion_does(convert: Run, tmp_path: Path, target: str) -> None:
    """When DEST is new, exists, and is to be replaced; and when SOURCE lacks its images."""
    out, named = tmp_path / "out", (VOC, tmp_path / "out", "--to", target)
    for options in ((), (), ("--overwrite",), ("--images", tmp_path / "missing")):
        before = files_in(tmp_path)
        dry = convert(*named, *options, "--dry-run")
        assert files_in(tmp_path) == before and out.exists() is bool(before)
        done = convert(*named, *options)
        assert (dry.code, dry.err) == (done.code, done.err) and dry.out.startswith(done.out)
        files = dry.out.removeprefix(done.out)
        assert bool(files) is (done.code == 0)
        if not before:
            assert files.startswith(f"{len(files_in(out))} files would be written:\n")
        assert ("instead of existing files:\n" in files) is ("--overwrite" in options)


@pytest.mark.parametrize("target", FILES)
def test_overwrite_a_file(convert: Run, tmp_path: Path, dataset: Path, target: str) -> None:
    out = tmp_path / "out" / FILES[target]
    convert(dataset, out).succeeded()
    before = files_in(out.parent)
    change(dataset)
    assert f"{out} already exists; " in convert(dataset, out).refused()
    assert files_in(out.parent) == before
    convert(dataset, out, "--overwrite").succeeded()
    after = files_in(out.parent)
    assert [one for one in after if after[one] != before[one]] == [out.name]


def test_images_elsewhere_appear_together_with_the_file(
    convert: Run, tmp_path: Path, dataset: Path
) -> None:
    convert(dataset, tmp_path / "s.record").succeeded()
    out = tmp_path / "out"
    named = (tmp_path / "s.record", out / "x.json", "--images", out / "images")
    convert(*named).succeeded()
    write_files(out, {"images/mine.txt": b"1", "x.json": b"2"})
    (out / "images" / "s" / one_image.NAME).write_bytes(b"3")
    before = files_in(out)
    assert f"{out / 'x.json'} already exists; " in convert(*named).refused()
    for number in (1, 2, 3, 4):
        with at_rename(number, fail):
            convert(*named, "--overwrite").refused()
        assert files_in(out) == before
    convert(*named, "--overwrite").succeeded()
    after = files_in(out)
    assert after.keys() == before.keys() and after["images/mine.txt"] == b"1"
    assert b"2" not in after.values() and b"3" not in after.values()


@pytest.mark.parametrize("source", ["", "Annotations"])
def test_shards_may_be_next_to_their_source(convert: Run, tmp_path: Path, source: str) -> None:
    data = shutil.copytree(VOC, tmp_path / "a")
    before = files_in(data)
    convert(data / source, data / source / "x.record", "--set", "train").succeeded()
    assert before.items() <= files_in(data).items()


def test_shards_of_another_number_are_replaced(convert: Run, tmp_path: Path) -> None:
    others = {"p.record-00000-of-00003.bak": b"1", "pp.record": b"2", "sub/p.record": b"3"}
    write_files(tmp_path, others)
    out = tmp_path / "p.record"
    convert(VOC, out, "--num-shards", 3, "--set", "train").succeeded()
    said = convert(VOC, out, "--set", "val", "--overwrite", "--dry-run").out
    assert "1 file would be written:\n" in said and "3 files would be deleted:\n" in said
    convert(VOC, out, "--set", "val", "--overwrite").succeeded()
    assert files_in(tmp_path).keys() == {*others, "p.record", "label_map.pbtxt"}
    assert others.items() <= files_in(tmp_path).items()


@pytest.mark.parametrize("target", FORMATS)
def test_the_folder_may_be_on_another_disk(
    convert: Run, tmp_path: Path, dataset: Path, target: str
) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk")
    with tempfile.TemporaryDirectory(dir=memory) as there:
        (tmp_path / "out").symlink_to(there)
        convert(dataset, tmp_path / "out", "--to", target).succeeded()
        convert(dataset, tmp_path / "new", "--to", target).succeeded()
        assert files_in(Path(there)) == files_in(tmp_path / "new")


@pytest.mark.parametrize("target", FILES)
def test_one_file_is_one_subset(convert: Run, tmp_path: Path, target: str) -> None:
    out = tmp_path / FILES[target]
    if target == "cvat_xml":  # has the subsets of all images in one
        convert(VOC, out).succeeded()
        return
    line = convert(VOC, out).refused()
    assert "train" in line and "val" in line and "; pass a folder" in line and not out.exists()
    convert(VOC, out, "--set", "val", "--no-images").succeeded()
    assert out.is_file()


def test_a_pipe_is_not_a_shard(convert: Run, tmp_path: Path, dataset: Path) -> None:
    os.mkfifo(tmp_path / "p.record")
    line = convert(dataset, tmp_path / "p.record", "--overwrite").refused()
    assert "p.record is not a regular file" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "p.record"]


# New shards are checked before they appear


@pytest.mark.parametrize("kind", one_image.FORMATS)
def test_invalid_shards_are_not_written(convert: Run, tmp_path: Path, kind: str) -> None:
    """The second half of the image is missing."""
    noise = file_of(Image.effect_noise((200, 100), 50), "JPEG")
    (tmp_path / one_image.NAME).write_bytes(noise[: len(noise) // 2])
    ran = convert(*one_image.FORMATS[kind](tmp_path, (200, 100), [(20, 10, 100, 50)]))
    assert ran.code == 2 and ran.out == "" and not (tmp_path / "out").exists()
    first, error = ran.err.splitlines()
    assert first == "tfod: nothing was written: the result would be INVALID, 1 error"
    assert error.startswith(f"  {'default' if kind == 'voc' else 'a'}, {one_image.NAME}: ")
    assert "(IMG009)" in error


def test_ids_begin_at_1(convert: Run, tmp_path: Path) -> None:
    """In the OD API, only the background has the id 0."""
    shutil.copy(IMAGES / "shapes_01.jpg", tmp_path / one_image.NAME)
    odd = tmp_path / "odd.pbtxt"
    odd.write_text("item { id: 0 name: 'cat' }")
    dataset = one_image.FORMATS["voc"](tmp_path, None, [(20, 10, 100, 50)])
    convert(*dataset, "--label-map", odd).succeeded()
    assert by_filename(tmp_path / "out")[one_image.NAME].class_label == [1]


def test_ten_errors_are_named_of_more(convert: Run, tmp_path: Path) -> None:
    """The trainer of the OD API cannot use GIFs."""
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for number in range(12):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number:02}.gif")
        rows.append(f"{number:02}.gif,20,20,cat,1,1,9,9")
    (tmp_path / "a.csv").write_text("\n".join(rows))
    ran = convert(tmp_path / "a.csv", tmp_path / "out" / "x.record")
    lines = ran.err.splitlines()
    assert ran.code == 2 and len(lines) == 12
    assert lines[0].endswith("would be INVALID, 12 errors") and lines[-1] == "  and 2 more"
    assert lines[1].startswith("  a, 00.gif: ") and "(IMG005)" in lines[1]
    assert "script" not in ran.err

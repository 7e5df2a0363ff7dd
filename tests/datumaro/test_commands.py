"""Command lines of Datumaro 0.3 and 1.x, as a user types them."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tfod.datumaro.commands import without_project

from tests.datumaro.conftest import Datum, content, import_dataset, is_old_line
from tests.records import image, objects

EXAMPLES = Path(__file__).parents[2] / "examples"
VOC = EXAMPLES / "shapes_voc"


def test_export_as_it_is_typed(tmp_path: Path, datum: Datum) -> None:
    """``datum export -f tf_detection_api -p PROJECT -o DIR -- --save-images``."""
    if is_old_line():
        datum("create -o project")
        datum(f"import -p project -f voc {VOC}")
    else:
        shutil.copytree(VOC, tmp_path / "project")
    datum("export -f tf_detection_api -p project -o out -- --save-images --num-shards 2")
    files = [f"{x}-0000{n}-of-00002.tfrecord" for x in ("train", "val") for n in (0, 1)]
    assert sorted(os.listdir(tmp_path / "out")) == ["label_map.pbtxt", *files]
    datum("convert -i out -if tf_detection_api -o coco -f coco_instances -- --save-media")
    assert (tmp_path / "coco" / "annotations" / "instances_train.json").is_file()
    found = content(import_dataset(tmp_path / "out"))
    assert len(found) == 12 and all(one["image"] for one in found.values())
    image_file = next((VOC / "JPEGImages").glob("shapes_01.*"))
    assert found["shapes_01", "train"]["image"] == image_file.read_bytes()


def test_the_recipe_of_masks_on_the_page_of_cvat(tmp_path: Path, datum: Datum) -> None:
    """A folder instead of the project that Datumaro 0.3 wants; with --save-masks."""
    datum(f"convert -i {EXAMPLES}/shapes_coco -if coco -o proj -f datumaro -- --save-media")
    datum("transform -t polygons_to_masks -p proj -o ptm")
    datum("transform -t boxes_to_masks -p ptm -o btm")
    output = datum("export -f tf_detection_api -p btm -o boxes -- --save-images")
    (count,) = re.findall(r"box: (\d+) mask \(--save-masks writes their masks too\)", output)
    masks = datum("export -f tf_detection_api -p btm -o masks -- --save-images --save-masks")
    assert "box" not in masks
    kinds = {
        name: Counter(
            one.type.name
            for item in import_dataset(tmp_path / name)
            for one in item.annotations
            if one.type.name in ("bbox", "mask")
        )
        for name in ("boxes", "masks")
    }
    assert kinds == {"boxes": {"bbox": int(count)}, "masks": {"mask": int(count)}}


@pytest.mark.parametrize(
    ("broken", "state"),
    [
        (lambda data: data[:-500], "cut short"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
    ],
)
def test_a_damaged_image_is_named(
    tmp_path: Path, datum: Datum, broken: Callable[[bytes], bytes], state: str
) -> None:
    shutil.copytree(VOC, tmp_path / "voc")
    photo = tmp_path / "voc" / "JPEGImages" / "shapes_04.jpg"
    photo.write_bytes(broken(photo.read_bytes()))
    output = datum("convert -i voc -if voc -f tf_detection_api -o o -- --save-media", code=1)
    assert "Traceback" not in output and not (tmp_path / "o").exists()
    assert str(photo) in output and state in output


@pytest.mark.parametrize("name", ["a.record", "a-00000-of-00002.tfrecord"])
def test_format_is_detected(make_shard, tmp_path: Path, datum: Datum, name: str) -> None:
    record = image() | objects([[0, 0, 1, 1]], ["x"], [1]) | {"image/source_id": "1"}
    Path(make_shard("s", record)).rename(tmp_path / name)
    command = "detect-format" if is_old_line() else "detect"
    assert "Detected format: tf_detection_api" in datum(f"{command} .")


def damage(folder: Path) -> None:
    (shard,) = folder.glob("s.tfrecord")
    shard.write_bytes(shard.read_bytes()[:-1])


ERRORS: dict[str, tuple[Any, str, Sequence[str]]] = {
    "a damaged shard": (damage, "voc", ["s.tfrecord, record 1, byte ", "the file ends inside"]),
    "an inverted box": (objects([[0.5, 0, 0.1, 1]], ["x"], [1]), "voc",
                        ["record 0, byte 0: image/object/bbox box 0 is inverted"]),
    "an empty folder": (lambda folder: (folder / "s.tfrecord").unlink(), "voc",
                        ["no shard in this folder"]),
    "two options": ({}, "tf_detection_api -- --num-shards 2 --shard-size 1MB",
                    ["exclude each other"]),
    "a file": (lambda folder: (folder / "o").touch(), "tf_detection_api", ["File exists"]),
    "no mask": (objects([[0, 0, 1, 1]], ["x"], [1]) | {"image/object/mask": [b"no"]},
                "tf_detection_api -- --save-masks",
                ["a mask cannot be decoded", "s.tfrecord, byte "]),
}  # fmt: skip
"""Features of the first record, or a change of its folder; -f; words of the line."""


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_one_line(make_shard, tmp_path: Path, datum: Datum, kind: str) -> None:
    """With the location and the reason; the exit code is 1."""
    odd, target, words = ERRORS[kind]
    make_shard("s", image("a.jpg") | ({} if callable(odd) else odd), image("b.jpg"))
    if callable(odd):
        odd(tmp_path)
    output = datum(f"convert -i . -if tf_detection_api -o o -f {target}", code=1)
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if "ERROR" in line]
    assert len(lines) == 1 and output.splitlines()[-1] == lines[0], output
    assert all(one in lines[0] for one in words)


def test_the_parser_checks_options_and_lists_formats(datum: Datum) -> None:
    for options in ("--num-shards 0", "--shard-size 0.0001"):
        output = datum(f"convert -f tf_detection_api -- {options}", code=2)
        assert output.splitlines()[-1].startswith("tf_detection_api: error: argument --")
    output = datum("convert -h")
    assert output.count("tf_detection_api") >= 2 and "roboflow_tfrecord" in output


@pytest.mark.skipif(is_old_line(), reason="Datumaro 0.3 has its own export command")
class TestExportCommand:
    """The command ``datum export`` of tfod on Datumaro 1.x."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("-f nope", "'nope' is not found"),
            ("-f coco -p missing", "missing: no such folder"),
            ("-f coco -p empty", "no dataset format was detected"),
            ("-f coco -o full", "already exists"),
            ("-f coco -if nosuch", "nosuch"),
            ("-f coco -e /item[", "is not an XPath expression"),
        ],
    )
    def test_errors(self, tmp_path: Path, datum: Datum, arguments: str, message: str) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        output = datum(f"export {arguments}", code=1)
        assert message in output and "Traceback" not in output

    def test_help_shards_and_defaults(self, make_shard, tmp_path: Path, datum: Datum) -> None:
        assert "--overwrite" in datum("export -h")
        record = image() | objects([[0, 0, 1, 1]], ["x"], [1])
        datum(f"export -f coco -p {make_shard('s', record, folder=tmp_path / 's')} -o o")
        assert (tmp_path / "o" / "annotations").is_dir()
        shutil.copytree(VOC, tmp_path / "voc")
        datum("export -f tf_detection_api -if voc -p voc -e /item[subset='val']")
        (made,) = tmp_path.glob("export-tf_detection_api*")
        assert {item.subset for item in import_dataset(made)} == {"val"}


@pytest.mark.parametrize(
    ("typed", "has_export", "expected"),
    [
        ("transform -t a -p x -o y", True, "transform -t a -o y x"),
        ("transform --project x -t a -o y -- -e b", False, "transform -t a -o y x -- -e b"),
        ("transform -t a -o y -- -p x", True, "transform -t a -o y -- -p x"),
        ("transform x -t a", True, "transform x -t a"),
        ("transform -t a -p", True, "transform -t a -p"),
        ("transform -t a -p project", False, "transform -t a -p project"),
        ("export -f a -p x -o y -- -b", True, "export -f a -p x -o y -- -b"),
        ("export -f a -p x -o y -- -b", False, "convert -f a -i x -o y -- -b"),
        ("export -f a -p project", False, "export -f a -p project"),
        ("stats -p x", True, "stats -p x"),
        ("", True, ""),
    ],
)
def test_a_folder_instead_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, has_export: bool, expected: str
) -> None:
    (tmp_path / "project" / ".datumaro").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert without_project(typed.split(), has_export=has_export) == expected.split()

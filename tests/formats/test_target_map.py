"""New files have the ids of the label map in their folder, which stays the only one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tfod import read_detections
from tfod.detection.labels.label_map import read_label_map
from tfod.formats.table import FORMATS

from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.formats import one_image
from tests.formats.conftest import IMAGES
from tests.formats.one_image import NAME
from tests.records import encode, image, objects, write_shard

NAMES = [
    *("label_map.pbtxt", "labelmap.pbtxt", "train_label_map.pbtxt", "a labelmap.pbtxt"),
    *("object-detection.pbtxt", "classes.pbtxt"),
]
COMMANDS = {
    "folder": ("convert", "in/train.csv", "out", "--to", "shards"),
    "file": ("convert", "in/train.csv", "out/train.record"),
    "coco": ("convert", "in/train.record", "out/train.json"),
    "csv": ("convert", "in/train.record", "out/train.csv"),
    "shards": ("convert", "in/train.record", "out", "--to", "shards"),
    "reshard": ("reshard", "in/train.record", "out"),
}
BOX, SQUARE = (20, 10, 100, 50), (0.1, 0.2, 0.3, 0.4)
OURS = "# ours\nitem { id: 7 name: 'dog' } # no line break"


@pytest.fixture(autouse=True)
def sources(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cat in a CSV and in a shard, where it has the id 1."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    shutil.copy(IMAGES / "shapes_01.jpg", Path("in", NAME))
    Path(str(one_image.csv(Path("in"), None, [BOX])[0])).rename("in/train.csv")
    run("convert", "in/train.csv", "in/train.record").succeeded()


def ids_of_cat(out: Path) -> set[int]:
    """Return the ids of cat in the shards and JSON files of a folder."""
    shards = read_detections(out) if [*out.glob("*record*")] else ()
    documents = (json.loads(path.read_text()) for path in out.glob("*.json"))
    categories = (one for document in documents for one in document["categories"])
    return {one.class_label[0] for one in shards} | {
        one["id"] for one in categories if one["name"] == "cat"
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_class_is_refused_or_appended(run: Run, name: str, command: str) -> None:
    out, label_map = Path("out"), Path("out", name)
    write_files(out, {name: OURS, "pipeline.pbtxt": "node { op: 'x' }"})
    line = run(*COMMANDS[command]).refused()
    assert str(label_map) in line and "'cat'" in line and "--overwrite" in line
    assert files_in(out).keys() == {name, "pipeline.pbtxt"}
    done = run(*COMMANDS[command], "--overwrite")
    assert "'cat' (8)" in done.succeeded() and str(label_map) in done.out
    assert label_map.read_text().startswith(OURS)
    assert read_label_map(label_map)[0].class_names == {7: "dog", 8: "cat"}
    assert {*out.glob("*.pbtxt")} == {label_map, out / "pipeline.pbtxt"}
    assert ids_of_cat(out) <= {8}
    before = label_map.read_bytes()
    run(*COMMANDS[command], "--overwrite").succeeded()
    assert label_map.read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("named", [False, True])
def test_another_id_of_a_class_is_refused(run: Run, command: str, named: bool) -> None:
    """Another file in the folder or the named label map has another id."""
    other = "item { id: 3 name: 'cat' }"
    write_files(Path(), {"out/label_map.pbtxt": OURS.replace("dog", "cat")})
    write_files(Path(), {"in/label_map.pbtxt" if named else "out/others.pbtxt": other})
    before = files_in(Path("out"))
    option = ("--label-map", "in/label_map.pbtxt") if named else ()
    for more in ((), ("--overwrite",)):
        line = run(*COMMANDS[command], *option, *more).refused()
        assert "'cat' has the id 7 in out/label_map.pbtxt, but 3 in " in line
        assert files_in(Path("out")) == before


def test_ids_of_the_source_become_those_of_the_folder(run: Run) -> None:
    write_files(Path("out"), {"labelmap.pbtxt": "item { id: 5 name: 'cat' }"})
    with open("in/label_map.pbtxt", "a") as label_map:
        label_map.write("item { id: 9 name: 'emu' }")
    for name in ("folder", "shards", "reshard"):
        said = run(*COMMANDS[name], "--overwrite").succeeded()
        assert "in/label_map.pbtxt: the id of 'cat' changed from 1 to 5" in said
        assert "omitted classes that no record has: 'emu'" in said
        assert ids_of_cat(Path("out")) == {5}


@pytest.mark.parametrize(
    ("label_map", "said"),
    [
        ("item { id: 0 name: 'cat' }", "'cat' has the id 0"),
        ("item { name: ", "is not a label map"),
        ("item { id: 2 name: 'dog' }".encode("utf-16").decode("latin-1"), "save it as UTF-8"),
    ],
)
def test_a_label_map_that_cannot_be_kept_is_refused(run: Run, label_map: str, said: str) -> None:
    Path("out").mkdir()
    Path("out/labelmap.pbtxt").write_text(label_map, "latin-1")
    for command in COMMANDS.values():
        assert said in run(*command, "--overwrite").refused()
    assert [*Path("out").iterdir()] == [Path("out/labelmap.pbtxt")]


def test_reshard_keeps_the_ids_of_a_named_label_map(run: Run) -> None:
    write_files(Path(), {"own.pbtxt": OURS})
    done = run(*COMMANDS["reshard"], "--label-map", "own.pbtxt")
    assert "label map: own.pbtxt" in done.out and "'cat' (8)" in done.succeeded()
    assert read_label_map("out/label_map.pbtxt")[0].class_names == {7: "dog", 8: "cat"}
    assert Path("own.pbtxt").read_text() == OURS and ids_of_cat(Path("out")) == {8}


@pytest.mark.parametrize("names", [{1: "cat", 2: "dog"}, {}])
@pytest.mark.parametrize("target", FORMATS)
def test_ids_without_a_class_are_refused(run: Run, target: str, names: dict[int, str]) -> None:
    """Ids off by one; without any label map, 0 would be the background."""
    items = "".join(f"item {{ id: {number} name: '{name}' }}" for number, name in names.items())
    record = encode(image() | objects([SQUARE] * 3, None, [0, 1, 3]))
    shard = write_shard(Path("off"), "train", record, label_map=items or None)
    line = run("convert", shard, "new", "--to", target, "--no-images").refused()
    ids, where = ("0, 3", "off/label_map.pbtxt") if names else ("0", "no label map")
    assert f"ids {ids} have no text, and" in line and where in line and not Path("new").exists()
    assert f"ids {ids} have no text" in run("diff", shard, shard).out
    assert "ids without a class name: 0" in run("describe", shard).out


def test_classes_of_images_follow_their_ids(run: Run) -> None:
    labels = {"image/class/label": [1], "image/neg_category_ids": [1]}
    for name, more in (("cat", {}), ("dog", labels)):
        record = encode(image(f"{name}.jpg") | objects([SQUARE], [name], [1]) | more)
        label_map = f"item {{id: 1 name: '{name}'}}"
        write_shard(Path("both", name), name, record, label_map=label_map)
    run("convert", "both", "new", "--to", "shards", "--no-images").succeeded()
    run("reshard", "both", "same").succeeded()
    for out in ("new", "same"):
        (dog,) = [one for one in read_detections(out) if one.filename == "dog.jpg"]
        (label,) = dog.image_labels
        assert (label.label, dog.class_label) == (2, [2])
        assert dog.image_attributes == {"neg_category_ids": [2]}


@pytest.mark.parametrize("name", ["coke ", "\tcoke"])
def test_spaces_around_a_class_are_reported(run: Run, name: str) -> None:
    """In the other formats; COCO keeps them."""
    files = {
        "voc/a.xml": f"<annotation><filename>{NAME}</filename><object><name>{name}</name><bndbox>"
        "<xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>",
        "csv/a.csv": f'filename,class,xmin,ymin,xmax,ymax\n{NAME},"{name}",1,1,9,9\n',
        "yolo/obj.names": f"{name}\n",
        "yolo/000001.txt": "0 0.5 0.5 0.2 0.2\n",
    }
    write_files(Path(), files)
    for kind in ("voc", "csv", "yolo"):
        shutil.copy(Path("in", NAME), kind)
        assert repr(name) in run("convert", kind, f"{kind}.record").succeeded()


@pytest.mark.parametrize("label_map", ["item { id: 4 name: 'cat' }", "item { id: 1 name: 'cat' }"])
@pytest.mark.parametrize("inside", ["train", ""])
def test_reshard_leaves_no_folder_without_a_label_map(
    run: Run, inside: str, label_map: str
) -> None:
    record = encode(image() | objects([SQUARE], ["cat"], [1]))
    for name in ("train", "valid"):
        path = Path(write_shard(Path("two", name), name[0], record))
        path.with_name("label_map.pbtxt").rename(path.with_name(f"{name[0]}_label_map.pbtxt"))
    own = Path("out", inside, "labelmap.pbtxt")
    write_file(own, label_map)
    run("reshard", "two", "out").succeeded()
    maps = [*Path("out").rglob("*.pbtxt")]
    assert own in maps and {one.read_text() for one in maps} == {label_map}
    assert len(maps) == 1 + bool(inside)

"""The paths and options of ``tfod convert``, its errors, and unusual names."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tfod.detection.images.mask_images import encode_mask_png
from tfod.sources.reading import read_detections

from tests.commands import Run, run_python
from tests.files import files_in, write_file, write_files
from tests.records import encode, image, objects, write_shard

EXAMPLES = Path(__file__).parents[2] / "examples"
_PNG = encode_mask_png(np.zeros((100, 200), bool))
BOX = objects([[0.25, 0.5, 0.5, 1]], ["cat"], [1])


def write(folder: Path, names: list[str], subset: str = "train", **features: object) -> Path:
    """Write a shard of different images with these names."""
    records = [
        encode(image(name) | features | {"image/encoded": _PNG + f"{subset}{row}".encode()})
        for row, name in enumerate(names)
    ]
    return Path(write_shard(folder, subset, *records)).parent


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two subsets, one with an image without objects."""
    write(tmp_path / "s", ["a.png"], **BOX)
    return write(tmp_path / "s", ["b.png"], "val")


def annotations(images: str, labels: str = "<label><name>cat</name></label>") -> str:
    """Return CVAT's XML of these images."""
    return (
        f"<annotations><version>1.1</version><meta><task><labels>{labels}</labels></task></meta>"
        f"{images}</annotations>"
    )


LAYOUTS = {
    "coco": [
        *("annotations/instances_train.json", "annotations/instances_val.json"),
        *("images/train/a.png", "images/val/b.png"),
    ],
    "voc": [
        *("Annotations/a.xml", "Annotations/b.xml", "ImageSets/Main/train.txt"),
        *("ImageSets/Main/val.txt", "JPEGImages/a.png", "JPEGImages/b.png"),
        *("label_map.pbtxt", "labelmap.txt"),
    ],
    "yolo": [
        *("data.yaml", "images/train/a.png", "images/val/b.png"),
        *("labels/train/a.txt", "labels/val/b.txt"),
    ],
    "cvat_xml": ["annotations.xml", "images/train/a.png", "images/val/b.png"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_and_way_back(run: Run, shards: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    done = run("convert", shards, out, "--to", name)
    assert (done.code, done.err) == (0, "")
    lines = [f"{out}: train: 1 image, 1 object", f"{out}: val: 1 image, 0 objects"]
    assert done.out.splitlines()[:2] == lines
    assert sorted(files_in(out)) == LAYOUTS[name]
    back = run("convert", out, tmp_path / "back")  # which recognizes the format
    assert back.out.startswith("\n".join(lines).replace(str(out), str(tmp_path / "back")))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["back", "out", "s"]


@pytest.mark.usefixtures("shards")
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_full_disk_is_one_line_with_the_target(tmp_path: Path, name: str) -> None:
    pytest.importorskip("resource")  # not on Windows
    command = ("-X", "dev", "-m", "tfod", "convert", "s", "out", "--to", name, "--no-images")
    how = {"PYTHONDONTWRITEBYTECODE": "1"}  # its files would be cut, too
    # In development mode, as in Python 3.14, the unwritten end of a file is an error.
    line = run_python(*command, folder=tmp_path, largest_file=30, **how).refused()
    assert line.startswith("tfod: out") and "cannot be written (File too large)" in line
    assert ".tmp" not in line and [one.name for one in tmp_path.iterdir()] == ["s"]


def test_one_file(run: Run, shards: Path, tmp_path: Path) -> None:
    source, target = shards / "train.tfrecord", tmp_path / "a.json"
    done = run("convert", source, target)
    assert "images not written; choose a folder for them with --images: 1" in done.err
    expected = [{"id": 1, "width": 200, "height": 100, "file_name": "a.png"}]
    assert json.loads(target.read_text())["images"] == expected
    assert run("convert", source, tmp_path / "b.json", "--images", tmp_path / "images").err == ""
    assert (tmp_path / "images" / "train" / "a.png").read_bytes() == _PNG + b"train0"
    assert run("convert", source, tmp_path / "c.json", "--no-images").err == ""
    assert run("convert", shards, tmp_path / "d.xml", "--no-images").err == ""


INVALID = {
    "ZIP": "no zip",
    "JSON": '{"images": 1}',
    "XML": "<annotations/>",
    "YAML": "names: [cat]\ntrain: images\n",
    "NOTRAIN.YAML": "names: [cat]\n",
    "NESTED.YAML": "names: [[cat]]\ntrain: .\n",
    "EMPTY.CSV": "filename,width,height,class,xmin,ymin,xmax,ymax\n",
    "TRACKS": annotations(
        '<image id="0" name="a" width="9" height="9"/><track id="0" label="cat"/>'
    ),
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("S OUT/a.json", "is one file, but the dataset needs 2"),
        ("S OUT/x", "SOURCE is shards, so the format of DEST is unclear; choose it with --to: "),
        ("S S --to coco", "is an input"),
        ("S ZIP --to coco", "already exists; write to another folder"),
        ("nothing OUT/x.json", "nothing: no such file or folder"),
        ("OUT OUT/x.json", "is empty; pass the folder or zip with the shards or the annotations"),
        ("OUT x --from yolo", "contains none of data.yaml"),
        ("OUT x --from coco", "contains no JSON of COCO's instances"),
        ("S OUT/x.json --label-map nothing", "nothing"),
        ("ZIP OUT/x.json", "data.zip: is not a readable zip: "),
        ("JSON OUT/x", "is not COCO JSON"),
        ("XML OUT/x", "has no <meta>"),
        ("TRACKS OUT/x --from cvat_xml", "has tracks; export the task as CVAT for images"),
        ("YAML OUT/x", "data.yaml: images does not exist; correct it or the value of path"),
        ("NOTRAIN.YAML OUT/x", "names no folder of images; add train: images/train"),
        ("NESTED.YAML OUT/x", "has a class without a name"),
        ("EMPTY.CSV OUT/x", "nothing is written: the annotations contain no image"),
        ("S gs://a/b --to coco", "cannot write to a URL"),
        ("S OUT/x --to coco --images OUT/x", "images cannot be written there"),
        ("S OUT/x --to coco --images OUT/x/i", "images cannot be written there"),
        ("S OUT/x.tfrecord", "is one shard, but there are several subsets: train, val"),
        ("COCO OUT/x --images OUT", "images that are missing: 12"),
        ("COCO OUT/x --images nowhere", "--images nowhere: no such folder"),
        ("COCO OUT/x.zip", "shards would be written to a folder of this name; remove .zip"),
        ("S OUT/x --to yolo --ignore-difficult", "only applies to Pascal VOC; remove it"),
        ("S OUT/x.json --num-shards=5", "only shards can be"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    run: Run, shards: Path, tmp_path: Path, arguments: str, message: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    names = {"S": shards, "OUT": out, "COCO": EXAMPLES / "shapes_coco"}
    names |= {x: write_file(tmp_path / f"data.{x.lower()}", text) for x, text in INVALID.items()}
    typed = [str(names.get(x, x)).replace("OUT/", f"{out}/") for x in arguments.split()]
    done = run("convert", *typed)
    assert message in done.refused() and done.out == "" and not list(out.iterdir())


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image/object/bbox/xmax": [0.5, 1.0]}, "image/object/bbox"),
        ({"image/object/class/text": [""], "image/object/class/label": [0]}, "without a class"),
    ],
)
def test_invalid_records(
    run: Run, tmp_path: Path, features: dict[str, object], message: str
) -> None:
    shard = write_shard(tmp_path / "s", "train", encode(image() | BOX | features))
    assert message in run("convert", shard, tmp_path / "x.json").refused()
    assert not (tmp_path / "x.json").exists()


def test_ids_of_images(run: Run, tmp_path: Path) -> None:
    records = [encode(image() | {"image/source_id": x}) for x in ("7", "a.jpg", "7", "", "x")]
    shard = write_shard(tmp_path / "s", "train", *records)
    done = run("convert", shard, tmp_path / "x.json")
    assert "source ids that are not a unique number, replaced by a new id: 2" in done.err
    images = json.loads((tmp_path / "x.json").read_text())["images"]
    assert [one["id"] for one in images] == [7, 1, 2, 3, 4]
    names = ["a.jpg", "a~2.jpg", "a~3.jpg", "a~4.jpg", "a~5.jpg"]
    assert [one["file_name"] for one in images] == names


def test_classes_of_several_label_maps(run: Run, tmp_path: Path) -> None:
    for folder, name in (("train", "cat"), ("val", "dog")):
        record = encode(image() | objects([[0, 0, 1, 1]] * 2, [name, "bird"], [1, 5]))
        label_map = f"item {{ id: 1 name: '{name}' }}"
        write_shard(tmp_path / "s" / folder, folder, record, label_map=label_map)
    assert run("convert", tmp_path / "s", tmp_path / "out", "--to", "coco").code == 0
    for subset, used in (("train", [1, 5]), ("val", [2, 5])):
        found = json.loads((tmp_path / f"out/annotations/instances_{subset}.json").read_text())
        assert [one["category_id"] for one in found["annotations"]] == used
        names = {one["id"]: one["name"] for one in found["categories"]}
        assert names == {1: "cat", 2: "dog", 5: "bird"}


def test_a_class_name_with_two_ids(run: Run, tmp_path: Path) -> None:
    record = encode(image("a.png") | objects([[0.25, 0.5, 0.5, 1]], label=[2]))
    twice = "item { id: 1 name: 'cat' } item { id: 2 name: 'cat' }"
    write_shard(tmp_path / "s", "train", record, label_map=twice)
    says = run("convert", tmp_path / "s", tmp_path / "out", "--to", "coco").succeeded()
    assert "'cat' has the ids 1 and 2, which are read as one class" in says


# YOLO and Pascal VOC


def test_keys_of_data_yaml_that_are_not_subsets(run: Run, tmp_path: Path) -> None:
    """Ultralytics documents some; a folder may have the name of its key."""
    folders = ("images/val", "images/extra", "docs")
    text = "val: images/val\nextra: images/extra\nlicense: MIT\nauthor: docs\nlogo: docs/a.png\n"
    files = {f"{folder}/a.png": _PNG + folder.encode() for folder in folders}
    files |= {"labels/val/a.txt": b"", "data.yaml": f"path: .\n{text}names: [cat]\n".encode()}
    done = run("convert", write_files(tmp_path / "d", files), tmp_path / "out")
    assert done.code == 0 and done.out.splitlines()[:-1] == [
        f"{tmp_path}/out: {subset}: 1 image, 0 objects" for subset in ("val", "extra")
    ]


@pytest.mark.parametrize("subset", ["train", "images"])
def test_labels_of_yolo_are_where_ultralytics_looks(run: Run, tmp_path: Path, subset: str) -> None:
    """Ultralytics replaces the last ``images`` of a path by ``labels``."""
    names = ["a.png", "images/a.png", "labels/a.png", "x/images/images/a.png"]
    source = write(tmp_path / "s", names, subset, **BOX)
    assert run("convert", source, tmp_path / "out", "--to", "yolo").code == 0
    found = sorted((tmp_path / "out").rglob("*.png"))
    assert [str(one.relative_to(tmp_path / "out/images" / subset)) for one in found] == names
    for one in found:
        parts = "labels".join(str(one).rsplit("images", 1))
        assert Path(parts).with_suffix(".txt").read_text() == "0 0.375 0.75 0.25 0.5\n"
    done = run("convert", tmp_path / "out", tmp_path / "back")
    assert done.out.startswith(f"{tmp_path}/back: {subset}: 4 images, 4 objects\n")


RESERVED = "the subset {!r} has a reserved name in data.yaml; rename it"
SAME_LABELS = "image {!r} cannot be written, because YOLO would use the same label file"


@pytest.mark.parametrize(
    ("target", "subset", "names", "message"),
    [
        *(("yolo", name, ["a.png"], RESERVED) for name in ("path", "names", "nc", "download")),
        ("yolo", "train", ["images/labels/a.png", "labels/images/a.png"], SAME_LABELS),
        ("yolo", "train", ["a.png", "a.txt/b.png"], SAME_LABELS),
        ("coco", "train", ["q.png/b.png", "q.png"], "image {!r} cannot be written, because"),
    ],
)
def test_names_that_cannot_be_written(
    run: Run, tmp_path: Path, target: str, subset: str, names: list[str], message: str
) -> None:
    source = write(tmp_path / "s", names, subset)
    refused = run("convert", source, tmp_path / "out", "--to", target).refused()
    assert message.format(subset if message == RESERVED else names[1]) in refused
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["night_train", "aeroplane_train"])
def test_subsets_of_voc_with_the_name_of_a_class_list(run: Run, tmp_path: Path, name: str) -> None:
    """The names of images end like a flag in a list."""
    for number, subset in enumerate(("train", name), 1):
        write(tmp_path / "s", [f"{subset} {n}.png" for n in range(number)], subset)
    assert run("convert", tmp_path / "s", tmp_path / "voc", "--to", "voc").code == 0
    done = run("convert", tmp_path / "voc", tmp_path / "back")
    assert done.code == 0 and sorted(done.out.splitlines())[:-1] == [
        f"{tmp_path}/back: {name}: 2 images, 0 objects",
        f"{tmp_path}/back: train: 1 image, 0 objects",
    ]


@pytest.mark.parametrize("target", ["voc", "csv"])
def test_names_with_spaces_at_their_ends(run: Run, tmp_path: Path, target: str) -> None:
    """Every reader strips the lines of VOC's lists, and would not find the files."""
    shards = write(tmp_path / "s", ["a .png", " a.png", "b/ c.png", "c,d\n.png"], **BOX)
    line = run("convert", shards, tmp_path / target, "--to", target).succeeded()
    assert "image names with leading or trailing spaces, written without them: 2\n" in line
    done = run("convert", tmp_path / target, tmp_path / "back")
    assert done.code == 0 and "train: 4 images, 4 objects" in done.out
    found = {one.filename for one in read_detections(str(tmp_path / "back"))}
    assert {"a.png", "a~2.png", "b/ c.png"} < found
    for name in (" cat", "dog ", " "):
        (tmp_path / "s" / "label_map.pbtxt").write_text(f"item {{id: 2 name: '{name}'}}")
        refused = run("convert", shards, tmp_path / "x", "--to", target).refused()
        assert f"class {name!r} is empty or has leading or trailing spaces" in refused


@pytest.mark.parametrize("target", ["coco", "voc", "yolo", "cvat_xml"])
def test_unusual_names_of_images_are_read_again(run: Run, tmp_path: Path, target: str) -> None:
    names = ["a\nb.png", "\x1b.png", "c.txt", "c.txt.png", "../../d.png", "", "/e/f.png"]
    shards = write(tmp_path / "s", names, **objects([[0.25, 0.5, 0.5, 1]], ["c\rat"], [1]))
    (shards / "label_map.pbtxt").write_text("item {id: 1 name: 'c\\rat'}")
    assert run("convert", shards, tmp_path / "in" / "out", "--to", target).code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "s"]
    done = run("convert", tmp_path / "in" / "out", tmp_path / "back")
    assert done.code == 0 and f"train: {len(names)} images, {len(names)} objects" in done.out


@pytest.mark.parametrize("target", ["coco", "cvat_xml", "yolo", "voc"])
@pytest.mark.parametrize("subset", ["../../../evil", "/evil", ".."])
def test_subset_that_leads_out_of_the_output(
    run: Run, tmp_path: Path, target: str, subset: str
) -> None:
    frame = f'<image id="0" name="a.png" subset="{subset}" width="200" height="100"/>'
    files = {"a.png": _PNG, "annotations.xml": annotations(frame, "")}
    source = write_files(tmp_path / "a" / "b" / "source", files)
    line = run("convert", source, tmp_path / "a" / "b" / "out", "--to", target).refused()
    assert "cannot be the name of a folder" in line
    assert files_in(tmp_path).keys() == {f"a/b/source/{name}" for name in files}


# CVAT's XML


def test_frames_of_subsets_in_any_order(run: Run, tmp_path: Path) -> None:
    frames = (
        f'<image id="{n}" name="{n}.png" subset="{s}" width="200" height="100"/>'
        for n, s in enumerate(("train", "val", "train"))
    )
    write_files(tmp_path, {f"{number}.png": _PNG for number in range(3)})
    write_file(tmp_path / "a.xml", annotations("".join(frames)))
    run("convert", tmp_path / "a.xml", tmp_path / "out", "--to", "voc").succeeded()
    lists = tmp_path / "out" / "ImageSets" / "Main"
    names = {path.stem: path.read_text().split() for path in lists.iterdir()}
    assert names == {"train": ["0", "2"], "val": ["1"]}


def test_layers_and_rotations_of_cvat(run: Run, tmp_path: Path) -> None:
    box = '<box label="cat" occluded="0" xtl="1" ytl="2" xbr="30" ybr="40" z_order="{}"{}/>'
    mask = '<mask label="cat" rle="0, 4" left="1" top="1" width="2" height="2" z_order="-1"/>'
    shapes = box.format(0, "") + box.format(2, ' rotation="20.00"') + mask
    frame = f'<image id="0" name="a.png" width="200" height="100">{shapes}</image>'
    write_files(tmp_path, {"a.xml": annotations(frame), "a.png": _PNG})
    done = run("convert", tmp_path / "a.xml", tmp_path / "out", "--to", "shards", "--masks")
    assert "not written" not in done.succeeded()
    run("convert", tmp_path / "out", tmp_path / "xml", "--to", "cvat_xml").succeeded()
    (written,) = (tmp_path / "xml").rglob("*.xml")
    found = [(one.tag, one.get("z_order"), one.get("rotation"))
             for one in ElementTree.parse(written).findall("image/*")]  # fmt: skip
    assert found == [("box", "0", None), ("box", "2", "20"), ("mask", "-1", None)]
    done = run("convert", tmp_path / "out", tmp_path / "voc", "--to", "voc")
    assert "2 objects' rotation, z_order or group" in done.succeeded()


def test_masks_that_cvats_xml_cannot_hold(run: Run, tmp_path: Path) -> None:
    """One mask has no pixels, and one is not in its box."""
    part = np.zeros((100, 200), bool)
    part[10:20, 10:20] = True
    masks = {"image/object/mask": [encode_mask_png(one) for one in (np.zeros_like(part), part)]}
    boxes = objects([[0.1, 0.1, 0.4, 0.4]] * 2, ["cat"] * 2, [1] * 2)
    source = write(tmp_path / "s", ["a.png"], **boxes, **masks)
    says = run("convert", source, tmp_path / "out", "--to", "cvat_xml").succeeded()
    assert "boxes with masks, replaced by the enclosing box of the mask: 1" in says
    assert "masks without pixels, replaced by boxes: 1" in says


@pytest.mark.parametrize(
    "shape",
    ['polygon points="1,1;5,1;5,5"', 'mask rle="0, 4" left="-1" top="1" width="2" height="2"'],
)
def test_frames_too_large_for_masks(run: Run, tmp_path: Path, shape: str) -> None:
    frame = (
        f'<image id="0" name="a.png" width="60000" height="60000"><{shape} label="cat"/></image>'
    )
    write_files(tmp_path, {"a.png": _PNG, "annotations.xml": annotations(frame)})
    line = run("convert", tmp_path / "annotations.xml", tmp_path / "out", "--masks").refused()
    assert "a frame of 60000x60000 is too large for masks" in line


def test_one_image_of_two_names(run: Run, tmp_path: Path) -> None:
    """Only one of two cameras has the file. The other name may mean another image."""
    images = [{"id": n, "file_name": f"cam{n}/a.png", "width": 200, "height": 100} for n in (1, 2)]
    found = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    write_files(tmp_path, {"u.json": json.dumps(found), "a.png": _PNG})
    source = tmp_path / "u.json"
    assert not run("convert", source, tmp_path / "out.json", "--no-images").succeeded()
    says = run("convert", source, tmp_path / "voc", "--to", "voc").succeeded()
    assert "written as one record per annotation" in says and "cam2/a.png" in says

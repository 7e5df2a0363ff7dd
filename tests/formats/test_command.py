"""``tfod convert`` as it is typed: what the paths say, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tfod.detection.images.mask_images import encode_mask_png

from tests.commands import Run, run_python
from tests.records import encode, image, objects, write_shard

EXAMPLES = Path(__file__).parents[2] / "examples"
_PNG = encode_mask_png(np.zeros((100, 200), bool))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two subsets; an image without objects."""
    box = objects([[0.25, 0.5, 0.5, 1]], ["cat"], [1])
    bytes_ = {"image/encoded": _PNG}
    write_shard(tmp_path / "s", "train", encode(image("a.png") | box | bytes_))
    write_shard(tmp_path / "s", "val", encode(image("b.png") | {"image/encoded": _PNG + b"0"}))
    return tmp_path / "s"


BAD_FILES = {
    "ZIP": "no zip",
    "JSON": '{"images": 1}',
    "XML": "<annotations/>",
    "YAML": "names: [cat]\ntrain: images\n",
    "NOTRAIN.YAML": "names: [cat]\n",
    "NESTED.YAML": "names: [[cat]]\ntrain: .\n",
}


def annotations(images: str, labels: str = "") -> str:
    """CVAT's XML of these images."""
    return (
        f"<annotations><version>1.1</version><meta><task><labels>{labels}</labels></task></meta>"
        f"{images}</annotations>"
    )


CAT = "<label><name>cat</name></label>"


def files_of(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


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
    assert files_of(out) == LAYOUTS[name]
    back = run("convert", out, tmp_path / "back")  # what is there says what it is
    assert back.out.startswith("\n".join(lines).replace(str(out), str(tmp_path / "back")))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["back", "out", "s"]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_full_disk_is_one_line_about_what_was_asked_for(
    shards: Path, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("resource")  # not on Windows
    command = ("-X", "dev", "-m", "tfod", "convert", "s", "out", "--to", name, "--no-images")
    how = {"PYTHONDONTWRITEBYTECODE": "1"}  # its files would be cut, too
    # Development mode says what Python 3.14 says in any: that a file's end was not written.
    line = run_python(*command, folder=tmp_path, largest_file=30, **how).refused()
    assert line.startswith("tfod: out") and "cannot be written (File too large)" in line
    assert ".tmp" not in line and [one.name for one in tmp_path.iterdir()] == ["s"]


def test_one_file(run: Run, shards: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    done = run("convert", shards / "train.tfrecord", target)
    assert "images not written; choose a folder for them with --images: 1" in done.err
    assert json.loads(target.read_text())["images"] == [
        {"id": 1, "width": 200, "height": 100, "file_name": "a.png"}
    ]
    options = ("--images", tmp_path / "images")
    assert run("convert", shards / "train.tfrecord", tmp_path / "b.json", *options).err == ""
    assert (tmp_path / "images" / "train" / "a.png").read_bytes() == _PNG
    assert run("convert", shards / "train.tfrecord", tmp_path / "c.json", "--no-images").err == ""
    assert run("convert", shards, tmp_path / "d.xml", "--no-images").err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("S", "OUT/a.json"), "is one file, but the dataset needs 2"),
        (
            ("S", "OUT/x"),
            "SOURCE is shards, so the format of DEST is unclear; choose it with --to: shards, ",
        ),
        (("S", "S", "--to", "coco"), "is an input"),
        (("S", "ZIP", "--to", "coco"), "already exists; write to another folder"),
        (("nothing", "OUT/x.json"), "nothing: no such file or folder"),
        (
            ("OUT", "OUT/x.json"),
            "is empty; pass the folder or zip with the shards or the annotations",
        ),
        (("OUT", "x", "--from", "yolo"), "contains none of data.yaml"),
        (("OUT", "x", "--from", "coco"), "contains no JSON of COCO's instances"),
        (("S", "OUT/x.json", "--label-map", "nothing"), "nothing"),
        (("ZIP", "OUT/x.json"), "data.zip: is not a readable zip: "),
        (("JSON", "OUT/x"), "is not COCO JSON"),
        (("XML", "OUT/x"), "has no <meta>"),
        (("YAML", "OUT/x"), "data.yaml: images does not exist; correct it or the value of path"),
        (("NOTRAIN.YAML", "OUT/x"), "names no folder of images; add train: images/train"),
        (("NESTED.YAML", "OUT/x"), "has a class without a name"),
        (("S", "gs://a/b", "--to", "coco"), "cannot write to a URL"),
        (("S", "OUT/x", "--to", "coco", "--images", "OUT/x"), "images cannot be written there"),
        (("S", "OUT/x", "--to", "coco", "--images", "OUT/x/i"), "images cannot be written there"),
        (("S", "OUT/x.tfrecord"), "is one shard, but there are several subsets: train, val"),
        (("COCO", "OUT/x", "--images", "OUT"), "images that are missing: 12"),
        (("COCO", "OUT/x", "--images", "nowhere"), "--images nowhere: no such folder"),
        (("COCO", "OUT/x.zip"), "shards would be written to a folder of this name; remove .zip"),
        (
            ("S", "OUT/x", "--to", "yolo", "--ignore-difficult"),
            "only applies to Pascal VOC; remove it",
        ),
        (("S", "OUT/x.json", "--num-shards=5"), "only shards can be"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    run: Run, shards: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    names = {"S": shards, "OUT": out, "COCO": EXAMPLES / "shapes_coco"}
    for name, text in BAD_FILES.items():
        names[name] = tmp_path / f"data.{name.lower()}"
        names[name].write_text(text)
    given = [str(names.get(one, one)).replace("OUT/", f"{out}/") for one in arguments]
    done = run("convert", *given)
    assert done.code == 2 and done.out == ""
    assert message in done.err and done.err.count("\n") == 1
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image/object/bbox/xmax": [0.5, 1.0]}, "image/object/bbox"),
        ({"image/object/bbox/xmax": [float("nan")]}, "not a finite number"),
        ({"image/object/bbox/xmax": [0.125]}, "maximum is below its minimum"),
        ({"image/object/class/text": [""], "image/object/class/label": [0]}, "without a class"),
    ],
)
def test_bad_records(run: Run, tmp_path: Path, features: dict[str, object], message: str) -> None:
    box = objects([[0.25, 0.5, 0.5, 1]], ["cat"], [1])
    shard = write_shard(tmp_path / "s", "train", encode(image() | box | features))
    done = run("convert", shard, tmp_path / "x.json")
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "x.json").exists()


def test_ids_of_images(run: Run, tmp_path: Path) -> None:
    ids = ["7", "a.jpg", "7", "", "x"]
    records = [encode(image() | {"image/source_id": one}) for one in ids]
    shard = write_shard(tmp_path / "s", "train", *records)
    done = run("convert", shard, tmp_path / "x.json")
    assert "source ids that are not a unique number, replaced by a new id: 2" in done.err
    images = json.loads((tmp_path / "x.json").read_text())["images"]
    assert [one["id"] for one in images] == [7, 1, 2, 3, 4]
    assert [one["file_name"] for one in images] == [
        *("a.jpg", "a~2.jpg", "a~3.jpg", "a~4.jpg", "a~5.jpg")
    ]


def test_classes_of_several_label_maps(run: Run, tmp_path: Path) -> None:
    for folder, name in (("train", "cat"), ("val", "dog")):
        text = f"item {{ id: 1 name: '{name}' }}"
        record = encode(image() | objects([[0, 0, 1, 1]] * 2, [name, "bird"], [1, 5]))
        write_shard(tmp_path / "s" / folder, folder, record, label_map=text)
    assert run("convert", tmp_path / "s", tmp_path / "out", "--to", "coco").code == 0
    for subset, used in (("train", [1, 5]), ("val", [2, 5])):
        found = json.loads((tmp_path / f"out/annotations/instances_{subset}.json").read_text())
        assert [one["category_id"] for one in found["annotations"]] == used
        assert {one["id"]: one["name"] for one in found["categories"]} == {
            1: "cat",
            2: "dog",
            5: "bird",
        }


def test_keys_of_yolo_that_are_no_subsets(run: Run, tmp_path: Path) -> None:
    """Those that Ultralytics documents, and a folder that is called as its key is."""
    for folder in ("images/val", "images/extra", "docs"):
        (tmp_path / "d" / folder).mkdir(parents=True)
        (tmp_path / "d" / folder / "a.png").write_bytes(_PNG + folder.encode())
    (tmp_path / "d/labels/val").mkdir(parents=True)
    (tmp_path / "d/labels/val/a.txt").touch()
    text = "val: images/val\nextra: images/extra\nlicense: MIT\nauthor: docs\nlogo: docs/a.png\n"
    (tmp_path / "d/data.yaml").write_text(f"path: .\n{text}names: [cat]\n")
    done = run("convert", tmp_path / "d", tmp_path / "out")
    assert done.code == 0 and done.out.splitlines()[:-1] == [
        f"{tmp_path}/out: val: 1 image, 0 objects",
        f"{tmp_path}/out: extra: 1 image, 0 objects",
    ]


@pytest.mark.parametrize("subset", ["train", "images"])
def test_labels_of_yolo_are_where_ultralytics_looks(run: Run, tmp_path: Path, subset: str) -> None:
    """In place of the last ``images`` of the path, wherever that is."""
    box = objects([[0.25, 0.5, 0.5, 1]], ["cat"], [1])
    names = ["a.png", "images/a.png", "labels/a.png", "x/images/images/a.png"]
    records = [
        encode(image(name) | box | {"image/encoded": _PNG + name.encode()}) for name in names
    ]
    shards = write_shard(tmp_path / "s", subset, *records)
    assert run("convert", shards, tmp_path / "out", "--to", "yolo").code == 0
    found = sorted((tmp_path / "out").rglob("*.png"))
    assert [str(one.relative_to(tmp_path / "out/images" / subset)) for one in found] == names
    for one in found:
        parts = "labels".join(str(one).rsplit("images", 1))
        assert Path(parts).with_suffix(".txt").read_text() == "0 0.375 0.75 0.25 0.5\n"
    done = run("convert", tmp_path / "out", tmp_path / "back")
    assert done.out.startswith(f"{tmp_path}/back: {subset}: 4 images, 4 objects\n")


@pytest.mark.parametrize(
    "names", [("images/labels/a.png", "labels/images/a.png"), ("a.png", "a.txt/b.png")]
)
def test_labels_of_yolo_for_which_there_is_one_place(
    run: Run, tmp_path: Path, names: tuple[str, str]
) -> None:
    records = [encode(image(name) | {"image/encoded": _PNG + name.encode()}) for name in names]
    shards = write_shard(tmp_path / "s", "train", *records)
    refused = run("convert", shards, tmp_path / "out", "--to", "yolo").refused()
    assert (
        f"image {names[1]!r} cannot be written, because YOLO would use the same label file"
        in refused
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("subset", ["path", "names", "nc", "download"])
def test_subsets_that_are_other_keys_of_yolo(run: Run, tmp_path: Path, subset: str) -> None:
    for name in ("a", subset):
        write_shard(tmp_path / "s", name, encode(image(name) | {"image/encoded": _PNG}))
    refused = run("convert", tmp_path / "s", tmp_path / "out", "--to", "yolo").refused()
    assert f"the subset {subset!r} has a reserved name in data.yaml; rename it" in refused
    assert not (tmp_path / "out").exists()


def test_frames_of_subsets_in_turn(run: Run, tmp_path: Path) -> None:
    """A project's XML may have the frames of its subsets in any order."""
    frames = (
        f'<image id="{n}" name="{n}.png" subset="{s}" width="200" height="100"/>'
        for n, s in enumerate(("train", "val", "train"))
    )
    (tmp_path / "a.xml").write_text(annotations("".join(frames), CAT))
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(_PNG)
    done = run("convert", tmp_path / "a.xml", tmp_path / "out", "--to", "voc")
    assert done.code == 0, done.err
    lists = tmp_path / "out" / "ImageSets" / "Main"
    assert (lists / "train.txt").read_text().split() == ["0", "2"]
    assert (lists / "val.txt").read_text().split() == ["1"]


@pytest.mark.parametrize("names", [("train", "night_train"), ("train", "aeroplane_train")])
def test_subsets_of_voc_that_are_called_as_lists_of_a_class(
    run: Run, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Also of images whose names end as if they had a flag."""
    for number, subset in enumerate(names):
        records = [
            encode(image(f"{subset} {n}.png") | {"image/encoded": _PNG + bytes([number, n])})
            for n in range(number + 1)
        ]
        write_shard(tmp_path / "s", subset, *records)
    assert run("convert", tmp_path / "s", tmp_path / "voc", "--to", "voc").code == 0
    done = run("convert", tmp_path / "voc", tmp_path / "back")
    assert done.code == 0 and sorted(done.out.splitlines())[:-1] == [
        f"{tmp_path}/back: {names[1]}: 2 images, 0 objects",
        f"{tmp_path}/back: {names[0]}: 1 image, 0 objects",
    ]


def test_layers_of_cvat_come_along(run: Run, tmp_path: Path) -> None:
    """And turned boxes; what has no place for them counts them."""
    box = '<box label="cat" occluded="0" xtl="1" ytl="2" xbr="30" ybr="40" z_order="{}"{}/>'
    mask = '<mask label="cat" rle="0, 4" left="1" top="1" width="2" height="2" z_order="-1"/>'
    shapes = box.format(0, "") + box.format(2, ' rotation="20.00"') + mask
    frame = f'<image id="0" name="a.png" width="200" height="100">{shapes}</image>'
    (tmp_path / "a.xml").write_text(annotations(frame, CAT))
    (tmp_path / "a.png").write_bytes(_PNG)
    done = run("convert", tmp_path / "a.xml", tmp_path / "out", "--to", "shards", "--masks")
    assert "not written" not in done.succeeded()
    run("convert", tmp_path / "out", tmp_path / "xml", "--to", "cvat_xml").succeeded()
    (written,) = (tmp_path / "xml").rglob("*.xml")
    image = ElementTree.parse(written).find("image")
    assert [
        (one.tag, one.get("z_order"), one.get("rotation"))
        for one in (image if image is not None else ())
    ] == [("box", "0", None), ("box", "2", "20"), ("mask", "-1", None)]
    done = run("convert", tmp_path / "out", tmp_path / "voc", "--to", "voc")
    assert "2 objects' rotation, z_order or group" in done.succeeded()


def test_roboflow_layout_of_coco(run: Run, shards: Path, tmp_path: Path) -> None:
    assert run("convert", shards, tmp_path / "coco", "--to", "coco").code == 0
    for subset in ("train", "val"):
        folder = tmp_path / "roboflow" / subset
        folder.parent.mkdir(exist_ok=True)
        (tmp_path / "coco" / "images" / subset).rename(folder)
        document = tmp_path / "coco" / "annotations" / f"instances_{subset}.json"
        document.rename(folder / "_annotations.coco.json")
    done = run("convert", tmp_path / "roboflow", tmp_path / "out")
    assert done.out.splitlines()[:-1] == [
        f"{tmp_path}/out: train: 1 image, 1 object",
        f"{tmp_path}/out: val: 1 image, 0 objects",
    ]


@pytest.mark.parametrize("target", ["coco", "voc", "yolo", "cvat_xml"])
def test_odd_names_of_images_come_back(run: Run, tmp_path: Path, target: str) -> None:
    names = ["a\nb.png", "\x1b.png", "c.txt", "c.txt.png", "../../d.png", "", "/e/f.png"]
    box = objects([[0.25, 0.5, 0.5, 1]], ["c\rat"], [1])
    records = [
        encode(image(name) | box | {"image/encoded": _PNG + bytes([number])})
        for number, name in enumerate(names)
    ]
    shards = write_shard(tmp_path / "s", "train", *records, label_map="item {id: 1 name: 'c\\rat'}")
    assert run("convert", shards, tmp_path / "in" / "out", "--to", target).code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "s"]
    done = run("convert", tmp_path / "in" / "out", tmp_path / "back")
    assert done.code == 0 and f"train: {len(names)} images, {len(names)} objects" in done.out


def test_names_with_blanks_at_their_ends_in_voc(run: Run, tmp_path: Path) -> None:
    """Every reader strips the lines of VOC's lists, so that the files could not be found."""
    box = objects([[0.25, 0.5, 0.5, 1]], ["cat"])
    records = [
        encode(image(name) | box | {"image/encoded": _PNG + bytes([number])})
        for number, name in enumerate(("a .png", " a.png", "b/ c.png"))
    ]
    shards = write_shard(tmp_path / "s", "train", *records)
    line = run("convert", shards, tmp_path / "voc", "--to", "voc").succeeded()
    assert "image names with leading or trailing spaces, written without them: 2\n" in line
    done = run("convert", tmp_path / "voc", tmp_path / "back")
    assert done.code == 0 and "train: 3 images, 3 objects" in done.out
    assert sorted(path.stem for path in (tmp_path / "voc").rglob("*.xml")) == [" c", "a", "a~2"]
    for target in ("voc", "csv"):
        for name in (" cat", "dog ", " "):
            (tmp_path / "s" / "label_map.pbtxt").write_text(f"item {{id: 2 name: '{name}'}}")
            refused = run("convert", shards, tmp_path / "x", "--to", target).refused()
            assert f"class {name!r} is empty or has leading or trailing spaces" in refused


def test_image_that_is_the_folder_of_another(run: Run, tmp_path: Path) -> None:
    records = [
        encode(image(name) | {"image/encoded": _PNG + bytes([number])})
        for number, name in enumerate(("q.png/b.png", "q.png"))
    ]
    shards = write_shard(tmp_path / "s", "train", *records)
    done = run("convert", shards, tmp_path / "out", "--to", "coco")
    assert done.code == 2 and "image 'q.png' cannot be written, because" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["coco", "cvat_xml", "yolo", "voc"])
@pytest.mark.parametrize("subset", ["../../../evil", "/evil", ".."])
def test_subset_that_leads_out_of_the_output(
    run: Run, tmp_path: Path, target: str, subset: str
) -> None:
    source = tmp_path / "a" / "b" / "source"
    source.mkdir(parents=True)
    (source / "a.png").write_bytes(_PNG)
    frame = f'<image id="0" name="a.png" subset="{subset}" width="200" height="100"/>'
    (source / "annotations.xml").write_text(annotations(frame))
    done = run("convert", source, tmp_path / "a" / "b" / "out", "--to", target)
    assert done.code == 2 and "cannot be the name of a folder" in done.err
    assert files_of(tmp_path) == ["a/b/source/a.png", "a/b/source/annotations.xml"]


def test_masks_that_cvat_s_xml_cannot_hold_are_counted(run: Run, tmp_path: Path) -> None:
    """One without a pixel, and one that is not where its box is."""
    part = np.zeros((100, 200), bool)
    part[10:20, 10:20] = True
    masks = {"image/object/mask": [encode_mask_png(one) for one in (np.zeros_like(part), part)]}
    boxes = objects([[0.1, 0.1, 0.4, 0.4]] * 2, ["cat"] * 2, [1] * 2)
    write_shard(tmp_path / "s", "train", encode(image() | boxes | masks | {"image/encoded": _PNG}))
    done = run("convert", tmp_path / "s", tmp_path / "out", "--to", "cvat_xml")
    assert done.code == 0
    assert "boxes with masks, replaced by the enclosing box of the mask: 1" in done.err
    assert "masks without pixels, replaced by boxes: 1" in done.err


def test_tracks_are_refused(run: Run, tmp_path: Path) -> None:
    frame = '<image id="0" name="a.png" width="200" height="100"/><track id="0" label="cat"/>'
    (tmp_path / "annotations.xml").write_text(annotations(frame))
    done = run("convert", tmp_path / "annotations.xml", tmp_path / "out")
    assert done.code == 2 and "has tracks; export the task as CVAT for images" in done.err


@pytest.mark.parametrize(
    "shape",
    ['polygon points="1,1;5,1;5,5"', 'mask rle="0, 4" left="-1" top="1" width="2" height="2"'],
)
def test_frames_too_large_for_masks(run: Run, tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.png").write_bytes(_PNG)
    frame = '<image id="0" name="a.png" width="60000" height="60000">'
    frame += f'<{shape} label="cat" occluded="0"/></image>'
    (tmp_path / "annotations.xml").write_text(annotations(frame, CAT))
    done = run("convert", tmp_path / "annotations.xml", tmp_path / "out", "--masks")
    assert done.code == 2 and "a frame of 60000x60000 is too large for masks" in done.err


def test_one_image_of_two_names_is_said(run: Run, tmp_path: Path) -> None:
    """Of two cameras only one has the file: the other may mean another image."""
    images = [{"id": n, "file_name": f"cam{n}/a.png", "width": 200, "height": 100} for n in (1, 2)]
    found = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "u.json").write_text(json.dumps(found))
    (tmp_path / "a.png").write_bytes(_PNG)
    says = run("convert", tmp_path / "u.json", tmp_path / "out.json", "--no-images").succeeded()
    assert not says
    says = run("convert", tmp_path / "u.json", tmp_path / "voc", "--to", "voc").succeeded()
    assert "images with several annotations, written as one record per annotation" in says
    assert "cam2/a.png" in says


def test_a_dataset_without_an_image_makes_no_shard(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("filename,width,height,class,xmin,ymin,xmax,ymax\n")
    says = run("convert", tmp_path / "a.csv", tmp_path / "out").refused()
    assert "nothing is written: the annotations contain no image" in says


def test_a_class_name_with_two_ids_is_said(run: Run, tmp_path: Path) -> None:
    box = [0.25, 0.5, 0.5, 1]
    record = encode(image("a.png") | objects([box], label=[2]) | {"image/encoded": _PNG})
    twice = "item { id: 1 name: 'cat' } item { id: 2 name: 'cat' }"
    write_shard(tmp_path / "s", "train", record, label_map=twice)
    says = run("convert", tmp_path / "s", tmp_path / "out", "--to", "coco").succeeded()
    assert "'cat' has the ids 1 and 2, which are read as one class" in says

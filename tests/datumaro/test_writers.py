"""Records and folders as other programs write them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from datumaro.components.dataset import Dataset
from tfod.datumaro import compat
from tfod.detection.labels.label_map import load_label_map, read_label_map

from tests.datumaro.conftest import boxes, export, ids_of, jpeg
from tests.files import write_files
from tests.records import objects

IMAGE = jpeg(100, 200)
BOX = [0.25, 0.1, 0.5, 0.4]
PIXELS = (50, 10, 100, 40)
SIZE = {"image/height": 100, "image/width": 200}
SHA = {"image/key/sha256": hashlib.sha256(IMAGE).hexdigest()}


def coded(name: str, source_id: str, fmt: str | None) -> dict[str, Any]:
    """The image's features as most scripts write them."""
    names = {"image/filename": name, "image/source_id": source_id, "image/encoded": IMAGE}
    return names | ({"image/format": fmt} if fmt else {})


def attributes(**values: Any) -> dict[str, Any]:
    """Features of an object with one value each."""
    return {f"image/object/{key.replace('__', '/')}": [value] for key, value in values.items()}


KITTI = "/data/kitti/training/image_2/000001.png"
FIFTYONE = "/home/me/fiftyone/a.jpg"
WRITERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "create_pascal": (
        [
            SIZE
            | SHA
            | coded("2007_000027.jpg", "2007_000027.jpg", "jpeg")
            | objects([BOX], ["person"], [15])
            | attributes(difficult=0, truncated=1, view="Frontal")
        ],
        {
            "boxes": [("person", *PIXELS)],
            "ids": {"person": 15},
            "attributes": {"difficult": False, "truncated": True, "view": "Frontal"},
            "image": {"source_id": "2007_000027.jpg"},
        },
    ),
    # Full paths as names, truncated as float, 3D boxes and the angle alpha.
    "create_kitti": (
        [
            SIZE
            | SHA
            | coded(KITTI, KITTI, "png")
            | objects([BOX], ["car"], [1])
            | attributes(difficult=0, truncated=0.25, alpha=-1.5)
            | {"image/object/3d_bbox/rot_y": [0.5], "image/object/3d_bbox/length": [1.5]}
        ],
        {
            "id": "000001",
            "image": {"source_id": KITTI, "filename": KITTI},
            "attributes": {"difficult": False, "truncated": 0.25, "alpha": -1.5}
            | {"3d_bbox_length": 1.5, "3d_bbox_rot_y": 0.5},
        },
    ),
    "Model Garden's COCO, which omits the boxes of negatives": (
        [
            SIZE | SHA | coded("1.jpg", "1", "jpg") | objects([BOX], ["bowl"], [51]),
            SIZE | SHA | coded("2.jpg", "2", "jpg"),
        ],
        {"kinds": [["bbox"], []], "ids": {"bowl": 51}},
    ),
    "create_oid, without size and format": (
        [
            coded("000a1249af2bc5f0.jpg", "000a1249af2bc5f0", None)
            | objects([BOX], ["/m/01g317"], [3])
            | attributes(group_of=0, occluded=-1, truncated=1, depiction=0)
            | {"image/class/label": [3], "image/class/text": ["/m/01g317"]}
        ],
        {
            "boxes": [("/m/01g317", *PIXELS)],
            "kinds": [["label", "bbox"]],
            "attributes": {"group_of": False, "occluded": -1, "truncated": True}
            | {"depiction": False},
        },
    ),
    "FiftyOne, with ids from 0 and paths as names": (
        [SIZE | coded(FIFTYONE, FIFTYONE, "jpg") | objects([BOX, BOX], ["x", "y"], [0, 1])],
        {"boxes": [("x", *PIXELS), ("y", *PIXELS)], "ids": {"x": 0, "y": 1}},
    ),
}
"""Records, and what an import returns: for the first image, the attributes of its last object.

A record has the keys, types and values that the script writes, and no others (FACTS A.4).
"""


@pytest.mark.parametrize("name", WRITERS)
def test_writers(make_shard, load, name: str) -> None:
    records, expected = WRITERS[name]
    make_shard("train", *records)
    dataset = load()
    item = next(iter(dataset))
    found = {
        "boxes": boxes(dataset),
        "ids": ids_of(dataset),
        "kinds": [[one.type.name for one in each.annotations] for each in dataset],
        "attributes": item.annotations[-1].attributes,
        "id": item.id,
        "image": item.attributes,
    }
    assert {key: found[key] for key in expected} == expected


def test_create_coco_without_ids_with_keypoints(make_shard, load) -> None:
    points = {
        "x": [0.5, 0.0, 0.0, 0.0],
        "y": [0.5, 0.0, 0.0, 0.0],
        "num": [1, 0],
        "visibility": [2, 0, 0, 0],
        "text": ["nose", "left_eye"] * 2,
    }
    record = SIZE | SHA | coded("9.jpg", "9", "jpeg") | objects([BOX, BOX], ["person", "dog"])
    record |= {"image/object/is_crowd": [0, 1], "image/object/area": [1500.0, 7.5]}
    make_shard("a", record | {f"image/object/keypoint/{key}": one for key, one in points.items()})
    dataset = load()
    (item,) = dataset
    assert [one.type.name for one in item.annotations] == ["bbox", "points", "bbox"]
    assert item.annotations[2].attributes == {"is_crowd": True, "area": 7.5}
    assert boxes(dataset) == [("person", *PIXELS), ("dog", *PIXELS)]
    schemas = dataset.categories()[compat.AnnotationType.points].items
    assert [schema.labels for schema in schemas.values()] == [["nose", "left_eye"]]


OBJECT = """<object><name>{}</name><bndbox><xmin>10</xmin><ymin>10</ymin>
<xmax>50</xmax><ymax>60</ymax></bndbox></object>"""


@pytest.mark.parametrize("name", ["voc", "voc_detection"])
def test_pascal_voc_without_labelmap_txt(tmp_path: Path, name: str) -> None:
    """Datumaro numbers the classes with its background; they get the ids of Pascal VOC."""
    size = "<size><width>200</width><height>100</height><depth>3</depth></size>"
    shapes = "".join(map(OBJECT.format, ("aeroplane", "tvmonitor")))
    files = {
        "Annotations/a.xml": f"<annotation><filename>a.jpg</filename>{size}{shapes}</annotation>",
        "JPEGImages/a.jpg": IMAGE,
        "ImageSets/Main/train.txt": "a\n",
    }
    voc = Dataset.import_from(str(write_files(tmp_path / "voc", files)), name)
    (one,) = export(voc, tmp_path / "out", save_media=True)
    assert one.class_text == ["aeroplane", "tvmonitor"] and one.class_label == [1, 20]
    label_map, _ = read_label_map(tmp_path / "out" / "label_map.pbtxt")
    written = {item.id: item.name for item in label_map.items}
    vocs = {item.id: item.name for item in load_label_map("voc2007")[0].items}
    assert len(vocs) == 20 and {number: written[number] for number in vocs} == vocs
    assert written[0] == "background" and written[21] == "ignored"
    assert sorted(written) == list(range(len(written)))  # "voc" has parts of persons, too

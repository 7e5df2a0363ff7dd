"""docs/complaints.md: on an input that has the complaint, each command prints what the page has.

A row of its tables has a number, the complaint, its cause, the commands, and parts of what they
print, in their order; ``…`` stands for anything. Each input is made by what caused the complaint in
the threads that the row names.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import require, run_program
from tests.docs.page import environment
from tests.image_kinds import HEIGHT, WIDTH, exif_jpeg
from tests.mutants.sound import (
    LABEL_MAP,
    features,
    field,
    flip,
    jpeg,
    png,
    record,
    shard,
    with_boxes,
)
from tests.records import encode

PAGE = Path(__file__).parents[2] / "docs" / "complaints.md"
_ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
_CODE = re.compile(r"`` (.+?) ``|`([^`]+)`")
_CSV = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
_SIDE = 416

Files = Mapping[str, "bytes | str"]
INPUTS: dict[int, Callable[[], Files]] = {}


def complaint(number: int) -> Callable[[Callable[[], Files]], Callable[[], Files]]:
    """Declare what has the complaint of a row."""

    def declare(make: Callable[[], Files]) -> Callable[[], Files]:
        INPUTS[number] = make
        return make

    return declare


def rows() -> Iterator[tuple[int, list[str], list[str]]]:
    """Of each row its number, its commands and what they print."""
    for number, _, _, commands, printed in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        yield int(number), _codes(commands), _codes(printed)


def _codes(cell: str) -> list[str]:
    return [one or other for one, other in _CODE.findall(cell)]


def test_every_complaint_has_a_row() -> None:
    assert [number for number, *_ in rows()] == sorted(INPUTS)


@pytest.mark.parametrize(("number", "commands", "printed"), rows())
def test_complaint(number: int, commands: list[str], printed: list[str], tmp_path: Path) -> None:
    if any(one.startswith("datum ") for one in commands):
        pytest.importorskip("datumaro")
    for name, content in INPUTS[number]().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert commands and printed
    got = ""
    for command in commands:
        words = re.findall(r"'[^']*'|\S+", command)
        _, output = run_program([one.strip("'") for one in words], tmp_path, environment(tmp_path))
        assert "Traceback" not in output
        got += " ".join(output.split()) + "\n"
    pattern = "…".join(printed)
    wanted = ".*?".join(re.escape(one.strip()) for one in pattern.split("…"))
    assert re.search(wanted, got, re.DOTALL), f"{PAGE.name}, row {number}: {pattern}\n\n{got}"


# What makes them


def labelled(*payloads: bytes, **more: bytes | str) -> Files:
    """A shard and its label map."""
    return {"train.record": shard(*payloads), "label_map.pbtxt": LABEL_MAP, **more}


def numbered(count: int, **changes: Any) -> list[bytes]:
    """Records of different images."""
    images = [jpeg(quality=40 + number) for number in range(count)]
    return [
        record(f"{number}.jpg", encoded=image, source_id=str(number + 1), **changes)
        for number, image in enumerate(images)
    ]


def voc(name: str, box: str = "", path: str = "") -> str:
    """An XML file as Roboflow and labelImg write it."""
    named = f"<object><name>bicycle</name><bndbox>{box}</bndbox></object>" if box else ""
    return (
        f"<annotation><filename>{name}</filename><path>{path or name}</path><size><width>{_SIDE}"
        f"</width><height>{_SIDE}</height><depth>3</depth></size>{named}</annotation>"
    )


def square(quality: int) -> bytes:
    return jpeg((_SIDE, _SIDE), quality=quality)


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()


def pipeline(more: str = "", *, num_classes: int = 2, input_path: str = "train.record") -> str:
    """A configuration of the OD API's trainer, with more for the input reader."""
    return (
        f"model {{\n  ssd {{\n    num_classes: {num_classes}\n  }}\n}}\n"
        f'train_input_reader {{\n  label_map_path: "label_map.pbtxt"\n  {more}\n'
        f'  tf_record_input_reader {{ input_path: "{input_path}" }}\n}}\n'
    )


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"


@complaint(1)
def box_outside() -> Files:
    boxes = [(0.1, 0.2, 1.15277779, 0.95), (0.6, 0.1, 0.3, 0.4)]
    return labelled(record(), with_boxes(boxes, name="IMG_4431.jpg", encoded=jpeg(quality=50)))


@complaint(2)
def cut_jpeg() -> Files:
    whole = square(75)
    cut = record("IMG_7.jpg", encoded=whole[: len(whole) // 2], height=_SIDE, width=_SIDE)
    return labelled(record(), cut)


@complaint(3)
def text_for_source_id() -> Files:
    return labelled(*numbered(2), record("Czech_000319.jpg", source_id="Czech_000319.jpg"))


@complaint(4)
def unknown_class() -> Files:
    text = _CSV + "a.jpg,40,20,raccoon,2,2,20,18\nb.jpg,40,20,Racoon,2,2,20,18\n"
    return {
        "train_labels.csv": text,
        "images/a.jpg": jpeg(),
        "images/b.jpg": jpeg(quality=50),
        "label_map.pbtxt": "item { id: 1 name: 'raccoon' }\n",
    }


@complaint(5)
def corrupt_shard() -> Files:
    names = [f"train.record-0000{number}-of-00003" for number in range(3)]
    shards = [shard(*numbered(12)[4 * number : 4 * number + 4]) for number in range(3)]
    shards[1] = flip(shards[1], 1800)
    return {**dict(zip(names, shards, strict=True)), "label_map.pbtxt": LABEL_MAP}


@complaint(6)
def curly_quotes() -> Files:
    text = LABEL_MAP.decode().replace(" 'cat'", " ‘cat’").replace(" 'dog'", " “dog”")
    return {"train.record": shard(record()), "label_map.pbtxt": text}


@complaint(7)
def ids_from_0() -> Files:
    text = "".join(f"item {{\n\tid: {id}\n\tname: '{id}'\n}}\n\n" for id in range(2))
    text = text.replace("'0'", "'cat'").replace("'1'", "'dog'")
    return {
        "anno.zip": zipped(
            {"default.tfrecord": shard(record(label=[0, 1])), "label_map.pbtxt": text}
        )
    }


@complaint(8)
def png_called_jpg() -> Files:
    text = _CSV + "a.jpg,40,20,cat,2,2,20,18\nb.jpg,40,20,dog,2,2,20,18\n"
    return {"train_labels.csv": text, "images/a.jpg": jpeg(), "images/b.jpg": png()}


@complaint(9)
def order_of_children() -> Files:
    box = "<xmin>31.5</xmin><xmax>415</xmax><ymin>92</ymin><ymax>345.25</ymax>"
    boxes = [(31, 415, 92, 345), (10, 100, 200, 300), (50, 300, 20, 80), (5, 400, 100, 390)]
    taken = [tuple(side / _SIDE for side in box) for box in boxes]
    wrong = [
        with_boxes([box], name=f"{n}.jpg", encoded=square(50 + n), height=_SIDE, width=_SIDE)
        for n, box in enumerate(taken)
    ]
    return {
        "voc/93CZ.jpg": square(75),
        "voc/93CZ.xml": voc("93CZ.jpg", box),
        "wrong/train.record": shard(*wrong),
        "wrong/label_map.pbtxt": LABEL_MAP,
    }


@complaint(10)
def windows() -> Files:
    lines = "".join(
        f"C:\\Users\\babus\\images\\{name}.jpg,40,20,cat,2,2,20,18\n" for name in ("a", "für")
    )
    return {
        "windows.csv": _CSV + lines,
        "latin.csv": (_CSV + lines).encode("cp1252"),
        "images/a.jpg": jpeg(),
        "images/für.jpg": jpeg(quality=50),
        "test.record": shard(record()),
    }


@complaint(11)
def of_cvat() -> Files:
    bare = record(encoded=None, format=None, sha256=None)
    return {"anno.zip": zipped({"default.tfrecord": shard(bare), "label_map.pbtxt": LABEL_MAP})}


@complaint(12)
def frames_without_images() -> Files:
    annotated = numbered(3)
    empty = {
        key: value
        for key, value in features("frame_000001.jpg", encoded=b"", format="").items()
        if "object" not in key
    }
    others = [
        encode({**empty, "image/filename": f"frame_{n:06}.jpg", "image/source_id": f"{n + 9}"})
        for n in range(18)
    ]
    return labelled(*annotated, *others)


@complaint(13)
def without_sha256() -> Files:
    config = pipeline(input_path="data/train.record")
    return labelled(record(sha256=None), **{"pipeline.config": config})


@complaint(14)
def keypoints() -> Files:
    person: dict[str, Any] = {"id": 1, "name": "person", "keypoints": ["nose", "tail"]}
    objects = {"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0, "area": 100}
    objects |= {"bbox": [2, 2, 10, 10], "keypoints": [3, 3, 2, 9, 9, 2], "num_keypoints": 2}
    image = {"id": 1, "file_name": "a.jpg", "width": 40, "height": 20}
    coco = {"images": [image], "annotations": [objects], "categories": [person]}
    return {
        "default.tfrecord": b"",
        "person_keypoints.json": json.dumps(coco),
        "images/a.jpg": jpeg(),
    }


@complaint(15)
def no_tensorflow() -> Files:
    return {"shards/train.tfrecord": shard(record()), "shards/label_map.pbtxt": LABEL_MAP}


@complaint(16)
def export() -> Files:
    return {"shards/train.tfrecord": shard(*numbered(4)), "shards/label_map.pbtxt": LABEL_MAP}


@complaint(17)
def opaque() -> Files:
    return labelled(record(), record("b.png"))


@complaint(18)
def for_model_maker() -> Files:
    return labelled(*numbered(2))


@complaint(19)
def negatives() -> Files:
    box = "<xmin>31</xmin><ymin>92</ymin><xmax>415</xmax><ymax>345</ymax>"
    return {
        "voc/a.jpg": square(75),
        "voc/a.xml": voc("a.jpg", box),
        "voc/0b44ce15.jpg": square(50),
        "voc/0b44ce15.xml": voc("0b44ce15.jpg"),
    }


@complaint(20)
def other_number_of_classes() -> Files:
    return labelled(record(), **{"pipeline.config": pipeline(num_classes=90)})


@complaint(21)
def masks_asked_for() -> Files:
    masks = pipeline("load_instance_masks: true mask_type: PNG_MASKS")
    points = pipeline("num_keypoints: 17")
    return labelled(record(), **{"mask_rcnn.config": masks, "centernet.config": points})


@complaint(22)
def no_ground_truth() -> Files:
    boxes = [(10.0, 5.0, 30.0, 15.0)]
    records = [
        with_boxes(boxes, name=f"{n}.jpg", encoded=jpeg(quality=50 + n), source_id="")
        for n in range(3)
    ]
    text = "item {\n  id: 1\n  name: 'cat'\n  id: 2\n  name: 'dog'\n}\n"
    return {"val.record": shard(*records), "label_map.pbtxt": text}


@complaint(23)
def turned_by_exif() -> Files:
    turned = exif_jpeg()
    return {
        "train_labels.csv": f"{_CSV}a.jpg,{HEIGHT},{WIDTH},cat,2,2,18,30\n",
        "images/a.jpg": turned,
        "train.record": shard(record(encoded=turned, height=WIDTH, width=HEIGHT)),
        "label_map.pbtxt": LABEL_MAP,
    }


@complaint(24)
def git_lfs() -> Files:
    return {"db/train": POINTER, "train.record": shard(record(), record("b.png"))}


@complaint(25)
def of_tensorflow_datasets() -> Files:
    folder = "shapes/1.0.0"
    records = [
        encode({"image": jpeg(quality=50 + n), "image/filename": f"{n}.jpg",
                "objects/bbox": [0.1, 0.2, 0.5, 0.6], "objects/label": [n % 2]})
        for n in range(2)
    ]  # fmt: skip
    features = {"featuresDict": {"features": {"image": {"image": {}}}}}
    splits = [{"name": "train", "shardLengths": ["2"]}]
    info = {"name": "shapes", "version": "1.0.0", "fileFormat": "tfrecord", "splits": splits}
    return {
        f"{folder}/shapes-train.tfrecord-00000-of-00001": shard(*records),
        f"{folder}/features.json": json.dumps(features),
        f"{folder}/dataset_info.json": json.dumps(info),
        f"{folder}/objects-label.labels.txt": "cat\ndog\n",
    }


@complaint(26)
def html_page() -> Files:
    return {
        "train.tfrecord": "<!doctype html>\n<html><head><title>Google Drive</title></head></html>"
    }


@complaint(27)
def zip_called_tfrecord() -> Files:
    return {"train.tfrecord": zipped(labelled(record()))}


@complaint(28)
def sequence_examples() -> Files:
    frames = field(1, field(1, b"image/encoded") + field(2, field(1, field(1, field(1, jpeg())))))
    return {"clip.tfrecord": shard(field(1, b"") + field(2, frames))}


@complaint(29)
def waymo() -> Files:
    return {
        "segment.tfrecord": shard(field(1, field(1, b"segment-1005081002024129653")) + b"\x10\x01")
    }


@complaint(30)
def paths_exchanged() -> Files:
    return {"train.record": shard(record()), "test.record": shard(record())}


def test_an_export_holds_no_images(tmp_path: Path) -> None:
    """Complaint 16: the memory does not depend on the images."""
    pytest.importorskip("datumaro")
    require("/proc", Path("/proc/self/status").exists())
    peaks = []
    for number, spare in enumerate((0, 4_000_000)):
        images = [jpeg(quality=40 + n) + bytes(spare) for n in range(20)]
        records = [record(f"{n}.jpg", encoded=image) for n, image in enumerate(images)]
        source = tmp_path / f"in{number}"
        source.mkdir()
        (source / "train.tfrecord").write_bytes(shard(*records))
        (source / "label_map.pbtxt").write_bytes(LABEL_MAP)
        del images, records
        script = (
            "import sys\nfrom datumaro.components.dataset import Dataset\n"
            "Dataset.import_from(sys.argv[1], 'tf_detection_api').export(sys.argv[2], "
            "'tf_detection_api', save_media=True)\n"
            "print(open('/proc/self/status').read())"
        )
        command = [sys.executable, "-c", script, source, tmp_path / f"out{number}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        peaks.append(int(done.stdout.partition("VmHWM:")[2].split()[0]))
        assert sum(one.stat().st_size for one in (tmp_path / f"out{number}").iterdir()) > 20 * spare
    assert peaks[1] - peaks[0] < 40_000  # kB, for images of 80 MB

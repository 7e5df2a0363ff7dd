"""docs/complaints.md: on an input that has the complaint, each command prints what the page has.

A row of its table has the complaint, its cause, the commands, and parts of what they print, in
order. Each input is made by what caused the complaint in the thread that the row names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import require, run_program, run_python
from tests.docs.page import environment
from tests.files import write_files
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
from tests.zip_forge import real_zip

PAGE = Path(__file__).parents[2] / "docs" / "complaints.md"
_ROW = re.compile(r"^\| (.+) \| (.+) \| (`.+) \| (.+) \|$", re.MULTILINE)
_CODE = re.compile(r"`` (.+?) ``|`([^`]+)`")
_CSV = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
_SIDE = 416

Files = Mapping[str, "bytes | str"]
INPUTS: list[Callable[[], Files]] = []
"""What has the complaint of each row."""


def complaint(make: Callable[[], Files]) -> Callable[[], Files]:
    """Declare what has the complaint of the next row."""
    INPUTS.append(make)
    return make


def rows() -> Iterator[tuple[int, list[str], list[str]]]:
    """Of each row its number, its commands and what they print."""
    for number, row in enumerate(_ROW.findall(PAGE.read_text(encoding="utf-8"))):
        yield number, _codes(row[2]), _codes(row[3])


def _codes(cell: str) -> list[str]:
    return [one or other for one, other in _CODE.findall(cell)]


def test_every_complaint_has_a_row() -> None:
    assert len(list(rows())) == len(INPUTS) > 10


@pytest.mark.parametrize(("number", "commands", "printed"), rows())
def test_complaint(number: int, commands: list[str], printed: list[str], tmp_path: Path) -> None:
    write_files(tmp_path, INPUTS[number]())
    assert commands and printed
    got = ""
    for command in commands:
        words = re.findall(r"'[^']*'|\S+", command)
        _, output = run_program([one.strip("'") for one in words], tmp_path, environment(tmp_path))
        assert "Traceback" not in output
        got += " ".join(output.split()) + "\n"
    wanted = ".*?".join(map(re.escape, printed))
    assert re.search(wanted, got, re.DOTALL), f"{INPUTS[number].__name__}: {printed}\n\n{got}"


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


def pipeline(more: str = "", *, num_classes: int = 2, input_path: str = "train.record") -> str:
    """A configuration of the OD API's trainer, with more for the input reader."""
    return (
        f"model {{\n  ssd {{\n    num_classes: {num_classes}\n  }}\n}}\n"
        f'train_input_reader {{\n  label_map_path: "label_map.pbtxt"\n  {more}\n'
        f'  tf_record_input_reader {{ input_path: "{input_path}" }}\n}}\n'
    )


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"


@complaint
def box_outside() -> Files:
    boxes = [(0.1, 0.2, 1.15277779, 0.95), (0.6, 0.1, 0.3, 0.4)]
    return labelled(record(), with_boxes(boxes, name="IMG_4431.jpg", encoded=jpeg(quality=50)))


@complaint
def cut_jpeg() -> Files:
    whole = square(75)
    cut = record("IMG_7.jpg", encoded=whole[: len(whole) // 2], height=_SIDE, width=_SIDE)
    return labelled(record(), cut)


@complaint
def text_for_source_id() -> Files:
    return labelled(*numbered(2), record("Czech_000319.jpg", source_id="Czech_000319.jpg"))


@complaint
def unknown_class() -> Files:
    text = _CSV + "a.jpg,40,20,raccoon,2,2,20,18\nb.jpg,40,20,Racoon,2,2,20,18\n"
    return {
        "train_labels.csv": text,
        "images/a.jpg": jpeg(),
        "images/b.jpg": jpeg(quality=50),
        "label_map.pbtxt": "item { id: 1 name: 'raccoon' }\n",
    }


@complaint
def corrupt_shard() -> Files:
    names = [f"train.record-0000{number}-of-00003" for number in range(3)]
    shards = [shard(*numbered(12)[4 * number : 4 * number + 4]) for number in range(3)]
    shards[1] = flip(shards[1], 1800)
    return {**dict(zip(names, shards, strict=True)), "label_map.pbtxt": LABEL_MAP}


@complaint
def curly_quotes() -> Files:
    text = LABEL_MAP.decode().replace(" 'cat'", " ‘cat’").replace(" 'dog'", " “dog”")
    return {"train.record": shard(record()), "label_map.pbtxt": text}


@complaint
def ids_from_0() -> Files:
    text = "".join(f"item {{\n\tid: {id}\n\tname: '{id}'\n}}\n\n" for id in range(2))
    text = text.replace("'0'", "'cat'").replace("'1'", "'dog'")
    return {
        "anno.zip": real_zip(
            [("default.tfrecord", shard(record(label=[0, 1]))), ("label_map.pbtxt", text.encode())]
        )
    }


@complaint
def png_called_jpg() -> Files:
    return labelled(record("b.jpg", encoded=png(), format="png"))


@complaint
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


@complaint
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


@complaint
def wrong_path() -> Files:
    config = pipeline(input_path="data/train.record")
    return labelled(record(), **{"pipeline.config": config})


@complaint
def other_number_of_classes() -> Files:
    return labelled(record(), **{"pipeline.config": pipeline(num_classes=90)})


@complaint
def masks_asked_for() -> Files:
    masks = pipeline("load_instance_masks: true mask_type: PNG_MASKS")
    return labelled(record(), **{"mask_rcnn.config": masks})


@complaint
def no_ground_truth() -> Files:
    boxes = [(10.0, 5.0, 30.0, 15.0)]
    records = [
        with_boxes(boxes, name=f"{n}.jpg", encoded=jpeg(quality=50 + n), source_id="")
        for n in range(3)
    ]
    text = "item {\n  id: 1\n  name: 'cat'\n  id: 2\n  name: 'dog'\n}\n"
    return {"val.record": shard(*records), "label_map.pbtxt": text}


@complaint
def turned_by_exif() -> Files:
    turned = exif_jpeg()
    return labelled(record(encoded=turned, height=WIDTH, width=HEIGHT))


@complaint
def git_lfs() -> Files:
    return {"db/train": POINTER}


@complaint
def html_page() -> Files:
    return {
        "train.tfrecord": "<!doctype html>\n<html><head><title>Google Drive</title></head></html>"
    }


@complaint
def sequence_examples() -> Files:
    frames = field(1, field(1, b"image/encoded") + field(2, field(1, field(1, field(1, jpeg())))))
    return {"clip.tfrecord": shard(field(1, b"") + field(2, frames))}


@complaint
def paths_exchanged() -> Files:
    return {"train.record": shard(record()), "test.record": shard(record())}


def test_an_export_holds_no_images(tmp_path: Path) -> None:
    """The memory does not depend on the images: CVAT's old export ended for want of it."""
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
        done = run_python("-c", script, source, tmp_path / f"out{number}")
        peaks.append(int(done.out.partition("VmHWM:")[2].split()[0]))
        assert sum(one.stat().st_size for one in (tmp_path / f"out{number}").iterdir()) > 20 * spare
    assert peaks[1] - peaks[0] < 40_000  # kB, for images of 80 MB

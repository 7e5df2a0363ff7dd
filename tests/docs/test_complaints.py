"""docs/complaints.md: for an input with the complaint, each command prints the text of the page.

A row of its table has the complaint, its cause, the commands, and parts of their output, in order.
Each input has the cause that the thread named in the row had.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
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


def rows() -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield the number, the commands and the output of each row."""
    for number, row in enumerate(_ROW.findall(PAGE.read_text(encoding="utf-8"))):
        commands, printed = ([a or b for a, b in _CODE.findall(cell)] for cell in row[2:])
        yield number, commands, printed


def test_every_complaint_has_a_row() -> None:
    assert len(list(rows())) == len(inputs()) > 10


@pytest.mark.parametrize(("number", "commands", "printed"), rows())
def test_complaint(number: int, commands: list[str], printed: list[str], tmp_path: Path) -> None:
    name, files = list(inputs().items())[number]
    write_files(tmp_path, files)
    assert commands and printed
    got = ""
    for command in commands:
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)]
        _, output = run_program(words, tmp_path, environment(tmp_path))
        assert "Traceback" not in output
        got += " ".join(output.split()) + "\n"
    expected = ".*?".join(map(re.escape, printed))
    assert re.search(expected, got, re.DOTALL), f"{name}: {printed}\n\n{got}"


def labelled(*payloads: bytes, **more: bytes | str) -> Files:
    """Return a shard and its label map."""
    return {"train.record": shard(*payloads), "label_map.pbtxt": LABEL_MAP, **more}


def numbered(count: int) -> list[bytes]:
    """Return records of different images."""
    return [
        record(f"{n}.jpg", encoded=jpeg(quality=40 + n), source_id=str(n + 1)) for n in range(count)
    ]


def square(quality: int) -> dict[str, Any]:
    """Return the fields of a square image."""
    return {"encoded": jpeg((_SIDE, _SIDE), quality=quality), "height": _SIDE, "width": _SIDE}


def pipeline(more: str = "", *, num_classes: int = 2, input_path: str = "train.record") -> str:
    """Return a configuration of the OD API's trainer, with more options for the input reader."""
    return (
        f"model {{\n  ssd {{\n    num_classes: {num_classes}\n  }}\n}}\n"
        f'train_input_reader {{\n  label_map_path: "label_map.pbtxt"\n  {more}\n'
        f'  tf_record_input_reader {{ input_path: "{input_path}" }}\n}}\n'
    )


@cache
def inputs() -> Mapping[str, Files]:
    """Return the files of each row."""
    outside = [(0.1, 0.2, 1.15277779, 0.95), (0.6, 0.1, 0.3, 0.4)]
    cut = square(75)
    cut["encoded"] = cut["encoded"][: len(cut["encoded"]) // 2]
    parts = [shard(*numbered(12)[start : start + 4]) for start in (0, 4, 8)]
    parts[1] = flip(parts[1], 1800)
    names = [f"train.record-0000{number}-of-00003" for number in range(3)]
    curly = LABEL_MAP.decode().replace(" 'cat'", " ‘cat’").replace(" 'dog'", " “dog”")
    from_0 = b"item {\n\tid: 0\n\tname: 'cat'\n}\n\nitem {\n\tid: 1\n\tname: 'dog'\n}\n\n"
    # The order of the children of bndbox is not the usual one.
    voc = (
        "<annotation><filename>93CZ.jpg</filename><path>93CZ.jpg</path>"
        f"<size><width>{_SIDE}</width><height>{_SIDE}</height><depth>3</depth></size>"
        "<object><name>bicycle</name><bndbox><xmin>31.5</xmin><xmax>415</xmax><ymin>92</ymin>"
        "<ymax>345.25</ymax></bndbox></object></annotation>"
    )
    boxes = [(31, 415, 92, 345), (10, 100, 200, 300), (50, 300, 20, 80), (5, 400, 100, 390)]
    wrong = [
        with_boxes([tuple(side / _SIDE for side in box)], name=f"{n}.jpg", **square(50 + n))
        for n, box in enumerate(boxes)
    ]
    frame = features("frame_000001.jpg", encoded=b"", format="")
    frame = {key: value for key, value in frame.items() if "object" not in key}
    frames = [
        encode(frame | {"image/filename": f"frame_{n:06}.jpg", "image/source_id": f"{n + 9}"})
        for n in range(18)
    ]
    in_pixels = [
        with_boxes(
            [(10.0, 5.0, 30.0, 15.0)], name=f"{n}.jpg", encoded=jpeg(quality=50 + n), source_id=""
        )
        for n in range(3)
    ]
    masks = pipeline("load_instance_masks: true mask_type: PNG_MASKS")
    sequence = field(1, field(1, b"image/encoded") + field(2, field(1, field(1, field(1, jpeg())))))
    return {
        "box outside": labelled(
            record(), with_boxes(outside, name="IMG_4431.jpg", encoded=jpeg(quality=50))
        ),
        "truncated JPEG": labelled(record(), record("IMG_7.jpg", **cut)),
        "text for source id": labelled(
            *numbered(2), record("Czech_000319.jpg", source_id="Czech_000319.jpg")
        ),
        "unknown class": {
            "train_labels.csv": (
                f"{_CSV}a.jpg,40,20,raccoon,2,2,20,18\nb.jpg,40,20,Racoon,2,2,20,18\n"
            ),
            "images/a.jpg": jpeg(),
            "images/b.jpg": jpeg(quality=50),
            "label_map.pbtxt": "item { id: 1 name: 'raccoon' }\n",
        },
        "corrupt shard": {**dict(zip(names, parts, strict=True)), "label_map.pbtxt": LABEL_MAP},
        "curly quotes": {"train.record": shard(record()), "label_map.pbtxt": curly},
        "ids from 0": {
            "anno.zip": real_zip(
                {"default.tfrecord": shard(record(label=[0, 1])), "label_map.pbtxt": from_0}.items()
            )
        },
        "PNG called jpg": labelled(record("b.jpg", encoded=png(), format="png")),
        "order of children": {
            "voc/93CZ.jpg": square(75)["encoded"],
            "voc/93CZ.xml": voc,
            "wrong/train.record": shard(*wrong),
            "wrong/label_map.pbtxt": LABEL_MAP,
        },
        "frames without images": labelled(*numbered(3), *frames),
        "wrong path": labelled(
            record(), **{"pipeline.config": pipeline(input_path="data/train.record")}
        ),
        "number of classes": labelled(record(), **{"pipeline.config": pipeline(num_classes=90)}),
        "missing masks": labelled(record(), **{"mask_rcnn.config": masks}),
        "boxes in pixels": {
            "val.record": shard(*in_pixels),
            "label_map.pbtxt": "item {\n  id: 1\n  name: 'cat'\n  id: 2\n  name: 'dog'\n}\n",
        },
        "rotated by EXIF": labelled(record(encoded=exif_jpeg(), height=WIDTH, width=HEIGHT)),
        "Git LFS": {
            "db/train": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\n"
            "size 12345\n"
        },
        "HTML page": {
            "train.tfrecord": "<!doctype html>\n<html><title>Google Drive</title></html>"
        },
        "SequenceExample": {"clip.tfrecord": shard(field(1, b"") + field(2, sequence))},
        "exchanged paths": {"train.record": shard(record()), "test.record": shard(record())},
    }


def test_an_export_holds_no_images(tmp_path: Path) -> None:
    """The memory does not depend on the images; CVAT's old export needed too much."""
    pytest.importorskip("datumaro")
    require("/proc", Path("/proc/self/status").exists())
    script = (
        "import sys\nfrom datumaro.components.dataset import Dataset\n"
        "Dataset.import_from(sys.argv[1], 'tf_detection_api').export(sys.argv[2], "
        "'tf_detection_api', save_media=True)\n"
        "print(open('/proc/self/status').read())"
    )
    peaks = []
    for number, spare in enumerate((0, 4_000_000)):
        source, target = tmp_path / f"in{number}", tmp_path / f"out{number}"
        images = [jpeg(quality=40 + n) + bytes(spare) for n in range(20)]
        records = [record(f"{n}.jpg", encoded=image) for n, image in enumerate(images)]
        write_files(source, {"train.tfrecord": shard(*records), "label_map.pbtxt": LABEL_MAP})
        del images, records
        done = run_python("-c", script, source, target)
        peaks.append(int(done.out.partition("VmHWM:")[2].split()[0]))
        assert sum(file.stat().st_size for file in target.iterdir()) > 20 * spare
    assert peaks[1] - peaks[0] < 40_000  # kB, for images of 80 MB

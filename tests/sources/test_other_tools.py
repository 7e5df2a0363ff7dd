"""Every command names the format of other tools, and the tool that reads it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.image_kinds import plain_image
from tests.records import encode, frame, image, objects
from tests.zip_forge import real_zip

SHARD = frame(encode(image("a.jpg") | objects([[0, 0, 1, 1]], ["cat"], [1])))
JPEG, PNG = (plain_image((200, 100), (1, 0, 0), kind) for kind in ("JPEG", "PNG"))
COMMANDS = ["check", "describe", "repair", "reshard", "show", "convert", "diff"]


CREATE_ML = (
    '[{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates":'
    ' {"x": 50, "y": 50, "width": 20, "height": 30}}]}]'
)
KITTI = "Car 0.00 0 -1.58 58.01 17.33 61.12 20.12 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n"
DOTA = "imagesource:GoogleEarth\ngsd:0.1\n10 10 50 10 50 40 10 40 plane 0\n"
PANOPTIC = json.dumps({
    "images": [{"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}] * 999,
    "annotations": [{"image_id": 1, "file_name": "a.png", "segments_info":
                     [{"id": 1, "category_id": 1, "bbox": [0, 0, 200, 100], "iscrowd": 0}]}],
    "categories": [{"id": 1, "name": "cat", "isthing": 1}],
})  # fmt: skip
DATUMARO = json.dumps({
    "infos": {}, "categories": {"label": {"labels": [{"name": "cat", "parent": ""}]}},
    "items": [{"id": "a", "annotations": [{"type": "bbox", "label_id": 0, "bbox": [1, 2, 3, 4]}],
               "image": {"path": "a.jpg", "size": [100, 200]}}],
})  # fmt: skip
LABELME_XML = (
    "<annotation><filename>a.jpg</filename><folder/><source><sourceAnnotation>LabelMe Webtool"
    "</sourceAnnotation></source><object><name>cat</name><deleted>0</deleted><occluded/>"
    "<attributes/><parts><hasparts/><ispartof/></parts><id>0</id><polygon><username>x</username>"
    "<pt><x>1</x><y>1</y></pt><pt><x>9</x><y>1</y></pt><pt><x>9</x><y>9</y></pt></polygon></object>"
    "</annotation>"
)
OPEN_IMAGES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,"
    "IsDepiction,IsInside\na,xclick,/m/01yrx,1,0.1,0.5,0.2,0.6,0,0,0,0,0\n"
)
READ_BY_DATUMARO: dict[str, tuple[str, Mapping[str, bytes | str]]] = {
    "roboflow_create_ml": (
        "CreateML", {"train/a.jpg": JPEG, "train/_annotations.createml.json": CREATE_ML}),
    "kitti_detection": (
        "KITTI", {"training/image_2/1.png": PNG, "training/label_2/1.txt": KITTI}),
    "dota": ("DOTA", {"train/images/a.png": PNG, "train/labelTxt/a.txt": DOTA}),
    "coco_panoptic": ("COCO panoptic", {
        "images/train/a.jpg": JPEG, "annotations/panoptic_train.json": PANOPTIC,
        "annotations/panoptic_train/a.png": PNG}),
    "datumaro": (
        "Datumaro", {"images/default/a.jpg": JPEG, "annotations/default.json": DATUMARO}),
    "label_me": ("LabelMe XML", {"Images/a.jpg": JPEG, "Annotations/a.xml": LABELME_XML}),
    "open_images": ("Open Images", {
        "images/train/a.jpg": JPEG, "annotations/train-annotations-bbox.csv": OPEN_IMAGES,
        "annotations/class-descriptions.csv": "/m/01yrx,Cat\n"}),
    "vott_csv": ("VoTT CSV", {
        "a.jpg": JPEG,
        "p-export.csv": '"image","xmin","ymin","xmax","ymax","label"\n"a.jpg",1,1,5,5,"cat"\n'}),
}  # fmt: skip
"""The title of a format in messages, and its files, by the name of Datumaro's format."""
OTHERS: list[tuple[str, str, Mapping[str, bytes | str]]] = [
    ("LabelMe JSON", "labelme2voc.py", {"a.json": '{"shapes": [], "imagePath": "a.jpg"}'}),
    ("LabelMe JSON", "labelme2voc.py", {"a.json": '{"imagePath": "a.jpg", "shapes": []}'}),
    ("DOTA", "train/labelTxt", {"a.txt": "10 10 50 10 50 40 10 40 étoile 0\n"}),
    ("KITTI", "label_2", {"labels/1.txt": KITTI.replace("Car", "Étoile")}),
    ("VIA", "as COCO", {"via.json": '{"a.jpg1": {"regions": [{"shape_attributes": {}}]}}'}),
    ("VIA", "as COCO", {"via.csv": "filename,region_shape_attributes\n"}),
    ("Supervisely", "as COCO", {"ds0/ann/a.jpg.json": '{"objects": []}', "meta.json": "{}"}),
    ("Label Studio", "as COCO", {"p.json": '[{"annotations": [{"from_name": "label"}]}]'}),
    ("VoTT JSON", "as COCO", {"x-asset.json": '{"regions": [{"boundingBox": {}}]}'}),
    ("DOTA", "train/labelTxt", {"a.txt": DOTA, "a.jpg": JPEG}),
    ("CreateML", "_annotations.createml.json", {"a.json": CREATE_ML}),
    ("COCO panoptic", "panoptic_train", {"panoptic_train.json": PANOPTIC, "a.jpg": JPEG}),
    ("LabelMe XML", "Annotations", {"a.xml": LABELME_XML, "a.jpg": JPEG}),
    ("archive", "set.tar", {"set.tar": b"", "a.jpg": JPEG}),
]
NEAR_MISSES: list[Mapping[str, bytes | str]] = [
    {"a.json": '{"annotations": 1}', "b.txt": "0 0.5 0.5 0.1 0.1 1 1 1 1 x\n"},
    {"map.xml": "<kml><polygon/></kml>", "image.csv": "name,xmin\n", "notes.txt": "Car 1 2 3\n"},
]


def command_line(command: str, source: object) -> list[object]:
    """Return a command with its arguments."""
    targets = {"convert": ["out.json"], "repair": ["out"], "reshard": ["out"], "diff": [source]}
    return [command, source, *targets.get(command, [])]


@pytest.mark.parametrize("datum_format", READ_BY_DATUMARO)
def test_the_command_of_datumaro_works_as_typed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datum_format: str
) -> None:
    datumaro = pytest.importorskip("datumaro")
    monkeypatch.chdir(tmp_path)
    title, files = READ_BY_DATUMARO[datum_format]
    write_files(tmp_path / "it's mine" / "set", files)  # one folder further down
    message = run("check", "it's mine").refused()
    assert f"it's mine: contains {title}" in message
    (typed,) = re.findall(r"; type: (datum convert .*)", message)
    words = shlex.split(typed)
    assert words[words.index("-if") + 1] == datum_format
    if datum_format not in datumaro.Environment().importers:
        pytest.skip("another line of Datumaro")
    from datumaro.cli.__main__ import main as datum

    assert datum(words[1:]) == 0
    described = run("describe", "shards")
    assert described.out.startswith("1 shard, ") and " 0 boxes" not in described.out


@pytest.mark.parametrize(("title", "advice", "files"), OTHERS)
def test_other_tools_are_named(
    run: Run, tmp_path: Path, title: str, advice: str, files: Mapping[str, bytes | str]
) -> None:
    folder = write_files(tmp_path / "d", files)
    zipped = write_file(tmp_path / "d.zip", real_zip(files_in(folder).items()))
    for command in COMMANDS:
        message = run(*command_line(command, folder)).refused()
        assert title in message and advice in message and "tfod convert" not in message
        done = run(*command_line(command, zipped))
        assert done.code and title in done.out + done.err


@pytest.mark.parametrize("files", NEAR_MISSES)
def test_near_misses(run: Run, tmp_path: Path, files: Mapping[str, bytes | str]) -> None:
    folder = write_files(tmp_path / "d", files)
    message = run("check", folder).refused()
    assert "no shard in this folder" in message
    assert all(f" {Path(name).suffix}" in message for name in files) and "COCO" in message
    assert "has no known format" in run(*command_line("convert", folder)).refused()


def test_a_zip_in_a_zip_is_named(run: Run, tmp_path: Path) -> None:
    inner = real_zip([("default.tfrecord", b"1")])
    source = write_file(tmp_path / "outer.zip", real_zip([("inner.zip", inner)]))
    for command in COMMANDS:
        done = run(*command_line(command, source))
        assert done.code and "inner.zip" in done.out + done.err and "--from" not in done.err


@pytest.mark.parametrize(
    ("files", "content"),
    [({}, "is empty"), ({"a.jpg": JPEG, "b/b.jpg": JPEG, "c": b"1"}, "only 2 .jpg, 1 other")],
)
def test_folders_without_shards_and_annotations(
    run: Run, tmp_path: Path, files: Mapping[str, bytes | str], content: str
) -> None:
    folder = write_files(tmp_path / "d", files)
    (tmp_path / "d").mkdir(exist_ok=True)
    for command in COMMANDS:
        message = run(*command_line(command, folder)).refused()
        assert content in message and "annotations" in message and "--from" not in message


def tar(mode: str, tar_format: int = tarfile.PAX_FORMAT, name: str = "train.record") -> bytes:
    """A tar archive of a shard."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=tar_format) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(SHARD)
        archive.addfile(entry, io.BytesIO(SHARD))
    return stream.getvalue()


def without_magic(archive: bytes) -> bytes:
    """The archive as tar of Unix V7 began it."""
    head = archive[:148] + b" " * 8 + archive[156:257] + bytes(8) + archive[265:512]
    return head[:148] + b"%06o\0 " % sum(head) + head[156:] + archive[512:]


ARCHIVES = {
    "a.tar": ("tar", tar("w")),
    "ustar.tar": ("tar", tar("w", tarfile.USTAR_FORMAT)),
    "train.tfrecord": ("tar", tar("w", tarfile.GNU_FORMAT)),
    "v7.record": ("tar", without_magic(tar("w", tarfile.USTAR_FORMAT))),
    "zlib.record": ("tar", tar("w", name="80_looks_like_zlib")),
    "a.tar.gz": ("tar", tar("w:gz")),
    "train.tfrecord.gz": ("tar", gzip.compress(tar("w"))),
    "a.tar.xz": ("xz", tar("w:xz")),
    "train.record.xz": ("xz", lzma.compress(SHARD)),
    "a.tbz2": ("bzip2", bz2.compress(SHARD)),
    "a.zst": ("Zstandard", b"\x28\xb5\x2f\xfd" + bytes(range(99))),
    "a.7z": ("7-Zip", b"7z\xbc\xaf\x27\x1c" + bytes(range(99))),
    "a.rar": ("RAR", b"Rar!\x1a\x07" + bytes(range(99))),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_are_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, data = ARCHIVES[name]
    write_file(tmp_path / name, data)
    for command in COMMANDS[1:]:
        message = run(*command_line(command, name)).refused()
        assert name in message and kind in message and "unpack it first" in message
    done = run("check", name)
    assert done.code == 1 and "TFR001" in done.out and kind in done.out
    assert "TFR003" not in done.out and "tfod repair" not in done.out
    assert {*files_in(tmp_path)} == {name}

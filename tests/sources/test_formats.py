"""One function recognizes a format, and the command in its message works."""

from __future__ import annotations

import re
import shlex
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tfod.sources.format_recognition import FORMATS, recognize_annotations
from tfod.sources.reading import read_detections

from tests.commands import Run
from tests.files import write_files
from tests.image_kinds import png
from tests.zip_forge import Item, forge

PNG = png(8, 2)
VOC = """<annotation><filename>a.png</filename><object><name>cat</name><bndbox>
<xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object></annotation>"""
COCO = """{"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 1, "name": "cat"}],
"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "area": 1, "bbox": [1, 1, 3, 3]}]}"""
CSV = "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,,,cat,1,1,4,4\n"
CVAT = """<?xml version="1.0"?><annotations><meta><task><labels><label><name>cat</name></label>
</labels></task></meta><image id="0" name="a.png" width="34" height="21"><box label="cat" xtl="1"
ytl="1" xbr="4" ybr="4"/></image></annotations>"""
YOLO = {"images/a.png": PNG, "labels/a.txt": "0 .5 .5 .5 .5\n"}
DOTA = {"a.png": PNG, "a.txt": "imagesource:x\ngsd:1\n1 1 2 1 2 2 1 2 plane 0\n"}
KML = "<?xml version='1.0'?><!-- <annotation> --><kml><annotation/></kml>"
SOURCES: dict[str, tuple[str, dict[str, str | bytes]]] = {
    "VOC": ("voc", {"Annotations/a.xml": VOC, "JPEGImages/a.png": PNG}),
    "VOC, nested": ("voc", {"images/train/a.xml": VOC, "images/train/a.png": PNG}),
    "VOC, images above": ("voc", {"Annotations/a.xml": VOC, "a.png": PNG}),
    "VOC, UTF-16": ("voc", {"a.xml": VOC.encode("utf-16"), "a.png": PNG}),
    "VOC, capitals": ("voc", {"a.xml": "<!-- x -->" + VOC.replace("ann", "Ann")}
                      | {"a.png": PNG, "0.xml": KML}),
    "VOC, devkit": ("voc", {f"VOCdevkit/VOC2007/{name}": text for name, text in {
        "Annotations/a.xml": VOC, "JPEGImages/a.png": PNG, "ImageSets/Main/val.txt": "a"
    }.items()}),
    "VOC, folders": ("voc", {f"{day}/{name}": text for day in "ab" for name, text in {
        "xml/a.xml": VOC, "images/a.png": PNG}.items()}),
    "COCO": ("coco", {"annotations/instances_x.json": COCO, "images/a.png": PNG}),
    "COCO, Roboflow": ("coco", {"train/_annotations.coco.json": COCO, "train/a.png": PNG}),
    "COCO, a name": ("coco", {"x/b.json": COCO, "x/a.png": PNG, "README.md": ""}),
    "YOLO": ("yolo", {"data.yaml": "names: [cat]\ntrain: images\n", **YOLO}),
    "YOLO, Darknet": ("yolo", {"obj.names": "cat", "obj.data": "train=x.txt", "x.txt": "d/a.png",
                               "d/a.png": PNG, "d/a.txt": "0 .5 .5 .5 .5"}),
    "YOLO, classes": ("yolo", {"classes.txt": "cat", **YOLO}),
    "CSV": ("csv", {"a.csv": CSV, "a.png": PNG, "b.csv": "x,y\n"}),
    "CVAT": ("cvat_xml", {"task_7/annotations.xml": CVAT, "task_7/images/a.png": PNG}),
    "CVAT, folders": ("cvat_xml", {"x/annotations.xml": CVAT, "x/a.png": PNG, "y/z.txt": ""}),
    "two": ("voc yolo", {"a.xml": VOC, "a.png": PNG, "data.yaml": "{names: [cat], train: .}"}),
    "VOC with classes.txt": ("voc", {"a.xml": VOC, "a.png": PNG, "classes.txt": "cat"}),
    "hidden": ("", {"__MACOSX/._a.xml": VOC, ".x/a.xml": VOC, "a.png": PNG}),
    "KML": ("", {"a.xml": KML, "a.png": PNG}),
    "DOTA": ("", {**DOTA, "classes.txt": "plane"}),
    "labels without names": ("", YOLO),
    "panoptic": ("", {"annotations/a.json": COCO.replace('"area"', '"segments_info": [], "area"')}),
    "captions": ("", {"annotations/captions_x.json": COCO}),
    "VOC, images in two folders": ("voc", {"xml/a.xml": VOC, "x/a.png": PNG, "y/b.png": PNG}),
    "VOC, far down": ("voc", {"1/2/3/4/5/a.xml": VOC, "1/2/3/4/5/a.png": PNG}),
    "YOLO, another YAML": ("yolo", {"pets.yaml": "names: [cat]\ntrain: images", **YOLO}),
    "CVAT, video": ("", {"annotations.xml": CVAT.replace("<image ", "<track "), "a.png": PNG}),
    "blanks": ("", {f"a.{end}": "\n" * 65536 for end in ("yaml", "json", "csv", "txt", "xml")}),
    "other texts": ("", {"a.json": "{}", "data.yaml": "lr: 1", "a.csv": "x,y", "a.txt": "0 0 1"}),
}  # fmt: skip


def pack(path: Path, files: Mapping[str, str | bytes]) -> None:
    """A zip with these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["my cat's", "my cat's.zip", "."])
def test_the_suggested_command_works(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    expected, files = SOURCES[source]
    folder = write_files(tmp_path / "in", {".keep": ""}) / name
    (pack if folder.suffix else write_files)(folder, files)
    monkeypatch.chdir(tmp_path / "in")
    assert list(recognize_annotations(name).names) == expected.split()
    said = run("describe", name).refused()
    if not expected:
        assert "tfod convert" not in said
        said = run("convert", name, "../out").refused()
        assert re.search("no known format|which tfod does not read|no shards or annotations", said)
        return
    titles = [FORMATS[one].title for one in expected.split()]
    assert f"contains {' or '.join(titles)} annotations, no shards" in said
    command = said.partition("type: ")[2]
    assert ("--from" in command) == (len(titles) > 1)
    run(*shlex.split(command)[1:]).succeeded()
    shards = list(read_detections(tmp_path / "shards" if name == "." else "shards"))
    assert shards and all(len(one.boxes) == 1 and one.encoded == PNG for one in shards)
    options = [f"--from-{side}={expected.split()[0]}" for side in "ab"]
    assert run("diff", name, name, *options).succeeded() == ""


@pytest.mark.parametrize("name", ["d", "d.zip"])
def test_the_label_map_may_be_next_to_the_only_folder(tmp_path: Path, run: Run, name: str) -> None:
    files = {"x/y/a.xml": VOC, "x/y/a.png": PNG, "x.pbtxt": "item { id: 7 name: 'cat' }"}
    (pack if name.endswith("zip") else write_files)(tmp_path / name, files)
    run("convert", tmp_path / name, tmp_path / "out").succeeded()
    assert [one.class_label for one in read_detections(tmp_path / "out")] == [[7]]


ENTRY = Item("a.xml", VOC.encode())


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([ENTRY], r"images that are missing: 1 (x.zip:JPEGImages/a.png, of x.zip:a.xml"),
        ([Item("b/a.xml", b"<annotation>")], "x.zip:b/a.xml is not well-formed XML"),
        ([ENTRY, Item("../a.png", PNG)], "entry ../a.png is not read: the path"),
        ([ENTRY, Item("a.png", b"/etc/passwd", mode=0o120777)], "it is a symbolic link"),
        ([ENTRY, Item("a.png", bytes(32 << 20))], "the maximum is"),
        ([ENTRY, Item("a.png", PNG, crc=1)], "entry a.png is damaged: its CRC-32"),
        ([ENTRY, Item("a.png", PNG, flags=1)], "it is encrypted"),
        ([ENTRY, Item("a.png", PNG), Item("a.png/b", PNG)], "cannot be unpacked"),
        ([Item("a.csv", CSV.replace("a.png", "/etc/a.png").encode())], "missing: 1 (/etc/a.png"),
    ],
)
def test_a_zip_that_cannot_be_converted(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, items: list[Item], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    Path("x.zip").write_bytes(forge(*items))
    for command in (["convert", "x.zip", "out"], ["diff", "x.zip", "x.zip"]):
        said = run(*command).refused()
        assert message in said and "tfod-unpacked" not in said and said.count("\n") == 1
    assert not Path("out").exists() and not list(Path("temporary").iterdir())

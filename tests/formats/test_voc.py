"""Pascal VOC. The expected values are from create_pascal_tf_record.py.

(With TensorFlow 2.21, on the example's JPEGs; the script refuses PNGs.)
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from tfod.checker.check import check_sources
from tfod.detection.labels.label_map import read_label_map

from tests.commands import Run
from tests.differences import diff
from tests.formats.conftest import IMAGES, VOC, Read, Refuse, by_filename

FIRST = "shapes_01.jpg"
FIRST_BOXES = [
    [0.6128125190734863, 0.2642083466053009, 0.9042812585830688, 0.6619583368301392],
    [0.5655937790870667, 0.6928750276565552, 0.6629999876022339, 0.8227499723434448],
    [0.43168750405311584, 0.7070416808128357, 0.6364062428474426, 0.9800000190734863],
]
LISTS = Path("ImageSets", "Main")


def edit(path: Path, pattern: str, to: str, count: int = 1) -> None:
    text = path.read_text()
    changed = re.sub(pattern, lambda _: to, text, count=count, flags=re.DOTALL)
    assert changed != text or not count
    path.write_text(changed)


@pytest.fixture
def first(voc: Path) -> Path:
    return voc / "Annotations" / "shapes_01.xml"


@pytest.fixture
def jpegs(voc: Path) -> Path:
    return voc / "JPEGImages"


def write_list(voc: Path, *lines: str, name: str = "train") -> None:
    (voc / LISTS / f"{name}.txt").write_text("\n".join(lines))


def test_records_are_those_of_the_script(read: Read) -> None:
    found, said = read(VOC)
    assert list(found) == [f"shapes_{n:02}.{'png' if n == 3 else 'jpg'}" for n in range(1, 9)]
    one = found[FIRST]
    assert said == "" and one.boxes.tolist() == FIRST_BOXES
    assert one.class_text == ["étoile", "square", "circle"]
    assert one.class_label == [4, 2, 1]
    assert one.attributes == {
        "difficult": [0, 1, 0],
        "truncated": [0, 0, 0],
        "view": ["Right", "Unspecified", "Unspecified"],
        "occluded": [0, 1, 0],  # not by the script
    }
    assert (one.height, one.width, one.format, one.source_id) == (240, 320, "jpeg", "1")
    data = (IMAGES / FIRST).read_bytes()
    assert one.encoded == data and one.sha256 == hashlib.sha256(data).hexdigest()
    png = found["shapes_03.png"]
    assert png.format == "png" and png.encoded == (IMAGES / "shapes_03.png").read_bytes()
    found, said = read(VOC, "--ignore-difficult")
    assert found[FIRST].boxes.tolist() == [FIRST_BOXES[0], FIRST_BOXES[2]]
    assert re.search(r"difficult objects, left out: \d \(the first: .*01.xml, line 26\)", said)


def test_optional_elements(read: Read, voc: Path, first: Path) -> None:
    for tag in ("difficult", "truncated", "occluded", "pose"):
        edit(first, f"<{tag}>.*?</{tag}>", "", count=0)
    edit(first, "<size>.*?</size>", "")
    edit(first, "<bndbox>.*?</bndbox>", "")
    found, said = read(voc)
    assert "objects without <bndbox>, left out" in said and "line 9" in said
    assert found[FIRST].boxes.tolist() == FIRST_BOXES[1:]
    views = {"view": ["Unspecified", "Unspecified"]}
    assert found[FIRST].attributes == {"difficult": [0, 0], "truncated": [0, 0], **views}


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ("<score>0.5</score><empty/>", "unknown fields, ignored: 1 (the first: {}: <score>)"),
        ("<part><name>x</name></part><attributes><attribute/></attributes>",
         "unknown fields, ignored: 1 (the first: {}: <part>)"),
        ("<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>",
         "several <bndbox>, read only the first: 1 (the first: {})"),
    ],
)  # fmt: skip
def test_unread_elements_are_named(
    read: Read, voc: Path, first: Path, added: str, says: str
) -> None:
    edit(first, "</object>", f"{added}</object>")
    found, said = read(voc)
    assert said == f"tfod: objects with {says.format(f'{first}, line 13')}\n"
    assert found[FIRST].boxes.tolist() == FIRST_BOXES


HALF = 200**0.5
ROTATED = {
    "R-DFPN": ("bndbox", "x0 y0 x1 y1 x2 y2 x3 y3", (160, 80, 180, 100, 160, 120, 140, 100)),
    # The centre, and an angle in radians.
    "roLabelImg": ("robndbox", "cx cy w h angle", (160, 100, 2 * HALF, 2 * HALF, math.pi / 4)),
    "rotation": ("bndbox", "xmin ymin xmax ymax rotation",
                 (160 - HALF, 100 - HALF, 160 + HALF, 100 + HALF, -45)),
}  # fmt: skip
"""A square rotated by 45 degrees, in three spellings."""


@pytest.mark.parametrize("spelling", ROTATED)
def test_rotated_boxes_become_their_enclosing_boxes(
    read: Read, voc: Path, first: Path, spelling: str
) -> None:
    tag, names, values = ROTATED[spelling]
    pairs = zip(names.split(), values, strict=True)
    text = "".join(f"<{name}>{value}</{name}>" for name, value in pairs)
    edit(first, "<bndbox>.*?</bndbox>", f"<type>{tag}</type><{tag}>{text}</{tag}>")
    found, said = read(voc)
    assert found[FIRST].boxes[0] == pytest.approx([140 / 320, 80 / 240, 180 / 320, 120 / 240])
    assert "rotated boxes, replaced by" in said and f": 1 (the first: {first}, line 13)\n" in said


@pytest.mark.parametrize(
    ("pattern", "to", "says"),
    [
        *((">0</trunc", f">{x}</trunc", "") for x in ("Unspecified", "False", "0.0", "")),
        (">1</trunc", ">True</trunc", ""),
        (">0</diff", ">maybe</diff", "flags that are not 0, 1, true or false, read as"),
        ("bndbox", "bndBox", ""),
        ("xmin", "XMin", ""),
        ("object>", "Object>", ""),
    ],
)
def test_spellings(read: Read, voc: Path, first: Path, pattern: str, to: str, says: str) -> None:
    edit(first, pattern, to, count=0)
    found, said = read(voc)
    assert says in said and bool(said) is bool(says)
    assert found[FIRST].boxes.tolist() == FIRST_BOXES
    assert found[FIRST].attributes == read(VOC)[0][FIRST].attributes


def test_a_kit_of_two_years(convert: Run, tmp_path: Path) -> None:
    """One has to be chosen. A list of one class is not a subset."""
    for year, number in (("VOC2007", "01"), ("VOC2012", "02")):
        folder = Path(shutil.copytree(VOC, tmp_path / "kit" / year))
        (folder / LISTS / "val.txt").unlink()
        write_list(folder, f"shapes_{number}")
        write_list(folder, f"shapes_{number} -1", name="aeroplane_train")
    line = convert(tmp_path / "kit", tmp_path / "out").refused()
    assert f"{tmp_path / 'kit'} contains VOC2007 and VOC2012; choose" in line
    (tmp_path / "kit" / "VOC2007").rename(tmp_path / "VOC2007")
    for source, number in (("VOC2012", "02"), ("../VOC2007", "01"), ("", "02")):
        out = tmp_path / f"out{source[-4:]}"
        assert convert(tmp_path / "kit" / source, out).succeeded() == ""
        assert list(by_filename(out)) == [f"shapes_{number}.jpg"]


@pytest.mark.parametrize(
    "row",  # folders of annotations and images, the source, options
    [
        "annotations images .",  # raccoon
        "annots images .",  # kangaroo
        ". . .",  # labelImg
        "xml images xml",
        "xml images . --images={}/images --from=voc",
        "Annotations elsewhere . --images={}/elsewhere",
        "annotations images annotations",  # the source of xml_to_csv.py
    ],
)
def test_other_layouts(read: Read, tmp_path: Path, row: str) -> None:
    annotations, images, source, *options = row.split()
    shutil.copytree(VOC / "Annotations", tmp_path / annotations, dirs_exist_ok=True)
    shutil.copytree(IMAGES, tmp_path / images, dirs_exist_ok=True)
    found, said = read(tmp_path / source, *(option.format(tmp_path) for option in options))
    assert said == "" and list(found) == sorted(path.name for path in IMAGES.iterdir())
    assert found[FIRST].boxes.tolist() == FIRST_BOXES


@pytest.mark.parametrize(
    ("image", "filename"),
    [
        ("shapes_01.JPG", "shapes_01"),  # old labelImg leaves out the extension
        ("shapes_01.JPG", "shapes_01.jpg"),
        ("IMG 1.jpg", "IMG 1.jpg"),  # no image has the name of the XML file
        ("a/b/IMG 1.jpg", "a\\b\\IMG 1.jpg"),
        ("IMG 1.jpg", "D:/photos/IMG 1.jpg"),
        ("../../IMG 1.jpg", "</filename><path>{}/IMG 1.jpg</path><filename>"),
    ],
)
def test_names_of_an_image(read: Read, voc: Path, first: Path, image: str, filename: str) -> None:
    path = voc / "JPEGImages" / image
    path.parent.mkdir(parents=True, exist_ok=True)
    (voc / "JPEGImages" / FIRST).rename(path)
    edit(first, FIRST, filename.format(voc.parent), count=0)
    found, said = read(voc)
    (one,) = (one for name, one in found.items() if image.endswith(name.rpartition("/")[2]))
    assert said == "" and one.encoded == (IMAGES / FIRST).read_bytes()


def test_an_image_is_named_as_its_xml(read: Read, voc: Path, jpegs: Path) -> None:
    """After renaming, <filename> is the name of another image."""
    shutil.rmtree(voc / "ImageSets")
    for number in (1, 2):
        old, new = f"shapes_0{number}", f"shapes_1{number}"
        (voc / "Annotations" / f"{old}.xml").rename(voc / "Annotations" / f"{new}.xml")
        (jpegs / f"{old}.jpg").rename(jpegs / f"{new}.jpg")
    shutil.copy(IMAGES / "shapes_05.jpg", jpegs / FIRST)
    found, said = read(voc)
    assert said == "" and found["shapes_11.jpg"].encoded == (IMAGES / FIRST).read_bytes()


def test_several_images_with_the_name_of_the_xml(
    read: Read, refuse: Refuse, voc: Path, jpegs: Path, first: Path
) -> None:
    Image.open(jpegs / "shapes_05.jpg").resize((320, 240)).save(jpegs / "shapes_01.bmp")
    assert read(voc)[0][FIRST].boxes.tolist() == FIRST_BOXES  # by <filename>
    edit(first, FIRST, "shapes_01.png")
    names = f"{first}: shapes_01.bmp, shapes_01.jpg"
    assert f"image names that match several files: 1 ({names}); write" in refuse(voc)


@pytest.mark.parametrize("written", ["shapes_02.jpg", "deep/er/shapes_02.jpg"])
def test_folders_below(convert: Run, tmp_path: Path, written: str) -> None:
    """CVAT writes the folder into <filename>, other tools do not."""
    root = tmp_path / "voc"
    for name in ("Annotations/shapes_02.xml", "JPEGImages/shapes_02.jpg"):
        folder, _, file = name.partition("/")
        (root / folder / "deep" / "er").mkdir(parents=True)
        shutil.copy(VOC / name, root / folder / "deep" / "er" / file)
    xml = root / "Annotations" / "deep" / "er" / "shapes_02.xml"
    edit(xml, "shapes_02.jpg", written, count=0)
    shutil.copytree(xml.parent, root / "Annotations" / ".ipynb_checkpoints")
    convert(root, tmp_path / "out").succeeded()
    assert list(by_filename(tmp_path / "out")) == ["deep/er/shapes_02.jpg"]
    report = check_sources([str(tmp_path / "out")])
    assert report.valid and not report.flatten("code")


def test_roboflows_folders_are_subsets(convert: Run, tmp_path: Path) -> None:
    robo = tmp_path / "robo"
    for number, subset in enumerate(("train", "valid", "test"), 1):
        (robo / subset).mkdir(parents=True)
        shutil.copy(VOC / "Annotations" / f"shapes_0{number}.xml", robo / subset)
        shutil.copy(next(IMAGES.glob(f"shapes_0{number}.*")), robo / subset)
    done = convert(robo, tmp_path / "out")
    assert re.findall(r"out: (\w+): 1 image,", done.out) == ["train", "valid", "test"]
    convert(robo, tmp_path / "x.record", "--set", "train").succeeded()
    assert list(by_filename(tmp_path / "x.record")) == [FIRST]
    line = convert(robo, tmp_path / "y", "--set", "val").refused()
    assert "has no subset 'val'; choose another --set: train, valid, test" in line


def test_links_and_pipes(read: Read, voc: Path) -> None:
    shutil.rmtree(voc / "ImageSets")
    (voc / "Annotations").rename(voc.with_name("more"))
    (voc / "Annotations").mkdir()
    (voc / "Annotations" / "linked").symlink_to(voc.with_name("more"))
    (voc.with_name("more") / "up").symlink_to(voc / "Annotations")
    os.mkfifo(voc / "Annotations" / "a.xml")
    found, said = read(voc)
    assert said == "" and len(found) == 12


def test_a_name_that_is_not_utf_8(read: Read, refuse: Refuse, voc: Path, jpegs: Path) -> None:
    shutil.rmtree(voc / "ImageSets")
    name = os.fsdecode(b"caf\xe9")
    (voc / "Annotations" / "shapes_01.xml").rename(voc / "Annotations" / f"{name}.xml")
    assert read(voc)[0][FIRST].boxes.tolist() == FIRST_BOXES  # by <filename>
    (jpegs / FIRST).rename(jpegs / f"{name}.jpg")
    assert "is not Unicode text; rename it\n" in refuse(voc)


def test_two_folders_of_annotations(refuse: Refuse, voc: Path) -> None:
    shutil.copytree(voc / "Annotations", voc / "annotations")
    folders = f"{voc / 'Annotations'} and {voc / 'annotations'}"
    assert f"{folders} contain XML files; move them into one" in refuse(voc)


@pytest.mark.parametrize(
    "line",  # of the devkit (with a flag of a class), RectLabel, and lists of files
    [
        *("{}", "{} 1", "{}  -1", "{}.jpg", "{}.JPG", "{}.xml", '"{}"', "'{}.jpg'", "  {}\t"),
        *('"/home/k/data/front/{}.jpg"', "..\\JPEGImages\\{}.jpg", '"C:\\data\\front\\{}.png"'),
        *("./JPEGImages/{}.jpg 1", '"{}.jpg" 1'),
    ],
)
def test_lines_of_lists(read: Read, voc: Path, line: str) -> None:
    lines = [line.format(f"shapes_{number}") for number in ("01", "02")]
    write_list(voc, *lines)
    found, said = read(voc)
    assert said == "" and list(found) == [FIRST, "shapes_02.jpg"]
    write_list(voc, *lines, "shapes_01")
    twice, said = read(voc)
    assert "annotations that are listed twice in a set, written once" in said
    assert "shapes_01.xml)" in said and list(twice) == list(found)


@pytest.mark.parametrize("stem", ["front/my one", "frame.000123", "a.v2", "a 1", "it's"])
def test_unusual_names_in_lists(read: Read, voc: Path, stem: str) -> None:
    for folder, ending in (("Annotations", ".xml"), ("JPEGImages", ".jpg")):
        to = voc / folder / f"{stem}{ending}"
        to.parent.mkdir(exist_ok=True)
        (voc / folder / f"shapes_01{ending}").rename(to)
    for line in (stem, f"{stem} 1", f"{stem}.jpg", stem.replace("/", "\\")):
        write_list(voc, line)
        for options in ((), ("--no-images",)):
            assert list(read(voc, *options)[0]) == [f"{stem}.jpg"], line


@pytest.mark.parametrize(
    ("lists", "options", "counts"),
    [
        ({}, (), {"default": 12}),
        ({}, ("--set", "a"), {"a": 12}),
        # A list that is the union of two others is not a subset.
        ({"train": "01", "val": "02", "trainval": "01 02"}, (), {"train": 1, "val": 1}),
        (
            {"train": "01", "val": "02", "trainval": "01 03"},
            (),
            {"train": 1, "trainval": 2, "val": 1},
        ),
    ],
)
def test_subsets(
    convert: Run, voc: Path, lists: dict[str, str], options: Sequence[str], counts: dict[str, int]
) -> None:
    for path in (voc / LISTS).iterdir():
        path.unlink()
    for name, numbers in lists.items():
        write_list(voc, *(f"shapes_{number}" for number in numbers.split()), name=name)
    done = convert(voc, voc.with_name("out"), "--no-images", *options)
    found = re.findall(r"out: (\w+): (\d+) image", done.out)
    assert {name: int(count) for name, count in found} == counts


def test_the_label_map_has_the_classes_of_all_subsets(convert: Run, voc: Path) -> None:
    out = voc.with_name("out")
    edit(voc / "Annotations" / "shapes_12.xml", "<name>circle<", "<name>arch<", count=0)
    convert(voc, out, "--set", "train").succeeded()
    names = read_label_map(out / "label_map.pbtxt")[0].class_names
    assert [*names.items()] == [*enumerate(["arch", "circle", "square", "triangle", "étoile"], 1)]


def test_the_label_map_of_voc_if_it_has_every_class(convert: Run, voc: Path) -> None:
    for path in (voc / "Annotations").iterdir():
        edit(path, "<name>[^<]*<", "<name>dog<", count=0)
    out = voc.with_name("out")
    convert(voc, out).succeeded()
    assert len(read_label_map(out / "label_map.pbtxt")[0].items) == 20
    assert by_filename(out)["shapes_02.jpg"].class_label == [12]


@pytest.mark.parametrize(
    ("target", "other"),
    [("a", "voc"), ("a", "csv"), ("a", "yolo"), ("a", "coco"), ("a/x.record", "a.csv")],
)
def test_ids_survive_formats_without_ids(
    convert: Run, tmp_path: Path, target: str, other: str
) -> None:
    """Ids other than 1 to n are written to a label map next to the annotations."""
    ids = {"circle": 70, "square": 9, "triangle": 3, "étoile": 90}
    items = (f"item {{ id: {number} name: '{name}' }}\n" for name, number in ids.items())
    (tmp_path / "own.pbtxt").write_text("".join(items))
    only = ("--set", "train", "--label-map", tmp_path / "own.pbtxt")
    convert(VOC, tmp_path / target, *only).succeeded()
    path, options = tmp_path / "out" / other, ("--no-images",) * (other == "a.csv")
    convert(tmp_path / target, path, "--to", other.removeprefix("a."), *options).succeeded()
    convert(path, tmp_path / "b", *options).succeeded()
    before, after = ({name: one.class_label for name, one in by_filename(tmp_path / x).items()}
                     for x in "ab")  # fmt: skip
    assert before[FIRST] == [90, 9, 70] and after == before


def test_a_class_that_is_not_in_the_label_map(refuse: Refuse) -> None:
    line = refuse(VOC, "--label-map", "voc2007")
    assert "shapes_01.xml, line 13: class 'étoile' is not in the label map voc2007" in line


def test_missing_images_are_named_together(refuse: Refuse, voc: Path, jpegs: Path) -> None:
    missing = [jpegs / f"shapes_0{number}.jpg" for number in (4, 5)]
    for path in missing:
        path.unlink()
    where = "; ".join(f"{path}, of {voc / 'Annotations' / path.stem}.xml" for path in missing)
    assert f"images that are missing: 2 ({where}); add the images" in refuse(voc)


@pytest.mark.parametrize(
    ("pattern", "to", "says"),
    [
        ("<name>.*?<", "<name> <", "line 13: <name> is empty; add the class"),
        ("<xmin>.*?<", "<xmin>left<", "<xmin> is 'left'"),
        ("<xmax>.*?<", "<xmax>1e300<", "1e+300"),
        ("bndbox", "box", "no object has a <bndbox>, only <name>"),
        ("object>", "item>", "no object has a <bndbox>, only "),
        ("<xmax>.*?</xmax>", "", "<xmax> is ''"),
        ("</annotation>", "", "not well-formed XML"),
        ("<annotation>", "<!DOCTYPE a><annotation>", "document type"),
        (".*", "<annotations/>", "is not a Pascal VOC annotation: its root is not"),
    ],
)
def test_xml(refuse: Refuse, voc: Path, first: Path, pattern: str, to: str, says: str) -> None:
    edit(first, pattern, to, count=0 if pattern[-3:] in ("box", "ct>") else 1)
    line = refuse(voc, "--from", "voc")
    assert says in line and "shapes_01.xml" in line


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        (LISTS / "train.txt", b"\xff\n", "train.txt is not UTF-8 (byte 0); save it"),
        (LISTS / "train.txt", b"shapes_01\n\nshapes_99.jpg\n", "train.txt, line 3: "),
        (LISTS / "train.txt", None, "train.txt: no such list of images; choose"),
        *(
            (Path("JPEGImages", FIRST), data, f"JPEGImages/{FIRST} is not a readable image")
            for data in (b"<html>not found</html>", b"", HEIC, b"version https://git-lfs\n")
        ),
        (Path("Annotations"), None, "contains no XML file; pass the annotations folder"),
    ],
)
def test_files_and_folders(
    refuse: Refuse, voc: Path, path: Path, content: bytes | None, says: str
) -> None:
    shutil.rmtree(voc / path) if (voc / path).is_dir() else (voc / path).unlink()
    if content is not None:
        (voc / path).write_bytes(content)
    assert says in refuse(voc, "--from", "voc")


@pytest.mark.parametrize("name", ["a:b", "#a", "a\nb"])
def test_classes_that_labelmap_txt_cannot_hold(
    convert: Run, voc: Path, tmp_path: Path, name: str
) -> None:
    edit(voc / "Annotations" / "shapes_01.xml", "<name>étoile<", f"<name>{name}<")
    convert(voc, tmp_path / "s", "--no-images").succeeded()
    says = convert(tmp_path / "s", tmp_path / "out", "--to", "voc", "--no-images").succeeded()
    what = "classes with a colon, line break or leading #, left out of labelmap.txt: 1"
    assert what in says and name not in (tmp_path / "out" / "labelmap.txt").read_text()


def test_the_shards_are_valid_and_equal_to_the_source(convert: Run, tmp_path: Path) -> None:
    convert(VOC, tmp_path / "out").succeeded()
    report = check_sources([str(tmp_path / "out")])
    assert report.valid and not report.flatten("code")
    assert diff(VOC, tmp_path / "out").is_equal

"""``tfod create pascal``. What is expected was written by create_pascal_tf_record.py itself.

(Run with TensorFlow 2.21 on the example's JPEGs; it refuses the PNGs.)
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from tfod.check.check import check_sources
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.stream import read_detections
from tfod.shards.diff.diff import Options, diff

from tests.commands import Run
from tests.shards.create.conftest import IMAGES, VOC, by_filename

FIRST_BOXES = [
    [0.6128125190734863, 0.2642083466053009, 0.9042812585830688, 0.6619583368301392],
    [0.5655937790870667, 0.6928750276565552, 0.6629999876022339, 0.8227499723434448],
    [0.43168750405311584, 0.7070416808128357, 0.6364062428474426, 0.9800000190734863],
]


def created(run: Run, data_dir: Path, out: Path, *options: object) -> str:
    return run("pascal", "--data-dir", data_dir, "--output-path", out, *options).succeeded()


def refused(run: Run, data_dir: Path, *options: object) -> str:
    out = data_dir / "out" / "x.record"
    line = run("pascal", "--data-dir", data_dir, "--output-path", out, *options).refused()
    assert not out.exists() and not (out.parent / "label_map.pbtxt").exists()
    return line


def edit(path: Path, pattern: str, to: str) -> None:
    text = path.read_text()
    changed = re.sub(pattern, to, text, count=1, flags=re.DOTALL)
    assert changed != text
    path.write_text(changed)


@pytest.fixture
def first(voc: Path) -> Path:
    return voc / "Annotations" / "shapes_01.xml"


class TestRecords:
    def test_first_record_is_the_scripts(self, run: Run, tmp_path: Path) -> None:
        assert created(run, VOC, tmp_path / "pascal.record", "--set", "train") == ""
        found = by_filename(tmp_path / "pascal.record")
        assert list(found) == [f"shapes_{n:02}.{'png' if n == 3 else 'jpg'}" for n in range(1, 9)]
        one = found["shapes_01.jpg"]
        assert one.boxes.tolist() == FIRST_BOXES
        assert one.class_text == ["étoile", "square", "circle"]
        assert one.class_label == [4, 2, 1]
        assert one.attributes == {
            "difficult": [0, 1, 0],
            "truncated": [0, 0, 0],
            "view": ["Right", "Unspecified", "Unspecified"],
            "occluded": [0, 1, 0],  # not by the script
        }
        assert (one.height, one.width, one.format) == (240, 320, "jpeg")
        assert one.source_id == "1"
        data = (IMAGES / "shapes_01.jpg").read_bytes()
        assert one.encoded == data and one.sha256 == hashlib.sha256(data).hexdigest()
        png = found["shapes_03.png"]
        assert png.format == "png" and png.encoded == (IMAGES / "shapes_03.png").read_bytes()

    def test_difficult_objects_can_be_left_out(self, run: Run, tmp_path: Path) -> None:
        output = created(run, VOC, tmp_path / "p.record", "--ignore-difficult-instances")
        one = by_filename(tmp_path / "p.record")["shapes_01.jpg"]
        assert one.boxes.tolist() == [FIRST_BOXES[0], FIRST_BOXES[2]]
        assert re.search(r"\d difficult objects, left out \(the first: .*01.xml, line 26\)", output)

    def test_what_other_tools_leave_out(self, run: Run, voc: Path, first: Path) -> None:
        for tag in ("difficult", "truncated", "occluded", "pose"):
            first.write_text(re.sub(f"<{tag}>.*?</{tag}>", "", first.read_text()))
        edit(first, "<size>.*?</size>", "")
        edit(first, "<bndbox>.*?</bndbox>", "")
        output = created(run, voc, voc / "p.record")
        one = by_filename(voc / "p.record")["shapes_01.jpg"]
        assert "1 objects without <bndbox>, left out" in output and "line 9" in output
        assert one.boxes.tolist() == FIRST_BOXES[1:]
        assert one.attributes == {
            "difficult": [0, 0],
            "truncated": [0, 0],
            "view": ["Unspecified", "Unspecified"],
        }

    def test_a_size_that_is_wrong_is_told(self, run: Run, voc: Path, first: Path) -> None:
        edit(first, "<width>320<", "<width>640<")
        output = created(run, voc, voc / "p.record")
        one = by_filename(voc / "p.record")["shapes_01.jpg"]
        assert "640x240, the image 320x240" in output
        assert (one.height, one.width) == (240, 320)
        assert one.boxes[0, 0] == FIRST_BOXES[0][0] / 2

    def test_fields_that_are_not_read_are_told(self, run: Run, voc: Path, first: Path) -> None:
        """CVAT's own attributes, VOC's parts, somebody's score; one count an object."""
        edit(first, "</object>", "<score>0.5</score><empty/></object>")
        nested = "<attributes><attribute><name>a</name></attribute></attributes>"
        second = voc / "Annotations" / "shapes_02.xml"
        edit(second, "</object>", f"<part><name>x</name></part>{nested}</object>")
        output = created(run, voc, voc / "p.record")
        assert "2 objects with fields that are not read (the first: " in output
        assert "shapes_01.xml, line 13: <score>)" in output

    def test_a_second_box_of_an_object_is_told(self, run: Run, voc: Path, first: Path) -> None:
        """Of somebody who copied a box, not its object."""
        box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
        edit(first, "</object>", f"{box}</object>")
        output = created(run, voc, voc / "p.record")
        assert "1 objects with another <bndbox>, of which the first is read (the first: " in output
        assert "shapes_01.xml, line 13)" in output and "not read" not in output
        boxes = by_filename(voc / "p.record")["shapes_01.jpg"].boxes
        assert boxes.tolist() == FIRST_BOXES

    def test_difficult_is_0_or_1(self, run: Run, voc: Path, first: Path) -> None:
        edit(first, "<difficult>0<", "<difficult>2<")
        created(run, voc, voc / "p.record")
        one = by_filename(voc / "p.record")["shapes_01.jpg"]
        assert one.attributes["difficult"] == [1, 1, 0]


class TestPlaces:
    def test_the_devkit(self, run: Run, tmp_path: Path) -> None:
        """Years, the lists of a class with flags, and both years together."""
        for year, number in (("VOC2007", "01"), ("VOC2012", "02")):
            root = tmp_path / "kit" / year
            shutil.copytree(VOC, root, ignore=shutil.ignore_patterns("*.txt"))
            lists = root / "ImageSets" / "Main"
            (lists / "aeroplane_train.txt").write_text(f"shapes_{number} -1\n")
        for year, numbers in (("VOC2012", ["02"]), ("merged", ["01", "02"])):
            out = tmp_path / f"{year}.record"
            created(run, tmp_path / "kit", out, "--year", year, "--set", "train")
            assert list(by_filename(out)) == [f"shapes_{number}.jpg" for number in numbers]
        created(run, tmp_path / "kit", tmp_path / "default.record")
        assert list(by_filename(tmp_path / "default.record")) == ["shapes_01.jpg"]

    def test_old_labelimg_leaves_out_the_extension(self, run: Run, voc: Path, first: Path) -> None:
        (voc / "JPEGImages" / "shapes_01.jpg").rename(voc / "JPEGImages" / "shapes_01.JPG")
        edit(first, "shapes_01.jpg", "shapes_01")
        created(run, voc, voc / "p.record")
        one = by_filename(voc / "p.record")["shapes_01.JPG"]
        assert one.encoded == (IMAGES / "shapes_01.jpg").read_bytes()

    @pytest.mark.parametrize(
        ("annotations", "images", "options"),
        [
            ("annotations", "images", ()),  # raccoon
            ("annots", "images", ()),  # kangaroo
            (".", ".", ()),  # LabelImg's one folder
            (".", ".", ("--annotations-dir=.",)),
            ("xml", "images", ()),
            ("xml", "images", ("--annotations-dir=xml", "--image-dir={}/images")),
            ("Annotations", "elsewhere", ("--image-dir={}/elsewhere",)),
            ("annotations", "images", ("--data-dir={}/annotations",)),  # as for xml_to_csv.py
        ],
    )
    def test_layouts_of_other_people(
        self, run: Run, tmp_path: Path, annotations: str, images: str, options: tuple[str, ...]
    ) -> None:
        root = tmp_path / "data"
        shutil.copytree(VOC / "Annotations", root / annotations)
        shutil.copytree(IMAGES, root / images, dirs_exist_ok=True)
        output = created(
            run, root, tmp_path / "x.record", *(option.format(root) for option in options)
        )
        assert output == ""
        found = by_filename(tmp_path / "x.record")
        assert list(found) == [path.name for path in sorted(IMAGES.iterdir())]
        assert found["shapes_01.jpg"].boxes.tolist() == FIRST_BOXES

    def test_an_image_is_named_as_its_xml(self, run: Run, voc: Path) -> None:
        """The files were renamed, and what <filename> says is another image by now."""
        shutil.rmtree(voc / "ImageSets")
        for number in (1, 2):
            old, new = f"shapes_0{number}", f"shapes_1{number}"
            (voc / "Annotations" / f"{old}.xml").rename(voc / "Annotations" / f"{new}.xml")
            (voc / "JPEGImages" / f"{old}.jpg").rename(voc / "JPEGImages" / f"{new}.jpg")
        shutil.copy(IMAGES / "shapes_05.jpg", voc / "JPEGImages" / "shapes_01.jpg")
        output = created(run, voc, voc / "x.record")
        found = by_filename(voc / "x.record")
        assert found["shapes_11.jpg"].encoded == (IMAGES / "shapes_01.jpg").read_bytes()
        assert "2 annotations whose <filename> is not their own; the image that is named" in output
        assert "shapes_11.xml: shapes_01.jpg)" in output

    def test_several_images_named_as_the_xml(self, run: Run, voc: Path, first: Path) -> None:
        images = voc / "JPEGImages"
        Image.open(images / "shapes_05.jpg").resize((320, 240)).save(images / "shapes_01.bmp")
        created(run, voc, voc / "named.record")
        assert by_filename(voc / "named.record")["shapes_01.jpg"].boxes.tolist() == FIRST_BOXES
        edit(first, "shapes_01.jpg", "shapes_01.png")
        output = refused(run, voc)
        what = "annotations of which several images have the name: 1"
        assert f"{what} ({first}: shapes_01.bmp, shapes_01.jpg); write the name" in output
        shutil.copy(images / "shapes_01.jpg", images / "shapes_01.bmp")
        created(run, voc, voc / "equal.record")
        one = by_filename(voc / "equal.record")["shapes_01.bmp"]
        assert one.encoded == (IMAGES / "shapes_01.jpg").read_bytes()

    def test_filename_counts_where_no_image_is_named_as_the_xml(
        self, run: Run, voc: Path, first: Path
    ) -> None:
        (voc / "JPEGImages" / "shapes_01.jpg").rename(voc / "JPEGImages" / "IMG 1.jpg")
        edit(first, "shapes_01.jpg", "IMG 1.jpg")
        assert created(run, voc, voc / "x.record") == ""
        one = by_filename(voc / "x.record")["IMG 1.jpg"]
        assert one.encoded == (IMAGES / "shapes_01.jpg").read_bytes()

    @pytest.mark.parametrize("written", ["shapes_02.jpg", "deep/er/shapes_02.jpg"])
    def test_folders_below(self, run: Run, tmp_path: Path, written: str) -> None:
        """Also their classes are in the label map; CVAT writes the folder, others do not."""
        root = tmp_path / "voc"
        for name in ("Annotations/shapes_02.xml", "JPEGImages/shapes_02.jpg"):
            folder, _, file = name.partition("/")
            (root / folder / "deep" / "er").mkdir(parents=True)
            shutil.copy(VOC / name, root / folder / "deep" / "er" / file)
        xml = root / "Annotations" / "deep" / "er" / "shapes_02.xml"
        xml.write_text(xml.read_text().replace("shapes_02.jpg", written))
        hidden = shutil.copytree(xml.parent, root / "Annotations" / ".ipynb_checkpoints")
        created(run, root, tmp_path / "x.record")
        assert list(by_filename(tmp_path / "x.record")) == ["deep/er/shapes_02.jpg"]
        shutil.rmtree(hidden)
        report = check_sources([str(tmp_path / "x.record")])
        assert report.valid and not report.flatten("code")

    def test_lists_of_cvat(self, run: Run, voc: Path) -> None:
        """Its set is called default; and names with spaces, with flags and without."""
        lists = voc / "ImageSets" / "Main"
        for path in lists.iterdir():
            path.unlink()
        for number, to in (("01", "my one"), ("02", "my two"), ("03", "my")):
            xml = voc / "Annotations" / f"shapes_{number}.xml"
            xml.rename(xml.with_name(f"{to}.xml"))
        (lists / "default.txt").write_text("my one\nmy two  1\nshapes_04 -1\n")
        (lists / "circle_default.txt").write_text("shapes_04 1\n")
        assert "choose another --set: default\n" in refused(run, voc)
        created(run, voc, voc / "p.record", "--set", "default")
        names = [f"shapes_{number}.jpg" for number in ("01", "02", "04")]
        assert list(by_filename(voc / "p.record")) == names

    def test_a_name_that_a_list_has_twice(self, run: Run, voc: Path) -> None:
        """As of two lists that were joined; a second record would be a duplicate."""
        (voc / "ImageSets" / "Main" / "train.txt").write_text("shapes_01\nshapes_02\nshapes_01 1\n")
        output = created(run, voc, voc / "p.record")
        assert "1 annotations that the list of the set has twice, written once" in output
        assert "shapes_01.xml)" in output
        found = [one.filename for one in read_detections(voc / "p.record")]
        assert found == ["shapes_01.jpg", "shapes_02.jpg"]


class TestLabelMap:
    def test_made_of_all_annotations(self, run: Run, voc: Path) -> None:
        """Also of those of other sets, so that all sets share it."""
        last = voc / "Annotations" / "shapes_12.xml"
        last.write_text(last.read_text().replace("<name>circle<", "<name>arch<"))
        created(run, voc, voc / "out" / "train.record")
        names = {
            item.name: item.id for item in read_label_map(voc / "out/label_map.pbtxt")[0].items
        }
        assert names == {"arch": 1, "circle": 2, "square": 3, "triangle": 4, "étoile": 5}

    def test_vocs_own_where_it_has_every_class(self, run: Run, voc: Path) -> None:
        for path in (voc / "Annotations").iterdir():
            path.write_text(re.sub("<name>.*?<", "<name>dog<", path.read_text()))
        created(run, voc, voc / "out" / "train.record")
        assert len(read_label_map(voc / "out" / "label_map.pbtxt")[0].items) == 20
        assert by_filename(voc / "out")["shapes_02.jpg"].class_label == [12]

    def test_the_one_that_is_there_or_is_named(self, run: Run, tmp_path: Path) -> None:
        own = "".join(
            f"item {{ id: {number} name: '{name}' }}\n"
            for name, number in (("circle", 7), ("square", 9), ("triangle", 3), ("étoile", 5))
        )
        (tmp_path / "label_map.pbtxt").write_text(own)
        created(run, VOC, tmp_path / "p.record")
        assert by_filename(tmp_path / "p.record")["shapes_01.jpg"].class_label == [5, 9, 7]
        assert (tmp_path / "label_map.pbtxt").read_text() == own
        other = tmp_path / "other"
        created(run, VOC, other / "p.record", "--label-map-path", tmp_path / "label_map.pbtxt")
        assert by_filename(other / "p.record")["shapes_01.jpg"].class_label == [5, 9, 7]
        assert len(read_label_map(other / "label_map.pbtxt")[0].items) == 4

    def test_another_one_is_not_written_over(self, run: Run, voc: Path) -> None:
        (voc / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
        ran = run("pascal", "--data-dir", voc, "--output-path", voc / "p.record",
                  "--label-map-path", "voc2007")  # fmt: skip
        assert ran.code == 2 and "is there already and is not voc2007" in ran.err
        assert not (voc / "p.record").exists()


class TestRefusals:
    def test_a_class_that_the_map_lacks(self, run: Run, voc: Path) -> None:
        output = refused(run, voc, "--label-map", "voc2007")
        assert "shapes_01.xml, line 13: class 'étoile' is not in the label map voc2007" in output

    def test_missing_images_are_named_together(self, run: Run, voc: Path) -> None:
        for number in (4, 5):
            (voc / "JPEGImages" / f"shapes_0{number}.jpg").unlink()
        missing = [voc / "JPEGImages" / f"shapes_0{number}.jpg" for number in (4, 5)]
        output = refused(run, voc)
        assert f"images that are missing: 2 ({missing[0]}; {missing[1]}); put them there" in output
        output = created(run, voc, voc / "p.record", "--skip-missing-images")
        assert f"2 images that are missing, left out (the first: {missing[0]})" in output
        assert len(by_filename(voc / "p.record")) == 6

    def test_a_image_that_is_none(self, run: Run, voc: Path) -> None:
        (voc / "JPEGImages" / "shapes_04.jpg").write_bytes(b"<html>not found</html>")
        assert "is not a readable image" in refused(run, voc)

    def test_a_image_outside_of_the_folder(self, run: Run, voc: Path, first: Path) -> None:
        edit(first, "shapes_01.jpg", "../../../../../../etc/passwd")
        (voc / "JPEGImages" / "shapes_01.jpg").unlink()
        assert str(voc / "JPEGImages" / "etc" / "passwd") in refused(run, voc)

    @pytest.mark.parametrize(
        ("pattern", "to", "says"),
        [
            ("<difficult>0<", "<difficult>no<", "<difficult> has 'no'"),
            ("<name>.*?<", "<name> <", "line 13: <name> is empty; write the class there"),
            ("<xmin>.*?<", "<xmin>left<", "<xmin> has 'left'"),
            ("<xmax>.*?<", "<xmax>1e300<", "1e+300"),
            ("</annotation>", "", "not well-formed XML"),
            ("<annotation>", '<!DOCTYPE a><annotation>', "document type"),
        ],
    )  # fmt: skip
    def test_xml(self, run: Run, voc: Path, first: Path, pattern: str, to: str, says: str) -> None:
        edit(first, pattern, to)
        output = refused(run, voc)
        assert says in output and "shapes_01.xml" in output

    def test_lists_and_folders(self, run: Run, voc: Path) -> None:
        assert "no such list" in refused(run, voc, "--set", "test")
        assert "choose another --set: train, val\n" in refused(run, voc, "--set", "tset")
        assert "VOC2012/Annotations: no such folder" in refused(run, voc, "--year", "VOC2012")
        train = voc / "ImageSets" / "Main" / "train.txt"
        train.write_text("shapes_99\n")
        assert "shapes_99.xml cannot be read" in refused(run, voc)
        train.write_bytes(b"\xff\n")
        assert "train.txt is not a list of images: it is not UTF-8" in refused(run, voc)
        assert "is not a folder" in refused(run, voc, "--data-dir", voc / "x")
        (voc / "empty").mkdir()
        shutil.rmtree(voc / "ImageSets")
        assert "holds no XML file" in refused(run, voc, "--annotations-dir", "empty")

    def test_xml_of_another_kind(self, run: Run, voc: Path, first: Path) -> None:
        first.write_text("<annotations/>")
        assert "01.xml is not a Pascal VOC annotation: its root is not" in refused(run, voc)


def test_the_checker_agrees(run: Run, tmp_path: Path) -> None:
    created(run, VOC, tmp_path / "train.record")
    created(run, VOC, tmp_path / "val.record", "--set", "val")
    report = check_sources([str(tmp_path)])
    assert report.valid and not report.flatten("code")
    assert diff(str(VOC), str(tmp_path), Options()).is_equal

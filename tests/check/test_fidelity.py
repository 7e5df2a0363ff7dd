"""FID: the shard compared with the annotations that it was made from."""

from __future__ import annotations

import csv
import json
import pickle
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape

import numpy as np
import pytest
import tfod
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place
from tfod.check.profiles.policy import Policy
from tfod.check.references.annotations.annotations import Annotations, SourceImage, load_annotations
from tfod.check.references.annotations.comparison import compare, missing_images
from tfod.check.rules.registry import RuleProblems
from tfod.errors import TfodError

from tests.check.test_task import IMAGES_XML, LAUGHS, video

Box = tuple[float, float, float, float]
Write = Callable[[str, "str | bytes"], str]

# As labelImg writes it, with a part of a person as in VOC's layout task.
VOC_XML = """<annotation>
\t<folder>JPEGImages</folder>
\t<filename>a.jpg</filename>
\t<path>C:\\Users\\me\\a.jpg</path>
\t<source>
\t\t<database>Unknown</database>
\t</source>
\t<size>
\t\t<width>200</width>
\t\t<height>100</height>
\t\t<depth>3</depth>
\t</size>
\t<segmented>0</segmented>
\t<object>
\t\t<name>cat</name>
\t\t<pose>Unspecified</pose>
\t\t<truncated>0</truncated>
\t\t<difficult>0</difficult>
\t\t<bndbox>
\t\t\t<xmin>20</xmin>
\t\t\t<ymin>10</ymin>
\t\t\t<xmax>60</xmax>
\t\t\t<ymax>40</ymax>
\t\t</bndbox>
\t\t<part>
\t\t\t<name>head</name>
\t\t\t<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>
\t\t</part>
\t</object>
\t<object>
\t\t<name>outline</name>
\t\t<polygon><x1>1</x1></polygon>
\t</object>
</annotation>
"""

COCO = {
    "info": {},
    "images": [
        {"id": 7, "file_name": "a.jpg", "height": 100, "width": 200},
        {"id": 8, "file_name": "b.jpg", "height": 100, "width": 200},
    ],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 3,
            "bbox": [20, 10, 40, 30],
            "area": 1200,
            "iscrowd": 0,
            "segmentation": [[20, 10, 60, 10, 60, 40]],
        },
        {"id": 2, "image_id": 7, "category_id": 3, "iscrowd": 0, "segmentation": []},
        {"id": 3, "image_id": 99, "category_id": 3, "bbox": [1, 2, 3, 4]},
    ],
    "categories": [{"id": 3, "name": "cat", "supercategory": "animal"}],
}


def voc(filename: str, size: tuple[int, int], boxes: Sequence[tuple[str, Sequence[int]]]) -> str:
    objects = "".join(
        f"<object><name>{escape(name)}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin>"
        f"<xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for name, box in boxes
    )
    return (
        f"<annotation><filename>{escape(filename)}</filename><size><width>{size[1]}</width>"
        f"<height>{size[0]}</height><depth>3</depth></size>{objects}</annotation>"
    )


def source(*boxes: tuple[str, Box], name: str = "a.jpg", from_one: bool = False) -> Annotations:
    """One image, 100 high and 200 wide."""
    image = SourceImage.make(
        name, (100, 200), [box for _, box in boxes], [text for text, _ in boxes]
    )
    return Annotations("source.xml", (image,), from_one)


def compared(
    annotations: Annotations,
    *boxes: tuple[str | None, Box],
    name: str = "a.jpg",
    size: tuple[int | None, int | None] = (100, 200),
) -> RuleProblems:
    """The comparison with a record whose boxes are given in pixels of a 200x100 image."""
    corners = np.array([box for _, box in boxes], "<f8").reshape(-1, 4) / [200, 100, 200, 100]
    return compare(annotations, name, *size, corners.astype("<f4"), [text for text, _ in boxes])


def missing(annotations: Annotations, names: Iterable[str]) -> RuleProblems:
    seen = {place for name in names for place in annotations.find(name)}
    return missing_images(annotations, seen)


def messages(found: RuleProblems) -> list[tuple[str, str]]:
    collector = Collector(Policy(), 1000)
    collector.add_all(found, Place("train.record", 0, 0, "a.jpg"))
    listed = collector.findings.listed
    return [(code, one.message) for code in sorted(listed) for one in listed[code]]


def plain_images(annotations: Annotations) -> list[tuple[object, ...]]:
    return [
        (one.name, one.height, one.width, one.classes, one.boxes.tolist())
        for one in annotations.images
    ]


CAT: tuple[str, Box] = ("cat", (20, 10, 60, 40))
DOG: tuple[str, Box] = ("dog", (100, 50, 180, 90))


SHIFTS = (None, (0, 0), (-1, -1), (-1, 0))
"""What writers make of where a box starts and ends in Pascal VOC; None: not Pascal VOC."""


class TestLoading:
    def test_voc_folder(self, write: Write, tmp_path: Path) -> None:
        write("Annotations/a.xml", VOC_XML)
        write("Annotations/night/b.xml", voc("b.jpg", (0, 0), []))
        write("notes.xml", "<note/>")
        found = load_annotations(str(tmp_path))
        assert plain_images(found) == [
            ("a.jpg", 100, 200, ("cat",), [[20, 10, 60, 40]]),
            ("night/b.jpg", None, None, (), []),
        ]
        assert found.from_one
        assert found.notes == (
            f"{tmp_path}: 1 XML files that are not Pascal VOC are not compared",
            f"{tmp_path}: 1 objects without <bndbox> are not compared",
        )
        assert plain_images(pickle.loads(pickle.dumps(found))) == plain_images(found)

    def test_voc_file(self, write: Write) -> None:
        assert len(load_annotations(write("a.xml", VOC_XML)).images) == 1
        utf16 = write(
            "b.xml", ('<?xml version="1.0" encoding="UTF-16"?>' + VOC_XML).encode("utf-16")
        )
        assert len(load_annotations(utf16).images) == 1

    def test_cvat_images(self, write: Write, tmp_path: Path) -> None:
        rotated = (
            '<box label="car" occluded="0" xtl="10.00" ytl="40.00" xbr="50.00" ybr="60.00" '
            'rotation="90.00"></box><polygon label="car" points="1,2;3,4"></polygon>'
            '<tag label="car"></tag></image>'
        )
        write("x/annotations.xml", IMAGES_XML.replace("</image>", rotated, 1))
        found = load_annotations(str(tmp_path / "x"))
        assert [one[0] for one in plain_images(found)] == ["day/a.jpg", "day/b.jpg", "day/c.v1.jpg"]
        np.testing.assert_allclose(
            found.images[0].boxes, [[20, 10, 60, 40], [20, 30, 40, 70]], atol=1e-9
        )
        assert found.notes[0].endswith("1 shapes other than boxes are not compared")

    def test_cvat_video(self, write: Write) -> None:
        found = load_annotations(write("a.xml", video()))
        assert plain_images(found)[:2] == [
            ("frame_000000", 480, 640, ("person",), [[10, 20, 30, 40]]),
            ("frame_000001", 480, 640, (), []),
        ]

    def test_coco(self, write: Write) -> None:
        found = load_annotations(write("instances.json", json.dumps(COCO)))
        assert plain_images(found) == [
            ("a.jpg", 100, 200, ("cat",), [[20, 10, 60, 40]]),
            ("b.jpg", 100, 200, (), []),
        ]
        assert [note.split(": ")[-1] for note in found.notes] == [
            "1 annotations without bbox are not compared",
            "1 annotations of images that are not listed are not compared",
        ]

    @pytest.mark.parametrize(
        ("name", "text", "says"),
        [
            ("a.xml", LAUGHS + "<annotation><filename>&k;</filename></annotation>", "a.xml"),
            ("a.xml", LAUGHS + '<annotations a="&k;"/>', "a.xml"),
            (
                "a.xml",
                '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]>'
                "<annotation><filename>&f;</filename></annotation>",
                "document type",
            ),
            ("a.xml", "<annotation>\n<size>\n</annotation>", "line 3"),
            ("a.xml", "<other/>", "<other>"),
            ("a.xml", VOC_XML.replace("<xmin>20<", "<xmin>left<"), "line 20: <xmin> has 'left'"),
            ("a.xml", VOC_XML.replace("<xmin>20<", "<xmin>nan<"), "a number is expected"),
            ("a.xml", VOC_XML.replace("<xmin>20</xmin>", ""), "<xmin> has ''"),
            (
                "a.xml",
                IMAGES_XML.replace('xtl="20.00"', 'xtl="inf"'),
                "line 65: <box> xtl has 'inf'",
            ),
            ("a.xml", video(mode="annotation"), "names no images"),
            ("a.json", '{"images": [],\n', "line 2"),
            ("a.json", '{"images": []}', "not COCO JSON"),
            ("a.json", "[]", "not COCO JSON"),
            (
                "a.json",
                json.dumps({**COCO, "images": [{"id": 1}]}),
                "image 1: .file_name. is missing; add it",
            ),
            (
                "a.json",
                json.dumps(COCO).replace("[20, 10, 40, 30]", "[20, 10, 40]"),
                "image 7: bbox is .20, 10, 40., expected 4",
            ),
            ("a.json", json.dumps(COCO).replace("[20, 10, 40, 30]", "[NaN, 1, 2, 3]"), "finite"),
            (
                "a.json",
                json.dumps({**COCO, "images": [3]}),
                "an entry of images is 3, expected an object",
            ),
            (
                "a.json",
                json.dumps(COCO).replace('"width": 200', '"width": "wide"'),
                "image 7: width is",
            ),
            ("a.csv", "filename,width", "neither XML nor JSON"),
            ("a.csv", "", "neither XML nor JSON"),
        ],
    )
    def test_bad_input(self, write: Write, name: str, text: str, says: str) -> None:
        path = write(name, text)
        started = time.process_time()
        with pytest.raises(TfodError, match=says) as caught:
            load_annotations(path)
        assert time.process_time() - started < 5
        assert "\n" not in str(caught.value)
        assert path in str(caught.value)

    def test_bad_folders(self, write: Write, tmp_path: Path) -> None:
        with pytest.raises(TfodError, match="no XML and no JSON"):
            load_annotations(str(tmp_path))
        write("x.json", "{}")
        write("y.json", "{}")
        with pytest.raises(TfodError, match="2 JSON files; name one"):
            load_annotations(str(tmp_path))
        write("x.xml", "<other/>")
        with pytest.raises(TfodError, match="no Pascal VOC"):
            load_annotations(str(tmp_path))
        with pytest.raises(TfodError, match="cannot be read"):
            load_annotations(str(tmp_path / "nowhere"))

    def test_voc_without_size(self, write: Write) -> None:
        text = VOC_XML.replace("<width>200</width>", "").replace(
            "<height>100</height>", "<height/>"
        )
        assert plain_images(load_annotations(write("a.xml", text)))[0][1:3] == (None, None)

    def test_without_lxml(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write("a.xml", VOC_XML)
        monkeypatch.setitem(sys.modules, "lxml", None)
        with pytest.raises(TfodError, match=r"needs lxml; pip install '\.\[validator\]'"):
            load_annotations(path)


class TestNames:
    def test_full_name_then_last_part_then_stem(self) -> None:
        images = [
            SourceImage.make(name, (1, 1), [], []) for name in ("x/a.jpg", "y/a.jpg", "x/b.jpg")
        ]
        found = Annotations("s", tuple(images))
        assert found.find("x/a.jpg") == (0,)
        assert found.find("y\\a.jpg") == (1,)
        assert found.find("a.jpg") == (0, 1)
        assert found.find("other/b.jpg") == (2,)
        assert found.find("/disk/x/b.png") == (2,)
        assert found.find("b") == (2,)
        assert found.find("c.jpg") == found.find("") == ()

    def test_fid006(self) -> None:
        assert messages(compared(source(CAT), CAT, name="b.jpg")) == [
            ("FID006", "image 'b.jpg' is not in the source")
        ]
        assert messages(compared(source(CAT), CAT, name=""))[0][0] == "FID006"
        twice = Annotations("s", source(CAT, name="x/a.jpg").images * 2)
        assert messages(compared(twice, CAT)) == [
            (
                "FID006",
                "image 'a.jpg' can be any of 2 images of the source (x/a.jpg, x/a.jpg)",
            )
        ]
        assert messages(missing(twice, ["a.jpg"])) == []

    def test_fid006_near_miss(self) -> None:
        assert not compared(source(CAT), CAT, name="elsewhere/a.png")

    def test_fid005_and_fid008(self) -> None:
        images = [source(CAT, DOG, name="a.jpg"), source(name="b.jpg"), source(CAT, name="c.jpg")]
        all_of_them = Annotations("s", tuple(one.images[0] for one in images))
        assert messages(missing(all_of_them, ["c.jpg"])) == [
            ("FID005", "image 'a.jpg' of the source, with 2 boxes, is in no shard"),
            ("FID008", "images of the source that have no boxes are in no shard: 1 (b.jpg)"),
        ]
        assert messages(missing(all_of_them, ["a.jpg", "x/b.png", "c"])) == []


class TestBoxes:
    def test_clean(self) -> None:
        assert not compared(source(CAT, DOG), CAT, DOG)
        assert not compared(source(CAT, DOG), DOG, CAT)
        assert not compared(source())
        assert not compared(source(CAT), (None, CAT[1]))

    def test_fid001(self) -> None:
        assert messages(compared(source(CAT, DOG), DOG)) == [
            ("FID001", "box 0 of the source, 'cat' at (20, 10, 60, 40), is missing in the shard")
        ]
        beyond: tuple[str, Box] = ("cat", (150, 10, 200.5, 40))
        assert messages(compared(source(beyond)))[0][1].endswith(
            "it passes the image's edge, and some writers drop such boxes"
        )

    def test_fid002(self) -> None:
        assert messages(compared(source(CAT), CAT, DOG)) == [
            ("FID002", "box 1, 'dog' at (100, 50, 180, 90), is not in the source 'a.jpg'")
        ]
        assert messages(compared(source(CAT), CAT, CAT))[0][0] == "FID002"

    def test_fid003(self) -> None:
        assert messages(compared(source(CAT), ("cat", (23, 10, 63, 38.5)))) == [
            (
                "FID003",
                "box 0, 'cat' at (23, 10, 63, 38.5), has moved from (20, 10, 60, 40): "
                "xmin by +3.0, xmax by +3.0, ymax by -1.5 pixels",
            )
        ]

    def test_fid003_near_miss(self) -> None:
        assert not compared(source(CAT), ("cat", (21, 9, 61, 41)))

    def test_fid003_pascal_voc_counts_from_one(self) -> None:
        annotations = source(CAT, from_one=True)
        assert not compared(annotations, ("cat", (19, 9, 59, 39)))
        assert not compared(annotations, ("cat", (18, 9, 60, 40)))  # a pixel, and the shift
        assert messages(compared(annotations, ("cat", (17.5, 9, 60, 40))))[0][0] == "FID003"
        assert messages(compared(annotations, ("cat", (22, 10, 60, 40))))[0][0] == "FID003"

    def test_fid004(self) -> None:
        assert messages(compared(source(CAT, DOG), ("Cat", CAT[1]), DOG)) == [
            ("FID004", "box 0 at (20, 10, 60, 40) is 'Cat', in the source it is 'cat'")
        ]
        assert messages(compared(source(CAT), (None, CAT[1]))) == []

    def test_far_and_other_class_is_missing_and_extra(self) -> None:
        assert [code for code, _ in messages(compared(source(CAT), DOG))] == ["FID001", "FID002"]

    @pytest.mark.parametrize("normalized_before", [True, False])
    def test_fid007(self, normalized_before: bool) -> None:
        bird: Box = (100, 20, 110, 90)
        boxes = np.array([CAT[1], bird]) / [200, 100, 200, 100]
        swapped = boxes[:, [1, 0, 3, 2]]
        if not normalized_before:
            swapped = swapped * [100, 200, 100, 200] / [200, 100, 200, 100]
        found = compare(source(CAT, ("bird", bird)), "a.jpg", 100, 200, swapped, ["cat", "bird"])
        assert messages(found) == [("FID007", "2 boxes fit the source only with x and y exchanged")]

    def test_fid007_near_miss(self) -> None:
        symmetric: tuple[str, Box] = ("cat", (20, 10, 120, 60))
        assert not compared(source(symmetric), symmetric)
        # One of three fits the other way round, which may be chance.
        mirrored: Box = (20, 10, 80, 30)
        found = compared(source(CAT, DOG, ("cat", (10, 20, 30, 80))), ("cat", mirrored))
        assert "FID007" not in dict(messages(found))

    def test_resized_image(self) -> None:
        # Drawn on 200x100, resized to 50x50: one of its pixels is four of the source's.
        box: Box = (22, 11, 62, 41)
        assert not compared(source(CAT), ("cat", box), size=(50, 50))
        assert compared(source(CAT), ("cat", box), size=(None, None))

    def test_size_unknown_to_the_source(self) -> None:
        image = SourceImage.make("a.jpg", (0, 0), [CAT[1]], ["cat"])
        annotations = Annotations("s", (image,))
        assert not compared(annotations, CAT)
        assert messages(compared(annotations, DOG)) != []
        assert not compared(annotations, DOG, size=(None, None))

    def test_strange_numbers(self) -> None:
        nan, inf = float("nan"), float("inf")
        for corner in (nan, inf, -inf, 1e38):
            found = compared(source(CAT), ("cat", (corner, 10, 60, 40)))
            assert [code for code, _ in messages(found)] == ["FID001", "FID002"]

    def test_names_that_do_not_fit_the_boxes(self) -> None:
        corners = np.array([CAT[1]]) / [200, 100, 200, 100]
        assert not compare(source(CAT), "a.jpg", 100, 200, corners, ["dog", "dog"])
        assert not compare(source(CAT), "a.jpg", 100, 200, corners, [])

    def test_many_equal_boxes(self) -> None:
        assert compared(source(*[CAT] * 200), *[DOG] * 2, *[CAT] * 198)
        swapped_order = [CAT] * 150 + [DOG] * 150
        assert not compared(source(*swapped_order[::-1]), *swapped_order)

    def test_boxes_by_the_million_are_no_hang(self) -> None:
        boxes = np.zeros((200_000, 4), "<f4")
        annotations = source(*[CAT] * 1000)
        started = time.process_time()
        found = compare(annotations, "a.jpg", 100, 200, boxes, ["cat"] * len(boxes))
        assert Counter(rule.code for rule, _ in found) == {"FID001": 1000, "FID002": 200_000}
        assert time.process_time() - started < 10


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[str, Box]]:
    """Boxes in pixels, of a few classes; they may overlap and be equal."""
    boxes = []
    for _ in range(draw(st.integers(0, 12))):
        left, top = draw(st.integers(0, 150)), draw(st.integers(0, 70))
        width, height = draw(st.integers(1, 50)), draw(st.integers(1, 30))
        name = draw(st.sampled_from(["cat", "dog", "кот"]))
        boxes.append((name, (float(left), float(top), float(left + width), float(top + height))))
    return boxes


@given(layouts(), st.randoms(use_true_random=False), st.sampled_from(SHIFTS))
def test_the_same_in_any_order_is_clean(
    boxes: list[tuple[str, Box]], random: Random, shift: tuple[int, int] | None
) -> None:
    shuffled = list(boxes)
    random.shuffle(shuffled)
    low, high = shift or (0, 0)
    record = [
        (name, (box[0] + low, box[1] + low, box[2] + high, box[3] + high)) for name, box in shuffled
    ]
    assert not compared(source(*boxes, from_one=shift is not None), *record)


@given(
    st.integers(2, 30).flatmap(
        lambda shift: st.tuples(
            st.just(shift), st.sampled_from([1, -1]), st.integers(shift + 20, 60), st.integers(0, 1)
        )
    )
)
def test_a_box_moved_by_k_is_reported_as_moved_by_k(moved: tuple[int, int, int, int]) -> None:
    shift, sign, side, axis = moved
    old = (100.0, 40.0, 100.0 + side, 40.0 + side)
    new = list(old)
    new[axis] += sign * shift
    new[axis + 2] += sign * shift
    found = compared(source(("cat", old), DOG), DOG, ("cat", (new[0], new[1], new[2], new[3])))
    name = "xy"[axis]
    ((code, message),) = messages(found)
    assert code == "FID003"
    assert message.endswith(
        f": {name}min by {sign * shift:+.1f}, {name}max by {sign * shift:+.1f} pixels"
    )


@given(st.binary(max_size=200))
def test_no_bytes_are_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    for start in (b"", b"<annotation>", b'{"images": ', b"PK\x03\x04"):
        path.write_bytes(start + data)
        with pytest.raises(TfodError):
            load_annotations(str(path))


@pytest.mark.parametrize("subset", ["train", "test"])
def test_hyphal_tips_are_what_their_csv_says(corpus: Path, tmp_path: Path, subset: str) -> None:
    folder = corpus / "hyphal-tips"
    boxes: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    sizes = {}
    with (folder / f"{subset}_labels.csv").open() as file:
        for line in csv.DictReader(file):
            corners = [int(line[side]) for side in ("xmin", "ymin", "xmax", "ymax")]
            boxes[line["filename"]].append((line["class"], corners))
            sizes[line["filename"]] = (int(line["height"]), int(line["width"]))
    for number, (name, objects) in enumerate(boxes.items()):
        (tmp_path / f"{number}.xml").write_text(voc(name, sizes[name], objects))
    annotations = load_annotations(str(tmp_path))
    seen = []
    found = []
    for one in tfod.read_detections(folder / f"{subset}.record"):
        assert one.filename is not None
        seen.append(one.filename)
        texts = one.class_text or []
        found += messages(
            compare(annotations, one.filename, one.height, one.width, one.boxes, texts)
        )
    assert found == []
    assert messages(missing(annotations, seen)) == []

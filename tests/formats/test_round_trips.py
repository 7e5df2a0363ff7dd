"""Round trips through each format: supported values are equal, others are counted."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import decode_mask_png, encode_mask_png, is_box_png
from tfod.detection.labels.label_map import LabelMap
from tfod.formats.options import OddBoxes, Options
from tfod.formats.table import convert
from tfod.formats.yolo import Writer as YoloWriter
from tfod.sources.reading import read_detections
from tfod.tfrecord.writer import write_records

from tests.commands import Run
from tests.differences import counts, diff
from tests.formats.conftest import EXAMPLES

FORMATS = ("coco", "voc", "yolo", "csv", "cvat_xml")
CORPUS = Path(__file__).parents[1] / "corpus"
_HEIGHT, _WIDTH = 60, 90
_IMAGE = encode_mask_png(np.zeros((_HEIGHT, _WIDTH), bool))
_MASK_FORMATS = ("coco", "cvat_xml")
_PLAIN = Options()
_OUTLINES, _POSES = Options(masks=True), Options(keypoints=True)  # of YOLO


def there_and_back(
    source: Path, folder: Path, name: str, odd: str = "refuse", written: Options = _PLAIN
) -> Path:
    """Convert a source to a format and back to shards, and return their folder."""
    convert(str(source), str(folder / name), written, target_format=name)
    back = folder / f"from_{name}"
    options = Options(odd_boxes=OddBoxes(odd), masks=name in _MASK_FORMATS or written.masks)
    convert(str(folder / name), str(back), options, name, "shards")
    return back


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("source", ["anki-overdrive-cars", "blood-cells", "hyphal-tips"])
def test_real_shards(tmp_path: Path, name: str, source: str) -> None:
    back = there_and_back(CORPUS / source, tmp_path, name, "drop")
    found = counts(diff(CORPUS / source, back, tolerance=0.001, same_subsets=True))
    assert found.get("box_removed", 0) <= (source == "blood-cells")  # a box without an area
    assert differences(CORPUS / source, back) <= {"box_removed"}


def differences(ours: Path, theirs: Path) -> set[str]:
    """Return the kinds of differences, except that class ids are new and numbers are rounded."""
    found = counts(diff(ours, theirs, tolerance=0.001, same_subsets=True))
    return found.keys() - {"class_added", "class_removed", "class_renumbered", "value_changed"}


_NAMES = st.text("abcäß <&>\"'/.,;é中", min_size=1, max_size=8).map(lambda text: f"x{text}x.png")
_CLASSES = st.sampled_from(
    ["cat", "cat😀", "a dog", "<&>", "Größe", "'quoted' \"twice\"", 'a, "b" ,c', "x\ny"]
)
_SIDE = st.floats(0, 1, width=32)


@st.composite
def _boxes(draw: st.DrawFn) -> list[float]:
    """A box with an area, within its image."""
    x, y = (sorted((draw(_SIDE), draw(_SIDE))) for _ in "xy")
    if x[1] - x[0] < 1e-3:
        x = [0.25, 0.75]
    if y[1] - y[0] < 1e-3:
        y = [0.25, 0.75]
    return [x[0], y[0], x[1], y[1]]


Object = tuple[Sequence[float], str]
_OBJECTS = st.lists(st.tuples(_boxes(), _CLASSES), max_size=4)
_IMAGES = st.dictionaries(_NAMES, _OBJECTS, min_size=1, max_size=4)


def detection(name: str, found: Sequence[Object], number: int) -> Detection:
    return Detection(
        filename=name,
        source_id=str(number),
        height=_HEIGHT,
        width=_WIDTH,
        format="png",
        # Equal images in two subsets would be an error.
        encoded=_IMAGE + number.to_bytes(4, "big"),
        boxes=np.array([box for box, _ in found], "<f4").reshape(-1, 4),
        class_text=[text for _, text in found],
        class_label=[1 + sum(text.encode()) for _, text in found],
    )


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(subsets=st.dictionaries(st.sampled_from(["train", "val", "a b"]), _IMAGES, min_size=1))
def test_any_boxes_and_names(
    name: str, subsets: Mapping[str, Mapping[str, Sequence[Object]]]
) -> None:
    if not any(found for images in subsets.values() for found in images.values()):
        return
    numbers = itertools.count(1)
    with tempfile.TemporaryDirectory() as folder:
        for subset, images in subsets.items():
            records = (detection(*item, next(numbers)) for item in images.items())
            write_records(f"{folder}/shards", subset, map(encode_detection, records))
        back = there_and_back(Path(folder, "shards"), Path(folder), name)
        assert differences(Path(folder, "shards"), back) <= {"record_renamed"}  # to safe names


@settings(max_examples=100, deadline=None)
@given(names=st.lists(st.text(min_size=1), min_size=1, max_size=20, unique=True))
@example(names=["cat😀", "\0\x1b\x7f\x85\u2028\ufeff\uffff", "'\"\\ \n", " a: #b "])
def test_any_classes_in_the_yaml_of_yolo(names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = YoloWriter(folder, None, Options())
        writer.begin("train")
        writer.finish(LabelMap.from_names(names))
        found = yaml.safe_load(Path(folder, "data.yaml").read_text("utf-8"))
    assert found["names"] == dict(enumerate(names))


def masked(**fields: object) -> Detection:
    """Return a detection with two objects, and values of all kinds."""
    masks = np.zeros((2, _HEIGHT, _WIDTH), bool)
    masks[0, 10:30, 20:50], masks[0, 15:20, 25:30] = True, False
    masks[1, 40:50, 60:80] = True
    boxes = np.array([[20, 10, 50, 30], [60, 40, 80, 50]]) / ([_WIDTH, _HEIGHT] * 2)
    found = detection("a.png", [(box, "cat") for box in boxes.tolist()], 7)
    return Detection(
        **{
            **vars(found),
            "masks": [PngMask(encode_mask_png(one)) for one in masks],
            "keypoints": Keypoints(
                np.array([[[0.25, 0.5], [0.5, 0.75]], [[0.75, 0.25], [0, 0]]], "<f4"),
                np.array([[2, 1], [2, 0]]),
                ("nose", "tail"),
            ),
            "attributes": {
                "is_crowd": [0, 1],
                "area": [575.0, 200.0],
                "difficult": [1, 0],
                "color": ["red", None],
            },
            "captions": ["A cat.", "Two cats."],
            **fields,
        }
    )


_NO_VOC = {*("2 masks", "2 keypoints", "2 captions", "2 area", "1 is_crowd", "1 color"),
           "1 source_id"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "lost"),
    [
        ("coco", _PLAIN, {"2 captions"}),
        ("voc", _PLAIN, _NO_VOC),
        ("yolo", _OUTLINES, _NO_VOC - {"2 masks"} | {"1 difficult"}),
        ("yolo", _POSES, _NO_VOC - {"2 keypoints"} | {"1 difficult"}),
        ("csv", _PLAIN, _NO_VOC | {"1 difficult"}),
        ("cvat_xml", _PLAIN, {"2 captions", "1 source_id"}),
    ],
)
def test_values_are_kept_or_counted(
    tmp_path: Path, name: str, options: Options, lost: set[str]
) -> None:
    ours, shards = masked(), tmp_path / "shards"
    write_records(shards, "train", [encode_detection(ours)])
    done = convert(str(shards), str(tmp_path / "out"), options, target_format=name)
    found = [note.partition(": ")[2] for note in done.notes if note.startswith("not written")]
    assert {one for note in found for one in note.split(", ")} == lost
    (theirs,) = read_detections(
        there_and_back(shards, tmp_path, name, written=options) / "train.tfrecord"
    )
    np.testing.assert_array_equal(ours.boxes, theirs.boxes)
    assert ours.masks is not None and ours.keypoints is not None
    if "2 masks" not in lost:
        assert theirs.masks is not None
        for one, other in zip(ours.masks, theirs.masks, strict=True):
            assert one is not None and other is not None and not is_box_png(other.data)
            np.testing.assert_array_equal(decode_mask_png(one.data), decode_mask_png(other.data))
    for key in ours.attributes if name in ("coco", "cvat_xml") else ():
        assert theirs.attributes[key] == ours.attributes[key], key
    assert name != "coco" or theirs.source_id == "7"
    if name == "coco" or options.keypoints:
        assert theirs.keypoints is not None
        np.testing.assert_allclose(ours.keypoints.xy, theirs.keypoints.xy, atol=1e-6)
        np.testing.assert_array_equal(ours.keypoints.visibility, theirs.keypoints.visibility)
        assert theirs.keypoints.names == ours.keypoints.names


# Datumaro and pycocotools read the same


@pytest.mark.parametrize(
    ("name", "theirs"), [("coco", "coco"), ("voc", "voc"), ("yolo", "yolo"), ("cvat_xml", "cvat")]
)
def test_datumaro_reads_the_same(run: Run, tmp_path: Path, name: str, theirs: str) -> None:
    datumaro = pytest.importorskip("datumaro")
    run("convert", CORPUS / "hyphal-tips", tmp_path / "out", "--to", name).succeeded()
    dataset = datumaro.Dataset.import_from(str(tmp_path / "out"), theirs)
    assert set(dataset.subsets()) == {"train", "test"}
    labels = dataset.categories()[datumaro.AnnotationType.label]
    found = {}
    for item in dataset:
        boxes = [one for one in item.annotations if one.type is datumaro.AnnotationType.bbox]
        found[Path(item.id).name] = sorted(
            (labels[one.label].name, *one.points, *item.media.size) for one in boxes
        )
    for one in read_detections(CORPUS / "hyphal-tips"):
        size = one.height, one.width
        corners = (one.boxes * (*size[::-1], *size[::-1])).tolist()
        ours = sorted((text, *box) for text, box in zip(one.class_text or (), corners, strict=True))
        read = found.pop(Path(one.filename or "").stem)
        assert [row[0] for row in read] == [row[0] for row in ours]
        assert all(row[5:] == size for row in read)
        np.testing.assert_allclose([row[1:5] for row in read], [row[1:] for row in ours], atol=1e-3)
    assert not found


def test_pycocotools_draws_the_same_masks(run: Run, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    shapes = EXAMPLES / "shapes_coco"
    run("convert", shapes, tmp_path / "shards", "--masks").succeeded()
    run("convert", tmp_path / "shards", tmp_path / "out", "--to", "coco").succeeded()
    count = 0
    for subset in ("train", "val"):
        read = coco.COCO(str(tmp_path / f"out/annotations/instances_{subset}.json"))
        for one in read_detections(tmp_path / f"shards/{subset}.tfrecord"):
            found = read.loadAnns(read.getAnnIds(imgIds=[int(one.source_id or "")]))
            assert len(found) == len(one.boxes)
            areas = one.attributes.get("area", ())
            for entry, mask, area in zip(found, one.masks or (), areas, strict=True):
                assert mask is not None and entry["area"] == pytest.approx(area)
                np.testing.assert_array_equal(read.annToMask(entry) > 0, decode_mask_png(mask.data))
                count += 1
    assert count == 35

"""Our shards, by source, in the decoders of the receivers.

Images, boxes, classes, masks and keypoints are compared with the annotations of the source. The
decoders belong to tf-models-research-object-detection 2.8.0.post1, the only one that reads
keypoints, and tf-models-official 2.20.0. google/automl is not on PyPI; by hand (6a54c87) it agreed
on 278 records.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfod
from pycocotools.coco import COCO
from tfod.cli.main import main
from tfod.shards.reshard import reshard

from tests.datumaro.test_round_trips import POINTS, write_coco
from tests.receivers.decoders import Decoded, od_api, tf_vision

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class Annotated:
    """An image with its objects: class names, normalized boxes and, if any, masks.

    Keypoints are normalized x and y of shape (points, 2), NaN for points that are not labelled.
    """

    names: Sequence[str]
    boxes: np.ndarray
    masks: Sequence[np.ndarray] | None = None
    keypoints: Sequence[np.ndarray] | None = None


Dataset = Mapping[str, Annotated]
"""Images by file name."""


@dataclass(frozen=True)
class Source:
    """Annotations, and the shards that a command writes from them."""

    shards: Path
    truth: Dataset


# Sources, read without tfod


def of_coco(annotations: Path, masks: bool = False) -> Dataset:
    coco = COCO(str(annotations))
    points = [(cat, name) for cat in coco.cats for name in coco.cats[cat].get("keypoints", ())]
    found = {}
    for image in coco.loadImgs(coco.getImgIds()):
        objects = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
        pixels = np.array([one["bbox"] for one in objects], float).reshape(-1, 4)
        pixels[:, 2:] += pixels[:, :2]
        height, width = image.get("height"), image.get("width")
        found[image["file_name"]] = Annotated(
            [coco.cats[one["category_id"]]["name"] for one in objects],
            pixels / (width, height, width, height),
            [coco.annToMask(one) for one in objects] if masks else None,
            [labelled(one, points, (width, height)) for one in objects] if points else None,
        )
    return found


def labelled(one: Any, points: Sequence[tuple[int, str]], size: tuple[int, int]) -> np.ndarray:
    """The points of an object, at the indices of the points of its class."""
    found = np.full((len(points), 2), np.nan)
    given = np.array(one.get("keypoints", ()), float).reshape(-1, 3)
    own = [index for index, (category, _) in enumerate(points) if category == one["category_id"]]
    for index, (x, y, visibility) in zip(own, given, strict=False):
        if visibility:
            found[index] = x / size[0], y / size[1]
    return found


def of_voc(folder: Path, subset: str) -> Dataset:
    found = {}
    for stem in (folder / "ImageSets" / "Main" / f"{subset}.txt").read_text().split():
        root = ElementTree.parse(folder / "Annotations" / f"{stem}.xml").getroot()
        width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        names, boxes = [], []
        for one in root.iter("object"):
            names.append(one.findtext("name") or "")
            sides = [float(one.findtext(f"bndbox/{side}") or 0) for side in SIDES]
            boxes.append(np.array(sides) / (width, height, width, height))
        found[root.findtext("filename") or ""] = Annotated(names, np.array(boxes).reshape(-1, 4))
    return found


def of_examples(shard: Path) -> Dataset:
    found = {}
    for features in map(features_of, payloads_of([shard])):
        sides = [features[f"image/object/bbox/{x}"].float_list.value for x in SIDES]
        names = features["image/object/class/text"].bytes_list.value
        boxes = np.array([list(one) for one in sides], float).T.reshape(-1, 4)
        found[text_of(features, "image/filename")] = Annotated([x.decode() for x in names], boxes)
    return found


def payloads_of(shards: Sequence[Path]) -> Iterator[bytes]:
    for record in tf.data.TFRecordDataset([str(path) for path in shards]):
        yield record.numpy()


def features_of(payload: bytes) -> Any:
    return tf.train.Example.FromString(payload).features.feature


def text_of(features: Any, key: str) -> str:
    return features[key].bytes_list.value[0].decode()


# Our shards of them


def converted(data: Path, output: Path, truth: Dataset, *options: str) -> Source:
    assert main(["convert", str(data), str(output), *options]) == 0
    return Source(output if output.is_dir() else output.parent, truth)


def voc(folder: Path) -> Source:
    data = EXAMPLES / "shapes_voc"
    truth = of_voc(data, "train")
    return converted(data, folder / "voc" / "train.record", truth, "--set", "train")


def coco(folder: Path) -> Source:
    data = EXAMPLES / "shapes_coco"
    truth = of_coco(data / "annotations" / "instances_train.json", masks=True)
    return converted(data, folder / "coco", truth, "--set", "train", "--masks")


def keypoints(folder: Path) -> Source:
    """An image with objects of three classes; two classes have points."""
    folder.mkdir()
    points = [
        (1, [8, 4, 2, 16, 20, 1, 0, 0, 0]),
        (4, [40, 10, 1, 63, 47, 2]),
        (6, None),
        (1, None),  # a person without points
    ]
    shape = {"bbox": [2, 3, 30, 20], "area": 600, "iscrowd": 0}
    objects = [
        {**shape, "category_id": category, **({"keypoints": values} if values else {})}
        for category, values in points
    ]
    # The OD API refuses the same name of a point in two classes.
    annotations = write_coco(folder, [objects], {**POINTS, 4: ["thumb", "palm"]})
    return converted(annotations, folder / "out", of_coco(annotations))


def roboflow(folder: Path) -> Source:
    with zipfile.ZipFile(EXAMPLES / "shapes_roboflow.zip") as archive:
        archive.extractall(folder / "exported")
    source = folder / "exported" / "train"
    reshard(source, folder / "roboflow", receiver="tf-vision")
    return Source(folder / "roboflow", of_examples(source / "Objects.tfrecord"))


SOURCES: Mapping[str, Callable[[Path], Source]] = {
    "Pascal VOC": voc,
    "COCO with masks": coco,
    "COCO with keypoints": keypoints,
    "Roboflow's export, `tfod reshard --for tf-vision`": roboflow,
}


# Receivers


def by_decoder(source: Source, read: Callable[[bytes], Decoded]) -> Dataset:
    (label_map,) = source.shards.rglob("*label_map.pbtxt")
    names = {item.id: item.class_name for item in tfod.read_label_map(label_map)[0].items}
    found = {}
    for payload in payloads_of(shards_in(source.shards)):
        one = read(payload)
        masks = None if one.masks is None else list(one.masks)
        classes = [names[label] for label in one.classes.tolist()]
        points = None if one.keypoints is None else list(one.keypoints)
        found[text_of(features_of(payload), "image/filename")] = Annotated(
            classes, one.boxes, masks, points
        )
    return found


def shards_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if "record" in path.name)


def has_masks(source: Source) -> bool:
    return any(one.masks is not None for one in source.truth.values())


def in_od_api(source: Source, by_name: bool = False) -> Dataset:
    (label_map,) = source.shards.rglob("*label_map.pbtxt")
    points = max(len(x) for one in source.truth.values() for x in one.keypoints or ((),))
    return by_decoder(source, od_api(str(label_map), has_masks(source), points, by_name))


def in_tf_vision(source: Source) -> Dataset:
    return by_decoder(source, tf_vision(masks=has_masks(source)))


def in_order(one: Annotated) -> list[int]:
    keys = [(name, *box.round(2)) for name, box in zip(one.names, one.boxes, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__)


def assert_equal(found: Dataset, truth: Dataset) -> None:
    """Compare the values that a receiver reads with the source."""
    assert found.keys() == truth.keys()
    for name, expected in truth.items():
        one = found[name]
        ours, theirs = in_order(one), in_order(expected)
        assert [one.names[x] for x in ours] == [expected.names[x] for x in theirs], name
        np.testing.assert_allclose(one.boxes[ours], expected.boxes[theirs], rtol=0, atol=1e-6)
        pairs = list(zip(ours, theirs, strict=True))
        if one.masks is not None and expected.masks is not None:
            assert all(np.array_equal(one.masks[x], expected.masks[y]) for x, y in pairs), name
        if one.keypoints is not None and expected.keypoints is not None:
            for x, y in pairs:
                np.testing.assert_allclose(one.keypoints[x], expected.keypoints[y], atol=1e-6)


@pytest.mark.parametrize("name", SOURCES)
def test_receivers_read_the_annotations(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path / "source")
    assert_equal(in_od_api(source), source.truth)
    assert_equal(in_tf_vision(source), source.truth)
    if name == "COCO with keypoints":
        assert_equal(in_od_api(source, by_name=True), source.truth)

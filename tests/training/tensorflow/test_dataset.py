"""``dataset`` yields the same elements as the OD API's decoder."""

from __future__ import annotations

import gzip
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfod.detection.labels.label_map import LabelMap, read_label_map
from tfod.errors import LabelMapError, TfodError, how_to_install
from tfod.sources.reading import find_label_map
from tfod.tensorflow import dataset, feature_description
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.writer import write_records

from tests.commands import run_python
from tests.image_kinds import image_of_pixels
from tests.training.inputs import CLASSES, MAP, boxes, record, write_train
from tests.zip_forge import real_zip

FLAGS = ("is_crowd", "group_of", "difficult")
SIDES = ("ymin", "xmin", "ymax", "xmax")


def oracle(payload: bytes, label_map: LabelMap | None) -> dict[str, Any]:
    """The output of the OD API's decoder, from its documented keys, defaults and precedence.

    With one deliberate difference: the OD API looks up an empty text, too, and finds the last item
    of the map without a display name.
    """
    kinds = {tf.string: ("class/text",), tf.int64: ("class/label", *FLAGS)}
    kinds[tf.float32] = ("area", "weight", *(f"bbox/{side}" for side in SIDES))
    features: dict[str, Any] = {
        f"image/object/{key}": tf.io.VarLenFeature(kind)
        for kind, names in kinds.items()
        for key in names
    }
    for key in ("encoded", "filename", "source_id"):
        features[f"image/{key}"] = tf.io.FixedLenFeature((), tf.string, "")
    parsed = tf.io.parse_single_example(payload, features)
    many = {key: parsed[f"image/object/{key}"].values.numpy() for names in kinds.values()
            for key in names}  # fmt: skip
    image = tf.image.decode_image(parsed["image/encoded"], 3, expand_animations=False).numpy()
    names = {item.name.encode(): item.id for item in label_map.items} if label_map else {}
    shown = {item.display_name.encode(): item.id for item in label_map.items} if label_map else {}
    classes = many["class/label"]
    if label_map and len(many["class/text"]):
        ids = many["class/label"] if len(classes) else [-1] * len(many["class/text"])
        classes = [max(names.get(text, -1), shown.get(text, -1)) if text else id
                   for text, id in zip(many["class/text"], ids, strict=True)]  # fmt: skip
    sides = [many[f"bbox/{side}"] for side in SIDES]
    weights = many["weight"] if len(many["weight"]) else np.ones(len(sides[0]), np.float32)
    return {
        "image": image,
        "source_id": parsed["image/source_id"].numpy(),
        "filename": parsed["image/filename"].numpy(),
        "groundtruth_boxes": np.stack(sides, axis=1),
        "groundtruth_classes": np.array(classes, np.int64),
        "groundtruth_weights": weights,
        "groundtruth_area": many["area"],
        "groundtruth_is_crowd": many["is_crowd"] != 0,
        "groundtruth_group_of": many["group_of"] != 0,
        "groundtruth_difficult": many["difficult"],
    }


def assert_equal(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        got, want = np.asarray(found[key].numpy()), np.asarray(value)
        if want.dtype.kind not in "SO":  # texts may be arrays of objects
            assert got.dtype == want.dtype, key
        if got.size or want.size:
            np.testing.assert_array_equal(got, want, err_msg=key)


def classes_in(source: Any, **options: Any) -> list[int]:
    """The classes of the only element."""
    (found,) = dataset(source, **options)
    return found["groundtruth_classes"].numpy().tolist()


@pytest.mark.parametrize("folder", ["anki-overdrive-cars", "blood-cells"])
def test_real_shards(corpus: Path, folder: str) -> None:
    expected = {}
    paths = [path for shard_set in find_shards(corpus / folder) for path in shard_set.paths]
    for path in paths:
        label_map = read_label_map(find_label_map(path)[0] or "")[0]
        for number, one in enumerate(read_records(path)):
            if number < 20:
                decoded = oracle(bytes(one.payload), label_map)
                expected[decoded["filename"], decoded["groundtruth_boxes"].tobytes()] = decoded
    count = 0
    for element in dataset(paths):
        key = element["filename"].numpy(), element["groundtruth_boxes"].numpy().tobytes()
        if key in expected:
            assert_equal(element, expected[key])
            count += 1
    assert count >= len(expected) > 0


def made_records(count: int) -> list[bytes]:
    """Records that may lack any list, with known, unknown, empty or missing texts."""
    chance = random.Random(5)
    made = []
    for number in range(count):
        size = chance.randrange(5)
        texts = [chance.choice(["cat", "dog", "Katze", "cow", "Кот", ""]) for _ in range(size)]
        labels = [chance.randint(1, 9) for _ in range(size)]
        pair = {"text": texts, "label": labels}
        kept = chance.choice([("text",), ("label",), ("text", "label"), ()])
        features = boxes(size, **{key: pair[key] for key in kept}) if size else {}
        for flag in FLAGS:
            if size and chance.random() < 0.5:
                features[f"image/object/{flag}"] = [chance.randrange(2) for _ in range(size)]
        for key in ("area", "weight"):
            if size and chance.random() < 0.5:
                features[f"image/object/{key}"] = [chance.random() for _ in range(size)]
        shape = chance.randint(1, 9), chance.randint(1, 9), 3
        image = image_of_pixels(np.random.default_rng(number).integers(0, 256, shape, np.uint8))
        made.append(record(f"{number}.png", **features, image__encoded=image))
    return made


def with_unknown(decoded: dict[str, Any]) -> dict[str, Any]:
    """Boxes without text and id have the class -1, so that all lists have the same length."""
    if not len(decoded["groundtruth_classes"]):
        unknown = np.full(len(decoded["groundtruth_boxes"]), -1, np.int64)
        return {**decoded, "groundtruth_classes": unknown}
    return decoded


def test_made_shards_of_all_compressions(tmp_path: Path) -> None:
    made = made_records(60)
    for part, compression in enumerate(("none", "gzip", "zlib")):
        write_records(tmp_path, f"part{part}", made[part::3], compression=compression)
    (tmp_path / "part3.tfrecord").write_bytes(gzip.compress(b""))
    expected = {one["filename"]: one for one in (oracle(payload, MAP) for payload in made)}
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for element in dataset(f"{tmp_path}/part*", label_map=MAP):
            names.append(element["filename"].numpy())
            assert_equal(element, with_unknown(expected[names[-1]]))
    assert sorted(names) == sorted(expected)


class TestClasses:
    @pytest.mark.parametrize(("text", "label", "classes", "label_map"), CLASSES)
    def test_text_and_id(self, tmp_path: Path, text, label, classes, label_map) -> None:
        payload = record(**boxes(len(classes), text, label))
        assert classes_in(write_train(tmp_path, payload, label_map=label_map)) == classes

    def test_texts_need_a_label_map(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, record("b.png", **boxes(1, ["cat"])), label_map=None)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)label_map=.*b\.png"):
            list(dataset(folder))
        assert classes_in(folder, label_map=MAP) == [2]
        assert classes_in(folder, label_map="coco") == [17]

    def test_different_label_maps(self, tmp_path: Path) -> None:
        for subset in ("train", "valid"):
            write_train(tmp_path / subset, record(**boxes(1, ["cat"])))
        both = f"{tmp_path}/*/*.tfrecord"
        assert len(list(dataset(both))) == 2
        other = LabelMap.from_names(["cat"])
        (tmp_path / "valid" / "label_map.pbtxt").write_text(other.to_text())
        with pytest.raises(LabelMapError, match=r"different label maps.*tfod reshard"):
            dataset(both)
        assert len(list(dataset(both, label_map=other))) == 2
        (tmp_path / "valid" / "label_map.pbtxt").unlink()
        with pytest.raises(LabelMapError, match="different label maps"):
            dataset(both)


class TestOrder:
    @staticmethod
    def names(elements: Any) -> list[int]:
        return [int(element["filename"].numpy()) for element in elements]

    def test_of_shards(self, tmp_path: Path) -> None:
        """The OD API writes records to the shards in turn; they are read in this order."""
        write_train(tmp_path, *(record(str(n)) for n in range(20)), num_shards=5)
        assert self.names(dataset(tmp_path)) == list(range(20))

    def test_shuffled(self, tmp_path: Path) -> None:
        shards = write_train(tmp_path, *(record(str(n)) for n in range(40)), num_shards=20)
        elements = dataset(shards, shuffle=4, seed=1)
        first, second = self.names(elements), self.names(elements)
        assert sorted(first) == sorted(second) == list(range(40))
        assert first != second
        again = dataset(shards, shuffle=4, seed=1)
        assert [self.names(again), self.names(again)] == [first, second]
        assert self.names(dataset(shards, shuffle=4, seed=2)) != first
        # The first 16 of 20 shards are open: if they were not shuffled, the last 4 would be late.
        assert set(self.names(dataset(shards))[:32]) != set(first[:32])


@pytest.mark.parametrize(
    ("features", "error"),
    [
        ({"image/object/bbox/xmax": [0.5]}, "(?s)bbox/xmax.*tfod check.*bad"),
        ({"image/object/class/text": ["cat"]}, "(?s)class/text.*tfod check.*bad"),
        ({"image/object/class/label": [1, 2, 3]}, "(?s)class/label.*tfod check.*bad"),
        ({"image/object/area": [1.0]}, "(?s)area.*tfod check.*bad"),
        ({"image/object/weight": [1.0, 1.0, 1.0]}, "(?s)weight.*tfod check.*bad"),
        ({"image/encoded": b"nothing"}, "decode"),
        ({"image/encoded": []}, "image/encoded"),
    ],
)
def test_invalid_records(tmp_path: Path, features: dict[str, Any], error: str) -> None:
    folder = write_train(tmp_path, record("bad.png", **{**boxes(2, ["cat", "dog"]), **features}))
    with pytest.raises(tf.errors.InvalidArgumentError, match=error):
        list(dataset(folder))


def test_sources(tmp_path: Path) -> None:
    for subset in ("train", "val"):
        write_records(tmp_path, subset, [record()])
    with pytest.raises(TfodError, match=r"several subsets \(train, val\)"):
        dataset(tmp_path)
    assert len(list(dataset(tmp_path / "val.tfrecord"))) == 1
    assert len(list(dataset(f"{tmp_path}/*.tfrecord"))) == 2
    zipped = real_zip([("s.tfrecord", (tmp_path / "val.tfrecord").read_bytes())])
    (tmp_path / "z.zip").write_bytes(zipped)
    with pytest.raises(TfodError, match="shards in a zip; unpack it first"):
        dataset(tmp_path / "z.zip")
    paths = write_records(tmp_path / "s", "s", [record(str(n)) for n in range(3)], num_shards=3)
    Path(paths[1]).unlink()
    with pytest.warns(UserWarning, match="missing from a numbered set: s-00001-of-00003"):
        dataset(tmp_path / "s")


def test_an_unknown_profile_and_no_tensorflow() -> None:
    with pytest.raises(TfodError, match="coco2: no such profile; there are cvat, tf_d"):
        feature_description("coco2")
    code = "import sys; sys.modules['tensorflow'] = None; import tfod.tensorflow"
    last = run_python("-c", code).err.splitlines()[-1]
    assert last.endswith(f"tfod.tensorflow needs TensorFlow; {how_to_install('tensorflow')}")

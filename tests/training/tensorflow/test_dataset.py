"""``dataset`` yields what the OD API's own decoder makes of the same records."""

from __future__ import annotations

import gzip
import random
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfod.check.profiles.file import load_profile
from tfod.detection.features.schema import IMAGE_LABEL, FeatureSpec
from tfod.detection.labels.label_map import LabelMap, LabelMapItem, read_label_map
from tfod.detection.labels.search import find_label_map
from tfod.errors import LabelMapError, ShardError, ShardsNotFoundError, TfodError, how_to_install
from tfod.example.wire import Kind
from tfod.tensorflow import dataset, feature_description, locating_damage
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.writer import write_records

from tests.commands import run_python
from tests.image_kinds import image_of_pixels
from tests.records import encode, objects

SHAPE, MASKS = "original_image_spatial_shape", "groundtruth_instance_masks"
FLAGS = ("is_crowd", "group_of", "difficult")
MAP = LabelMap(
    (
        LabelMapItem(2, "cat", "Katze"),
        LabelMapItem(7, "dog"),
        LabelMapItem(5, "Katze"),  # a name that is the other's display name
    )
)


def draw(height: int, width: int, seed: int = 0, kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return image_of_pixels(pixels, kind)


def record(name: str = "a.png", **features: Any) -> bytes:
    """A record with an image; ``__`` in the name of a feature is a slash."""
    named = {key.replace("__", "/"): value for key, value in features.items()}
    return encode(
        {
            "image/filename": name,
            "image/source_id": name.partition(".")[0],
            "image/encoded": draw(6, 8),
            "image/height": 6,
            "image/width": 8,
            **named,
        }
    )


def boxes(count: int, text: Any = None, label: Any = None) -> dict[str, Any]:
    return objects(
        [(0.1 * n, 0.2, 0.1 * n + 0.1, 0.5 + 0.1 * n) for n in range(count)], text, label
    )


def write_train(
    folder: Path, *records: bytes, label_map: LabelMap | None = MAP, **options: Any
) -> Path:
    write_records(folder, "train", records, **options)
    if label_map is not None:
        (folder / "label_map.pbtxt").write_text(label_map.to_text())
    return folder


def oracle(payload: bytes, label_map: LabelMap | None) -> dict[str, Any]:
    """What the OD API's decoder gives, from its documented keys, defaults and precedence.

    One thing is by choice: an empty text is no class. There it is looked up too, and finds the last
    item of the map that has no display name.
    """
    kinds = {tf.string: ("class/text",), tf.int64: ("class/label", *FLAGS)}
    kinds[tf.float32] = ("area", "weight", *(f"bbox/{side}" for side in ("ymin", "xmin")))
    kinds[tf.float32] += ("bbox/ymax", "bbox/xmax")
    features: dict[str, Any] = {
        f"image/object/{key}": tf.io.VarLenFeature(kind)
        for kind, names in kinds.items()
        for key in names
    }
    for key in ("encoded", "filename", "source_id", "key/sha256"):
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
    sides = [many[f"bbox/{side}"] for side in ("ymin", "xmin", "ymax", "xmax")]
    weights = many["weight"] if len(many["weight"]) else np.ones(len(sides[0]), np.float32)
    return {
        "image": image,
        SHAPE: np.array(image.shape[:2], np.int32),
        "source_id": parsed["image/source_id"].numpy(),
        "key": parsed["image/key/sha256"].numpy(),
        "filename": parsed["image/filename"].numpy(),
        "groundtruth_boxes": np.stack(sides, axis=1),
        "groundtruth_classes": np.array(classes, np.int64),
        "groundtruth_weights": weights,
        "groundtruth_area": many["area"],
        "groundtruth_is_crowd": many["is_crowd"] != 0,
        "groundtruth_group_of": many["group_of"] != 0,
        "groundtruth_difficult": many["difficult"],
    }


def rows(batches: Any) -> Iterator[dict[str, Any]]:
    """The records of a dataset of batches."""
    for batch in batches:
        for number in range(batch["groundtruth_boxes"].shape[0]):
            yield {key: value[number] for key, value in batch.items()}


def as_array(value: Any) -> np.ndarray:
    """An array; an image of a ragged batch has rows of one length."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def assert_equal(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        got, want = as_array(found[key]), np.asarray(value)
        if want.dtype.kind not in "SO":  # texts are arrays of objects here and there
            assert got.dtype == want.dtype, key
        if got.size or want.size:
            np.testing.assert_array_equal(got, want, err_msg=key)


def one(source: Any, **options: Any) -> dict[str, Any]:
    (found,) = dataset(source, **options)
    return found


@pytest.mark.parametrize("folder", ["anki-overdrive-cars", "blood-cells"])
def test_real_shards(corpus: Path, folder: str) -> None:
    wanted, map_path = {}, ""
    for shard_set in find_shards(corpus / folder):
        for path in shard_set.paths:
            map_path = find_label_map(path)[0] or ""
            for number, one in enumerate(read_records(path)):
                if number < 20:
                    decoded = oracle(bytes(one.payload), read_label_map(map_path)[0])
                    wanted[decoded["filename"], decoded["groundtruth_boxes"].tobytes()] = decoded
    count = 0
    for batched in (False, True):
        found = dataset(corpus / folder, batch_size=5 if batched else None)
        for row in rows(found) if batched else found:
            key = row["filename"].numpy(), as_array(row["groundtruth_boxes"]).tobytes()
            if key in wanted:
                assert_equal(row, wanted[key])
                count += 1
    assert count >= 2 * len(wanted) > 0


def made_records(count: int) -> list[bytes]:
    """Records whose lists are there or not, whose texts are known, unknown, empty or missing."""
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
        if chance.random() < 0.5:
            features["image/key/sha256"] = f"{number:064x}"
        image = draw(chance.randint(1, 9), chance.randint(1, 9), number)
        made.append(record(f"{number}.png", **features, image__encoded=image))
    return made


def with_unknown(decoded: dict[str, Any]) -> dict[str, Any]:
    """Boxes without text and id have none there; here each has -1, so that lists stay aligned."""
    if not len(decoded["groundtruth_classes"]):
        unknown = np.full(len(decoded["groundtruth_boxes"]), -1, np.int64)
        return {**decoded, "groundtruth_classes": unknown}
    return decoded


@pytest.mark.parametrize("batch_size", [None, 7])
def test_made_shards_of_all_compressions(tmp_path: Path, batch_size: int | None) -> None:
    records = made_records(60)
    for place, compression in enumerate(("none", "gzip", "zlib")):
        write_records(tmp_path, f"part{place}", records[place::3], compression=compression)
    wanted = {one["filename"]: one for one in (oracle(payload, MAP) for payload in records)}
    found = dataset(tmp_path, batch_size=batch_size, label_map=MAP)
    names = []
    for row in found if batch_size is None else rows(found):
        names.append(row["filename"].numpy())
        assert_equal(row, with_unknown(wanted[names[-1]]))
    assert sorted(names) == sorted(wanted)


class TestClasses:
    @pytest.mark.parametrize(
        ("text", "label", "classes"),
        [
            (["cat", "dog"], [7, 2], [2, 7]),  # the text decides
            (["Katze", "cow"], None, [5, -1]),  # the larger id of two; nobody's text
            (None, [3, 0], [3, 0]),
            (["", "dog"], [2, 3], [2, 7]),  # an empty text is none
            (["", ""], [0, -1], [-1, -1]),  # how Datumaro writes an object without a class
            ([""], None, [-1]),
            (None, None, [-1]),
        ],
    )
    def test_of_text_and_id(self, tmp_path: Path, text: Any, label: Any, classes: Any) -> None:
        found = one(write_train(tmp_path, record(**boxes(len(classes), text, label))))
        assert found["groundtruth_classes"].numpy().tolist() == classes

    def test_a_class_of_id_0(self, tmp_path: Path) -> None:
        label_map = LabelMap((LabelMapItem(0, "zero"), LabelMapItem(1, "one")))
        folder = write_train(
            tmp_path, record(**boxes(2, ["", "zero"], [0, 1])), label_map=label_map
        )
        assert one(folder)["groundtruth_classes"].numpy().tolist() == [0, 0]

    def test_without_a_label_map_ids_are_taken(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, record(**boxes(2, ["cat", "dog"], [4, 1])), label_map=None)
        assert one(folder)["groundtruth_classes"].numpy().tolist() == [4, 1]

    def test_texts_alone_need_a_label_map(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, record("b.png", **boxes(1, ["cat"])), label_map=None)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)label_map=.*b\.png"):
            list(dataset(folder))
        assert one(folder, label_map=MAP)["groundtruth_classes"].numpy().tolist() == [2]
        assert one(folder, label_map="coco")["groundtruth_classes"].numpy().tolist() == [17]

    def test_of_image_level_labels(self, tmp_path: Path) -> None:
        payload = record(**boxes(1, ["dog"]), image__class__text=["cat", "dog", "cow"])
        found = one(write_train(tmp_path, payload), profile="open_images", batch_size=1)
        assert found["groundtruth_image_classes"].to_list() == [[2, 7, -1]]

    def test_label_maps_that_differ(self, tmp_path: Path) -> None:
        write_train(tmp_path / "train", record(**boxes(1, ["cat"])))
        write_train(tmp_path / "valid", record(**boxes(1, ["cat"])))
        assert len(list(dataset(tmp_path))) == 2
        other = LabelMap.from_names(["cat"])
        (tmp_path / "valid" / "label_map.pbtxt").write_text(other.to_text())
        with pytest.raises(LabelMapError, match=r"differ.*tfod reshard"):
            dataset(tmp_path)
        assert len(list(dataset(tmp_path, label_map=other))) == 2
        (tmp_path / "valid" / "label_map.pbtxt").unlink()
        with pytest.raises(LabelMapError, match="no label map lies beside"):
            dataset(tmp_path)

    def test_two_label_maps_beside(self, tmp_path: Path) -> None:
        write_train(tmp_path, record())
        for name in ("a_labels_map", "b_labels_map"):
            (tmp_path / f"{name}.pbtxt").write_text(MAP.to_text())
        (tmp_path / "label_map.pbtxt").unlink()
        with pytest.raises(LabelMapError, match="several label maps"):
            dataset(tmp_path)


class TestOrder:
    @pytest.fixture
    def shards(self, tmp_path: Path) -> Path:
        return write_train(tmp_path, *(record(str(n)) for n in range(40)), num_shards=20)

    @staticmethod
    def names(elements: Any) -> list[int]:
        return [int(element["filename"].numpy()) for element in elements]

    def test_of_shards_in_turn(self, tmp_path: Path) -> None:
        """Records that were dealt to shards in turn, as the OD API does, come as they were."""
        write_train(tmp_path, *(record(str(n)) for n in range(20)), num_shards=5)
        assert self.names(dataset(tmp_path, decode=False)) == list(range(20))

    def test_shuffled(self, shards: Path) -> None:
        elements = dataset(shards, shuffle=4, seed=1, decode=False)
        first, second = self.names(elements), self.names(elements)
        assert sorted(first) == sorted(second) == list(range(40))
        assert first != second
        again = dataset(shards, shuffle=4, seed=1, decode=False)
        assert [self.names(again), self.names(again)] == [first, second]
        assert self.names(dataset(shards, shuffle=4, seed=2, decode=False)) != first
        # Of 20 shards 16 are read at first: without other shards first, the last 4 came late.
        in_order = self.names(dataset(shards, decode=False))
        assert set(in_order[:32]) != set(first[:32])

    def test_shuffled_by_default_over_many_records(self, shards: Path) -> None:
        found = self.names(dataset(shards, shuffle=True, seed=3, decode=False, deterministic=False))
        assert sorted(found) == list(range(40))
        assert found != sorted(found)

    def test_batches(self, shards: Path) -> None:
        sizes = [len(batch["filename"]) for batch in dataset(shards, batch_size=16, decode=False)]
        assert sizes == [16, 16, 8]

    @pytest.mark.parametrize("image", [b"small", bytes(20_000)], ids=["at once", "one by one"])
    def test_records_that_say_different_things_in_one_batch(
        self, tmp_path: Path, image: bytes
    ) -> None:
        several = [
            {**boxes(2, ["cat", ""], [9, 2]), "image/object/weight": [0.5, 0.25]},
            boxes(3, None, [1, 0, 2]),
            boxes(1, ["cat"]),
            {},
        ]
        folder = write_train(tmp_path, *(record(image__encoded=image, **row) for row in several))
        singles = list(dataset(folder, decode=False))
        assert [len(one["groundtruth_weights"]) for one in singles] == [2, 3, 1, 0]
        assert [one["groundtruth_classes"].numpy().tolist() for one in singles] == [
            *([2, 2], [1, 0, 2], [2], [])
        ]
        (batch,) = dataset(folder, batch_size=4, decode=False)
        for name in ("groundtruth_classes", "groundtruth_weights", "groundtruth_boxes"):
            for row, single in zip(batch[name], singles, strict=True):
                np.testing.assert_array_equal(row, single[name])


class TestImages:
    def test_resized(self, tmp_path: Path) -> None:
        jpeg = draw(20, 30, 1, "JPEG")
        folder = write_train(tmp_path, record(image__encoded=jpeg), record(**boxes(1, ["cat"])))
        image = tf.io.decode_image(jpeg)
        wanted = np.rint(tf.image.resize(image, (10, 12)).numpy()).astype(np.uint8)
        (batch,) = dataset(folder, batch_size=2, image_size=(10, 12))
        single, _ = dataset(folder, image_size=(10, 12))
        assert batch["image"].shape == (2, 10, 12, 3)
        np.testing.assert_array_equal(batch["image"][0], wanted)
        np.testing.assert_array_equal(single["image"], wanted)
        assert batch[SHAPE].numpy().tolist() == [[20, 30], [6, 8]]

    def test_resized_ones_fit_into_padded_batches(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, *(record(**boxes(n, ["cat"] * n)) for n in (1, 3)))
        wanted = ("image", "groundtruth_boxes", "groundtruth_classes")
        elements = dataset(folder, image_size=(4, 4)).map(lambda row: {k: row[k] for k in wanted})
        (batch,) = elements.padded_batch(2)
        assert batch["groundtruth_boxes"].shape == (2, 3, 4)
        assert batch["groundtruth_classes"].numpy().tolist() == [[2, 0, 0], [2, 2, 2]]

    def test_kept_as_files(self, tmp_path: Path) -> None:
        found = one(write_train(tmp_path, record(image__encoded=b"any")), decode=False)
        assert found["image"].numpy() == b"any"
        assert found[SHAPE].numpy().tolist() == [6, 8]

    def test_that_is_none(self, tmp_path: Path) -> None:
        elements = dataset(write_train(tmp_path, record(image__encoded=b"nothing")))
        with pytest.raises(tf.errors.InvalidArgumentError, match="decode"):
            list(elements)

    @pytest.mark.parametrize(
        ("kind", "size", "batch_size"),
        [
            ("png", None, None),
            ("png", None, 2),
            ("png", (3, 4), 2),
            ("numerical", None, 2),
            ("numerical", (3, 4), None),
        ],
    )
    def test_masks(self, tmp_path: Path, kind: str, size: Any, batch_size: int | None) -> None:
        masks = np.zeros((2, 6, 8), np.float32)
        masks[1, 2:4, 1:7] = 1
        values = (
            [b"", image_of_pixels(masks[1] * 255)] if kind == "png" else masks.reshape(-1).tolist()
        )
        folder = write_train(
            tmp_path,
            record(**boxes(2, ["cat", "dog"]), image__object__mask=values),
            record(**boxes(1, ["cat"])),
        )
        found = dataset(folder, masks=kind, image_size=size, batch_size=batch_size)
        if size:
            masks = masks[:, 1::2, 1::2]  # the nearest pixel, of centres
        first, second = (row[MASKS] for row in (rows(found) if batch_size else found))
        np.testing.assert_array_equal(as_array(first), masks)
        assert as_array(first).dtype == np.float32
        assert second.shape[0] == 0

    def test_masks_beside_undecoded_images(self, tmp_path: Path) -> None:
        mask = np.eye(6, 8)
        payload = record(**boxes(1, ["cat"]), image__object__mask=[image_of_pixels(mask)])
        found = one(write_train(tmp_path, payload), masks="png", decode=False)
        np.testing.assert_array_equal(found[MASKS][0], mask)

    def test_masks_of_an_unknown_kind(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="png, numerical"):
            dataset(write_train(tmp_path, record()), masks="polygons")


@pytest.mark.parametrize("batch_size", [None, 3])
def test_keypoints(tmp_path: Path, batch_size: int | None) -> None:
    nan = float("nan")
    points = {
        "image/object/keypoint/x": [0.1, 0.2, nan, 0.4],
        "image/object/keypoint/y": [0.5, 0.6, nan, 0.8],
    }
    given = {"image/object/keypoint/visibility": [0, 1, 2, 2]}
    folder = write_train(
        tmp_path,
        record("given", **boxes(2, ["cat", "dog"]), **points, **given),
        record("derived", **boxes(2, ["cat", "dog"]), **points),
        record("none", **boxes(1, ["cat"])),
    )
    found = dataset(folder, keypoints=2, batch_size=batch_size)
    first, second, third = rows(found) if batch_size else found
    visible = "groundtruth_keypoint_visibilities"
    assert as_array(first[visible]).tolist() == [[False, True], [True, True]]
    assert as_array(second[visible]).tolist() == [[True, True], [False, True]]
    wanted = np.array([[[nan, nan], [0.6, 0.2]], [[nan, nan], [0.8, 0.4]]], np.float32)
    np.testing.assert_array_equal(as_array(first["groundtruth_keypoints"]), wanted)
    wanted[0, 0] = [0.5, 0.1]
    np.testing.assert_array_equal(as_array(second["groundtruth_keypoints"])[0], wanted[0])
    assert third["groundtruth_keypoints"].shape[0] == third[visible].shape[0] == 0


class TestUnsoundRecords:
    @pytest.mark.parametrize(
        ("key", "values", "batch_size"),
        [
            ("bbox/xmax", [0.5], None),
            ("bbox/xmax", [0.5], 2),
            ("class/text", ["cat"], 2),
            ("class/label", [1, 2, 3], 2),
            ("area", [1.0], 2),
            ("weight", [1.0, 1.0, 1.0], 2),
        ],
    )
    def test_lists_of_different_lengths(
        self, tmp_path: Path, key: str, values: Any, batch_size: int | None
    ) -> None:
        """Of one batch, the records' lists could make up for each other."""
        features = {**boxes(2, ["cat", "dog"]), f"image/object/{key}": values}
        other = 4 - len(values)
        fill = {**boxes(2, ["cat", "dog"]), f"image/object/{key}": (values * 3)[:other]}
        folder = write_train(tmp_path, record("bad.png", **features), record("two.png", **fill))
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s){key}.*tfod check.*bad"):
            list(dataset(folder, batch_size=batch_size))

    def test_without_a_required_feature(self, tmp_path: Path) -> None:
        elements = dataset(write_train(tmp_path, encode({"image/filename": "a"})))
        with pytest.raises(tf.errors.InvalidArgumentError, match="image/encoded"):
            list(elements)


class TestOtherProfiles:
    def test_of_detection_yield_what_they_have(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, record(**boxes(1, ["cat"], [2])))
        basic = {"filename", "groundtruth_boxes", "groundtruth_classes", SHAPE}
        assert one(folder, profile="roboflow").keys() == {*basic, "image"}
        assert one(folder, profile="cvat").keys() == {*basic, "source_id"}
        assert one(folder, profile="cvat")[SHAPE].numpy().tolist() == [6, 8]
        extra = {"image", "source_id", "groundtruth_group_of", "groundtruth_image_classes"}
        assert one(folder, profile="open_images").keys() == {*basic, *extra}

    @pytest.mark.filterwarnings("ignore::UserWarning:keras")
    def test_of_classification_fit_a_model(self, tmp_path: Path) -> None:
        import keras

        sides = {"height": 6, "width": 8}
        records = [
            encode({"image_raw": draw(6, 8, n), "label": n % 2, "depth": 3, **sides})
            for n in range(6)
        ]
        folder = write_train(tmp_path, *records, label_map=None)
        pairs = dataset(folder, "image_classification", batch_size=3, image_size=(4, 4))
        assert [tf.as_dtype(part.dtype) for part in pairs.element_spec] == [tf.uint8, tf.int64]
        assert [label.numpy().tolist() for _, label in pairs] == [[0, 1, 0], [1, 0, 1]]
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2)]
        model = keras.Sequential([keras.Input((4, 4, 3)), *layers])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        assert np.isfinite(model.fit(pairs, verbose=0).history["loss"][0])

    def test_image_label_is_a_file_or_raw(self, tmp_path: Path) -> None:
        grey, colour = np.arange(48, dtype=np.uint8), np.arange(144, dtype=np.uint8)
        file = draw(6, 8)
        records = [
            encode({"image": data, "label": 1, "height": 6, "width": 8, "channels": 3})
            for data in (file, colour.tobytes(), grey.tobytes())
        ]
        folder = write_train(tmp_path, *records, label_map=None)
        found = [image.numpy() for image, _ in dataset(folder, "image_label")]
        np.testing.assert_array_equal(found[0], tf.io.decode_image(file))
        np.testing.assert_array_equal(found[1], colour.reshape(6, 8, 3))
        np.testing.assert_array_equal(found[2], np.stack([grey.reshape(6, 8)] * 3, axis=2))
        files = [image.numpy() for image, _ in dataset(folder, "image_label", decode=False)]
        assert files[0] == file
        (batch,) = dataset(folder, "image_label", batch_size=3)
        np.testing.assert_array_equal(batch[0][1].to_tensor(), found[1])

    def test_keras_coco(self, tmp_path: Path) -> None:
        numbers = {"area": 20.0, "bbox": [1.0, 2.0, 4.0, 5.0], "category_id": 3}
        payload = encode({"image": draw(6, 8), "path": "a", "id": 9, "image_id": 4, **numbers})
        (found,) = dataset(
            write_train(tmp_path, payload, label_map=None), "keras_coco", batch_size=1
        )
        assert found["bbox"].numpy().tolist() == [[1, 2, 4, 5]]
        assert found["image"].shape.as_list() == [1, None, None, 3]
        assert found["category_id"].numpy().tolist() == [3]
        assert found.keys() == {"image", "path", "id", "image_id", *numbers}

    def test_of_ones_own(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, encode({"x": [1.0, 2.0], "n": 3}), label_map=None)
        description = {"x": FeatureSpec(Kind.FLOAT), "n": FeatureSpec(Kind.INT64, ())}
        found = one(folder, profile=description)
        assert (found["x"].numpy().tolist(), found["n"].numpy()) == ([1, 2], 3)
        (tmp_path / "p.json").write_text(
            '{"features": {"n": {"kind": "FixedLenFeature", "dtype": "int64"}}}'
        )
        profile = load_profile(str(tmp_path / "p.json"))
        assert one(folder, profile=profile).keys() == {"n"} == feature_description(profile).keys()

    def test_none_yields_serialized_examples(self, tmp_path: Path) -> None:
        payload = record()
        folder = write_train(tmp_path, payload)
        assert [found.numpy() for found in dataset(folder, None)] == [payload]
        assert [found.numpy().tolist() for found in dataset(folder, None, 1)] == [[payload]]

    def test_of_no_such_name(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, record())
        with pytest.raises(TfodError, match="coco2: no such profile; there are cvat, tf_d"):
            dataset(folder, "coco2")


class TestShards:
    def test_damage_is_located(self, tmp_path: Path) -> None:
        records = [record(str(n)) for n in range(6)]
        good, bad = write_records(tmp_path, "s", records, num_shards=2)
        data = bytearray(Path(bad).read_bytes())
        second = 16 + len(records[1])
        data[second + 40] ^= 1
        Path(bad).write_bytes(data)
        (tmp_path / "a.record").touch()  # not what TensorFlow stumbles over
        with pytest.warns(UserWarning, match="a.record is empty"):
            elements = dataset(tmp_path, batch_size=2)
        with pytest.raises(ShardError) as caught, locating_damage(tmp_path):
            list(elements)
        assert (caught.value.shard, caught.value.record) == (bad, 1)
        assert caught.value.offset == second
        assert isinstance(caught.value.__cause__, tf.errors.DataLossError)
        shutil.copy(good, bad)
        with pytest.raises(TfodError, match="not there any more"), locating_damage(tmp_path):
            raise caught.value.__cause__

    def test_missing_ones_are_named(self, tmp_path: Path) -> None:
        paths = write_records(tmp_path, "s", [record(str(n)) for n in range(3)], num_shards=3)
        Path(paths[1]).unlink()
        with pytest.warns(UserWarning, match="missing from a numbered set: s-00001-of-00003"):
            dataset(tmp_path)

    def test_sound_ones_without_a_warning(self, tmp_path: Path) -> None:
        folder = write_train(tmp_path, *made_records(3), num_shards=2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(list(dataset(folder))) == 3

    def test_a_compressed_one_without_records(self, tmp_path: Path) -> None:
        write_records(tmp_path, "s", [record(str(n)) for n in range(2)])
        (tmp_path / "a.tfrecord").write_bytes(gzip.compress(b""))
        assert len(list(dataset(tmp_path, batch_size=2, decode=False))) == 1

    def test_in_a_zip(self, tmp_path: Path) -> None:
        (path,) = write_records(tmp_path, "s", [record()])
        with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
            archive.write(path, "s.tfrecord")
        with pytest.raises(TfodError, match="shards in a zip; unpack it first"):
            dataset(tmp_path / "z.zip")

    def test_none(self, tmp_path: Path) -> None:
        with pytest.raises(ShardsNotFoundError):
            dataset(tmp_path)


def test_without_tensorflow() -> None:
    code = "import sys; sys.modules['tensorflow'] = None; import tfod.tensorflow"
    last = run_python("-c", code).err.splitlines()[-1]
    assert last.endswith(f"tfod.tensorflow needs TensorFlow; {how_to_install('tensorflow')}")


def test_image_label_may_lack_the_size(tmp_path: Path) -> None:
    """As Kaggle's petals: ``class`` and ``image`` alone."""
    description = {"image": IMAGE_LABEL["image"], "class": IMAGE_LABEL["label"]}
    folder = write_train(tmp_path, encode({"image": draw(6, 8), "class": 4}), label_map=None)
    ((image, label),) = dataset(folder, description)
    assert (image.shape, label.numpy()) == ((6, 8, 3), 4)

"""Directories of TFDS: ours in its builder, and its builder's in our reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfod
from tfod.cli.main import main
from tfod.convert.writers import tfds as writer
from tfod.detection.images.masks import encode_mask_png

from tests.commands import Run
from tests.image_kinds import HEIGHT, WIDTH
from tests.records import encode, image, objects, write_shard

tfds = pytest.importorskip("tensorflow_datasets", reason="pip install tensorflow-datasets")
CORPUS = Path(__file__).parents[1] / "corpus"


def coco_features(names: list[str]) -> Any:
    """Those of tfds's own ``coco`` (object_detection/coco.py, _info)."""
    features = tfds.features
    objects = {
        "id": np.int64,
        "area": np.int64,
        "bbox": features.BBoxFeature(),
        "label": features.ClassLabel(names=names),
        "is_crowd": np.bool_,
    }
    return features.FeaturesDict(
        {
            "image": features.Image(),
            "image/filename": features.Text(),
            "image/id": np.int64,
            "objects": features.Sequence(objects),
        }
    )


def built(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The examples of each split that ``tfds`` reads, and the names of the classes."""
    builder = tfds.builder_from_directory(str(folder))
    label = builder.info.features["objects"]["label"]
    splits = {}
    for name, split in builder.info.splits.items():
        splits[name] = list(tfds.as_numpy(builder.as_dataset(split=name, shuffle_files=False)))
        assert len(splits[name]) == split.num_examples
    return splits, label.names


@pytest.mark.parametrize("name", ["blood-cells", "hyphal-tips", "anki-overdrive-cars"])
def test_tfds_reads_what_the_shards_say(name: str, tmp_path: Path) -> None:
    target = tmp_path / "Our cars"
    assert main(["convert", str(CORPUS / name), str(target), "--to", "tfds"]) == 0
    splits, names = built(target)
    assert splits.keys() == {path.stem for path in (CORPUS / name).glob("*.record")}
    numbers = iter(range(1, 1 << 20))
    for split, found in splits.items():
        source = tfod.read_detections(CORPUS / name / f"{split}.record")
        for one, theirs in zip(source, found, strict=True):
            pixels = tf.io.decode_image(bytes(one.encoded or b""), channels=3).numpy()
            np.testing.assert_array_equal(theirs["image"], pixels)
            objects = theirs["objects"]
            np.testing.assert_array_equal(objects["bbox"][:, [1, 0, 3, 2]], one.boxes.clip(0, 1))
            assert [names[label] for label in objects["label"]] == one.class_text
            assert theirs["image/filename"].decode() == one.filename
            size = np.array(pixels.shape[1::-1])
            sides = (one.boxes[:, 2:].astype(float) - one.boxes[:, :2]) * size
            np.testing.assert_array_equal(objects["area"], sides.prod(axis=1).round())
            assert objects["id"].tolist() == [next(numbers) for _ in one.boxes]
            assert not objects["is_crowd"].any()
    coco_features(names).save_config(tmp_path)
    for one in ("features.json", "objects-label.labels.txt"):
        assert (target / one).read_text() == (tmp_path / one).read_text()


def test_several_shards_and_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_SHARD_BYTES", 200_000)
    target = tmp_path / "blood" / "2.0.1"
    assert main(["convert", str(CORPUS / "blood-cells"), str(target), "--to", "tfds"]) == 0
    builder = tfds.builder_from_directory(str(target))
    assert (builder.name, str(builder.version)) == ("blood", "2.0.1")
    lengths = builder.info.splits["test"].shard_lengths
    assert len(lengths) > 5 and sum(lengths) == 64
    assert len(built(target)[0]["test"]) == 64
    assert builder.info.splits["test"].num_bytes == sum(
        path.stat().st_size - 16 * count
        for path, count in zip(sorted(target.glob("*.tfrecord-*")), lengths, strict=True)
    )
    assert len(list(tfds.load("blood:2.0.1", data_dir=str(tmp_path), split="test[:10%]"))) == 6


class Boxes(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc, name-defined]
    """What a user writes: two splits, images without objects among them."""

    VERSION = tfds.core.Version("1.0.0")
    NAMES = ("cat", "dog with bone")

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(builder=self, features=coco_features(list(self.NAMES)))

    def _split_generators(self, _: Any) -> Any:
        return {"train": self._examples(range(7)), "validation": self._examples(range(7, 9))}

    def _generate_examples(self) -> Any:
        raise NotImplementedError

    def _examples(self, numbers: range) -> Any:
        for number in numbers:
            yield number, self.example(number)

    def example(self, number: int) -> dict[str, Any]:
        objects = [
            {
                "id": 10 * number + place,
                "area": 5 + place,
                "bbox": tfds.features.BBox(ymin=0.1, xmin=0.2, ymax=0.5, xmax=0.7 + place / 10),
                "label": self.NAMES[place % 2],
                "is_crowd": place == 1,
            }
            for place in range(number % 3)
        ]
        return {
            "image": np.full((HEIGHT, WIDTH, 3), number, np.uint8),
            "image/filename": f"{number}.png",
            "image/id": 100 + number,
            "objects": objects,
        }


def test_a_directory_that_tfds_has_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = Boxes(data_dir=tmp_path / "data")
    builder.download_and_prepare()
    source = str(builder.data_dir)
    capsys.readouterr()
    assert main(["check", source, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["profile"]["name"] == "tfds" and not report["findings"]

    target = tmp_path / "shards"
    assert main(["convert", source, str(target), "--to", "shards"]) == 0
    label_map, _ = tfod.read_label_map(target / "label_map.pbtxt")
    assert [(one.id, one.name) for one in label_map.items] == [(1, "cat"), (2, "dog with bone")]
    for split, numbers in (("train", range(7)), ("validation", range(7, 9))):
        found = {one.filename: one for one in tfod.read_detections(target / f"{split}.tfrecord")}
        assert found.keys() == {f"{number}.png" for number in numbers}
        for number in numbers:
            one, theirs = found[f"{number}.png"], builder.example(number)
            objects = theirs["objects"]
            assert one.source_id == str(100 + number)
            assert (tf.io.decode_image(bytes(one.encoded or b"")).numpy() == number).all()
            corners = [(b.xmin, b.ymin, b.xmax, b.ymax) for b in (o["bbox"] for o in objects)]
            np.testing.assert_array_equal(one.boxes, np.float32(corners).reshape(-1, 4))
            assert (one.class_text or []) == [each["label"] for each in objects]
            for name in ("area", "is_crowd") if objects else ():
                assert one.attributes[name] == [each[name] for each in objects]
    # And back: what tfds reads then is what it has written.
    again = tmp_path / "again"
    assert main(["convert", source, str(again), "--to", "tfds"]) == 0
    (theirs, names), (ours, same) = built(Path(source)), built(again)
    assert names == same
    for split, examples in theirs.items():
        for one, other in zip(examples, ours[split], strict=True):
            del one["objects"]["id"], other["objects"]["id"]
            tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def change(folder: Path, file: str, keys: tuple[Any, ...], value: Any) -> None:
    """Put a value into one of a directory's JSONs; None takes what is there away."""
    if not keys:
        (folder / file).write_text(value) if value else (folder / file).unlink()
        return
    document = json.loads((folder / file).read_text())
    inside = document
    for key in keys[:-1]:
        inside = inside[key]
    if value is None:
        del inside[keys[-1]]
    else:
        inside[keys[-1]] = value
    (folder / file).write_text(json.dumps(document))


INFO, FEATURES = "dataset_info.json", "features.json"
_LENGTHS = ("splits", 0, "shardLengths")
_INSIDE = ("featuresDict", "features")


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        (INFO, _LENGTHS, ["3"], "tfrecord-00000-of-00001 has 3 records by it, but 2"),
        (INFO, _LENGTHS, ["1"], "tfrecord-00000-of-00001 has 1 records by it, but 2"),
        (INFO, _LENGTHS, ["1", "1"], "it does not name d-train.tfrecord-00000-of-00001"),
        (INFO, ("name",), "other", "it does not name d-train.tfrecord-00000-of-00001"),
        (INFO, ("version",), None, "it is no JSON with a name, a version"),
        (INFO, (), "{", "it is no JSON with a name, a version"),
        (INFO, (), None, "there is no dataset_info.json beside it"),
        (FEATURES, (), "{", "it is not what TFDS writes"),
        (FEATURES, (), None, "there is no features.json beside it"),
        (FEATURES, (*_INSIDE, "more"), {"tensor": {"dtype": "int64"}}, "have no more"),
        (FEATURES, (*_INSIDE, "image/id"), None, ""),
        (INFO, ("splits", 0, "numBytes"), "7", ""),
    ],
)
def test_metadata_that_do_not_fit(
    run: Run, tmp_path: Path, file: str, keys: tuple[Any, ...], value: Any, message: str
) -> None:
    """What ``tfds`` stops at is an error for it, in a folder and in a zip."""
    box = objects([[0, 0, 1, 1]], ["cat"], [1])
    png = encode_mask_png(np.zeros((HEIGHT, WIDTH), bool))
    images = (
        {**image(f"{n}.png", HEIGHT, WIDTH), "image/encoded": png + n.encode(), **box} for n in "12"
    )
    write_shard(tmp_path / "s", "train", *map(encode, images))
    assert run("convert", tmp_path / "s", tmp_path / "d", "--to", "tfds").code == 0
    if value and isinstance(value, dict):  # the same kind as another one, in full
        features = json.loads((tmp_path / "d" / FEATURES).read_text())
        value = features["featuresDict"]["features"]["image/id"]
    change(tmp_path / "d", file, keys, value)
    zipped = shutil.make_archive(str(tmp_path / "z"), "zip", tmp_path / "d")
    for one in (tmp_path / "d", zipped):
        done = run("check", one, "--for", "tfds", "--format", "json")
        found = json.loads(done.out)
        assert done.code == int(bool(message)), found["findings"]
        codes = {each["code"] for each in found["findings"]}
        assert codes == ({"SET008"} if message else set())
        assert not message or message in found["findings"][0]["message"]
    try:
        built(tmp_path / "d")
    except Exception:  # of any kind
        assert message
    else:
        assert not message

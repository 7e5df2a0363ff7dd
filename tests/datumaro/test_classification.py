"""``tf_image_classification``: images with one label, in both directions."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox, Label
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetExportError
from tfod.datumaro import compat
from tfod.sources.reading import read_examples

from tests.datumaro.conftest import (
    content,
    dataset_of,
    ids_of,
    imaged,
    import_dataset,
    labels_of,
    refusal,
)
from tests.files import files_in
from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode

FORMAT = "tf_image_classification"
load = partial(import_dataset, name=FORMAT)
PNG, JPEG, GRAY = saved("RGB", "PNG"), saved("RGB", "JPEG"), saved("L", "PNG")
item = partial(imaged, data=JPEG)


def labels_in(found: Any) -> dict[str, list[str]]:
    names = labels_of(found)
    return {one.id: [names[label.label] for label in one.annotations] for one in found}


class TestReading:
    def test_the_tutorials_keys(self, make_shard, tmp_path, warnings) -> None:
        head = {"height": HEIGHT, "width": WIDTH, "depth": 3}
        make_shard(
            "train", head | {"label": 0, "image_raw": PNG}, head | {"label": 1, "image_raw": JPEG}
        )
        found = load(tmp_path)
        assert labels_in(found) == {"record_000000": ["0"], "record_000001": ["1"]}
        assert [compat.read_image_bytes(one.media) for one in found] == [PNG, JPEG]
        assert ids_of(found) == {"0": 0, "1": 1} and not warnings()

    def test_names_of_classes(self, make_shard, tmp_path) -> None:
        make_shard("train", {"image": PNG, "label": 0}, {"image": PNG, "label": 2})
        (tmp_path / "label_map.pbtxt").write_text("item { id: 2 name: 'map' }")
        assert labels_in(load(tmp_path)) == {"record_000000": ["0"], "record_000001": ["map"]}
        (tmp_path / "labels.txt").write_text("0:null\n2:two")
        assert labels_of(load(tmp_path)) == ["null", "two"]
        (tmp_path / "mine.txt").write_text("a\nb\nc\n")
        found = load(tmp_path, label_map=str(tmp_path / "mine.txt"))
        assert labels_in(found) == {"record_000000": ["a"], "record_000001": ["c"]}

    def test_one_hot(self, make_shard, tmp_path) -> None:
        make_shard("train", {"image": PNG, "label": [0, 1, 0]}, {"image": PNG, "label": [1, 0, 0]})
        (tmp_path / "labels.txt").write_text("a\nb\nc\n")
        assert labels_in(load(tmp_path)) == {"record_000000": ["b"], "record_000001": ["a"]}

    @pytest.mark.parametrize("label", [[3, 5], [1, 0, 1], [0, 0], [0, 2]])
    def test_several_classes_are_refused(self, make_shard, tmp_path, label) -> None:
        make_shard("train", {"image": PNG, "label": 1}, {"image": PNG, "label": label})
        output = str(refusal(load, tmp_path))
        assert "train.tfrecord, record 1, byte " in output and ": label holds " in output
        assert "values, expected one, or a single 1 among zeros" in output

    def test_other_keys_beside_the_usual_ones(self, make_shard, tmp_path) -> None:
        """Those of the OD API are another format's, unless the user names this one."""
        make_shard("train", {"image": PNG, "label": 0, "image/source_id": "1"})
        assert Dataset.detect(str(tmp_path)) == "tf_detection_api"
        assert labels_in(load(tmp_path)) == {"record_000000": ["0"]}

    def test_raw_pixels(self, make_shard, tmp_path) -> None:
        pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        raw = {"width": 3, "height": 2, "channels": 3, "label": 1, "image": pixels.tobytes()}
        gray = raw | {"channels": 1, "image": pixels[:, :, 0].tobytes()}
        make_shard("train", raw, gray)
        first, second = load(tmp_path)
        assert first.media.data.tolist() == pixels[:, :, ::-1].tolist()  # BGR in Datumaro
        assert second.media.data.tolist() == pixels[:, :, 0].tolist()

    def test_pixels_of_no_size_are_told(self, make_shard, tmp_path, warnings) -> None:
        make_shard("train", {"img_raw": b"x" * 784, "label": 1})
        load(tmp_path)
        (output,) = warnings()
        assert output.startswith("records whose encoded image is neither a JPEG, PNG")

    def test_fiftyone_and_the_codelabs(self, make_shard, tmp_path) -> None:
        fiftyone = {"image_bytes": JPEG, "label": "кот", "filename": "a/b.jpg", "format": "jpg"}
        make_shard("one", fiftyone, folder=tmp_path / "one")
        flowers = {"image": JPEG, "class": 3, "label": "tulips", "one_hot_class": [0.0, 1.0]}
        make_shard("two", flowers, folder=tmp_path / "two")
        assert labels_in(load(tmp_path / "one")) == {"a/b": ["кот"]}
        found = load(tmp_path / "two")
        assert labels_in(found) == {"record_000000": ["tulips"]} and ids_of(found) == {"tulips": 3}

    def test_names_of_files_as_on_kaggle(self, make_shard, tmp_path, warnings) -> None:
        for subset in ("flowers00-1", "flowers01-2", "train/00-8x8-1"):
            folder = tmp_path / os.path.dirname(subset)
            path = make_shard("x", {"image": JPEG, "class": 1}, folder=folder)
            os.rename(path, tmp_path / f"{subset}.tfrec")
        found = load(tmp_path)
        assert {name: len(found.get_subset(name)) for name in found.subsets()} == {
            "flowers": 2,
            "train": 1,
        }
        (output,) = warnings()
        assert output.endswith("flowers01-2.tfrec has 1 records, but its name states 2")

    def test_no_label(self, make_shard, tmp_path) -> None:
        make_shard(
            "train", {"image": JPEG, "label": 3}, {"image": JPEG, "label": -1}, {"image": JPEG}
        )
        assert [len(one.annotations) for one in load(tmp_path)] == [1, 0, 0]

    @pytest.mark.parametrize(
        ("record", "output"),
        [
            ({"image": JPEG, "label": "x"}, "train.tfrecord, record 1, byte {at}: label is bytes_"),
            ({"image": JPEG, "label": [1, 2], "height": [1, 2]}, "record 1, byte {at}: height hol"),
        ],
    )
    def test_a_bad_record_names_file_record_and_byte(
        self, make_shard, tmp_path, record, output
    ) -> None:
        first = {"image": JPEG, "label": 1, "height": 1}
        make_shard("train", first, record)
        found = str(refusal(load, tmp_path))
        assert output.format(at=len(encode(first)) + 16) in found

    def test_other_shards_are_refused(self, make_shard, tmp_path) -> None:
        make_shard("train", {"x": 1, "y": 2})
        output = str(refusal(load, tmp_path))
        assert "is not a classification shard: record 0 contains x, y; expected" in output


class TestWriting:
    def test_the_records(self, tmp_path) -> None:
        source = dataset_of(item("a/b", Label(2), data=GRAY), item("c", Label(0)))
        source.export(str(tmp_path), FORMAT)
        assert sorted(os.listdir(tmp_path)) == ["default.tfrecord", "labels.txt"]
        assert (tmp_path / "labels.txt").read_text("utf-8") == "0:cat\n1:dog\n2:кошка\n"
        first, second = (bytes(one.record.payload) for one in read_examples(tmp_path))
        head = {"height": HEIGHT, "width": WIDTH}
        gray = {"depth": 1, "label": 2, "image_raw": GRAY, "filename": "a/b.png"}
        colour = {"depth": 3, "label": 0, "image_raw": JPEG, "filename": "c.jpg"}
        assert [first, second] == [encode(head | one) for one in (gray, colour)]

    @pytest.mark.parametrize("profile", ["image_classification", "image_label"])
    def test_round_trip(self, tmp_path, profile) -> None:
        source = dataset_of(
            item("a/b", Label(2), data=PNG, subset="train"),
            item("a b", Label(1), subset="train"),
            item("c", subset="val"),
        )
        source.export(str(tmp_path / "a"), FORMAT, profile=profile, num_shards=2)
        first = load(tmp_path / "a")
        assert labels_in(first) == {"a/b": ["кошка"], "a b": ["dog"], "c": []}
        first.export(str(tmp_path / "b"), FORMAT, profile=profile, num_shards=2)
        for name in os.listdir(tmp_path / "a"):
            assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
        assert content(load(tmp_path / "b")) == content(first)

    def test_ids_of_classification_stay_and_those_of_detection_do_not(
        self, make_shard, tmp_path
    ) -> None:
        """Detection counts classes from 1, since 0 is its background; a classifier from 0."""
        make_shard(
            "s", {"image": JPEG, "label": 5}, {"image": JPEG, "label": 7}, folder=tmp_path / "a"
        )
        found = load(tmp_path / "a")
        found.export(str(tmp_path / "b"), FORMAT)
        assert ids_of(load(tmp_path / "b")) == {"5": 5, "7": 7}
        found.export(str(tmp_path / "c"), "tf_detection_api", save_media=True)
        between = Dataset.import_from(str(tmp_path / "c"), "tf_detection_api")
        assert ids_of(between) == {"5": 1, "7": 2}
        between.export(str(tmp_path / "d"), FORMAT)
        assert (tmp_path / "d" / "labels.txt").read_text() == "0:5\n1:7\n"
        (tmp_path / "map.pbtxt").write_text("item { id: 9 name: '7' }")
        between.export(str(tmp_path / "e"), FORMAT, label_map=str(tmp_path / "map.pbtxt"))
        assert (tmp_path / "e" / "labels.txt").read_text() == "9:7\n10:5\n"

    def test_what_is_lost_is_counted(self, tmp_path, warnings) -> None:
        source = dataset_of(
            item("a", Label(0), Label(1), Label(2), Bbox(0, 0, 1, 1, label=0)),
            item("b", Label(1, attributes={"score": 0.5}), attributes={"weather": "fog"}),
            item("c"),
        )
        source.export(str(tmp_path), FORMAT)
        (output,) = warnings()
        assert output == (
            "tf_image_classification: not written, because a record has only one label: "
            "2 further label, 1 bbox; attributes not written: 1 score, 1 weather (of the image); "
            "without a label, written as -1: 1"
        )
        assert labels_in(load(tmp_path)) == {"a": ["cat"], "b": ["dog"], "c": []}

    @pytest.mark.parametrize(
        ("options", "output"),
        [
            ({"profile": "nix"}, "profile: 'nix' is not one of image_classification, image_label"),
            ({"num_shards": 0}, "num_shards: 0 is not a whole number above 0"),
            ({"image_ext": ".xyz"}, "image_ext: '.xyz' is not one of"),
            ({"label_map": "nix.txt"}, r"nix.txt cannot be read: No such file"),
        ],
    )
    def test_options_that_make_no_sense(self, tmp_path, options, output) -> None:
        with pytest.raises(DatasetExportError, match=output):
            dataset_of(item("a", Label(0))).export(str(tmp_path), FORMAT, **options)

    def test_what_cannot_be_written_leaves_the_folder_as_it_was(self, tmp_path) -> None:
        dataset_of(item("a", Label(0))).export(str(tmp_path), FORMAT)
        before = files_in(tmp_path)
        for bad, said in (
            (dataset_of(item("c", Label(0), data=None)), "item 'c' has no image"),
            (
                dataset_of(item("b", Label(0)), item("c", Label(7))),
                "label 7 does not exist, there are 3",
            ),
            (dataset_of(item("b", Label(0)), names=["a\nb"]), "has a line break, which labels.txt"),
        ):
            assert said in str(refusal(bad.export, str(tmp_path), FORMAT))
            assert files_in(tmp_path) == before

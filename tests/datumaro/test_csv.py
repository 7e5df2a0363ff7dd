"""``tf_detection_csv``: the raccoon recipe's CSVs in Datumaro, on both of its lines."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datumaro.components.dataset import Dataset
from datumaro.components.environment import Environment
from tfod.convert.csv import (
    COLUMNS,
    CsvBox,
    CsvImage,
    read_detection_csv,
    write_detection_csv,
)
from tfod.datumaro import compat
from tfod.datumaro.images import file_size

from tests.datumaro.conftest import boxes, content, ids_of, import_dataset, jpeg, labels_of
from tests.datumaro.test_commands import run_datum
from tests.datumaro.test_import import Tolerant
from tests.files import write_file

EXAMPLES = Path(__file__).parents[2] / "examples"
HEADER = ",".join(COLUMNS)
IMAGE = jpeg(20, 30)
FORMAT = "tf_detection_csv"
load = partial(import_dataset, name=FORMAT)


def row(name: str, class_name: str = "cat", width: int = 30, height: int = 20) -> str:
    return f"{name},{width},{height},{class_name},1,2,13,14"


def write_csv(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


class TestImport:
    def test_a_folder_of_splits(self, tmp_path: Path) -> None:
        write_csv(
            tmp_path / "train_labels.csv", row("a.jpg"), row("b.jpg", "dog"), row("a.jpg", "dog")
        )
        write_csv(tmp_path / "test_labels.csv", row("a.jpg", "dog"))
        dataset = load(tmp_path)
        assert sorted(dataset.subsets()) == ["test", "train"]
        assert sorted((item.id, item.subset) for item in dataset) == [
            ("a", "test"),
            ("a", "train"),
            ("b", "train"),
        ]
        assert boxes(dataset, "b") == [("dog", 1, 2, 13, 14)]
        train = dataset.get("a", "train")
        assert [labels_of(dataset)[one.label] for one in train.annotations] == ["cat", "dog"]
        assert tuple(train.media.size) == (20, 30) and not train.media.has_data

    def test_ids_are_in_order_of_names_over_all_files(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "test_labels.csv", row("a.jpg", "zebra"), row("b.jpg", "bee"))
        write_csv(tmp_path / "train_labels.csv", row("b.jpg", "ant"))
        assert ids_of(load(tmp_path)) == {"ant": 1, "bee": 2, "zebra": 3}

    def test_ids_of_the_label_map_beside_it(self, tmp_path: Path, warnings) -> None:
        write_csv(tmp_path / "train_labels.csv", row("a.jpg", "cat"), row("b.jpg", "emu"))
        (tmp_path / "label_map.pbtxt").write_text(
            "item { id: 3 name: 'dog' }\nitem { id: 7 name: 'cat' }"
        )
        assert ids_of(load(tmp_path)) == {"dog": 3, "cat": 7, "emu": 8}
        assert warnings() == [f"{FORMAT}: classes that the label map lacks, added: 'emu'"]

    @pytest.mark.parametrize(
        ("files", "output"),
        [
            ({"net.pbtxt": "node { name: 'x' }"}, "not used: "),
            ({"a_label_map.pbtxt": "", "b_label_map.pbtxt": ""}, "several label maps, none is"),
        ],
    )
    def test_protobuf_texts_that_are_no_help(
        self, tmp_path: Path, warnings, files: dict[str, str], output: str
    ) -> None:
        write_csv(tmp_path / "train_labels.csv", row("a.jpg"))
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        assert ids_of(load(tmp_path)) == {"cat": 1}
        assert len(warnings()) == 1 and output in warnings()[0]

    def test_a_label_map_that_is_none(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "train_labels.csv", row("a.jpg"))
        (tmp_path / "label_map.pbtxt").write_text("<html>")
        with pytest.raises(Exception) as raised:
            load(tmp_path)
        assert "label_map.pbtxt is not a label map but an HTML page" in _chain(raised.value)

    def test_a_label_map_by_name(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "train_labels.csv", row("a.jpg", "cat"))
        assert ids_of(load(tmp_path, label_map="coco"))["cat"] == 17

    @pytest.mark.parametrize(
        "where", ["", "images", "images/train", "train", "../images", "../images/train", "../train"]
    )
    def test_where_images_are_found(self, tmp_path: Path, where: str) -> None:
        data = tmp_path / "data"
        write_csv(data / "train_labels.csv", row("a.jpg"))
        write_file(data / where / "a.jpg", IMAGE)
        (item,) = load(data)
        assert compat.image_bytes(item.media) == IMAGE

    def test_images_of_a_subset_that_is_called_otherwise(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "train_labels.csv", row("a.jpg"))
        write_file(tmp_path / "images" / "train" / "a.jpg", IMAGE)
        (item,) = load(path, subset="mine")
        assert item.subset == "mine" and item.media.has_data

    def test_another_folder_of_images(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "data" / "train_labels.csv", row("a.jpg"), row("b.jpg"))
        write_file(tmp_path / "data" / "a.jpg", jpeg(1, 1))
        write_file(tmp_path / "far" / "a.jpg", IMAGE)
        write_file(tmp_path / "far" / "train" / "b.jpg", IMAGE)
        found = content(load(path, images=str(tmp_path / "far")))
        assert [one["image"] for one in found.values()] == [IMAGE, IMAGE]

    def test_a_folder_of_images_that_is_not_there(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "train_labels.csv", row("a.jpg"))
        with pytest.raises(Exception) as raised:
            load(path, images=str(tmp_path / "far"))
        assert "far is not a folder" in str(raised.value.__cause__)

    def test_the_real_image_decides_its_size(self, tmp_path: Path, warnings) -> None:
        path = write_csv(
            tmp_path / "train_labels.csv", row("a.jpg"), row("b.jpg", width=20, height=30)
        )
        write_file(tmp_path / "a.jpg", IMAGE)
        write_file(tmp_path / "b.jpg", IMAGE)
        assert [one["size"] for one in content(load(path)).values()] == [(20, 30)] * 2
        assert warnings() == [
            f"{FORMAT}: images of another size than the CSV says, which were followed: "
            "1 (b.jpg is 30 x 20, not 20 x 30)"
        ]

    def test_a_image_whose_header_is_long(self, tmp_path: Path) -> None:
        """An editor's notes come first, and are longer than what is read at first."""
        note = b"\xff\xe2" + (65_000).to_bytes(2, "big") + bytes(64_998)
        path = write_csv(tmp_path / "train_labels.csv", "a.jpg,,,cat,1,2,3,4")
        write_file(tmp_path / "a.jpg", IMAGE[:2] + note + IMAGE[2:])
        assert file_size(str(tmp_path / "a.jpg")) == (20, 30)
        (item,) = load(path)
        assert tuple(item.media.size) == (20, 30)

    def test_bad_rows_go_to_the_error_policy(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "x.csv", row("a.jpg"), "b.jpg,30,20,cat,9,2,3,4", row("c.jpg"))
        with pytest.raises(Exception) as raised:
            load(path)
        output = f"{path}, row 3: xmin 9 is greater than xmax 3"
        assert output in f"{raised.value} {raised.value.__cause__}"
        policy = Tolerant()
        dataset = load(path, error_policy=policy)
        assert [item.id for item in dataset] == ["a", "c"]
        assert [(where, str(error)) for where, error in policy.errors] == [(("row 3", "x"), output)]

    def test_names_that_lead_elsewhere(self, tmp_path: Path) -> None:
        path = write_csv(
            tmp_path / "x.csv", row("C:\\data\\a.jpg"), row("../../b.jpg"), row("/c.jpg")
        )
        found = {item.id: item.attributes for item in load(path)}
        assert found == {
            "a": {"filename": "C:\\data\\a.jpg"},
            "b": {"filename": "../../b.jpg"},
            "c": {"filename": "/c.jpg"},
        }

    def test_other_columns_are_told(self, tmp_path: Path, warnings) -> None:
        path = tmp_path / "x.csv"
        path.write_text(f"{HEADER},difficult\n{row('a.jpg')},1\n")
        load(path)
        assert warnings() == [f"{FORMAT}: columns that are not read: difficult"]

    @pytest.mark.parametrize(
        ("name", "subset"),
        [
            ("train_labels.csv", "train"),
            ("train.csv", "train"),
            ("raccoon_labels.csv", "raccoon"),
            ("a%2Fb_labels.csv", "a/b"),
            ("labels.csv", "default"),
            ("valid/_annotations.csv", "valid"),
            ("data/labels.csv", "default"),
        ],
    )
    def test_subsets(self, tmp_path: Path, name: str, subset: str) -> None:
        write_csv(tmp_path / name, row("a.jpg"))
        assert [item.subset for item in load(tmp_path)] == [subset]
        assert [item.subset for item in load(tmp_path / name, subset="mine")] == ["mine"]

    def test_no_csv(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("ImageID,Source\n1,2\n")
        with pytest.raises(Exception) as raised:
            load(tmp_path)
        assert f"no CSV with the header {HEADER} in this folder" in _chain(raised.value)


def _chain(error: BaseException | None) -> str:
    output = []
    while error is not None:
        output.append(str(error))
        error = error.__cause__ or error.__context__
    return " | ".join(output)


class TestDetection:
    def detected(self, path: Path) -> list[str]:
        return list(Environment().detect_dataset(str(path)))

    def test_by_its_header(self, tmp_path: Path) -> None:
        assert self.detected(EXAMPLES / "shapes_csv") == [FORMAT]
        write_csv(tmp_path / "data" / "train_labels.csv", row("a.jpg"))
        assert self.detected(tmp_path) == [FORMAT]

    def test_other_csvs_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("ImageID,Source,LabelName,Confidence\n1,2,3,4\n")
        assert FORMAT not in self.detected(tmp_path)

    def test_shards_made_from_it_win(self, corpus: Path) -> None:
        assert self.detected(corpus / "hyphal-tips") == ["tf_detection_api"]


def annotated(*items: tuple[str, str, list[Any]], labels: tuple[str, ...] = ("cat", "dog")) -> Any:
    made = [
        compat.DatasetItem(
            id=name,
            subset=subset,
            media=compat.image_from_bytes(lambda *_: IMAGE, f"{name}.jpg", (20, 30)),
            annotations=annotations,
        )
        for name, subset, annotations in items
    ]
    return Dataset.from_iterable(made, categories=list(labels))


def box(label: int | None = 0, **attributes: Any) -> Any:
    return compat.annotation.Bbox(1, 2, 12.5, 12, label=label, attributes=attributes)


class TestExport:
    def test_files(self, tmp_path: Path) -> None:
        dataset = annotated(("a", "train", [box(1)]), ("p/b", "val", [box()]), ("c", "", [box()]))
        dataset.export(str(tmp_path), FORMAT, save_media=True)
        found = sorted(
            os.path.relpath(os.path.join(folder, name), tmp_path)
            for folder, _, names in os.walk(tmp_path)
            for name in names
        )
        assert found == [
            "default_labels.csv",
            "images/default/c.jpg",
            "images/train/a.jpg",
            "images/val/p/b.jpg",
            "label_map.pbtxt",
            "train_labels.csv",
            "val_labels.csv",
        ]
        assert (tmp_path / "val_labels.csv").read_bytes() == (
            f"{HEADER}\r\np/b.jpg,30,20,cat,1,2,13.5,14\r\n".encode()
        )
        assert (tmp_path / "images" / "train" / "a.jpg").read_bytes() == IMAGE
        assert ids_of(load(tmp_path)) == {"cat": 1, "dog": 2}

    def test_without_images(self, tmp_path: Path) -> None:
        annotated(("a", "train", [box()])).export(str(tmp_path), FORMAT)
        assert sorted(os.listdir(tmp_path)) == ["label_map.pbtxt", "train_labels.csv"]

    def test_what_is_lost_is_said_once(self, tmp_path: Path, warnings) -> None:
        annotation = compat.annotation
        dataset = annotated(
            (
                "a",
                "train",
                [
                    box(difficult=True, view=None),
                    box(None),
                    annotation.Polygon([1, 1, 9, 1, 9, 9], label=1),
                    annotation.Label(1),
                    annotation.PolyLine([1, 1, 5, 5], label=0),
                    annotation.Bbox(20, 0, 20, 5, label=0),
                ],
            ),
            ("n", "train", []),
        )
        dataset.export(str(tmp_path), FORMAT)
        assert warnings() == [
            f"{FORMAT}: not written, the format has no place for them: 1 polyline; written as "
            "their enclosing box: 1 polygon; boxes that reach outside the image, written so: 1; "
            "not written, the CSV has no column for them: 1 difficult, 1 classes of an image, "
            "1 boxes without a class, 1 images without boxes"
        ]
        (found,) = read_detection_csv(tmp_path / "train_labels.csv").images
        assert [one.class_name for one in found.boxes] == ["cat", "dog", "cat"]

    def test_masks_and_keypoints_are_lost_too(self, tmp_path: Path, warnings) -> None:
        annotation = compat.annotation
        mask = annotation.Mask(_ones(), label=0, group=1)
        whole = annotation.Bbox(0, 0, 30, 20, label=0, group=1)
        annotated(("a", "train", [whole, mask])).export(str(tmp_path), FORMAT)
        assert warnings() == [f"{FORMAT}: outlines of boxes not written: 1 mask"]

    def test_numbers_have_the_digits_of_a_float32(self, tmp_path: Path) -> None:
        turned = compat.annotation.Bbox(1, 2, 5, 6, label=0, attributes={"rotation": 30.0})
        annotated(("a", "train", [turned])).export(str(tmp_path), FORMAT)
        text = (tmp_path / "train_labels.csv").read_text()
        assert text.splitlines()[1] == "a.jpg,30,20,cat,-0.16506352,1.1519238,7.1650634,8.848076"

    def test_two_images_of_one_name_stay_apart(self, tmp_path: Path) -> None:
        items = [
            compat.DatasetItem(
                id=name,
                subset="train",
                media=compat.image_from_bytes(lambda *_: IMAGE, "a.jpg", (20, 30)),
                annotations=[box()],
                attributes={"filename": filename},
            )
            for name, filename in (("a", "a.jpg"), ("a~2~2", "a~2.jpg"), ("a~2", "a.jpg"))
        ]
        dataset = Dataset.from_iterable(items, categories=["cat"])
        dataset.export(str(tmp_path), FORMAT, save_media=True)
        found = read_detection_csv(tmp_path / "train_labels.csv").images
        names = ["a.jpg", "a~2.jpg", "a~2~2.jpg"]
        assert [one.filename for one in found] == names
        assert sorted(os.listdir(tmp_path / "images" / "train")) == names

    def test_a_image_without_a_size(self, tmp_path: Path) -> None:
        item = compat.DatasetItem(id="a", subset="train", annotations=[box()])
        dataset = Dataset.from_iterable([item], categories=["cat"])
        with pytest.raises(Exception) as raised:
            dataset.export(str(tmp_path / "out"), FORMAT)
        assert "item 'a' has no image size" in _chain(raised.value)
        assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")

    @pytest.mark.parametrize("subset", ["train/night", "ночь", "50%"])
    def test_subsets_of_any_name(self, tmp_path: Path, subset: str) -> None:
        annotated(("a", subset, [box()])).export(str(tmp_path), FORMAT, save_media=True)
        (item,) = load(tmp_path)
        assert item.subset == subset and compat.image_bytes(item.media) == IMAGE


class TestRoundTrip:
    def test_shapes(self, tmp_path: Path) -> None:
        """CSV to dataset to CSV: every byte of labels, label map and images."""
        load(EXAMPLES / "shapes_csv").export(str(tmp_path), FORMAT, save_media=True)
        written, expected = (
            {path.relative_to(root): path.read_bytes() for path in root.rglob("*.*")}
            for root in (tmp_path, EXAMPLES / "shapes_csv")
        )
        assert written == expected and len(expected) == 14

    def test_shapes_are_those_of_the_voc_example(self, tmp_path: Path) -> None:
        dataset = Dataset.import_from(str(EXAMPLES / "shapes_voc"), "voc")
        dataset.export(str(tmp_path), FORMAT)
        for name in ("train_labels.csv", "val_labels.csv", "label_map.pbtxt"):
            assert (tmp_path / name).read_text() == (EXAMPLES / "shapes_csv" / name).read_text()

    def test_the_corpus(self, tmp_path: Path, corpus: Path) -> None:
        source = corpus / "hyphal-tips"
        load(source).export(str(tmp_path), FORMAT)
        for name in ("train_labels.csv", "test_labels.csv"):
            assert (
                read_detection_csv(tmp_path / name).images
                == read_detection_csv(source / name).images
            )

    def test_through_shards(self, tmp_path: Path) -> None:
        """Integers stay integers, also through float32."""
        corners = [(0.0, 0.0, 1.0, 1.0), (81.0, 88.0, 522.0, 408.0), (639.0, 1.0, 640.0, 480.0)]
        written = tuple(
            CsvImage(f"{n}.jpg", 640, 480, (CsvBox("cat", one),)) for n, one in enumerate(corners)
        )
        write_detection_csv(tmp_path / "csv" / "train_labels.csv", written)
        load(tmp_path / "csv").export(str(tmp_path / "shards"), "tf_detection_api")
        back = Dataset.import_from(str(tmp_path / "shards"), "tf_detection_api")
        back.export(str(tmp_path / "back"), FORMAT)
        assert read_detection_csv(tmp_path / "back" / "train_labels.csv").images == written

    def test_saving_in_place(self, tmp_path: Path) -> None:
        shutil.copytree(EXAMPLES / "shapes_csv", tmp_path / "data")
        (tmp_path / "data" / "notes.csv").write_text("mine\n")
        dataset = load(tmp_path / "data")
        before = content(dataset)
        dataset.remove("shapes_01", "train")
        for item in list(dataset.get_subset("val")):
            dataset.remove(item.id, "val")
        dataset.save()
        after = content(load(tmp_path / "data"))
        assert after == {
            key: one
            for key, one in before.items()
            if key[1] == "train" and key != ("shapes_01", "train")
        }
        assert (tmp_path / "data" / "notes.csv").read_text() == "mine\n"

    def test_saving_again_what_was_exported(self, tmp_path: Path) -> None:
        """The CSV of a subset that is gone goes; one that was never ours stays."""
        dataset = annotated(("a", "train", [box()]), ("b", "val", [box()]))
        dataset.export(str(tmp_path), FORMAT)
        write_csv(tmp_path / "other_labels.csv", row("c.jpg"))
        dataset.remove("b", "val")
        dataset.save(str(tmp_path))
        assert sorted(os.listdir(tmp_path)) == [
            "label_map.pbtxt",
            "other_labels.csv",
            "train_labels.csv",
        ]


def _ones() -> Any:
    import numpy as np

    return np.ones((20, 30), bool)


class TestCommands:
    def test_it_replaces_generate_tfrecord(self, tmp_path: Path) -> None:
        run_datum(
            *("datum", "convert", "-i", str(EXAMPLES / "shapes_csv"), "-if", FORMAT),
            *("-f", "tf_detection_api", "-o", "out", "--", "--save-media"),
            folder=tmp_path,
        )
        found = content(Dataset.import_from(str(tmp_path / "out"), "tf_detection_api"))
        assert len(found) == 11 and all(one["image"] for one in found.values())
        assert {one["label"] for item in found.values() for one in item["annotations"]} == {
            *("circle", "square", "triangle", "étoile")
        }

    def test_one_line_for_a_bad_row(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "train_labels.csv", row("a.jpg"), "b.jpg,30,20,cat,9,2,3,4")
        output = run_datum(
            *("datum", "convert", "-i", ".", "-if", FORMAT, "-f", FORMAT, "-o", "out"),
            folder=tmp_path,
            code=1,
        )
        errors = [one for one in output.splitlines() if "ERROR" in one]
        assert len(errors) == 1 and f"{path.name}, row 3: xmin 9 is greater" in errors[0]
        assert "Traceback" not in output

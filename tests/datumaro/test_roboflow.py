"""Roboflow's zips read as they come, and its layout written."""

from __future__ import annotations

import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfod
from datumaro.components.dataset import Dataset
from tfod.datumaro import compat
from tfod.example.example import Example
from tfod.tfrecord.reader import read_records

from tests.datumaro.conftest import content, ids_of, import_dataset, jpeg, labels_of, refusal
from tests.files import files_in
from tests.zip_forge import real_zip

load = partial(import_dataset, name="roboflow_tfrecord")

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGE = jpeg(20, 30)
ZIP = EXAMPLES / "shapes_roboflow.zip"
KEYS = [
    *("image/encoded", "image/filename", "image/format", "image/height"),
    *(f"image/object/bbox/{side}" for side in ("xmax", "xmin", "ymax", "ymin")),
    *("image/object/class/label", "image/object/class/text", "image/width"),
]


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


def export_roboflow(dataset: Any, folder: Path, **options: Any) -> Path:
    dataset.export(str(folder), "tf_detection_api", layout="roboflow", **options)
    return folder


def paths_in(folder: Path) -> list[str]:
    return sorted(files_in(folder))


class TestZip:
    @pytest.mark.parametrize("name", ["roboflow_tfrecord", "tf_detection_api"])
    def test_it_is_the_folder(self, tmp_path: Path, name: str) -> None:
        zipfile.ZipFile(ZIP).extractall(tmp_path)
        found = content(load(ZIP, name=name))
        assert found == content(load(tmp_path, name=name)) and len(found) == 12
        assert {subset for _, subset in found} == {"train", "valid"}
        assert labels_of(load(ZIP, name=name)) == ["circle", "square", "triangle", "étoile"]

    def test_saving_in_place_leaves_it_alone(self, tmp_path: Path) -> None:
        shutil.copy(ZIP, tmp_path / "export.zip")
        dataset = load(tmp_path / "export.zip", name="tf_detection_api")
        dataset.remove("shapes_01", "train")
        assert "File exists" in str(refusal(dataset.save))
        assert (tmp_path / "export.zip").read_bytes() == ZIP.read_bytes()

    def test_a_hostile_one_is_refused_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(real_zip([("../x.tfrecord", b"")]))
        said = "a.zip: entry ../x.tfrecord is not read: the path ../x.tfrecord contains '..'"
        assert said in str(refusal(load, tmp_path / "a.zip"))


class TestLayout:
    def test_files(self, tmp_path: Path) -> None:
        dataset = annotated(
            ("a", "train", [box(1)]), ("b", "val", [box()]), ("c", "test", []), ("d", "", [box()])
        )
        export_roboflow(dataset, tmp_path, save_media=True)
        assert paths_in(tmp_path) == [
            "README.roboflow.txt",
            *(
                f"{folder}/Objects{ending}"
                for folder in ("default", "test", "train", "valid")
                for ending in (".tfrecord", "_label_map.pbtxt")
            ),
        ]
        note = (tmp_path / "README.roboflow.txt").read_text()
        assert "not made by Roboflow" in note and tfod.__version__ in note
        found = content(load(tmp_path))
        assert sorted(found) == [("a", "train"), ("b", "valid"), ("c", "test"), ("d", "default")]

    def test_label_map_syntax(self, tmp_path: Path) -> None:
        dataset = annotated(("a", "train", [box()]), labels=("zebra", 'a "b"', "étoile"))
        export_roboflow(dataset, tmp_path, name="My pieces")
        text = (tmp_path / "train" / "My pieces_label_map.pbtxt").read_text(encoding="utf-8")
        assert text == (
            'item {\n    name: "a \\"b\\"",\n    id: 1,\n    display_name: "a \\"b\\""\n}\n'
            'item {\n    name: "zebra",\n    id: 2,\n    display_name: "zebra"\n}\n'
            'item {\n    name: "étoile",\n    id: 3,\n    display_name: "étoile"\n}\n'
        )
        assert ids_of(load(tmp_path)) == {'a "b"': 1, "zebra": 2, "étoile": 3}

    @pytest.mark.parametrize("annotations", [[box(1), box(0)], []])
    def test_exactly_eleven_keys(self, tmp_path: Path, annotations: list[Any]) -> None:
        export_roboflow(annotated(("a", "train", annotations)), tmp_path, save_media=True)
        path = str(tmp_path / "train" / "Objects.tfrecord")
        (example,) = (Example.of(record, path) for record in read_records(path))
        assert list(example) == KEYS
        counts = {key: example.value_count(key) for key in KEYS}
        per_box = {key for key in KEYS if key.startswith("image/object/")}
        assert {counts[key] for key in per_box} == {len(annotations)}
        assert {counts[key] for key in counts.keys() - per_box} == {1}
        assert example.byte_strings("image/encoded") == [IMAGE]
        assert example.byte_strings("image/format") == [b"jpeg"]
        assert example.byte_strings("image/filename") == [b"a.jpg"]
        assert example.ints("image/object/class/label") == [2, 1][: len(annotations)]

    def test_what_is_lost_is_counted(self, tmp_path: Path, warnings) -> None:
        annotation = compat.annotation
        shapes = [
            box(difficult=True),
            annotation.Label(1),
            annotation.Caption("a cat"),
            annotation.Bbox(0, 0, 30, 20, label=0, group=1),
            annotation.Mask(np.ones((20, 30), bool), label=0, group=1),
        ]
        dataset = annotated(("a", "train", shapes))
        for item in dataset:
            item.attributes.update({"weather": "rain", "id": 7})
        export_roboflow(dataset, tmp_path)
        assert warnings() == [
            "tf_detection_api: outlines of boxes not written: 1 mask; "
            "not written, because Roboflow's records cannot store them: "
            "1 difficult, 1 classes of an image, 1 captions, 1 weather (of the image), "
            "1 source_id (of the image)"
        ]

    @pytest.mark.parametrize(
        ("options", "cause"),
        [
            ({"save_masks": True}, "no masks"),
            ({"label_key": "text"}, "always text and id"),
            ({"layout": "flat", "name": "x"}, "only the roboflow layout"),
            ({"layout": "round"}, "is not one of flat, roboflow"),
        ],
    )
    def test_options_that_make_no_sense(self, tmp_path: Path, options: dict, cause: str) -> None:
        export = annotated(("a", "train", [])).export
        wrong = {"layout": "roboflow", **options}
        assert cause in str(refusal(export, str(tmp_path), "tf_detection_api", **wrong))

    def test_two_subsets_of_one_folder(self, tmp_path: Path) -> None:
        both = annotated(("a", "val", []), ("b", "valid", []))
        refused = refusal(export_roboflow, both, tmp_path / "out")
        assert "'val' and 'valid' would both be written to valid/" in str(refused)
        assert not (tmp_path / "out").exists()

    def test_a_name_that_no_file_can_have(self, tmp_path: Path) -> None:
        export_roboflow(annotated(("a", "train", [box()])), tmp_path, name="a/b-00001-of-00002")
        assert len(load(tmp_path)) == 1
        assert paths_in(tmp_path)[1].startswith("train/a%2Fb")


class TestRoundTrip:
    def test_shapes(self, tmp_path: Path) -> None:
        export_roboflow(load(ZIP), tmp_path, save_media=True)
        assert content(load(tmp_path)) == content(load(ZIP))
        with zipfile.ZipFile(ZIP) as archive:
            for name in archive.namelist():
                if name.endswith(".pbtxt"):
                    assert (tmp_path / name).read_bytes() == archive.read(name)

    def test_exporting_again_replaces_and_keeps_other_files(self, tmp_path: Path) -> None:
        dataset = annotated(("a", "train", [box()]), ("b", "train", [box()]))
        export_roboflow(dataset, tmp_path, num_shards=2)
        (tmp_path / "train" / "notes.txt").write_text("mine")
        (tmp_path / "train" / "other.tfrecord").write_bytes(b"mine")
        export_roboflow(dataset, tmp_path)
        assert paths_in(tmp_path) == [
            "README.roboflow.txt",
            "train/Objects.tfrecord",
            "train/Objects_label_map.pbtxt",
            "train/notes.txt",
            "train/other.tfrecord",
        ]

    def test_saving_in_place(self, tmp_path: Path) -> None:
        export_roboflow(load(ZIP), tmp_path, save_media=True)
        (tmp_path / "valid" / "notes.txt").write_text("mine")
        dataset = load(tmp_path, name="tf_detection_api")
        before = content(dataset)
        dataset.remove("shapes_01", "train")
        for item in list(dataset.get_subset("valid")):
            dataset.remove(item.id, "valid")
        dataset.save(layout="roboflow")
        after = content(load(tmp_path))
        assert after == {
            key: one for key, one in before.items() if key[1] == "train" and key[0] != "shapes_01"
        }
        assert (tmp_path / "valid" / "notes.txt").exists()
        assert not (tmp_path / "valid" / "Objects.tfrecord").exists()

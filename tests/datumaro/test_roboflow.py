"""Import of Roboflow's zips, and export in its layout."""

from __future__ import annotations

import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfod
from tfod.datumaro import compat
from tfod.sources.reading import read_examples

from tests.datumaro.conftest import (
    content,
    dataset_of,
    ids_of,
    import_dataset,
    item,
    jpeg,
    labels_of,
    refusal,
)
from tests.files import files_in
from tests.zip_forge import real_zip

load = partial(import_dataset, name="roboflow_tfrecord")

IMAGE = jpeg(20, 30)
ZIP = Path(__file__).parents[2] / "examples" / "shapes_roboflow.zip"
KEYS = [
    *("image/encoded", "image/filename", "image/format", "image/height"),
    *(f"image/object/bbox/{side}" for side in ("xmax", "xmin", "ymax", "ymin")),
    *("image/object/class/label", "image/object/class/text", "image/width"),
]


def annotated(*items: tuple[str, str, list[Any]], labels: tuple[str, ...] = ("cat", "dog")) -> Any:
    """A dataset of items with a name, a subset and annotations."""
    made = (item(name, *shapes, data=IMAGE, subset=subset) for name, subset, shapes in items)
    return dataset_of(*made, names=labels)


def box(label: int | None = 0, **attributes: Any) -> Any:
    return compat.annotation.Bbox(1, 2, 12.5, 12, label=label, attributes=attributes)


def export_roboflow(dataset: Any, folder: Path, **options: Any) -> Path:
    dataset.export(str(folder), "tf_detection_api", layout="roboflow", **options)
    return folder


def paths_in(folder: Path) -> list[str]:
    return sorted(files_in(folder))


class TestZip:
    @pytest.mark.parametrize("name", ["roboflow_tfrecord", "tf_detection_api"])
    def test_it_equals_the_folder(self, tmp_path: Path, name: str) -> None:
        zipfile.ZipFile(ZIP).extractall(tmp_path)
        found = content(load(ZIP, name=name))
        assert found == content(load(tmp_path, name=name)) and len(found) == 12
        assert {subset for _, subset in found} == {"train", "valid"}
        assert labels_of(load(ZIP, name=name)) == ["circle", "square", "triangle", "étoile"]

    def test_saving_in_place_does_not_change_the_zip(self, tmp_path: Path) -> None:
        shutil.copy(ZIP, tmp_path / "export.zip")
        dataset = load(tmp_path / "export.zip", name="tf_detection_api")
        dataset.remove("shapes_01", "train")
        assert "File exists" in str(refusal(dataset.save))
        assert (tmp_path / "export.zip").read_bytes() == ZIP.read_bytes()

    def test_a_hostile_zip_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(real_zip([("../x.tfrecord", b"")]))
        message = str(refusal(load, tmp_path / "a.zip"))
        assert "a.zip: entry ../x.tfrecord is not read" in message and "'..'" in message


class TestLayout:
    def test_files(self, tmp_path: Path) -> None:
        boxes = {("a", "train"): [box(1)], ("b", "val"): [box()], ("c", "test"): [], ("d", ""): []}
        dataset = annotated(*((*key, shapes) for key, shapes in boxes.items()))
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
        assert text == "".join(
            f'item {{\n    name: "{name}",\n    id: {number},\n    display_name: "{name}"\n}}\n'
            for number, name in enumerate(('a \\"b\\"', "zebra", "étoile"), 1)
        )
        assert ids_of(load(tmp_path)) == {'a "b"': 1, "zebra": 2, "étoile": 3}

    @pytest.mark.parametrize("annotations", [[box(1), box(0)], []])
    def test_exactly_eleven_keys(self, tmp_path: Path, annotations: list[Any]) -> None:
        export_roboflow(annotated(("a", "train", annotations)), tmp_path, save_media=True)
        (example,) = read_examples(tmp_path)
        assert list(example) == KEYS
        for key in KEYS:
            count = len(annotations) if key.startswith("image/object/") else 1
            assert example.value_count(key) == count
        assert example.byte_strings("image/encoded") == [IMAGE]
        assert example.byte_strings("image/format") == [b"jpeg"]
        assert example.byte_strings("image/filename") == [b"a.jpg"]
        assert example.ints("image/object/class/label") == [2, 1][: len(annotations)]

    def test_losses_are_counted(self, tmp_path: Path, warnings) -> None:
        annotation = compat.annotation
        shapes = [
            box(difficult=True),
            annotation.Label(1),
            annotation.Caption("a cat"),
            annotation.Bbox(0, 0, 30, 20, label=0, group=1),
            annotation.Mask(np.ones((20, 30), bool), label=0, group=1),
        ]
        attributes = {"weather": "rain", "id": 7}
        export_roboflow(dataset_of(item("a", *shapes, data=IMAGE, attributes=attributes)), tmp_path)
        (output,) = warnings()
        outlines, others = output.split("; ")
        assert outlines == "tf_detection_api: outlines of boxes not written: 1 mask"
        assert others.partition(": ")[2] == (
            "1 difficult, 1 classes of an image, 1 captions, 1 weather (of the image), "
            "1 source_id (of the image)"
        )

    def test_names_of_folders_and_files(self, tmp_path: Path) -> None:
        both = annotated(("a", "val", []), ("b", "valid", []))
        refused = refusal(export_roboflow, both, tmp_path / "out")
        assert "'val' and 'valid' would both be written to valid/" in str(refused)
        assert not (tmp_path / "out").exists()
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

    def test_exporting_again_keeps_other_files(self, tmp_path: Path) -> None:
        dataset = annotated(("a", "train", [box()]), ("b", "train", [box()]))
        export_roboflow(dataset, tmp_path, num_shards=2)
        (tmp_path / "train" / "notes.txt").write_text("mine")
        (tmp_path / "train" / "other.tfrecord").write_bytes(b"mine")
        export_roboflow(dataset, tmp_path)
        names = "Objects.tfrecord", "Objects_label_map.pbtxt", "notes.txt", "other.tfrecord"
        assert paths_in(tmp_path) == ["README.roboflow.txt", *(f"train/{name}" for name in names)]

    def test_saving_in_place(self, tmp_path: Path) -> None:
        export_roboflow(load(ZIP), tmp_path, save_media=True)
        (tmp_path / "valid" / "notes.txt").write_text("mine")
        dataset = load(tmp_path, name="tf_detection_api")
        before = content(dataset)
        dataset.remove("shapes_01", "train")
        for one in list(dataset.get_subset("valid")):
            dataset.remove(one.id, "valid")
        dataset.save(layout="roboflow")
        kept = {key for key in before if key[1] == "train" and key[0] != "shapes_01"}
        assert content(load(tmp_path)) == {key: before[key] for key in kept}
        assert (tmp_path / "valid" / "notes.txt").exists()
        assert not (tmp_path / "valid" / "Objects.tfrecord").exists()

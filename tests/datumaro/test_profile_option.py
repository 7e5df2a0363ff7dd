"""``tf_detection_api`` with ``--profile``: shards with other keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datumaro.components.dataset import Dataset
from tfod.datumaro import compat

from tests.datumaro.conftest import Datum, boxes, content, is_old_line, labels_of, refusal
from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import image, objects

pytest.importorskip("yaml")
pytest.importorskip("jsonschema")

PROFILE = """
features:
  photo: {kind: FixedLenFeature, dtype: string}
  left: {kind: VarLenFeature, dtype: float32}
  top: {kind: VarLenFeature, dtype: float32}
  right: {kind: VarLenFeature, dtype: float32}
  bottom: {kind: VarLenFeature, dtype: float32}
  what: {kind: VarLenFeature, dtype: string}
  scene: {kind: FixedLenFeature, dtype: int64}
field_mapping:
  encoded: photo
  box: [left, top, right, bottom]
  class_text: what
  image_class_label: scene
"""
PNG = saved("RGB", "PNG")


def own(**changes: Any) -> dict[str, Any]:
    sides = {"left": [0.0, 0.5], "top": [0.0, 0.5], "right": [0.5, 1.0], "bottom": [0.5, 1.0]}
    return {"photo": PNG, **sides, "what": ["cat", "кот"], "scene": 4, **changes}


@pytest.fixture
def profile(tmp_path: Path) -> str:
    (tmp_path / "mine.yaml").write_text(PROFILE)
    return str(tmp_path / "mine.yaml")


def test_other_keys(make_shard, load, profile) -> None:
    make_shard("train", own())
    found = load(profile=profile)
    assert boxes(found) == [
        ("cat", 0.0, 0.0, WIDTH / 2, HEIGHT / 2),
        ("кот", WIDTH / 2, HEIGHT / 2, WIDTH, HEIGHT),
    ]
    (one,) = found
    assert [labels_of(found)[x.label] for x in one.annotations if x.type.name == "label"] == ["4"]
    assert compat.read_image_bytes(one.media) == PNG and one.attributes == {}


def test_a_profile_of_tfod(make_shard, tmp_path, load) -> None:
    record = {"image": PNG, "path": "a.png", "area": 1.0, "bbox": [0.0, 0.0, 2.0, 2.0]}
    number = {"category_id": 3, "id": 1, "image_id": 2}
    make_shard("train", record | number, record | number | {"id": 5})
    found = load(profile="keras_coco", label_map="coco")
    assert [[one.id for one in item.annotations] for item in found] == [[1, 5]]
    assert "car" in labels_of(found)


def test_the_usual_keys_by_a_profile(make_shard, load) -> None:
    make_shard("train", image() | objects([(0, 0, 0.5, 0.5)], text=["cat"], label=[1]))
    assert content(load(profile="tf_detection_api")) == content(load())


def test_errors(make_shard, load, tmp_path, profile) -> None:
    (tmp_path / "bad.yaml").write_text("x: 1")
    make_shard("train", own(), own(what=["cat"]))
    make_shard("train", {"x": 1}, folder=tmp_path / "x")
    for path, name, message in (
        (tmp_path, "nix", "nix: there is no such profile; pass cvat, tf_detection_api"),
        (tmp_path, "nix.yaml", "nix.yaml: No such file or directory"),
        (tmp_path, str(tmp_path / "bad.yaml"), "bad.yaml: 'features' is a required property"),
        (tmp_path / "x", profile, "its first record has the keys x, but none of bottom,"),
        (tmp_path / "train.tfrecord", profile, ": what holds 1 values for 2 boxes"),
    ):
        assert message in str(refusal(load, path, profile=name))


def test_on_the_command_line(make_shard, tmp_path, profile, datum: Datum) -> None:
    make_shard("train", own(), folder=tmp_path / "shards")
    if is_old_line():
        datum("create -o project")
        datum("import -p project -f tf_detection_api shards -- --profile mine.yaml")
        datum("export -p project -f voc -o out")
    else:
        command = "export -f voc -p shards -if tf_detection_api --input-args"
        datum(command, "--profile mine.yaml", "-o", "out")
        for wrong, said in (("--profile 'x", "ends too early"), ("--profile x", "no such profile")):
            assert said in datum(command, wrong, "-o", "no", code=1)
        output = datum("export -f voc -p shards -if nix -o no", code=1)
        assert "Importer for format 'nix' is not found" in output
    (found,) = Dataset.import_from(str(tmp_path / "out"), "voc")
    assert len([one for one in found.annotations if one.type.name == "bbox"]) == 2

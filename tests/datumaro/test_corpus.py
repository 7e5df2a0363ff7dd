"""Real shards through Datumaro: the figures are right, and a round trip changes nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError

from tests.conftest import CORPUS
from tests.datumaro.conftest import content, ids_of, import_dataset, labels_of

FOLDERS = sorted(path.name for path in CORPUS.glob("*") if path.is_dir())
OTHER = ("titanic-table", "viewer-sample")
DETECTION = [name for name in FOLDERS if name not in OTHER]


@pytest.mark.parametrize("name", DETECTION)
def test_figures(figures: dict[str, Any], name: str) -> None:
    expected = {key: one for key, one in figures.items() if key.startswith(f"{name}/")}
    dataset = import_dataset(CORPUS / name)
    shapes = [one for item in dataset for one in item.annotations]
    names = labels_of(dataset)
    assert len(dataset) == sum(one["records"] for one in expected.values())
    assert len(shapes) == sum(one["boxes"] for one in expected.values())
    texts: Counter[str] = Counter()
    for one in expected.values():
        texts.update(one["class_text"])
    found = Counter("" if one.label is None else names[one.label] for one in shapes)
    assert found == texts
    images = [one["image"] for one in content(dataset).values() if one["image"]]
    assert sum(map(len, images)) == sum(one["encoded_bytes"] for one in expected.values())


@pytest.mark.parametrize("name", DETECTION)
def test_round_trip_is_the_identity(tmp_path: Path, name: str) -> None:
    first = import_dataset(CORPUS / name)
    first.export(str(tmp_path / "1"), "tf_detection_api", save_media=True)
    second = import_dataset(tmp_path / "1")
    assert content(second) == content(first)
    assert (labels_of(second), ids_of(second)) == (labels_of(first), ids_of(first))
    second.export(str(tmp_path / "2"), "tf_detection_api", save_media=True)
    for path in (tmp_path / "1").iterdir():
        assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", OTHER)
def test_other_kinds_are_called_so(name: str) -> None:
    with pytest.raises(DatasetImportError) as caught:
        import_dataset(CORPUS / name)
    reason = str(caught.value.__cause__)
    assert "is not an object detection shard" in reason and "tfod describe" in reason


@pytest.mark.parametrize("name", DETECTION)
def test_format_is_detected(name: str) -> None:
    detected = Dataset.detect(str(CORPUS / name))
    assert detected == ("roboflow_tfrecord" if name == "datumaro-roboflow" else "tf_detection_api")

"""A label map one folder up is used only if it has the classes of the shard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest
from tfod.detection.labels.label_map import LabelMap
from tfod.sources.reading import find_label_map, find_readable

from tests.conftest import Run
from tests.records import encode, frame, image, objects

BOX = [0.1, 0.1, 0.5, 0.5]
MAP = LabelMap.from_names(["cat", "dog"]).to_text()
TAKEN = {
    "one text of several": (["horse", "dog"], [7, 8], True),
    "the text, whatever the id": (["cat"], [2], True),
    "no text of the map": (["horse"], [1], False),
    "all ids, without texts": (None, [1, 2], True),
    "an id too many, without texts": (None, [1, 3], False),
    "ids from 0, without texts": (None, [0, 1], False),
    "no objects": ([], [], True),
}  # fmt: skip


def write(folder: Path, texts: Sequence[str] | None, ids: Sequence[int]) -> Path:
    """A shard in a folder below a label map; its first record has no object."""
    (folder / "label_map.pbtxt").write_text(MAP)
    (folder / "day").mkdir()
    features = image("b.jpg") | (objects([BOX] * len(ids), texts, ids) if ids else {})
    shard = folder / "day" / "a.tfrecord"
    shard.write_bytes(frame(encode(image("a.jpg")), encode(features)))
    return shard


@pytest.mark.parametrize("case", TAKEN)
@pytest.mark.parametrize("is_zipped", [False, True])
def test_it_is_taken_or_named(tmp_path: Path, case: str, is_zipped: bool) -> None:
    texts, ids, is_taken = TAKEN[case]
    source = shard = write(tmp_path, texts, ids)
    if is_zipped:
        source = tmp_path / "a.zip"
        with ZipFile(source, "w") as archive:
            archive.write(tmp_path / "label_map.pbtxt", "label_map.pbtxt")
            archive.write(shard, f"day/{shard.name}")
    shards = find_readable(source)
    (file,) = shards.label_maps.values()
    assert (file is not None) is is_taken
    assert (find_label_map(str(shard))[0] is not None) is is_taken
    assert ["label_map.pbtxt" in note for note in shards.notes] == [True] * (not is_taken)


def test_the_one_next_to_the_shard_is_always_taken(tmp_path: Path, run: Run) -> None:
    shard = write(tmp_path, ["horse"], [1])
    (shard.parent / "label_map.pbtxt").write_text(MAP)
    assert find_label_map(str(shard))[0] == str(shard.parent / "label_map.pbtxt")
    assert "LAB006" in run("check", shard).out  # which says that the text is not in it

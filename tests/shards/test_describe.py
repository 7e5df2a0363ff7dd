"""``tfod describe``: counts by subset; those of real shards are compared with TensorFlow."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tfod.errors import ShardError
from tfod.shards.describe import Description, describe

from tests.conftest import CORPUS
from tests.image_kinds import image_of
from tests.mutants.sound import flip
from tests.records import encode, frame, image, objects, write_shard
from tests.zip_forge import real_zip

SHARDS = sorted(
    str(path.relative_to(CORPUS))
    for pattern in ("**/*.record", "**/*.tfrecord")
    for path in CORPUS.glob(pattern)
)


def lines_of(found: Description) -> list[str]:
    """The lines of the text, with single spaces."""
    return [" ".join(line.split()) for line in found.to_text("x").splitlines()]


def assert_counts(classes: Counter[Any], figures: dict[str, Any]) -> None:
    """Assert that boxes by text and by id are those that TensorFlow counted in a shard."""
    texts, labels = Counter[str](), Counter[str]()
    for (text, label), count in classes.items():
        texts.update({} if text is None else {text: count})
        labels.update({} if label is None else {str(label): count})
    assert texts == figures.get("class_text", {})
    assert labels == figures.get("class_label", {})


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard(corpus: Path, figures: dict[str, Any], name: str) -> None:
    expected = figures[name]
    found = describe(corpus / name)
    kinds = {
        f"{key}:{kind.value}": count
        for key, summary in found.keys.items()
        for kind, count in summary.kinds.items()
        if kind is not None
    }
    assert kinds == expected["keys"]
    assert found.file_bytes == expected["bytes"]
    assert (found.records, found.damaged) == (expected["records"], 0)
    assert found.boxes == expected.get("boxes", 0)
    (classes,) = found.class_boxes.values()
    assert_counts(classes, expected)
    objects = found.numbers["boxes in an image"]
    assert objects.total() == found.records and objects[0] == found.without_boxes
    assert sum(number * images for number, images in objects.items()) == found.boxes


@pytest.mark.parametrize(
    "names", [["."], ["*.tfrecord"], ["export.zip"], ["test.tfrecord", "[tv]*[nl].tfrecord"]]
)
def test_several_shards_by_subset(
    corpus: Path, figures: dict[str, Any], tmp_path: Path, names: list[str]
) -> None:
    folder = corpus / "datumaro-tf-detection-api"
    shutil.make_archive(str(tmp_path / "export"), "zip", folder)
    found = describe([f"{tmp_path if '.zip' in name else folder}/{name}" for name in names])
    expected = {one: figures[f"{folder.name}/{one}.tfrecord"] for one in ("test", "train", "val")}
    assert found.class_boxes.keys() == expected.keys()
    for subset, one in expected.items():
        assert_counts(found.class_boxes[subset], one)
    assert (found.shards, found.boxes) == (3, sum(one["boxes"] for one in expected.values()))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Cats in both subsets, dogs only in train, and an image without objects."""
    boxes = {"cat": (0.0, 0.0, 0.5, 0.5), "dog": (0.5, 0.5, 1.0, 0.55), "cow": (0, 0, 1, 1)}

    def record(*names: str, size: tuple[int, int] = (100, 200)) -> bytes:
        labels = [1 + [*boxes].index(name) for name in names]
        lists = objects([boxes[name] for name in names], names, labels) if names else {}
        return encode(image("a.jpg", *size) | lists)

    cow = record("cow", size=(200, 300))
    write_shard(tmp_path, "train", record("cat", "dog", "cat"), record("cat"), record(), cow)
    write_shard(tmp_path, "val", record("cat"))
    return tmp_path


def test_tables(dataset: Path) -> None:
    lines = lines_of(describe(dataset))
    assert lines[0].startswith("2 shards, 5 records (1 without boxes), 6 boxes; ")
    start = lines.index("class id boxes images train val")
    assert lines[start : lines.index("import tensorflow as tf") - 1] == [
        "class id boxes images train val",
        "cat 1 4 3 3 1",
        "cow 3 1 1 1 0",
        "dog 2 1 1 1 0",
        "",
        "min 10 % median 90 % max",
        "box width, pixels 100 100 100 300 300",
        "box height, pixels 5 5 50 200 200",
        "box, % of the image 2.5 2.5 25 100 100",
        "image width, pixels 200 200 200 300 300",
        "image height, pixels 100 100 100 200 200",
        "boxes in an image 0 0 1 3 3",
    ]  # fmt: skip


def test_classes_without_a_text_have_the_name_in_the_label_map(tmp_path: Path) -> None:
    lists = objects([(0, 0, 1, 1)] * 3, [], [1, 1, 7])
    write_shard(tmp_path, "a", encode(image() | lists), label_map="item { id: 1 name: 'cat' }")
    assert {"cat 1 2 1", "(none) 7 1 1"} <= set(lines_of(describe(tmp_path)))


def test_sizes_of_images_and_boxes(make_shard, corpus: Path) -> None:
    lists = objects([(0, 0, 1, 1), (-0.5, 0, 0.5, 2), (0.5, 0, 0.5, 1)], ["cat"] * 3)
    found = describe(make_shard("s", {"image/encoded": image_of("png P"), **lists}, {"a": 1}))
    # The size is in the header of the image. Boxes end at its edges, and need an area.
    assert found.numbers["image width, pixels"] == {34: 1}
    assert found.numbers["box width, pixels"] == {34: 1, 17: 1}
    assert found.numbers["box height, pixels"] == {21: 2}
    assert found.numbers["box, % of the image"] == {100: 1, 50: 1}
    # Without a size.
    boxes = objects([(0, 0, 0.5, 0.5), (math.nan, 0, 1, 1)], ["cat"] * 2)
    lines = lines_of(describe(make_shard("t", boxes)))
    start = lines.index("min 10 % median 90 % max")
    assert lines[start + 1 : start + 5] == [
        "box, % of the image 25 25 25 25 25",
        "boxes in an image 2 2 2 2 2",
        "",
        "import tensorflow as tf",
    ]
    # Without images.
    lines = lines_of(describe(corpus / "titanic-table" / "test.tfrecord"))
    keys = lines.index("key kind records values")
    assert "layout: unknown" in lines[1]
    assert lines[lines.index("", keys) + 1] == "import tensorflow as tf"


@pytest.mark.parametrize("damage", ["checksum", "no Example", "cut short", "lists differ"])
def test_damaged_records_are_counted(tmp_path: Path, damage: str) -> None:
    good = encode(image("a.jpg") | objects([(0, 0, 1, 1)], ["cat"], [1]))
    bad = {
        "no Example": b"\xff" * 9,
        "lists differ": encode(image() | objects([(0, 0, 1, 1)] * 2, ["cat"], [1])),
    }.get(damage, good)
    data = frame(good, bad, good)
    if damage == "checksum":
        data = flip(data, len(frame(good)) + 20)
    path = tmp_path / "my shard.record"
    path.write_bytes(data[:-9] if damage == "cut short" else data)
    found = describe(path)
    assert found.damaged == 1
    # A record with unreadable boxes has a class.
    assert found.class_images["cat", 1] == (3 if damage == "lists differ" else 2)
    (line,) = [one for one in found.to_text(path).splitlines() if "damaged" in one]
    assert line == f"1 damaged record: for details run tfod check '{path}'"
    path.write_bytes(b"\0" * 40)  # no record can be read
    with pytest.raises(ShardError, match=r"my shard\.record"):
        describe(tmp_path)


def test_many_classes_and_subsets(
    make_shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no line depends on the length of the folder's name
    for subset in range(20):
        lists = objects([(0, 0, 1, 1)] * 300, [f"{n} " + "long" * 20 for n in range(300)])
        write_shard(Path("s"), f"part{subset}", encode(image("a.jpg") | lists))
    lines = describe("s").to_text("x").splitlines()
    assert "and 200 more classes" in lines and "by subset: the 6 largest of 20" in lines
    assert max(map(len, lines)) < 120
    # Above a limit, classes are not counted.
    monkeypatch.setattr("tfod.checker.analysis.result.MAX_COUNTED_KEYS", 10)
    records = [image() | objects([(0, 0, 1, 1)], [f"class {n}"]) for n in range(5000)]
    found = describe(make_shard("t", *records))
    assert len(found.class_images) <= 20 and found.boxes == 5000


def test_an_empty_file_of_a_numbered_set_in_a_zip(tmp_path: Path) -> None:
    names = [f"train-0000{number}-of-00002.record" for number in range(2)]
    files = zip(names, (frame(encode(image("a.jpg"))), b""), strict=True)
    (tmp_path / "a.zip").write_bytes(real_zip(files))
    found = describe(tmp_path / "a.zip")
    assert (found.shards, found.records, found.damaged) == (2, 1, 0)

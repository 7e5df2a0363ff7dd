"""Splitting: a partition, by class, the same for the same seed, without an image in two parts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod import read_detections
from tfod.errors import LabelMapError, ShardError, ShardsNotFoundError
from tfod.shards.reshard import reshard
from tfod.shards.split.split import parse_parts, split
from tfod.shards.split.stratification import stratify
from tfod.tfrecord.writer import OptionError, ShardLayout, write_records

from tests.commands import Run
from tests.conftest import examples
from tests.files import files_in, payloads, subsets_of
from tests.records import encode, image, objects

THREE = {"train": 0.7, "val": 0.2, "test": 0.1}
BOX = (0.1, 0.2, 0.3, 0.4)


def features_of(number: int, *texts: str, encoded: bytes = b"") -> dict[str, Any]:
    features = image(f"{number}.jpg") | objects([BOX] * len(texts), list(texts))
    return features | {"image/encoded": encoded} if encoded else features


@pytest.mark.parametrize(
    "name", ["anki-overdrive-cars", "blood-cells", "hyphal-tips", "titanic-table"]
)
def test_real_shards_are_partitioned(
    corpus: Path, note_shard: Callable[[str], None], tmp_path: Path, name: str
) -> None:
    before = sum(subsets_of(corpus / name).values(), Counter())
    done = split(corpus / name, tmp_path, THREE, seed=3)
    after = subsets_of(tmp_path)
    assert sum(after.values(), Counter()) == before
    assert {part: found.total() for part, found in after.items()} == done.records
    for part, row in zip(done.records, done.boxes, strict=True):
        read: Counter[str] = Counter()
        for one in read_detections(tmp_path / f"{part}.tfrecord"):
            read.update(one.class_text or ())
        assert dict(read) == {c: n for c, n in zip(done.classes, row.tolist(), strict=True) if n}
    for path in (corpus / name).glob("*.*record"):
        note_shard(str(path))


def test_classes_get_their_share(corpus: Path, tmp_path: Path) -> None:
    for seed in range(3):
        done = split(corpus / "blood-cells", tmp_path / str(seed), THREE, seed=seed)
        assert [*done.records.values()] == [45, 13, 6]
        totals = done.boxes.sum(axis=0)
        off = np.abs(done.boxes - np.outer((0.7, 0.2, 0.1), totals))
        rare = totals < 100
        assert rare.sum() == 2
        assert off[:, rare].max() < 2
        assert (off[:, ~rare] / totals[~rare]).max() < 0.06


def test_the_rarest_class_is_in_every_part(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    records = [
        features_of(n, *["common"] * int(random.randint(1, 9)), *(["rare"] if n % 33 == 0 else []))
        for n in range(100)
    ]
    write_records(tmp_path / "in", "s", map(encode, records))
    for seed in range(5):
        done = split(
            tmp_path / "in", tmp_path / str(seed), {"a": 0.5, "b": 0.25, "c": 0.25}, seed=seed
        )
        assert [*done.records.values()] == [50, 25, 25]
        rare = done.boxes[:, done.classes.index("rare")]
        assert rare.tolist() == [2, 1, 1]
        common = done.boxes[:, done.classes.index("common")]
        assert np.abs(common / common.sum() - (0.5, 0.25, 0.25)).max() < 0.02


def test_a_seed_means_the_same_parts_for_ever(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", (encode(features_of(n, "xy"[n % 2])) for n in range(8)))
    for name in ("one", "two"):
        split(tmp_path / "in", tmp_path / name, {"a": 0.5, "b": 0.5}, seed=1)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    names = [one.filename for one in read_detections(tmp_path / "one" / "a.tfrecord")]
    assert names == ["1.jpg", "2.jpg", "6.jpg", "7.jpg"]
    split(tmp_path / "in", tmp_path / "three", {"a": 0.5, "b": 0.5}, seed=2)
    assert files_in(tmp_path / "three") != files_in(tmp_path / "one")


def test_equal_images_stay_together(tmp_path: Path) -> None:
    records = [features_of(n, "x", encoded=b"image %d" % (n % 10)) for n in range(40)]
    for folder, part in (("train", records[:20]), ("val", records[20:])):
        write_records(tmp_path / "in", folder, map(encode, part))
    done = split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert (done.equal_images, [*done.records.values()]) == (30, [20, 20])
    a, b = ({bytes(one.encoded or b"") for one in read_detections(path)} for path in done.paths)
    assert len(a) == len(b) == 5
    assert not a & b
    assert "train, val" in done.notes[0]


def test_a_subset_of_an_earlier_split_is_said(run: Run, corpus: Path, tmp_path: Path) -> None:
    source, out = corpus / "blood-cells", tmp_path / "out"
    assert "from before" not in run("split", source, "-o", out, "train=0.8", "test=0.2").err
    again = run("split", source, "-o", out, "train=0.8", "val=0.2", "--overwrite")
    assert again.code == 0
    assert f"{out} has test from before, too: an image there may now be in two" in again.err


def test_order_and_label_map_stay(tmp_path: Path) -> None:
    write_records(
        tmp_path / "in", "s", (encode(features_of(n, "x")) for n in range(9)), num_shards=2
    )
    (tmp_path / "in" / "any_label_map.pbtxt").write_bytes(b"item { id: 1 name: 'x' } # mine")
    done = split(
        tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5}, layout=ShardLayout(num_shards=2)
    )
    assert (tmp_path / "out" / "label_map.pbtxt").read_bytes().endswith(b"# mine")
    assert len(done.paths) == 4
    order = payloads(*sorted((tmp_path / "in").glob("*.tfrecord")))
    for part in ("a", "b"):
        first, second = (payloads(path) for path in sorted((tmp_path / "out").glob(f"{part}-*")))
        dealt = [one for pair in zip(first, [*second, b""], strict=False) for one in pair if one]
        assert dealt == sorted(dealt, key=order.index)


def test_ids_count_through_the_label_map(tmp_path: Path) -> None:
    records = (encode(image(str(n)) | objects([BOX], label=[n % 2 + 4])) for n in range(8))
    write_records(tmp_path / "in", "s", records)
    (tmp_path / "in" / "label_map.pbtxt").write_text(
        "item { id: 4 name: 'four' } item { id: 5 name: 'five' }"
    )
    done = split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert (done.classes, done.boxes.tolist()) == (["four", "five"], [[2, 2], [2, 2]])


def test_classification_counts_the_labels_of_images(tmp_path: Path) -> None:
    records = (encode(image(str(n)) | {"image/class/text": "xy"[n % 2]}) for n in range(8))
    write_records(tmp_path / "in", "s", records)
    done = split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert done.boxes.tolist() == [[2, 2], [2, 2]]


def test_labels_of_classification_shards_go_along(tmp_path: Path) -> None:
    records = (encode({"image_raw": b"x", "label": [n % 2]}) for n in range(8))
    write_records(tmp_path / "in", "s", records)
    (tmp_path / "in" / "labels.txt").write_text("0:cat\n1:dog\n")
    done = split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert (tmp_path / "out" / "labels.txt").read_text() == "0:cat\n1:dog\n"
    assert ([*done.records.values()], done.classes) == ([4, 4], ["cat", "dog"])
    reshard(tmp_path / "in", tmp_path / "resharded")
    assert (tmp_path / "resharded" / "labels.txt").read_text() == "0:cat\n1:dog\n"


def test_records_without_a_known_class_are_dealt_at_random(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", (encode({"x": [n]}) for n in range(9)))
    done = split(tmp_path / "in", tmp_path / "out", {"a": 0.7, "b": 0.3})
    assert ([*done.records.values()], done.classes) == ([6, 3], [])
    assert "at random" in done.notes[0]


def test_numbers_of_records(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", (encode(features_of(n, "x")) for n in range(10)))
    assert split(tmp_path / "in", tmp_path / "out", {"a": 9, "b": 1}).records == {"a": 9, "b": 1}
    for parts, message in (
        ({"a": 9, "b": 2}, "11 records together, but there are 10"),
        ({"a": 0.99, "b": 0.01}, "b: no record would be in it, of 10"),
        ({"a": 0.5, "b": 0.4}, "0.9 together, not 1"),
        ({"a": 0.5, "b": 5}, "for all"),
    ):
        with pytest.raises(OptionError, match=message):
            split(tmp_path / "in", tmp_path / "no", parts)
    with pytest.raises(OptionError, match="not a seed"):
        split(tmp_path / "in", tmp_path / "no", {"a": 1.0}, seed=-1)
    assert not (tmp_path / "no").exists()


def test_parts_as_they_are_typed() -> None:
    assert parse_parts(["train=0.8", "a=b=20"]) == {"train": 0.8, "a=b": 20}
    for text in ("train", "=1", "a=", "a=0", "a=-1", "a=nan", "a=x", "a=0.0"):
        with pytest.raises(OptionError, match="is not a part"):
            parse_parts([text])
    with pytest.raises(OptionError, match="twice"):
        parse_parts(["a=1", "a=2"])


def test_different_label_maps_are_for_merge(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_records(tmp_path / "in" / folder, folder, [encode(features_of(1, "x"))])
        (tmp_path / "in" / folder / "label_map.pbtxt").write_text(
            f"item {{ id: 1 name: '{folder}' }}"
        )
    with pytest.raises(LabelMapError, match="differ; tfod merge"):
        split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert not (tmp_path / "out").exists()


def test_a_shard_that_changes_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [encode(features_of(n, "x")) for n in range(6)]
    write_records(tmp_path / "in", "s", records)
    from tfod.shards.split import split as splitting

    def deal(*arguments: Any) -> list[int]:
        write_records(tmp_path / "in", "s", records[:count])
        return stratify(*arguments)

    monkeypatch.setattr(splitting, "stratify", deal)
    for count in (5, 6, 4):
        write_records(tmp_path / "in", "s", records[:5])
        if count != 5:
            with pytest.raises(ShardError, match="changed while it was read"):
                split(tmp_path / "in", tmp_path / "out", {"a": 0.5, "b": 0.5})
    assert not (tmp_path / "out").exists()


@examples(60)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), max_size=5), min_size=3, max_size=30),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_every_record_is_in_one_part(found: list[list[str]], weights: list[int], seed: int) -> None:
    parts = {f"p{n}": weight / sum(weights) for n, weight in enumerate(weights)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [encode(features_of(n, *texts)) for n, texts in enumerate(found)]
        write_records(folder / "in", "s", records)
        try:
            done = split(folder / "in", folder / "out", parts, seed=seed)
        except OptionError:
            assert min(parts.values()) * len(records) < 1
            return
        after = subsets_of(folder / "out")
        assert sum(after.values(), Counter()) == Counter(records)
        for part, count in done.records.items():
            assert abs(count - parts[part] * len(records)) < 1
        boxes = Counter(text for texts in found for text in texts)
        assert dict(zip(done.classes, done.boxes.sum(axis=0).tolist(), strict=True)) == boxes


def test_things_larger_than_the_room_go_where_there_is_most() -> None:
    dealt = stratify(np.array([5, 1, 1, 1]), np.zeros((3, 0), np.int64), [4, 4], 0)
    assert Counter(dealt) == {dealt[0]: 1, 1 - dealt[0]: 3}


def test_nothing_to_split(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "a", [], compression="gzip")
    with pytest.raises(ShardsNotFoundError, match="no record to split"):
        split(tmp_path / "in", tmp_path / "out", {"train": 0.5, "val": 0.5})
    assert not (tmp_path / "out").exists()

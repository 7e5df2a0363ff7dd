"""One rule for the names of sets: what is left when the number is taken away names the subset."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.sources.reading import find_readable
from tfod.tfrecord.shard_sets.search import find_shards, group_shards
from tfod.tfrecord.shard_sets.shard_names import (
    ShardName,
    recipe_file_names,
    shard_file_names,
    similar_file_names,
    stated_name,
)

from tests.commands import Run
from tests.files import write_files
from tests.records import encode, frame, image, objects

RECORD = encode({**image("a.jpg", 10, 20), **objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [1])})

SETS: dict[str, dict[str, list[str]]] = {
    # Of the cases/ and of others: every file of each in the order of its number.
    "underscore": {"train": ["train_000.tfrec", "train_001.tfrec"]},
    "total": {
        "train": [
            "train_00000-of-00002-total00004.tfrecord",
            "train_00001-of-00002-total00004.tfrecord",
        ]
    },
    "four digits": {"train": ["train-0000-of-0002.tfrecord", "train-0001-of-0002.tfrecord"]},
    "1of2": {"train": ["train_1of2.tfrecord", "train_2of2.tfrecord"]},
    "1 of 2": {"train": ["train_1_of_2.record", "train_2_of_2.record"]},
    "1of2, no extension": {"train": ["train_1of2", "train_2of2"]},
    "nothing between": {"train": ["train0.tfrecords", "train1.tfrecords"]},
    "by number": {"train": [f"train{number}.tfrecord" for number in range(12)]},
    "from 1": {"train": ["train-1.tfrecord", "train-2.tfrecord", "train-3.tfrecord"]},
    "in the middle": {"train": ["train_007.record", "train_008.record"]},
    "number in front": {"train": ["0_train.record", "1_train.record"]},
    "dots": {"train": ["train.0.tfrecord", "train.1.tfrecord"]},
    "counts": {"ld_train": ["ld_train00-2.tfrec", "ld_train01-1.tfrec"]},
    "counts and sizes": {"default": ["00-512x512-798.tfrec", "01-512x512-7.tfrec"]},
    "the recipe": {"default": ["file_00-3.tfrec"], "val": ["val_00-1.tfrec", "val_01-2.tfrec"]},
    "MapReduce": {"part-r": ["part-r-00000", "part-r-00001"]},
    "Spark": {"part-7c1f-c000": ["part-00000-7c1f-c000.tfrecord", "part-00001-7c1f-c000.tfrecord"]},
    "behind the extension": {"train": ["train.tfrecord0000", "train.tfrecord0001"]},
    "compressed": {"train": ["train_0.tfrecord.gz", "train_1.tfrecord.gz"]},
    "only numbers": {"default": ["0.record", "1.record"]},
    "two sets": {
        "train": ["train_0.record", "train_1.record"],
        "val": ["val_0.record", "val_1.record"],
    },
    "two numbers": {
        "fold0": ["fold0_0.record", "fold0_1.record"],
        "fold1": ["fold1_0.record", "fold1_1.record"],
    },
    "one name but for what is between": {
        "a": ["a-0.record", "a-1.record"],
        "a_": ["a_0.record", "a_1.record"],
    },
    "a set and the whole": {"a": ["a.record"], "a_": ["a_0.record", "a_1.record"]},
    "one file": {"train2017": ["train2017.tfrecord"]},
    "gap": {"a1": ["a1.tfrecord"], "a7": ["a7.tfrecord"]},
    "years": {"val2007": ["val2007.tfrecord"], "val2012": ["val2012.tfrecord"]},
    "years that follow": {"train2017": ["train2017.record"], "train2018": ["train2018.record"]},
    "versions": {"v1.0": ["v1.0.record"], "v1.1": ["v1.1.record"]},
    "other padding": {"a1": ["a1.record"], "a02": ["a02.record"]},
    "another extension": {"a0": ["a0.record"], "a1": ["a1.tfrecord"]},
    "dates": {"2020-01-05": ["2020-01-05.tfrec"], "2020-11-15": ["2020-11-15.tfrec"]},
}


def fill(folder: Path, sets: dict[str, list[str]]) -> Path:
    names = [name for own in sets.values() for name in own]
    return write_files(folder, dict.fromkeys(names, frame(RECORD)))


def found(source: object) -> dict[str, list[str]]:
    return {one.subset: [*map(os.path.basename, one.paths)] for one in find_readable(source).sets}


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_sets_in_a_folder(sets: dict[str, list[str]], tmp_path: Path) -> None:
    assert found(fill(tmp_path, sets)) == sets
    assert found(sorted(map(str, tmp_path.iterdir()))) == {
        subset: sorted(names) for subset, names in sets.items()
    }, "as a shell names them, in the order of that"
    assert found(str(tmp_path / "*")) == sets
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in tmp_path.glob("*[!p]"):
            archive.write(path, path.name)
    assert found(tmp_path / "a.zip") == sets


def test_sets_of_folders_are_apart(tmp_path: Path) -> None:
    fill(tmp_path / "a", {"": ["x_0.record"]})
    fill(tmp_path / "b", {"": ["x_1.record"]})
    assert found(tmp_path) == {"x_0": ["x_0.record"], "x_1": ["x_1.record"]}
    fill(tmp_path / "train", {"": ["x_10.record", *(f"x_{number}.record" for number in range(10))]})
    assert found(tmp_path)["train"] == [f"x_{number}.record" for number in range(11)]


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (["train_1of2.tfrecord"], ["train_0of2.tfrecord"]),
        (["train_2of2.tfrecord"], ["train_1of2.tfrecord"]),
        (["t_10of12.record", "t_12of12.record"], ["t_01of12.record"]),
        (["train-0001-of-0002.record"], ["train-0000-of-0002.record"]),
        (["a_00000-of-00002-total00004.record"], ["a_00001-of-00002-total00004.record"]),
        (["a_000.record", "a_001.record"], []),
        (["a-00000-of-00003", "a-00002-of-00003"], ["a-00001-of-00003"]),
        (["val.record-00000-of-00001"], []),
        # One that counts from 1 lacks no shard 0.
        (["a-00001-of-00002.record", "a-00002-of-00002.record"], []),
        (["c-00001-of-00003.record", "c-00003-of-00003.record"], ["c-00002-of-00003.record"]),
        # The number stands before the extension, or behind it; a stem may have one, too.
        (["a-00001-of-00002.tfrecord"], ["a-00000-of-00002.tfrecord"]),
        (["b.tfrecord-00000-of-00002"], ["b.tfrecord-00001-of-00002"]),
        (["b-00007-of-9-00001-of-00002"], ["b-00007-of-9-00000-of-00002"]),
    ],
)
def test_what_is_missing(there: list[str], missing: list[str], tmp_path: Path) -> None:
    (one,) = find_shards(fill(tmp_path, {"": there}))
    assert list(one.missing[:1]) == missing


def test_other_files_that_are_1_of_2_are_no_shards(tmp_path: Path) -> None:
    (tmp_path / "page_1of2").write_text("a text")
    fill(tmp_path, {"": ["a.record"]})
    assert found(tmp_path) == {"a": ["a.record"]}


FILE_NAMES = st.lists(
    st.from_regex(r"(a|v1\.|2017|[-_])?[0-9]{0,3}(of|-of-)?[0-9]{1,3}(-[0-9]{2})?", fullmatch=True)
    .flatmap(lambda name: st.sampled_from([name, f"{name}.record", f"{name}.tfrec"])),
    unique=True,
    max_size=12,
)  # fmt: skip


@given(FILE_NAMES, st.randoms(use_true_random=False))
def test_each_file_is_in_one_set_whatever_the_order(
    names: list[str], chance: random.Random
) -> None:
    paths = [f"/x/{name}" for name in names]
    sets = group_shards(paths, "/x")
    assert sorted(path for one in sets for path in one.paths) == sorted(paths)
    assert len({one.subset for one in sets}) == len(sets)
    chance.shuffle(paths)
    assert group_shards(paths, "/x") == sets


SUBSETS = st.text(
    st.sampled_from("a0123%/\\._- of") | st.characters(exclude_categories=["Cs"]),
    min_size=1,
    max_size=12,
) | st.sampled_from(["train", "fold0", "fold1", "fold2", "08", "09", "10", "a.tfrecord", "a_1of2"])


def _is_clean(subset: str) -> bool:
    """What is no name of a subset that a file can have and say again: it may lead out of it."""
    from tfod.tfrecord.image_names import safe_relative_path

    return safe_relative_path(subset) == subset


@given(
    st.dictionaries(SUBSETS.filter(_is_clean), st.integers(1, 3), min_size=1, max_size=6),
    st.sampled_from(
        [shard_file_names, lambda subset, count: recipe_file_names(subset, count, 4096 * count)]
    ),
)
def test_our_own_names_say_their_subsets(
    subsets: dict[str, int], names_of: Callable[[str, int], list[str]]
) -> None:
    subsets.pop("file", None)  # as the Keras recipe calls what has no subset
    written = {
        subset: [f"/x/{name}" for name in names_of(subset, count)]
        for subset, count in subsets.items()
    }
    paths = [path for own in written.values() for path in own]
    assert {one.subset: list(one.paths) for one in group_shards(paths, "/x")} == written
    if names_of is not shard_file_names:
        assert {stated_name(path).records for path in paths} <= {4096}
        return
    similar = {
        subset: [f"/x/{name}" for name in similar_file_names(own[0], stated_name(own[0]).stem, 1)]
        for subset, own in written.items()
    }
    paths = [path for own in similar.values() for path in own]
    assert {one.subset: list(one.paths) for one in group_shards(paths, "/x")} == similar


@pytest.mark.parametrize("digits", ["1" * 5000, "1a" * 30_000, "0" * 70_000 + "of1"])
def test_names_that_are_made_to_hurt(digits: str) -> None:
    name = f"/x/{digits}.record"
    assert stated_name(name) == ShardName(digits)
    assert [one.paths for one in group_shards([name], "/x")] == [(name,)]


class TestCommands:
    """What users type, on real files."""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "train_label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
        (tmp_path / "data" / "val_label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
        names = {"train": [f"train{number}.tfrecords" for number in range(11)]}
        return fill(tmp_path / "data", {**names, "val": ["val_0.record", "val_1.record"]})

    def test_check(self, data: Path, run: Run) -> None:
        for sources in ([data], sorted(data.glob("*record*"))):
            report = json.loads(run("check", *sources, "--format", "json").out)
            (dataset,) = report["datasets"]
            assert len(dataset["sources"]) == 13 and len(dataset["label_maps"]) == 2
            assert report["counts"]["by_code"]["NAM002"] == 10 + 1, "one name again in a subset"

    def test_check_keeps_apart_what_is_no_set(self, tmp_path: Path, run: Run) -> None:
        fill(tmp_path, SETS["gap"])
        report = json.loads(run("check", tmp_path, "--format", "json").out)
        assert "NAM002" not in report["counts"]["by_code"]

    def test_reshard(self, data: Path, tmp_path: Path, run: Run) -> None:
        run("reshard", data, tmp_path / "out", "--num-shards", 2).succeeded()
        assert found(tmp_path / "out") == {
            "train": [f"train-0000{number}-of-00002.tfrecords" for number in (0, 1)],
            "val": [f"val-0000{number}-of-00002.record" for number in (0, 1)],
        }
        run("reshard", data, tmp_path / "one", "--num-shards", 1).succeeded()
        assert found(tmp_path / "one") == {"train": ["train.tfrecords"], "val": ["val.record"]}

    def test_names_without_an_extension(self, tmp_path: Path, run: Run) -> None:
        fill(tmp_path / "in", {"": ["part-r-00000", "part-r-00001"]})
        run("reshard", tmp_path / "in", tmp_path / "out", "--num-shards", 1).succeeded()
        assert found(tmp_path / "out") == {"part-r": ["part-r.tfrecord"]}

"""Files become sets by their names: the subset is the name without the number of the shard."""

from __future__ import annotations

import itertools
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardsNotFoundError
from tfod.sources.reading import find_label_map, find_readable
from tfod.tfrecord.image_names import IdMaker, is_id_for, safe_relative_path, split_extension
from tfod.tfrecord.shard_sets.search import find_shards, group_shards, looks_like_shard
from tfod.tfrecord.shard_sets.shard_names import (
    ShardName,
    parse_shard_name,
    recipe_file_names,
    shard_file_names,
    similar_file_names,
    stated_name,
)
from tfod.tfrecord.writer import write_records

from tests.commands import Run
from tests.files import write_files
from tests.records import encode, frame, image, objects

RECORD = encode({**image("a.jpg", 10, 20), **objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [1])})
LABEL_MAP = "item { id: 1 name: 'cat' }"

SETS: dict[str, dict[str, list[str]]] = {
    # The files of each set are in the order of their numbers.
    "underscore": {"train": ["train_000.tfrec", "train_001.tfrec"]},
    "total": {"train": [f"train_0000{n}-of-00002-total00004.tfrecord" for n in range(2)]},
    "four digits": {"train": ["train-0000-of-0002.tfrecord", "train-0001-of-0002.tfrecord"]},
    "1of2": {"train": ["train_1of2.tfrecord", "train_2of2.tfrecord"]},
    "1 of 2": {"train": ["train_1_of_2.record", "train_2_of_2.record"]},
    "1of2, no extension": {"train": ["train_1of2", "train_2of2"]},
    "nothing between": {"train": ["train0.tfrecords", "train1.tfrecords"]},
    "by number": {"train": [f"train{number}.tfrecord" for number in range(12)]},
    "from 1": {"train": ["train-1.tfrecord", "train-2.tfrecord", "train-3.tfrecord"]},
    "in the middle": {"train": ["train_007.record", "train_008.record"]},
    "number first": {"train": ["0_train.record", "1_train.record"]},
    "dots": {"train": ["train.0.tfrecord", "train.1.tfrecord"]},
    "counts": {"ld_train": ["ld_train00-2.tfrec", "ld_train01-1.tfrec"]},
    "counts and sizes": {"default": ["00-512x512-798.tfrec", "01-512x512-7.tfrec"]},
    "the recipe": {"default": ["file_00-3.tfrec"], "val": ["val_00-1.tfrec", "val_01-2.tfrec"]},
    "MapReduce": {"part-r": ["part-r-00000", "part-r-00001"]},
    "Spark": {"part-7c1f-c000": ["part-00000-7c1f-c000.tfrecord", "part-00001-7c1f-c000.tfrecord"]},
    "number after the extension": {"train": ["train.tfrecord0000", "train.tfrecord0001"]},
    "compressed": {"train": ["train_0.tfrecord.gz", "train_1.tfrecord.gz"]},
    "only numbers": {"default": ["0.record", "1.record"]},
    "two sets": {one: [f"{one}_0.record", f"{one}_1.record"] for one in ("train", "val")},
    "two numbers": {one: [f"{one}_0.record", f"{one}_1.record"] for one in ("fold0", "fold1")},
    "two separators": {"a": ["a-0.record", "a-1.record"], "a_": ["a_0.record", "a_1.record"]},
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


def fill(folder: Path, *names: str) -> Path:
    """Write shards of one record with these names."""
    return write_files(folder, dict.fromkeys(names, frame(RECORD)))


def found(source: object) -> dict[str, list[str]]:
    return {one.subset: [*map(os.path.basename, one.paths)] for one in find_readable(source).sets}


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_sets_in_a_folder(sets: dict[str, list[str]], tmp_path: Path) -> None:
    assert found(fill(tmp_path, *itertools.chain(*sets.values()))) == sets
    # A shell sorts the names that match a pattern.
    expanded = found(sorted(map(str, tmp_path.iterdir())))
    assert expanded == {subset: sorted(names) for subset, names in sets.items()}
    assert found(str(tmp_path / "*")) == sets
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in tmp_path.glob("*[!p]"):
            archive.write(path, path.name)
    assert found(tmp_path / "a.zip") == sets


def test_sets_of_folders_are_apart(tmp_path: Path) -> None:
    fill(tmp_path, "a/x_0.record", "b/x_1.record")
    assert found(tmp_path) == {"x_0": ["x_0.record"], "x_1": ["x_1.record"]}
    fill(tmp_path / "train", *(f"x_{number}.record" for number in range(11)))
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
        # A set with numbers from 1 has no shard 0.
        (["a-00001-of-00002.record", "a-00002-of-00002.record"], []),
        (["c-00001-of-00003.record", "c-00003-of-00003.record"], ["c-00002-of-00003.record"]),
        # The number is before the extension or after it, and the stem may have a number, too.
        (["a-00001-of-00002.tfrecord"], ["a-00000-of-00002.tfrecord"]),
        (["b.tfrecord-00000-of-00002"], ["b.tfrecord-00001-of-00002"]),
        (["b-00007-of-9-00001-of-00002"], ["b-00007-of-9-00000-of-00002"]),
    ],
)
def test_what_is_missing(there: list[str], missing: list[str], tmp_path: Path) -> None:
    (one,) = find_shards(fill(tmp_path, *there))
    assert list(one.missing[:1]) == missing


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
    """Whether a file name can have the subset unescaped, since it stays within its folder."""
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
    subsets.pop("file", None)  # the Keras recipe's name of shards without a subset
    written = {subset: names_of(subset, count) for subset, count in subsets.items()}
    assert regrouped(written) == written
    if names_of is not shard_file_names:
        names = itertools.chain(*written.values())
        assert {stated_name(name).records for name in names} <= {4096}
        return
    similar = {
        subset: similar_file_names(names[0], stated_name(names[0]).stem, 1)
        for subset, names in written.items()
    }
    assert regrouped(similar) == similar


def regrouped(sets: dict[str, list[str]]) -> dict[str, list[str]]:
    paths = [f"/x/{name}" for name in itertools.chain(*sets.values())]
    return {
        one.subset: [path.removeprefix("/x/") for path in one.paths]
        for one in group_shards(paths, "/x")
    }


@pytest.mark.parametrize("digits", ["1" * 5000, "1a" * 30_000, "0" * 70_000 + "of1"])
def test_names_that_are_made_to_hurt(digits: str) -> None:
    name = f"/x/{digits}.record"
    assert stated_name(name) == ShardName(digits)
    assert [one.paths for one in group_shards([name], "/x")] == [(name,)]


def test_commands_see_the_same_sets(tmp_path: Path, run: Run) -> None:
    data = write_files(
        tmp_path / "data",
        dict.fromkeys(["train_label_map.pbtxt", "val_label_map.pbtxt"], LABEL_MAP),
    )
    names = [f"train{number}.tfrecords" for number in range(11)]
    fill(data, *names, "val_0.record", "val_1.record")
    for sources in ([data], sorted(data.glob("*record*"))):
        report = json.loads(run("check", *sources, "--format", "json").out)
        (dataset,) = report["datasets"]
        assert len(dataset["sources"]) == 13 and len(dataset["label_maps"]) == 2
        # Records of one subset have the same file name.
        assert report["counts"]["by_code"]["NAM002"] == 10 + 1
    for count, numbers in ((2, ("-00000-of-00002", "-00001-of-00002")), (1, ("",))):
        out = tmp_path / f"out{count}"
        run("reshard", data, out, "--num-shards", count).succeeded()
        assert found(out) == {
            "train": [f"train{number}.tfrecords" for number in numbers],
            "val": [f"val{number}.record" for number in numbers],
        }
    fill(tmp_path / "gap", "a1.tfrecord", "a7.tfrecord")
    report = json.loads(run("check", tmp_path / "gap", "--format", "json").out)
    assert "NAM002" not in report["counts"]["by_code"]
    # Names without an extension get one.
    fill(tmp_path / "spark", "part-r-00000", "part-r-00001")
    run("reshard", tmp_path / "spark", tmp_path / "one", "--num-shards", 1).succeeded()
    assert found(tmp_path / "one") == {"part-r": ["part-r.tfrecord"]}


TRAIN, NUMBERED = ShardName("train"), ShardName("train", 3, 10)
EXTENSIONS = (".tfrecord", ".tfrecords", ".record", ".tfrec", ".tfrecord.gz")
NAMES = {
    **{f"train{extension}": TRAIN for extension in EXTENSIONS},
    **{f"train-00003-of-00010{extension}": NUMBERED for extension in ("", *EXTENSIONS)},
    "train.record-00003-of-00010": NUMBERED,
    "train.tfrecord-00003-of-00010": NUMBERED,
    "train-000003-of-000010": NUMBERED,
    "TRAIN.TFRECORD": ShardName("TRAIN"),
    "a.b.rf.c0ffee.tfrecord": ShardName("a.b.rf.c0ffee"),
    **dict.fromkeys(("model.ckpt-00000.data-00000-of-00001", "train.jpg", "train")),
}


@pytest.mark.parametrize(("name", "parsed"), NAMES.items())
def test_names(name: str, parsed: ShardName | None) -> None:
    assert parse_shard_name(name) == parsed


def test_subsets_of_folders(tmp_path: Path) -> None:
    splits = ("test", "train", "valid")
    fill(tmp_path / "roboflow", *(f"{split}/Objects.tfrecord" for split in splits))
    assert found(tmp_path / "roboflow") == {split: ["Objects.tfrecord"] for split in splits}
    assert found(tmp_path / "roboflow/train") == {"Objects": ["Objects.tfrecord"]}
    # The search has a depth of three folders.
    fill(tmp_path / "deep", "a/b/c/deep.record", "a/upper.record", "all.record")
    assert sorted(found(tmp_path / "deep")) == ["all", "deep", "upper"]
    fill(tmp_path / "x", "1/2/3/4/too_deep.record")
    with pytest.raises(ShardsNotFoundError):
        find_shards(tmp_path / "x")


def test_files_with_unknown_names_are_shards_by_their_content(tmp_path: Path) -> None:
    fill(tmp_path, "data", "images.jpg", ".hidden", "events.out.tfevents.1.host.record")
    write_files(tmp_path, dict.fromkeys(["notes", "page_1of2"], "these are not the records"))
    (event,) = write_records(tmp_path, "event", [b"\x09" + bytes(20)])  # TensorBoard's
    Path(event).rename(tmp_path / "event")
    assert found(tmp_path) == {"data": ["data"]}
    # The name of a shard suffices, so that the reader reports the damage.
    write_files(tmp_path, {"broken.record": "not a shard"})
    assert looks_like_shard(str(tmp_path / "broken.record"))


def test_a_broken_link_is_a_shard_that_cannot_be_read(tmp_path: Path, run: Run) -> None:
    """As of files that are not fetched: they are reported, and not missing silently."""
    write_records(tmp_path, "train", [RECORD])
    (tmp_path / "val.tfrecord").symlink_to(tmp_path / "nowhere")
    assert [shards.subset for shards in find_shards(tmp_path)] == ["train", "val"]
    checked = run("check", str(tmp_path))
    assert checked.code == 1
    assert "TFR013" in checked.out
    assert "val.tfrecord" in checked.out


@pytest.mark.parametrize(
    ("source", "what"),
    [("", "no shard in this folder"), ("nope", "no such file"), ("*.record", "matches")],
)
def test_a_source_without_shards_is_an_error(tmp_path: Path, source: str, what: str) -> None:
    with pytest.raises(ShardsNotFoundError, match=what):
        find_shards(str(tmp_path / source))


def test_the_label_map_with_the_closest_name_is_used(tmp_path: Path) -> None:
    fill(tmp_path, "data/train/Objects.tfrecord")
    shard = str(tmp_path / "data/train/Objects.tfrecord")

    # Other files of protobuf are not label maps.
    texts = {"graph.pbtxt": "node { name: 'x' }", "pipeline.pbtxt": "model { }"}
    write_files(tmp_path / "data", texts)
    assert find_label_map(shard) == (None, [])
    for name in (
        *("any.pbtxt", "mscoco_label_map.pbtxt", "label_map.pbtxt", "objects_label_map.pbtxt"),
        *("train/other.pbtxt", "train/labelmap.pbtxt", "train/Objects_label_map.pbtxt"),
    ):
        write_files(tmp_path / "data", {name: ""})
        found, candidates = find_label_map(shard)
        assert (found, candidates) == (str(tmp_path / "data" / name), [])
    (tmp_path / "data/train/Objects_label_map.pbtxt").unlink()
    (tmp_path / "data/train/labelmap.pbtxt").unlink()
    write_files(tmp_path / "data", {"train/another.pbtxt": ""})
    found, candidates = find_label_map(shard)
    assert found is None and len(candidates) == 2
    # The only label map that can be read is used.
    Path(candidates[1]).write_text(LABEL_MAP)
    assert find_label_map(shard) == (candidates[1], [])


@pytest.mark.parametrize(
    ("filename", "path"),
    [
        ("a.jpg", "a.jpg"), ("some folder/b.c.rf.0f.jpg", "some folder/b.c.rf.0f.jpg"),
        ("/home/me/images/a.jpg", "a.jpg"), ("C:\\Users\\me\\a.jpg", "a.jpg"), ("d:a.jpg", "a.jpg"),
        ("..\\..\\a.jpg", "a.jpg"), ("a/../../b.jpg", "a/b.jpg"), ("a/.. /b.jpg", "a/b.jpg"),
        ("./a.jpg", "a.jpg"), ("nul\0.jpg", "nul_.jpg"), ("..", ""), ("", ""),
        ("кадр 1.jpg", "кадр 1.jpg"),
    ],
)  # fmt: skip
def test_safe_relative_paths(filename: str, path: str) -> None:
    assert safe_relative_path(filename) == path


def test_extensions() -> None:
    assert split_extension("a.b/c.JPEG") == ("a.b/c", ".JPEG")
    assert split_extension("frame.000123") == ("frame.000123", "")
    assert split_extension("x.rf.0a1b2c3d4e5f") == ("x.rf.0a1b2c3d4e5f", "")
    assert split_extension(".jpg") == (".jpg", "")


def test_every_image_has_its_own_id() -> None:
    ids = IdMaker()
    made = [ids.make(path, "r")[0] for path in ("1.jpg", "1.png", "1.jpg", "1.jpg", "1~2.jpg", "")]
    assert made == ["1", "1.png", "1~2", "1~3", "1~2.jpg", "r"]
    assert is_id_for("1", "1.jpg") and is_id_for("1.png", "1.png") and is_id_for("1~3", "1.jpg")
    assert is_id_for("a", "/some/where/a.jpg")
    assert not is_id_for("renamed", "1.jpg") and not is_id_for("1~x", "1.jpg")

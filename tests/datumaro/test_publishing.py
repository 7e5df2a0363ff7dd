"""Files of exports: their names, old files that they replace, and exports that fail."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datumaro.components.annotation import Bbox
from datumaro.components.dataset import Dataset
from tfod.datumaro import compat
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.writer import write_records

from tests.datumaro.conftest import (
    content,
    dataset_of,
    export,
    export_one,
    import_dataset,
    item,
    jpeg,
)
from tests.files import files_in
from tests.records import encode
from tests.renames import at_rename, fail


def shards_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.tfrecord"))


class TestShards:
    """Numbers and sizes of shards."""

    @pytest.mark.parametrize(("items", "num_shards"), [(5, 2), (2, 5)])
    def test_num_shards(self, tmp_path, items: int, num_shards: int) -> None:
        """No shard is empty, since a file of 0 bytes looks like a failed download."""
        export(dataset_of(*[item(str(n)) for n in range(items)]), tmp_path, num_shards=num_shards)
        shards = [f"default-0000{number}-of-00002.tfrecord" for number in (0, 1)]
        assert sorted(os.listdir(tmp_path)) == [*shards, "label_map.pbtxt"]
        loaded = import_dataset(tmp_path)
        assert list(loaded.subsets()) == ["default"]
        assert sorted(one.id for one in loaded) == list("01234")[:items]

    def test_shard_size(self, tmp_path) -> None:
        source = dataset_of(*[item(str(n), data=jpeg()) for n in range(6)])
        export(source, tmp_path, save_media=True, shard_size=3 * len(jpeg()))
        shards = sorted(tmp_path.glob("*.tfrecord"))
        assert len(shards) == 3 and max(s.stat().st_size for s in shards) <= 3 * len(jpeg())
        assert [one.id for one in import_dataset(tmp_path)] == list("012345")

    def test_obsolete_shards_of_the_subset_are_removed(self, tmp_path) -> None:
        export(dataset_of(item("a"), item("b"), item("c")), tmp_path, num_shards=3)
        assert len(shards_in(tmp_path)) == 3
        shutil.copy(tmp_path / "default-00000-of-00003.tfrecord", tmp_path / "other.tfrecord")
        export(dataset_of(item("a")), tmp_path)
        assert shards_in(tmp_path) == ["default.tfrecord", "other.tfrecord"]

    def test_other_options_in_place_write_everything_again(self, tmp_path) -> None:
        """Datumaro regards an export to the dataset's folder as a patch with the changes."""
        source = dataset_of(item("a"), item("b"))
        export(source, tmp_path)
        export(source, tmp_path, num_shards=2)
        assert len(shards_in(tmp_path)) == 2


class TestInPlace:
    """``dataset.save`` into the folder from which a dataset was imported."""

    def three(self, folder: Path) -> Dataset:
        box = Bbox(0, 0, 9, 9, label=0)
        items = [item(name, box, data=jpeg(), subset=name) for name in "abc"]
        export(dataset_of(*items), folder, save_media=True)
        return import_dataset(folder)

    @pytest.mark.parametrize(
        ("options", "label_map", "is_put", "expected"),
        [
            ({}, None, True, "a"),
            ({"num_shards": 1}, None, True, "abc"),
            ({}, "item { id: 7 name: 'x' }", True, "abc"),
            ({}, None, False, "abc"),
        ],
        ids=["changed subsets", "other options", "other classes", "nothing put"],
    )
    def test_only_changed_subsets_are_written(
        self, tmp_path, options: dict[str, Any], label_map: str | None, is_put: bool, expected: str
    ) -> None:
        self.three(tmp_path)
        loaded = import_dataset(tmp_path)
        if is_put:
            loaded.put(item("new", data=jpeg(), subset="a"))
        if label_map:
            (tmp_path / "label_map.pbtxt").write_text(label_map)
        before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord")}
        loaded.save(**options)
        after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord")}
        assert {name for name in after if after[name] != before[name]} == {
            f"{subset}.tfrecord" for subset in expected
        }
        expected_ids = ["a", "b", "c", *["new"] * is_put]
        assert sorted(one.id for one in import_dataset(tmp_path)) == expected_ids

    def test_a_label_map_that_is_gone_is_an_error_of_the_export(self, tmp_path) -> None:
        (label_map := tmp_path / "x.pbtxt").write_text("item { id: 1 name: 'x' }")
        source = dataset_of(item("a", subset="a"))
        export(source, tmp_path / "d", label_map=str(label_map))
        label_map.unlink()
        source.put(item("b", subset="a"))
        with pytest.raises(compat.errors.DatasetExportError, match=re.escape("x.pbtxt")):
            source.save(label_map=str(label_map))

    @pytest.mark.parametrize("name", ["c", "b, c\n"])
    def test_an_emptied_subset_has_no_shard(self, tmp_path, name: str) -> None:
        source = dataset_of(item("a", subset="a"), item("c", subset=name))
        export(source, tmp_path)
        source.remove("c", name)
        source.save()
        assert shards_in(tmp_path) == ["a.tfrecord"]
        assert [one.id for one in import_dataset(tmp_path)] == ["a"]

    @pytest.mark.parametrize(
        "names",
        [
            ["train.record"], ["annotations/train.tfrecord"], ["TRAIN.TFRECORD"],
            ["train.tfrecord.gz"], ["train/Objects.tfrecord", "valid/Objects.tfrecord"],
            ["train.record-00000-of-00002", "train.record-00001-of-00002"],
        ],
    )  # fmt: skip
    def test_any_layout_is_replaced_not_doubled(self, tmp_path, names) -> None:
        folder = tmp_path / "d"
        for number, name in enumerate(names):
            record = {"image/filename": f"{number}.jpg", "image/encoded": jpeg(colour=number)}
            compression = "gzip" if name.endswith(".gz") else "none"
            (made,) = write_records(
                tmp_path / "made", "s", [encode(record)], compression=compression
            )
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Path(made).rename(folder / name)
        (tmp_path / "label_map.pbtxt").write_text("")
        bystander = folder / "elsewhere.txt"
        bystander.write_text("x")
        loaded = import_dataset(folder)
        before = content(loaded)
        first = next(iter(loaded))
        first.attributes["edited"] = 1
        loaded.put(first)
        loaded.save()
        after = content(import_dataset(folder))
        assert list(after) == list(before) and bystander.exists()
        assert [one["image"] for one in after.values()] == [one["image"] for one in before.values()]
        assert after[first.id, first.subset]["attributes"]["edited"] == 1

    def test_saving_elsewhere_does_not_change_the_source(self, tmp_path) -> None:
        """An export binds the dataset to its folder, which is not the folder of the import.

        Images are kept without save_media, too: the replaced shard may have the only copy.
        """
        self.three(tmp_path / "a")
        loaded = import_dataset(tmp_path / "a")
        export(loaded, tmp_path / "b", save_media=True)
        loaded.put(item("new", data=jpeg(colour=5), subset="a"))
        loaded.remove("c", "c")
        loaded.save()
        assert len(shards_in(tmp_path / "a")) == 3
        found = content(import_dataset(tmp_path / "b"))
        assert sorted(name for name, _ in found) == ["a", "b", "new"]
        assert found["a", "a"]["image"] == jpeg()
        assert found["new", "a"]["image"] == jpeg(colour=5)

    def test_renamed_subsets_replace_their_shards(self, tmp_path) -> None:
        self.three(tmp_path)
        loaded = import_dataset(tmp_path, subset="all")
        loaded.put(item("new", subset="all"))
        loaded.save()
        assert shards_in(tmp_path) == ["all.tfrecord"]
        assert sorted(one.id for one in import_dataset(tmp_path)) == ["a", "b", "c", "new"]
        loaded = self.three(tmp_path / "t")
        loaded.transform("map_subsets", mapping={"a": "x", "b": "x", "c": "c"})
        loaded.save(save_media=True)
        assert shards_in(tmp_path / "t") == ["c.tfrecord", "x.tfrecord"]
        again = content(import_dataset(tmp_path / "t"))
        assert sorted(again) == [("a", "x"), ("b", "x"), ("c", "c")]
        assert all(one["image"] == jpeg() for one in again.values())

    def test_other_shards_in_the_folder_are_kept(self, tmp_path, caplog) -> None:
        export(dataset_of(item("o", subset="other"), names=["x"]), tmp_path)
        source = dataset_of(item("a", subset="a"))
        export(source, tmp_path)
        assert "written with the old one: other" in caplog.text
        source.put(item("b", subset="a"))
        source.save()
        assert (tmp_path / "other.tfrecord").exists()


# Exports that fail: all old files, or all new ones.


def test_a_failing_item_leaves_the_previous_files(tmp_path) -> None:
    export_one(tmp_path)
    before = files_in(tmp_path)

    def failing(*_: Any) -> bytes:
        raise KeyboardInterrupt

    media = compat.image_from_bytes(failing, "b.jpg", (1, 1))
    source = dataset_of(item("a", data=jpeg()), compat.DatasetItem(id="b", media=media))
    with pytest.raises(KeyboardInterrupt):
        export(source, tmp_path, save_media=True)
    assert files_in(tmp_path) == before


def cats(*names: str, subsets: tuple[str, ...] = ("train", "val")) -> Any:
    """Images with a cat; ``names`` are the classes, in their order."""
    box = Bbox(1, 2, 10, 12, label=names.index("cat"))
    items = [
        item(f"{subset}-{number}", box, data=jpeg(20, 40), subset=subset)
        for subset in subsets
        for number in range(2)
    ]
    return dataset_of(*items, names=names)


def fail_at_each_rename(old: Path, do: Callable[[Path], None]) -> tuple[Path, int]:
    """Call a function for copies of a folder, in which another rename fails each time.

    Return the copy in which no rename failed, and the number of renames.
    """
    for number in itertools.count(1):
        folder = old.parent / str(number)
        shutil.copytree(old, folder)
        with at_rename(number, fail) as watch:
            try:
                do(folder)
            except compat.errors.DatasetExportError as error:
                assert "Input/output error" in str(error)
                assert "existing files are unchanged" in str(error)
                assert files_in(folder) == files_in(old)
                continue
        assert not watch.reached
        return folder, number - 1
    raise AssertionError


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"layout": "roboflow"}])
def test_a_failing_rename_restores_the_old_files(options: dict[str, Any], tmp_path: Path) -> None:
    new = cats("dog", "cat", subsets=("train", "val", "test"))
    export(cats("cat", "dog"), tmp_path / "old", save_media=True, **options)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    export(new, tmp_path / "new", save_media=True, **options)
    assert files_in(tmp_path / "old") != files_in(tmp_path / "new")

    def export_again(folder: Path) -> None:
        export(new, folder, save_media=True, **options)

    folder, renames = fail_at_each_rename(tmp_path / "old", export_again)
    assert files_in(folder) == files_in(tmp_path / "new") and renames > 4


def test_saving_in_place_removes_a_subset_together_with_the_rest(tmp_path: Path) -> None:
    """The shards of a removed subset have the ids of the old label map."""
    old = cats("cat", "dog", subsets=("train", "val", "test"))
    export(old, tmp_path / "old", save_media=True, num_shards=2)

    def save_without_test(folder: Path) -> None:
        data = import_dataset(folder)
        for one in list(data.get_subset("test")):
            data.remove(one.id, "test")
        data.save(save_media=True)

    folder, renames = fail_at_each_rename(tmp_path / "old", save_without_test)
    assert [one.subset for one in find_shards(folder)] == ["train", "val"] and renames > 2

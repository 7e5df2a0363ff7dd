"""An export that fails between two renames: the old files or the new ones, no mix."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

datumaro = pytest.importorskip("datumaro")

from datumaro.components.dataset import Dataset  # noqa: E402
from tfod.datumaro import compat  # noqa: E402
from tfod.tfrecord.shard_sets.search import find_shards  # noqa: E402

from tests.files import files_in  # noqa: E402
from tests.image_kinds import saved  # noqa: E402
from tests.renames import at_rename, fail  # noqa: E402

IMAGE = saved("RGB", "PNG", (40, 20))
WAYS = {
    "flat": ("tf_detection_api", {"num_shards": 2}),
    "roboflow": ("tf_detection_api", {"layout": "roboflow"}),
}


def dataset(*names: str, subsets: tuple[str, ...] = ("train", "val")) -> Any:
    """Cats alone, whatever ids their classes have."""
    items = [
        compat.DatasetItem(
            f"{subset}-{number}",
            subset=subset,
            media=compat.image_from_bytes(lambda *_: IMAGE, "x.png", None),
            annotations=[compat.annotation.Bbox(1, 2, 10, 12, label=names.index("cat"))],
        )
        for subset in subsets
        for number in range(2)
    ]
    return Dataset.from_iterable(items, categories=list(names))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A format and its options."""
    return WAYS[request.param]


@pytest.fixture
def ends(way: tuple[str, dict[str, Any]], tmp_path: Path) -> tuple[Path, Path]:
    """A folder with the old export, and one with what the new one makes of it."""
    old, new = tmp_path / "old", tmp_path / "new"
    export_by(dataset("cat", "dog"), old, way)
    shutil.copytree(old, new)
    export_by(NEW, new, way)
    assert files_in(old) != files_in(new)
    return old, new


NEW = dataset("dog", "cat", subsets=("train", "val", "test"))


def export_by(data: Any, folder: Path, way: tuple[str, dict[str, Any]]) -> None:
    data.export(str(folder), way[0], save_media=True, **way[1])


def fail_at_each_rename(old: Path, do: Callable[[Path], None]) -> tuple[Path, int]:
    """Do it in copies of a folder, in which one rename after another fails: the old files stay.

    Gives the folder in which none failed any more, and how many there are.
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


def test_where_a_rename_fails_the_old_files_are_back(
    ends: tuple[Path, Path], way: tuple[str, dict[str, Any]]
) -> None:
    old, new = ends
    folder, renames = fail_at_each_rename(old, lambda folder: export_by(NEW, folder, way))
    assert files_in(folder) == files_in(new) and renames > 4


def test_saving_in_place_removes_what_goes_together_with_the_rest(tmp_path: Path) -> None:
    """A subset that is gone has the old label map's ids: its shards must not outlive that."""
    way = WAYS["flat"]
    export_by(dataset("cat", "dog", subsets=("train", "val", "test")), tmp_path / "old", way)

    def save_without_test(folder: Path) -> None:
        data = Dataset.import_from(str(folder), "tf_detection_api")
        for item in list(data.get_subset("test")):
            data.remove(item.id, "test")
        data.save(save_media=True)

    folder, renames = fail_at_each_rename(tmp_path / "old", save_without_test)
    assert [one.subset for one in find_shards(folder)] == ["train", "val"] and renames > 2

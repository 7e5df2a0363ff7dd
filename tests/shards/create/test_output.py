"""Files appear complete or not at all, and nothing that is there is lost."""

from __future__ import annotations

import itertools
import os
import pydoc
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tfod.shards.create.coco.create import create_coco
from tfod.shards.create.pascal import create_pascal

from tests.commands import Run
from tests.files import files_in
from tests.renames import at_rename, fail
from tests.shards.create.conftest import VOC, by_filename

PASCAL = ("pascal", "--data-dir", VOC)


@pytest.mark.parametrize("function", [create_pascal, create_coco])
def test_help_shows_what_is_called_not_what_plans_for_it(function: Callable[..., object]) -> None:
    shown = pydoc.plain(pydoc.render_doc(function))
    assert re.search(r"^create_(pascal|coco)\(.*\) -> 'Created'\n +Write ", shown, re.MULTILINE)


def test_what_is_there_is_kept_without_overwrite(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.record"
    assert run(*PASCAL, "--output-path", out).code == 0
    before = files_in(tmp_path)
    for options in ((), ("--num-shards", 2)):
        ran = run(*PASCAL, "--set", "val", "--output-path", out, *options)
        assert ran.code == 2 and f"{out} is there already" in ran.err
        assert files_in(tmp_path) == before


def test_overwrite_replaces_a_set_of_another_number_and_nothing_else(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("p.record-00000-of-00003.bak", "pp.record", "sub/p.record"):
        (tmp_path / name).write_bytes(b"mine")
    out = tmp_path / "p.record"
    assert run(*PASCAL, "--output-path", out, "--num-shards", 3).code == 0
    ran = run(*PASCAL, "--output-path", out, "--set", "val", "--overwrite")
    assert ran.code == 0 and "(was there)" in ran.out
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "label_map.pbtxt",
        "p.record",
        "p.record-00000-of-00003.bak",
        "pp.record",
        "sub",
    ]
    assert (tmp_path / "sub" / "p.record").read_bytes() == b"mine"
    assert len(by_filename(out)) == 4


def test_a_failure_leaves_what_was_there(run: Run, voc: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "p.record"
    assert run("pascal", "--data-dir", voc, "--output-path", out).code == 0
    before = files_in(out.parent)
    (voc / "JPEGImages" / "shapes_08.jpg").unlink()  # the last one of the set
    ran = run("pascal", "--data-dir", voc, "--output-path", out, "--overwrite")
    assert ran.code == 2 and files_in(out.parent) == before


def test_a_label_map_is_part_of_it(run: Run, tmp_path: Path) -> None:
    """Where the shards cannot take their names, neither does the label map."""
    for number in itertools.count(1):
        with at_rename(number, fail):
            ran = run(*PASCAL, "--output-path", tmp_path / "out" / "p.record")
        if ran.code == 0:
            break
        assert ran.code == 2 and not (tmp_path / "out").exists()
    assert number == 3  # the shard, the label map


def shapes_map(folder: Path) -> Path:
    path = folder / "shapes.pbtxt"
    names = ("circle", "square", "triangle", "étoile")
    path.write_text("".join(f"item {{ id: {i} name: '{n}' }}\n" for i, n in enumerate(names, 1)))
    return path


def test_a_folder_is_no_file(run: Run, tmp_path: Path) -> None:
    for name in (tmp_path, f"{tmp_path}/x/"):
        ran = run(*PASCAL, "--output-path", name)
        assert ran.code == 2 and "is a folder; name a file in it" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_no_shard(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.record")
    ran = run(*PASCAL, "--output-path", tmp_path / "p.record", "--overwrite")
    assert ran.code == 2 and "p.record is not a regular file" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["p.record"]


def test_the_label_maps_name_is_no_shards(run: Run, tmp_path: Path) -> None:
    ran = run(*PASCAL, "--output-path", tmp_path / "label_map.pbtxt")
    assert ran.code == 2 and "is the name of the label map" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_label_map_that_is_replaced_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    out = ("--output-path", tmp_path / "p.record", "--label-map-path", shapes_map(tmp_path))
    ran = run(*PASCAL, *out, "--overwrite")
    assert ran.code == 0 and "1 label maps replaced; other shards there" in ran.err
    ran = run(*PASCAL, *out, "--overwrite")
    assert ran.code == 0 and "replaced" not in ran.err


@pytest.mark.parametrize("value", ["0", "-1", "100000", "two"])
def test_numbers_of_shards(run: Run, tmp_path: Path, value: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(*PASCAL, "--output-path", tmp_path / "p.record", "--num-shards", value)

"""The command ``tfod diff``: output formats, exit statuses and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Run
from tests.mutants.sound import flip
from tests.records import encode, image, objects, write_shard

_ROOT = Path(__file__).parents[2]
_SHAPES = _ROOT / "examples" / "shapes_coco"
_HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.jpg"


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Datasets with names that contain markup and control characters of terminals."""
    label_map = "item { id: 1 name: '<b>cat' }"
    cat = objects([[0.1, 0.1, 0.3, 0.4]], ["<b>cat"], [1])
    moved = objects([[0.15, 0.1, 0.35, 0.4], [0.5, 0.5, 0.9, 0.9]], ["<b>cat", "<i>"], [1, 2])
    write_shard(tmp_path / "a", "<u>", encode(image(_HOSTILE) | cat), label_map=label_map)
    records = encode(image(_HOSTILE) | moved | {"<em>": "x"}), encode(image("new.jpg") | cat)
    write_shard(tmp_path / "b", "<u>", *records, label_map=label_map)
    return tmp_path / "a", tmp_path / "b"


def test_converted_shards_are_equal_to_their_source(run: Run, tmp_path: Path) -> None:
    shards = tmp_path / "s"
    assert run("convert", _SHAPES, shards, "--masks").code == 0
    lines = [
        "EQUAL: no differences",
        f"A: {_SHAPES} (coco): 12 records, 35 boxes",
        f"B: {shards} (shards): 12 records, 35 boxes; label map: {shards / 'label_map.pbtxt'}",
    ]
    assert run("diff", _SHAPES, shards) == (0, "\n".join(lines) + "\n", "")
    assert run("convert", _SHAPES, tmp_path / "val", "--masks", "--set", "val").code == 0
    assert run("diff", _SHAPES, tmp_path / "val").code == 1
    done = run("diff", _SHAPES, tmp_path / "val", "--set", "val")
    assert done.code == 0 and "(coco): 4 records, " in done.out
    assert "no subset 'absent'" in run("diff", _SHAPES, _SHAPES, "--set", "absent").refused()


def test_text(run: Run, sides: tuple[Path, Path]) -> None:
    done = run("diff", *sides, "--max-differences", 1)
    assert done.code == 1
    head, *_, last = done.out.splitlines()
    assert head.startswith("DIFFERENT: 1 record added, 1 box added, 1 box moved, 1 value changed,")
    assert "\x1b" not in done.out and "\u202e" not in done.out
    assert "\n<u>: <script>alert(1)</script>\\x1b[31m\\u202egnp.jpg\n" in done.out
    assert "  value changed: <em>\n" in done.out
    assert last == "  record added: with 1 box"
    *_, last = run("diff", *sides, "--max-differences", 0).out.splitlines()
    assert last.startswith("Not listed: 1 record added, 1 box added,")


def test_json(run: Run, sides: tuple[Path, Path]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((_ROOT / "docs" / "diff.schema.json").read_text())
    for pair, code in ((sides, 1), (sides[::-1], 1), (sides[:1] * 2, 0)):
        done = run("diff", *pair, "--format", "json")
        found = json.loads(done.out)
        jsonschema.validate(found, schema)
        assert done.code == code and found["equal"] == (code == 0)
    assert not found["differences"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("SIDE", "nowhere"), "nowhere: no such file or folder"),
        (("nowhere", "SIDE"), "nowhere: no such file or folder"),
        (("SIDE", "EMPTY"), "EMPTY: is empty"),
        (("SIDE", "BROKEN"), "checksum"),
        (("SIDE", "SIDE", "--from-a", "coco"), "no JSON of COCO's instances"),
        (("SIDE", "SIDE", "--label-map", "nothing.pbtxt"), "nothing.pbtxt"),
    ],
)
def test_sources_that_cannot_be_compared(
    run: Run, sides: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    (tmp_path / "EMPTY").mkdir()
    broken = flip((sides[0] / "<u>.tfrecord").read_bytes(), -1)
    (tmp_path / "BROKEN.tfrecord").write_bytes(broken)
    paths = {"SIDE": sides[0], "EMPTY": tmp_path / "EMPTY", "BROKEN": tmp_path / "BROKEN.tfrecord"}
    done = run("diff", *(paths.get(one, one) for one in arguments))
    assert done.code == 2 and not done.out
    assert error in done.err.splitlines()[-1]


def test_a_side_with_missing_images_is_not_compared(run: Run, tmp_path: Path) -> None:
    assert run("convert", _SHAPES, tmp_path / "v", "--to", "voc").code == 0
    next((tmp_path / "v" / "JPEGImages").iterdir()).unlink()
    error = run("diff", _SHAPES, tmp_path / "v").refused()
    assert "tfod: not compared: images that are missing: 1 (" in error
    alone = run("diff", _SHAPES, tmp_path / "v", "--without", "images")
    assert alone.code == 1 and alone.out.startswith("DIFFERENT: 13 values changed\n")

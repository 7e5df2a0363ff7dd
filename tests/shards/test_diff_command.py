"""``tfod diff`` as it is typed: formats, exit statuses, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Run
from tests.mutants.sound import flip
from tests.records import encode, image, objects, write_shard

_EXAMPLES = Path(__file__).parents[2] / "examples"
_SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "diff.schema.json").read_text())
_HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.jpg"


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Names that would like to be markup, and to steer a terminal."""
    label_map = "item { id: 1 name: '<b>cat' }"
    cat = objects([[0.1, 0.1, 0.3, 0.4]], ["<b>cat"], [1])
    moved = objects([[0.15, 0.1, 0.35, 0.4], [0.5, 0.5, 0.9, 0.9]], ["<b>cat", "<i>"], [1, 2])
    write_shard(tmp_path / "a", "<u>", encode(image(_HOSTILE) | cat), label_map=label_map)
    records = encode(image(_HOSTILE) | moved | {"<em>": "x"}), encode(image("new.jpg") | cat)
    write_shard(tmp_path / "b", "<u>", *records, label_map=label_map)
    return tmp_path / "a", tmp_path / "b"


def test_a_shard_equals_what_it_was_made_from(run: Run, tmp_path: Path) -> None:
    source = _EXAMPLES / "shapes_coco"
    assert run("convert", source, tmp_path / "s", "--masks").code == 0
    done = run("diff", source, tmp_path / "s")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"EQUAL: no differences\nA: {source} (coco): 12 records, 35 boxes\n"
        f"B: {tmp_path / 's'} (shards): 12 records, 35 boxes; "
        f"label map: {tmp_path / 's' / 'label_map.pbtxt'}\n"
    )


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
    for pair, code in ((sides, 1), (sides[::-1], 1), (sides[:1] * 2, 0)):
        done = run("diff", *pair, "--format", "json")
        found = json.loads(done.out)
        jsonschema.validate(found, _SCHEMA)
        assert done.code == code and found["equal"] == (code == 0)
    assert not found["differences"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("SIDE", "nowhere"), "nowhere: no such file or folder"),
        (("nowhere", "SIDE"), "nowhere: no such file or folder"),
        (("SIDE", "EMPTY"), "EMPTY: is empty"),
        (("SIDE", "BROKEN"), "checksum"),
        (("SIDE", "SIDE", "--from-a", "coco"), "no JSON of COCO's instances"),
        (("SIDE", "SIDE", "--label-map", "nothing.pbtxt"), "nothing.pbtxt"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    run: Run, sides: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "EMPTY").mkdir()
    broken = flip((sides[0] / "<u>.tfrecord").read_bytes(), -1)
    (tmp_path / "BROKEN.tfrecord").write_bytes(broken)
    paths = {"SIDE": sides[0], "EMPTY": tmp_path / "EMPTY", "BROKEN": tmp_path / "BROKEN.tfrecord"}
    done = run("diff", *(paths.get(one, one) for one in arguments))
    assert done.code == 2 and not done.out
    assert says in done.err.splitlines()[-1]


def test_one_subset(run: Run, tmp_path: Path) -> None:
    source = _EXAMPLES / "shapes_coco"
    assert run("convert", source, tmp_path / "val", "--masks", "--set", "val").code == 0
    assert run("diff", source, tmp_path / "val").code == 1
    done = run("diff", source, tmp_path / "val", "--set", "val")
    assert done.code == 0 and "(coco): 4 records, " in done.out
    assert "no subset 'absent'" in run("diff", source, source, "--set", "absent").refused()


def test_a_side_that_lacks_images_is_not_compared(run: Run, tmp_path: Path) -> None:
    assert run("convert", _EXAMPLES / "shapes_coco", tmp_path / "v", "--to", "voc").code == 0
    next((tmp_path / "v" / "JPEGImages").iterdir()).unlink()
    error = run("diff", _EXAMPLES / "shapes_coco", tmp_path / "v").refused()
    assert "tfod: not compared: images that are missing: 1 (" in error
    alone = run("diff", _EXAMPLES / "shapes_coco", tmp_path / "v", "--without", "images")
    assert alone.code == 1 and alone.out.startswith("DIFFERENT: 13 values changed\n")

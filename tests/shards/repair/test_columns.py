"""Boxes whose columns their writer has mixed up, and repairs that would remove too much."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tfod
from tfod.check.records.boxes import Boxes
from tfod.check.records.column_order import SIDES, BoxColumns, ColumnOrder
from tfod.cli.main import main
from tfod.detection import keys
from tfod.tfrecord.writer import write_records

from tests.commands import Run
from tests.mutants.sound import HEIGHT, LABEL_MAP, WIDTH, png, with_boxes

Box = tuple[float, float, float, float]


def some_boxes(count: int = 40) -> list[Box]:
    """Boxes all over an image of 40 x 20 pixels: xmin, ymin, xmax, ymax."""
    random = np.random.default_rng(3)
    low = random.uniform((0, 0), (WIDTH - 4, HEIGHT - 4), (count, 2))
    high = low + random.uniform(2, (WIDTH, HEIGHT) - low, (count, 2))
    return [tuple(box) for box in np.hstack((low, high)).tolist()]


def divided(box: Sequence[float]) -> Box:
    """As a script divides what it takes for xmin, ymin, xmax, ymax."""
    return box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT


def write_boxes(folder: Path, boxes: Sequence[Sequence[float]]) -> Path:
    """A shard with a record for each box, and its label map."""
    records = (
        # No two images are the same.
        with_boxes([box], name=f"{n}.png", encoded=png() + bytes([n]))
        for n, box in enumerate(boxes)
    )
    write_records(folder, "train", records)
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    return folder


def boxes_in(folder: Path) -> np.ndarray:
    """The boxes of all records, one each."""
    examples = tfod.read_examples(folder / "train.tfrecord")
    return np.stack([np.concatenate([one.floats(key) for key in keys.BOX]) for one in examples])


# Each takes a box's true columns in another order, as scripts are seen to do.
MIXED_UP = {
    # The children of bndbox in the order of Open Images, read by position.
    "xmin, xmax, ymin, ymax": ((0, 2, 1, 3), "ymin=xmax,xmax=ymin"),
    "ymin, xmin, ymax, xmax": ((1, 0, 3, 2), "xmin=ymin,ymin=xmin,xmax=ymax,ymax=xmax"),
    "xmax, ymax, xmin, ymin": ((2, 3, 0, 1), "xmin=xmax,ymin=ymax,xmax=xmin,ymax=ymin"),
    "ymin, ymax, xmin, xmax": ((1, 3, 0, 2), "xmin=xmax,ymin=xmin,xmax=ymax,ymax=ymin"),
}


@pytest.mark.parametrize("name", MIXED_UP)
def test_columns_mixed_up_in_pixels_are_named_and_repaired_when_told(
    name: str, tmp_path: Path, run: Run
) -> None:
    taken, output = MIXED_UP[name]
    true = some_boxes()
    source = write_boxes(tmp_path / "in", [divided([box[at] for at in taken]) for box in true])
    before = (source / "train.tfrecord").read_bytes()
    option = "--columns" if taken == (2, 3, 0, 1) else "--pixel-columns"
    status, out, _ = run("check", source)
    assert status == 1
    assert f"{option}={output}\n" in out and "\nBOX013 error: " in out

    status, out, err = run("repair", source, "-o", tmp_path / "untold")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"pass {option}={output}, and look at the result" in err
    assert not (tmp_path / "untold").exists()
    status, out, _ = run("repair", source, "--dry-run")
    assert status == 2 and "Refused without --dry-run" in out and f"{option}={output}" in out

    reported = ["--report", tmp_path / "changes.json", f"{option}={output}"]
    status, out, _ = run("repair", source, "-o", tmp_path / "out", *reported)
    assert status == 0 and "BOX013 fixed" in out and "(40)" in out
    wanted = np.array([divided(box) for box in true])
    np.testing.assert_allclose(boxes_in(tmp_path / "out"), wanted, atol=1e-6)
    changes = json.loads((tmp_path / "changes.json").read_text())["changes"]
    assert [one["code"] for one in changes] == ["BOX013"] * 40
    assert (source / "train.tfrecord").read_bytes() == before


def test_fractions_fit_two_orders_and_both_are_named(tmp_path: Path, run: Run) -> None:
    """Fractions in another order fit turned by the diagonal, too: only looking decides."""
    true = [divided(box) for box in some_boxes()]
    source = write_boxes(tmp_path / "in", [(box[0], box[2], box[1], box[3]) for box in true])
    status, _, err = run("repair", source, "-o", tmp_path / "out")
    assert status == 2
    assert "pass --columns=ymin=xmax,xmax=ymin or --columns=xmin=xmax,ymin=xmin,xmax=ymax," in err
    reported = "--columns=ymin=xmax,xmax=ymin"
    assert run("repair", source, "-o", tmp_path / "out", reported)[0] == 0
    np.testing.assert_allclose(boxes_in(tmp_path / "out"), true, atol=1e-6)


def test_a_set_of_small_shards_is_checked_as_one(tmp_path: Path, run: Run) -> None:
    """Three boxes in each shard: too few to tell, and few enough to be taken for slips."""
    taken, output = MIXED_UP["xmin, xmax, ymin, ymax"]
    source = write_boxes(
        tmp_path / "in", [divided([box[at] for at in taken]) for box in some_boxes(30)]
    )
    assert main(["reshard", str(source), str(tmp_path / "many"), "--num-shards", "10"]) == 0
    status, out, _ = run("check", tmp_path / "many")
    assert status == 1 and out.count("BOX013 error") == 1 and f"--pixel-columns={output}" in out
    status, _, err = run("repair", tmp_path / "many", "-o", tmp_path / "out")
    assert status == 2 and "many, train: 28 of 30 boxes" in err
    assert f"pass --pixel-columns={output}" in err


def test_files_of_one_image_are_checked_as_one(tmp_path: Path, run: Run) -> None:
    """Two boxes in each file, and each file a set of its own, as scripts for one image write."""
    taken, output = MIXED_UP["xmin, xmax, ymin, ymax"]
    boxes = [divided([box[at] for at in taken]) for box in some_boxes(60)]
    source = tmp_path / "in"
    for n in range(30):
        payload = with_boxes(boxes[2 * n : 2 * n + 2], name=f"{n}.png", encoded=png() + bytes([n]))
        write_records(source, f"image{n}", [payload])
    (source / "label_map.pbtxt").write_bytes(LABEL_MAP)
    status, out, err = run("repair", source, "-o", tmp_path / "out")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{source}: 59 of 60 boxes" in err and f"pass --pixel-columns={output}" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("sound", "refused"), [(0, True), (1, True), (3, True), (4, False)])
def test_three_inverted_boxes_are_slips_of_more_than_six(
    sound: int, refused: bool, tmp_path: Path, run: Run
) -> None:
    true = [divided(box) for box in some_boxes(3 + sound)]
    slips = [(box[2], box[1], box[0], box[3]) for box in true[:3]]
    source = write_boxes(tmp_path / "in", [*slips, *true[3:]])
    status, _, err = run("repair", source, "-o", tmp_path / "out")
    assert status == (2 if refused else 0)
    assert f"3 of {3 + sound} boxes are inverted" in err or not refused
    assert (tmp_path / "out").exists() is not refused


def test_two_inverted_boxes_of_one_small_shard_are_slips_of_the_whole(
    tmp_path: Path, run: Run
) -> None:
    true = [divided(box) for box in some_boxes(62)]
    source = write_boxes(tmp_path / "in", true[2:])
    slips = [(box[2], box[1], box[0], box[3]) for box in true[:2]]
    write_records(source, "val", [with_boxes(slips, name="val.png")])
    assert run("repair", source, "-o", tmp_path / "out")[0] == 0


def test_one_inverted_box_of_one_is_a_slip(tmp_path: Path, run: Run) -> None:
    source = write_boxes(tmp_path / "in", [(0.75, 0.25, 0.5, 0.5)])
    assert run("repair", source, "-o", tmp_path / "out")[0] == 0
    assert boxes_in(tmp_path / "out").tolist() == [[0.5, 0.25, 0.75, 0.5]]


@pytest.mark.parametrize(("factor", "shift", "count"), [(1.5, 0, 51), (1, 0.4, 56)])
def test_boxes_of_which_many_are_far_outside_are_not_clipped(
    factor: float, shift: float, count: int, tmp_path: Path, run: Run
) -> None:
    true = np.array([divided(box) for box in some_boxes(60)])
    source = write_boxes(tmp_path / "in", (true * factor + shift).tolist())
    status, out, err = run("repair", source, "-o", tmp_path / "out")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{count} of 60 boxes are far outside the image, which are too many" in err
    assert "or pass --skip BOX003,BOX004 to leave them" in err
    assert not (tmp_path / "out").exists()
    left = run("repair", source, "-o", tmp_path / "out", "--skip", "BOX003,BOX004")
    assert left[0] == 1 and (boxes_in(tmp_path / "out") == boxes_in(source)).all()


def test_three_boxes_far_outside_are_clipped(tmp_path: Path, run: Run) -> None:
    source = write_boxes(
        tmp_path / "in", [*[(0.5, 0.5, 1.25, 1)] * 3, *map(divided, some_boxes(37))]
    )
    assert run("repair", source, "-o", tmp_path / "out")[0] == 0
    assert boxes_in(tmp_path / "out")[:3].tolist() == [[0.5, 0.5, 1, 1]] * 3


@pytest.mark.parametrize(("wrong", "refused"), [(3, False), (4, True)])
def test_a_few_inverted_boxes_are_slips(
    wrong: int, refused: bool, tmp_path: Path, run: Run
) -> None:
    true = [divided(box) for box in some_boxes()]
    slips = [(box[2], box[1], box[0], box[3]) for box in true[:wrong]]
    source = write_boxes(tmp_path / "in", [*slips, *true[wrong:]])
    assert "BOX013" not in run("check", source)[1]
    status, out, err = run("repair", source, "-o", tmp_path / "out")
    if not refused:
        assert status == 0 and "BOX006 fixed: box is inverted (3)" in out
        np.testing.assert_allclose(boxes_in(tmp_path / "out"), true, atol=1e-6)
        return
    assert status == 2 and "4 of 40 boxes are inverted, which are too many for slips" in err
    assert not (tmp_path / "out").exists()
    assert run("repair", source, "-o", tmp_path / "out", "--skip", "BOX006")[0] == 1
    assert (boxes_in(tmp_path / "out") == boxes_in(source)).all()


def test_columns_that_do_not_fit_are_refused(tmp_path: Path, run: Run) -> None:
    source = write_boxes(tmp_path / "in", [divided(box) for box in some_boxes()])
    wrong = "--columns=xmin=xmax,xmax=xmin"
    status, _, err = run("repair", source, "-o", tmp_path / "out", wrong)
    assert status == 2 and "40 of 40 boxes are inverted" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xmin=ymin", "nothing is read from xmin; name every key that moves"),
        ("xmin=ymin,ymin=ymin", "nothing is read from xmin"),
        ("xmin=ymin,xmin=ymax", "xmin is given twice"),
        ("xmin=xmin", "no key moves"),
        ("left=xmin", "'left=xmin' is not like xmin=ymin, of xmin, ymin, xmax, ymax"),
        ("", "'' is not like xmin=ymin"),
    ],
)
def test_columns_are_a_permutation(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["repair", str(tmp_path), "-o", "out", f"--columns={text}"])
    assert caught.value.code == 2 and why in capsys.readouterr().err


@pytest.mark.parametrize("code", ["BOX013", "BOX"])
def test_columns_are_not_asked_for_and_skipped(code: str, tmp_path: Path, run: Run) -> None:
    source = write_boxes(tmp_path / "in", [divided(box) for box in some_boxes()])
    reported = ["--columns=xmin=xmax,xmax=xmin", "--skip", code]
    status, _, err = run("repair", source, "-o", tmp_path / "out", *reported)
    assert status == 2 and f"--columns asks for what --skip {code} leaves; pass one of them" in err


def test_pixels_need_the_size_of_the_image(tmp_path: Path, run: Run) -> None:
    nameless = with_boxes([(0.1, 0.2, 0.3, 0.4)], encoded=None, height=None, width=None)
    write_records(tmp_path, "train", [nameless])
    reported = "--pixel-columns=xmin=ymin,ymin=xmin,xmax=ymax,ymax=xmax"
    status, _, err = run("repair", tmp_path, "-o", tmp_path / "out", reported)
    assert status == 2 and "the size of the image is not known of a.jpg" in err


def test_parts_of_a_shard_add_up_to_the_whole() -> None:
    """Large shards are checked in parts, by several processes."""
    corners = np.array([divided((box[0], box[2], box[1], box[3])) for box in some_boxes(300)])
    corners[7] = math.nan

    def of(part: slice) -> BoxColumns:
        count = len(corners[part])
        sizes = (np.full(count, float(one)) for one in (HEIGHT, WIDTH))
        return BoxColumns().with_boxes(
            Boxes(corners[part], np.ones(count, int), *sizes, [[]] * count)
        )

    whole = of(slice(None))
    assert (whole.boxes, whole.are_square) == (299, False)
    assert whole == of(slice(0, 50)) + of(slice(50, 51)) + of(slice(51, None))
    assert whole.candidates == (ColumnOrder.parse("ymin=xmax,xmax=ymin", in_pixels=True),)
    assert [SIDES[at] for at in whole.candidates[0].stored] == ["xmin", "xmax", "ymin", "ymax"]


# A repair that would leave nothing


def test_many_objects_are_not_removed_unless_insisted(tmp_path: Path, run: Run) -> None:
    flat = [(0.25, 0.5, 0.75, 0.5)] * 6
    source = write_boxes(tmp_path / "in", [*flat, *map(divided, some_boxes(94))])
    status, _, err = run("repair", source, "-o", tmp_path / "out")
    assert status == 2 and err.count("\n") == 1
    assert "6 of 100 objects (6 %) would be removed, more than 5 %;" in err
    assert "pass --max-dropped 6 to remove them; nothing was written" in err
    assert not (tmp_path / "out").exists()
    status, out, _ = run("repair", source, "--dry-run")
    assert status == 2 and "Refused without --dry-run: 6 of 100 objects (6 %)" in out
    assert "BOX007 fixed: box without area (6)" in out
    status, out, _ = run("repair", source, "-o", tmp_path / "out", "--max-dropped", 6)
    assert status == 0 and "6 objects dropped" in out


def test_one_object_in_twenty_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run
) -> None:
    source = write_boxes(tmp_path / "in", [(math.nan, 0, 1, 1), *map(divided, some_boxes(19))])
    assert run("repair", source, "-o", tmp_path / "out")[0] == 0
    with pytest.raises(SystemExit):
        main(["repair", str(source), "-o", str(tmp_path / "b"), "--max-dropped", "101"])
    assert "is not a whole number from 0 to 100" in capsys.readouterr().err


def test_many_records_are_not_removed_unless_insisted(tmp_path: Path, run: Run) -> None:
    """Damaged records, whose objects are not known."""
    source = write_boxes(tmp_path / "in", [divided(box) for box in some_boxes(20)])
    path = source / "train.tfrecord"
    data = bytearray(path.read_bytes())
    for record in list(tfod.read_records(path))[:4]:
        data[record.offset + 12 + 20] ^= 1
    path.write_bytes(data)
    status, out, err = run("repair", source, "-o", tmp_path / "out")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "4 of 20 records (20 %) would be removed, more than 5 %; look at them with" in err
    assert not (tmp_path / "out").exists()
    status, out, _ = run("repair", source, "-o", tmp_path / "out", "--max-dropped", 20)
    assert status == 0 and out.startswith("4 changes made: 0 records changed, 4 dropped\n")


def test_records_that_are_there_twice_are_not_lost(tmp_path: Path, run: Run) -> None:
    boxes = [divided(box) for box in some_boxes(10)]
    source = write_boxes(tmp_path / "in", boxes)
    path = source / "train.tfrecord"
    path.write_bytes(path.read_bytes() * 2)
    status, out, _ = run("repair", source, "-o", tmp_path / "out")
    assert status == 0 and "10 dropped\n" in out
    assert len(boxes_in(tmp_path / "out")) == 10

"""At most 80 letters of any text from the data are in a message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import Run
from tests.mutants.sound import LABEL_MAP, features, other, record, shard
from tests.records import encode

LONG = "x" * 10_000
LISTS = [LONG, "cat"]
RECORDS = {
    "class": record(text=LISTS),
    "file name": record(filename=f"{LONG}.jpg"),
    "source id": record(source_id=LONG),
    "format": record(format=LONG),
    "checksum": record(sha256=LONG),
    "key": encode({**features(), f"image/object/{LONG}": 1}),
    "attribute": record(**{f"image/object/{LONG}": ["a", "b"]}),
}
DATA = (
    *("check S", "check S --for cvat", "check S --for efficientdet", "check S --format github"),
    *("describe S", "show S -o sheet.html", "diff S other", "diff other S", "reshard S out1"),
    *("repair S out2", "repair S out2 --odd-boxes drop", "convert S out3 --to coco"),
    *("convert S out4 --to voc", "convert S out5 --to yolo", "convert S x.csv", "convert S x.xml"),
    "convert S out6 --to shards --masks",
)
OPTIONS = (
    *(f"check S --select {LONG}", f"check S --severity {LONG}=error", f"rules {LONG}"),
    f"diff S other --without {LONG}",
)


@pytest.fixture
def assert_short(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Check what a command says about ``S``, a folder of a record and ``other``."""
    monkeypatch.chdir(tmp_path)

    def check(payload: bytes, command: str) -> None:
        for name, first in (("S", payload), ("other", other())):
            Path(name).mkdir(exist_ok=True)
            Path(name, "train.tfrecord").write_bytes(shard(first, other()))
            Path(name, "label_map.pbtxt").write_bytes(LABEL_MAP)
        result = run(*command.split())
        said = re.sub(r"(?m)^ +'.+': tf\.io\..+$", "", result.out + result.err)  # code to copy
        longest = max(map(len, re.findall("x{40,}", said)), default=0)
        assert longest <= 80, f"{command[:60]}: {longest} letters: {result.err[:300]}"
        assert "Traceback" not in result.err

    return check


@pytest.mark.parametrize("kind", RECORDS)
def test_of_texts_in_the_data(kind: str, assert_short: object) -> None:
    for command in DATA:
        assert_short(RECORDS[kind], command)


@pytest.mark.parametrize("command", OPTIONS, ids=lambda command: command[:20])
def test_of_options(command: str, assert_short: object) -> None:
    assert_short(record(), command)

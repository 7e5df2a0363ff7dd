"""Messages have at most 80 letters of a text from the data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import excerpt

from tests.commands import Run
from tests.files import write_file
from tests.mutants.sound import LABEL_MAP, features, other, record, shard
from tests.records import encode

LONG = "é" * 10_000
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


DOCUMENTS = {
    "rows.csv": f"filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,9,9,{LONG},1,1,{LONG},9\n",
    "voc/a.xml": f"<annotation><filename>{LONG}.jpg</filename><object><name>{LONG}</name>"
    "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
    "</annotation>",
    "a.json": f"""{{"images": [{{"id": 1, "file_name": "{LONG}.jpg", "width": 9, "height": 9}}],
    "categories": [{{"id": 1, "name": "{LONG}"}}, {{"id": 1, "name": "{LONG}a"}}],
    "annotations": [{{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}}]}}""",
    "yolo/data.yaml": f"names: ['{LONG}', '{LONG}']\ntrain: .\nkpt_shape: '{LONG}'\n",
}


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
        longest = max(map(len, re.findall("é{40,}", said)), default=0)
        assert longest <= 80, f"{command[:60]}: {longest} letters: {result.err[:300]}"
        assert max(map(len, said.split())) < 500  # also if the letters are escaped
        assert "Traceback" not in result.err

    return check


@pytest.mark.parametrize("kind", RECORDS)
def test_of_texts_in_the_data(kind: str, assert_short: object) -> None:
    for command in DATA:
        assert_short(RECORDS[kind], command)


@pytest.mark.parametrize("command", OPTIONS, ids=lambda command: command[:20])
def test_of_options(command: str, assert_short: object) -> None:
    assert_short(record(), command)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("options", ["", "--no-images", "--set absent"])
def test_of_documents(run: Run, tmp_path: Path, name: str, options: str) -> None:
    write_file(tmp_path / name, DOCUMENTS[name])
    result = run("convert", tmp_path / name.partition("/")[0], tmp_path / "out", *options.split())
    assert result.out + result.err and "é" * 81 not in result.out + result.err


VALUES = st.text(max_size=300) | st.lists(st.integers() | st.text(max_size=99)) | st.integers()


@given(VALUES, st.sampled_from([1, 40]))
def test_an_excerpt_is_short_and_a_short_one_is_complete(value: object, factor: int) -> None:
    value = value * factor if isinstance(value, (str, list)) else value
    text = excerpt(value)
    assert len(text) <= 80 and text[-1] == repr(value)[-1]
    assert text == repr(value) or (len(repr(value)) > 80 and "…" in text)

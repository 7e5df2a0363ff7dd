"""New shards are checked before they appear."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.commands import Run
from tests.formats.conftest import IMAGES, by_filename
from tests.formats.one_image import FORMATS, NAME
from tests.image_kinds import file_of


@pytest.mark.parametrize("kind", FORMATS)
def test_invalid_shards_are_not_written(convert: Run, tmp_path: Path, kind: str) -> None:
    """The second half of the image is missing."""
    noise = file_of(Image.effect_noise((200, 100), 50), "JPEG")
    (tmp_path / NAME).write_bytes(noise[: len(noise) // 2])
    ran = convert(*FORMATS[kind](tmp_path, (200, 100), [(20, 10, 100, 50)]))
    assert ran.code == 2 and ran.out == "" and not (tmp_path / "out").exists()
    first, error = ran.err.splitlines()
    assert first == "tfod: nothing was written: the result would be INVALID, 1 error"
    assert error.startswith(f"  {'default' if kind == 'voc' else 'a'}, {NAME}: ")
    assert "(IMG009)" in error


def test_ids_begin_at_1(convert: Run, tmp_path: Path) -> None:
    """In the OD API, only the background has the id 0."""
    shutil.copy(IMAGES / "shapes_01.jpg", tmp_path / NAME)
    odd = tmp_path / "odd.pbtxt"
    odd.write_text("item { id: 0 name: 'cat' }")
    dataset = FORMATS["voc"](tmp_path, None, [(20, 10, 100, 50)])
    convert(*dataset, "--label-map", odd).succeeded()
    assert by_filename(tmp_path / "out")[NAME].class_label == [1]


def test_ten_errors_are_named_of_more(convert: Run, tmp_path: Path) -> None:
    """The trainer of the OD API cannot use GIFs."""
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for number in range(12):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number:02}.gif")
        rows.append(f"{number:02}.gif,20,20,cat,1,1,9,9")
    (tmp_path / "a.csv").write_text("\n".join(rows))
    ran = convert(tmp_path / "a.csv", tmp_path / "out" / "x.record")
    lines = ran.err.splitlines()
    assert ran.code == 2 and len(lines) == 12
    assert lines[0].endswith("would be INVALID, 12 errors") and lines[-1] == "  and 2 more"
    assert lines[1].startswith("  a, 00.gif: ") and "(IMG005)" in lines[1]
    assert "script" not in ran.err

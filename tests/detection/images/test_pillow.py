"""Images open only in formats whose decoders start no program."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tfod.detection.detection import Detection
from tfod.detection.images.exif_rotation import rotate_image
from tfod.detection.images.mask_images import decode_mask_png
from tfod.detection.images.pillow import open_image
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.cvat.frame_detections import DetectionBuilder

from tests.commands import Run
from tests.image_kinds import plain_image, programs_of_pillow
from tests.mutants.sound import LABEL_MAP, other, record, shard

KINDS = programs_of_pillow()


def test_pillow_alone_would_start_ghostscript(ghostscript: Callable[[], bool]) -> None:
    with contextlib.suppress(Exception), Image.open(io.BytesIO(KINDS["eps"])) as image:
        image.load()
    assert ghostscript()


@pytest.mark.parametrize("kind", KINDS)
def test_other_formats_are_not_opened(kind: str, ghostscript: Callable[[], bool]) -> None:
    data = KINDS[kind]
    with pytest.raises(OSError, match="JPEG/PNG"):
        open_image(data)
    with pytest.raises(ValueError, match="PNG"):
        decode_mask_png(data)
    with pytest.raises(TfodError, match=rf"a\.{kind} .*JPEG/PNG"):
        rotate_image(data, f"a.{kind}")
    builder = DetectionBuilder(LabelMap(()), {}, save_masks=False)
    frame = Detection(filename=f"a.{kind}", encoded=b"", height=8, width=8)
    assert builder.complete(frame, data).encoded == data  # unknown to TensorFlow, and kept
    assert not ghostscript()


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_starts_a_program(
    kind: str, run: Run, tmp_path: Path, ghostscript: Callable[[], bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard(record(encoded=KINDS[kind], format=kind), other()))
    (tmp_path / "label_map.pbtxt").write_bytes(LABEL_MAP)
    checked = run("check", path)
    assert checked.code == 1 and "IMG002" in checked.out and "a.jpg" in checked.out
    shown = run("show", path, "-o", tmp_path / "sheet.html")
    assert shown.code == 0, shown
    for target in ("coco", "shards", "voc"):
        converted = run("convert", path, tmp_path / target, "--to", target)
        assert converted.code in (0, 2) and "Traceback" not in converted.err, converted
        assert converted.code == 0 or "a.jpg" in converted.err
    assert not ghostscript()


def test_images_of_the_usual_formats_open() -> None:
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"):
        with open_image(plain_image((8, 6), kind=kind)) as image:
            assert image.size == (8, 6)

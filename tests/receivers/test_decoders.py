"""What stops the receivers' own decoders, and what they read with losses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.commands import Run
from tests.image_kinds import file_of
from tests.mutants.sound import CAT_BOX, DOG_BOX, HEIGHT, LABEL_MAP, WIDTH, jpeg, record, shard
from tests.receivers.decoders import model_maker, od_api, tf_vision


def test_a_sound_record() -> None:
    payload = record(source_id="7")
    for read in (tf_vision(), model_maker(), od_api()):
        found = read(payload)
        assert found.image.shape == (HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(found.boxes, np.float32([CAT_BOX, DOG_BOX]))
        assert list(found.classes) == [1, 2]
        assert int(found.source_id) == 7


def checked(run: Run, folder: Path, payload: bytes, receiver: str) -> tuple[dict[str, int], int]:
    """What ``tfod check --for`` counts of a record, and the exit code."""
    (folder / "a.tfrecord").write_bytes(shard(payload))
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    masks = "--ignore", "BOX023"  # they fill the whole image here
    done = run("check", folder / "a.tfrecord", "--for", receiver, "--format", "json", *masks)
    return json.loads(done.out)["counts"]["by_code"], done.code


@pytest.mark.parametrize(
    ("mode", "value", "is_sound"), [("L", 1, True), ("L", 255, False), ("1", 1, False)]
)
def test_values_of_masks(run: Run, tmp_path: Path, mode: str, value: int, is_sound: bool) -> None:
    """TF-Vision trains on them as they are; the OD API takes what is not 0, whatever it is."""
    pixels = np.full((HEIGHT, WIDTH), value, bool if mode == "1" else np.uint8)
    mask = file_of(Image.fromarray(pixels))
    payload = record(source_id="7", **{"image/object/mask": [mask] * 2})
    theirs = tf_vision(masks=True)(payload).masks
    assert theirs is not None and bool(theirs.max() <= 1) is is_sound
    others = od_api(masks=True)(payload).masks
    assert others is not None and others.max() == 1
    for receiver, is_valid in (("tf-vision", is_sound), ("od-api", True), ("model-maker", True)):
        assert checked(run, tmp_path, payload, receiver) == (
            ({}, 0) if is_valid else ({"BOX019": 1}, 1)
        )


@pytest.mark.parametrize(
    ("mask", "is_read"), [(b"https://example.org/mask.png", False), (jpeg(), True)]
)
def test_masks_that_are_not_png(run: Run, tmp_path: Path, mask: bytes, is_read: bool) -> None:
    """Both decoders read a JPEG, and TF-Vision trains on its grays; all else stops them."""
    payload = record(source_id="7", **{"image/object/mask": [mask] * 2})
    for read in (od_api(masks=True), tf_vision(masks=True)):
        if is_read:
            assert read(payload).masks is not None
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
                read(payload)
    for receiver, is_valid in (("od-api", is_read), ("tf-vision", False)):
        codes, code = checked(run, tmp_path, payload, receiver)
        assert codes == {"BOX020": 2} and (code == 0) is is_valid

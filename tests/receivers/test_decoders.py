"""Records at which the decoders of the receivers stop, or which they read with losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tfod.checker.references.pipeline_config import TrainingConfig

from tests.checker.test_training_config import OF_MODELS
from tests.commands import Run
from tests.files import write_file
from tests.image_kinds import file_of
from tests.mutants.pipeline import masks, one, points
from tests.mutants.sound import CAT_BOX, DOG_BOX, HEIGHT, LABEL_MAP, WIDTH, jpeg, png, record, shard
from tests.receivers.decoders import model_maker, od_api, tf_vision

InvalidArgument = tf.errors.InvalidArgumentError


def test_a_valid_record() -> None:
    payload = record(source_id="7")
    for read in (tf_vision(), model_maker(), od_api()):
        found = read(payload)
        assert found.image.shape == (HEIGHT, WIDTH, 3)
        np.testing.assert_array_equal(found.boxes, np.float32([CAT_BOX, DOG_BOX]))
        assert list(found.classes) == [1, 2]
        assert int(found.source_id) == 7


def masked(mask: bytes) -> bytes:
    """A record with this mask for both objects."""
    return record(source_id="7", **{"image/object/mask": [mask] * 2})


def checked(run: Run, folder: Path, payload: bytes, receiver: str) -> tuple[dict[str, int], int]:
    """The counts by code and the exit code of ``tfod check --for``."""
    (folder / "a.tfrecord").write_bytes(shard(payload))
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    ignored = "--ignore", "BOX023"  # the masks fill the whole image
    done = run("check", folder / "a.tfrecord", "--for", receiver, "--format", "json", *ignored)
    return json.loads(done.out)["counts"]["by_code"], done.code


@pytest.mark.parametrize(
    ("mode", "value", "is_valid"), [("L", 1, True), ("L", 255, False), ("1", 1, False)]
)
def test_values_of_masks(run: Run, tmp_path: Path, mode: str, value: int, is_valid: bool) -> None:
    """TF-Vision trains on the values; for the OD API, any value but 0 is the object."""
    pixels = np.full((HEIGHT, WIDTH), value, bool if mode == "1" else np.uint8)
    payload = masked(file_of(Image.fromarray(pixels)))
    theirs = tf_vision(masks=True)(payload).masks
    assert theirs is not None and bool(theirs.max() <= 1) is is_valid
    others = od_api(masks=True)(payload).masks
    assert others is not None and others.max() == 1
    expected = ({}, 0) if is_valid else ({"BOX019": 1}, 1)
    assert checked(run, tmp_path, payload, "tf-vision") == expected
    for receiver in ("od-api", "model-maker"):
        assert checked(run, tmp_path, payload, receiver) == ({}, 0)


@pytest.mark.parametrize(
    ("mask", "is_read"), [(b"https://example.org/mask.png", False), (jpeg(), True)]
)
def test_masks_that_are_not_png(run: Run, tmp_path: Path, mask: bytes, is_read: bool) -> None:
    """Both decoders read a JPEG, and TF-Vision trains on its grays; they stop at other files."""
    payload = masked(mask)
    for read in (od_api(masks=True), tf_vision(masks=True)):
        if is_read:
            assert read(payload).masks is not None
        else:
            with pytest.raises(InvalidArgument, match="Unknown image file format"):
                read(payload)
    for receiver, is_valid in (("od-api", is_read), ("tf-vision", False)):
        codes, code = checked(run, tmp_path, payload, receiver)
        assert codes == {"BOX020": 2} and (code == 0) is is_valid


# Configurations of a training: CFG


def test_the_od_api_reads_the_same_settings(tmp_path: Path) -> None:
    """object_detection/utils/config_util.py, get_configs_from_pipeline_file."""
    from google.protobuf import text_format
    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

    text = OF_MODELS.rpartition("[object_detection")[0]  # no extension of that name is registered
    config = TrainingConfig(str(write_file(tmp_path / "pipeline.config", text)))
    theirs = text_format.Parse(text, TrainEvalPipelineConfig())
    assert [one.value for one in config.num_classes] == [theirs.model.ssd.num_classes] == [2]
    readers = (theirs.train_input_reader, *theirs.eval_input_reader)
    for ours, reader in zip(config.readers, readers, strict=True):
        paths = [each.value for each in ours.paths]
        assert paths == list(reader.tf_record_input_reader.input_path)
        assert ours.get("label_map_path").value == reader.label_map_path
        assert ours.get("load_instance_masks").value is reader.load_instance_masks is False
        assert ours.get("num_keypoints").value == reader.num_keypoints == 0


def read_by_the_trainer(record: bytes, **options: Any) -> Any:
    """Decode a record like the OD API's pipeline, which drops objects without coordinates."""
    od_api()  # repairs TF-Slim
    from object_detection.data_decoders.tf_example_decoder import TfExampleDecoder
    from object_detection.utils.ops import filter_groundtruth_with_nan_box_coordinates

    decoder = TfExampleDecoder(**options)
    return filter_groundtruth_with_nan_box_coordinates(decoder.decode(tf.constant(record)))


@pytest.mark.parametrize(
    ("record", "kind", "reason"),
    [
        (one("val.png"), 2, r"indices\[0\] = 0 is not in \[0, 0\)"),
        (one("val.png"), 1, r"indices\[0\] = 0 is not in \[0, 0\)"),
        (masks("val.png", png(), png()), 1, "[Dd]ata types don't match"),
        (masks("val.png", png(), b""), 2, "Input is empty"),
    ],
)
def test_cfg005_the_od_api_stops_at_images_without_masks(
    record: bytes, kind: int, reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        read_by_the_trainer(record, load_instance_masks=True, instance_mask_type=kind)
    two = masks("val.png", png(), png())
    found = read_by_the_trainer(two, load_instance_masks=True, instance_mask_type=2)
    assert found["groundtruth_instance_masks"].shape[0] == 2


def test_cfg006_the_od_api_stops_at_another_number_of_keypoints() -> None:
    found = read_by_the_trainer(points("val.png", 3), num_keypoints=3)
    assert found["groundtruth_keypoints"].shape == (2, 3, 2)
    for number in (0, 2):
        with pytest.raises(InvalidArgument):
            read_by_the_trainer(points("val.png", number), num_keypoints=3)

"""CFG: what the trainers themselves do with such a configuration and such records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfod.checker.references.pipeline_config import TrainingConfig

from tests.checker.test_training_config import OF_MODELS
from tests.mutants.pipeline import masks, one, points
from tests.mutants.sound import png
from tests.receivers.decoders import od_api

InvalidArgument = tf.errors.InvalidArgumentError


def test_the_od_api_reads_the_same_settings(tmp_path: Path) -> None:
    """object_detection/utils/config_util.py, get_configs_from_pipeline_file."""
    from google.protobuf import text_format
    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

    text = OF_MODELS.rpartition("[object_detection")[0]  # no extension of that name is registered
    path = tmp_path / "pipeline.config"
    path.write_text(text)
    config = TrainingConfig(str(path))
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
    """A record as its pipeline decodes it, and leaves out the objects without coordinates."""
    od_api()  # which brings TF-Slim in order
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
    sound = masks("val.png", png(), png())
    found = read_by_the_trainer(sound, load_instance_masks=True, instance_mask_type=2)
    assert found["groundtruth_instance_masks"].shape[0] == 2


@pytest.mark.parametrize("number", [0, 2, 3])
def test_cfg006_the_od_api_stops_at_another_number_of_keypoints(number: int) -> None:
    record = points("val.png", number)
    if number == 3:
        found = read_by_the_trainer(record, num_keypoints=3)
        assert found["groundtruth_keypoints"].shape == (2, 3, 2)
        return
    with pytest.raises(InvalidArgument):
        read_by_the_trainer(record, num_keypoints=3)

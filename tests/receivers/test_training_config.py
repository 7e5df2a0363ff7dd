"""CFG: what the trainers themselves do with such a configuration and such records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tfod.check.references.pipeline.training_config import TrainingConfig, load_training_config

from tests.check.test_training_config import OF_MODELS, OF_VISION
from tests.mutants.pipeline import masks, one, points
from tests.mutants.sound import png, shard
from tests.receivers.decoders import od_api

InvalidArgument = tf.errors.InvalidArgumentError


def config_of(folder: Path, name: str, text: str) -> TrainingConfig:
    Path(folder, name).write_text(text)
    return load_training_config(str(folder / name))


def test_the_od_api_reads_the_same_settings(tmp_path: Path) -> None:
    """object_detection/utils/config_util.py, get_configs_from_pipeline_file."""
    from google.protobuf import text_format
    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

    text = OF_MODELS.rpartition("[object_detection")[0]  # no extension of that name is registered
    config = config_of(tmp_path, "pipeline.config", text)
    theirs = text_format.Parse(text, TrainEvalPipelineConfig())
    assert config.num_classes.value == theirs.model.ssd.num_classes == 2
    resizer = theirs.model.ssd.image_resizer.keep_aspect_ratio_resizer
    assert (config.resizer.shortest, config.resizer.height) == (
        resizer.min_dimension, resizer.max_dimension,
    )  # fmt: skip
    readers = (theirs.train_input_reader, *theirs.eval_input_reader)
    sizes = (theirs.train_config.batch_size, theirs.eval_config.batch_size)
    for ours, reader, size in zip(config.readers, readers, sizes, strict=True):
        paths = [each.value for each in ours.patterns]
        assert paths == list(reader.tf_record_input_reader.input_path)
        assert [each.value for each in ours.label_maps] == [reader.label_map_path]
        assert ours.most_objects.value == reader.max_number_of_boxes == 100
        assert ours.drops_remainder.value is reader.drop_remainder is True
        assert ours.batch_size.value == size
        assert ours.masks.value is reader.load_instance_masks is False
        assert ours.keypoints.value == reader.num_keypoints == 0


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


@pytest.mark.parametrize("is_training", [True, False])
def test_cfg005_tf_vision_stops_at_images_without_masks(is_training: bool) -> None:
    from official.vision.dataloaders import maskrcnn_input, tf_example_decoder

    decoder = tf_example_decoder.TfExampleDecoder(include_mask=True)
    parser = maskrcnn_input.Parser(
        [64, 64], 3, 4, num_scales=1, aspect_ratios=[1.0], anchor_size=4, include_mask=True,
        max_num_instances=3, dtype="float32",
    )  # fmt: skip
    parse = parser.parse_fn(is_training)
    parse(decoder.decode(tf.constant(masks("val.png", png(), png()))))
    with pytest.raises(InvalidArgument, match=r"indices\[0\] = 0 is not in|box_index"):
        parse(decoder.decode(tf.constant(one("val.png"))))


@pytest.mark.parametrize("number", [0, 2, 3])
def test_cfg006_the_od_api_stops_at_another_number_of_keypoints(number: int) -> None:
    record = points("val.png", number)
    if number == 3:
        found = read_by_the_trainer(record, num_keypoints=3)
        assert found["groundtruth_keypoints"].shape == (2, 3, 2)
        return
    with pytest.raises(InvalidArgument):
        read_by_the_trainer(record, num_keypoints=3)


def test_cfg007_the_od_api_cuts_objects_off() -> None:
    """Called for each list of objects by inputs.py, pad_input_data_to_static_shapes."""
    from object_detection.utils.shape_utils import pad_or_clip_nd

    assert pad_or_clip_nd(tf.ones((3, 4)), [2, 4]).shape == (2, 4)


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Any]:
    """RetinaNet's experiment on COCO, changed by a YAML file as ``--config_file`` does."""

    def changed_by(text: str) -> tuple[TrainingConfig, Any]:
        from official.modeling import hyperparams
        from official.vision.configs.retinanet import retinanet_resnetfpn_coco

        config = config_of(tmp_path, "experiment.yaml", text)
        theirs = hyperparams.override_params_dict(
            retinanet_resnetfpn_coco(), config.file, is_strict=False
        )
        return config, theirs.task

    return changed_by


def test_tf_vision_reads_the_same_settings(experiment: Any) -> None:
    config, task = experiment(OF_VISION)
    assert config.num_classes.value == task.model.num_classes == 3
    assert (config.resizer.height, config.resizer.width) == tuple(task.model.input_size[:2])
    train, val = config.readers
    assert [each.value for each in train.patterns] == [task.train_data.input_path.first]
    assert [each.value for each in val.patterns] == task.validation_data.input_path
    assert train.batch_size.value == task.train_data.global_batch_size
    limits = [each.most_objects.value for each in config.readers]
    assert limits == [
        each.parser.max_num_instances for each in (task.train_data, task.validation_data)
    ]
    assert train.most_objects.value == task.train_data.parser.max_num_instances
    assert val.drops_remainder.value is task.validation_data.drop_remainder is False


def test_what_tf_visions_file_leaves_out_is_the_experiments(experiment: Any) -> None:
    config, task = experiment("task: {model: {input_size: [40, 40, 3]}, train_data: {cache: true}}")
    assert config.num_classes.value == task.model.num_classes == 91
    (train,) = config.readers
    assert train.most_objects.value == task.train_data.parser.max_num_instances == 100
    assert train.drops_remainder.value is task.train_data.drop_remainder is True


def test_cfg002_tf_vision_stops_at_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    from official.core.input_reader import match_files

    with pytest.raises(ValueError, match="does not match any files"):
        match_files(f"{tmp_path}/train*")


@pytest.mark.parametrize(("drops", "batches"), [(True, 0), (False, 1)])
def test_cfg010_tf_vision_evaluates_nothing(tmp_path: Path, drops: bool, batches: int) -> None:
    from official.core import config_definitions, input_reader

    path = tmp_path / "val.tfrecord"
    path.write_bytes(shard(one("val.png")))
    data = config_definitions.DataConfig(
        input_path=str(path), global_batch_size=2, is_training=False, drop_remainder=drops
    )
    assert len(list(input_reader.InputReader(data).read())) == batches


def test_cfg011_tf_vision_stops_at_an_image_that_is_not_listed() -> None:
    from official.vision.evaluation.coco_utils import COCOWrapper

    truth = {"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    found = {"image_id": 2, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1.0}
    with pytest.raises(ValueError, match="Results do not correspond to the current dataset!"):
        COCOWrapper(gt_dataset=truth).loadRes([found])

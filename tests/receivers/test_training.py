"""A short training on our shards: the loss falls, and the evaluation finds the objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfod
from PIL import Image, ImageDraw
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import TF_VISION

from tests.image_kinds import file_of

SIDE = 64
CLASSES = ("red", "blue")
STEPS = 60


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with one or two rectangles, in two shards of each subset."""
    folder = tmp_path_factory.mktemp("rectangles")
    random = np.random.default_rng(17)
    for subset, count in (("train", 64), ("val", 16)):
        records = [tfod.encode_detection(drawn(random, number)) for number in range(count)]
        tfod.write_records(folder, subset, records, num_shards=2)
    (folder / "label_map.pbtxt").write_text(tfod.LabelMap.from_names(CLASSES).to_text())
    return folder


def drawn(random: np.random.Generator, number: int) -> tfod.Detection:
    """An image with an object in the left half, or in both halves."""
    image = Image.fromarray(random.integers(90, 130, (SIDE, SIDE, 3), np.uint8))
    boxes, labels = [], []
    for half in range(1 + number % 2):
        label = int(random.integers(0, 2))
        width, height = random.integers(16, 29, 2)
        left = half * SIDE // 2 + int(random.integers(0, SIDE // 2 - width + 1))
        top = int(random.integers(0, SIDE - height))
        box = (left, top, left + width, top + height)
        ImageDraw.Draw(image).rectangle((*box[:2], box[2] - 1, box[3] - 1), fill=CLASSES[label])
        boxes.append([side / SIDE for side in box])
        labels.append(label + 1)
    return tfod.Detection(
        filename=f"{number}.png",
        source_id=str(number + 1),
        encoded=file_of(image),
        format="png",
        height=SIDE,
        width=SIDE,
        boxes=np.array(boxes, np.float32),
        class_text=[CLASSES[label - 1] for label in labels],
        class_label=labels,
    )


@pytest.mark.slow
def test_retinanet_of_tf_vision(shards: Path) -> None:
    """official/vision/tasks/retinanet.py, with a backbone of ten layers."""
    import tf_keras
    from official.vision.configs import retinanet
    from official.vision.tasks.retinanet import RetinaNetTask

    assert check_sources([str(shards)], Options(receiver=TF_VISION)).valid
    tf.random.set_seed(17)
    task = RetinaNetTask(config(retinanet, shards))
    model = task.build_model()
    optimizer = tf_keras.optimizers.legacy.Adam(2e-3)
    step = tf.function(lambda batch: task.train_step(batch, model, optimizer))
    batches = iter(task.build_inputs(task.task_config.train_data))
    losses = [float(step(next(batches))["loss"]) for _ in range(STEPS)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 2  # a fifth to a third, as batches fall

    task.build_metrics(training=False)
    state = None
    validate = tf.function(lambda batch: task.validation_step(batch, model))
    for batch in task.build_inputs(task.task_config.validation_data).map(plain_counts):
        state = task.aggregate_logs(state, validate(batch))
    found = task.reduce_aggregated_logs(state)
    assert np.mean(found["AP50"]) > 0.5


def plain_counts(image: Any, labels: Any) -> Any:
    """The evaluator makes ``int`` of lists of one number, which NumPy refuses since 2.4."""
    truth = labels["groundtruths"]
    counts = {"num_detections": tf.squeeze(truth["num_detections"], -1)}
    return image, {**labels, "groundtruths": {**truth, **counts}}


def config(retinanet: Any, shards: Path) -> Any:
    def data(subset: str, training: bool) -> Any:
        return retinanet.DataConfig(
            input_path=str(shards / f"{subset}*.tfrecord"),
            global_batch_size=8,
            is_training=training,
            dtype="float32",
            drop_remainder=True,
            shuffle_buffer_size=64,
            parser=retinanet.Parser(aug_rand_hflip=False),
        )

    model = retinanet.RetinaNet(
        num_classes=len(CLASSES) + 1,
        input_size=[SIDE, SIDE, 3],
        min_level=3,
        max_level=4,
        anchor=retinanet.Anchor(num_scales=1, aspect_ratios=[1.0], anchor_size=3.0),
        head=retinanet.RetinaNetHead(num_convs=1, num_filters=32),
    )
    model.backbone.type = "resnet"
    model.backbone.resnet.model_id = 10
    model.decoder.fpn.num_filters = 32
    model.norm_activation.norm_momentum = 0.8
    return retinanet.RetinaNetTask(
        model=model,
        train_data=data("train", True),
        validation_data=data("val", False),
        losses=retinanet.LossCounter(l2_weight_decay=0.0),
    )

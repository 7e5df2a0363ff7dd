"""A detector of KerasHub on a directory of TFDS that ``tfod convert`` has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from tfod.cli.main import main

tfds = pytest.importorskip("tensorflow_datasets", reason="pip install tensorflow-datasets")
keras_hub = pytest.importorskip("keras_hub", reason="pip install keras-hub")
CORPUS = Path(__file__).parents[1] / "corpus"
SIDE, IMAGES = 64, 4


def small_retinanet(classes: int) -> Any:
    """The smallest that keras_hub/src/models/retinanet makes: a ResNet, two levels."""
    shape = (SIDE, SIDE, 3)
    encoder = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64] * 4,
        stackwise_num_blocks=[1] * 4,
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="basic_block",
        image_shape=shape,
    )
    backbone = keras_hub.models.RetinaNetBackbone(
        encoder, min_level=3, max_level=5, use_p5=False, image_shape=shape
    )
    return keras_hub.models.RetinaNetObjectDetector(
        backbone, classes, bounding_box_format="yxyx", pre_logits_num_conv_layers=1
    )


@pytest.mark.slow
def test_a_retinanet_learns(tmp_path: Path) -> None:
    target = tmp_path / "blood"
    assert main(["convert", str(CORPUS / "blood-cells"), str(target), "--to", "tfds"]) == 0
    builder = tfds.builder_from_directory(str(target))

    def prepared(one: Any) -> Any:
        image = tf.image.resize(tf.cast(one["image"], tf.float32) / 255, (SIDE, SIDE))
        objects = one["objects"]
        return image, {
            "boxes": objects["bbox"] * SIDE,
            "labels": tf.cast(objects["label"], tf.float32),
        }

    images = builder.as_dataset(split="test").take(IMAGES).map(prepared)
    nothing = (0.0, {"boxes": -1.0, "labels": -1.0})
    batches = images.padded_batch(IMAGES, padding_values=nothing).cache()

    keras.utils.set_random_seed(0)
    model = small_retinanet(builder.info.features["objects"]["label"].num_classes)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), box_loss="auto")
    losses = model.fit(batches, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2

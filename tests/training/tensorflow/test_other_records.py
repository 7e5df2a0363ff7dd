"""Records of other formats than the OD API's, against TensorFlow and the code they come from."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tfod.detection.encoder import (
    KerasAnnotation,
    LabelProfile,
    encode_keras_annotations,
    encode_labelled_image,
)
from tfod.tensorflow import feature_description

from tests.image_kinds import HEIGHT, WIDTH, saved

PNG, JPEG, GRAY = saved("RGB", "PNG"), saved("RGB", "JPEG"), saved("L", "JPEG")


def example(**features: Any) -> Any:
    """What TensorFlow makes of lists of bytes, floats or integers."""
    made = {}
    for key, values in features.items():
        if isinstance(values[0], bytes):
            made[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif isinstance(values[0], float):
            made[key] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            made[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=made))


def test_a_record_of_the_keras_recipe_is_what_tensorflow_writes() -> None:
    """Its seven features: a list of four floats in bbox, one value in each of the others."""
    one = KerasAnnotation(
        id=1768, category_id=64, box=(473.07, 395.93, 38.65, 28.67), area=702.1057
    )
    (payload,) = encode_keras_annotations(JPEG, "val2017/000000289343.jpg", 289343, [one])
    assert tf.train.Example.FromString(payload) == example(
        image=[JPEG],
        path=[b"val2017/000000289343.jpg"],
        area=[702.1057],
        bbox=[473.07, 395.93, 38.65, 28.67],
        category_id=[64],
        id=[1768],
        image_id=[289343],
    )
    parsed = tf.io.parse_single_example(payload, feature_description("keras_coco"))
    assert tf.sparse.to_dense(parsed["bbox"]).numpy().tolist() == pytest.approx(list(one.box))
    assert int(parsed["image_id"]) == 289343


@pytest.mark.parametrize("profile", list(LabelProfile))
@pytest.mark.parametrize("image", [JPEG, PNG, GRAY])
def test_labelled_images(profile: LabelProfile, image: bytes) -> None:
    payload = encode_labelled_image(profile, image, "a.jpg", (HEIGHT, WIDTH), 3)
    height, width, channels = tf.io.decode_image(image).shape
    key, depth = {"image_label": ("image", "channels")}.get(profile, ("image_raw", "depth"))
    wanted = {"height": [height], "width": [width], depth: [channels], "label": [3]}
    assert tf.train.Example.FromString(payload) == example(
        **wanted, **{key: [image]}, filename=[b"a.jpg"]
    )
    features = tf.io.parse_single_example(payload, feature_description(profile.value))
    assert features.keys() == {*wanted, key}

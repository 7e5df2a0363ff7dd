"""The decoders of the receivers: from a record to tensors for training."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Decoded:
    """The values that a receiver reads from a record.

    Attributes:
        image: RGB, ``(height, width, 3)``.
        boxes: ``(n, 4)``, normalized ``xmin, ymin, xmax, ymax``.
        classes: ids, ``(n,)``.
        masks: ``(n, height, width)``, or None if the decoder does not read masks.
        source_id: text, or the receiver's number for it.
        keypoints: ``(n, points, 2)``, normalized x and y, NaN for points that are not labelled, or
            None if the decoder does not read keypoints.
    """

    image: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    masks: np.ndarray | None
    source_id: str | int
    keypoints: np.ndarray | None = None


def _by_parsers(decoder: Any, to_train: Any, to_evaluate: Any) -> Callable[[bytes], Decoded]:
    """Read with a decoder of TF-Vision and the functions that prepare training and evaluation."""

    @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
    def decode(payload: Any) -> Any:
        found = decoder.decode(payload)
        # All are returned, since TensorFlow does not compute tensors that are not.
        return found, to_train(found), to_evaluate(found)

    def read(payload: bytes) -> Decoded:
        tensors, _, (_, labels) = decode(payload)
        found = {key: value.numpy() for key, value in tensors.items()}
        return Decoded(
            found["image"],
            found["groundtruth_boxes"][:, [1, 0, 3, 2]],
            found["groundtruth_classes"],
            found.get("groundtruth_instance_masks"),
            int(labels["groundtruths"]["source_id"]),
        )

    return read


@cache
def tf_vision(masks: bool = False) -> Callable[[bytes], Decoded]:
    """TF-Vision: its decoder, and the parser of its RetinaNet for training and evaluation.

    official/vision/dataloaders: tf_example_decoder.py, TfExampleDecoder.decode; retinanet_input.py,
    Parser; utils.py, process_source_id.
    """
    from official.vision.dataloaders.retinanet_input import Parser
    from official.vision.dataloaders.tf_example_decoder import TfExampleDecoder

    decoder = TfExampleDecoder(include_mask=masks)
    parser = Parser([64, 64], 3, 5, 1, [1.0], 4.0, dtype="float32")
    return _by_parsers(decoder, parser.parse_fn(True), parser.parse_fn(False))


@cache
def od_api(
    label_map: str | None = None, masks: bool = False, keypoints: int = 0, by_name: bool = False
) -> Callable[[bytes], Decoded]:
    """The OD API's trainer: object_detection/data_decoders/tf_example_decoder.py.

    Points are identified by their index, or by their names in the label map.
    """
    from tf_slim.data import tfexample_decoder

    # TF-Slim is of 2020: TensorFlow has moved the functions since, which are the same.
    tfexample_decoder.control_flow_ops = SimpleNamespace(
        case=tf.compat.v1.case, cond=tf.compat.v1.cond
    )
    from object_detection.data_decoders.tf_example_decoder import TfExampleDecoder
    from object_detection.protos.input_reader_pb2 import PNG_MASKS

    decoder = TfExampleDecoder(
        load_instance_masks=masks,
        instance_mask_type=PNG_MASKS,
        label_map_proto_file=label_map,
        num_keypoints=keypoints,
        use_keypoint_label_map=by_name,
    )
    decode = tf.function(decoder.decode, input_signature=[tf.TensorSpec((), tf.string)])

    def read(payload: bytes) -> Decoded:
        found = {key: value.numpy() for key, value in decode(payload).items()}
        return Decoded(
            found["image"],
            found["groundtruth_boxes"][:, [1, 0, 3, 2]],
            found["groundtruth_classes"],
            found.get("groundtruth_instance_masks"),
            found["source_id"].decode(errors="replace"),  # the decoder reads any bytes
            found["groundtruth_keypoints"][..., ::-1] if keypoints else None,
        )

    return read


@cache
def model_maker() -> Callable[[bytes], Decoded]:
    """MediaPipe Model Maker: the decoder of its ``Dataset.from_cache``, and its preprocessor."""
    dataset, preprocessor, model_spec = (
        model_maker_module(name) for name in ("dataset", "preprocessor", "model_spec")
    )
    decoder = dataset.tf_example_decoder.TfExampleDecoder(regenerate_source_id=False)
    spec = model_spec.SupportedModels.MOBILENET_V2.value()
    process = preprocessor.Preprocessor(spec)
    return _by_parsers(decoder, process, functools.partial(process, is_training=False))


@cache
def model_maker_module(name: str) -> ModuleType:
    """A module of MediaPipe Model Maker's ``object_detector``.

    The ``__init__`` modules of the package import all its tasks, also texts and gestures, and their
    dependencies (tensorflow-text, mediapipe). Empty modules replace them.
    """
    package = "mediapipe_model_maker.python.vision.object_detector"
    if package not in sys.modules:
        spec = find_spec("mediapipe_model_maker")
        assert spec is not None and spec.origin is not None
        for one in ("mediapipe_model_maker", package):
            sys.modules[one] = ModuleType(one)
            folder = Path(spec.origin).parents[1].joinpath(*one.split("."))
            sys.modules[one].__path__ = [str(folder)]
    return importlib.import_module(f"{package}.{name}")

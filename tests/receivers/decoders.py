"""The receivers' own decoders: a record in, what they train on out."""

from __future__ import annotations

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
    """What a receiver reads in a record.

    Attributes:
        image: RGB, ``(height, width, 3)``.
        boxes: ``(n, 4)``, normalized ``xmin, ymin, xmax, ymax``.
        classes: ids, ``(n,)``.
        masks: ``(n, height, width)``; None where none were asked for.
        source_id: text, or the number that the receiver made of it.
    """

    image: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    masks: np.ndarray | None
    source_id: str | int


@cache
def tf_vision(masks: bool = False) -> Callable[[bytes], Decoded]:
    """TF-Vision: its decoder, and what its evaluation makes of the id.

    official/vision/dataloaders/tf_example_decoder.py, TfExampleDecoder.decode;
    official/vision/dataloaders/utils.py, process_source_id, which every parser calls.
    """
    from official.vision.dataloaders import utils
    from official.vision.dataloaders.tf_example_decoder import TfExampleDecoder

    decoder = TfExampleDecoder(include_mask=masks)

    @tf.function(input_signature=[tf.TensorSpec((), tf.string)])
    def decode(payload: Any) -> Any:
        found = decoder.decode(payload)
        return {**found, "source_id": utils.process_source_id(found["source_id"])}

    def read(payload: bytes) -> Decoded:
        found = {key: value.numpy() for key, value in decode(payload).items()}
        return Decoded(
            found["image"],
            found["groundtruth_boxes"][:, [1, 0, 3, 2]],
            found["groundtruth_classes"],
            found.get("groundtruth_instance_masks"),
            int(found["source_id"]),
        )

    return read


@cache
def od_api(label_map: str | None = None, masks: bool = False) -> Callable[[bytes], Decoded]:
    """The OD API's trainer: object_detection/data_decoders/tf_example_decoder.py."""
    from tf_slim.data import tfexample_decoder

    # TF-Slim is of 2020: TensorFlow has moved the functions since, which are the same.
    tfexample_decoder.control_flow_ops = SimpleNamespace(
        case=tf.compat.v1.case, cond=tf.compat.v1.cond
    )
    from object_detection.data_decoders.tf_example_decoder import TfExampleDecoder
    from object_detection.protos.input_reader_pb2 import PNG_MASKS

    decoder = TfExampleDecoder(
        load_instance_masks=masks, instance_mask_type=PNG_MASKS, label_map_proto_file=label_map
    )
    decode = tf.function(decoder.decode, input_signature=[tf.TensorSpec((), tf.string)])

    def read(payload: bytes) -> Decoded:
        found = {key: value.numpy() for key, value in decode(payload).items()}
        return Decoded(
            found["image"],
            found["groundtruth_boxes"][:, [1, 0, 3, 2]],
            found["groundtruth_classes"],
            found.get("groundtruth_instance_masks"),
            found["source_id"].decode(),
        )

    return read


@cache
def model_maker() -> ModuleType:
    """MediaPipe Model Maker's ``object_detector.dataset``.

    The package's own ``__init__`` modules import everything that it has, texts and gestures too,
    with what those need (tensorflow-text, mediapipe): they are passed over, the module is whole.
    """
    spec = find_spec("mediapipe_model_maker")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parents[1]
    for name in ("mediapipe_model_maker", "mediapipe_model_maker.python.vision.object_detector"):
        package = ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    from mediapipe_model_maker.python.vision.object_detector import dataset

    return dataset

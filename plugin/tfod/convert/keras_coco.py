"""COCO as the Keras recipe writes it: one record an annotation, the image in each of them.

Source: keras.io/examples/keras_recipes/creating_tfrecords (Dimitre Oliveira): the features of
``create_example``, and ``n_samples``. How its files are called: :mod:`tfod.tfrecord.shard_names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature

RECORDS_A_FILE = 4096
"""``n_samples`` of the recipe."""


@dataclass(frozen=True)
class Annotation:
    """One object of an image, as the recipe has it; box is x, y, width, height in pixels."""

    id: int
    category_id: int
    box: tuple[float, float, float, float]
    area: float


def encode_annotations(
    encoded: bytes, path: str, image_id: int, annotations: Iterable[Annotation]
) -> Iterator[bytes]:
    """The records of an image, serialized Examples with the recipe's features in its order.

    Raises:
        OverflowError: a number does not fit into 64 bits.
    """
    image = bytes_feature([encoded])
    for one in annotations:
        yield encode_example(
            {
                "image": image,
                "path": bytes_feature([path.encode()]),
                "area": float_feature([one.area]),
                "bbox": float_feature(one.box),
                "category_id": int64_feature([one.category_id]),
                "id": int64_feature([one.id]),
                "image_id": int64_feature([image_id]),
            }
        )

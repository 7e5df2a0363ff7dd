"""Into TensorFlow: ``tf.io`` feature descriptions and ``tf.data`` datasets.

See :mod:`tfod.training.tensorflow`.
"""

from tfod.training.tensorflow import (
    compression_type,
    dataset,
    feature_description,
    locating_damage,
)

__all__ = ["compression_type", "dataset", "feature_description", "locating_damage"]

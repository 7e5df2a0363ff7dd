"""Into TensorFlow: ``tf.io`` feature descriptions and ``tf.data`` datasets.

Needs the extra ``tensorflow``; nothing else in tfod imports TensorFlow.
"""

from __future__ import annotations

from tfod.errors import TfodError, how_to_install

try:
    import tensorflow  # noqa: F401 -- the modules below need it
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise TfodError(f"tfod.tensorflow needs TensorFlow; {how_to_install('tensorflow')}") from None

from tfod.training.tensorflow.description import feature_description
from tfod.training.tensorflow.pipeline import dataset
from tfod.training.tensorflow.shards import compression_type, locating_damage

__all__ = ["compression_type", "dataset", "feature_description", "locating_damage"]

"""Shards as ``tf.data`` datasets: see :mod:`tfod.training.tensorflow`."""

from tfod.training.tensorflow import dataset, feature_description, records

__all__ = ["dataset", "feature_description", "records"]

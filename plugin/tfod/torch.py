"""Into PyTorch: shards as a dataset of images and targets; see :mod:`tfod.training.torch`."""

from tfod.training.torch import Detections, collate

__all__ = ["Detections", "collate"]

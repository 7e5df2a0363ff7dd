"""Into PyTorch: shards as datasets of images and targets; see :mod:`tfod.training.torch`."""

from tfod.training.torch import Detections, DetectionsByIndex, collate

__all__ = ["Detections", "DetectionsByIndex", "collate"]

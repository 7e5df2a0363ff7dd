"""Shards as PyTorch datasets: see :mod:`tfod.training.torch`."""

from tfod.training.torch import Detections, collate

__all__ = ["Detections", "collate"]

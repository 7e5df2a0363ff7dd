"""Into PyTorch: shards as datasets of images and targets, as torchvision's detectors take them.

Needs the extra ``torch`` and no TensorFlow, and nothing else in tfod imports PyTorch.
"""

from __future__ import annotations

from tfod.errors import TfodError, how_to_install

try:
    import torch  # noqa: F401 -- the modules below need it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise TfodError(f"tfod.torch needs PyTorch; {how_to_install('torch')}") from None

from tfod.training.torch.datasets import Detections, DetectionsByIndex, collate

__all__ = ["Detections", "DetectionsByIndex", "collate"]

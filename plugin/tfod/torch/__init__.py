"""Into PyTorch: shards as datasets of pictures and targets, as torchvision's detectors take them.

``pip install 'tfod[torch]'``; needs no TensorFlow, and nothing else in tfod imports PyTorch.
"""

from __future__ import annotations

from tfod.errors import TfodError

try:
    import torch  # noqa: F401 -- the modules below need it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise TfodError("tfod.torch needs PyTorch; pip install 'tfod[torch]'") from None

from tfod.torch.datasets import Detections, DetectionsByIndex, collate

__all__ = ["Detections", "DetectionsByIndex", "collate"]

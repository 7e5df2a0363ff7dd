"""What the pixels of an image look like, measured on a small copy of it.

The small copy costs less than the image: libjpeg leaves out the details that it does not need
while it decodes, and still reads, and so checks, all bytes.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.errors import how_to_install

_SIDE = 128
_MOST_NOISE = 4
"""By so much the values of an image of one colour differ, as JPEG."""
_BRIGHTNESS_WEIGHTS = np.array([0.241, 0.691, 0.068], np.float32)
_HASH_SIDE = 16


@dataclass(frozen=True)
class ImageLook:
    """Figures of an image's pixels; brightness is from 0 to 1, as CleanVision has it.

    Attributes:
        dark_end: the brightness that 5 % of the pixels are below.
        bright_end: the brightness that 99 % of the pixels are below.
        contrast: the largest difference between two values of a channel, from 0 to 255.
        entropy: of the values of all channels, in bits.
        sharpness: how much neighbouring pixels differ from each other (the standard deviation of
            the Laplacian), relative to how much all pixels do.
        fingerprint: perceptual hash of 256 bits; empty for an image of one colour, and where
            ImageHash is not installed.
    """

    dark_end: float
    bright_end: float
    contrast: int
    entropy: float
    sharpness: float
    fingerprint: bytes = b""

    @property
    def is_blank(self) -> bool:
        """Whether it is of one colour, but for the noise of JPEG."""
        return self.contrast <= _MOST_NOISE


def look_of(image: Any) -> ImageLook:
    """Measure an image of Pillow's.

    Raises:
        OSError: it does not decode, if it has not been decoded before.
    """
    image.thumbnail((_SIDE, _SIDE))
    if image.mode.startswith("I"):  # 16 bits a pixel, which Pillow would cut off at 255
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    small = image.convert("RGB")
    pixels = np.asarray(small, np.float32)
    brightness = np.sqrt((pixels * pixels) @ _BRIGHTNESS_WEIGHTS) / 255
    dark_end, bright_end = np.percentile(brightness, (5, 99)).tolist()
    contrast = max(high - low for low, high in small.getextrema())
    gray = small.convert("L")
    return ImageLook(
        dark_end,
        bright_end,
        contrast,
        small.entropy(),
        _sharpness(np.asarray(gray, np.float32)),
        _fingerprint(gray) if contrast > _MOST_NOISE else b"",
    )


def _sharpness(gray: np.ndarray) -> float:
    if min(gray.shape) < 3:
        return 1.0  # too small to say
    inner = gray[1:-1, 1:-1]
    laplacian = 4 * inner - gray[:-2, 1:-1] - gray[2:, 1:-1] - gray[1:-1, :-2] - gray[1:-1, 2:]
    return float(laplacian.std() / max(gray.std(), 1e-6))


def missing_hash() -> str:
    """Why there are no fingerprints; empty where there are."""
    if importlib.util.find_spec("imagehash") is not None:
        return ""
    return f"near duplicates need ImageHash: {how_to_install('stats')}"


def _fingerprint(gray: Any) -> bytes:
    """ImageHash's phash, in blocks of 4 x 4 frequencies.

    The low frequencies, which change least, make up whole numbers of 16 bits then; and in every
    byte the same bits belong to the odd frequencies of a row, which change their sign in a mirror.
    """
    try:
        import imagehash  # brings SciPy; it is part of the extra `stats`
    except ImportError:
        return b""
    bits = imagehash.phash(gray, hash_size=_HASH_SIDE).hash
    return np.packbits(bits.reshape(4, 4, 4, 4).swapaxes(1, 2)).tobytes()

"""Thumbnails of sample images, small and safe to decode, for the HTML report."""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.reporters.html.samples import Sample
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from PIL import Image

WIDEST = 480
"""Pixels of a thumbnail's longer side."""
JPEG_QUALITY = 80
_USUAL_SIZE = (320, 240)
_UTMOST_ASPECT = 6.0
# No other decoder of Pillow is needed; some of them start programs (EPS).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
# As Pillow has it, should somebody have turned its own limit off.
_MOST_PIXELS = 1024 * 1024 * 1024 // 4 // 3


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A decoded image, made small, 8-bit RGB, and its own width and height in pixels."""

    image: Image.Image
    width: int
    height: int


def thumbnail(sample: Sample) -> tuple[str, float]:
    """Make an image small; one that is missing, broken or a bomb becomes a placeholder.

    The pixels are shown as they are stored, as TensorFlow sees them: EXIF orientation is not
    applied.

    Returns:
        A ``data:`` URI of a JPEG, or of an SVG placeholder; and the width by height at which to
        show it, neither extremely wide nor tall.

    Raises:
        TfodError: Pillow is not installed.
    """
    small = shrunk(sample, WIDEST)
    aspect = shown_aspect(sample, small)
    if small is None:
        svg = _placeholder(aspect, why_no_image(sample))
        return data_uri("image/svg+xml", svg.encode()), aspect
    file = io.BytesIO()
    small.image.save(file, "JPEG", quality=JPEG_QUALITY)
    return data_uri("image/jpeg", file.getvalue()), aspect


def shown_aspect(sample: Sample, small: Shrunk | None) -> float:
    """Width by height at which a sample is shown.

    What a record says may be absurd; an image that is a line is no use either.
    """
    width, height = (small.width, small.height) if small else (sample.width, sample.height)
    if width <= 0 or height <= 0:
        width, height = _USUAL_SIZE
    return min(max(width / height, 1 / _UTMOST_ASPECT), _UTMOST_ASPECT)


def why_no_image(sample: Sample) -> str:
    """What a placeholder says."""
    return "image does not decode" if sample.image else "no image in the record"


def shrunk(sample: Sample, longest: int) -> Shrunk | None:
    """Decode an image, at most ``longest`` pixels a side; None if it is missing, broken or a bomb.

    Raises:
        TfodError: Pillow is not installed.
    """
    if not sample.image:
        return None
    try:
        from PIL import Image
    except ImportError:
        raise TfodError(
            f"images of the report need Pillow; {how_to_install('validator')}"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of broken metadata, and of bombs: checked below
            with Image.open(io.BytesIO(sample.image), formats=_FORMATS) as image:
                width, height = image.size
                if not fits_into_memory(image.size):
                    return None
                image.draft("RGB", (longest, longest))
                small = _eight_bits(image)
                small.thumbnail((longest, longest))
                return Shrunk(_on_white(small), width, height)
    except Exception:  # whatever decoders raise on broken bytes: OSError, SyntaxError, struct.error
        return None


def fits_into_memory(size: tuple[int, int]) -> bool:
    """Whether an image of this width and height is no decompression bomb."""
    from PIL import Image

    most = min(Image.MAX_IMAGE_PIXELS or _MOST_PIXELS, _MOST_PIXELS)
    return size[0] * size[1] <= most


def _eight_bits(image: Image.Image) -> Image.Image:
    """Bring 16-bit grey to 8 bits, which a plain conversion would clip to white."""
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.float64)
        from PIL import Image

        return Image.fromarray((values / max(values.max(), 1.0) * 255).clip(0, 255).astype("u1"))
    return image.copy()


def _on_white(image: Image.Image) -> Image.Image:
    """Without transparency, which JPEG does not have."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    from PIL import Image

    layer = image.convert("RGBA")
    white = Image.new("RGBA", layer.size, "white")
    return Image.alpha_composite(white, layer).convert("RGB")


def _placeholder(aspect: float, why: str) -> str:
    width, height = round(320 * min(aspect, 1)), round(320 / max(aspect, 1))
    size = max(9, min(18, width // 14))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        '<rect width="100%" height="100%" fill="#8a8f98"/>'
        f'<text x="50%" y="92%" fill="#fff" font-family="sans-serif" font-size="{size}" '
        f'text-anchor="middle" dominant-baseline="middle">{why}</text></svg>'
    )


def data_uri(kind: str, content: bytes) -> str:
    """A file as a part of a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"

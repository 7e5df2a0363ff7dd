"""Photos that lie on their side: pixels turned as EXIF's orientation says, and what is on them.

TensorFlow, OpenCV with a flag and many trainers show the pixels as they are stored; browsers, CVAT
and Ultralytics turn them. All of them show the same picture of an image that is stored upright and
has no orientation. Source of the orientations: CIPA DC-008, tag 0x0112.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.images.image import QUARTER, UPRIGHT, read_image_header
from tfod.detection.images.mask_images import (
    decode_mask_png,
    decode_pixels,
    encode_gray_png,
    is_box_png,
)
from tfod.errors import TfodError, how_to_install

_TRANSPOSED = {5: 1, 6: 4, 7: 3, 8: 2}  # what is left to do when rows and columns are exchanged
_FLIPPED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1)}
_TAG = 0x0112
_TRANSPOSE = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""Names of Pillow's ``Transpose``."""
_KEEP = "keep it with: tfod convert --exif keep"
_BACK = {6: 8, 8: 6}
"""The orientation that undoes another one; all others undo themselves."""


def orientation_of(encoded: bytes | memoryview) -> int:
    """EXIF's orientation of an image file; 1 where it has none that can be read."""
    data = bytes(encoded)
    header = read_image_header(data, 0, len(data))
    return header.orientation if header else UPRIGHT


def opposite(orientation: int) -> int:
    """What undoes an orientation: with it ``boxes_turned_back`` and the like turn forward."""
    return _BACK.get(orientation, orientation)


def upright_image(encoded: bytes | memoryview, name: str) -> bytes:
    """An image file whose pixels are as its EXIF orientation shows them, without the orientation.

    JPEGs are written with their own tables and subsampling; other formats without loss.

    Raises:
        TfodError: the image cannot be decoded, or Pillow is not installed; with the name.
    """
    try:
        from PIL import Image
    except ImportError:
        what = f"{name} has an EXIF orientation, and turning it needs Pillow"
        raise TfodError(f"{what}; {how_to_install('cvat')}, or {_KEEP}") from None
    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tags that Pillow cannot read
            with Image.open(io.BytesIO(encoded)) as image:
                image.load()
                how = getattr(Image.Transpose, _TRANSPOSE[orientation_of(encoded)])
                # Pillow turns a TIFF itself when it loads it.
                turned = image if image.format == "TIFF" else image.transpose(how)
                turned.save(out, **_as_it_was(image), exif=_other_tags(image))
    except Exception as error:  # whatever Pillow raises for what is no image
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TfodError(
            f"{name} has an EXIF orientation and cannot be turned ({reason}); save it again, or "
            f"{_KEEP}"
        ) from None
    return out.getvalue()


def _as_it_was(image: Any) -> dict[str, Any]:
    """How an opened image is to be saved, so that little more than its place is changed."""
    kept = {key: image.info[key] for key in ("icc_profile", "dpi") if image.info.get(key)}
    if image.format in ("JPEG", "MPO"):
        from PIL import JpegImagePlugin

        # Pillow refuses quality="keep" after a turn; these are what it stands for.
        kept |= {"format": "JPEG", "qtables": image.quantization}
        subsampling = JpegImagePlugin.get_sampling(image)
        return {**kept, "subsampling": subsampling} if subsampling >= 0 else kept
    # A word of WebP's, and one of TIFF's.
    return {**kept, "format": image.format, "lossless": True, "compression": "tiff_lzw"}


def _other_tags(image: Any) -> bytes:
    """EXIF without the orientation; nothing where Pillow cannot write what is there.

    A TIFF's tags say how its pixels lie, too, and are made anew.
    """
    if image.format == "TIFF":
        return b""
    try:
        exif = image.getexif()
        exif.pop(_TAG, None)
        return exif.tobytes() if exif else b""
    except Exception:  # whatever Pillow raises for a directory that is broken
        return b""


def with_upright_pixels(one: Detection) -> Detection:
    """The same with its image turned, of which all the rest says already how it is shown.

    Raises:
        TfodError: the image cannot be turned.
    """
    encoded = upright_image(one.encoded or b"", f"image {one.filename!r:.81}")
    return replace(one, encoded=encoded, sha256=hashlib.sha256(encoded).hexdigest())


def turned_back(one: Detection, orientation: int) -> Detection:
    """What is said of an image as EXIF shows it, as of its stored pixels: sizes, boxes, masks."""
    sides = (one.height, one.width)
    numbers = one.numerical_masks
    return replace(
        one,
        height=sides[orientation >= QUARTER],
        width=sides[orientation < QUARTER],
        boxes=boxes_turned_back(one.boxes, orientation),
        masks=one.masks and [mask and _turned_mask(mask, orientation) for mask in one.masks],
        numerical_masks=None
        if numbers is None
        else np.stack([mask_turned_back(mask, orientation) for mask in numbers]),
        keypoints=keypoints_turned_back(one.keypoints, orientation),
        image_masks={name: _turned(mask, orientation) for name, mask in one.image_masks.items()},
    )


def boxes_turned_back(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized boxes, ``xmin, ymin, xmax, ymax`` of each, of shape (n, 4)."""
    points = points_turned_back(boxes.reshape(-1, 2, 2), orientation)
    found: np.ndarray = np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)
    return found


def keypoints_turned_back(keypoints: Keypoints | None, orientation: int) -> Keypoints | None:
    """Keypoints; unlabelled ones stay 0, 0."""
    if keypoints is None:
        return None
    labelled = (keypoints.visibility > 0)[..., None] | keypoints.xy.any(axis=-1, keepdims=True)
    xy = np.where(labelled, points_turned_back(keypoints.xy, orientation), keypoints.xy)
    return replace(keypoints, xy=xy)


def points_turned_back(points: np.ndarray, orientation: int) -> np.ndarray:
    """Normalized points of an image as EXIF shows it, as points of its stored pixels.

    The last axis is x, y.
    """
    if orientation >= QUARTER:
        points, orientation = points[..., ::-1], _TRANSPOSED[orientation]
    rows, columns = _FLIPPED.get(orientation, (1, 1))
    x, y = points[..., 0], points[..., 1]
    return np.stack((x if columns > 0 else 1 - x, y if rows > 0 else 1 - y), axis=-1)


def mask_turned_back(mask: np.ndarray, orientation: int) -> np.ndarray:
    """A mask of an image as EXIF shows it, as one of its stored pixels, rows first."""
    if orientation >= QUARTER:
        mask, orientation = mask.T, _TRANSPOSED[orientation]
    rows, columns = _FLIPPED.get(orientation, (1, 1))
    return mask[::rows, ::columns]


def _turned_mask(mask: PngMask, orientation: int) -> PngMask:
    try:
        pixels = mask_turned_back(decode_mask_png(mask.data), orientation)
    except ValueError:
        return mask  # who reads it says so
    return PngMask(encode_gray_png(pixels, is_box=is_box_png(mask.data)))


def _turned(mask: PngMask, orientation: int) -> PngMask:
    try:
        return PngMask(encode_gray_png(mask_turned_back(decode_pixels(mask.data), orientation)))
    except ValueError:
        return mask

"""EXIF orientation: rotation of images, and of their annotations.

TensorFlow, many trainers and OpenCV (with a flag) use the pixels as stored; browsers, CVAT and
Ultralytics apply the orientation (CIPA DC-008, tag 0x0112). All agree on an image without it.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.images.image import FIRST_TRANSPOSED, UPRIGHT, read_image_header
from tfod.detection.images.mask_images import (
    decode_mask_png,
    decode_pixels,
    encode_gray_png,
    encode_mask_png,
    is_box_png,
)
from tfod.detection.images.pillow import open_image
from tfod.errors import TfodError, excerpt, how_to_install

_AFTER_TRANSPOSE = {5: 1, 6: 4, 7: 3, 8: 2}  # remaining orientation after swapping rows and columns
_STEPS = {2: (1, -1), 3: (-1, -1), 4: (-1, 1)}  # of slices of rows and columns
_ORIENTATION_TAG = 0x0112
_PILLOW_TRANSPOSE = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""Names of Pillow's ``Transpose``."""
_KEEP_HINT = "keep it with: tfod convert --exif keep"
_INVERSE = {6: 8, 8: 6}
"""Orientations whose inverse is another one; all others are their own inverse."""


def read_orientation(encoded: bytes | memoryview) -> int:
    """Return the EXIF orientation of an image file; 1 if it is missing or invalid."""
    data = bytes(encoded)
    header = read_image_header(data, 0, len(data))
    return header.orientation if header else UPRIGHT


def invert_orientation(orientation: int) -> int:
    """Return the inverse of an orientation; ``unrotate`` with it rotates annotations upright."""
    return _INVERSE.get(orientation, orientation)


def rotate_image(encoded: bytes | memoryview, name: str) -> bytes:
    """Return an image file with rotated pixels instead of its EXIF orientation.

    JPEGs keep their tables and subsampling; other formats are written without loss. Raise TfodError
    if the image ``name`` cannot be decoded, or Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        message = f"{name} has an EXIF orientation, and rotating it needs Pillow"
        raise TfodError(f"{message}; {how_to_install('cvat')}, or {_KEEP_HINT}") from None
    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about tags that it cannot read
            with open_image(encoded) as image:
                image.load()
                transpose = getattr(Image.Transpose, _PILLOW_TRANSPOSE[read_orientation(encoded)])
                # Pillow has already rotated a TIFF while loading it.
                rotated = image if image.format == "TIFF" else image.transpose(transpose)
                rotated.save(out, **_saving_options(image), exif=_exif_without_orientation(image))
    except Exception as error:  # Pillow raises many types for an invalid image
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TfodError(
            f"{name} has an EXIF orientation and cannot be rotated ({reason}); save it again, or "
            f"{_KEEP_HINT}"
        ) from None
    return out.getvalue()


def _saving_options(image: Any) -> dict[str, Any]:
    """Return options that save an opened image with minimal changes."""
    options = {key: image.info[key] for key in ("icc_profile", "dpi") if image.info.get(key)}
    if image.format in ("JPEG", "MPO"):
        from PIL import JpegImagePlugin

        # Pillow rejects quality="keep" after a rotation; pass the same settings explicitly.
        options |= {"format": "JPEG", "qtables": image.quantization}
        subsampling = JpegImagePlugin.get_sampling(image)
        return {**options, "subsampling": subsampling} if subsampling >= 0 else options
    # lossless is an option of WebP, compression of TIFF.
    return {**options, "format": image.format, "lossless": True, "compression": "tiff_lzw"}


def _exif_without_orientation(image: Any) -> bytes:
    if image.format == "TIFF":
        return b""  # its tags describe the pixel layout too, so Pillow writes new ones
    try:
        exif = image.getexif()
        exif.pop(_ORIENTATION_TAG, None)
        return exif.tobytes() if exif else b""
    except Exception:  # Pillow raises many types for a damaged directory
        return b""


def rotate_pixels(detection: Detection) -> Detection:
    """Rotate only the image of a Detection, whose annotations already match the result."""
    encoded = rotate_image(detection.encoded or b"", f"image {excerpt(detection.filename)}")
    return replace(detection, encoded=encoded, sha256=hashlib.sha256(encoded).hexdigest())


def unrotate(detection: Detection, orientation: int) -> Detection:
    """Convert annotations of an image, shown with its EXIF orientation, to stored pixels."""
    height, width = detection.height, detection.width
    if orientation >= FIRST_TRANSPOSED:
        height, width = width, height
    numbers = detection.numerical_masks
    return replace(
        detection,
        height=height,
        width=width,
        boxes=unrotate_boxes(detection.boxes, orientation),
        masks=detection.masks
        and [mask and _unrotate_object_mask(mask, orientation) for mask in detection.masks],
        numerical_masks=None
        if numbers is None
        else np.stack([unrotate_mask(mask, orientation) for mask in numbers]),
        keypoints=unrotate_keypoints(detection.keypoints, orientation),
        image_masks={
            name: _unrotate_image_mask(mask, orientation)
            for name, mask in detection.image_masks.items()
        },
    )


def unrotate_boxes(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Convert normalized boxes ``xmin, ymin, xmax, ymax``, shape (n, 4), to stored pixels."""
    points = unrotate_points(boxes.reshape(-1, 2, 2), orientation)
    return np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)


def unrotate_keypoints(keypoints: Keypoints | None, orientation: int) -> Keypoints | None:
    """Convert keypoints to stored pixels; unlabelled keypoints stay 0, 0."""
    if keypoints is None:
        return None
    labelled = (keypoints.visibility > 0)[..., None] | keypoints.xy.any(axis=-1, keepdims=True)
    xy = np.where(labelled, unrotate_points(keypoints.xy, orientation), keypoints.xy)
    return replace(keypoints, xy=xy)


def unrotate_points(points: np.ndarray, orientation: int) -> np.ndarray:
    """Convert normalized points, with x and y in the last axis, to stored pixels."""
    if orientation >= FIRST_TRANSPOSED:
        points, orientation = points[..., ::-1], _AFTER_TRANSPOSE[orientation]
    rows, columns = _STEPS.get(orientation, (1, 1))
    x, y = points[..., 0], points[..., 1]
    return np.stack((x if columns > 0 else 1 - x, y if rows > 0 else 1 - y), axis=-1)


def unrotate_mask(mask: np.ndarray, orientation: int) -> np.ndarray:
    """Convert a mask, rows first, to stored pixels."""
    if orientation >= FIRST_TRANSPOSED:
        mask, orientation = mask.T, _AFTER_TRANSPOSE[orientation]
    rows, columns = _STEPS.get(orientation, (1, 1))
    return mask[::rows, ::columns]


def _unrotate_object_mask(mask: PngMask, orientation: int) -> PngMask:
    try:
        pixels = unrotate_mask(decode_mask_png(mask.data), orientation)
    except ValueError:
        return mask  # the reader of the mask reports it
    return PngMask(encode_mask_png(pixels, is_box=is_box_png(mask.data)))


def _unrotate_image_mask(mask: PngMask, orientation: int) -> PngMask:
    try:
        return PngMask(encode_gray_png(unrotate_mask(decode_pixels(mask.data), orientation)))
    except ValueError:
        return mask

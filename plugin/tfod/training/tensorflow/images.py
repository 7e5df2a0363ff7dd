"""One image and its masks, decoded in TensorFlow's graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

Size = tuple[int, int]
"""Height and width in pixels."""


def decode_image(encoded: Any) -> Any:
    """Decode an image file as the OD API does: uint8 of shape (height, width, 3), first frame."""
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape((None, None, 3))
    return image


def decode_raw_or_encoded(data: Any, height: Any, width: Any) -> Any:
    """Decode an image that is a file, or is its raw pixels in one or three channels of a byte."""
    length, pixels = tf.cast(tf.strings.length(data), tf.int64), height * width

    def raw() -> Any:
        shape = tf.stack([height, width, length // pixels])
        image = tf.reshape(tf.io.decode_raw(data, tf.uint8), shape)
        return tf.broadcast_to(image, tf.stack([height, width, tf.constant(3, tf.int64)]))

    is_raw = (pixels > 0) & ((length == pixels) | (length == 3 * pixels))
    image = tf.cond(is_raw, raw, lambda: decode_image(data))
    image.set_shape((None, None, 3))
    return image


def resize_image(image: Any, size: Size | None) -> Any:
    """An image in another size, bilinearly and without keeping its proportions; None keeps it."""
    if size is None:
        return image
    # What tf.image.resize calls in the end: for an image of known rank the rest of it is a waste.
    resized = tf.raw_ops.ResizeBilinear(
        images=image[None], size=tf.constant(size, tf.int32), half_pixel_centers=True
    )[0]
    # Between pixels no value is beyond theirs, so none can overflow.
    return tf.cast(tf.round(resized), tf.uint8)


def decode_png_masks(pngs: Any, shape: Any) -> Any:
    """Decode the PNG masks of an image.

    Args:
        pngs: one for each object, shape (n,); an empty one is an object without a mask.
        shape: height and width of the image, int32.

    Returns:
        float32 of shape (n, height, width), 1 where the object is.
    """

    def decode(png: Any) -> Any:
        return tf.cond(
            tf.strings.length(png) > 0,
            lambda: tf.squeeze(tf.io.decode_png(png, channels=1), 2),
            lambda: tf.zeros(shape, tf.uint8),
        )

    signature = tf.TensorSpec((None, None), tf.uint8)
    masks = tf.cond(
        tf.size(pngs) > 0,  # a loop of no turns does not know the shape of its result
        lambda: tf.map_fn(decode, pngs, fn_output_signature=signature),
        lambda: tf.zeros(tf.concat([[0], shape], 0), tf.uint8),
    )
    return _binary(masks)


def shape_number_masks(values: Any, shape: Any) -> Any:
    """Shape masks that are written as numbers, object by object and row by row, as floats.

    Returns:
        As :func:`decode_png_masks`.
    """
    return _binary(tf.reshape(values, tf.concat([[-1], shape], 0)))


def resize_masks(masks: Any, size: Size | None) -> Any:
    """Masks in another size, where the nearest pixel counts; None keeps theirs."""
    if size is None:
        return masks
    return tf.squeeze(tf.image.resize(masks[..., None], size, "nearest"), 3)


def _binary(masks: Any) -> Any:
    return tf.cast(masks > 0, tf.float32)

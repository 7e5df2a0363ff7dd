"""BOX rules for masks and keypoints of objects, and for masks of whole images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.decoding import can_decode
from tfod.checker.analysis.encoded_images import FORMAT_TITLES, looks_like
from tfod.checker.finding import Finding, Severity
from tfod.checker.rules.registry import detection_rule, rule
from tfod.detection import keys
from tfod.detection.box_geometry import find_far_boxes
from tfod.detection.images.image import read_image_header
from tfod.detection.images.mask_images import decode_mask_png, decode_pixels, png_sizes
from tfod.example.wire import Kind

_MAX_MASKS = 4  # per batch; some of them may be empty
_MAX_MASK_PIXELS = 1 << 24
_MAX_BATCH_PIXELS = 1 << 24  # of all masks of a batch that are compared with their boxes

detection_rule(
    "BOX015 error: mask size differs from the image size",
    why="Numerical masks are reshaped to objects x image/height x image/width: training and "
    "import stop at the record.",
    fix="In {script}, write one number per pixel for each mask, and the size of the image.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_instance_masks",
)
detection_rule(
    "BOX016 error: number of keypoints does not match the number of objects",
    why="Keypoints are reshaped to objects x points: training and import stop at the record.",
    fix="In {script}, write the same number of points for each object, and one y for each x.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_keypoints",
)


@rule(
    "BOX017 warning: PNG mask size differs from the image size",
    why="Trainers scale the mask together with the image, so it does not cover the object, or "
    "training stops. CVAT's import rejects it.",
    fix="In {script}, write masks with the size of the stored image, also if it was resized.",
    source="tensorflow/models: official/vision/dataloaders/maskrcnn_input.py, _parse_train_data",
)
def _check_object_mask_size(batch: Batch) -> Iterator[Finding]:
    return _report_mask_sizes(batch, (keys.MASK,))


@rule(
    "BOX018 warning: size of a whole-image PNG mask differs from the image size",
    why="Trainers scale the mask together with the image, so its classes do not cover the objects.",
    fix="In {script}, write masks with the size of the stored image, also if it was resized.",
    source="tensorflow/models: official/projects/panoptic/dataloaders/"
    "panoptic_maskrcnn_input.py, which stacks both",
)
def _check_image_mask_size(batch: Batch) -> Iterator[Finding]:
    """Report the first mask per key and record whose size differs from the image size."""
    return _report_mask_sizes(batch, keys.IMAGE_MASKS.values())


def _report_mask_sizes(batch: Batch, mask_keys: Iterable[str]) -> Iterator[Finding]:
    detections = batch.detections
    for key in mask_keys:
        column = detections.column(key, Kind.BYTES)
        if not len(column.values):
            continue
        sizes = detections.sizes.copy()
        for row, header in enumerate(batch.images.headers):
            if header is not None:
                sizes[row] = header.height, header.width
        rows = np.repeat(np.arange(len(batch)), column.counts)
        mask_sizes = png_sizes(column.buffer, column.values)
        differs = (mask_sizes != sizes[rows]).any(axis=1)
        differs &= (mask_sizes * sizes[rows] > 0).all(axis=1)  # both sizes are known
        first = np.flatnonzero(differs)[np.unique(rows[differs], return_index=True)[1]]
        pairs = zip(rows[first].tolist(), mask_sizes[first].tolist(), strict=True)
        for row, (height, width) in pairs:
            image_size = f"{sizes[row, 1]}x{sizes[row, 0]}"
            message = f"{column.key} is {width}x{height} pixels, but the image is {image_size}"
            yield batch.finding(row, message, column.key)


@rule(
    "BOX019 info: PNG mask has values other than 0 and 1",
    why="TF-Vision trains on the pixel values: with 0 and 255, and with 1-bit gray, which decodes "
    "to these, the target is 255 instead of 1. The OD API treats each value above 0 as the object.",
    fix="In {script}, write 8-bit gray with 0 and 1, or set "
    "mask_binarize_threshold: 0 in the decoder of the TF-Vision experiment.",
    source="official/vision/dataloaders: tf_example_decoder.py, _decode_masks and decode; "
    "maskrcnn_input.py, gt_masks",
    once=True,
)
def _check_mask_values(batch: Batch) -> Iterator[Finding]:
    """Report values above 1 in the first masks, as TensorFlow decodes them; needs Pillow."""
    column = batch.detections.column(keys.MASK, Kind.BYTES)
    # The masks of a shard are usually all written alike, so a few are enough.
    spans = column.values[: _MAX_MASKS if can_decode() else 0]
    rows = np.repeat(np.arange(len(batch)), column.counts)[: len(spans)].tolist()
    sizes = png_sizes(column.buffer, spans).tolist()
    for row, (start, length), (height, width) in zip(rows, spans.tolist(), sizes, strict=True):
        if not 0 < height * width <= _MAX_MASK_PIXELS:
            continue
        with suppress(ValueError):  # not a PNG, which BOX020 reports
            pixels = decode_pixels(memoryview(column.buffer)[start : start + length])
            # TensorFlow decodes 1-bit gray to 0 and 255.
            largest = int(pixels.max()) * (255 if pixels.dtype == bool else 1)
            if largest > 1:
                message = f"{column.key} has values up to {largest} instead of 1 for the object"
                yield batch.finding(row, message, column.key, largest)


@rule(
    "BOX020 error: mask is not a PNG image",
    why="Trainers that load masks stop ('Unknown image file format'), and so does an import. A "
    "JPEG, which is a warning, decodes with gray pixels around the object; the OD API treats "
    "these as the object, TF-Vision as target values up to 255.",
    fix="In {script}, write each mask as a PNG with 0 and 1, as tfod does.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _decode_png_instance_masks; "
    "official/vision/dataloaders: tf_example_decoder.py, _decode_masks",
    cases={"jpeg": Severity.WARNING},
)
def _check_mask_format(batch: Batch) -> Iterator[Finding]:
    """Report object masks that are not PNG images; an empty value means no mask."""
    column = batch.detections.column(keys.MASK, Kind.BYTES)
    spans = column.values
    rows = np.repeat(np.arange(len(batch)), column.counts)
    is_png = (png_sizes(column.buffer, spans) > 0).all(axis=1)

    def make_finding(mask: int) -> Finding:
        row, start, end = int(rows[mask]), int(spans[mask, 0]), int(spans[mask].sum())
        number = mask - int(column.row_splits[row])
        header = read_image_header(column.buffer, start, end)
        looks = FORMAT_TITLES[header.format] if header else looks_like(column.buffer, start, end)
        message = f"the mask of object {number} is not a PNG image"
        message += f" but {looks}" if looks else ""
        case = "jpeg" if header is not None and header.format == "jpeg" else ""
        return batch.finding(row, message, column.key, {"object": number}, case=case)

    return map(make_finding, np.flatnonzero(~is_png & (spans[:, 1] > 0)).tolist())


@rule(
    "BOX021 error: keypoints in pixels instead of normalized coordinates",
    why="Trainers and importers multiply by the image size, which puts the points far outside it.",
    fix="In {script}, divide x by the image width and y by the image height.",
    source="tensorflow/models: dataset_tools/create_coco_tf_record.py, keypoints_x; "
    "core/keypoint_ops.py, to_absolute_coordinates",
)
def _check_keypoints(batch: Batch) -> Iterator[Finding]:
    """Report records where most labeled keypoints (not at 0, 0) have a coordinate above 2."""
    x, y = (batch.detections.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y))
    paired = (x.counts == y.counts) & (x.counts > 0)
    points = np.stack([axis.values[np.repeat(paired, axis.counts)] for axis in (x, y)], axis=1)
    rows = np.repeat(np.flatnonzero(paired), x.counts[paired])
    far = np.bincount(rows[find_far_boxes(points)], minlength=len(batch))
    is_labeled = np.isfinite(points).all(axis=1) & points.any(axis=1)
    labeled = np.bincount(rows[is_labeled], minlength=len(batch))
    for row in np.flatnonzero(2 * far > labeled).tolist():
        message = f"{far[row]} of {labeled[row]} keypoints look like pixels"
        yield batch.finding(row, message, x.key, int(far[row]))


@rule(
    "BOX023 error: mask does not fit its box",
    why="The OD API treats each value above 0 as the object, so it learns the background from "
    "trimaps (1, 2, 3), inverted masks and masks in the wrong order. A few are a warning.",
    fix="In {script}, write 1 for the object, 0 elsewhere; for trimaps of pets, write mask != 2.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py; tensorflow/models#4592, #6135",
    cases={"few": Severity.WARNING},
)
def _check_mask_in_box(batch: Batch) -> Iterator[Finding]:
    """Report masks with many pixels outside their box; a warning if most masks fit.

    Checks the records whose images are decoded, or else the first records with masks.
    """
    detections, images = batch.detections, batch.images.by_row
    pngs, numbers = (detections.column(keys.MASK, kind) for kind in (Kind.BYTES, Kind.FLOAT))
    pixels = detections.sizes.prod(axis=1) * batch.box_counts
    rows = np.flatnonzero((pngs.counts + numbers.counts > 0) & (pixels > 0))
    decoded = [row for row in rows.tolist() if row in images and images[row].failure is not None]
    rows = np.array(decoded or rows[:_MAX_MASKS], np.intp)
    masks: list[tuple[int, int, int]] = []  # record, object, number of pixels outside
    for row in rows[np.cumsum(pixels[rows]) <= _MAX_BATCH_PIXELS].tolist():
        size, spans, values = detections.sizes[row], pngs[row], numbers[row]
        fits = (png_sizes(pngs.buffer, spans) == size).all(axis=1)  # BOX017 reports the others
        is_numerical = len(values) == pixels[row]
        for number, box in enumerate(batch.boxes.of(row)):
            mask = values.reshape(-1, *size)[number] > 0 if is_numerical else np.empty(0)
            if number < len(spans) and fits[number]:
                start, length = spans[number].tolist()
                with suppress(ValueError, ImportError):  # BOX020 reports masks that are not PNGs
                    mask = decode_mask_png(memoryview(pngs.buffer)[start : start + length])
            if mask.any():
                masks.append((row, number, _count_pixels_outside(mask, box)))
    misfits = [mask for mask in masks if mask[2]]
    case = "" if 2 * len(misfits) > len(masks) > 1 else "few"
    for row, number, count in misfits:
        message = f"mask {number} has {count:,} pixels above 0 outside its box"
        yield batch.finding(row, message, pngs.key, {"object": number}, case=case)


def _count_pixels_outside(mask: np.ndarray, box: np.ndarray) -> int:
    """Count the pixels outside the box; 0 if they are few, or if another rule reports the box."""
    sides = np.array(mask.shape[::-1])
    low, high = box.reshape(2, 2)
    if not (low < high).all() or find_far_boxes(box[None]).any():
        return 0
    margin = 2 + 0.1 * (high - low) * sides  # boxes may be a bit too small
    left, top = np.clip(low * sides - margin, 0, sides).astype(int)
    right, bottom = np.clip(high * sides + margin + 1, 0, sides).astype(int)
    inside, total = mask[top:bottom, left:right], int(mask.sum())
    around, outside = mask.size - inside.size, total - int(inside.sum())
    return outside if 2 * outside > total or 2 * outside > around > mask.size // 20 else 0

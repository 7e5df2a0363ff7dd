"""BOX: masks and keypoints of objects, and masks of whole images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.encoded_images import FORMAT_TITLES, can_decode, looks_like
from tfod.checker.finding import Finding, Severity
from tfod.checker.rules.registry import detection_rule, rule
from tfod.detection import keys
from tfod.detection.box_geometry import find_far_boxes
from tfod.detection.images.image import read_image_header
from tfod.detection.images.mask_images import decode_mask_png, decode_pixels, png_sizes
from tfod.example.wire import Kind

_MASKS = 4  # of a batch, which may be empty
_MOST_PIXELS = 1 << 24
_MAX_PIXELS = 1 << 24  # of all masks of a batch that are compared with their boxes

detection_rule(
    "BOX015 error: masks of another size than the image",
    why="Masks as numbers are reshaped to objects x image/height x image/width: training and "
    "import stop at the record.",
    fix="Write one number for each pixel of each object's mask, and the image's size.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_instance_masks",
)
detection_rule(
    "BOX016 error: keypoints that do not go into the objects",
    why="Keypoints are reshaped to objects x points: training and import stop at the record.",
    fix="Write the same number of points for each object, and y for each x.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _reshape_keypoints",
)


@rule(
    "BOX017 warning: PNG mask of another size than the image",
    why="Trainers scale a mask as its image: it lies elsewhere than the object, or training stops. "
    "CVAT's import refuses it.",
    fix="Write masks of the stored image's height and width; draw them again if it was resized.",
    source="tensorflow/models: official/vision/dataloaders/maskrcnn_input.py, _parse_train_data",
)
def object_mask_size(batch: Batch) -> Iterator[Finding]:
    """The header of an object's mask has another size than the image's; of a record the first."""
    return _of_other_size(batch, (keys.MASK,))


@rule(
    "BOX018 warning: PNG mask of the whole image of another size than the image",
    why="Trainers scale a mask as its image: classes lie elsewhere than in the image.",
    fix="Write masks of the stored image's height and width; draw them again if it was resized.",
    source="tensorflow/models: official/projects/panoptic/dataloaders/"
    "panoptic_maskrcnn_input.py, which stacks both",
)
def image_mask_size(batch: Batch) -> Iterator[Finding]:
    """The same of a mask of the whole image, of each key the first."""
    return _of_other_size(batch, keys.IMAGE_MASKS.values())


def _of_other_size(batch: Batch, mask_keys: Iterable[str]) -> Iterator[Finding]:
    found = batch.detections
    for key in mask_keys:
        column = found.column(key, Kind.BYTES)
        if not len(column.values):
            continue
        sizes = found.sizes.copy()
        for row, header in enumerate(batch.images.headers):
            if header is not None:
                sizes[row] = header.height, header.width
        rows = np.repeat(np.arange(len(batch)), column.counts)
        stated = png_sizes(column.buffer, column.values)
        odd = (stated != sizes[rows]).any(axis=1) & (stated * sizes[rows] > 0).all(axis=1)
        firsts = np.unique(rows[odd], return_index=True)[1]
        odd_sizes = zip(rows[odd][firsts].tolist(), stated[odd][firsts].tolist(), strict=True)
        for row, (height, width) in odd_sizes:
            of_image = f"{sizes[row, 1]}x{sizes[row, 0]}"
            message = f"{column.key} is {width}x{height} pixels, its image {of_image}"
            yield batch.finding(row, message, column.key)


@rule(
    "BOX019 info: PNG mask with other values than 0 and 1",
    why="TF-Vision trains on the values as they are: a mask of 0 and 255 asks for 255 in place of "
    "1, and a mask of one bit is read as such. The OD API takes what is not 0.",
    fix="Write masks of 8 bits with 0 and 1, as tfod does, or set mask_binarize_threshold: 0 in "
    "the decoder of TF-Vision's experiment.",
    source="official/vision/dataloaders: tf_example_decoder.py, _decode_masks and decode; "
    "maskrcnn_input.py, gt_masks",
    once=True,
)
def other_mask_values(batch: Batch) -> Iterator[Finding]:
    """As TensorFlow reads the first masks of a batch: who writes one so writes all so.

    Needs an image library.
    """
    column = batch.detections.column(keys.MASK, Kind.BYTES)
    spans = column.values[: _MASKS if can_decode() else 0]
    rows = np.repeat(np.arange(len(batch)), column.counts)[: len(spans)].tolist()
    sizes = png_sizes(column.buffer, spans).tolist()
    for row, (start, length), (height, width) in zip(rows, spans.tolist(), sizes, strict=True):
        if not 0 < height * width <= _MOST_PIXELS:
            continue
        with suppress(ValueError):  # it is no PNG
            pixels = decode_pixels(memoryview(column.buffer)[start : start + length])
            largest = int(pixels.max()) * (255 if pixels.dtype == bool else 1)  # of 1 bit
            if largest > 1:
                message = f"{column.key} has values up to {largest}, where 1 is the object"
                yield batch.finding(row, message, column.key, largest)


@rule(
    "BOX020 error: mask that is not a PNG image",
    why="Trainers that load masks stop at it ('Unknown image file format'), and so does an import. "
    "A JPEG, a warning, is read with gray pixels around the object, which the OD API takes for "
    "the object and TF-Vision for numbers up to 255.",
    fix="Write each mask as a PNG of one channel with 0 and 1, as tfod does.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, _decode_png_instance_masks; "
    "official/vision/dataloaders: tf_example_decoder.py, _decode_masks",
    cases={"jpeg": Severity.WARNING},
)
def not_a_png_mask(batch: Batch) -> Iterator[Finding]:
    """Of each such mask of an object; an empty value is an object without a mask."""
    column = batch.detections.column(keys.MASK, Kind.BYTES)
    spans = column.values
    rows = np.repeat(np.arange(len(batch)), column.counts)
    is_png = (png_sizes(column.buffer, spans) > 0).all(axis=1)

    def make(at: int) -> Finding:
        row, start, end = int(rows[at]), int(spans[at, 0]), int(spans[at].sum())
        number = at - int(column.row_splits[row])
        header = read_image_header(column.buffer, start, end)
        looks = FORMAT_TITLES[header.format] if header else looks_like(column.buffer, start, end)
        message = f"the mask of object {number} is not a PNG image"
        message += f" but {looks}" if looks else ""
        case = "jpeg" if header is not None and header.format == "jpeg" else ""
        return batch.finding(row, message, column.key, {"object": number}, case=case)

    return map(make, np.flatnonzero(~is_png & (spans[:, 1] > 0)).tolist())


@rule(
    "BOX021 error: keypoints in pixels instead of parts of the image",
    why="Trainers and importers multiply by the image's size again: the points lie far outside.",
    fix="Divide x by the image's width and y by its height.",
    source="tensorflow/models: dataset_tools/create_coco_tf_record.py, keypoints_x; "
    "core/keypoint_ops.py, to_absolute_coordinates",
)
def keypoints_in_pixels(batch: Batch) -> Iterator[Finding]:
    """Most of a record's points have a coordinate larger than 2; those at 0, 0 are not labelled."""
    x, y = (batch.detections.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y))
    paired = (x.counts == y.counts) & (x.counts > 0)
    points = np.stack([one.values[np.repeat(paired, one.counts)] for one in (x, y)], axis=1)
    rows = np.repeat(np.flatnonzero(paired), x.counts[paired])
    far = np.bincount(rows[find_far_boxes(points)], minlength=len(batch))
    is_labelled = np.isfinite(points).all(axis=1) & points.any(axis=1)
    labelled = np.bincount(rows[is_labelled], minlength=len(batch))
    for row in np.flatnonzero(2 * far > labelled).tolist():
        message = f"{far[row]} of {labelled[row]} keypoints look like pixels"
        yield batch.finding(row, message, x.key, int(far[row]))


@rule(
    "BOX023 error: mask does not fit its box",
    why="The OD API takes each value above 0 for the object: it learns the background of trimaps "
    "(1, 2, 3), inverted masks and masks in another order. A few odd masks are a warning.",
    fix="Write 1 where the object is, 0 elsewhere; of a trimap of pets write mask != 2.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py; tensorflow/models#4592, #6135",
    cases={"few": Severity.WARNING},
)
def mask_outside_box(batch: Batch) -> Iterator[Finding]:
    """Most of a mask is outside its box, or most of what is outside; single ones are a warning.

    Looks at the records whose images are decoded, or else at the first ones with masks.
    """
    found, images = batch.detections, batch.images.by_row
    pngs, numbers = (found.column(keys.MASK, kind) for kind in (Kind.BYTES, Kind.FLOAT))
    pixels = found.sizes.prod(axis=1) * batch.box_counts
    rows = np.flatnonzero((pngs.counts + numbers.counts > 0) & (pixels > 0))
    decoded = [row for row in rows.tolist() if row in images and images[row].failure is not None]
    rows = np.array(decoded or rows[:_MASKS], np.int64)
    outside: list[tuple[int, int, int]] = []
    for row in rows[np.cumsum(pixels[rows]) <= _MAX_PIXELS].tolist():
        size, spans, values = found.sizes[row], pngs[row], numbers[row]
        fits = (png_sizes(pngs.buffer, spans) == size).all(axis=1)  # BOX017 reports the others
        is_numerical = len(values) == pixels[row]
        for number, box in enumerate(batch.boxes.of(row)):
            mask = values.reshape(-1, *size)[number] > 0 if is_numerical else np.empty(0)
            if number < len(spans) and fits[number]:
                start, length = spans[number].tolist()
                with suppress(ValueError, ImportError):  # BOX020 reports what is no PNG
                    mask = decode_mask_png(memoryview(pngs.buffer)[start : start + length])
            if mask.any():
                outside.append((row, number, _pixels_outside(mask, box)))
    wrong = [one for one in outside if one[2]]
    case = "" if 2 * len(wrong) > len(outside) > 1 else "few"
    for row, number, count in wrong:
        message = f"mask {number} has {count:,} pixels above 0 outside its box"
        yield batch.finding(row, message, pngs.key, {"object": number}, case=case)


def _pixels_outside(mask: np.ndarray, box: np.ndarray) -> int:
    """The pixels of a mask outside its box; 0 if these are few, or other rules report the box."""
    sides = np.array(mask.shape[::-1])
    low, high = box.reshape(2, 2)
    if not (low < high).all() or find_far_boxes(box[None]).any():
        return 0
    spare = 2 + 0.1 * (high - low) * sides  # boxes may be a bit too small
    left, top = np.clip(low * sides - spare, 0, sides).astype(int)
    right, bottom = np.clip(high * sides + spare + 1, 0, sides).astype(int)
    inside, total = mask[top:bottom, left:right], int(mask.sum())
    around, outside = mask.size - inside.size, total - int(inside.sum())
    return outside if 2 * outside > total or 2 * outside > around > mask.size // 20 else 0

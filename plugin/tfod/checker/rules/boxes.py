"""BOX rules: defects of bounding boxes, checked for all records of a batch at once.

Most rules skip boxes that are not finite or appear to be in pixels: further findings would only
follow from that. ``row`` is the index of a record in the batch, ``box`` the index of a box among
all boxes of the batch, and ``number`` its index within its record, which messages show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.box_arrays import Boxes
from tfod.checker.analysis.box_forms import FIXES, SAMPLE_SIZE, SIZES, find_box_forms, sample_boxes
from tfod.checker.analysis.column_order import MAX_COORDINATE, ROUNDING_ERROR, SIDES, BoxColumns
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Severity
from tfod.checker.rules.registry import BatchCheck, dataset_rule, detection_rule, rule
from tfod.detection.box_geometry import have_area, touch_image
from tfod.detection.problems import READ
from tfod.sources.layouts import BOX_KEY

MAX_NUMBER_OF_BOXES = 100
_NEARLY_ONE_PIXEL = 1 - 1e-3  # rounding can make a box of one pixel slightly smaller
BoxCheck: TypeAlias = "Callable[[Batch, Boxes], Iterable[Finding]]"
_MIN_BOXES = 10  # in a shard with fewer boxes, BOX007 reports each of them

_REDRAW = "In {tool}, redraw {box} in {image}"
_CLIP = f"{_REDRAW}, or clip such boxes: tfod repair SOURCE repaired --odd-boxes clip"
_DROP = "drop such boxes: tfod repair SOURCE repaired --odd-boxes drop"
_REDRAW_OR_DROP = f"{_REDRAW}, or {_DROP}"
_TO_ABSOLUTE = "tensorflow/models: core/box_list_ops.py, to_absolute_coordinates"


def _box_rule(heading: str, **options: Any) -> Callable[[BoxCheck], BatchCheck]:
    """Declare a rule that is only called if a batch has boxes that may be invalid."""

    def declare(check: BoxCheck) -> BatchCheck:
        return rule(heading, **options)(
            lambda batch: () if batch.boxes.all_valid else check(batch, batch.boxes)
        )

    return declare


def _format_corners(corners: list[float]) -> str:
    return ", ".join(f"{side} {value:.7g}" for side, value in zip(SIDES, corners, strict=True))


@rule(
    "BOX001 error: lists of objects differ in length",
    why="It is unclear which value belongs to which object. TensorFlow fails with a shape error; "
    "FiftyOne silently drops the surplus values.",
    fix="In {script}, write exactly one value per object into each of these lists.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py; FiftyOne: utils/tf.py",
    cases={READ: Severity.ERROR},
)
def _check_list_lengths(batch: Batch) -> Iterator[Finding]:
    problems = [
        problem
        for problem in batch.detections.problems
        if problem.code == "BOX001" and batch.live[problem.row]
    ]
    # The problem without a case is sorted last, so it wins if a record has both.
    by_row = {item.row: item for item in sorted(problems, key=lambda item: item.case, reverse=True)}

    def make_finding(row: int) -> Finding:
        lengths = by_row[row].value
        assert isinstance(lengths, Mapping)
        counts = (f"{count} {key.rpartition('/')[2]}" for key, count in lengths.items())
        message = f"lists differ in length: {', '.join(counts)}"
        return batch.finding(row, message, "image/object", {**lengths}, case=by_row[row].case)

    for case in ("", READ):
        rows = sorted(row for row, problem in by_row.items() if problem.case == case)
        yield from batch.findings(rows, make_finding, case)


@_box_rule(
    "BOX002 error: box coordinate is not a finite number",
    why="The trainer silently drops boxes with NaN coordinates, and a single infinite coordinate "
    "makes the loss NaN.",
    fix=f"In {{script}}, look for a division by zero or a missing value, or {_DROP}",
    source="tensorflow/models: utils/ops.py, filter_groundtruth_with_nan_box_coordinates; "
    "tensorflow/models#1881",
)
def _check_finite(batch: Batch, boxes: Boxes) -> Iterator[Finding]:
    def make_finding(box: int) -> Finding:
        row, number, corners = boxes.at(box)
        side = next(index for index, corner in enumerate(corners) if not np.isfinite(corner))
        value: JsonValue = {"object": number, "box": [repr(corner) for corner in corners]}
        message = f"box {number} has {SIDES[side]} {corners[side]}"
        return batch.finding(row, message, batch.key_for(f"{BOX_KEY}/{SIDES[side]}"), value)

    yield from batch.findings(np.flatnonzero(~boxes.finite).tolist(), make_finding)


@_box_rule(
    "BOX003 error: box far outside the image",
    why="Training stops with 'maximum box coordinate value is larger than 1.1', or the box is "
    "clipped to nothing. It may have been normalized by another size than that of the image.",
    fix=_CLIP,
    source=_TO_ABSOLUTE,
)
def _check_far_outside(batch: Batch, boxes: Boxes) -> Iterable[Finding]:
    """Report boxes that extend beyond the image further than the trainer tolerates."""
    mask = boxes.normalized & (boxes.overhang > MAX_COORDINATE - 1 + ROUNDING_ERROR)
    mask |= boxes.far & ~boxes.in_pixels  # large coordinates that BOX005 does not report
    return _overhang_findings(batch, mask)


@_box_rule(
    "BOX004 warning: box extends slightly beyond the image",
    why="The trainer tolerates coordinates up to 1.1, but outside the image nothing of the object "
    "is visible.",
    fix=_CLIP,
    source=_TO_ABSOLUTE,
    repair="Boxes that extend beyond the image by at most one pixel, a rounding error, are "
    "clipped. Other boxes are left unchanged.",
)
def _check_slightly_outside(batch: Batch, boxes: Boxes) -> Iterable[Finding]:
    """Report boxes that extend beyond the image, but no further than the trainer tolerates."""
    overhang = boxes.overhang
    mask = boxes.normalized & (overhang > ROUNDING_ERROR)
    mask &= overhang <= MAX_COORDINATE - 1 + ROUNDING_ERROR
    return _overhang_findings(batch, mask)


def _overhang_findings(batch: Batch, mask: np.ndarray) -> Iterator[Finding]:
    overhang, corners = batch.boxes.overhang, batch.boxes.corners
    can_be_clipped = have_area(np.clip(corners, 0, 1))

    def describe(box: int, corners: list[float]) -> str:
        distance = f"{overhang[box]:.4g} of the image side"
        return f"extends beyond [0, 1] by {distance}: {_format_corners(corners)}"

    yield from batch.box_findings(mask & can_be_clipped, describe)
    yield from batch.box_findings(mask & ~can_be_clipped, describe, _REDRAW_OR_DROP)


@_box_rule(
    "BOX005 error: box in pixels instead of normalized coordinates",
    why="Readers multiply coordinates by the image size, which puts these boxes far outside the "
    "image. Datumaro clamps them to nothing.",
    fix="In {script}, divide x by the image width and y by the image height, or convert all "
    "boxes: tfod convert SOURCE normalized --to shards --boxes pixels",
    source="tensorflow/models#9892; tensorflow/models#1881",
    explains="BOX003 BOX004 BOX006 BOX007 BOX011 BOX012 BOX021 BOX023",
)
def _check_pixels(batch: Batch, boxes: Boxes) -> Iterable[Finding]:
    """Report boxes with a coordinate above 2 that miss the image or start in its first pixel."""
    prefix = f"looks like {' or '.join(find_box_forms(sample_boxes(boxes))) or 'pixels'}: "
    are_slips = 2 * boxes.in_pixels.sum() <= len(boxes.corners)  # others can be divided together
    return batch.box_findings(
        boxes.in_pixels,
        lambda _, corners: prefix + _format_corners(corners),
        _REDRAW_OR_DROP if are_slips else "",
    )


@_box_rule(
    "BOX006 error: box is inverted",
    why="The trainer asserts that ymax >= ymin and xmax >= xmin, and stops. Older versions lack "
    "that check and continue with a NaN loss.",
    fix=_REDRAW_OR_DROP,
    source="tensorflow/models: inputs.py, assert_or_prune_invalid_boxes; tensorflow/models#5474",
)
def _check_inverted(batch: Batch, boxes: Boxes) -> Iterable[Finding]:
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized | (boxes.far & touch_image(boxes.corners))
        mask &= (boxes.size < 0).any(axis=1)
    return batch.box_findings(mask, _describe_inversion)


def _describe_inversion(_: int, corners: list[float]) -> str:
    axes = [name for name, index in (("x", 0), ("y", 1)) if corners[index] > corners[index + 2]]
    reason = " and ".join(f"{axis}min is larger than {axis}max" for axis in axes)
    return f"is inverted, {reason}: {_format_corners(corners)}"


@_box_rule(
    "BOX007 warning: box has no area",
    why="It overlaps no anchor, so the model learns nothing from it; a model that matches every "
    "box learns a size of 1e-8, which the box coder adds. Training does not stop.",
    fix=_REDRAW_OR_DROP,
    source="tensorflow/models: box_coders/faster_rcnn_box_coder.py, EPSILON; inputs.py, "
    "assert_or_prune_invalid_boxes lets it pass",
)
def _check_area(batch: Batch, boxes: Boxes) -> Iterable[Finding]:
    text = "has no area: "
    return batch.box_findings(boxes.flat, lambda _, corners: text + _format_corners(corners))


@rule(
    "BOX008 warning: box smaller than one pixel",
    why="Nothing is visible in such a box. It is usually an accidental click.",
    fix="In {tool}, delete or redraw {box} in {image}.",
    source="tensorflow/models#1881",
)
def _check_smaller_than_pixel(batch: Batch) -> Iterable[Finding]:
    boxes = batch.boxes
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized & (boxes.size_in_pixels < _NEARLY_ONE_PIXEL).any(axis=1)
        if not boxes.all_valid:
            mask &= (boxes.size > 0).all(axis=1)

    def describe(box: int, _: list[float]) -> str:
        width, height = boxes.size_in_pixels[box]
        return f"is only {width:.3g} x {height:.3g} pixels"

    return batch.box_findings(mask, describe)


@rule(
    "BOX009 warning: duplicate box",
    why="The object counts twice in the loss and in the evaluation.",
    fix="In {tool}, delete one of the two copies of {box} in {image}.",
    source="tensorflow/models: two equal groundtruth boxes are two objects",
)
def _check_duplicates(batch: Batch) -> Iterator[Finding]:
    boxes = batch.boxes
    for row in _find_rows_with_equal_boxes(batch):
        classes = batch.get_classes(row)
        seen: dict[object, int] = {}
        for number, corners in enumerate(boxes.of(row).tolist()):
            name = classes[number] if number < len(classes) else None
            first = seen.setdefault((*corners, name), number)
            if first != number:
                description = f"is identical to box {first}, including its class"
                yield batch.box_finding(row, number, corners, description)


def _find_rows_with_equal_boxes(batch: Batch) -> list[int]:
    """Return the records that have two equal boxes, and very rarely another (hash collision)."""
    boxes = batch.boxes
    if len(boxes.corners) < 2:
        return []
    # Hash each box with its record, so that a single sort brings equal boxes together. The
    # coordinates were read as float32; adding 0.0 turns -0.0 into 0.0.
    bits = (boxes.corners.T + 0.0).astype("<f4").view(np.uint32)
    hashes = boxes.rows.astype(np.uint64)
    for side in bits:
        hashes ^= side
        hashes *= _HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return []
    rows: list[int] = np.unique(boxes.rows[np.isin(hashes, repeated)]).tolist()
    return rows


_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@rule(
    "BOX010 warning: more boxes than training reads",
    why=f"The input reader keeps {MAX_NUMBER_OF_BOXES} boxes per image and silently drops the "
    "rest. EfficientDet stops as soon as an image has that many: 'please increase "
    "config.max_instances_per_image'.",
    fix="Set max_number_of_boxes in the pipeline's input_reader to the largest number of boxes in "
    "an image. For EfficientDet, set max_instances_per_image to that number plus one.",
    source="tensorflow/models: protos/input_reader.proto, max_number_of_boxes; google/automl: "
    "efficientdet/dataloader.py, pad_to_fixed_size, tf.assert_less",
    cases={"limit": Severity.INFO},
)
def _check_count(batch: Batch) -> Iterator[Finding]:
    """Report images with more boxes than max_number_of_boxes; exactly that number is an info."""
    boxes = batch.boxes
    key = batch.key_for(BOX_KEY)
    for row in np.flatnonzero(boxes.counts >= MAX_NUMBER_OF_BOXES).tolist():
        count, case = int(boxes.counts[row]), ""
        message = f"{count} boxes, more than max_number_of_boxes ({MAX_NUMBER_OF_BOXES})"
        if count == MAX_NUMBER_OF_BOXES:
            message, case = f"{count} boxes, one more than EfficientDet's default allows", "limit"
        yield batch.finding(row, message, key, count, case=case)


@rule(
    "BOX011 warning: x and y appear to be swapped",
    why="Every box is in the wrong place, which only shows when you look at the images.",
    fix="In {script}, divide x by the width and y by the height, and write x to xmin and xmax.",
    source="google/automl#106; tensorflow/models: boxes are ymin, xmin, ymax, xmax",
    explains="BOX003 BOX004",
)
def _check_swapped_axes(batch: Batch) -> Iterator[Finding]:
    """Report images whose boxes look as if x was divided by the height and y by the width."""
    boxes = batch.boxes
    if boxes.all_valid or not len(boxes.corners):
        return
    has_boxes = boxes.counts > 0
    starts = (np.cumsum(boxes.counts) - boxes.counts)[has_boxes]
    with np.errstate(invalid="ignore", divide="ignore"):
        # x / height can be as large as width / height; y / width only as height / width.
        maxima = np.maximum.reduceat(boxes.corners[:, 2:], starts, axis=0)
        minima = np.minimum.reduceat(boxes.corners, starts, axis=0).min(axis=1)
        aspect = (boxes.width / boxes.height)[has_boxes]
        limits = np.stack((aspect, 1 / aspect), axis=1)
        mask = (maxima <= limits + ROUNDING_ERROR).all(axis=1) & (minima >= -ROUNDING_ERROR)
        # A smaller overhang may just as well be a box that was drawn over the edge.
        mask &= (maxima > MAX_COORDINATE + ROUNDING_ERROR).any(axis=1)
    rows = np.flatnonzero(has_boxes)[mask].tolist()
    for row, (x, y) in zip(rows, maxima[mask].tolist(), strict=True):
        extent = f"boxes extend to {x:.4g} in x and {y:.4g} in y"
        message = f"{extent}, as if x was divided by the height and y by the width"
        yield batch.finding(row, message, batch.key_for(BOX_KEY))


@dataset_rule(
    "BOX012 error: most boxes have no area",
    why="A few boxes without area are slips. If there are this many, the script that wrote them is "
    "probably wrong. A model learns nothing from them.",
    fix="In {script}, look for integer division, or for a corner that is written twice.",
    source="google/automl#106; tensorflow/models: core/box_list_ops.py, iou of such a box is 0",
    explains="BOX007",
)
def _check_mostly_flat(result: DatasetResult) -> Iterator[Finding]:
    """Report shards of ten or more boxes, at least half of which have no area (BOX007)."""
    for shard in result.shards:
        if shard.boxes >= _MIN_BOXES and 2 * shard.flat >= shard.boxes:
            yield Finding(f"{shard.flat:,} of {shard.boxes:,} boxes have no area", shard=shard.name)


@dataset_rule(
    "BOX013 error: box columns appear to be permuted",
    why="The script that wrote the shard took xmin, ymin, xmax and ymax by position from a file "
    "that lists them in a different order. Every box is wrong, even if it looks right.",
    fix="In {script}, read the columns by name. 'xmin=ymin' means that xmin is stored under ymin. "
    "To look at the boxes: tfod show SOURCE",
    source="datitran/raccoon_dataset: xml_to_csv.py reads the children of bndbox by position",
    explains="BOX003 BOX004 BOX005 BOX006 BOX007 BOX008 BOX011 BOX012 BOX023",
)
def _check_column_order(result: DatasetResult) -> Iterator[Finding]:
    """Report shards with many invalid boxes that would all be valid in another column order."""
    for shards in result.by_subset.values():
        if SIZES in find_box_forms(np.concatenate([shard.sample for shard in shards])):
            continue  # BOX022 reports these; an order of corners may fit them by chance
        suspects = [(shard.name, shard.columns) for shard in shards if shard.columns.candidates]
        # Small shards may have enough boxes only together.
        combined = sum((shard.columns for shard in shards), BoxColumns())
        for name, columns in suspects or [(shards[0].name, combined)]:
            if columns.candidates:
                orders, invalid = " or ".join(map(str, columns.candidates)), columns.invalid
                message = f"{invalid:,} of {columns.boxes:,} boxes are inverted or far outside the "
                message += f"image; none would be if the columns were read as {orders}"
                key = result.profile.key_for(BOX_KEY)
                covers = () if suspects else [shard.name for shard in shards[1:]]
                yield Finding(message, key, invalid, shard=name, covers=covers)


@dataset_rule(
    "BOX022 error: boxes are not normalized corner coordinates",
    why="Every box is wrong, even if it looks right. The model learns to detect nothing.",
    fix="In {script}, write normalized corners. To look at the boxes: tfod show SOURCE",
    source="tensorflow/models#8595; dataset_tools/create_pascal_tf_record.py",
    explains="BOX003 BOX004 BOX005 BOX006 BOX007 BOX008 BOX011 BOX012 BOX013 BOX023",
)
def _check_form(result: DatasetResult) -> Iterator[Finding]:
    """Report shards, or all small shards together, whose boxes have another unit or form."""
    forms = {shard.name: find_box_forms(shard.sample) for shard in result.shards}
    small = [shard for shard in result.shards if len(shard.sample) < SAMPLE_SIZE]
    covers: list[str] = []
    if small and not any(forms.values()):
        covers = [shard.name for shard in small[1:]]
        forms = {small[0].name: find_box_forms(np.concatenate([shard.sample for shard in small]))}
    for name, shard_forms in forms.items():
        if shard_forms:
            message = f"boxes seem to be {' or '.join(shard_forms)}"
            fix = f"In {{script}}, {', or '.join(FIXES[form] for form in shard_forms)}."
            key = result.profile.key_for(BOX_KEY)
            yield Finding(message, key, fix=fix, shard=name, covers=covers)


detection_rule(
    "BOX014 error: boxes without exactly four numbers each",
    why="It is unclear which number belongs to which object, so an import stops at the record.",
    fix="In {script}, write all four numbers of every object.",
    source="keras.io/examples/keras_recipes/creating_tfrecords; tfod.detection.problems",
)

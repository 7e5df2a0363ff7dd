"""BOX: the boxes of many records at once, as arrays.

Coordinates are normalized, ``xmin, ymin, xmax, ymax``. Of a box that looks like pixels, or that is
not finite, most rules say nothing: everything else follows from that.

A rule says where something is wrong, and what; the rest of a finding is added where it is kept, and
how severe it is where a report is made (see :mod:`tfod.checker.check`). ``row`` is a record of the
batch, ``box`` a box among all of the batch, and ``number`` the same among those of its record,
which is what people are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.box_forms import FIXES, SAMPLE_SIZE, SIZES, forms_of, sample_of
from tfod.checker.analysis.column_order import MAX_COORDINATE, ROUNDING_ERROR, SIDES, BoxColumns
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, Severity
from tfod.checker.rules.registry import dataset_rule, detection_rule, rule
from tfod.detection.box_geometry import touch_image
from tfod.detection.problems import READ
from tfod.sources.layouts import BOX_KEY

MAX_NUMBER_OF_BOXES = 100
_ONE_PIXEL = 1 - 1e-3  # a box of one pixel, after rounding

_TO_ABSOLUTE = "tensorflow/models: core/box_list_ops.py, to_absolute_coordinates"
_MANY = 10
"""Of fewer boxes it is enough to speak of each."""


def _spelled(corners: list[float]) -> str:
    return ", ".join(f"{side} {value:.7g}" for side, value in zip(SIDES, corners, strict=True))


@rule(
    "BOX001 error: lists of different length",
    why="Which value belongs to which object is unknown; TensorFlow stops with a shape error, "
    "FiftyOne drops the rest silently.",
    fix="Write one value for each object into every list of objects.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py; FiftyOne: utils/tf.py",
    cases={READ: Severity.ERROR},
)
def different_lengths(batch: Batch) -> Iterator[Finding]:
    """The lists over a record's objects do not have one length."""
    live, found = batch.live, batch.detections.problems
    problems = [one for one in found if one.code == "BOX001" and live[one.row]]
    by_row = {one.row: one for one in sorted(problems, key=lambda one: one.case, reverse=True)}

    def make(row: int) -> Finding:
        lengths = by_row[row].value
        assert isinstance(lengths, Mapping)
        counts = (f"{count} {key.rpartition('/')[2]}" for key, count in lengths.items())
        message = f"lists of different length: {', '.join(counts)}"
        return batch.finding(row, message, "image/object", {**lengths}, case=by_row[row].case)

    for case in ("", READ):
        rows = sorted(row for row, one in by_row.items() if one.case == case)
        yield from batch.findings(rows, make, case)


@rule(
    "BOX002 error: coordinate is not a number",
    why="The trainer drops a box with NaN without a word, and one infinite coordinate makes the "
    "loss NaN.",
    fix="Find the division by zero or the missing value in the script that wrote the box.",
    source="tensorflow/models: utils/ops.py, filter_groundtruth_with_nan_box_coordinates; "
    "tensorflow/models#1881",
)
def not_finite(batch: Batch) -> Iterator[Finding]:
    """A coordinate is NaN or infinite."""
    boxes = batch.boxes
    if boxes.all_valid:
        return

    def make(box: int) -> Finding:
        row, number, corners = boxes.at(box)
        side = next(at for at, value in enumerate(corners) if not np.isfinite(value))
        value: JsonValue = {"object": number, "box": [repr(one) for one in corners]}
        message = f"box {number} has {SIDES[side]} {corners[side]}"
        return batch.finding(row, message, batch.own(f"{BOX_KEY}/{SIDES[side]}"), value)

    yield from batch.findings(np.flatnonzero(~boxes.finite).tolist(), make)


@rule(
    "BOX003 error: box far outside the image",
    why="Training stops with 'maximum box coordinate value is larger than 1.1', or the box is cut "
    "to nothing.",
    fix="Clip boxes to the image, and divide by the size of the very image that is encoded; tfod "
    "convert clips with --odd-boxes=clip.",
    source=_TO_ABSOLUTE,
)
def far_outside(batch: Batch) -> Iterable[Finding]:
    """A coordinate lies further outside [0, 1] than the trainer tolerates."""
    boxes = batch.boxes
    if boxes.all_valid:
        return ()
    outside = boxes.overhang
    mask = boxes.normalized & (outside > MAX_COORDINATE - 1 + ROUNDING_ERROR)
    mask |= boxes.far & ~boxes.in_pixels  # large coordinates that BOX005 does not speak of
    return batch.box_findings(mask, lambda box, corners: _how_far(corners, outside[box]))


@rule(
    "BOX004 warning: box reaches beyond the image",
    why="The trainer tolerates up to 1.1, but the part outside is no part of any object.",
    fix="Clip boxes to the image: max(0, x) and min(1, x).",
    source=_TO_ABSOLUTE,
    repair="A box that reaches up to a pixel beyond the image, which rounding does, is "
    "clipped to it. Others stay.",
)
def slightly_outside(batch: Batch) -> Iterable[Finding]:
    """A coordinate lies outside [0, 1], but within what the trainer tolerates."""
    boxes = batch.boxes
    if boxes.all_valid:
        return ()
    outside = boxes.overhang
    mask = (
        boxes.normalized
        & (outside > ROUNDING_ERROR)
        & (outside <= MAX_COORDINATE - 1 + ROUNDING_ERROR)
    )
    return batch.box_findings(mask, lambda box, corners: _how_far(corners, outside[box]))


def _how_far(corners: list[float], outside: float) -> str:
    return f"reaches {outside:.4g} of the image's side outside [0, 1]: {_spelled(corners)}"


@rule(
    "BOX005 error: box in pixels instead of parts of the image",
    why="Readers multiply by the image's size again; Datumaro clamps such boxes to nothing.",
    fix="Divide xmin, xmax by the image's width and ymin, ymax by its height, but percent by 100.",
    source="tensorflow/models#9892; tensorflow/models#1881",
)
def looks_like_pixels(batch: Batch) -> Iterable[Finding]:
    """A coordinate is above 2, and the box lies outside the image or begins in its first pixel."""
    boxes = batch.boxes
    if boxes.all_valid:
        return ()
    looks = f"looks like {' or '.join(forms_of(sample_of(boxes))) or 'pixels'}: "
    return batch.box_findings(boxes.in_pixels, lambda _, corners: looks + _spelled(corners))


@rule(
    "BOX006 error: box is inverted",
    why="The trainer stops at it: it asserts that ymax >= ymin and xmax >= xmin. Before that was "
    "added the loss became NaN.",
    fix="Write the smaller coordinate as xmin or ymin.",
    source="tensorflow/models: inputs.py, assert_or_prune_invalid_boxes; tensorflow/models#5474",
)
def inverted(batch: Batch) -> Iterable[Finding]:
    """The right edge lies left of the left one, or the lower above the upper one."""
    boxes = batch.boxes
    if boxes.all_valid:
        return ()
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized | (boxes.far & touch_image(boxes.corners))
        mask &= (boxes.size < 0).any(axis=1)
    return batch.box_findings(mask, _how_inverted)


def _how_inverted(_: int, corners: list[float]) -> str:
    sides = [name for name, at in (("x", 0), ("y", 1)) if corners[at] > corners[at + 2]]
    what = " and ".join(f"{side}min is larger than {side}max" for side in sides)
    return f"is inverted, {what}: {_spelled(corners)}"


@rule(
    "BOX007 warning: box without area",
    why="It overlaps no anchor, so nothing is learnt from it, or a model that matches every box is "
    "taught a size of 1e-8. Training goes on: the box coder adds that to the size.",
    fix="Leave the object out, or give it its real extent.",
    source="tensorflow/models: box_coders/faster_rcnn_box_coder.py, EPSILON; inputs.py, "
    "assert_or_prune_invalid_boxes lets it pass",
)
def no_area(batch: Batch) -> Iterable[Finding]:
    """Width or height is exactly zero."""
    boxes = batch.boxes
    if boxes.all_valid:
        return ()
    return batch.box_findings(boxes.flat, lambda _, corners: f"has no area: {_spelled(corners)}")


@rule(
    "BOX008 warning: box smaller than a pixel",
    why="Nothing can be seen in it; mostly a slip of the mouse.",
    fix="Look at the image, and delete the box or draw it again.",
    source="tensorflow/models#1881",
)
def smaller_than_a_pixel(batch: Batch) -> Iterable[Finding]:
    """Width or height is above zero but less than one pixel."""
    boxes = batch.boxes
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized & (boxes.size_in_pixels < _ONE_PIXEL).any(axis=1)
        if not boxes.all_valid:
            mask &= (boxes.size > 0).all(axis=1)

    def what(box: int, _: list[float]) -> str:
        width, height = boxes.size_in_pixels[box]
        return f"is {width:.3g} x {height:.3g} pixels small"

    return batch.box_findings(mask, what)


@rule(
    "BOX009 warning: same box twice",
    why="The object counts double in the loss and in the evaluation.",
    fix="Delete one of the two.",
    source="tensorflow/models: two equal groundtruth boxes are two objects",
)
def duplicate_box(batch: Batch) -> Iterator[Finding]:
    """Two objects of one image have the same coordinates and the same class."""
    boxes = batch.boxes
    for row in _rows_with_equal_boxes(batch):
        corners = boxes.of(row).tolist()
        classes = batch.classes_of(row)
        seen: dict[object, int] = {}
        for number, one in enumerate(corners):
            name = classes[number] if number < len(classes) else None
            first = seen.setdefault((*one, name), number)
            if first != number:
                what = f"is the same as box {first}, class included"
                yield batch.box_finding(row, number, one, what)


def _rows_with_equal_boxes(batch: Batch) -> list[int]:
    """Records that have, very probably, two boxes of the same coordinates."""
    boxes = batch.boxes
    if len(boxes.corners) < 2:
        return []
    # One number for each box and record, so that a single sort finds what is equal.
    # They were float32, of which two are one number; -0.0 is 0.0.
    bits = (boxes.corners.T + 0.0).astype("<f4").view(np.uint32)
    keys = boxes.rows.astype(np.uint64)
    for side in bits:
        keys ^= side
        keys *= _FACTOR
        keys ^= keys >> np.uint64(29)
    ordered = np.sort(keys)
    equal = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(equal):
        return []
    rows: list[int] = np.unique(boxes.rows[np.isin(keys, equal)]).tolist()
    return rows


_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@rule(
    "BOX010 warning: more boxes than training reads",
    why=f"The input reader keeps {MAX_NUMBER_OF_BOXES} boxes of an image and drops the others "
    "silently. EfficientDet stops at as many: 'please increase config.max_instances_per_image'.",
    fix="Set max_number_of_boxes in the pipeline's input_reader to the largest number; in "
    "EfficientDet max_instances_per_image to one more.",
    source="tensorflow/models: protos/input_reader.proto, max_number_of_boxes; google/automl: "
    "efficientdet/dataloader.py, pad_to_fixed_size, tf.assert_less",
    cases={"limit": Severity.INFO},
)
def too_many_boxes(batch: Batch) -> Iterator[Finding]:
    """An image has more boxes than max_number_of_boxes; as many are an info."""
    boxes = batch.boxes
    key = batch.own(BOX_KEY)
    for row in np.flatnonzero(boxes.counts >= MAX_NUMBER_OF_BOXES).tolist():
        count = int(boxes.counts[row])
        if count > MAX_NUMBER_OF_BOXES:
            message = f"{count} boxes, more than max_number_of_boxes ({MAX_NUMBER_OF_BOXES})"
            yield batch.finding(row, message, key, count)
        else:
            message = f"{count} boxes, for which EfficientDet has no room"
            yield batch.finding(row, message, key, count, case="limit")


@rule(
    "BOX011 warning: x and y look swapped",
    why="Every box is in the wrong place, and only looking at the images shows it.",
    fix="Divide x by the width and y by the height, and write x into xmin, xmax.",
    source="google/automl#106; tensorflow/models: boxes are ymin, xmin, ymax, xmax",
)
def swapped_axes(batch: Batch) -> Iterator[Finding]:
    """Boxes leave the image along its long side only, as when divided by the wrong side."""
    boxes = batch.boxes
    if boxes.all_valid or not len(boxes.corners):
        return
    occupied = boxes.counts > 0
    starts = (np.cumsum(boxes.counts) - boxes.counts)[occupied]
    with np.errstate(invalid="ignore", divide="ignore"):
        # x / height can reach width / height, y / width only height / width.
        furthest = np.maximum.reduceat(boxes.corners[:, 2:], starts, axis=0)
        lowest = np.minimum.reduceat(boxes.corners, starts, axis=0).min(axis=1)
        aspect = (boxes.width / boxes.height)[occupied]
        limits = np.stack((aspect, 1 / aspect), axis=1)
        mask = (furthest <= limits + ROUNDING_ERROR).all(axis=1) & (lowest >= -ROUNDING_ERROR)
        # What reaches out less may as well be a box drawn over the edge.
        mask &= (furthest > MAX_COORDINATE + ROUNDING_ERROR).any(axis=1)
    rows = np.flatnonzero(occupied)[mask].tolist()
    for row, (x, y) in zip(rows, furthest[mask].tolist(), strict=True):
        reach = f"boxes reach {x:.4g} in x and {y:.4g} in y"
        message = f"{reach}, as if x were divided by the height and y by the width"
        yield batch.finding(row, message, batch.own(BOX_KEY))


@dataset_rule(
    "BOX012 error: most boxes have no area",
    why="Single ones are slips; of so many the script that wrote them is wrong, and there is "
    "nothing to learn from them.",
    fix="Look at the script: it may write one corner twice, or divide whole numbers.",
    source="google/automl#106; tensorflow/models: core/box_list_ops.py, iou of such a box is 0",
)
def mostly_flat(result: DatasetResult) -> Iterator[Finding]:
    """At least half of a shard's boxes, of ten or more, are without area (BOX007)."""
    for shard in result.shards:
        if shard.boxes >= _MANY and 2 * shard.flat >= shard.boxes:
            message = f"{shard.flat:,} of {shard.boxes:,} boxes have no area"
            yield Finding(message=message, shard=shard.name)


@dataset_rule(
    "BOX013 error: columns of the boxes look permuted",
    why="The writer took xmin, ymin, xmax and ymax by position from a file that has them in "
    "another order: every box is wrong, also those that look right.",
    fix="Correct the writer and write the shard again; xmin=ymin says that xmin is stored under "
    "ymin. Look at the boxes with tfod show.",
    source="datitran/raccoon_dataset: xml_to_csv.py reads the children of bndbox by position",
)
def permuted_columns(result: DatasetResult) -> Iterator[Finding]:
    """Many boxes of a shard, or of the shards of a subset, are inverted or far outside, and none is
    in another column order.
    """
    for members in result.by_subset.values():
        if SIZES in forms_of(np.concatenate([one.sample for one in members])):
            continue  # which BOX022 says; exchanged corners may fit such boxes, too
        found = [(one.name, one.columns) for one in members if one.columns.candidates]
        # Each of many small shards has too few boxes to tell.
        together = sum((one.columns for one in members), BoxColumns())
        for shard, columns in found or [(members[0].name, together)]:
            if columns.candidates:
                yield _permuted(result, shard, columns)


def _permuted(result: DatasetResult, shard: str, columns: BoxColumns) -> Finding:
    orders = " or ".join(map(str, columns.candidates))
    message = f"{columns.invalid:,} of {columns.boxes:,} boxes are inverted or far outside; "
    message += f"none is when read as {orders}"
    key = result.profile.key_for(BOX_KEY)
    return Finding(message=message, shard=shard, feature=key, value=columns.invalid)


@dataset_rule(
    "BOX022 error: boxes are not fractions of two corners",
    why="Every box is wrong, also those that look right: a model learns to find nothing.",
    fix="Correct the writer and write the shard again. Look at the boxes with tfod show.",
    source="tensorflow/models#8595; dataset_tools/create_pascal_tf_record.py",
)
def other_form(result: DatasetResult) -> Iterator[Finding]:
    """The boxes of a shard, or of all small shards together, have another unit or form."""
    forms = {one.name: forms_of(one.sample) for one in result.shards}
    small = [one for one in result.shards if len(one.sample) < SAMPLE_SIZE]
    if small and not any(forms.values()):
        forms = {small[0].name: forms_of(np.concatenate([one.sample for one in small]))}
    for shard, names in forms.items():
        if names:
            message = f"boxes seem to be {' or '.join(names)}"
            fix = " ".join(FIXES[name] for name in names)
            yield Finding(message, result.profile.key_for(BOX_KEY), fix=fix, shard=shard)


detection_rule(
    "BOX014 error: boxes that are not four numbers each",
    why="Nobody knows which number belongs to which object; an import stops at the record.",
    fix="Write all four numbers of each object.",
    source="keras.io/examples/keras_recipes/creating_tfrecords; tfod.detection.problems",
)

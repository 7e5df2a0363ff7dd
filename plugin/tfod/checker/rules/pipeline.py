"""CFG: what the OD API's pipeline.config says of its data, against the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.finding import Finding, JsonValue, Severity, join_names, plural
from tfod.checker.rules.registry import dataset_rule
from tfod.detection import keys
from tfod.detection.labels.label_map import LabelMap
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.checker.analysis.object_statistics import ObjectFigures
    from tfod.checker.references.pipeline_config import Reader

_DECODER = "research/object_detection/data_decoders/tf_example_decoder.py"


def _said(
    result: DatasetResult, message: str, value: JsonValue = None, fix: str = "", case: str = ""
) -> Finding:
    """A finding at the path of the configuration."""
    file = result.training_config.file if result.training_config else ""
    return Finding(message=message, shard=file, value=value, fix=fix, case=case)


def _readers(result: DatasetResult) -> Iterator[tuple[Reader, Sequence[ShardResult]]]:
    """The readers of the configuration, each with those of its shards that were checked."""
    config = result.training_config
    for reader in config.readers if config else ():
        yield (
            reader,
            [one for one in result.shards if config and config.reads(reader, one.name, one.subset)],
        )


def _objects(shards: Sequence[ShardResult]) -> ObjectFigures:
    from tfod.checker.analysis.object_statistics import (
        ObjectFigures,  # few checks have a configuration
    )

    return sum((one.objects for one in shards if one.objects), ObjectFigures())


def _classes(result: DatasetResult) -> tuple[dict[int, str], dict[int, str]]:
    """Name by id of the classes that are trained, and of those that are evaluated."""
    trained: dict[int, str] = {}
    evaluated: dict[int, str] = {}
    for reader, shards in _readers(result):
        for shard in shards:
            label_map = result.get_label_map(shard.label_map)
            (evaluated if reader.is_for_evaluation else trained).update(_named(shard, label_map))
    return trained, evaluated


def _named(shard: ShardResult, label_map: LabelMap | None) -> Iterator[tuple[int, str]]:
    """Id and name of the classes of a shard; texts decide where they are in the label map."""
    for text, label in shard.objects.classes if shard.objects else ():
        item = label_map.find(text) if label_map and text else None
        item = item or (label_map.find_id(label) if label_map and label is not None else None)
        number = item.id if item else label
        if number is not None:
            yield number, text or (item.class_name if item else f"#{number}")


@dataset_rule(
    "CFG002 error: path leads to no file",
    why="The trainer stops, with 'Did not find any input files matching the glob pattern' or 'does "
    "not match any files'.",
    fix="Correct the path; a relative one begins at the folder in which the trainer is started.",
    source="tensorflow/models: research/object_detection/builders/dataset_builder.py, "
    "_read_dataset_internal; official/core/input_reader.py, match_files; "
    "research/object_detection/configs/tf2: PATH_TO_BE_CONFIGURED",
    cases={"elsewhere": Severity.WARNING},
)
def leads_nowhere(result: DatasetResult) -> Iterator[Finding]:
    """No file is there on this machine; a warning where other shards are checked in their place,
    and the path may be right on another machine.
    """
    config = result.training_config
    is_replaced = config is not None and not all(config.names(one.name) for one in result.shards)
    for path, reason in config.lost_paths() if config else ():
        may_be_there = is_replaced and not path.is_broken
        message = f"{path}: {reason}" + ", and other shards are checked" * may_be_there
        case = "elsewhere" if may_be_there else ""
        yield _said(result, message, path.value, case=case)


@dataset_rule(
    "CFG003 error: num_classes is not the largest id",
    why="A class beyond num_classes has no place in the one-hot encoding: its objects are trained "
    "as nothing. Of too many the model learns some that no object has, as those of a template.",
    fix="Set num_classes to the largest id of the label map.",
    source="tensorflow/models: research/object_detection/inputs.py, transform_input_data; "
    "tensorflow/models#3868",
    cases={"below": Severity.WARNING},
)
def other_classes(result: DatasetResult) -> Iterator[Finding]:
    """The largest id of the label map and the objects is beyond num_classes; a warning where it is
    below.
    """
    trained, evaluated = _classes(result)
    known = evaluated | trained
    for one in result.dataset.label_maps.values():
        known |= {item.id: item.class_name for item in one.label_map.items} if one.label_map else {}
    largest = max(known, default=0)
    config = result.training_config
    for setting in config.num_classes if config and largest > 0 else ():
        if setting.value != largest:
            message = f"{setting}, but the ids go to {largest} ({known[largest]!r:.81})"
            case = "below" if int(setting.value) > largest else ""
            yield _said(result, message, setting.value, setting.set_to(largest), case)


@dataset_rule(
    "CFG005 error: masks are asked for and not there",
    why="Training stops at the first such image: 'indices[0] = 0 is not in [0, 0)', 'Input is "
    "empty', or that the data types do not match.",
    fix="Do not ask for masks, or write image/object/mask of every object.",
    source=f"{_DECODER}, _decode_png_instance_masks and _reshape_instance_masks; "
    "research/object_detection/utils/ops.py, retain_groundtruth",
)
def masks_missing(result: DatasetResult) -> Iterator[Finding]:
    """Images with objects have no masks, or masks are encoded otherwise than is said."""
    for reader, shards in _readers(result):
        asked, chosen = reader.get("load_instance_masks"), reader.get("mask_type")
        objects = _objects(shards)
        if not asked.value or not objects.images:
            continue
        if objects.without_masks:
            some = f"{objects.without_masks:,} of {plural(objects.images, 'image')} with objects"
            message = f"{asked}, but {some} have no {keys.MASK}, or an empty one"
            is_none = objects.without_masks == objects.images
            yield _said(result, message, fix=asked.set_to(False) if is_none else "")
        is_png = chosen.value == "PNG_MASKS"
        if (Kind.FLOAT if is_png else Kind.BYTES) in objects.mask_dtypes:
            message = f"{chosen}, but masks are written as {'numbers' if is_png else 'PNG'}"
            yield _said(
                result, message, fix=chosen.set_to("NUMERICAL_MASKS" if is_png else "PNG_MASKS")
            )


@dataset_rule(
    "CFG006 error: other keypoints than are asked for",
    why="Training stops when it shapes the keypoints: each object must have num_keypoints of them.",
    fix="Set num_keypoints to the number of keypoints that each object has; 0 reads none.",
    source=f"{_DECODER}, decode: tf.reshape(keypoints, [-1, num_keypoints, 2])",
)
def other_keypoints(result: DatasetResult) -> Iterator[Finding]:
    """Objects have more keypoints or fewer, or none."""
    for reader, shards in _readers(result):
        asked, found = reader.get("num_keypoints"), _objects(shards).keypoints
        # Keypoints that are put in order by their names need not all be there.
        if reader.message.use_keypoint_label_map or not asked.value or found is None:
            continue
        low, high = found
        if (low, high) != (asked.value, asked.value):
            have = str(low) if low == high else f"from {low} to {high}"
            message = f"{asked}, but objects have {have if high else 'no'} keypoints"
            yield _said(result, message, asked.value, asked.set_to(low) if low == high else "")


@dataset_rule(
    "CFG009 warning: evaluated class that is never trained",
    why="It cannot be found, and counts with an average precision of 0.",
    fix="Distribute the classes over both subsets.",
    source="tensorflow/models: research/object_detection/metrics/coco_evaluation.py",
)
def unseen_classes(result: DatasetResult) -> Iterator[Finding]:
    """Objects for evaluation have a class that no object for training has."""
    trained, evaluated = _classes(result)
    unseen = [evaluated[one] for one in sorted(evaluated.keys() - trained.keys()) if one > 0]
    if unseen and trained:
        names = join_names([*map(repr, unseen)], 6)
        message = f"no object for training has the class {names}, which evaluations have"
        yield _said(result, message, list[JsonValue](unseen[:100]))

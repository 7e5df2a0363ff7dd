"""CFG rules: the data settings of the OD API's pipeline.config, compared with the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.finding import Finding, JsonValue, Severity, join_names, plural
from tfod.checker.rules.registry import dataset_rule
from tfod.detection import keys
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import excerpt
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.checker.analysis.object_statistics import ObjectFigures
    from tfod.checker.references.pipeline_config import Reader

_DECODER = "research/object_detection/data_decoders/tf_example_decoder.py"


def _report_setting(
    result: DatasetResult, message: str, value: JsonValue = None, fix: str = "", case: str = ""
) -> Finding:
    file = result.training_config.file if result.training_config else ""
    return Finding(message=message, shard=file, value=value, fix=fix, case=case)


def _iterate_readers(result: DatasetResult) -> Iterator[tuple[Reader, Sequence[ShardResult]]]:
    """Yield each reader of the configuration with its shards, of those that were checked."""
    config = result.training_config
    if config is None:
        return
    for reader in config.readers:
        shards = [item for item in result.shards if config.reads(reader, item.name, item.subset)]
        yield reader, shards


def _sum_objects(shards: Sequence[ShardResult]) -> ObjectFigures:
    # Imported here, because few checks have a configuration.
    from tfod.checker.analysis.object_statistics import ObjectFigures

    return sum((shard.objects for shard in shards if shard.objects), ObjectFigures())


def _collect_classes(result: DatasetResult) -> tuple[dict[int, str], dict[int, str]]:
    """Return the names, by id, of the classes for training and of those for evaluation."""
    trained: dict[int, str] = {}
    evaluated: dict[int, str] = {}
    for reader, shards in _iterate_readers(result):
        for shard in shards:
            classes = _name_classes(shard, result.get_label_map(shard.label_map))
            (evaluated if reader.is_for_evaluation else trained).update(classes)
    return trained, evaluated


def _name_classes(shard: ShardResult, label_map: LabelMap | None) -> Iterator[tuple[int, str]]:
    """Yield the id and name of each class; a text in the label map takes precedence over the id."""
    for text, label in shard.objects.classes if shard.objects else ():
        item = label_map.find(text) if label_map and text else None
        item = item or (label_map.find_id(label) if label_map and label is not None else None)
        number = item.id if item else label
        if number is not None:
            yield number, text or (item.class_name if item else f"#{number}")


@dataset_rule(
    "CFG002 error: path matches no file",
    why="The trainer stops with 'Did not find any input files matching the glob pattern' or 'does "
    "not match any files'.",
    fix="In {file}, correct the path; it is relative to the folder in which the trainer starts.",
    source="tensorflow/models: research/object_detection/builders/dataset_builder.py, "
    "_read_dataset_internal; official/core/input_reader.py, match_files; "
    "research/object_detection/configs/tf2: PATH_TO_BE_CONFIGURED",
    cases={"elsewhere": Severity.WARNING},
)
def _check_paths(result: DatasetResult) -> Iterator[Finding]:
    """Report paths without a file; a warning if other shards are checked instead of them."""
    config = result.training_config
    has_others = config is not None and not all(config.names(item.name) for item in result.shards)
    for path, reason in config.find_missing_paths() if config else ():
        may_exist = has_others and not path.is_broken
        message = f"{path}: {reason}" + (", so other shards are checked" if may_exist else "")
        case = "elsewhere" if may_exist else ""
        yield _report_setting(result, message, path.value, case=case)


@dataset_rule(
    "CFG003 error: num_classes is not the largest id",
    why="A class id above num_classes has no entry in the one-hot encoding, so its objects are "
    "trained without a class. If num_classes is too large, as in a template, the model has unused "
    "classes.",
    fix="In {file}, set num_classes to the largest id of the label map.",
    source="tensorflow/models: research/object_detection/inputs.py, transform_input_data; "
    "tensorflow/models#3868",
    cases={"below": Severity.WARNING},
)
def _check_num_classes(result: DatasetResult) -> Iterator[Finding]:
    """Report a num_classes below the largest id of label maps and objects; above is a warning."""
    trained, evaluated = _collect_classes(result)
    names = evaluated | trained
    for file in result.dataset.label_maps.values():
        if file.label_map:
            names |= {item.id: item.class_name for item in file.label_map.items}
    largest = max(names, default=0)
    config = result.training_config
    for setting in config.num_classes if config and largest > 0 else ():
        if setting.value != largest:
            message = f"{setting}, but the largest id is {largest} ({excerpt(names[largest])})"
            case = "below" if int(setting.value) > largest else ""
            yield _report_setting(result, message, setting.value, setting.format_fix(largest), case)


@dataset_rule(
    "CFG005 error: masks are configured but missing",
    why="Training stops at the first such image: 'indices[0] = 0 is not in [0, 0)', 'Input is "
    "empty', or because the data types do not match.",
    fix="In {file}, turn off load_instance_masks, or write image/object/mask for every object.",
    source=f"{_DECODER}, _decode_png_instance_masks and _reshape_instance_masks; "
    "research/object_detection/utils/ops.py, retain_groundtruth",
)
def _check_masks(result: DatasetResult) -> Iterator[Finding]:
    for reader, shards in _iterate_readers(result):
        load_masks, mask_type = reader.get("load_instance_masks"), reader.get("mask_type")
        objects = _sum_objects(shards)
        if not load_masks.value or not objects.images:
            continue
        if objects.without_masks:
            message = f"{load_masks}, but {objects.without_masks:,} of "
            message += f"{plural(objects.images, 'image')} with objects have no {keys.MASK}, or an "
            message += "empty one"
            has_none = objects.without_masks == objects.images
            fix = load_masks.format_fix(False) if has_none else ""
            yield _report_setting(result, message, fix=fix)
        is_png = mask_type.value == "PNG_MASKS"
        if (Kind.FLOAT if is_png else Kind.BYTES) in objects.mask_dtypes:
            message = f"{mask_type}, but masks are stored as {'numbers' if is_png else 'PNG'}"
            fix = mask_type.format_fix("NUMERICAL_MASKS" if is_png else "PNG_MASKS")
            yield _report_setting(result, message, fix=fix)


@dataset_rule(
    "CFG006 error: number of keypoints differs from num_keypoints",
    why="Training stops when it reshapes the keypoints, unless each object has num_keypoints.",
    fix="In {file}, set num_keypoints to the number of keypoints per object; 0 ignores keypoints.",
    source=f"{_DECODER}, decode: tf.reshape(keypoints, [-1, num_keypoints, 2])",
)
def _check_keypoints(result: DatasetResult) -> Iterator[Finding]:
    for reader, shards in _iterate_readers(result):
        expected, counts = reader.get("num_keypoints"), _sum_objects(shards).keypoints
        # If keypoints are ordered by name, an object need not have all of them.
        if reader.message.use_keypoint_label_map or not expected.value or counts is None:
            continue
        low, high = counts
        if (low, high) != (expected.value, expected.value):
            count = str(low) if low == high else f"from {low} to {high}"
            message = f"{expected}, but objects have {count if high else 'no'} keypoints"
            fix = expected.format_fix(low) if low == high else ""
            yield _report_setting(result, message, expected.value, fix)


@dataset_rule(
    "CFG009 warning: evaluated class is never trained",
    why="The model cannot detect it, so its average precision is 0.",
    fix="Distribute the classes over both subsets.",
    source="tensorflow/models: research/object_detection/metrics/coco_evaluation.py",
)
def _check_trained_classes(result: DatasetResult) -> Iterator[Finding]:
    trained, evaluated = _collect_classes(result)
    ids = sorted(evaluated.keys() - trained.keys())
    untrained = [evaluated[number] for number in ids if number > 0]
    if untrained and trained:
        names = join_names([*map(repr, untrained)], 6)
        message = f"evaluation data has classes that training data does not have: {names}"
        yield _report_setting(result, message, list[JsonValue](untrained[:100]))

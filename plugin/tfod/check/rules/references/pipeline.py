"""CFG: what the OD API's pipeline.config says of its data, against the data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.check.findings.finding import Problem, Severity, first_of, plural
from tfod.check.rules.registry import rule
from tfod.detection import keys
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.check.records.objects import ObjectFigures

_DECODER = "research/object_detection/data_decoders/tf_example_decoder.py"
_PNG, _NUMERICAL = "PNG_MASKS", "NUMERICAL_MASKS"


@dataclass(frozen=True)
class Setting:
    """One value: the names of the fields that lead to it, and what is set, or the default."""

    path: str
    value: str | int | bool

    def __str__(self) -> str:
        """```train_input_reader.num_keypoints: 3```."""
        is_name = self.value in ("DEFAULT", _NUMERICAL, _PNG)
        shown = self.value if is_name else json.dumps(self.value, ensure_ascii=False)
        return f"`{self.path}: {shown}`"

    def set_to(self, value: str | int | bool) -> str:
        """What to do for another value: ``Set `model.ssd.num_classes: 3`.``."""
        return f"Set {Setting(self.path, value)}."


@rule(
    "CFG002 error: path leads to no file",
    why="The trainer stops, with 'Did not find any input files matching the glob pattern' or 'does "
    "not match any files'.",
    fix="Correct the path; a relative one begins at the folder in which the trainer is started.",
    source="tensorflow/models: research/object_detection/builders/dataset_builder.py, "
    "_read_dataset_internal; official/core/input_reader.py, match_files; "
    "research/object_detection/configs/tf2: PATH_TO_BE_CONFIGURED",
)
def leads_nowhere(path: Setting, reason: str, is_replaced: bool) -> Iterator[Problem]:
    """No file is there on this machine; a warning where other shards are checked in their place."""
    message = f"{path}: {reason}" + ", and other shards are checked" * is_replaced
    severity = Severity.WARNING if is_replaced else None
    yield Problem(message, value=path.value, severity=severity)


@rule(
    "CFG003 error: num_classes is not the largest id",
    why="A class beyond num_classes has no place in the one-hot encoding: its objects are trained "
    "as nothing. Of too many the model learns some that no object has, as those of a template.",
    fix="Set num_classes to the largest id of the label map.",
    source="tensorflow/models: research/object_detection/inputs.py, transform_input_data; "
    "tensorflow/models#3868",
)
def other_classes(setting: Setting, largest: int, name: str) -> Iterator[Problem]:
    """The largest id of the label map and the objects is beyond num_classes; a warning where it is
    below.
    """
    if setting.value != largest:
        message = f"{setting}, but the ids go to {largest} ({name!r})"
        severity = Severity.WARNING if int(setting.value) > largest else None
        yield Problem(message, None, setting.value, setting.set_to(largest), severity=severity)


@rule(
    "CFG005 error: masks are asked for and not there",
    why="Training stops at the first such image: 'indices[0] = 0 is not in [0, 0)', 'Input is "
    "empty', or that the data types do not match.",
    fix="Do not ask for masks, or write image/object/mask of every object.",
    source=f"{_DECODER}, _decode_png_instance_masks and _reshape_instance_masks; "
    "research/object_detection/utils/ops.py, retain_groundtruth",
)
def masks_missing(asked: Setting, chosen: Setting, objects: ObjectFigures) -> Iterator[Problem]:
    """Images with objects have no masks, or masks are encoded otherwise than is said."""
    if not asked.value or not objects.images:
        return
    if objects.without_masks:
        some = f"{objects.without_masks:,} of {plural(objects.images, 'image')} with objects"
        message = f"{asked}, but {some} have no {keys.MASK}, or an empty one"
        is_none = objects.without_masks == objects.images
        yield Problem(message, fix=asked.set_to(False) if is_none else None)
    is_png = chosen.value == _PNG
    if (Kind.FLOAT if is_png else Kind.BYTES) in objects.mask_dtypes:
        message = f"{chosen}, but masks are written as {'numbers' if is_png else 'PNG'}"
        yield Problem(message, fix=chosen.set_to(_NUMERICAL if is_png else _PNG))


@rule(
    "CFG006 error: other keypoints than are asked for",
    why="Training stops when it shapes the keypoints: each object must have num_keypoints of them.",
    fix="Set num_keypoints to the number of keypoints that each object has; 0 reads none.",
    source=f"{_DECODER}, decode: tf.reshape(keypoints, [-1, num_keypoints, 2])",
)
def other_keypoints(asked: Setting, objects: ObjectFigures) -> Iterator[Problem]:
    """Objects have more keypoints or fewer, or none."""
    found = objects.keypoints
    if not asked.value or found is None or found == (asked.value, asked.value):
        return
    low, high = found
    have = str(low) if low == high else f"from {low} to {high}"
    message = f"{asked}, but objects have {have if high else 'no'} keypoints"
    yield Problem(message, value=asked.value, fix=asked.set_to(low) if low == high else None)


@rule(
    "CFG009 warning: evaluated class that is never trained",
    why="It cannot be found, and counts with an average precision of 0.",
    fix="Distribute the classes over both subsets.",
    source="tensorflow/models: research/object_detection/metrics/coco_evaluation.py",
)
def unseen_classes(unseen: Sequence[str]) -> Iterator[Problem]:
    """Objects for evaluation have a class that no object for training has."""
    if unseen:
        names = first_of([*map(repr, unseen)], 6)
        message = f"no object for training has the class {names}, which evaluations have"
        yield Problem(message, value=list(unseen[:100]))

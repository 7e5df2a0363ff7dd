"""CFG: what a trainer's configuration says of its data, against the data.

Line numbers of the OD API's sources are left out, since its files have changed in forks; the
functions are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.check.findings.finding import JsonValue, Problem, Severity, first_of, plural
from tfod.check.rules.registry import rule
from tfod.detection import keys
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.check.records.objects import ObjectFigures
    from tfod.check.references.pipeline.training_config import Input, Reader, TrainingConfig

_INPUTS = "tensorflow/models: research/object_detection/inputs.py"
_DECODER = "research/object_detection/data_decoders/tf_example_decoder.py"
_VISION = "official/vision"
_MOST_NAMED = 6
_MOST_REDUCED, _MOST_ENLARGED, _MOST_DISTORTED = 4, 2, 2
_PNG = "PNG_MASKS"


@dataclass(frozen=True)
class ReaderData:
    """A reader of the configuration, and the records that it reads."""

    reader: Reader
    records: int
    objects: ObjectFigures


@dataclass(frozen=True)
class ModelData:
    """The model of the configuration, and what all its readers read.

    ``classes`` are names by id, of the label map and of the objects; ``unseen`` names of classes
    that only evaluations read; ``sizes`` the numbers of images of each height and width, in pixels.
    """

    config: TrainingConfig
    classes: Mapping[int, str]
    unseen: Sequence[str]
    sizes: Mapping[tuple[int, int], int]


@rule(
    "CFG001 error: path is not filled in",
    why="The trainer looks for a file of this name and stops.",
    fix="Write the path, relative to the folder in which the trainer is started.",
    source="tensorflow/models: research/object_detection/configs/tf2, PATH_TO_BE_CONFIGURED",
)
def placeholder(setting: str, value: JsonValue) -> Iterator[Problem]:
    """The value is that of the template, or empty."""
    yield Problem(f"{setting} is not filled in", value=value)


@rule(
    "CFG002 error: path leads to no file",
    why="The trainer stops, with 'Did not find any input files matching the glob pattern' or 'does "
    "not match any files'.",
    fix="Correct the path; a relative one begins at the folder in which the trainer is started.",
    source="tensorflow/models: research/object_detection/builders/dataset_builder.py, "
    "_read_dataset_internal; official/core/input_reader.py, match_files",
)
def leads_nowhere(path: Input, is_replaced: bool) -> Iterator[Problem]:
    """A pattern matches nothing, or a file is not there, on this machine.

    ``is_replaced``: other shards are named on the command line than the configuration names.
    """
    message = f"{path.setting}: {path.reason}" + ", and other shards are checked" * is_replaced
    severity = Severity.WARNING if is_replaced else None
    yield Problem(message, value=path.setting.value, severity=severity)


@rule(
    "CFG003 error: num_classes is too small",
    why="A class beyond num_classes has no place in the one-hot encoding: its objects are trained "
    "as nothing.",
    fix="Set num_classes to the largest id of the label map; in TF-Vision to one more.",
    source=f"{_INPUTS}, transform_input_data; {_VISION}/tasks/retinanet.py, build_losses: "
    "tf.one_hot(y_true_cls, num_classes) with 0 for the background; tensorflow/models#3868",
)
def too_few_classes(model: ModelData) -> Iterator[Problem]:
    """The largest id of the label map or the objects is beyond the classes of the model."""
    yield from _other_number_of_classes(model, too_small=True)


@rule(
    "CFG004 warning: num_classes is too large",
    why="The model learns classes that no object has, mostly those of the template: COCO's.",
    fix="Set num_classes to the largest id of the label map; in TF-Vision to one more.",
    source=f"{_INPUTS}, transform_input_data; {_VISION}/configs/retinanet.py: 91 for the 90 ids of "
    "COCO",
)
def too_many_classes(model: ModelData) -> Iterator[Problem]:
    """The model has classes beyond the largest id."""
    yield from _other_number_of_classes(model, too_small=False)


def _other_number_of_classes(model: ModelData, too_small: bool) -> Iterator[Problem]:
    setting, background = model.config.num_classes, model.config.background
    if setting is None or not model.classes:
        return
    largest = max(model.classes)
    needed = largest + background
    if setting.value == needed or (setting.value < needed) is not too_small:
        return
    message = f"{setting}, but the ids go to {largest} ({model.classes[largest]!r})"
    message += ", and the background counts as one more" * background
    yield Problem(message, value=setting.value, fix=setting.set_to(needed))


@rule(
    "CFG005 error: masks are asked for and not there",
    why="Training stops at the first such image: 'indices[0] = 0 is not in [0, 0)', 'Input is "
    "empty', or that the data types do not match.",
    fix="Do not ask for masks, or write image/object/mask of every object.",
    source=f"{_DECODER}, _decode_png_instance_masks and _reshape_instance_masks; "
    "research/object_detection/utils/ops.py, retain_groundtruth; "
    f"{_VISION}/dataloaders/tf_example_decoder.py, _decode_masks; maskrcnn_input.py",
)
def masks_missing(data: ReaderData) -> Iterator[Problem]:
    """Images with objects have no masks, or masks are encoded otherwise than is said."""
    asked, chosen, objects = data.reader.masks, data.reader.mask_type, data.objects
    if not asked.value or not objects.images:
        return
    if objects.without_masks:
        some = f"{objects.without_masks:,} of {plural(objects.images, 'image')} with objects"
        message = f"{asked}, but {some} have no {keys.MASK}, or an empty one"
        is_none = objects.without_masks == objects.images
        yield Problem(message, fix=asked.set_to(False) if is_none else None)
    is_png = chosen is None or chosen.value == _PNG
    wrong = Kind.FLOAT if is_png else Kind.BYTES
    if wrong in objects.mask_dtypes:
        what = "numbers" if is_png else "PNG"
        fix = chosen.set_to("NUMERICAL_MASKS" if is_png else _PNG) if chosen else None
        fix = fix or "Write the masks as PNG."
        yield Problem(f"{chosen or asked}, but masks are written as {what}", fix=fix)


@rule(
    "CFG006 error: other keypoints than are asked for",
    why="Training stops when it shapes the keypoints: each object must have num_keypoints of them.",
    fix="Set num_keypoints to the number of keypoints that each object has; 0 reads none.",
    source=f"{_DECODER}, decode: tf.reshape(keypoints, [-1, num_keypoints, 2])",
)
def other_keypoints(data: ReaderData) -> Iterator[Problem]:
    """Objects have more keypoints or fewer, or none."""
    asked, found = data.reader.keypoints, data.objects.keypoints
    if not asked or not asked.value or found in (None, (asked.value, asked.value)):
        return
    low, high = found
    have = str(low) if low == high else f"from {low} to {high}"
    message = f"{asked}, but objects have {have if high else 'no'} keypoints"
    yield Problem(message, value=asked.value, fix=asked.set_to(low) if low == high else None)


@rule(
    "CFG007 warning: more objects in an image than are read",
    why="The rest is cut off: it is not trained by the OD API and Mask R-CNN, and not counted in "
    "evaluations.",
    fix="Set the limit to the most objects that an image has.",
    source=f"{_INPUTS}, pad_input_data_to_static_shapes of the input reader's max_number_of_boxes, "
    f"that of train_config is deprecated; {_VISION}/ops/preprocess_ops.py, "
    "clip_or_pad_to_fixed_size",
)
def too_many_objects(data: ReaderData) -> Iterator[Problem]:
    """An image has more objects than max_number_of_boxes or max_num_instances."""
    limit, most = data.reader.most_objects, data.objects.most
    if limit.value < most:
        message = f"{limit}, but an image has {plural(most, 'object')}"
        yield Problem(message, value=limit.value, fix=limit.set_to(most))


@rule(
    "CFG008 info: images are resized a lot",
    why="Small objects of an image that is reduced much are gone, an enlarged image shows no more "
    "than it did, and a distorted one has other shapes than the model sees later.",
    fix="Choose an input size nearer to that of the images, or cut large images into tiles.",
    source="tensorflow/models: research/object_detection/core/preprocessor.py, resize_image and "
    f"resize_to_range; {_VISION}/ops/preprocess_ops.py, resize_and_crop_image",
)
def resized_a_lot(model: ModelData) -> Iterator[Problem]:
    """Reduced to less than a quarter, enlarged to more than twice, or one side twice the other's.

    A warning where it is so of most images.
    """
    resizer = model.config.resizer
    if resizer is None:
        return
    extremes: dict[str, list[tuple[int, tuple[int, int]]]] = {}
    for (height, width), count in model.sizes.items():
        if height < 1 or width < 1:
            continue
        low, high = sorted(resizer.scales(height, width))
        for what, is_so in (
            (f"reduced to less than 1/{_MOST_REDUCED}", low * _MOST_REDUCED < 1),
            (f"enlarged to more than {_MOST_ENLARGED} times", high > _MOST_ENLARGED),
            (f"distorted more than {_MOST_DISTORTED} times", high > _MOST_DISTORTED * low),
        ):
            if is_so:
                extremes.setdefault(what, []).append((count, (width, height)))
    total = sum(model.sizes.values())
    for what, found in extremes.items():
        images = sum(count for count, _ in found)
        _, (width, height) = max(found)
        message = f"{images:,} of {plural(total, 'image')} are {what} by `{resizer.text}`, such as "
        message += f"those of {width}x{height}"
        severity = Severity.WARNING if 2 * images > total else None
        yield Problem(message, value=images, severity=severity)


@rule(
    "CFG009 warning: evaluated class that is never trained",
    why="It cannot be found, and counts with an average precision of 0.",
    fix="Distribute the classes over both subsets.",
    source="tensorflow/models: research/object_detection/metrics/coco_evaluation.py",
)
def unseen_classes(model: ModelData) -> Iterator[Problem]:
    """Objects for evaluation have a class that no object for training has."""
    if model.unseen:
        names = first_of([*map(repr, model.unseen)], _MOST_NAMED)
        message = f"no object for training has the class {names}, which evaluations have"
        yield Problem(message, value=list(model.unseen[:100]))


@rule(
    "CFG010 warning: batch is larger than all records",
    why="A batch for training has the same images several times; in an evaluation that leaves out "
    "the last batch none is left.",
    fix="Set the batch size to the number of records or less.",
    source="tensorflow/models: research/object_detection/builders/dataset_builder.py, build; "
    "official/core/input_reader.py: batch(…, drop_remainder)",
)
def too_large_batch(data: ReaderData) -> Iterator[Problem]:
    """There are fewer records than a batch has. An error where nothing is evaluated."""
    reader, records = data.reader, data.records
    size = reader.batch_size
    if not 0 < records < size.value:
        return
    message = f"{size}, but there are {plural(records, 'record')}"
    if reader.is_training:
        yield Problem(message, value=size.value, fix=size.set_to(records))
    elif reader.drops_remainder.value:
        message += f" and {reader.drops_remainder}: nothing is evaluated"
        fix = size.set_to(records)
        yield Problem(message, value=size.value, fix=fix, severity=Severity.ERROR)


@rule(
    "CFG011 error: evaluated image is not in annotation_file",
    why="The evaluation stops: 'Results do not correspond to the current dataset!'.",
    fix="Name the annotations that the shards were made from, or leave annotation_file out: then "
    "the objects of the records count.",
    source=f"{_VISION}/evaluation/coco_utils.py, COCOWrapper.loadRes; "
    f"{_VISION}/dataloaders/utils.py, process_source_id",
)
def unlisted_images(
    config: TrainingConfig, records: int, objects: ObjectFigures
) -> Iterator[Problem]:
    """The number in image/source_id of evaluated records is no id of an image in the COCO JSON."""
    setting = config.annotation_file
    if setting is not None and objects.unlisted:
        some = f"{objects.unlisted:,} of {plural(records, 'evaluated record')}"
        message = f"{setting} lacks the images of {some}, such as {objects.first_unlisted}"
        yield Problem(message, value=objects.first_unlisted)


@rule(
    "CFG012 error: model predicts what is not read",
    why="Training stops at the first batch: 'Groundtruth instance masks not provided. Please "
    "configure input reader.', or 'Groundtruth tensor keypoints has not been provided'.",
    fix="Set num_keypoints of the input reader to the number of keypoints that each object has.",
    source="tensorflow/models: research/object_detection/meta_architectures/"
    "faster_rcnn_meta_arch.py, _loss_box_classifier; core/model.py, groundtruth_lists",
)
def not_read(model: ModelData) -> Iterator[Problem]:
    """The model has a head for masks or keypoints, and an input reader does not ask for them."""
    for reader in model.config.readers:
        for what, where in model.config.predicts.items():
            setting = reader.masks if what == "masks" else reader.keypoints
            if setting is not None and not setting.value:
                fix = setting.set_to(True) if what == "masks" else None
                yield Problem(f"{where} predicts {what}, but {setting}", fix=fix)

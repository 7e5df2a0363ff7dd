"""What a trainer's configuration says of its data: the OD API's pipeline.config, TF-Vision's YAML.

Field names and defaults are those of tensorflow/models: ``research/object_detection/protos``
(pipeline, model, image_resizer, input_reader, train and eval) and ``official/vision/configs``
(retinanet, maskrcnn, common) with ``official/core/config_definitions.py``. An experiment of
TF-Vision is complete without a file, which only changes it: what the file leaves out is not known.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tfod.check.references.pipeline.settings import Section, Setting, read_settings
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote_errors import RemoteError
from tfod.tfrecord.storage.remote_files import list_remote
from tfod.tfrecord.storage.urls import is_url

_MODELS = ("ssd", "faster_rcnn", "center_net")
_PARTS = ("model", "train_config", "train_input_reader", "eval_config", "eval_input_reader")
_MASK_PREDICTION = "second_stage_box_predictor.mask_rcnn_box_predictor.predict_instance_masks"
_COCO_CLASSES = 91
"""Of TF-Vision's experiments on COCO, the background among them."""
_UNSET = ("", "TODO")
"""What templates of configurations have in place of a path, besides PATH_TO_BE_CONFIGURED."""


@dataclass(frozen=True)
class Input:
    """A path or a pattern of paths that the configuration names.

    Attributes:
        setting: where it stands.
        files: what it means on this machine; relative paths begin at the working directory.
        reason: why there are none.
    """

    setting: Setting
    files: Sequence[str]
    reason: str = ""

    @classmethod
    def find(cls, setting: Setting) -> Input:
        """Look for the files."""
        pattern = str(setting.value)
        if cls(setting, ()).is_placeholder:
            return cls(setting, ())
        if is_url(pattern):
            try:
                return cls(setting, [one.url for one in list_remote(pattern)], "no file is there")
            except RemoteError as error:
                return cls(setting, (), str(error))
        if glob.has_magic(os.path.abspath(pattern).split(os.sep)[1]):
            return cls(setting, (), "it would search the whole disk; name the folder of the shards")
        matching = [] if "\0" in pattern else glob.glob(pattern)
        found = sorted(path for path in matching if os.path.isfile(path))
        if os.path.isdir(pattern):
            return cls(setting, found, f"{os.path.abspath(pattern)} is a folder; name its files")
        return cls(setting, found, f"no file is at {os.path.abspath(pattern)}")

    @property
    def is_placeholder(self) -> bool:
        """Whether it is still that of the template, or empty."""
        value = str(self.setting.value)
        return value.strip().upper() in _UNSET or "PATH_TO_BE" in value


@dataclass(frozen=True)
class Reader:
    """What is read for training, or for an evaluation.

    Attributes:
        is_training: which of the two.
        patterns: paths and patterns of the shards.
        batch_size: of all replicas together; 0 where it is not known.
        drops_remainder: whether a last batch that is not full is left out.
        most_objects: of an image; what is beyond is cut off.
        label_maps: path of the map from class texts to ids, if the file names one.
        masks: whether masks are read.
        mask_type: how they are encoded; None where it cannot be chosen, for PNG.
        keypoints: of each object; 0 where none are read.
    """

    is_training: bool
    patterns: Sequence[Setting]
    batch_size: Setting
    drops_remainder: Setting
    most_objects: Setting
    label_maps: Sequence[Setting]
    masks: Setting
    mask_type: Setting | None = None
    keypoints: Setting | None = None

    @cached_property
    def inputs(self) -> Sequence[Input]:
        """The files of each pattern."""
        return [Input.find(one) for one in self.patterns]


@dataclass(frozen=True)
class Resizer:
    """To which size images are brought, in pixels.

    Attributes:
        text: the fields that say it, as they stand in the file.
        height, width: what an image fits into, or becomes.
        keeps_aspect: whether it keeps the image's aspect ratio, and so only fits.
        shortest: beyond which the shorter side is not enlarged; None where it may fill the size.
    """

    text: str
    height: int
    width: int
    keeps_aspect: bool
    shortest: int | None = None

    def scales(self, height: int, width: int) -> tuple[float, float]:
        """By how much height and width of an image are multiplied."""
        down, across = self.height / height, self.width / width
        if not self.keeps_aspect:
            return down, across
        scale = min(down, across, (self.shortest or math.inf) / min(height, width))
        return scale, scale


@dataclass(frozen=True)
class TrainingConfig:
    """What a configuration says of the data.

    Attributes:
        file: its path.
        receiver: whose it is, by the receiver's name.
        readers: those for training first.
        num_classes: the setting; None where the model is unknown.
        background: how many of them are the background, which has no id in the data.
        resizer: None where the file does not say.
        predicts: what the model predicts beside boxes (``masks``, ``keypoints``), and where the
            file says so.
        annotation_file: COCO JSON that evaluations compare with.
        other_paths: of files that are neither shards nor label maps of a reader.
    """

    file: str
    receiver: str
    readers: Sequence[Reader]
    num_classes: Setting | None = None
    background: int = 0
    resizer: Resizer | None = None
    predicts: Mapping[str, str] = field(default_factory=dict)
    annotation_file: Setting | None = None
    other_paths: Sequence[Setting] = ()

    @cached_property
    def label_map(self) -> str | None:
        """The label map that class texts are looked up in, if it is there."""
        named = (Input.find(each) for one in self.readers for each in one.label_maps)
        return next(
            (path for one in named for path in one.files if not path.endswith(".csv")), None
        )

    @cached_property
    def image_ids(self) -> frozenset[int] | None:
        """The ids of the images in the annotation file; None where there is no such file.

        Raises:
            TfodError: it is not COCO JSON.
        """
        if self.annotation_file is None or not os.path.isfile(self.annotation_file.value):
            return None
        from tfod.convert.coco import read_coco  # few configurations name such a file

        images = read_coco(self.annotation_file.value, ()).images
        return frozenset(one["id"] for one in images if isinstance(one.get("id"), int))

    def sources(self) -> list[str]:
        """The shards that it names, each once.

        Raises:
            TfodError: it names none.
        """
        if not any(one.patterns for one in self.readers):
            raise TfodError(f"{self.file} names no shards; name them on the command line, too")
        inputs = (each for one in self.readers for each in one.inputs)
        return list(dict.fromkeys(path for one in inputs for path in one.files))


def load_training_config(path: str) -> TrainingConfig:
    """Read a pipeline.config, or an experiment's YAML, which its name ends in.

    Raises:
        TfodError: it cannot be read, or is something else; one line says where and why.
    """
    settings, is_yaml = read_settings(path)
    if is_yaml:
        if not settings.sections("task"):
            raise TfodError(f"{path}: is not an experiment of TF-Vision, which begins with task:")
        return _vision_config(settings)
    if not settings.fields.keys() & set(_PARTS):
        raise TfodError(f"{path}: is not a pipeline.config, which has {', '.join(_PARTS)}")
    return _pipeline_config(settings)


def _pipeline_config(whole: Section) -> TrainingConfig:
    model = next((one for kind in _MODELS for one in whole.sections(f"model.{kind}")), None)
    training, evaluation = (
        whole.get(f"{part}.batch_size", int, size)
        for part, size in (("train_config", 32), ("eval_config", 1))
    )
    readers = [_pipeline_reader(one, training, True) for one in whole.sections(_PARTS[2])]
    readers += [_pipeline_reader(one, evaluation, False) for one in whole.sections(_PARTS[4])]
    if model is None:  # an experimental one
        return TrainingConfig(whole.file, "od-api", readers)
    return TrainingConfig(
        whole.file,
        "od-api",
        readers,
        num_classes=model.get("num_classes", int, 0),
        resizer=_pipeline_resizer(model),
        predicts=dict(_predictions(model)),
        other_paths=model.settings("keypoint_label_map_path", str),
    )


def _pipeline_reader(reader: Section, batch_size: Setting, is_training: bool) -> Reader:
    # Keypoints that are put in order by their names need not all be there.
    by_name = reader.get("use_keypoint_label_map", bool, False).value
    return Reader(
        is_training,
        reader.settings("tf_record_input_reader.input_path", str),
        batch_size,
        drops_remainder=reader.get("drop_remainder", bool, True),
        most_objects=reader.get("max_number_of_boxes", int, 100),
        label_maps=reader.settings("label_map_path", str),
        masks=reader.get("load_instance_masks", bool, False),
        mask_type=reader.get("mask_type", str, "NUMERICAL_MASKS"),
        keypoints=None if by_name else reader.get("num_keypoints", int, 0),
    )


def _predictions(model: Section) -> Iterator[tuple[str, str]]:
    """What a model predicts beside boxes, as the fields of :class:`Reader` are called."""
    masks = model.get(_MASK_PREDICTION, bool, False)
    if masks.value and model.get("number_of_stages", int, 2).value > 2:
        yield "masks", str(masks)
    for task, what in (
        ("mask_estimation_task", "masks"),
        ("keypoint_estimation_task", "keypoints"),
    ):
        for one in model.sections(task):
            yield what, f"`{one.path}`"


def _pipeline_resizer(model: Section) -> Resizer | None:
    for one in model.sections("image_resizer.fixed_shape_resizer"):
        height, width = one.get("height", int, 300).value, one.get("width", int, 300).value
        return Resizer(f"{one.path} {{ height: {height} width: {width} }}", height, width, False)
    for one in model.sections("image_resizer.keep_aspect_ratio_resizer"):
        low, high = (
            one.get("min_dimension", int, 600).value,
            one.get("max_dimension", int, 1024).value,
        )
        text = f"{one.path} {{ min_dimension: {low} max_dimension: {high} }}"
        return Resizer(text, high, high, True, low)
    return None


def _vision_config(whole: Section) -> TrainingConfig:
    masks = whole.get("task.model.include_mask", bool, False)
    data = [(name, whole.sections(f"task.{name}")) for name in ("train_data", "validation_data")]
    sides = [one.value for one in whole.settings("task.model.input_size", int)]
    keeps = whole.get("task.train_data.parser.keep_aspect_ratio", bool, True).value
    text = f"task.model.input_size: {sides}"
    annotations = [one for one in whole.settings("task.annotation_file", str) if one.value]
    return TrainingConfig(
        whole.file,
        "tf-vision",
        [_vision_reader(one, masks, name == "train_data") for name, found in data for one in found],
        num_classes=whole.get("task.model.num_classes", int, _COCO_CLASSES),
        background=1,
        # Sides that are null depend on the images.
        resizer=Resizer(text, sides[0], sides[1], keeps) if len(sides) == 3 else None,
        annotation_file=annotations[0] if annotations else None,
        other_paths=annotations,
    )


def _vision_reader(data: Section, masks: Setting, is_training: bool) -> Reader:
    by_text = data.get("decoder.type", str, "simple_decoder").value == "label_map_decoder"
    by_name = data.get("tfds_name", str, "").value
    return Reader(
        is_training,
        [] if by_name else list(_split(data.settings("input_path", str))),
        data.get("global_batch_size", int, 0),
        drops_remainder=data.get("drop_remainder", bool, True),
        most_objects=data.get("parser.max_num_instances", int, 100),
        label_maps=data.settings("decoder.label_map_decoder.label_map", str) if by_text else [],
        masks=masks,
    )


def _split(patterns: Sequence[Setting]) -> Iterator[Setting]:
    """The patterns that stand in one value, with commas between them."""
    for one in patterns:
        for part in one.value.split(","):
            if part.strip() or not one.value.strip():
                yield Setting(one.path, part.strip(), one.line)

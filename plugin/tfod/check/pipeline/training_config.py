"""What a trainer's configuration says of its data: the OD API's pipeline.config, TF-Vision's YAML.

Field names and defaults are those of tensorflow/models: ``research/object_detection/protos``
(pipeline, model, image_resizer, input_reader, train and eval) and ``official/vision/configs``
(retinanet, maskrcnn, common) with ``official/core/config_definitions.py``. An experiment of
TF-Vision is complete without a file, which only changes it: what the file leaves out is not known.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfod.check.pipeline.settings import Section, Setting, read_settings
from tfod.errors import TfodError
from tfod.tfrecord.storage.remote_errors import RemoteError
from tfod.tfrecord.storage.remote_files import list_remote
from tfod.tfrecord.storage.urls import is_url

_MODELS = ("ssd", "faster_rcnn", "center_net")
_PARTS = ("model", "train_config", "train_input_reader", "eval_config", "eval_input_reader")
_COCO_CLASSES = 91
"""Of TF-Vision's experiments on COCO, the background among them."""
_UNSET = ("", "TODO")


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
        found = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if os.path.isdir(pattern):
            return cls(setting, found, f"{os.path.abspath(pattern)} is a folder; name its files")
        return cls(setting, found, f"no file is at {os.path.abspath(pattern)}")

    @property
    def is_placeholder(self) -> bool:
        """Whether nobody has filled in the path."""
        value = str(self.setting.value)
        return value.strip().upper() in _UNSET or "PATH_TO_BE" in value


@dataclass(frozen=True)
class Reader:
    """What is read for training, or for an evaluation.

    Attributes:
        is_training: which of the two.
        patterns: paths and patterns of the shards.
        batch_size: of all replicas together.
        drops_remainder: whether a last batch that is not full is left out.
        most_objects: of an image; what is beyond is cut off.
        label_map_path: of the map from class texts to ids.
        masks: asks for masks; None where the file does not.
        mask_type: how masks are encoded; None where it cannot be chosen, for PNG.
        keypoints: of each object; None where none are read.
    """

    is_training: bool
    patterns: Sequence[Setting]
    batch_size: Setting | None
    drops_remainder: Setting | None
    most_objects: Setting | None
    label_map_path: Setting | None = None
    masks: Setting | None = None
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
        height, width: what an image fits into, or becomes; of ``keeps_aspect`` with a shortest
            side the longest side, twice.
        shortest: what the shorter side becomes where the longer one allows it; None where an
            image fits into height and width.
        keeps_aspect: whether it keeps the image's aspect ratio.
    """

    text: str
    height: int
    width: int
    shortest: int | None = None
    keeps_aspect: bool = True

    def scales(self, height: int, width: int) -> tuple[float, float]:
        """By how much height and width of an image are multiplied."""
        down, across = self.height / height, self.width / width
        if not self.keeps_aspect:
            return down, across
        scale = min(down, across)
        if self.shortest is not None:
            scale = min(self.shortest / min(height, width), self.height / max(height, width))
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
        annotation_file: COCO JSON that evaluations compare with.
        other_paths: of files that are neither shards nor label maps of a reader.
    """

    file: str
    receiver: str
    readers: Sequence[Reader]
    num_classes: Setting | None = None
    background: int = 0
    resizer: Resizer | None = None
    annotation_file: Setting | None = None
    other_paths: Sequence[Setting] = ()

    @cached_property
    def label_map(self) -> str | None:
        """The label map that class texts are looked up in, if it is there."""
        for one in self.readers:
            if one.label_map_path and not str(one.label_map_path.value).endswith(".csv"):
                files = Input.find(one.label_map_path).files
                if files:
                    return files[0]
        return None

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
        if not settings.section("task").fields:
            raise TfodError(f"{path}: is not an experiment of TF-Vision, which begins with task:")
        return _vision_config(settings.section("task"), path)
    if not settings.fields.keys() & set(_PARTS):
        raise TfodError(f"{path}: is not a pipeline.config, which has {', '.join(_PARTS)}")
    return _pipeline_config(settings, path)


def _pipeline_config(whole: Section, path: str) -> TrainingConfig:
    kind = next((one for one in _MODELS if whole.section("model").sections(one)), None)
    model = whole.section("model", kind or "")
    return TrainingConfig(
        path,
        "od-api",
        [
            *(
                _pipeline_reader(one, whole.section("train_config").get("batch_size", int, 32))
                for one in whole.sections("train_input_reader")
            ),
            *(
                _pipeline_reader(one, whole.section("eval_config").get("batch_size", int, 1), False)
                for one in whole.sections("eval_input_reader")
            ),
        ],
        num_classes=model.get("num_classes", int, 0) if kind else None,
        resizer=_pipeline_resizer(model.section("image_resizer")),
        other_paths=model.all("keypoint_label_map_path", str),
    )


def _pipeline_reader(
    reader: Section, batch_size: Setting | None, is_training: bool = True
) -> Reader:
    masks = reader.get("load_instance_masks", bool)
    keypoints = reader.get("num_keypoints", int)
    by_name = reader.get("use_keypoint_label_map", bool)
    return Reader(
        is_training,
        reader.section("tf_record_input_reader").all("input_path", str),
        batch_size,
        reader.get("drop_remainder", bool, True),
        reader.get("max_number_of_boxes", int, 100),
        reader.get("label_map_path", str),
        masks if masks and masks.value else None,
        reader.get("mask_type", str, "NUMERICAL_MASKS"),
        # Keypoints that are put in order by their names need not all be there.
        keypoints if keypoints and keypoints.value and not (by_name and by_name.value) else None,
    )


def _pipeline_resizer(found: Section) -> Resizer | None:
    for one in found.sections("fixed_shape_resizer"):
        height, width = one.get("height", int, 300), one.get("width", int, 300)
        return _resizer(f"{one.path} {{ height: %d width: %d }}", height, width, keeps=False)
    for one in found.sections("keep_aspect_ratio_resizer"):
        low, high = one.get("min_dimension", int, 600), one.get("max_dimension", int, 1024)
        text = f"{one.path} {{ min_dimension: %d max_dimension: %d }}"
        return _resizer(text, low, high, is_shortest=True)
    return None


def _resizer(
    text: str,
    first: Setting | None,
    second: Setting | None,
    keeps: bool = True,
    is_shortest: bool = False,
) -> Resizer | None:
    """A resizer of two settings; None where they are no sizes."""
    if not first or not second or first.value <= 0 or second.value <= 0:
        return None
    text %= first.value, second.value
    if is_shortest:
        return Resizer(text, second.value, second.value, first.value)
    return Resizer(text, first.value, second.value, keeps_aspect=keeps)


def _vision_config(task: Section, path: str) -> TrainingConfig:
    model = task.section("model")
    masks = model.get("include_mask", bool)
    asked = masks if masks and masks.value else None
    data = (task.section(name) for name in ("train_data", "validation_data"))
    readers = [
        _vision_reader(one, asked, number == 0) for number, one in enumerate(data) if one.fields
    ]
    annotation_file = task.get("annotation_file", str)
    if annotation_file is not None and not annotation_file.value:
        annotation_file = None
    sides = model.all("input_size", int)
    keeps = task.section("train_data", "parser").get("keep_aspect_ratio", bool, True)
    text = "task.model.input_size: [%d, %d, 3]"
    return TrainingConfig(
        path,
        "tf-vision",
        readers,
        num_classes=model.get("num_classes", int, _COCO_CLASSES),
        background=1,
        resizer=_resizer(text, sides[0], sides[1], keeps=bool(keeps and keeps.value))
        if len(sides) == 3
        else None,
        annotation_file=annotation_file,
        other_paths=[annotation_file] if annotation_file else [],
    )


def _vision_reader(data: Section, masks: Setting | None, is_training: bool) -> Reader:
    decoder = data.section("decoder")
    kind = decoder.get("type", str)
    by_text = kind is not None and kind.value == "label_map_decoder"
    return Reader(
        is_training,
        () if data.get("tfds_name", str) else list(_split(data.all("input_path", str))),
        data.get("global_batch_size", int),
        data.get("drop_remainder", bool, True),
        data.section("parser").get("max_num_instances", int, 100),
        decoder.section("label_map_decoder").get("label_map", str) if by_text else None,
        masks,
    )


def _split(patterns: Sequence[Setting]) -> Iterator[Setting]:
    """The patterns that stand in one value, with commas between them."""
    for one in patterns:
        for part in one.value.split(","):
            if part.strip() or not one.value.strip():
                yield Setting(one.path, part.strip(), one.line)

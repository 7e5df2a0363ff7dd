"""``TaskData`` and ``JobData``: a task or a job with the interface for formats.

Facts: ``meta[META_FIELD]`` has texts, also for numbers, and labels as pairs ``("label", {...})``;
the keys of ``frame_info`` are relative frames; the name of a video frame is ``frame_`` and six
digits of the absolute frame; ``frame_info`` has deleted frames and frames that were not selected
for ground truth, but they are not exported (``JobData._init_frame_info`` and
``get_included_frames``). Frames are found by name without extension; with a root hint, frame 0
counts as no match. Old servers group all frames at once in namedtuples; new ones stream objects
that read their shapes on demand, in the order of the frames. Exported annotations have all
attributes of their label, with defaults (``_extend_attributes`` in ``dataset_manager/task.py``).

A track is drawn on all frames from its first keyframe. Between keyframes, a rectangle moves
linearly and rotates by the smaller angle. The last keyframe lasts until the end of the task, and an
``outside`` keyframe hides the track until the next one. Keyframes on deleted frames do not count.
"""

from __future__ import annotations

import os.path as osp
from collections import namedtuple
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import cvat
from cvat.apps.engine.models import Annotations, AttributeSpec, AttributeType, Job, Label, Task

DEFAULT_SUBSET = "default"
INTERNAL_ATTRIBUTES = {"occluded", "outside", "keyframe", "track_id", "rotation"} | (
    {"source", "score"} if cvat.IS_NEW else set()
)


class LabelData:
    """The labels of a task, job or project with their attributes."""

    Attribute = namedtuple("Attribute", "name, value")
    soft_attribute_import = False

    def __init__(self, labels: list[Label]) -> None:
        self._labels = labels

    def _label(self, name: str) -> Label:
        for label in self._labels:
            if label.name == name and label.parent is None:
                return label
        raise ValueError(f"Label {name!r} is not registered for this task")

    def _import_attributes(self, label: Label, attributes: Any) -> dict[str, Any]:
        """Return the attributes that the label has; a project adds new ones to it."""
        found = {}
        for name, value in attributes:
            spec = label.spec(name)
            if spec is None and self.soft_attribute_import and name not in INTERNAL_ATTRIBUTES:
                is_truth = value.lower() in ("true", "false")
                kind = AttributeType.CHECKBOX if is_truth else AttributeType.TEXT
                spec = AttributeSpec(name, kind)
                label.attributes.append(spec)
            if spec is not None:
                found[name] = _stored_value(label, spec, value)
        return found

    def _meta_of_labels(self) -> list[tuple[str, dict[str, Any]]]:
        return [("label", _meta_of_label(label)) for label in self._labels]


def _stored_value(label: Label, spec: AttributeSpec, value: str) -> str:
    if spec.input_type != AttributeType.CHECKBOX or value == spec.default_value:
        return value
    if value.lower() not in ("true", "false"):
        # CVAT's message also has the name of the label.
        raise Exception(f"Failed to convert attribute '{label.name}'='{value.lower()}': ")
    return value.lower()


def _meta_of_label(label: Label) -> dict[str, Any]:
    specs = [
        (
            "attribute",
            {**vars(spec), "mutable": str(spec.mutable), "input_type": str(spec.input_type)},
        )
        for spec in label.attributes
    ]
    meta = {"name": label.name, "color": label.color, "type": label.type, "attributes": specs}
    return meta | ({"parent": label.parent} if label.parent else {})


class CommonData(LabelData):
    """A task or a job."""

    META_FIELD = "task"
    LabeledShape = namedtuple(
        "LabeledShape",
        "type, frame, label, points, occluded, attributes, source, rotation, group, z_order, "
        "elements, outside, id",
        defaults=(0, 0, 0, (), False, None),
    )
    TrackedShape = namedtuple(
        "TrackedShape",
        "type, frame, points, occluded, outside, keyframe, attributes, rotation, source, group, "
        "z_order, label, track_id, elements, id",
        defaults=(0, "manual", 0, 0, None, 0, (), None),
    )
    Tag = namedtuple("Tag", "frame, label, attributes, source, group, id", defaults=(0, None))
    _OldFrame = namedtuple(
        "Frame",
        "idx, id, frame, name, width, height, labeled_shapes, tags, shapes, labels",
        defaults=((), {}),
    )

    def __init__(self, annotations: Annotations, task: Task) -> None:
        super().__init__(task.labels)
        self._db_task = task
        self._annotations = annotations
        self.deleted_frames = dict.fromkeys(task.deleted_frames, True)
        self.frame_step = task.step
        self.db_data = task.data
        self.frame_info = {idx: self._info(idx) for idx in self.rel_range}
        self._frame_mapping = {
            osp.splitext(info["path"])[0]: idx for idx, info in self.frame_info.items()
        }
        self.meta = {self.META_FIELD: self._meta()}

    @property
    def rel_range(self) -> range:
        return range(len(self._db_task.frames))

    @property
    def db_instance(self) -> Any:
        return self._db_task

    @property
    def data(self) -> Annotations:
        return self._annotations

    def __len__(self) -> int:
        return len(self.rel_range)

    def _info(self, idx: int) -> dict[str, Any]:
        frame = self._db_task.frames[idx]
        name = f"frame_{self.abs_frame_id(idx):06d}" if self._db_task.is_video else frame.name
        info = {"path": name, "width": frame.width, "height": frame.height}
        if not self._db_task.is_video:
            info["id"] = 1000 + idx
        if cvat.IS_NEW:
            info["subset"] = self._db_task.subset
        return info

    def _meta(self) -> dict[str, Any]:
        return {**meta_of_task(self._db_task), "labels": self._meta_of_labels()}

    def abs_frame_id(self, relative_id: int) -> int:
        if relative_id not in self.rel_range:
            raise ValueError(f"Unknown internal frame id {relative_id}")
        return relative_id * self.frame_step + self._db_task.start_frame

    def rel_frame_id(self, absolute_id: int) -> int:
        frame, rest = divmod(absolute_id - self._db_task.start_frame, self.frame_step)
        if rest or frame not in self.rel_range:
            raise ValueError(f"Unknown frame {absolute_id}")
        return frame

    def get_included_frames(self) -> set[int]:
        return {idx for idx in self.rel_range if idx not in self.deleted_frames}

    def group_by_frame(self, include_empty: bool = False) -> Iterator[Any]:
        """Return the frames with their annotations, lowest ``z_order`` first."""
        drawn: dict[int, list[Any]] = {}
        for shape in self._drawn_shapes():
            drawn.setdefault(shape["frame"], []).append(shape)
        tags: dict[int, list[Any]] = {}
        for tag in self._annotations.tags:
            tags.setdefault(tag["frame"], []).append(tag)

        last = 0

        def shapes_on(idx: int) -> list[Any]:
            nonlocal last
            assert idx >= last, "annotations are a stream in the order of the frames"
            last = idx
            found = sorted(drawn.get(idx, ()), key=lambda shape: shape["z_order"])
            return [self._export_shape(shape) for shape in found]

        def tags_on(idx: int) -> list[Any]:
            return [self._export(self.Tag, tag) for tag in tags.get(idx, ())]

        assert include_empty
        frames = (self._frame(i, shapes_on, tags_on) for i in sorted(self.get_included_frames()))
        return frames if cvat.IS_NEW else iter(list(frames))

    def _frame(self, idx: int, shapes: Callable[..., Any], tags: Callable[..., Any]) -> Any:
        info = self.frame_info[idx]
        number = self.abs_frame_id(idx)
        values = (idx, info.get("id", 0), number, info["path"], info["width"], info["height"])
        if not cvat.IS_NEW:
            return self._OldFrame(*values, shapes(idx), tags(idx))
        task = self._db_task
        return StreamedFrame(
            *values, task.subset, task.id, partial(shapes, idx), partial(tags, idx)
        )

    def _drawn_shapes(self) -> Iterator[dict[str, Any]]:
        yield from self._annotations.shapes
        for number, track in enumerate(self._annotations.tracks):
            for shape in interpolate(track, self.rel_range.stop, self.deleted_frames):
                yield {**shape, "track_id": number}

    def _export(self, kind: Any, stored: Mapping[str, Any]) -> Any:
        label = self._label(stored["label"])
        attributes = {spec.name: spec.default_value for spec in label.attributes}
        attributes |= stored["attributes"]
        values = {name: stored[name] for name in kind._fields if name in stored}
        values["frame"] = self.abs_frame_id(stored["frame"])
        values["attributes"] = [self.Attribute(*pair) for pair in attributes.items()]
        return kind(**values)

    def _export_shape(self, shape: Mapping[str, Any]) -> Any:
        return self._export(self.TrackedShape if "track_id" in shape else self.LabeledShape, shape)

    def match_frame(
        self, path: str, root_hint: str | None = None, *, path_has_ext: bool = True
    ) -> int | None:
        name = osp.splitext(path)[0] if path_has_ext else path
        match = self._frame_mapping.get(name)
        if not match and root_hint and not name.startswith(root_hint):  # also for frame 0
            match = self._frame_mapping.get(osp.join(root_hint, name))
        return match

    def match_frame_fuzzy(self, path: str, *, path_has_ext: bool = True) -> int | None:
        parts = Path(osp.splitext(path)[0] if path_has_ext else path).parts
        for name, frame in self._frame_mapping.items():
            if Path(name).parts[-len(parts) :] == parts:
                return frame
        return None

    def add_shape(self, shape: Any) -> None:
        self._annotations.shapes.append(self._imported(shape))

    def add_tag(self, tag: Any) -> None:
        self._annotations.tags.append(self._imported(tag))

    def _imported(self, one: Any) -> dict[str, Any]:
        values = one._asdict()
        label = self._label(values["label"])
        values["frame"] = self.rel_frame_id(int(values["frame"]))
        values["attributes"] = self._import_attributes(label, values["attributes"])
        if "points" in values:
            values["points"] = [float(value) for value in values["points"]]
        return values


class TaskData(CommonData):
    """A task. Unlike in a job, placeholders are not exported, and match no image."""

    def __init__(self, annotations: Annotations, task: Task) -> None:
        super().__init__(annotations, task)
        for idx in self.rel_range:  # replace the entries of placeholders with the same name
            if idx not in task.placeholders:
                self._frame_mapping[osp.splitext(self.frame_info[idx]["path"])[0]] = idx

    def get_included_frames(self) -> set[int]:
        return super().get_included_frames().difference(self._db_task.placeholders)


class JobData(CommonData):
    """A job: the frames of its segment."""

    META_FIELD = "job"

    def __init__(self, annotations: Annotations, job: Job) -> None:
        self._db_job = job
        super().__init__(annotations, job.task)

    @property
    def rel_range(self) -> range:
        return range(self._db_job.start, self._db_job.stop + 1)

    def get_included_frames(self) -> set[int]:
        included = super().get_included_frames()
        chosen = self._db_job.chosen
        return included if chosen is None else included.intersection(chosen)

    @property
    def db_instance(self) -> Any:
        return self._db_job

    def _meta(self) -> dict[str, Any]:
        own = {
            "id": str(self._db_job.id),
            "size": str(len(self)),
            "start_frame": str(self.abs_frame_id(self._db_job.start)),
            "stop_frame": str(self.abs_frame_id(self._db_job.stop)),
        }
        return {**super()._meta(), **own}


class StreamedFrame:
    """A frame of a new server, whose annotations are read on demand."""

    def __init__(self, idx: int, frame_id: int, frame: int, name: str, *others: Any) -> None:
        self.idx, self.id, self.frame, self.name = idx, frame_id, frame, name
        self.width, self.height, self.subset, self.task_id, self._shapes, self._tags = others

    @property
    def labeled_shapes(self) -> list[Any]:
        return list(self._shapes())

    @property
    def tags(self) -> list[Any]:
        return list(self._tags())


def interpolate(
    track: Mapping[str, Any], end: int, deleted: Container[int]
) -> Iterator[dict[str, Any]]:
    """Yield the visible shapes of a track on the frames before ``end``."""
    keys = [one for one in track["shapes"] if one["frame"] not in deleted]
    keys.sort(key=lambda one: int(one["frame"]))
    common = {name: track[name] for name in ("label", "group", "source")}
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        if key["outside"]:
            continue
        last = following["frame"] if following else end
        for frame in range(key["frame"], min(last, end)):
            attributes = {**track["attributes"], **key["attributes"]}
            shape = {**key, **common, "attributes": attributes, "frame": frame}
            shape["keyframe"] = frame == key["frame"]
            if following and not shape["keyframe"]:
                shape.update(_between(key, following, frame))
            yield shape


def _between(first: Mapping[str, Any], second: Mapping[str, Any], frame: int) -> dict[str, Any]:
    part = (frame - first["frame"]) / (second["frame"] - first["frame"])
    pairs = zip(first["points"], second["points"], strict=True)
    turn = (second["rotation"] - first["rotation"] + 180) % 360 - 180
    return {
        "points": [start + (end - start) * part for start, end in pairs],
        "rotation": (first["rotation"] + turn * part) % 360,
    }


def meta_of_task(task: Task) -> dict[str, Any]:
    data = task.data
    return {
        "id": str(task.id),
        "name": task.name,
        "size": str(data.size),
        "mode": task.mode,
        "subset": task.subset or DEFAULT_SUBSET,
        "start_frame": str(data.start_frame),
        "stop_frame": str(data.stop_frame),
        "frame_filter": data.frame_filter,
    }

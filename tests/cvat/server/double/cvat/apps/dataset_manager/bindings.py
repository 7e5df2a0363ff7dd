"""From a Datumaro dataset to the annotations of a task, and what formats import from here.

Facts: an image is matched to a frame by its name, else by the attribute ``frame`` or its name
taken for a number, else, in videos, by the digits of its name; the first that matches none ends
the import. An annotation that fails ends it as ``Image <id>: can't import annotation #<n>
(<type>): <cause>``. Groups of one are dropped. Attributes arrive as texts; those that the label
does not have are dropped. Only some formats can yield tracks, and TFRecord is none of them.
``load_dataset_data`` makes a task of each subset; it reads ``media.path``, which must be a file
below the dataset's folder.
"""

from __future__ import annotations

import os.path as osp
from collections import Counter
from pathlib import Path
from typing import Any

import datumaro as dm
from datumaro.util import cast

import cvat
from cvat.apps.dataset_manager._errors import CvatExportError, CvatImportError
from cvat.apps.dataset_manager._extractor import GetCVATDataExtractor  # noqa: F401
from cvat.apps.dataset_manager._project_data import ProjectData
from cvat.apps.dataset_manager._task_data import JobData, TaskData  # noqa: F401
from cvat.apps.dataset_manager.formats.transformations import MaskConverter
from cvat.apps.engine.models import Label, ShapeType, SourceType, TaskMode

if not cvat.IS_NEW:
    del CvatExportError

_SHAPES = {
    "bbox": ShapeType.RECTANGLE,
    "polygon": ShapeType.POLYGON,
    "polyline": ShapeType.POLYLINE,
    "points": ShapeType.POINTS,
    "mask": ShapeType.MASK,
    **({"ellipse": ShapeType.ELLIPSE} if cvat.IS_NEW else {}),
}
_TRACK_FORMATS = ("cvat", "datumaro", "coco", "coco_instances", "voc")


def match_dm_item(item: Any, instance_data: Any, root_hint: str | None = None) -> int:
    """The relative frame that an item belongs to."""
    is_video = instance_data.meta[instance_data.META_FIELD]["mode"] == str(TaskMode.INTERPOLATION)
    frame = None
    if isinstance(item.media, dm.Image):
        frame = instance_data.match_frame(item.id + item.media.ext, root_hint)
    if frame is None:
        frame = instance_data.match_frame(item.id, root_hint, path_has_ext=False)
    if frame is None:
        frame = cast(item.attributes.get("frame", item.id), int)
    if frame is None and is_video:
        frame = cast(osp.basename(item.id)[len("frame_") :], int)
    if frame not in instance_data.frame_info:
        raise CvatImportError(f"Could not match item id: '{item.id}' with any task frame")
    return int(frame)


def find_dataset_root(dm_dataset: Any, instance_data: Any) -> str | None:
    """The folder of the task that the dataset's names are relative to."""
    longest = max(dm_dataset, key=lambda item: len(Path(item.id).parts), default=None)
    if longest is None:
        return None
    frame = instance_data.match_frame_fuzzy(longest.id, path_has_ext=False)
    if frame is None:
        return None
    folder = osp.dirname(instance_data.frame_info[frame]["path"])
    return folder[: -len(osp.dirname(longest.id)) or None].removesuffix("/")


def import_dm_annotations(dm_dataset: Any, instance_data: Any) -> None:
    if len(dm_dataset) == 0:
        return
    if isinstance(instance_data, ProjectData):
        for part, task_data in instance_data.split_dataset(dm_dataset):
            part._format = dm_dataset.format
            import_dm_annotations(part, task_data)
        return
    labels = dm_dataset.categories()[dm.AnnotationType.label]
    root_hint = find_dataset_root(dm_dataset, instance_data)
    for item in dm_dataset:
        match = match_dm_item(item, instance_data, root_hint=root_hint)
        frame = instance_data.abs_frame_id(match)
        groups = _groups(item)
        for number, one in enumerate(item.annotations):
            try:
                _import(one, frame, labels, groups.get(one.group, 0), dm_dataset, instance_data)
            except Exception as error:
                raise CvatImportError(
                    f"Image {item.id}: can't import annotation #{number} ({one.type.name}): {error}"
                ) from error


def _groups(item: Any) -> dict[int, int]:
    """New numbers of the groups that have more than one shape."""
    sizes = Counter(one.group for one in item.annotations if one.type.name in _SHAPES and one.group)
    shared = sorted(group for group, size in sizes.items() if size > 1)
    return {group: number for number, group in enumerate(shared, start=1)}


def _import(
    one: Any, frame: int, labels: Any, group: int, dataset: Any, instance_data: Any
) -> None:
    if one.label is None:
        raise CvatImportError("annotation has no label")
    if cvat.IS_NEW:
        score = one.attributes.pop("score", None)
        # The server's table refuses others but NaN, with which it cannot show the task any more.
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"a score of {score}")
    label = labels.items[one.label].name
    attributes = [
        instance_data.Attribute(name, str(value)) for name, value in one.attributes.items()
    ]
    if one.type.name == "label":
        tag = {"frame": frame, "label": label, "group": group, "source": "manual"}
        instance_data.add_tag(instance_data.Tag(attributes=attributes, **tag))
    if one.type.name not in _SHAPES:
        return
    points = _points(one)
    rotation = one.attributes.pop("rotation", 0.0)
    occluded = _is_true(one.attributes.pop("occluded", None))
    one.attributes.pop("outside", None)
    track = one.attributes.pop("track_id", None)
    can_track = dataset.format in _TRACK_FORMATS
    if track is not None and "keyframe" in one.attributes and can_track:
        raise NotImplementedError("the double imports no tracks")
    shape = instance_data.LabeledShape(
        type=str(_SHAPES[one.type.name]),
        frame=frame,
        label=label,
        points=points,
        occluded=occluded,
        z_order=one.z_order,
        group=group,
        source=_source(one),
        rotation=rotation,
        attributes=attributes,
        elements=[],
    )
    instance_data.add_shape(shape)


def _points(one: Any) -> list[float]:
    if one.type.name == "mask":
        return list(MaskConverter.dm_mask_to_cvat_rle(one))
    if one.type.name == "ellipse":
        left, top, right, bottom = one.points
        return [(left + right) / 2, (top + bottom) / 2, right, top]
    return list(one.points)


def _is_true(value: Any) -> bool:
    """As ``attrs.converters.to_bool``, and False for what that refuses."""
    text = value.lower() if isinstance(value, str) else value
    return text in (True, "true", "t", "yes", "y", "on", "1", 1)


def _source(one: Any) -> str:
    known = {str(kind) for kind in SourceType}
    if one.attributes.get("source", "").lower() in known:
        return str(one.attributes.pop("source").lower())
    return str(SourceType.FILE if cvat.IS_NEW else SourceType.MANUAL)


def load_dataset_data(project_annotation: Any, dataset: Any, project_data: Any) -> None:
    """Make a task of each subset of a dataset."""
    names = [label.name for label in dataset.categories()[dm.AnnotationType.label].items]
    labels = project_annotation.db_project.labels
    known = [label.name for label in labels]
    if not known:
        labels.extend(Label(name) for name in names)
    for name in names if known else ():
        if name in known:
            continue
        if name != "background":
            raise CvatImportError(f'Target project does not have label with name "{name}"')
        dataset.transform("remap_labels", mapping={"background": ""}, default="keep")
    for subset in dataset.subsets().values():
        files: dict[str, Any] = {"media": [], "data_root": dataset.data_path + osp.sep}
        roots = set()
        for item in subset.as_dataset():
            if not (isinstance(item.media, dm.Image) and item.media.has_data):
                continue
            path = item.media.path
            files["media"].append(path)
            parts = path.rsplit(item.id, 1)
            if len(parts) == 2:
                roots.add(parts[0])
        if roots:
            files["data_root"] = osp.commonpath(roots) + osp.sep
        fields = {"name": subset.name, "subset": subset.name}
        project_annotation.add_task(fields, files, project_data)

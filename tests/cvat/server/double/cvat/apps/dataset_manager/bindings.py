"""Conversion of a Datumaro dataset to the annotations of a task, and the names that formats import.

Facts: the frame of an image is found by its name, then by the attribute ``frame`` or its name as a
number, then by the digits of a video's name; the first image without a frame stops the import. An
annotation that fails stops it with ``Image <id>: can't import annotation #<n> (<type>): <cause>``.
Groups of one shape are removed. Attributes become texts, if the label has them. TFRecord is not one
of the formats with tracks. ``load_dataset_data`` makes a task of each subset from the files
``media.path`` in the dataset's folder.
"""

from __future__ import annotations

import os.path as osp
from collections import Counter
from pathlib import Path
from typing import Any

import datumaro as dm
import numpy as np
from datumaro.util import cast

import cvat
from cvat.apps.dataset_manager._extractor import GetCVATDataExtractor  # noqa: F401
from cvat.apps.dataset_manager._project_data import ProjectData
from cvat.apps.dataset_manager._task_data import JobData, TaskData  # noqa: F401
from cvat.apps.engine.models import Label


class CvatImportError(Exception):
    """An error whose message the user reads."""


if cvat.IS_NEW:

    class CvatExportError(Exception):
        """The same for an export, since 2.41."""


_SHAPES = {"polygon", "polyline", "points", "mask"} | ({"ellipse"} if cvat.IS_NEW else set())
_TYPES = {"bbox": "rectangle", **{name: name for name in _SHAPES}}


def match_dm_item(item: Any, instance_data: Any, root_hint: str | None = None) -> int:
    """Return the relative frame of an item."""
    frame = None
    if isinstance(item.media, dm.Image):
        frame = instance_data.match_frame(item.id + item.media.ext, root_hint)
    if frame is None:
        frame = instance_data.match_frame(item.id, root_hint, path_has_ext=False)
    if frame is None:
        frame = cast(item.attributes.get("frame", item.id), int)
    if frame is None and instance_data.meta[instance_data.META_FIELD]["mode"] == "interpolation":
        frame = cast(osp.basename(item.id)[len("frame_") :], int)
    if frame not in instance_data.frame_info:
        raise CvatImportError(f"Could not match item id: '{item.id}' with any task frame")
    return int(frame)


def find_dataset_root(dm_dataset: Any, instance_data: Any) -> str | None:
    """Return the folder of the task to which the dataset's names are relative."""
    longest = max(dm_dataset, key=lambda item: len(Path(item.id).parts))
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
        sizes = Counter(one.group for one in item.annotations if one.type.name in _TYPES)
        for number, one in enumerate(item.annotations):
            try:
                group = one.group if sizes[one.group] > 1 else 0
                _import(one, frame, labels, group, dm_dataset, instance_data)
            except Exception as error:
                raise CvatImportError(
                    f"Image {item.id}: can't import annotation #{number} ({one.type.name}): {error}"
                ) from error


def _import(
    one: Any, frame: int, labels: Any, group: int, dataset: Any, instance_data: Any
) -> None:
    if one.label is None:
        raise CvatImportError("annotation has no label")
    if cvat.IS_NEW:
        score = one.attributes.pop("score", None)
        # The server's table refuses other numbers. With NaN, its page fails.
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"a score of {score}")
    label = labels.items[one.label].name
    pairs = one.attributes.items()
    attributes = [instance_data.Attribute(name, str(value)) for name, value in pairs]
    common = {"frame": frame, "label": label, "group": group, "attributes": attributes}
    kind = one.type.name
    if kind == "label":
        instance_data.add_tag(instance_data.Tag(source="manual", **common))
    if kind not in _TYPES:
        return
    rotation = one.attributes.pop("rotation", 0.0)
    occluded = str(one.attributes.pop("occluded", None)).lower()
    one.attributes.pop("outside", None)
    track = one.attributes.pop("track_id", None)
    is_tracked = track is not None and "keyframe" in one.attributes
    assert not (is_tracked and dataset.format in ("cvat", "datumaro", "coco", "voc"))
    shape = instance_data.LabeledShape(
        type=_TYPES[kind],
        points=convert_mask(one) if kind == "mask" else list(one.points),
        occluded=occluded in ("true", "t", "yes", "y", "on", "1"),
        z_order=one.z_order,
        source=_source(one),
        rotation=rotation,
        elements=[],
        **common,
    )
    instance_data.add_shape(shape)


def convert_mask(mask: Any) -> list[int]:
    """Return run lengths of 0 and 1 within the box, then left, top, right and bottom.

    A mask without a pixel fails in NumPy, like in CVAT.
    """
    x, y, width, height = mask.get_bbox()
    left, top = int(x), int(y)
    right, bottom = int(max(x, x + width - 1)), int(max(y, y + height - 1))
    bits = np.asarray(mask.image)[top : bottom + 1, left : right + 1].reshape(-1).astype(bool)
    changes = np.flatnonzero(bits[1:] != bits[:-1]) + 1
    runs = np.diff([0, *changes, len(bits)]).tolist()
    return [*([0] if bits[0] else []), *runs, left, top, right, bottom]


def _source(one: Any) -> str:
    if one.attributes.get("source", "").lower() in ("auto", "semi-auto", "manual", "file"):
        return str(one.attributes.pop("source").lower())
    return "file" if cvat.IS_NEW else "manual"


def load_dataset_data(project_annotation: Any, dataset: Any, project_data: Any) -> None:
    """Make a task of each subset of a dataset."""
    names = [label.name for label in dataset.categories()[dm.AnnotationType.label].items]
    labels = project_annotation.db_project.labels
    if not labels:
        labels.extend(Label(name) for name in names)
    known = [label.name for label in labels]
    for name in names:
        if name not in known:
            raise CvatImportError(f'Target project does not have label with name "{name}"')
    for subset in dataset.subsets().values():
        files: dict[str, Any] = {"media": [], "data_root": dataset.data_path + osp.sep}
        roots = set()
        for item in subset.as_dataset():
            if isinstance(item.media, dm.Image) and item.media.has_data:
                path = item.media.path
                files["media"].append(path)
                root, *rest = path.rsplit(item.id, 1)
                roots.update([root] if rest else [])
        if roots:
            files["data_root"] = osp.commonpath(roots) + osp.sep
        fields = {"name": subset.name, "subset": subset.name}
        project_annotation.add_task(fields, files, project_data)

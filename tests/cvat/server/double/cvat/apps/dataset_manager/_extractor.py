"""``GetCVATDataExtractor``: a task, job or project as a source of Datumaro items.

Facts: it is a context manager. An item's id is the frame's name without extension, its attribute
``frame`` the absolute frame. Videos come as pixels with the extension ``.PNG``, images as their
own bytes; without images there is a path and a size. An old server makes all items at once and
names no subset for a task or job, so it is ``default``; a new one streams, takes the task's subset,
says that it is as long as the task (deleted frames included), and computes annotations when they
are looked at. A format may bring its own conversion, as
ours do: ``convert_annotations(frame, label_attrs,
map_label, format_name, dimension)``, the last two not for a project on old servers.
"""

from __future__ import annotations

import io
import os.path as osp
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import datumaro as dm

import cvat
from cvat.apps.dataset_manager import _datumaro
from cvat.apps.dataset_manager._project_data import ProjectData, defaulted_subset
from cvat.apps.engine.models import DimensionType, Task

VIDEO_FRAME_EXT = ".PNG"


def GetCVATDataExtractor(  # the name is CVAT's
    instance_data: Any,
    include_images: bool = False,
    format_type: str | None = None,
    dimension: DimensionType = DimensionType.DIM_2D,
    **kwargs: Any,
) -> CvatExtractor:
    return CvatExtractor(instance_data, include_images, format_type, dimension, **kwargs)


class CvatExtractor(_datumaro.Base):
    """The extractor of both servers."""

    def __init__(
        self,
        instance_data: Any,
        include_images: bool,
        format_type: str | None,
        dimension: DimensionType,
        *,
        convert_annotations: Callable[..., list[Any]],
    ) -> None:
        self._data = instance_data
        self._convert = convert_annotations
        self._include_images = include_images
        self._meta = instance_data.meta[instance_data.META_FIELD]
        is_project = isinstance(instance_data, ProjectData)
        if is_project:
            tasks = instance_data.tasks
            subsets = [
                defaulted_subset(one, instance_data.subsets) for one in instance_data.subsets
            ]
        else:
            tasks = [getattr(instance_data.db_instance, "task", instance_data.db_instance)]
            subsets = [self._meta["subset"]]
        self._tasks: dict[int, Task] = {task.id: task for task in tasks}
        options = {"length": len(instance_data), "subsets": subsets} if cvat.IS_NEW else {}
        super().__init__(media_type=dm.Image, **options)
        self._categories = _categories(self._meta["labels"])
        self._specs = {
            label.get("parent", "") + label["name"]: label["attributes"]
            for _, label in self._meta["labels"]
        }
        # Of a project, old servers do not pass these on.
        passes_all = cvat.IS_NEW or not is_project
        self._rest = (format_type, dimension) if passes_all else ()
        self._items: list[Any] | None = None
        if not cvat.IS_NEW:
            frames = instance_data.group_by_frame(include_empty=True)
            self._items = [self._item(frame) for frame in frames]

    def __enter__(self) -> CvatExtractor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        if self._items is not None:
            yield from self._items
            return
        for frame in self._data.group_by_frame(include_empty=True):
            yield self._item(frame)

    def __len__(self) -> int:
        return len(self._data if self._items is None else self._items)

    def categories(self) -> Any:
        return self._categories

    def _item(self, frame: Any) -> Any:
        read = partial(self._annotations, frame)
        values = {
            "id": osp.splitext(frame.name)[0],
            "subset": getattr(frame, "subset", None),
            "media": self._media(frame),
            "attributes": {"frame": frame.frame},
        }
        if cvat.IS_NEW:
            return _datumaro.LazyItem(annotations=read, **values)
        return dm.DatasetItem(annotations=read(), **values)

    def _media(self, frame: Any) -> Any:
        task = self._tasks[getattr(frame, "task_id", next(iter(self._tasks)))]
        ext = VIDEO_FRAME_EXT if task.is_video else ""
        path = frame.name + ext
        ext = ext or frame.name.rsplit(".", maxsplit=1)[1]
        size = (frame.height, frame.width)
        read = task.frames[frame.idx].read
        if not self._include_images:
            return _datumaro.image_without_data(path, ext, size)
        if task.is_video:
            return _datumaro.image_from_pixels(lambda: _pixels(read()), path, ext, size)
        return _datumaro.image_from_bytes(read, path, ext, size)

    def _annotations(self, frame: Any) -> list[Any]:
        return self._convert(frame, self._specs, self._map_label, *self._rest)

    def _map_label(self, name: str, parent: str = "") -> int:
        return _datumaro.find_label(self._categories, name)


def _categories(labels: list[Any]) -> dict[Any, Any]:
    categories = dm.LabelCategories(attributes={"occluded"})
    for _, label in labels:
        categories.add(label["name"], label.get("parent"))
        categories.attributes.update(spec["name"] for _, spec in label["attributes"])
    return {dm.AnnotationType.label: categories, dm.AnnotationType.points: dm.PointsCategories()}


def _pixels(data: bytes) -> Any:
    """The pixels of a video's frame, BGR."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(opened.convert("RGB"))[:, :, ::-1]

"""``GetCVATDataExtractor``: a task, job or project as a source of Datumaro items.

Facts: it is a context manager. The id of an item is the frame's name without its extension, and the
attribute ``frame`` is the absolute frame. Frames of videos are pixels with the extension ``.PNG``,
images are their bytes; without images, there is a path and a size. An old server makes all items at
once, and the subset of a task is ``default``. A new one is a stream with the task's subset, its
length counts deleted frames, and it computes annotations on demand. Our formats have their own
conversion: ``convert_annotations(frame, label_attrs, map_label, format_name, dimension)``. Old
servers omit the last two for a project.

Datumaro 0.3 has ``Extractor``, ``Image`` and ``ByteImage``; the loader gets a path. 1.x has
``DatasetBase``, ``Image.from_bytes``, ``from_numpy`` and ``from_file``. CVAT's fork of 1.x accepts
a function as an item's annotations, which :class:`LazyItem` adds to PyPI's.
"""

from __future__ import annotations

import io
import os.path as osp
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import datumaro as dm
import numpy as np
from PIL import Image

import cvat
from cvat.apps.dataset_manager._project_data import ProjectData, defaulted_subset
from cvat.apps.engine.models import DimensionType, Task

IS_OLD = hasattr(dm, "SourceExtractor")
Base: Any = dm.Extractor if IS_OLD else dm.DatasetBase
VIDEO_FRAME_EXT = ".PNG"


class LazyItem(dm.DatasetItem):
    """A dataset item that computes its annotations when they are first read."""

    __slots__ = ("_lazy", "_own")

    def __init__(self, id: str, *, annotations: Callable[[], list[Any]], **others: Any) -> None:
        self._lazy: Callable[[], list[Any]] | None = None  # Datumaro validates a list
        super().__init__(id, annotations=[], **others)
        self._lazy = annotations

    @property
    def annotations(self) -> list[Any]:
        if self._lazy is not None:
            self._own, self._lazy = self._lazy(), None
        return self._own

    @annotations.setter
    def annotations(self, value: list[Any]) -> None:
        self._own = value


class CvatExtractor(Base):
    """The extractor of both servers."""

    def __init__(
        self,
        instance_data: Any,
        include_images: bool = False,
        format_type: str | None = None,
        dimension: DimensionType = DimensionType.DIM_2D,
        *,
        convert_annotations: Callable[..., list[Any]],
    ) -> None:
        self._data = instance_data
        self._convert = convert_annotations
        self._include_images = include_images
        meta = instance_data.meta[instance_data.META_FIELD]
        is_project = isinstance(instance_data, ProjectData)
        if is_project:
            tasks, known = instance_data.tasks, instance_data.subsets
            subsets = [defaulted_subset(subset, known) for subset in known]
        else:
            tasks = [getattr(instance_data.db_instance, "task", instance_data.db_instance)]
            subsets = [meta["subset"]]
        self._tasks: dict[int, Task] = {task.id: task for task in tasks}
        options = {"length": len(instance_data), "subsets": subsets} if cvat.IS_NEW else {}
        super().__init__(media_type=dm.Image, **options)
        self._categories = _categories(meta["labels"])
        self._specs = {
            label.get("parent", "") + label["name"]: label["attributes"]
            for _, label in meta["labels"]
        }
        self._rest = (format_type, dimension) if cvat.IS_NEW or not is_project else ()
        self._items = None if cvat.IS_NEW else list(self._stream())

    def __enter__(self) -> CvatExtractor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return self._stream() if self._items is None else iter(self._items)

    def _stream(self) -> Iterator[Any]:
        return map(self._item, self._data.group_by_frame(include_empty=True))

    def __len__(self) -> int:
        return len(self._data if self._items is None else self._items)

    def categories(self) -> Any:
        return self._categories

    def _item(self, frame: Any) -> Any:
        read = partial(self._convert, frame, self._specs, self._map_label, *self._rest)
        values = {
            "id": osp.splitext(frame.name)[0],
            "subset": getattr(frame, "subset", None),
            "media": self._media(frame),
            "attributes": {"frame": frame.frame},
        }
        if cvat.IS_NEW:
            return LazyItem(annotations=read, **values)
        return dm.DatasetItem(annotations=read(), **values)

    def _media(self, frame: Any) -> Any:
        task = self._tasks[getattr(frame, "task_id", next(iter(self._tasks)))]
        ext = VIDEO_FRAME_EXT if task.is_video else frame.name.rsplit(".", maxsplit=1)[1]
        path = frame.name + VIDEO_FRAME_EXT * task.is_video
        size = (frame.height, frame.width)
        read: Callable[[], Any] = task.frames[frame.idx].read
        if task.is_video:
            read = partial(_read_pixels, read)
        if IS_OLD:
            if not self._include_images:
                return dm.Image(path=path, size=size)
            kind = dm.Image if task.is_video else dm.ByteImage
            return kind(data=lambda _: read(), path=path, size=size)
        if not self._include_images:
            return dm.Image.from_file(path=path, ext=ext, size=size)
        make = dm.Image.from_numpy if task.is_video else dm.Image.from_bytes
        return make(data=read, ext=ext, size=size)

    def _map_label(self, name: str, parent: str = "") -> int:
        return int(self._categories[dm.AnnotationType.label].find(name)[0])


GetCVATDataExtractor = CvatExtractor


def _categories(labels: list[Any]) -> dict[Any, Any]:
    categories = dm.LabelCategories(attributes={"occluded"})
    for _, label in labels:
        categories.add(label["name"], label.get("parent"))
        categories.attributes.update(spec["name"] for _, spec in label["attributes"])
    return {dm.AnnotationType.label: categories, dm.AnnotationType.points: dm.PointsCategories()}


def _read_pixels(read: Callable[[], bytes]) -> Any:
    """Return the pixels of a video's frame, BGR."""
    with Image.open(io.BytesIO(read())) as opened:
        return np.asarray(opened.convert("RGB"))[:, :, ::-1]

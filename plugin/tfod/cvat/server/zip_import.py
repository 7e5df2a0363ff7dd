"""Import: a zip of shards into a task, a job or a project."""

from __future__ import annotations

import errno
import functools
import itertools
import logging
import os
from collections.abc import Iterator
from typing import Any
from zipfile import is_zipfile

import numpy as np

from tfod.checker.finding import plural
from tfod.cvat.records import (
    NewImage,
    NewImages,
    ShapeBuilder,
    ZipRecord,
    datumaro_attributes,
    label_maps_of,
    on_frames,
    read_zip,
    require_storable,
)
from tfod.cvat.refusal import LONGEST_CAUSE, RefusedError, check_upload, refusal, replaced
from tfod.cvat.server.instance import Instance, describe_instance
from tfod.datumaro import compat
from tfod.datumaro.compat import annotation
from tfod.datumaro.construct import make_item
from tfod.datumaro.dataset_base import TfDetectionApiBase
from tfod.datumaro.media import BoxedMask
from tfod.detection.box_geometry import PixelBox
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.errors import TfodError, in_plain_words
from tfod.formats.cvat.shapes import MASK, POINTS, CvatShape, decode_runs
from tfod.sources.resolved import File
from tfod.sources.resolver import resolve_uploads
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.urls import is_zip

_log = logging.getLogger("tfod.cvat")
_UPLOAD = "upload.zip"
_FINDINGS_KEPT = 300
_IMAGES = "images"
_FRAME = "frame"
_SUBSET = "default"
_MOST_OUTLINES = 100
_NAMES_FAULT = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)


def import_zip(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any, **options: Any
) -> None:
    """Check a zip, then hand its annotations to CVAT.

    Args:
        src_file: the open zip.
        temp_dir: an empty folder for the images of new tasks.
        instance_data: CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.
        load_data_callback: of a project: makes tasks of the images. None otherwise.
        options: CVAT's, such as ``conv_mask_to_poly``.

    Raises:
        CvatImportError: exactly of this class, in one line: what is wrong, where, what to do.
            CVAT rolls back what it did before, so that the old annotations are still there.
    """
    from cvat.apps.dataset_manager.bindings import CvatImportError, import_dm_annotations

    path = src_file.name
    try:
        instance = describe_instance(instance_data)
        require_valid_upload(path, instance)
        converter = _Converter(path, instance, bool(options.get("conv_mask_to_poly", True)))
        if load_data_callback is None:
            dataset = converter.on_frames()
        else:
            dataset = converter.with_images(os.path.join(temp_dir, _IMAGES))
    except (TfodError, compat.errors.DatumaroError, OSError) as error:
        if isinstance(error, OSError):
            _log.exception("TFRecord: a zip could not be unpacked")
        # Some servers (2.15) show users the whole traceback of a project's import: keep it short.
        raise CvatImportError(_message(error, path)) from None
    if load_data_callback is not None:
        load_data_callback(dataset, instance_data)
    import_dm_annotations(dataset, instance_data)


def require_valid_upload(path: str, instance: Instance) -> None:
    """Check an uploaded zip against what it is to be imported into.

    Raises:
        RefusedError: in one line, what is wrong, where, and what to do.
    """
    # By its bytes, or by its end: a program may be in front, as in one that unpacks itself.
    if not is_zip(path) and not is_zipfile(path):
        raise RefusedError(
            "the file is not a zip",
            "Zip the shards (.tfrecord, .record) with their label_map.pbtxt",
        )
    try:
        found = resolve_uploads([File.at(path, _UPLOAD)])
        report = check_upload(found, instance.task, max_findings=_FINDINGS_KEPT)
    except TfodError as error:  # such as of masks without boxes
        text = str(error).replace(path, "the zip")
        raise RefusedError(text.replace(f"{_UPLOAD}:", "")) from None
    if not report.valid:
        raise refusal(report, instance.task, instance.noun, _UPLOAD)
    for message in replaced(report):
        _log.warning("TFRecord: %s", message)


class _Converter:
    """Makes a Datumaro dataset of a zip, as CVAT's own import takes it."""

    def __init__(self, path: str, instance: Instance, to_polygons: bool) -> None:
        self._path = path
        self._instance = instance
        self._to_polygons = to_polygons
        self._builder = ShapeBuilder(
            instance.attributes if instance.task.labels is not None else None,
            new_attributes=instance.takes_new_attributes,
            by_datumaro=True,
        )
        self._labels: dict[str, int] = {}

    def on_frames(self) -> Any:
        """The records of a task's or a job's frames, each named by its frame's number.

        CVAT's own matching would take frame 0 for none where names lie in folders, and look on; it
        goes by the attribute ``frame`` where it knows no name, and no frame has such names.
        """
        task, noun = self._instance.task, self._instance.noun
        named = {os.path.splitext(frame.name)[0] for frame in task.frames or ()}
        marks = ("frame " + "#" * count for count in itertools.count())
        mark = next(mark for mark in marks if not any(mark in one for one in named))
        items, others = [], 0
        for pair in on_frames(self._path, task, f"this {noun}"):
            if pair is None:
                others += 1
                continue
            record, frame = pair
            one = record.detection
            size = frame.height or one.height or 0, frame.width or one.width or 0
            name = f"{mark}{frame.number} {safe_relative_path(one.filename or '')}"
            annotations = self._annotations(record, size)
            attributes = {_FRAME: frame.number}
            media = _image_of(size)  # CVAT looks at its extension
            items.append(make_item(name, _SUBSET, media, annotations, attributes))
        if others:
            _log.warning("TFRecord: skipped %s of other jobs or tasks", plural(others, "image"))
        return self._dataset(items)

    def with_images(self, folder: str) -> Any:
        """The records of a new task for each subset, with their images on disk."""
        if self._instance.task.labels is None:  # CVAT makes those of the label map
            for label_map in label_maps_of(self._path):
                for item in label_map.items:
                    self._label(item.class_name)
        images, items = NewImages(), []
        for record in read_zip(self._path):
            require_storable("subset", record.subset, "rename its shard")
            image = images.of(record)
            file = os.path.join(folder, record.subset, image.item_id + image.extension)
            _write_image(file, image)
            items.append(
                compat.DatasetItem(
                    id=image.item_id,
                    subset=record.subset,
                    media=compat.image_from_file(file, image.size),
                    annotations=self._annotations(record, image.size),
                )
            )
        for sentence in images.sentences():
            _log.warning("TFRecord: %s", sentence)
        dataset = self._dataset(items)
        dataset.init_cache()  # which keeps the order of the subsets
        dataset.bind(folder, TfDetectionApiBase.NAME)  # CVAT looks for the images below it
        return dataset

    def _dataset(self, items: list[Any]) -> Any:
        from datumaro.components.dataset import Dataset

        for loss in self._builder.losses.sentences():
            _log.warning("TFRecord: %s", loss)
        # CVAT refuses a dataset for a project that lacks a label of its, used or not.
        return Dataset.from_iterable(items, categories=[*self._labels], media_type=compat.Image)

    def _label(self, name: str) -> int:
        if self._instance.task.labels is None:
            require_storable("class", name, "give it another name")
        return self._labels.setdefault(name, len(self._labels))

    def _annotations(self, record: ZipRecord, size: tuple[int, int]) -> list[Any]:
        tags = [
            annotation.Label(self._label(tag.label), attributes=dict(tag.attributes))
            for tag in self._builder.tags(record)
        ]
        shapes = self._builder.shapes(record, size)
        free = 1 + max((one.group for one in shapes), default=0)
        return [
            *tags,
            *itertools.chain.from_iterable(
                self._shape(one, size, free + number) for number, one in enumerate(shapes)
            ),
        ]

    def _shape(self, shape: CvatShape, size: tuple[int, int], free: int) -> Iterator[Any]:
        """A shape as CVAT wants it; of a mask maybe the polygons of its parts, as one group.

        What is too thin for a polygon, or would be hundreds, stays a mask.
        """
        fields = {
            "label": self._label(shape.label),
            "attributes": datumaro_attributes(shape),
            "group": shape.group,
            "z_order": shape.z_order,
        }
        if shape.kind == POINTS:
            yield annotation.Points(list(shape.points), **fields)
        elif shape.kind == MASK:
            yield from self._mask(shape, size, free, fields)
        else:
            left, top, right, bottom = shape.extent
            yield annotation.Bbox(left, top, right - left, bottom - top, **fields)

    def _mask(
        self, shape: CvatShape, size: tuple[int, int], free: int, fields: dict[str, Any]
    ) -> Iterator[Any]:
        runs = np.array(shape.runs, np.int32)
        if self._to_polygons:
            outlines = compat.mask_to_polygons(decode_runs(runs, shape.extent, size))
            if 0 < len(outlines) <= _MOST_OUTLINES:
                group = shape.group or (free if len(outlines) > 1 else 0)
                for outline in outlines:
                    own = {**fields, "attributes": dict(fields["attributes"]), "group": group}
                    yield annotation.Polygon(outline, **own)
                return
        # The pixels stay packed until CVAT asks for them.
        drawn = functools.partial(_draw, runs, shape.extent, size)
        yield BoxedMask.make(drawn, shape.extent, **fields)


@functools.lru_cache(64)
def _image_of(size: tuple[int, int]) -> Any:
    """An image of this size, of which nothing else is known; shared by all frames."""
    return compat.image_without_data(DEFAULT_EXTENSION, size)


def _draw(runs: np.ndarray, extent: PixelBox, size: tuple[int, int], *_: object) -> np.ndarray:
    return decode_runs(runs, extent, size)


def _write_image(path: str, image: NewImage) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(image.encoded)
    except OSError as error:
        if error.errno not in _NAMES_FAULT:
            raise
        raise TfodError(
            f"image {image.item_id!r} cannot have its name on disk ({error.strerror}); rename it"
        ) from None


def _message(error: Exception, path: str) -> str:
    """In one line, without the server's paths; ours is the cause of Datumaro's."""
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, OSError):
        text = f"the server could not unpack the zip ({error.strerror}); ask its administrator"
    else:
        text = in_plain_words(error) or str(error)
    text = " ".join(text.replace(f"{path}:", "").replace(path, "the zip").split())
    cause, *details = text.split("; ")
    if len(cause) > LONGEST_CAUSE and " (" in cause:  # whose brackets can wait
        cause, _, rest = cause.partition(" (")
        details.insert(0, rest.replace(")", "", 1))
    return str(RefusedError(cause, *(one[:1].upper() + one[1:] for one in details)))

"""Import of a zip of shards into a task, a job or a project of CVAT."""

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
    make_datumaro_attributes,
    match_frames,
    read_label_maps,
    read_zip,
    require_storable,
)
from tfod.cvat.refusal import (
    MAX_CAUSE,
    RefusedError,
    build_refusal,
    check_upload,
    list_replacements,
)
from tfod.cvat.server.instance import Instance, describe_instance
from tfod.datumaro import compat
from tfod.datumaro.compat import annotation
from tfod.datumaro.construct import make_item
from tfod.datumaro.dataset_base import TfDetectionApiBase
from tfod.datumaro.media import BoxedMask
from tfod.detection.box_geometry import PixelBox
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.errors import TfodError, excerpt, get_user_message
from tfod.formats.cvat.shapes import MASK, POINTS, CvatShape, decode_runs
from tfod.sources.resolved import File
from tfod.sources.resolver import resolve_uploads
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.storage.urls import is_zip

_log = logging.getLogger("tfod.cvat")
_UPLOAD = "upload.zip"
_MAX_FINDINGS = 300
_IMAGES = "images"
_FRAME = "frame"
_SUBSET = "default"
_MAX_OUTLINES = 100
_NAME_ERRORS = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)


def import_zip(
    src_file: Any, temp_dir: str, instance_data: Any, load_data_callback: Any, **options: Any
) -> None:
    """Check a zip, then pass its annotations to CVAT.

    Args:
        src_file: the open zip.
        temp_dir: an empty folder for the images of new tasks.
        instance_data: CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.
        load_data_callback: function that creates tasks of a project; None for a task or job.
        options: further options of CVAT, such as ``conv_mask_to_poly``.

    Raises:
        CvatImportError: the zip cannot be imported. The message is one line, the class is exactly
            this one, and CVAT restores the old annotations.
    """
    from cvat.apps.dataset_manager.bindings import CvatImportError, import_dm_annotations

    path = src_file.name
    try:
        instance = describe_instance(instance_data)
        require_valid_upload(path, instance)
        converter = _Converter(path, instance, bool(options.get("conv_mask_to_poly", True)))
        if load_data_callback is None:
            dataset = converter.convert_for_frames()
        else:
            dataset = converter.convert_with_images(os.path.join(temp_dir, _IMAGES))
    except (TfodError, compat.errors.DatumaroError, OSError) as error:
        if isinstance(error, OSError):
            _log.exception("TFRecord: a zip could not be unpacked")
        # Some servers (2.15) show the traceback of a project's import to users: keep it short.
        raise CvatImportError(_format_message(error, path)) from None
    if load_data_callback is not None:
        load_data_callback(dataset, instance_data)
    import_dm_annotations(dataset, instance_data)


def require_valid_upload(path: str, instance: Instance) -> None:
    """Check an uploaded zip against the target of its import, or raise RefusedError."""
    # is_zipfile accepts zips that begin with a program, such as self-extracting ones.
    if not is_zip(path) and not is_zipfile(path):
        raise RefusedError(
            "the file is not a zip",
            "Zip the shards (.tfrecord, .record) with their label_map.pbtxt",
        )
    try:
        sources = resolve_uploads([File.at(path, _UPLOAD)])
        report = check_upload(sources, instance.task, max_findings=_MAX_FINDINGS)
    except TfodError as error:  # for example masks without boxes
        text = str(error).replace(path, "the zip")
        raise RefusedError(text.replace(f"{_UPLOAD}:", "")) from None
    if not report.valid:
        raise build_refusal(report, instance.task, instance.noun, _UPLOAD)
    for message in list_replacements(report):
        _log.warning("TFRecord: %s", message)


class _Converter:
    """Converts a zip to a Datumaro dataset for CVAT's own import."""

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

    def convert_for_frames(self) -> Any:
        """Convert the records of a task's or job's frames, with the frame numbers as names.

        CVAT's matching by name fails for frame 0 in a folder, because it takes the number 0 for no
        match. If it does not know a name, it uses the attribute ``frame``. Therefore the items get
        names that no frame has.
        """
        task, noun = self._instance.task, self._instance.noun
        names = {os.path.splitext(frame.name)[0] for frame in task.frames or ()}
        prefixes = ("frame " + "#" * count for count in itertools.count())
        prefix = next(text for text in prefixes if not any(text in name for name in names))
        items, skipped = [], 0
        for pair in match_frames(self._path, task, f"this {noun}"):
            if pair is None:
                skipped += 1
                continue
            record, frame = pair
            detection = record.detection
            size = frame.height or detection.height or 0, frame.width or detection.width or 0
            name = f"{prefix}{frame.number} {safe_relative_path(detection.filename or '')}"
            annotations = self._make_annotations(record, size)
            attributes = {_FRAME: frame.number}
            media = _make_empty_image(size)  # CVAT requires its extension
            items.append(make_item(name, _SUBSET, media, annotations, attributes))
        if skipped:
            _log.warning("TFRecord: skipped %s of other jobs or tasks", plural(skipped, "image"))
        return self._make_dataset(items)

    def convert_with_images(self, folder: str) -> Any:
        """Convert the records of a new task for each subset, and write their images."""
        if self._instance.task.labels is None:  # CVAT creates all labels of the label map
            for label_map in read_label_maps(self._path):
                for item in label_map.items:
                    self._get_label_index(item.class_name)
        images, items = NewImages(), []
        for record in read_zip(self._path):
            require_storable("subset", record.subset, "rename its shard")
            image = images.make(record)
            file = os.path.join(folder, record.subset, image.item_id + image.extension)
            _write_image(file, image)
            items.append(
                compat.DatasetItem(
                    id=image.item_id,
                    subset=record.subset,
                    media=compat.image_from_file(file, image.size),
                    annotations=self._make_annotations(record, image.size),
                )
            )
        for sentence in images.sentences():
            _log.warning("TFRecord: %s", sentence)
        dataset = self._make_dataset(items)
        dataset.init_cache()  # keeps the order of the subsets
        dataset.bind(folder, TfDetectionApiBase.NAME)  # CVAT searches the images in this folder
        return dataset

    def _make_dataset(self, items: list[Any]) -> Any:
        from datumaro.components.dataset import Dataset

        for loss in self._builder.losses.sentences():
            _log.warning("TFRecord: %s", loss)
        # CVAT rejects a dataset with a label that the project does not have, even an unused one.
        return Dataset.from_iterable(items, categories=[*self._labels], media_type=compat.Image)

    def _get_label_index(self, name: str) -> int:
        if self._instance.task.labels is None:
            require_storable("class", name, "give it another name")
        return self._labels.setdefault(name, len(self._labels))

    def _make_annotations(self, record: ZipRecord, size: tuple[int, int]) -> list[Any]:
        tags = [
            annotation.Label(self._get_label_index(tag.label), attributes=dict(tag.attributes))
            for tag in self._builder.make_tags(record)
        ]
        shapes = self._builder.make_shapes(record, size)
        group = 1 + max((shape.group for shape in shapes), default=0)
        converted = (self._convert(shape, size, i) for i, shape in enumerate(shapes, group))
        return [*tags, *itertools.chain.from_iterable(converted)]

    def _convert(self, shape: CvatShape, size: tuple[int, int], group: int) -> Iterator[Any]:
        """Yield the annotation of a shape, or the polygons of a mask's parts in the given group.

        A mask with parts that are too thin for a polygon, or with too many parts, stays a mask.
        """
        fields = {
            "label": self._get_label_index(shape.label),
            "attributes": make_datumaro_attributes(shape),
            "group": shape.group,
            "z_order": shape.z_order,
        }
        if shape.kind == POINTS:
            yield annotation.Points(list(shape.points), **fields)
        elif shape.kind == MASK:
            yield from self._convert_mask(shape, size, group, fields)
        else:
            left, top, right, bottom = shape.extent
            yield annotation.Bbox(left, top, right - left, bottom - top, **fields)

    def _convert_mask(
        self, shape: CvatShape, size: tuple[int, int], group: int, fields: dict[str, Any]
    ) -> Iterator[Any]:
        runs = np.array(shape.runs, np.int32)
        if self._to_polygons:
            outlines = compat.mask_to_polygons(decode_runs(runs, shape.extent, size))
            if 0 < len(outlines) <= _MAX_OUTLINES:
                fields["group"] = shape.group or (group if len(outlines) > 1 else 0)
                for outline in outlines:
                    attributes = dict(fields["attributes"])
                    yield annotation.Polygon(outline, **{**fields, "attributes": attributes})
                return
        # The mask stays run-length encoded until CVAT reads its pixels.
        decode = functools.partial(_decode, runs, shape.extent, size)
        yield BoxedMask.make(decode, shape.extent, **fields)


@functools.lru_cache(64)
def _make_empty_image(size: tuple[int, int]) -> Any:
    return compat.image_from_pixels(None, DEFAULT_EXTENSION, size)


def _decode(runs: np.ndarray, extent: PixelBox, size: tuple[int, int], *_: object) -> np.ndarray:
    return decode_runs(runs, extent, size)


def _write_image(path: str, image: NewImage) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(image.encoded)
    except OSError as error:
        if error.errno not in _NAME_ERRORS:
            raise
        raise TfodError(
            f"image {excerpt(image.item_id)} cannot be saved under its name ({error.strerror}); "
            "rename it"
        ) from None


def _format_message(error: Exception, path: str) -> str:
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, OSError):
        text = f"the server could not unpack the zip ({error.strerror}); ask its administrator"
    else:
        text = get_user_message(error) or str(error)
    text = " ".join(text.replace(f"{path}:", "").replace(path, "the zip").split())
    cause, *details = text.split("; ")
    if len(cause) > MAX_CAUSE and " (" in cause:  # move the text in parentheses to the details
        cause, _, parenthesis = cause.partition(" (")
        details.insert(0, parenthesis.replace(")", "", 1))
    return str(RefusedError(cause, *(text[:1].upper() + text[1:] for text in details)))

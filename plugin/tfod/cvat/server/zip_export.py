"""Export of the annotations of a task, a job or a project of CVAT as a zip of shards."""

from __future__ import annotations

import errno
import functools
import logging
import os
from dataclasses import replace
from typing import Any

from tfod.cvat.frame_shards import ExportOptions, ExportResult, FrameShards
from tfod.cvat.server.instance import count_hidden, read_option
from tfod.datumaro.compat import errors
from tfod.datumaro.media import ImageEncoder
from tfod.detection.images.image import DEFAULT_EXTENSION
from tfod.errors import TfodError, get_user_message
from tfod.formats.cvat.shapes import convert_frame

_log = logging.getLogger("tfod.cvat")
_LABEL_MAPS = "TFOD_CVAT_LABEL_MAPS"
_PROJECT, _JOB = "project", "job"


def export_zip(
    dst_file: Any, temp_dir: str, instance_data: Any, *, save_images: bool, save_masks: bool
) -> None:
    """Write ``<subset>.tfrecord`` files and ``label_map.pbtxt`` into a zip.

    Only one frame is in memory at a time. Annotations that the format cannot store are counted, in
    a text file in the zip and in one line of the log. ``temp_dir`` is an empty folder,
    ``instance_data`` CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.

    Raises:
        CvatExportError: a frame or file cannot be written. CVAT before 2.41 does not have this
            class; there it is Datumaro's ``DatasetExportError``.
    """
    from cvat.apps.dataset_manager import bindings
    from cvat.apps.dataset_manager.util import make_zip_archive

    error_class = getattr(bindings, "CvatExportError", errors.DatasetExportError)
    try:
        options = ExportOptions(
            with_images=save_images,
            save_masks=save_masks,
            keep_empty=read_option("TFOD_CVAT_EMPTY_FRAMES", "keep", "drop") == "keep",
            label_map=_find_label_map(instance_data),
        )
        with bindings.GetCVATDataExtractor(
            instance_data, include_images=save_images, convert_annotations=convert_frame
        ) as extractor:
            result = _write(extractor, temp_dir, instance_data, options)
        make_zip_archive(temp_dir, dst_file)
    except (TfodError, errors.DatumaroError, OSError) as error:
        raise error_class(_format_message(error, temp_dir)) from error
    _log.info("TFRecord: %s", result.summary())
    if result.notes:
        _log.warning("TFRecord: %s", "; ".join(result.notes))


def _write(extractor: Any, folder: str, instance_data: Any, options: ExportOptions) -> ExportResult:
    meta = instance_data.meta[instance_data.META_FIELD]
    labels = [label for _, label in meta["labels"]]
    # Old servers do not set the subset of a task's items.
    subset = None if instance_data.META_FIELD == _PROJECT else str(meta["subset"])
    encoder = ImageEncoder(options.with_images, image_ext=None, default_ext=DEFAULT_EXTENSION)
    with FrameShards(
        folder,
        # Parts of skeletons have a parent, and are not classes.
        [label["name"] for label in labels if not label.get("parent")],
        {
            (label["name"], attribute["name"]): str(attribute["input_type"])
            for label in labels
            for _, attribute in label["attributes"]
        },
        options,
    ) as shards:
        for item in extractor:
            (image,) = item.annotations
            read = None
            if options.with_images:
                read = functools.partial(encoder.encode, item, item.media)
            shards.add(replace(image, subset=subset or item.subset), read)
        return shards.finish(count_hidden(instance_data))


def _format_message(error: Exception, temp_dir: str) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return "the server's disk is full; ask its administrator"
        cause = cause.__cause__ or cause.__context__
    text = get_user_message(error) or str(error)
    for folder in filter(None, (temp_dir, os.environ.get(_LABEL_MAPS))):
        text = text.replace(os.path.join(folder, ""), "")
    return text


def _find_label_map(instance_data: Any) -> str | None:
    """Find the server's label map for the project, or else its default label map."""
    folder = os.environ.get(_LABEL_MAPS)
    if not folder:
        return None
    if not os.path.isdir(folder):
        raise TfodError(f"{_LABEL_MAPS} is {folder!r}, which is not a folder; set it on the server")
    if instance_data.META_FIELD == _PROJECT:
        project = instance_data.meta[_PROJECT]["id"]
    else:
        task = instance_data.db_instance
        task = task.segment.task if instance_data.META_FIELD == _JOB else task
        project = task.project.id if task.project else "default"
    paths = [os.path.join(folder, f"{name}.pbtxt") for name in (project, "default")]
    return next(filter(os.path.isfile, paths), None)

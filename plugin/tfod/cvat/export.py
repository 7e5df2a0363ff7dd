"""Export: the annotations of a task, a job or a project as a zip of shards."""

from __future__ import annotations

import enum
import errno
import logging
import os
from collections.abc import Iterator
from typing import Any

from tfod.cvat.frames import ExportFrames
from tfod.cvat.rectangles import RectangleConverter
from tfod.datumaro.exporter import TfDetectionApiExporter
from tfod.datumaro.lines import errors
from tfod.errors import TfodError, in_plain_words

_log = logging.getLogger("tfod.cvat")
_OPTION = "TFOD_CVAT_EMPTY_FRAMES"


class EmptyFrames(enum.Enum):
    """What becomes of frames without an annotation."""

    KEEP = "keep"
    DROP = "drop"


def export_zip(
    dst_file: Any, temp_dir: str, instance_data: Any, *, save_images: bool, save_masks: bool
) -> None:
    """Write ``<subset>.tfrecord`` files and ``label_map.pbtxt`` into a zip.

    Frames pass one at a time; what the format has no place for is counted in one line of the log.

    Args:
        dst_file: path or open file of the zip.
        temp_dir: an empty folder for the shards.
        instance_data: CVAT's ``TaskData``, ``JobData`` or ``ProjectData``.
        save_images: put the pictures into the shards.
        save_masks: write an instance mask for each object.

    Raises:
        CvatExportError: something cannot be written (of CVAT; before 2.41, which lacks it,
            Datumaro's ``DatasetExportError``).
    """
    from cvat.apps.dataset_manager import bindings
    from cvat.apps.dataset_manager.util import make_zip_archive

    readable = getattr(bindings, "CvatExportError", errors.DatasetExportError)
    try:
        empty_frames = _empty_frames()
        with bindings.GetCVATDataExtractor(
            instance_data,
            include_images=save_images,
            convert_annotations=RectangleConverter(bindings.convert_cvat_anno_to_dm),
        ) as extractor:
            frames = ExportFrames(extractor, drop_empty=empty_frames is EmptyFrames.DROP)
            _Exporter(frames, temp_dir, save_media=save_images, save_masks=save_masks).apply()
        make_zip_archive(temp_dir, dst_file)
    except (TfodError, errors.DatumaroError, OSError) as error:
        raise readable(_message(error, temp_dir)) from error


class _Exporter(TfDetectionApiExporter):
    """Datumaro's exporter, with all that was lost in one line of the job's log."""

    def _say_what_was_lost(self) -> None:
        frames: ExportFrames = self._extractor
        _log.info("TFRecord: %s", frames.summary())
        losses = [*self._losses(), *frames.losses()]
        if losses:
            _log.warning("TFRecord: %s", "; ".join(losses))


def _message(error: Exception, temp_dir: str) -> str:
    """In one line, without the server's paths."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return "the server's disk is full; ask its administrator"
        cause = cause.__cause__ or cause.__context__
    text = in_plain_words(error) or str(error)
    return text.replace(os.path.join(temp_dir, ""), "").replace("item ", "frame ", 1)


def _empty_frames() -> EmptyFrames:
    value = os.environ.get(_OPTION) or EmptyFrames.KEEP.value
    try:
        return EmptyFrames(value)
    except ValueError:
        raise TfodError(
            f"{_OPTION} is {value!r}; set it to {' or '.join(_values())} on the server"
        ) from None


def _values() -> Iterator[str]:
    return (one.value for one in EmptyFrames)

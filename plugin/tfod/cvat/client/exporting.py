"""Conversion of a server's export as "CVAT for images 1.1" to a zip of shards."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tfod.cvat.client.connection import convert_write_errors
from tfod.cvat.frame_shards import ExportOptions, ExportResult, FrameShards
from tfod.errors import TfodError
from tfod.formats.cvat.cvat_for_images import read_frame_image
from tfod.formats.cvat.document import CvatMeta, read_cvat_stream
from tfod.formats.cvat.shapes import CvatImage
from tfod.formats.reading.documents import open_xml
from tfod.formats.reading.files import ImageFiles
from tfod.tfrecord.storage.publishing import Output

FORMAT = "CVAT for images 1.1"
_NO_FRAMES: Mapping[str, int] = {}
_NAME = f"the server's {FORMAT}"


def convert_export(
    source: str,
    out: str,
    options: ExportOptions,
    hidden: Mapping[str, int] = _NO_FRAMES,
    tracks: int = 0,
) -> ExportResult:
    """Convert the server's zip to a zip of shards, completely, or raise TfodError.

    ``hidden`` counts frames that are not in the server's export. ``tracks`` is the number of tracks
    that the server exported as shapes.
    """
    folder, name = os.path.split(os.path.abspath(out))
    with (
        convert_write_errors(folder, "free some space, or choose another file"),
        # The temporary folder is on the disk of the zip, which needs the space anyway.
        tempfile.TemporaryDirectory(
            prefix=".tfod-export-", dir=folder, ignore_cleanup_errors=True
        ) as scratch,
    ):
        result = _write_shards(source, scratch, options, hidden, tracks)
        if not result.frames:
            reason = "there are no frames" if options.keep_empty else "no frame has an annotation"
            raise TfodError(f"nothing was written to {out}: {reason}")
        _pack(scratch, folder, name, compress=not options.with_images)
    return result


def _write_shards(
    source: str, scratch: str, options: ExportOptions, hidden: Mapping[str, int], tracks: int
) -> ExportResult:
    if not zipfile.is_zipfile(source):
        raise TfodError(f"{_NAME} is not a zip; export again")
    with contextlib.ExitStack() as stack:
        with open_xml(source, _NAME) as (stream, name), zipfile.ZipFile(source) as archive:
            images = ImageFiles(["images", ""], archive)
            for part in read_cvat_stream(stream, name):
                if isinstance(part, CvatMeta):  # the head comes first
                    meta = part
                    writer = FrameShards(scratch, meta.labels, meta.input_types, options)
                    shards = stack.enter_context(writer)
                elif isinstance(part, CvatImage):
                    read = None
                    if options.with_images:
                        read = functools.partial(read_frame_image, images, part)
                    shards.add(replace(part, subset=part.subset or meta.subset), read)
        return shards.finish(hidden, tracks)


def _pack(scratch: str, folder: str, name: str, *, compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    path = os.path.join(folder, name)
    with Output() as output, convert_write_errors(path, "the existing file is unchanged"):
        file = output.file(path)
        stream: Any = file.stream
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name_inside in sorted(os.listdir(scratch)):
                path = os.path.join(scratch, name_inside)
                archive.write(path, name_inside)
                os.unlink(path)  # saves disk space

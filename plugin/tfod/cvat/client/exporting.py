"""From the server's export as "CVAT for images 1.1" to a zip of shards and their label map."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tfod.cvat.client.connection import writing
from tfod.cvat.frame_shards import Exported, ExportOptions, FrameShards
from tfod.errors import TfodError
from tfod.formats.cvat.cvat_for_images import image_of_frame
from tfod.formats.cvat.document import CvatMeta, read_cvat_stream
from tfod.formats.cvat.shapes import CvatImage
from tfod.formats.reading.documents import open_xml
from tfod.formats.reading.files import ImageFiles
from tfod.tfrecord.storage.publishing import Output

FORMAT = "CVAT for images 1.1"
_NONE: Mapping[str, int] = {}
_NAME = f"the server's {FORMAT}"


def convert_export(
    source: str,
    out: str,
    options: ExportOptions,
    hidden: Mapping[str, int] = _NONE,
    tracks: int = 0,
) -> Exported:
    """Convert the server's zip to one of shards, which appears complete or not at all.

    Frames stream through; the shards lie beside the zip until it is complete. ``hidden`` counts the
    frames that the server's export does not have, ``tracks`` its tracks, of which it has shapes.

    Raises:
        TfodError: the source is not what it should be, or the zip cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(out))
    with (
        writing(folder, "make room, or name another file"),
        # Beside the file that is to come, where there is room if anywhere.
        tempfile.TemporaryDirectory(
            prefix=".tfod-export-", dir=folder, ignore_cleanup_errors=True
        ) as scratch,
    ):
        exported = _write_shards(source, scratch, options, hidden, tracks)
        if not exported.frames:
            raise TfodError(
                f"nothing was written to {out}: no frame "
                + ("is there" if options.keep_empty else "has an annotation")
            )
        _pack(scratch, folder, name, compress=not options.with_images)
    return exported


def _write_shards(
    source: str, scratch: str, options: ExportOptions, hidden: Mapping[str, int], tracks: int
) -> Exported:
    if not zipfile.is_zipfile(source):
        raise TfodError(f"{_NAME} is not a zip; export again")
    with contextlib.ExitStack() as stack:
        with open_xml(source, _NAME) as (stream, name), zipfile.ZipFile(source) as archive:
            images = ImageFiles(["images", ""], archive)
            for part in read_cvat_stream(stream, name):
                if isinstance(part, CvatMeta):  # the head comes first
                    meta = part
                    shards = stack.enter_context(
                        FrameShards(scratch, meta.labels, meta.input_types, options)
                    )
                elif isinstance(part, CvatImage):
                    read = (
                        functools.partial(image_of_frame, images, part)
                        if options.with_images
                        else None
                    )
                    shards.add(replace(part, subset=part.subset or meta.subset), read)
        return shards.finish(hidden, tracks)


def _pack(scratch: str, folder: str, name: str, *, compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    path = os.path.join(folder, name)
    with Output() as output, writing(path, "what was there before is unchanged"):
        file = output.file(path)
        stream: Any = file.stream
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name_inside in sorted(os.listdir(scratch)):
                path = os.path.join(scratch, name_inside)
                archive.write(path, name_inside)
                os.unlink(path)  # the disk need not hold all of it twice

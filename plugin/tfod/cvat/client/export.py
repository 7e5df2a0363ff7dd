"""From the server's export as "CVAT for images 1.1" to a zip of shards and their label map."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from tfod.check.collector import Collector
from tfod.check.cvat_task.cvat_xml import CvatImage, CvatMeta, CvatTrack, read_cvat_stream
from tfod.check.finding import Severity
from tfod.check.profiles.profile import Policy
from tfod.check.sources.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod.convert.documents import MEMBER
from tfod.cvat.client.requests import progress_bar, writing
from tfod.cvat.frame_shards import Exported, ExportOptions, FrameShards
from tfod.errors import TfodError
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.storage.zip_directory import Entry

FORMAT = "CVAT for images 1.1"
_IMAGES = "images"
_LONGEST_IMAGE = 256 << 20
# A server's own export may be large: a task may have a million frames.
_LIMITS = ArchiveLimits(entries=2_000_000, total_bytes=4 << 40, directory_bytes=512 << 20)


def convert_export(source: str, out: str, options: ExportOptions) -> Exported:
    """Convert the server's zip to one of shards, which appears complete or not at all.

    Frames stream through; the shards lie beside the zip until it is complete.

    Raises:
        TfodError: the source is not what it should be, or the zip cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(out))
    with _ServerZip(source) as archive, _scratch(folder) as scratch:
        exported = _write_shards(archive, scratch, options)
        if not exported.frames:
            raise TfodError(
                f"nothing was written to {out}: no frame "
                + ("is there" if options.keep_empty else "has an annotation")
            )
        _pack(scratch, folder, name, compress=not options.with_images)
    return exported


def _write_shards(archive: _ServerZip, scratch: str, options: ExportOptions) -> Exported:
    with contextlib.ExitStack() as stack, archive.document() as parts:
        for part in parts:
            if isinstance(part, CvatMeta):  # the head comes first
                meta = part
                shards = stack.enter_context(
                    FrameShards(scratch, meta.labels, meta.input_types, options)
                )
            elif isinstance(part, CvatImage):
                read = functools.partial(archive.read_image, part) if options.with_images else None
                shards.add(replace(part, subset=part.subset or meta.subset), read)
        return shards.finish()


class _ServerZip:
    """The zip that the server has made, read under limits."""

    def __init__(self, path: str) -> None:
        # Whatever a rule has against the zip is an error here.
        self._collector = Collector(Policy({}, {}), 10)
        name = f"the server's {FORMAT}"
        self._archive = Archive(path, name, self._collector, _LIMITS)
        self._refuse_damage()
        self._entries: dict[str, Entry] = {}
        for entry in self._archive.entries:
            self._entries[entry.path] = entry
            self._entries.setdefault(posixpath.splitext(entry.path)[0], entry)

    def __enter__(self) -> _ServerZip:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @contextlib.contextmanager
    def document(self) -> Iterator[Iterator[CvatMeta | CvatImage | CvatTrack]]:
        """The parts of the annotations."""
        entry = self._entries.get(MEMBER)
        if entry is None:
            raise TfodError(f"the server's {FORMAT} holds no {MEMBER}; is it another format?")
        with (
            self._reading(),
            self._archive.open(entry) as stream,
            progress_bar("converting", entry.size, "B") as bar,
        ):
            yield read_cvat_stream(_Counted(stream, bar), f"the server's {MEMBER}")

    def read_image(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's image; None where the server has sent none."""
        path = posixpath.join(_IMAGES, image.subset, image.name)
        entry = self._entries.get(path) or self._entries.get(posixpath.splitext(path)[0])
        if entry is None:
            return None
        if entry.size > _LONGEST_IMAGE:
            raise TfodError(f"image {image.name!r} is longer than {_LONGEST_IMAGE >> 20} MiB")
        with self._reading():
            return self._archive.read(entry, _LONGEST_IMAGE)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ArchiveDamageError:
            self._refuse_damage()
            raise

    def _refuse_damage(self) -> None:
        for found in self._collector.findings.in_order([]):
            if found.severity is Severity.ERROR:
                raise TfodError(f"{found.shard}: {found.message}; export again")


class _Counted:
    """A stream that tells how much of it was read."""

    def __init__(self, stream: BinaryIO, bar: Any) -> None:
        self._stream = stream
        self._bar = bar

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._bar.update(len(data))
        return data


@contextlib.contextmanager
def _scratch(folder: str) -> Iterator[str]:
    """A hidden folder beside the file that is to come, where there is room if anywhere."""
    try:
        hidden = tempfile.TemporaryDirectory(
            prefix=".tfod-export-", dir=folder, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise TfodError(f"{folder}: cannot write there ({error.strerror})") from None
    with hidden as path:
        yield path


def _pack(scratch: str, folder: str, name: str, *, compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    file = AtomicFile(folder, name)
    try:
        with writing(os.path.join(folder, name), "what was there before is unchanged"):
            stream: Any = file.stream
            with zipfile.ZipFile(stream, "w", method) as archive:
                for name_inside in sorted(os.listdir(scratch)):
                    path = os.path.join(scratch, name_inside)
                    archive.write(path, name_inside)
                    os.unlink(path)  # the disk need not hold all of it twice
        file.publish(name)
    except BaseException:
        file.discard()
        raise

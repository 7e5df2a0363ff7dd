"""From the server's export as "CVAT for images 1.1" to a zip of shards and their label map."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from tfod.detection_encoder import encode_detection
from tfod.errors import TfodError
from tfod.label_map import LabelMap
from tfod.safe_xml import MEMBER
from tfod.writer import AtomicFile, ShardSetWriter
from tfod.zip_directory import Entry

from tfod_validator.archive import Archive, ArchiveDamageError, ArchiveLimits
from tfod_validator.archive_contents import read_entry
from tfod_validator.bridge.objects import DetectionBuilder
from tfod_validator.bridge.progress import Advance, progress_bar
from tfod_validator.bridge.writing import writing
from tfod_validator.collector import Collector
from tfod_validator.cvat_xml import CvatImage, CvatMeta, CvatTrack, read_cvat_stream
from tfod_validator.finding import Severity
from tfod_validator.profile import Policy

FORMAT = "CVAT for images 1.1"
LABEL_MAP = "label_map.pbtxt"
_DEFAULT_SUBSET = "default"
_PICTURES = "images"
_LONGEST_PICTURE = 256 << 20
# A server's own export may be large: a task may have a million frames.
_LIMITS = ArchiveLimits(entries=2_000_000, total_bytes=4 << 40, directory_bytes=512 << 20)


@dataclass(frozen=True)
class ExportOptions:
    """What is to be written.

    Attributes:
        with_images: the pictures too.
        save_masks: a mask for each object.
        num_shards: deal each subset into so many shards.
        keep_empty: frames without an annotation too.
    """

    with_images: bool = False
    save_masks: bool = False
    num_shards: int = 1
    keep_empty: bool = True


@dataclass
class Exported:
    """What was written.

    Attributes:
        frames, objects: how many.
        dropped: frames without an annotation that were left out.
        without_picture: frames whose picture the server has not sent.
        losses: what did not come along, as a sentence.
        subsets: their names.
    """

    frames: int = 0
    objects: int = 0
    dropped: int = 0
    without_picture: int = 0
    losses: str = ""
    subsets: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """What is in the zip, in a few words."""
        text = f"{_plural(self.frames, 'frame')}, {_plural(self.objects, 'object')}"
        if len(self.subsets) > 1:
            text += f", subsets {', '.join(self.subsets)}"
        return text + (f"; {_plural(self.dropped, 'empty frame')} left out" if self.dropped else "")

    def notes(self) -> Iterator[str]:
        """What somebody has to know, as sentences."""
        if self.without_picture:
            yield f"{_plural(self.without_picture, 'frame')} without a picture from the server"
        if self.losses:
            yield self.losses


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def convert_export(source: str, out: str, options: ExportOptions) -> Exported:
    """Convert the server's zip.

    Frames stream through; the shards lie beside the zip until it is complete.

    Args:
        source: path of the zip of the server.
        out: path of the zip to write; complete or not at all.
        options: what is to be written.

    Raises:
        TfodError: the source is not what it should be, or the zip cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(out))
    with _ServerZip(source) as archive, _scratch(folder) as scratch:
        exported = Exported()
        label_map = _write_shards(archive, scratch, options, exported)
        if not exported.frames:
            raise TfodError(
                f"nothing was written to {out}: no frame "
                + ("is there" if options.keep_empty else "has an annotation")
            )
        _pack(scratch, label_map, folder, name, compress=not options.with_images)
    return exported


def _write_shards(
    archive: _ServerZip, scratch: str, options: ExportOptions, exported: Exported
) -> LabelMap:
    builder: DetectionBuilder | None = None
    meta: CvatMeta | None = None
    label_map = LabelMap()
    with contextlib.ExitStack() as stack, archive.document() as parts:
        writers: dict[str, ShardSetWriter] = {}
        for part in parts:
            if isinstance(part, CvatMeta):
                meta, label_map = part, LabelMap.from_names(part.labels)
                builder = DetectionBuilder(label_map, part.input_types, options.save_masks)
            elif isinstance(part, CvatImage):
                assert builder is not None and meta is not None  # the head comes first
                if not part.shapes and not part.tags and not options.keep_empty:
                    builder.losses.shapes.update(part.others)
                    exported.dropped += 1
                    continue
                encoded = archive.picture(part) if options.with_images else None
                exported.without_picture += options.with_images and encoded is None
                subset = part.subset or meta.subset or _DEFAULT_SUBSET
                if subset not in writers:
                    writers[subset] = stack.enter_context(
                        ShardSetWriter(scratch, subset, num_shards=options.num_shards)
                    )
                writers[subset].write(encode_detection(builder.build(part, encoded)))
                exported.frames += 1
                exported.objects += len(part.shapes)
        exported.subsets = list(writers)
    exported.losses = builder.losses.sentence() if builder is not None else ""
    return label_map


class _ServerZip:
    """The zip that the server has made, read under limits."""

    def __init__(self, path: str) -> None:
        # Whatever a rule has against the zip is an error here: there is nobody to weigh it.
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
            progress_bar("converting", entry.size, "B") as advance,
        ):
            yield read_cvat_stream(_Counted(stream, advance), f"the server's {MEMBER}")

    def picture(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's picture; None where the server has sent none."""
        path = posixpath.join(_PICTURES, image.subset, image.name)
        entry = self._entries.get(path) or self._entries.get(posixpath.splitext(path)[0])
        if entry is None:
            return None
        if entry.size > _LONGEST_PICTURE:
            raise TfodError(f"picture {image.name!r} is longer than {_LONGEST_PICTURE >> 20} MiB")
        with self._reading():
            return read_entry(self._archive, entry, _LONGEST_PICTURE)

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

    def __init__(self, stream: BinaryIO, advance: Advance) -> None:
        self._stream = stream
        self._advance = advance

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._advance(len(data))
        return data


@contextlib.contextmanager
def _scratch(folder: str) -> Iterator[str]:
    """A hidden folder beside the file that is to come, where there is room if anywhere."""
    try:
        path = tempfile.mkdtemp(prefix=".tfod-export-", dir=folder)
    except OSError as error:
        raise TfodError(f"{folder}: cannot write there ({error.strerror})") from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _pack(scratch: str, label_map: LabelMap, folder: str, name: str, *, compress: bool) -> None:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    file = AtomicFile(folder, name)
    try:
        with writing(os.path.join(folder, name), "what was there before is unchanged"):
            stream: Any = file.stream
            with zipfile.ZipFile(stream, "w", method) as archive:
                for shard in sorted(os.listdir(scratch)):
                    path = os.path.join(scratch, shard)
                    archive.write(path, shard)
                    os.unlink(path)  # the disk need not hold all of it twice
                archive.writestr(LABEL_MAP, label_map.to_text())
        file.publish(name)
    except BaseException:
        file.discard()
        raise

"""CVAT's own XML, "CVAT for images 1.1" and "CVAT for video 1.1", as it streams past; its images.

Exports of a task, a job and a project are read. Source: CVAT's
``dataset_manager/formats/cvat.py`` and ``bindings.py``, and its page on the XML format.
"""

from __future__ import annotations

import os
import posixpath
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.convert.cvat_xml.shapes import (
    AREA_KINDS,
    CvatShape,
    read_attributes,
    read_shape,
    read_whole,
)
from tfod.convert.documents import iterate, open_xml
from tfod.errors import TfodError
from tfod.tfrecord.image_names import safe_relative_path

_MOST_FRAMES = 1_000_000
_LONGEST_IMAGE = 256 << 20
_NO_SHAPES = ("tag", "attribute")


@dataclass(frozen=True)
class CvatMeta:
    """What the head of the document says.

    Attributes:
        labels: names of the classes; parts of skeletons are none.
        tasks: how many tasks the document holds: one, unless it is a project's.
        project: whether it is a project's.
        video: the frames come from a video, so that they are called ``frame_000000``.
        first: number that frame 0 of the task has in the document.
        step: how far the numbers of neighbouring frames are apart.
        numbers: of the frames, as in the document; empty when the head does not say.
        height, width: of the video's frames.
        subset: of the one task.
        input_types: of attributes, by class and name: ``checkbox``, ``number``, ``text``, …
    """

    labels: tuple[str, ...]
    tasks: int
    project: bool
    video: bool
    first: int
    step: int
    numbers: range
    height: int | None
    width: int | None
    subset: str = ""
    input_types: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def frame_name(self, number: int) -> str:
        """What CVAT calls a frame of a video."""
        return f"frame_{number:06d}"


@dataclass(frozen=True)
class CvatTag:
    """A class of the whole image."""

    label: str
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CvatImage:
    """One ``<image>`` of "CVAT for images".

    Attributes:
        number: of the frame, as the document has it.
        name, subset: '' where the document has none.
        height, width: in pixels.
        shapes: those that cover an area, in order.
        tags: classes of the whole image.
        others: how many shapes there are besides, by tag.
    """

    number: int
    name: str
    subset: str
    height: int | None
    width: int | None
    shapes: tuple[CvatShape, ...] = ()
    tags: tuple[CvatTag, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CvatTrack:
    """One ``<track>`` of "CVAT for video", of which nothing is read."""


def read_cvat_xml(path: str) -> Iterator[CvatMeta | CvatImage | CvatTrack]:
    """Read a document piece by piece, from a file or from ``annotations.xml`` in a zip.

    The head comes first.

    Raises:
        TfodError: it cannot be read, or is not CVAT's XML; with the line.
    """
    with open_xml(path) as (stream, name):
        yield from read_cvat_stream(stream, name)


def read_cvat_stream(stream: Any, name: str) -> Iterator[CvatMeta | CvatImage | CvatTrack]:
    """Read a document piece by piece from an open binary stream; the head comes first.

    Raises:
        TfodError: it is not CVAT's XML; with the line.
    """
    seen_meta = False
    images = 0
    for element in iterate(stream, name, "annotations", ("meta", "image", "track")):
        if element.tag == "meta":
            seen_meta = True
            yield _read_meta(element, name)
        elif not seen_meta:
            raise TfodError(f"{name} has no <meta> before <{element.tag}>; export it again")
        elif element.tag == "image":
            images += 1
            _require_fewer(images, "images", name)
            yield _read_image(element, name)
        else:
            yield CvatTrack()
    if not seen_meta:
        raise TfodError(f"{name} has no <meta>; export the task as CVAT for images 1.1")


def _require_fewer(count: int, what: str, name: str) -> None:
    """Raise TfodError for a document with more frames than are kept in memory."""
    if count > _MOST_FRAMES:
        raise TfodError(f"{name} has more than {_MOST_FRAMES:,} {what}; export the task in parts")


def _read_meta(meta: Any, name: str) -> CvatMeta:
    labels = [
        label.findtext("name") or ""
        for label in meta.iterfind(".//labels/label")
        if not label.findtext("parent")
    ]
    project = meta.find("project")
    tasks = meta.findall("project/tasks/task") if project is not None else []
    one = tasks[0] if len(tasks) == 1 else meta.find("task")
    if one is None:
        one = meta.find("job")
    size = meta.find(".//original_size")
    # CVAT numbers the frames of a project's tasks on, so that numbers say nothing of a task.
    first, step, numbers = (0, 1, range(0)) if one is None else _read_numbers(one, name)
    return CvatMeta(
        labels=tuple(labels),
        tasks=max(1, len(tasks)),
        project=project is not None,
        video=one is not None and one.findtext("mode") == "interpolation",
        first=first,
        step=step,
        numbers=numbers,
        height=None if size is None else read_whole(size.findtext("height"), size, name),
        width=None if size is None else read_whole(size.findtext("width"), size, name),
        subset="" if one is None else one.findtext("subset") or "",
        input_types=_input_types(meta),
    )


def _input_types(meta: Any) -> dict[tuple[str, str], str]:
    return {
        (label.findtext("name") or "", one.findtext("name") or ""): one.findtext("input_type") or ""
        for label in meta.iterfind(".//labels/label")
        for one in label.iterfind("attributes/attribute")
    }


def _read_numbers(task: Any, name: str) -> tuple[int, int, range]:
    """Number of the task's frame 0, the step, and the numbers of the frames written here."""

    def number(tag: str) -> int | None:
        return read_whole(task.findtext(tag), task, name)

    step = 1
    key, _, value = (task.findtext("frame_filter") or "").partition("=")
    if key.strip() == "step":
        step = max(1, read_whole(value, task, name) or 1)
    start, stop, size = number("start_frame"), number("stop_frame"), number("size")
    if start is None:
        start = 0
    if stop is None:
        stop = start + ((size or 0) - 1) * step
    numbers = range(start, stop + 1, step)
    _require_fewer(len(numbers), "frames", name)
    # A job's frames start in the middle of its task.
    starts = [
        read_whole(one.text, one, name) or 0 for one in task.iterfind("segments/segment/start")
    ]
    return start - min(starts, default=0) * step, step, numbers


def _read_image(image: Any, name: str) -> CvatImage:
    others = Counter(child.tag for child in image if child.tag not in (*AREA_KINDS, *_NO_SHAPES))
    return CvatImage(
        number=read_whole(image.get("id"), image, name) or 0,
        name=image.get("name") or "",
        subset=image.get("subset") or "",
        height=read_whole(image.get("height"), image, name),
        width=read_whole(image.get("width"), image, name),
        shapes=tuple(read_shape(one, name) for one in image.iterchildren(*AREA_KINDS)),
        tags=tuple(
            CvatTag(tag.get("label") or "", read_attributes(tag)) for tag in image.iterfind("tag")
        ),
        others=others,
    )


class ZipImages:
    """The images in the server's zip."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            self._entries[entry.filename] = entry
            self._entries.setdefault(posixpath.splitext(entry.filename)[0], entry)

    def read(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's image; None where the server has sent none."""
        path = posixpath.join("images", image.subset, image.name)
        entry = self._entries.get(path) or self._entries.get(posixpath.splitext(path)[0])
        if entry is None:
            return None
        if entry.file_size > _LONGEST_IMAGE:
            raise TfodError(f"image {image.name!r} is longer than {_LONGEST_IMAGE >> 20} MiB")
        return self._archive.read(entry)  # as many bytes as that, whatever is packed


class FolderImages:
    """The images in a folder, or in one of it that is called as their subset."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, image: CvatImage) -> bytes | None:
        """The bytes of a frame's image; None where there is none."""
        name = safe_relative_path(image.name)
        for inside in (safe_relative_path(image.subset), ""):
            path = os.path.join(self._folder, inside, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    return file.read()
        return None

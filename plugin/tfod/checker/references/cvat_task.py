"""What the CVAT task is that a shard is meant for: its labels and its frames."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tfod.detection.images.image import FORMAT_OF_EXTENSION, image_size
from tfod.errors import TfodError
from tfod.formats.cvat.document import CvatMeta, read_cvat_xml
from tfod.formats.cvat.shapes import BOX, CvatImage
from tfod.formats.reading.documents import read_json

_HEAD = 64 << 10


class Frame(NamedTuple):
    """A frame of the task; sizes in pixels, None where unknown.

    ``number`` counts from 0 within the task. It is None where the numbers of the task cannot be
    told, as in the export of a project.
    """

    name: str
    number: int | None
    height: int | None
    width: int | None


@dataclass(frozen=True)
class Task:
    """A CVAT task; None is what is not known.

    Attributes:
        labels: names of the classes that annotations may have.
        attributes: names of the attributes of each label, as far as they are known.
        frames: in their order.
        video: frames are called ``frame_000000``, and CVAT looks for digits in names.
        project: the frames are those of several tasks, where a name may come again.
        new_tasks: it is a project, in which the images of the shards become new tasks.
        without_frames: the file that should have named the frames, but does not.
        unsupported_shapes: shapes by kind that an import deletes, and that no shard can hold.
        outlines: masks, polygons and ellipses by kind, which an import without masks replaces.
        hidden: frames whose annotations no shard has: ``deleted`` and ``honeypots``.
        own: numbers of the frames that an import goes to, where these are a job's and not all.
        annotated: numbers of the frames whose annotations an import deletes, with or without a
            record for them.
        skips_others: images of no frame are left out, instead of refused.
    """

    labels: frozenset[str] | None = None
    attributes: Mapping[str, Collection[str]] = field(default_factory=dict)
    frames: tuple[Frame, ...] | None = None
    video: bool = False
    project: bool = False
    new_tasks: bool = False
    without_frames: str | None = None
    unsupported_shapes: Mapping[str, int] = field(default_factory=dict)
    outlines: Mapping[str, int] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)
    annotated: frozenset[int] = frozenset()
    own: frozenset[int] | None = None
    skips_others: bool = False

    def kept(self) -> Task:
        """The same where an import deletes nothing, or may delete what is there."""
        return replace(self, unsupported_shapes={}, outlines={}, hidden={}, annotated=frozenset())


def shown(keyframes: Iterable[tuple[int, bool]], frames: Sequence[int]) -> set[int]:
    """The frames on which a track is to be seen: from a keyframe on until one that is outside.

    Args:
        keyframes: the track's, in order: frame, and whether the track leaves there.
        frames: all there are, in order.
    """
    found: set[int] = set()
    behind = frames[-1] + 1 if frames else 0
    for (first, outside), (end, _) in itertools.pairwise([*keyframes, (behind, True)]):
        if not outside:
            found.update(frames[bisect_left(frames, first) : bisect_left(frames, end)])
    return found


def load_task(
    cvat_labels: str | None = None, cvat_xml: str | None = None, images: str | None = None
) -> Task:
    """Load what is known of a task, from any of three sources.

    Labels are those of ``cvat_labels``, or else of ``cvat_xml``; frames are those of ``cvat_xml``,
    or else the files in ``images``.

    Args:
        cvat_labels: path of the labels JSON that CVAT's raw editor shows.
        cvat_xml: path of an export as CVAT for images 1.1 or CVAT for video 1.1, or of its zip.
        images: folder of the task's images; subfolders count.

    Raises:
        TfodError: one of them cannot be read, or is something else.
    """
    task = _task_from_xml(cvat_xml) if cvat_xml is not None else Task()
    if cvat_labels is not None:
        attributes = _read_labels(cvat_labels)
        task = replace(task, labels=frozenset(attributes), attributes=attributes)
    if images is not None and task.frames is None:
        return Task(task.labels, task.attributes, tuple(_frames_on_disk(images)))
    return task


def _task_from_xml(path: str) -> Task:
    meta = None
    images: list[CvatImage] = []
    others: Counter[str] = Counter()
    outlines: Counter[str] = Counter()
    annotated = set()
    for part in read_cvat_xml(path):
        if isinstance(part, CvatMeta):
            meta = part
        elif isinstance(part, CvatImage):
            # A task may have many shapes, of which only this matters here.
            images.append(CvatImage(part.number, part.name, "", part.height, part.width))
            others.update(part.other_shapes)
            outlines.update(shape.kind for shape in part.shapes if shape.kind != BOX)
            if part.shapes or part.other_shapes or part.tags:
                annotated.add(part.number)
    if meta is None:
        raise TfodError(f"{path} has no <meta>; export the task as CVAT for images 1.1")
    one_task = meta.tasks == 1
    rows = [(one.name, one.number, one.height, one.width) for one in images]
    if not images and meta.is_video:
        size = meta.height, meta.width
        rows = [(meta.frame_name(number), number, *size) for number in meta.numbers]
    # CVAT numbers the frames of a project's tasks on.
    frames = tuple(
        Frame(name, (number - meta.first) // meta.step if one_task else None, height, width)
        for name, number, height, width in rows
    )
    return Task(
        labels=frozenset(meta.labels) if meta.labels else None,
        attributes={
            label: {name for own, name in meta.input_types if own == label} for label in meta.labels
        },
        frames=frames or None,
        video=meta.is_video,
        project=meta.is_project and not one_task,
        without_frames=None if frames else path,
        unsupported_shapes=others,
        outlines=outlines,
        annotated=frozenset((number - meta.first) // meta.step for number in annotated if one_task),
    )


def _read_labels(path: str) -> dict[str, Collection[str]]:
    """Read the names of the attributes of each label."""
    found: Any = read_json(path)
    if isinstance(found, dict):
        # The server's API says "results", a task's description "labels".
        found = found.get("labels", found.get("results"))
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in found
    ):
        raise TfodError(
            f'{path} is not a list of labels such as [{{"name": "cat", "attributes": []}}]; '
            "copy it from the Raw tab of the label editor in CVAT"
        )
    if not found:
        raise TfodError(f"{path} lists no label; copy it from the Raw tab of CVAT's label editor")
    return {
        label["name"]: {str(one.get("name")) for one in label.get("attributes") or ()}
        for label in found
    }


def _frames_on_disk(folder: str) -> Iterator[Frame]:
    if not Path(folder).is_dir():
        raise TfodError(f"{folder} is not a folder; name the folder of the task's images")
    names = sorted(
        os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
        for parent, _, files in os.walk(folder)
        for name in files
        if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION
    )
    if not names:
        raise TfodError(f"{folder} holds no images; name the folder of the task's images")
    for number, name in enumerate(names):
        height, width = _size_on_disk(os.path.join(folder, name)) or (None, None)
        yield Frame(name, number, height, width)


def _size_on_disk(path: str) -> tuple[int, int] | None:
    """Height and width; None where the file is no image, which is CVAT's concern, not ours."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
            # Long EXIF or colour profiles push the size behind the first bytes.
            return image_size(head) or (image_size(head + file.read()) if head else None)
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None

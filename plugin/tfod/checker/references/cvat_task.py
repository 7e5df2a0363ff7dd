"""The labels and frames of the CVAT task for which shards are intended."""

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

_HEAD_BYTES = 64 << 10


class Frame(NamedTuple):
    """A frame of the task: number from 0 and size in pixels, None if unknown."""

    name: str
    number: int | None
    height: int | None
    width: int | None


@dataclass(frozen=True)
class Task:
    """A CVAT task. Unknown values are None.

    Attributes:
        attributes: names of the known attributes of each label.
        video: whether frames have names like ``frame_000000``, so that CVAT looks for digits.
        project: whether the frames belong to several tasks, so that names can repeat.
        new_tasks: whether this is a project in which the images of the shards become new tasks.
        without_frames: file that should contain the frames but does not.
        unsupported_shapes: number of shapes by kind that an import deletes and shards cannot store.
        outlines: number of masks, polygons and ellipses by kind, which an import without masks
            replaces.
        hidden: number of frames whose annotations are not in shards: ``deleted``, ``honeypots``.
        job_frames: numbers of the frames of the job that is imported into; None for the whole task.
        annotated: numbers of the frames whose annotations an import deletes.
        skips_others: whether images that match no frame are skipped instead of rejected.
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
    job_frames: frozenset[int] | None = None
    skips_others: bool = False

    def without_deletions(self) -> Task:
        """Return the task without the annotations that an import would delete."""
        return replace(self, unsupported_shapes={}, outlines={}, hidden={}, annotated=frozenset())


def find_visible_frames(keyframes: Iterable[tuple[int, bool]], frames: Sequence[int]) -> set[int]:
    """Return the frames on which a track is visible.

    Keyframes are pairs of a frame and whether the track is outside from there on; both arguments
    are in order.
    """
    visible: set[int] = set()
    stop = frames[-1] + 1 if frames else 0
    for (first, outside), (end, _) in itertools.pairwise([*keyframes, (stop, True)]):
        if not outside:
            visible.update(frames[bisect_left(frames, first) : bisect_left(frames, end)])
    return visible


def load_task(
    cvat_labels: str | None = None, cvat_xml: str | None = None, images: str | None = None
) -> Task:
    """Load a task from any of three sources.

    Args:
        cvat_labels: path of a file with the labels JSON from the Raw tab of CVAT's label editor;
            takes precedence over the labels in ``cvat_xml``.
        cvat_xml: path of an export as CVAT for images 1.1 or CVAT for video 1.1, or of its zip.
        images: folder with the frames, if ``cvat_xml`` has none.
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
    unsupported: Counter[str] = Counter()
    outlines: Counter[str] = Counter()
    annotated = set()
    for part in read_cvat_xml(path):
        if isinstance(part, CvatMeta):
            meta = part
        elif isinstance(part, CvatImage):
            # A task can have many shapes, so only their counts are kept.
            images.append(CvatImage(part.number, part.name, "", part.height, part.width))
            unsupported.update(part.other_shapes)
            outlines.update(shape.kind for shape in part.shapes if shape.kind != BOX)
            if part.shapes or part.other_shapes or part.tags:
                annotated.add(part.number)
    if meta is None:
        raise TfodError(f"{path} has no <meta>; export the task as CVAT for images 1.1")
    is_one_task = meta.tasks == 1
    rows = [(image.name, image.number, image.height, image.width) for image in images]
    if not images and meta.is_video:
        size = meta.height, meta.width
        rows = [(meta.frame_name(number), number, *size) for number in meta.numbers]
    # In the export of a project, CVAT numbers the frames of all tasks consecutively.
    frames = tuple(
        Frame(name, (number - meta.first) // meta.step if is_one_task else None, height, width)
        for name, number, height, width in rows
    )
    return Task(
        labels=frozenset(meta.labels) if meta.labels else None,
        attributes={
            label: {name for parent, name in meta.input_types if parent == label}
            for label in meta.labels
        },
        frames=frames or None,
        video=meta.is_video,
        project=meta.is_project and not is_one_task,
        without_frames=None if frames else path,
        unsupported_shapes=unsupported,
        outlines=outlines,
        annotated=frozenset(
            (number - meta.first) // meta.step for number in annotated if is_one_task
        ),
    )


def _read_labels(path: str) -> dict[str, Collection[str]]:
    """Read the names of the attributes of each label."""
    labels: Any = read_json(path)
    if isinstance(labels, dict):
        # The key is "results" in the server's API, and "labels" in the description of a task.
        labels = labels.get("labels", labels.get("results"))
    if not isinstance(labels, list) or not all(
        isinstance(label, dict) and isinstance(label.get("name"), str) for label in labels
    ):
        raise TfodError(
            f'{path} is not a list of labels such as [{{"name": "cat", "attributes": []}}]; '
            "copy it from the Raw tab of the label editor in CVAT"
        )
    if not labels:
        raise TfodError(f"{path} lists no labels; copy it from the Raw tab of CVAT's label editor")
    return {
        label["name"]: {str(attribute.get("name")) for attribute in label.get("attributes") or ()}
        for label in labels
    }


def _frames_on_disk(folder: str) -> Iterator[Frame]:
    if not Path(folder).is_dir():
        raise TfodError(f"{folder} is not a folder; pass the folder of the task's images")
    names = sorted(
        os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
        for parent, _, files in os.walk(folder)
        for name in files
        if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION
    )
    if not names:
        raise TfodError(f"{folder} contains no images; pass the folder of the task's images")
    for number, name in enumerate(names):
        height, width = _size_on_disk(os.path.join(folder, name)) or (None, None)
        yield Frame(name, number, height, width)


def _size_on_disk(path: str) -> tuple[int, int] | None:
    """Return height and width, or None if the file is not an image, which only concerns CVAT."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
            # The size can follow a long EXIF block or colour profile.
            return image_size(head) or (image_size(head + file.read()) if head else None)
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None

"""Frames of CVAT as shards in a folder, with their label map and what there is to know of them.

The server's own format and the bridge both write here, so that their exports are the same.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfod.checker.finding import plural
from tfod.checker.rules.task import HONEYPOTS
from tfod.detection.encoder import encode_detection
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.cvat.frame_detections import TRACKS, DetectionBuilder
from tfod.formats.cvat.shapes import CvatImage, CvatShape
from tfod.formats.target_map import TargetMap
from tfod.tfrecord.image_names import split_extension
from tfod.tfrecord.writer import ShardSetWriter

LABEL_MAP = "label_map.pbtxt"
NOTES = "EXPORT_NOTES.txt"
"""A text beside the shards that says what of the task is not in them; written if there is any."""
DEFAULT_SUBSET = "default"
_VIDEO = "frames of videos, encoded anew"
_TURNED = "photos that CVAT turned by their EXIF orientation and encoded anew (JPEG of quality 100)"
_HIDDEN = "frames left out with their annotations"
_QUALITY_100 = b"\xff\xdb\0C\0" + b"\1" * 64
"""The table of quantization that CVAT writes turned photos with, without their EXIF."""
_HEAD = 1 << 16


@dataclass(frozen=True)
class ExportOptions:
    """What is to be written: images, a mask for each object, frames without an annotation.

    ``label_map`` is a file, or the name of one that tfod ships, whose ids the classes keep.
    """

    with_images: bool = False
    save_masks: bool = False
    keep_empty: bool = True
    label_map: str | None = None


@dataclass
class Exported:
    """What was written.

    Attributes:
        frames, objects: how many.
        dropped: frames without an annotation that were left out.
        without_image: frames whose image file is not there.
        subsets: their names.
        notes: what a user has to know, as sentences: what is not there, or in another form.
    """

    frames: int = 0
    objects: int = 0
    dropped: int = 0
    without_image: int = 0
    subsets: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """What is in the shards, in a few words."""
        text = f"{plural(self.frames, 'frame')}, {plural(self.objects, 'object')}"
        if len(self.subsets) > 1:
            text += f", subsets {', '.join(self.subsets)}"
        return text + (f"; {plural(self.dropped, 'empty frame')} left out" if self.dropped else "")


class FrameShards(contextlib.ExitStack):
    """Writes one frame after the other.

    Use as a context manager: leaving it by an exception discards what was written. Without a label
    map, classes get ids from 1 in the order of ``labels``. ``input_types`` are those of attributes,
    by class and name.
    """

    def __init__(
        self,
        folder: str,
        labels: Iterable[str],
        input_types: Mapping[tuple[str, str], str],
        options: ExportOptions,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._label_map, self._added = LabelMap.from_names(names := list(labels)), list[str]()
        if options.label_map is not None:
            target = TargetMap.like(folder, options.label_map)
            classes = Classes({}, target.base)
            classes.ids(None, names, [None] * len(names))
            self._label_map, _, self._added[:] = target.complete(classes, overwrite=False)
        self._builder = DetectionBuilder(self._label_map, input_types, options.save_masks)
        self._options = options
        self._writers: dict[str, ShardSetWriter] = {}
        self._exported = Exported()

    def add(self, image: CvatImage, read: Callable[[], bytes | None] | None = None) -> None:
        """Write a frame, its shapes in an order that does not hang on who asks CVAT for them.

        ``read`` reads its image file; None where those are not saved.

        Raises:
            TfodError: it cannot be written, with its name.
        """
        image = replace(image, shapes=tuple(sorted(image.shapes, key=_order)))
        try:
            one = self._builder.build(image)
            if not len(one.boxes) and not image.tags and not self._options.keep_empty:
                self._exported.dropped += 1
                return
            encoded = read() if read else None
            payload = encode_detection(self._builder.complete(one, encoded))
        except (OSError, ValueError, TypeError, ArithmeticError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise TfodError(f"frame {image.name!r} cannot be written ({reason})") from error
        self._writer(image.subset or DEFAULT_SUBSET).write(payload)
        self._exported.without_image += read is not None and not encoded
        if encoded:
            changed, head = self._builder.changed, encoded[:_HEAD]
            changed[_VIDEO][""] += not split_extension(image.name)[1]
            changed[_TURNED][""] += _QUALITY_100 in head and b"Exif\0" not in head
        self._exported.frames += 1
        self._exported.objects += len(one.boxes)

    def _writer(self, subset: str) -> ShardSetWriter:
        if subset not in self._writers:
            writer = ShardSetWriter(self._folder, subset)
            self._writers[subset] = self.enter_context(writer)
        return self._writers[subset]

    def finish(self, hidden: Mapping[str, int], tracks: int = 0) -> Exported:
        """Write the label map and the notes; without any frame, a shard of no record.

        ``hidden`` counts the frames that do not come, ``tracks`` those whose shapes
        did not tell that they are of one.
        """
        exported, builder = self._exported, self._builder
        builder.changed[TRACKS][""] += tracks
        builder.left_out[_HIDDEN + HONEYPOTS * ("honeypots" in hidden)].update(hidden)
        if not self._writers:
            self._writer(DEFAULT_SUBSET)
        exported.subsets = list(self._writers)
        left_out, changed = builder.left_out.sentences(), builder.changed.sentences()
        if exported.without_image:
            count = plural(exported.without_image, "frame")
            exported.notes.append(f"{count} without an image file from the server")
        exported.notes += [*self._added, *left_out, *changed]
        self._write(LABEL_MAP, self._label_map.to_text())
        if self._added or left_out or changed:
            self._write(NOTES, _notes([exported.summary(), *self._added], left_out, changed))
        return exported

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def _order(shape: CvatShape) -> tuple[Any, ...]:
    """Layers from below, and within one by what is drawn: the database has no order of its own."""
    own = shape.kind, shape.rotation, shape.points, shape.runs, shape.attributes
    return shape.z_order, shape.extent, shape.label, *own, shape.occluded, shape.group


def _notes(summary: Sequence[str], left_out: Sequence[str], changed: Sequence[str]) -> str:
    lines = [f"Exported from CVAT by tfod: {'; '.join(summary)}."]
    if left_out:
        lines += ["", "In CVAT, but not in these shards:"]
        lines += [f"- {one}" for one in left_out]
        lines += [
            "An import that replaces the annotations of the task deletes them there.",
            'Keep a copy as "CVAT for images 1.1".',
        ]
    if changed:
        lines += ["", "In these shards in another form:"]
        lines += [f"- {one}" for one in changed]
    return "\n".join(lines) + "\n"

"""Writer of CVAT's frames as shards, with their label map and notes, for both exporters."""

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
from tfod.errors import TfodError, excerpt
from tfod.formats.cvat.frame_detections import TRACKS, DetectionBuilder
from tfod.formats.cvat.shapes import CvatImage, CvatShape
from tfod.formats.dataset import DEFAULT_SUBSET
from tfod.formats.target_map import TargetMap
from tfod.sources.label_map_search import LABEL_MAP_FILE
from tfod.tfrecord.image_names import split_extension
from tfod.tfrecord.writer import ShardSetWriter

NOTES = "EXPORT_NOTES.txt"
"""A text file next to the shards about losses and changes; written only if there are any."""
_VIDEO = "frames of videos, encoded again"
_TURNED = "photos that CVAT rotated by their EXIF orientation and encoded again (JPEG quality 100)"
_HIDDEN = "frames left out with their annotations"
_QUALITY_100 = b"\xff\xdb\0C\0" + b"\1" * 64
"""The JPEG quantization table of photos that CVAT has rotated; they also lack EXIF data."""
_HEAD = 1 << 16  # bytes


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; ``label_map`` is a path or a name, and its class ids are kept."""

    with_images: bool = False
    save_masks: bool = False
    keep_empty: bool = True
    label_map: str | None = None


@dataclass
class ExportResult:
    """The result of an export.

    Attributes:
        dropped: number of frames without an annotation that were left out.
        without_image: number of frames without an image file.
        notes: sentences for the user about losses and changes.
    """

    frames: int = 0
    objects: int = 0
    dropped: int = 0
    without_image: int = 0
    subsets: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the numbers of frames and objects and the subsets as text."""
        text = f"{plural(self.frames, 'frame')}, {plural(self.objects, 'object')}"
        if len(self.subsets) > 1:
            text += f", subsets {', '.join(self.subsets)}"
        return text + (f"; {plural(self.dropped, 'empty frame')} left out" if self.dropped else "")


class FrameShards(contextlib.ExitStack):
    """Writes frames one by one, as a context manager; an exception discards all shards.

    Without a label map, classes get ids from 1 in the order of ``labels``. ``input_types`` maps
    class and attribute name to the type of the attribute.
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
            target = TargetMap.create(folder, options.label_map)
            classes = Classes({}, target.base)
            classes.ids(None, names, [None] * len(names))
            self._label_map, _, self._added[:] = target.complete(classes, overwrite=False)
        self._builder = DetectionBuilder(self._label_map, input_types, options.save_masks)
        self._options = options
        self._writers: dict[str, ShardSetWriter] = {}
        self._result = ExportResult()

    def add(self, image: CvatImage, read: Callable[[], bytes | None] | None = None) -> None:
        """Write a frame, or raise TfodError; ``read`` reads its image file, if images are saved."""
        image = replace(image, shapes=tuple(sorted(image.shapes, key=_sort_key)))
        try:
            detection = self._builder.build(image)
            if not len(detection.boxes) and not image.tags and not self._options.keep_empty:
                self._result.dropped += 1
                return
            encoded = read() if read else None
            payload = encode_detection(self._builder.complete(detection, encoded))
        except (OSError, ValueError, TypeError, ArithmeticError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise TfodError(f"frame {excerpt(image.name)} cannot be written ({reason})") from error
        self._get_writer(image.subset or DEFAULT_SUBSET).write(payload)
        self._result.without_image += read is not None and not encoded
        if encoded:
            changed, head = self._builder.changes, encoded[:_HEAD]
            changed[_VIDEO][""] += not split_extension(image.name)[1]
            changed[_TURNED][""] += _QUALITY_100 in head and b"Exif\0" not in head
        self._result.frames += 1
        self._result.objects += len(detection.boxes)

    def _get_writer(self, subset: str) -> ShardSetWriter:
        if subset not in self._writers:
            writer = ShardSetWriter(self._folder, subset)
            self._writers[subset] = self.enter_context(writer)
        return self._writers[subset]

    def finish(self, hidden: Mapping[str, int], tracks: int = 0) -> ExportResult:
        """Write the label map and the notes, and an empty shard if there are no frames.

        ``hidden`` counts frames that are left out, ``tracks`` tracks whose shapes had no track id.
        """
        result, builder = self._result, self._builder
        builder.changes[TRACKS][""] += tracks
        explanation = HONEYPOTS if "honeypots" in hidden else ""
        builder.losses[_HIDDEN + explanation].update(hidden)
        if not self._writers:
            self._get_writer(DEFAULT_SUBSET)
        result.subsets = list(self._writers)
        left_out, changed = builder.losses.sentences(), builder.changes.sentences()
        if result.without_image:
            count = plural(result.without_image, "frame")
            result.notes.append(f"{count} without an image file from the server")
        result.notes += [*self._added, *left_out, *changed]
        self._write(LABEL_MAP_FILE, self._label_map.to_text())
        if self._added or left_out or changed:
            self._write(NOTES, _format_notes([result.summary(), *self._added], left_out, changed))
        return result

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def _sort_key(shape: CvatShape) -> tuple[Any, ...]:
    # The order in CVAT's database is arbitrary, so the shapes of a layer are ordered by content.
    drawing = shape.kind, shape.rotation, shape.points, shape.runs, shape.attributes
    return shape.z_order, shape.extent, shape.label, *drawing, shape.occluded, shape.group


def _format_notes(summary: Sequence[str], left_out: Sequence[str], changed: Sequence[str]) -> str:
    lines = [f"Exported from CVAT by tfod: {'; '.join(summary)}."]
    if left_out:
        lines += ["", "In CVAT, but not in these shards:"]
        lines += [f"- {sentence}" for sentence in left_out]
        lines += [
            "An import that replaces the annotations of the task deletes them there.",
            'Keep a copy as "CVAT for images 1.1".',
        ]
    if changed:
        lines += ["", "Changed in these shards:"]
        lines += [f"- {sentence}" for sentence in changed]
    return "\n".join(lines) + "\n"

"""Options of a conversion, and the problems that it counts or stops at."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from tfod.detection.box_geometry import LOOKS_LIKE_PIXELS
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.losses import LossCounter
from tfod.errors import TfodError, excerpt
from tfod.formats.target_map import TargetMap

_MAX_LOCATIONS = 10


class OddBoxes(enum.Enum):
    """Treatment of a box that is inverted, flat, not finite, or extends beyond its image.

    A box that exceeds an edge only by rounding is always clipped, without a note.

    Attributes:
        REFUSE: write nothing, and report the boxes.
        CLIP: clip boxes that reach outside the image; treat others as REFUSE does.
        DROP: leave the object out.
        KEEP: for comparisons: keep boxes that are flat or outside; treat others as REFUSE does.
    """

    REFUSE = "refuse"
    CLIP = "clip"
    DROP = "drop"
    KEEP = "keep"


class OddMasks(enum.Enum):
    """Treatment of a mask whose size differs from its image.

    Attributes:
        REFUSE: write nothing, and report the masks.
        SCALE: scale the mask to the size of the image, by nearest neighbour.
        DROP: leave the mask out and keep the box.
    """

    REFUSE = "refuse"
    SCALE = "scale"
    DROP = "drop"


class CompleteShard(NamedTuple):
    """A complete shard: its final path, its temporary path, and the name of its source."""

    path: str
    temporary_path: str
    source: str


Verify: TypeAlias = "Callable[[Sequence[CompleteShard], str, str], None]"
"""A function of all shards, their label map's text and their layout; may raise to refuse them."""


@dataclass(frozen=True)
class Options:
    """The options of a conversion. A format ignores those that do not apply to it.

    Attributes:
        label_map: path of a label map, or name of a shipped label map; None to choose.
        images: folder to read images from; when converting shards, the folder to write them to.
        source: folder that the user named. Its label map is used if the dataset is in a subfolder.
        unpacked_folder: folder of the unpacked source. Images outside it and links are not read.
        no_images: whether images are omitted; sizes are then taken from the annotations.
        subset: name of the only subset to read; for a dataset without subsets, its name.
        masks: whether outlines become masks of shards, and objects become outlines in YOLO.
        keypoints: whether objects become poses in YOLO if they have masks, too.
        ignore_difficult: whether objects that VOC marks as difficult are left out.
        odd_boxes, odd_masks: treatment of boxes and masks that do not fit their image.
        upright: whether images with an EXIF orientation are stored rotated. Otherwise their bytes
            are kept, and the boxes are moved to the stored pixels.
        num_shards: number of shards per subset, at most the number of images.
        largest_source_id: limit; source ids that are not a number up to it are replaced by numbers.
            If None, only images without a source id get a number.
        verify: function to call with the complete shards before they get their final names.
        field_mapping: feature keys of the shards to read; None to choose by layout.
        boxes_in_pixels: whether boxes in the shards are in pixels instead of normalized.
        overwrite: whether existing files may be replaced.
        dry_run: whether everything is discarded at the end instead of published.
        target_map: the label map in the output folder, if any.
    """

    label_map: str | None = None
    images: str | None = None
    source: str | None = None
    unpacked_folder: str | None = None
    no_images: bool = False
    subset: str | None = None
    masks: bool = False
    keypoints: bool = False
    ignore_difficult: bool = False
    odd_boxes: OddBoxes = OddBoxes.REFUSE
    odd_masks: OddMasks = OddMasks.REFUSE
    upright: bool = True
    num_shards: int = 1
    largest_source_id: int | None = None
    verify: Verify | None = None
    field_mapping: FieldMapping | None = None
    boxes_in_pixels: bool = False
    overwrite: bool = False
    dry_run: bool = False
    target_map: TargetMap | None = None


class Refusal(NamedTuple):
    """A problem that prevents writing. It is reported after all its occurrences are counted.

    Attributes:
        problem: plural without a number, such as "images that are missing".
        fix: advice for the user.
    """

    problem: str
    fix: str


class ConversionProblems(LossCounter):
    """Counts the problems of a conversion, including all data that is left out.

    Attributes:
        annotated: number of objects in the annotations.
        boxes, normalized: numbers of boxes in pixels, and of those that look normalized.
        in_pixels: number of objects whose boxes should be normalized, but look like pixels.
    """

    def __init__(self, options: Options | None = None) -> None:
        super().__init__()
        is_compared = options is not None and options.odd_boxes is OddBoxes.KEEP
        self._consequence = "not compared" if is_compared else "nothing is written"
        self.clear()

    def clear(self) -> None:
        """Forget all problems, because the dataset is read again."""
        super().clear()
        self._first.clear()
        self.annotated = 0
        self.boxes = self.normalized = self.in_pixels = 0
        self._refusals = Counter[Refusal]()
        self._locations = defaultdict[Refusal, list[str]](list)

    def add(self, problem: str | Refusal, location: str) -> None:
        """Count a problem.

        Args:
            problem: plural without a number, such as "objects without <bndbox>, left out".
            location: file and, if known, line.
        """
        if isinstance(problem, str):
            self.note(problem, location)
            return
        self._refusals[problem] += 1
        if len(self._locations[problem]) < _MAX_LOCATIONS:
            self._locations[problem].append(location)

    def count_boxes(self, corners: np.ndarray) -> None:
        """Count boxes that should be in pixels, and those that look normalized.

        Normalized boxes are within 0 to 1, or slightly beyond it with fractions.
        """
        sides = np.abs(corners)
        self.boxes += len(corners)
        if (sides.max(axis=1, initial=0) > LOOKS_LIKE_PIXELS).all():
            return  # the usual case
        has_fractions = (sides % 1 > 0).any(1)
        is_small = (sides <= 1).all(1) | (sides <= LOOKS_LIKE_PIXELS).all(1) & has_fractions
        self.normalized += int((is_small & sides.any(1)).sum())

    def trim(self, name: str, location: str) -> str:
        """Remove spaces around a class name, and count it if it had any."""
        if (trimmed := name.strip()) != name:
            problem = "class names with leading or trailing spaces, removed"
            self.add(problem, f"{location}: {excerpt(name)}")
        return trimmed

    def raise_refusals(self, images: int, objects: int) -> None:
        """Raise TfodError if anything was refused, or if no image or object remains."""
        if 2 * self.normalized >= max(self.boxes, 1):
            raise TfodError(
                f"{self._consequence}: {self.normalized} of {self.boxes} boxes are within 0 to 1, "
                "so they are normalized instead of in pixels; multiply them by the image size"
            )
        if 2 * self.in_pixels > self.annotated:
            raise TfodError(
                f"{self._consequence}: {self.in_pixels} of {self.annotated} boxes look like "
                "pixels; normalize them with --boxes pixels"
            )
        refused = []
        for refusal, count in self._refusals.items():
            locations = self._locations[refusal]
            more = f"; {count - len(locations)} more" if count > len(locations) else ""
            listed = "; ".join(locations) + more
            refused.append(f"{refusal.problem}: {count} ({listed}); {refusal.fix}")
        if refused:
            raise TfodError(f"{self._consequence}: " + ". ".join(refused))
        reason = ""
        if self.annotated and not objects:
            reason = f"all {self.annotated} annotated objects were left out"
        elif not images:
            reason = "no image remains" if self else "the annotations contain no image"
        if reason:
            raise TfodError("; ".join([f"{self._consequence}: {reason}", *self.sentences()]))

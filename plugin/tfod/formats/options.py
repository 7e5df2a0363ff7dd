"""What may be asked of a conversion, and what does not fit: counted, or a reason to stop."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from tfod.detection.box_geometry import LOOKS_LIKE_PIXELS
from tfod.detection.features.field_mapping import FieldMapping
from tfod.errors import TfodError
from tfod.formats.target_map import TargetMap

_MOST_PLACES = 10


class OddBoxes(enum.Enum):
    """What becomes of a box that is inverted, flat, not finite, or reaches outside its image.

    Whatever is chosen, a box that passes an edge by rounding alone is clipped without a word.

    Attributes:
        REFUSE: nothing is written, and the boxes are named.
        CLIP: what reaches outside is clipped to the image; what then is no box is left out.
        DROP: the object is left out.
        KEEP: what is flat or reaches outside stays as it is, to be compared; the rest as REFUSE.
    """

    REFUSE = "refuse"
    CLIP = "clip"
    DROP = "drop"
    KEEP = "keep"


class OddMasks(enum.Enum):
    """What becomes of a mask of another size than its image.

    Attributes:
        REFUSE: nothing is written, and the masks are named.
        SCALE: it gets the size of the image, each pixel that of the nearest one.
        DROP: the object keeps its box alone.
    """

    REFUSE = "refuse"
    SCALE = "scale"
    DROP = "drop"


class CompleteShard(NamedTuple):
    """A complete shard: the path that it will have, where it is, what it is made from."""

    path: str
    temporary_path: str
    source: str


Verify: TypeAlias = "Callable[[Sequence[CompleteShard], str, str], None]"
"""Takes all shards, their label map's text and their layout; if it raises, nothing is published."""


@dataclass(frozen=True)
class Options:
    """What may be asked of a conversion; a format takes what means something to it.

    Attributes:
        label_map: a file, or a name that tfod ships, in place of the classes that are found.
        images: the folder of the images: where they are, or from shards where to write them.
        source: the folder that was named, whose label map counts if the format begins further down.
        unpacked: the folder that the source was unpacked into: images outside it, and symbolic
            links, are not read.
        no_images: write none; sizes are those that the annotations give.
        subset: the only one that is read; of a dataset without subsets the name of its one.
        masks: whether outlines become masks of shards.
        ignore_difficult: leave out objects that VOC calls difficult.
        odd_boxes, odd_masks: what becomes of what does not fit its image.
        upright: whether images that EXIF turns are stored as it shows them; else their bytes stay,
            and the boxes are put on the stored pixels.
        num_shards: files of each subset, where shards are written; never more than images.
        largest_source_id: source ids that are no number up to this one are replaced by numbers;
            None to number only images that have none.
        verify: is given the complete shards before they have their names.
        field_mapping: the keys of the records of shards; None for those of the layout that fits
            best.
        boxes_in_pixels: whether the corners of boxes in shards are pixels, which are divided by the
            size of the image.
        overwrite: whether files of the same names may be replaced.
        target_map: the label map in the folder that is written to, if it has one.
    """

    label_map: str | None = None
    images: str | None = None
    source: str | None = None
    unpacked: str | None = None
    no_images: bool = False
    subset: str | None = None
    masks: bool = False
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
    target_map: TargetMap | None = None


class Refusal(NamedTuple):
    """A reason for which nothing is written, reported when all that it is true of is known.

    Attributes:
        what: a plural without its number, such as "images that are missing".
        fix: what to do about it.
    """

    what: str
    fix: str


class ConversionProblems:
    """What does not fit, counted by sentence; nothing is left out without one.

    Attributes:
        annotated: how many objects the annotations have.
        boxes, normalized: how many boxes should be in pixels, and how many look normalized.
    """

    def __init__(self, options: Options | None = None) -> None:
        is_compared = options is not None and options.odd_boxes is OddBoxes.KEEP
        self._end = "not compared" if is_compared else "nothing is written"
        self.annotated = 0
        self.boxes = self.normalized = 0
        self._counts = Counter[str | Refusal]()
        self._places = defaultdict[str | Refusal, list[str]](list)

    def add(self, what: str | Refusal, where: str) -> None:
        """Count one more of something, at a file and, where there is one, a line.

        ``what`` is a plural without its number, such as "objects without <bndbox>, left out"; with
        a refusal nothing may be written.
        """
        self._counts[what] += 1
        if len(self._places[what]) < _MOST_PLACES:
            self._places[what].append(where)

    def count_boxes(self, corners: np.ndarray) -> None:
        """Count boxes that should be in pixels, and those that pixels hardly are.

        These lie within 0 to 1, or a little beyond it with fractions, which pixels rarely have.
        """
        sides = np.abs(corners)
        self.boxes += len(corners)
        has_fractions = (sides % 1 > 0).any(1)
        is_small = (sides <= 1).all(1) | (sides <= LOOKS_LIKE_PIXELS).all(1) & has_fractions
        self.normalized += int((is_small & sides.any(1)).sum())

    def trim(self, name: str, where: str) -> str:
        """A class name without blanks at its ends, which are counted."""
        if (plain := name.strip()) != name:
            self.add("class names with blanks at their ends, read without", f"{where}: {name!r}")
        return plain

    def raise_refusals(self, images: int, objects: int) -> None:
        """End here if anything was refused, or nothing is left of what the annotations have.

        Raises:
            TfodError: with how many there are, the first places of each, and what to do.
        """
        if 2 * self.normalized >= max(self.boxes, 1):
            raise TfodError(
                f"{self._end}: {self.normalized} of {self.boxes} boxes lie within 0 to 1: they are "
                "normalized, not pixels; multiply them by the image's size"
            )
        refused = []
        for why, count in self._counts.items():
            if isinstance(why, Refusal):
                places = self._places[why]
                more = f"; {count - len(places)} more" if count > len(places) else ""
                refused.append(f"{why.what}: {count} ({'; '.join(places)}{more}); {why.fix}")
        if refused:
            raise TfodError(f"{self._end}: " + ". ".join(refused))
        missing = ""
        if self.annotated and not objects:
            missing = f"none of {self.annotated} annotated objects is left"
        elif not images:
            missing = "no image is left" if self._counts else "it names no image"
        if missing:
            raise TfodError("; ".join([f"{self._end}: {missing}", *self.sentences()]))

    def sentences(self) -> list[str]:
        """What was counted, in the order in which it was met."""
        return [
            f"{count} {what} (the first: {self._places[what][0]})"
            for what, count in self._counts.items()
            if isinstance(what, str)
        ]

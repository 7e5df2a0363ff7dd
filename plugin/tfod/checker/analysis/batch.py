"""A batch of records as the rules look at it: columns, boxes, images, names and classes.

What recurs from record to record (a class text with its id, a kind of image with its declared size,
the shape of a name) is offered once for all records that share it, so that a rule that finds
nothing wrong costs next to nothing.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from tfod.checker.analysis.box_arrays import Boxes
from tfod.checker.analysis.encoded_images import EncodedImages, ImageFacts, needs_a_turn
from tfod.checker.finding import Finding, JsonValue, Place
from tfod.checker.profiles.profile import Profile
from tfod.detection import keys
from tfod.detection.detections import Detections, read_image_labels
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.problems import DetectionProblem
from tfod.example.wire import Kind
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.framing import HEADER_BYTES

_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
# Letters of any script, digits and a few signs; no dot begins a part; an extension ends it.
_PLAIN_NAME = re.compile(r"\w[\w ()/-]*(?:(?<!/)\.[\w ()/-]+)*(?<!/)\.[A-Za-z][A-Za-z0-9]{0,4}")

T = TypeVar("T")
Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of an object."""


class ClassUse(NamedTuple):
    """What an object says about its class: a text, an id, both or nothing.

    None is a record without that list; ``label_map`` is None where no map is known.
    """

    text: str | None
    label: int | None
    label_map: LabelMap | None


class Batch:
    """A batch of records, as columns.

    Args:
        detections: the records.
        images: theirs; the records need no longer have the bytes.
        profile: what is expected of them.
        label_map: that goes with their shard, if there is one.
        damages: of the framing, found before these records and behind those of the batch before.

    Attributes:
        mapping, expected, own: the profile's.
        live: which records are looked at: they have bytes, and can be read; bool.
        box_counts: how many boxes each record has, 0 where they cannot be read; int64.
        max_detailed: number of findings per rule that are described in full; for further findings,
            only the shard is recorded.
    """

    max_detailed = 1000

    def __init__(
        self,
        detections: Detections,
        images: EncodedImages,
        profile: Profile,
        label_map: LabelMap | None = None,
        damages: Sequence[Damage] = (),
    ) -> None:
        self.detections = detections
        self.examples = detections.examples
        self.records = self.examples.records
        self.images = images
        self.mapping, self.expected = profile.field_mapping, profile.expected
        self.own = profile.key_for
        self.label_map = label_map
        self.damages = damages
        self.live = self.records.lengths > 0
        self.live[list(self.examples.unreadable)] = False
        self.box_counts = np.diff(detections.box_splits)

    def __len__(self) -> int:
        return len(self.records)

    def skip(self, rows: Sequence[int]) -> None:
        """Leave records out, before any rule looks at the batch."""
        self.live[list(rows)] = False
        self.box_counts[list(rows)] = 0

    # Findings

    def place(self, row: int) -> Place:
        """Where findings about a record are."""
        records = self.records
        name = self.detections.filenames[row] if self.live[row] else None
        offset = records.base + int(records.starts[row]) - HEADER_BYTES
        return Place(records.shard, records.first + row, offset, name or None)

    def finding(
        self,
        row: int,
        message: str,
        key: str | None = None,
        value: JsonValue = None,
        fix: str = "",
        case: str = "",
    ) -> Finding:
        """A finding about a record, or about the feature of this key in it."""
        return Finding(message, key, value, fix, case, *self.place(row))

    def problems(self, code: str) -> Iterator[Finding]:
        """Yield the problems of the detections that the rule of this code reports."""

        def make(one: DetectionProblem) -> Finding:
            value: JsonValue = {**one.value} if isinstance(one.value, Mapping) else one.value
            return self.finding(one.row, one.message, one.key, value, case=one.case)

        problems = [one for one in self.detections.problems if one.code == code]
        for case in dict.fromkeys(one.case for one in problems):
            own = [one for one in problems if one.case == case and self.live[one.row]]
            yield from self.findings(own, make, case)

    def findings(
        self, rows: Sequence[T], make: Callable[[T], Finding], case: str = ""
    ) -> Iterator[Finding]:
        """A finding for each row, box or problem, all of one case.

        ``make`` is asked for those that may be listed; of the others only the shard is said.
        """
        yield from map(make, rows[: self.max_detailed])
        if len(rows) > self.max_detailed:
            counted = Finding(message="", shard=self.records.shard, case=case)
            yield from itertools.repeat(counted, len(rows) - self.max_detailed)

    def box_findings(
        self, mask: np.ndarray, what: Callable[[int, list[float]], str]
    ) -> Iterator[Finding]:
        """Findings about boxes.

        Args:
            mask: which, bool of shape (boxes,).
            what: from a box and its corners to what is wrong with it.
        """

        def make(box: int) -> Finding:
            row, number, corners = self.boxes.at(box)
            return self.box_finding(row, number, corners, what(box, corners))

        return self.findings(np.flatnonzero(mask).tolist(), make)

    def box_finding(self, row: int, number: int, corners: list[float], what: str) -> Finding:
        """A finding about one box of a record."""
        rounded: list[JsonValue] = [float(f"{one:.6g}") for one in corners]
        value: JsonValue = {"object": number, "box": rounded}
        return self.finding(row, f"box {number} {what}", self.own(BOX_KEY), value)

    # Names

    @cached_property
    def has_plain_names(self) -> bool:
        """Whether every record has a plain file name, of which most rules have nothing to say."""
        names = self.detections.filenames
        # Most names of a shard differ by their numbers alone.
        text = "\0".join(filter(None, names)).encode().translate(_DIGITS).decode()
        shapes = text.split("\0")
        return len(shapes) == len(names) and all(map(_PLAIN_NAME.fullmatch, set(shapes)))

    def names_where(self, is_wrong: Callable[[str], object]) -> Iterator[tuple[int, str]]:
        """The records with a file name that is wrong as no plain one is, and the name."""
        if self.mapping.filename is not None and not self.has_plain_names:
            names = self.detections.filenames
            for row in np.flatnonzero(self.live).tolist():
                if (name := names[row]) and is_wrong(name):
                    yield row, name

    def without_value(self, key: str, names: Sequence[str | None]) -> list[int]:
        """The records that lack a name, but for those of which EXA004 or EXA005 says it.

        Args:
            key: the name's feature key.
            names: of all records.
        """
        if None not in names:
            return []
        columns = [one for one in self.examples.find_columns(key) if one.kind]
        return [
            row
            for row in np.flatnonzero(self.live).tolist()
            if names[row] is None and not any(one.has(row) for one in columns)
        ]

    def requires(self, key: str) -> bool:
        """Whether EXA003 reports that a feature is missing."""
        return key in self.expected and self.expected[key].required

    # Images

    @cached_property
    def image_rows(self) -> np.ndarray:
        """The records whose encoded image is checked, and not reported as missing by EXA003."""
        key = self.mapping.encoded
        if key is None:
            return np.empty(0, np.int64)
        checked = self.live.copy()
        spec = self.expected.get(key)
        if spec is not None and spec.required:
            checked &= self.examples.column(key, Kind.BYTES).present
        for column in self.examples.find_columns(key):
            if column.kind not in (None, Kind.BYTES):
                checked &= ~column.present
        return np.flatnonzero(checked)

    @cached_property
    def image_kinds(self) -> Sequence[ImageFacts]:
        """What the records of :attr:`image_rows` have for an image, each kind once."""
        if self.images.by_row:
            return list(self.rows_by_image)
        found = self.detections
        columns = (found.formats, found.heights, found.widths)
        return [ImageFacts(0, None, "", *one) for one in set(zip(*columns, strict=True))]

    @cached_property
    def rows_by_image(self) -> Mapping[ImageFacts, list[int]]:
        """The records of :attr:`image_rows` that have the same facts."""
        found, images = self.detections, self.images.by_row
        columns = (found.headers, found.formats, found.heights, found.widths)
        stated = list(zip(*columns, strict=True))
        kinds: dict[ImageFacts, list[int]] = {}
        for row in self.image_rows.tolist():
            image, (header, *said) = images.get(row), stated[row]
            if image is None or header is None:
                length, looks = (image.length, image.looks) if image else (0, "")
                facts = ImageFacts(length, None, looks, *said)
            else:
                turn = header.orientation >= 5 and needs_a_turn(self.boxes.of(row), header)
                facts = ImageFacts(-1, header, "", *said)._replace(boxes_need_a_turn=turn)
            kinds.setdefault(facts, []).append(row)
        return kinds

    # Objects

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes that can be read."""
        found, counts = self.detections, self.box_counts
        held, corners = np.diff(found.box_splits), found.boxes.astype(np.float64)
        if (held != counts).any():  # of records that are skipped
            corners = corners[np.repeat(counts > 0, held)]
        sizes = np.where(found.sizes > 0, found.sizes, np.nan)
        return Boxes(corners, counts, sizes[:, 0], sizes[:, 1], found.has_pixel_boxes)

    def classes_of(self, row: int) -> Sequence[object]:
        """What names the classes of a record's boxes: texts, or else ids."""
        found = self.detections
        texts = found.column(keys.CLASS_TEXT, Kind.BYTES).row_splits[row : row + 2].tolist()
        labels: list[int] = found.column(keys.CLASS_LABEL, Kind.INT64)[row].tolist()
        return found.class_text_values[texts[0] : texts[1]] or labels

    @cached_property
    def uses(self) -> tuple[np.ndarray, list[Use]]:
        """What names the classes of the boxes; as :meth:`DetectionColumns.class_uses`."""
        return self.detections.class_uses(self.box_counts)

    @cached_property
    def class_uses(self) -> Sequence[ClassUse]:
        """The same, each pair of text and id once, with the label map."""
        return [ClassUse(*use, self.label_map) for use in self.uses[1]]

    @cached_property
    def rows_by_class(self) -> Mapping[Use, list[int]]:
        """The record of each box whose class is named so."""
        codes, uses = self.uses
        rows = self.boxes.rows[np.argsort(codes, kind="stable")]
        ends = np.cumsum(np.bincount(codes, minlength=len(uses))).tolist()
        parts = zip([0, *ends], ends, strict=False)
        return {
            use: rows[part[0] : part[1]].tolist() for use, part in zip(uses, parts, strict=True)
        }


class ImageRow(NamedTuple):
    """A record as a CVAT task sees it: its name ('' for none), size in pixels, number of boxes.

    ``tags`` are class text and id of the classes of the whole image, but for those that are absent.
    """

    place: Place
    filename: str
    height: int | None
    width: int | None
    boxes: int
    tags: Sequence[Use] = ()


def rows_of(batch: Batch) -> Iterator[ImageRow]:
    """The records of a batch as the CVAT task sees them."""
    names, sizes = batch.detections.filenames, batch.detections.sizes
    for row in np.flatnonzero(batch.live).tolist():
        height, width = (one if 0 < one < 1 << 31 else None for one in sizes[row].tolist())
        boxes = int(batch.box_counts[row])
        tags = _tags_of(batch.detections, row)
        yield ImageRow(batch.place(row), names[row] or "", height, width, boxes, tags)


def attributes_of(batch: Batch) -> Counter[tuple[str, str]]:
    """Count the values of attributes of objects and images, by class and name of the attribute."""
    counts: Counter[tuple[str, str]] = Counter()
    found = batch.detections
    for row in np.flatnonzero(batch.live).tolist() if found.other_keys else ():
        if found.error(row) is None:
            one = found[row]
            nothing = [None] * len(one.boxes)
            uses = list(zip(one.class_text or nothing, one.class_label or nothing, strict=True))
            for name, values in one.attributes.items():
                pairs = zip(uses, values, strict=True)
                kept = [use for use, value in pairs if value is not None]
                counts.update((class_name(use, batch.label_map), name) for use in kept)
            for label in one.image_labels:
                text = class_name((label.text, label.label), batch.label_map)
                counts.update((text, name) for name in label.attributes)
    return counts


def class_name(use: Use, label_map: LabelMap | None) -> str:
    """Return the text of a class, or else the label map's name for its id, or ``#id``, or ''."""
    text, label = use
    item = label_map.find_id(label) if label_map and label else None
    return text or (item.class_name if item else "" if label is None else f"#{label}")


def _tags_of(found: Detections, row: int) -> Sequence[Use]:
    if {keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL} <= found.absent_keys or found.error(row):
        return ()
    there = read_image_labels(found, row)
    return [(one.text, one.label) for one in there if one.confidence is None or one.confidence > 0]

"""A batch of records, as the rules see it: columns, boxes, images, names and classes.

Values that are equal in many records (a class text with its id, an image header with its declared
size, the pattern of a name) are checked only once.
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
from tfod.checker.analysis.encoded_images import (
    EncodedImages,
    ImageFacts,
    extend_far,
    needs_rotation,
)
from tfod.checker.finding import Finding, JsonValue, Location
from tfod.checker.profiles.profile import Profile
from tfod.detection import keys
from tfod.detection.detections import Detections, read_image_labels
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.problems import DetectionProblem
from tfod.example.wire import Kind
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.framing import HEADER_BYTES

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
# Letters of any script, digits and a few signs, without a leading dot, and with an extension.
_PLAIN_NAME = re.compile(r"\w[\w ()/-]*(?:(?<!/)\.[\w ()/-]+)*(?<!/)\.[A-Za-z][A-Za-z0-9]{0,4}")

T = TypeVar("T")
Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of an object."""


class ClassUse(NamedTuple):
    """The class of an object, and the label map of its shard; each part can be missing."""

    text: str | None
    label: int | None
    label_map: LabelMap | None


class Batch:
    """A batch of records, as columns.

    Args:
        detections: records, with or without the bytes of their images.
        label_map: label map of the shard; None if it has no label map.
        damages: damage of the framing before these records and after the previous batch.

    Attributes:
        mapping, expected, key_for: fields of the profile.
        live: whether each record is checked: it is not empty, and can be parsed; bool.
        box_counts: number of boxes of each record, 0 if they cannot be read; intp.
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
        self.key_for = profile.key_for
        self.label_map = label_map
        self.damages = damages
        self.live = self.records.lengths > 0
        self.live[list(self.examples.unreadable)] = False
        self.box_counts = np.diff(detections.box_splits)

    def __len__(self) -> int:
        return len(self.records)

    def skip(self, rows: Sequence[int]) -> None:
        """Exclude records, before any rule checks the batch."""
        self.live[list(rows)] = False
        self.box_counts[list(rows)] = 0

    # Findings

    def locate(self, row: int) -> Location:
        """Return the location of findings about a record."""
        records = self.records
        name = self.detections.filenames[row] if self.live[row] else None
        offset = records.base + int(records.starts[row]) - HEADER_BYTES
        return Location(records.shard, records.first + row, offset, name or None)

    def finding(
        self,
        row: int,
        message: str,
        key: str | None = None,
        value: JsonValue = None,
        fix: str = "",
        case: str = "",
    ) -> Finding:
        """Make a finding about a record, or about the feature with this key in it."""
        return Finding(message, key, value, fix, case, *self.locate(row))

    def problems(self, code: str) -> Iterator[Finding]:
        """Yield the problems of the detections that the rule with this code reports."""

        def make(problem: DetectionProblem) -> Finding:
            value = problem.value
            shown: JsonValue = {**value} if isinstance(value, Mapping) else value
            return self.finding(problem.row, problem.message, problem.key, shown, case=problem.case)

        by_case: dict[str, list[DetectionProblem]] = {}
        for problem in self.detections.problems:
            if problem.code == code and self.live[problem.row]:
                by_case.setdefault(problem.case, []).append(problem)
        for case, problems in by_case.items():
            yield from self.findings(problems, make, case)

    def findings(
        self, rows: Sequence[T], make: Callable[[T], Finding], case: str = ""
    ) -> Iterator[Finding]:
        """Yield a finding for each row, box or problem of one case.

        ``make`` is called for the first ``max_detailed``; the others have only the shard.
        """
        yield from map(make, rows[: self.max_detailed])
        if len(rows) > self.max_detailed:
            counted = Finding(message="", shard=self.records.shard, case=case)
            yield from itertools.repeat(counted, len(rows) - self.max_detailed)

    def box_findings(
        self, mask: np.ndarray, describe: Callable[[int, list[float]], str], fix: str = ""
    ) -> Iterator[Finding]:
        """Return findings about the boxes in a mask; ``describe`` gets a box and its corners."""

        def make(box: int) -> Finding:
            row, number, corners = self.boxes.at(box)
            finding = self.box_finding(row, number, corners, describe(box, corners))
            return finding._replace(fix=fix)

        return self.findings(np.flatnonzero(mask).tolist(), make)

    def box_finding(self, row: int, number: int, corners: list[float], problem: str) -> Finding:
        """Make a finding about a box of a record."""
        rounded: list[JsonValue] = [float(f"{corner:.6g}") for corner in corners]
        value: JsonValue = {"object": number, "box": rounded}
        finding = self.finding(row, f"box {number} {problem}", self.key_for(BOX_KEY), value)
        classes = self.get_classes(row)
        name = classes[number] if number < len(classes) else None
        return finding._replace(object_class=name) if isinstance(name, str) else finding

    # Names

    @cached_property
    def has_plain_names(self) -> bool:
        """Whether every record has a plain file name, which most rules need not check."""
        names = self.detections.filenames
        # With their digits replaced, most names of a shard are equal.
        text = "\0".join(filter(None, names)).encode().translate(_DIGITS_TO_ZERO).decode()
        patterns = text.split("\0")
        return len(patterns) == len(names) and all(map(_PLAIN_NAME.fullmatch, set(patterns)))

    def find_wrong_names(self, is_wrong: Callable[[str], object]) -> Iterator[tuple[int, str]]:
        """Yield the row and file name of records with a wrong name; plain names are not wrong."""
        if self.mapping.filename is not None and not self.has_plain_names:
            names = self.detections.filenames
            for row in np.flatnonzero(self.live).tolist():
                if (name := names[row]) and is_wrong(name):
                    yield row, name

    def find_rows_without(self, key: str, names: Sequence[str | None]) -> list[int]:
        """Return the rows without a name, except for those that EXA004 or EXA005 reports."""
        if None not in names:
            return []
        columns = [column for column in self.examples.find_columns(key) if column.kind]
        return [
            row
            for row in np.flatnonzero(self.live).tolist()
            if names[row] is None and not any(column.has(row) for column in columns)
        ]

    def requires(self, key: str) -> bool:
        """Return whether EXA003 reports that a feature is missing."""
        return key in self.expected and self.expected[key].required

    # Images

    @cached_property
    def image_rows(self) -> np.ndarray:
        """The records whose encoded image is checked, and not reported as missing by EXA003."""
        key = self.mapping.encoded
        if key is None:
            return np.empty(0, np.intp)
        is_checked = self.live.copy()
        spec = self.expected.get(key)
        if spec is not None and spec.required:
            is_checked &= self.examples.column(key, Kind.BYTES).present
        for column in self.examples.find_columns(key):
            if column.kind not in (None, Kind.BYTES):
                is_checked &= ~column.present
        return np.flatnonzero(is_checked)

    @cached_property
    def image_kinds(self) -> Sequence[ImageFacts]:
        """The different facts about the images of :attr:`image_rows`."""
        if self.images.by_row:
            return list(self.rows_by_image)
        detections = self.detections
        columns = (detections.formats, detections.heights, detections.widths)
        return [ImageFacts(0, None, "", *facts) for facts in set(zip(*columns, strict=True))]

    @cached_property
    def rows_by_image(self) -> Mapping[ImageFacts, list[int]]:
        """The records of :attr:`image_rows` that have the same facts."""
        detections, images = self.detections, self.images.by_row
        columns = (detections.headers, detections.formats, detections.heights, detections.widths)
        values = list(zip(*columns, strict=True))
        rows_by_image: dict[ImageFacts, list[int]] = {}
        for row in self.image_rows.tolist():
            image, (header, *declared) = images.get(row), values[row]
            if image is None or header is None:
                length, looks = (image.length, image.looks) if image else (0, "")
                facts = ImageFacts(length, None, looks, *declared)
            else:
                turn = header.orientation >= 5 and needs_rotation(self.boxes.of(row), header)
                facts = ImageFacts(-1, header, "", *declared)._replace(boxes_need_rotation=turn)
                if facts.wrong_size_keys and not self.boxes.are_pixels:
                    far = extend_far(self.boxes.of(row))
                    facts = facts._replace(boxes_extend_far=far)
            rows_by_image.setdefault(facts, []).append(row)
        return rows_by_image

    # Objects

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes that can be read."""
        detections, counts = self.detections, self.box_counts
        all_counts, corners = np.diff(detections.box_splits), detections.boxes.astype(np.float64)
        if (all_counts != counts).any():  # some records are skipped
            corners = corners[np.repeat(counts > 0, all_counts)]
        sizes = np.where(detections.sizes > 0, detections.sizes, np.nan)
        return Boxes(corners, counts, sizes[:, 0], sizes[:, 1], detections.has_pixel_boxes)

    def get_classes(self, row: int) -> Sequence[object]:
        """Return the class texts of a record's boxes, or else the class ids."""
        detections = self.detections
        texts = detections.column(keys.CLASS_TEXT, Kind.BYTES)
        start, end = texts.row_splits[row : row + 2].tolist()
        labels: list[int] = detections.column(keys.CLASS_LABEL, Kind.INT64)[row].tolist()
        return detections.class_text_values[start:end] or labels

    @cached_property
    def uses(self) -> tuple[np.ndarray, list[Use]]:
        """The classes of the boxes, as from :meth:`DetectionColumns.class_uses`."""
        return self.detections.class_uses(self.box_counts)

    @cached_property
    def class_uses(self) -> Sequence[ClassUse]:
        """The different pairs of class text and id of the boxes, with the label map."""
        return [ClassUse(*use, self.label_map) for use in self.uses[1]]

    @cached_property
    def rows_by_class(self) -> Mapping[Use, list[int]]:
        """For each pair of class text and id, the record of each of its boxes."""
        codes, uses = self.uses
        rows = self.boxes.rows[np.argsort(codes, kind="stable")]
        ends = np.cumsum(np.bincount(codes, minlength=len(uses))).tolist()
        parts = map(slice, [0, *ends], ends)
        return {use: rows[part].tolist() for use, part in zip(uses, parts, strict=True)}


class ImageRow(NamedTuple):
    """The data of a record that are compared with a CVAT task.

    ``tags`` are the image-level classes, except for those that are marked as absent.
    """

    location: Location
    filename: str
    height: int | None
    width: int | None
    boxes: int
    tags: Sequence[Use] = ()


def read_image_rows(batch: Batch) -> Iterator[ImageRow]:
    """Yield the data of each record that are compared with a CVAT task."""
    names, sizes = batch.detections.filenames, batch.detections.sizes
    for row in np.flatnonzero(batch.live).tolist():
        height, width = (side if 0 < side < 1 << 31 else None for side in sizes[row].tolist())
        boxes = int(batch.box_counts[row])
        tags = _read_tags(batch.detections, row)
        yield ImageRow(batch.locate(row), names[row] or "", height, width, boxes, tags)


def count_attributes(batch: Batch) -> Counter[tuple[str, str]]:
    """Count the values of attributes of objects and images, by class and name of the attribute."""
    counts: Counter[tuple[str, str]] = Counter()
    detections = batch.detections
    for row in np.flatnonzero(batch.live).tolist() if detections.other_keys else ():
        if detections.error(row) is None:
            record = detections[row]
            no_classes = [None] * len(record.boxes)
            texts, labels = record.class_text or no_classes, record.class_label or no_classes
            uses = list(zip(texts, labels, strict=True))
            for name, values in record.attributes.items():
                pairs = zip(uses, values, strict=True)
                with_value = [use for use, value in pairs if value is not None]
                counts.update((class_name(use, batch.label_map), name) for use in with_value)
            for label in record.image_labels:
                text = class_name((label.text, label.label), batch.label_map)
                counts.update((text, name) for name in label.attributes)
    return counts


def class_name(use: Use, label_map: LabelMap | None) -> str:
    """Return the text of a class, or else the label map's name for its id, or ``#id``, or ''."""
    text, label = use
    item = label_map.find_id(label) if label_map and label else None
    return text or (item.class_name if item else "" if label is None else f"#{label}")


def _read_tags(detections: Detections, row: int) -> Sequence[Use]:
    label_keys = {keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL}
    if label_keys <= detections.absent_keys or detections.error(row):
        return ()
    return [
        (label.text, label.label)
        for label in read_image_labels(detections, row)
        if label.confidence is None or label.confidence > 0
    ]

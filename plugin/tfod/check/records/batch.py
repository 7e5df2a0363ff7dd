"""A batch of records as the rules look at it, and what the profile makes of its keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfod.check.duplicates.row_blocks import FACTS, Rows
from tfod.check.findings.finding import Place
from tfod.check.records.boxes import Boxes
from tfod.check.records.images.decoding import Decoding
from tfod.check.records.images.encoded_images import EncodedImages
from tfod.check.records.images.image_bytes import looks_like
from tfod.detection import keys
from tfod.detection.boxes import far_boxes
from tfod.detection.columns import single_values
from tfod.detection.detections import Detections
from tfod.detection.features.schema import FeatureDescription
from tfod.detection.images.image import read_image_header
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.images.masks import decode_pixels, png_sizes
from tfod.example.columns import Column, bytes_of
from tfod.example.wire import Kind
from tfod.kernel import hash_spans
from tfod.tfrecord.framing import HEADER_BYTES

_MASKS = 4  # of a batch, which may be empty
_PER_OBJECT = (*(one.key for one in keys.OBJECT_ATTRIBUTES), keys.MASK)


class Batch:
    """A batch of records, as columns.

    Args:
        detections: the records.
        images: theirs; the records need no longer have the bytes.
        features: what is expected of each key.

    Attributes:
        live: which records are looked at: they have bytes, and can be read; bool.
        stated_box_counts: how many boxes each record says it has, whether they can be read or not;
            int64.
        box_counts: how many boxes each record has, 0 where they cannot be read; int64.
        lengths: the records whose lists over the objects differ in length, with all lengths by key.
    """

    def __init__(
        self, detections: Detections, images: EncodedImages, features: FeatureDescription
    ) -> None:
        self.detections = detections
        self.examples = detections.examples
        self.records = self.examples.records
        self.images = images
        self.expected = features
        self.live = self.records.lengths > 0
        self.live[list(self.examples.refused)] = False
        self._count_boxes()

    def __len__(self) -> int:
        return len(self.records)

    def place(self, row: int) -> Place:
        """Where findings about a record are."""
        records = self.records
        name = self.detections.filenames[row] if self.live[row] else None
        offset = records.base + int(records.starts[row]) - HEADER_BYTES
        return Place(records.shard, records.first + row, offset, name or None)

    # Names

    def unnamed(
        self, key: str | None, names: Sequence[str | None], is_reported: bool
    ) -> Iterator[int]:
        """The records without a name that another rule reports.

        Args:
            key: the name's feature key.
            names: of all records.
            is_reported: whether EXA003 reports that a required one is missing.
        """
        spec = self.expected.get(key or "")
        is_required = is_reported and spec is not None and spec.required
        columns = self.examples.columns_of(key) if key else []
        for row, name in enumerate(names):
            if name is None and (is_required or any(one.has(row) for one in columns if one.kind)):
                yield row

    def odd_texts(self) -> Iterator[tuple[int, str, bytes]]:
        """Row, key and value of texts that are not UTF-8, of each feature of a record the first."""
        found = self.detections
        for key, _ in (
            (keys.FILENAME, found.filenames),
            (keys.SOURCE_ID, found.source_ids),
            (keys.SHA256, found.sha256s),
            (keys.FORMAT, found.formats),
            (keys.CLASS_TEXT, found.class_texts),
        ):
            column = found.column(key, Kind.BYTES)
            if column.key not in found.odd_text_keys:
                continue
            for row in column.rows.tolist():
                values = bytes_of(column.buffer, column[row])
                if key != keys.CLASS_TEXT and len(values) != 1:
                    continue
                odd = next((one for one in values if not _is_utf8(one)), None)
                if odd is not None:
                    yield row, column.key, odd

    # Images

    @cached_property
    def image_rows(self) -> np.ndarray:
        """The records whose encoded image is checked, and not reported as missing by EXA003."""
        key = self.detections.mapping.encoded
        if key is None:
            return np.empty(0, np.int64)
        checked = self.live.copy()
        spec = self.expected.get(key)
        if spec is not None and spec.required:
            checked &= self.examples.column(key, Kind.BYTES).present
        for column in self.examples.columns_of(key):
            if column.kind not in (None, Kind.BYTES):
                checked &= ~column.present
        return np.flatnonzero(checked)

    @cached_property
    def stated_sizes(self) -> np.ndarray:
        """Height and width of each image in pixels, its header's where the record says none.

        float64 of shape (records, 2); NaN where nothing says it.
        """
        found = self.detections
        sizes = np.full((len(self), 2), np.nan)
        for side, key in enumerate((keys.HEIGHT, keys.WIDTH)):
            rows, values = single_values(found.column(key, Kind.INT64))
            sizes[rows, side] = values
        missing = np.isnan(sizes) | (sizes == 0)
        for row in np.flatnonzero(missing.any(axis=1)).tolist():
            header = found.headers[row]
            if header is not None:
                sizes[row] = header.height, header.width
        return sizes

    @cached_property
    def sizes(self) -> np.ndarray:
        """The same; NaN also where it cannot be a size."""
        found: np.ndarray = self.stated_sizes.copy()
        with np.errstate(invalid="ignore"):
            found[~(found > 0)] = np.nan
        return found

    @cached_property
    def without_size(self) -> np.ndarray:
        """Records with boxes of an image of which nothing says the height, or the width; bool."""
        unknown = np.isnan(self.stated_sizes).any(axis=1)
        found: np.ndarray = unknown & (self.stated_box_counts > 0) & ~self._uneven
        return found

    @property
    def rows(self) -> Rows:
        """What is to be remembered of the records, but for those that could not be read."""
        live = np.flatnonzero(self.live)
        named = (keys.FILENAME, keys.SOURCE_ID)
        hashes = [np.zeros(len(self), np.uint64) for _ in named]
        for key, found in zip(named, hashes, strict=True):
            column = self.detections.column(key, Kind.BYTES)
            rows, spans = single_values(column)
            found[rows] = hash_spans(column.buffer, spans)
        hashes.append(self.images.hashes)
        facts = np.empty(len(live), FACTS)
        facts["record"], facts["offset"] = self.records.numbers[live], self.records.offsets[live]
        with np.errstate(invalid="ignore"):
            sizes = self.stated_sizes[live]
            facts["height"], facts["width"] = np.where(
                (sizes >= 0) & (sizes < 1 << 31), sizes, -1
            ).T
        facts["boxes"] = self.box_counts[live]
        names: list[Sequence[str | None]] = [self.detections.filenames, self.detections.source_ids]
        if len(live) < len(self):
            names = [[texts[row] for row in live.tolist()] for texts in names]
        return Rows(names[0], names[1], [one[live] for one in hashes], facts)

    # Objects

    def odd_masks(self) -> Iterator[tuple[int, str, list[int], list[int]]]:
        """Row, key, and both sizes: the first PNG mask of a key that is not of its image's size."""
        found = self.detections
        for key in (keys.MASK, *keys.IMAGE_MASKS.values()):
            column = found.column(key, Kind.BYTES)
            if not len(column.values):
                continue
            sizes = found.sizes.copy()
            for row, header in enumerate(self.images.headers):
                if header is not None:
                    sizes[row] = header.height, header.width
            rows = np.repeat(np.arange(len(self)), column.counts)
            stated = png_sizes(column.buffer, column.values)
            odd = (stated != sizes[rows]).any(axis=1) & (stated * sizes[rows] > 0).all(axis=1)
            firsts = np.unique(rows[odd], return_index=True)[1]
            for row, size in zip(rows[odd][firsts].tolist(), stated[odd][firsts], strict=True):
                yield row, key, size.tolist(), sizes[row].tolist()

    def odd_mask_bytes(self) -> Iterator[tuple[int, int, ImageHeader | None, str]]:
        """Row, object, header and looks of the objects' masks that are not PNG images."""
        column = self.detections.column(keys.MASK, Kind.BYTES)
        spans = column.values
        rows = np.repeat(np.arange(len(self)), column.counts)
        is_png = (png_sizes(column.buffer, spans) > 0).all(axis=1)
        for at in np.flatnonzero(~is_png & (spans[:, 1] > 0)).tolist():
            row, start = int(rows[at]), int(spans[at, 0])
            end = start + int(spans[at, 1])
            header = read_image_header(column.buffer, start, end)
            looks = looks_like(column.buffer, start, end)
            yield row, at - int(column.row_splits[row]), header, looks

    def far_keypoints(self) -> Iterator[tuple[int, int, int]]:
        """Row, and how many of its labelled keypoints, of how many, are far outside the image."""
        x, y = (
            self.detections.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y)
        )
        paired = (x.counts == y.counts) & (x.counts > 0)
        points = np.stack([one.values[np.repeat(paired, one.counts)] for one in (x, y)], axis=1)
        rows = np.repeat(np.flatnonzero(paired), x.counts[paired])
        far = np.bincount(rows[far_boxes(points)], minlength=len(self))
        labelled = np.bincount(
            rows[np.isfinite(points).all(axis=1) & points.any(axis=1)], minlength=len(self)
        )
        for row in np.flatnonzero(far).tolist():
            yield row, int(far[row]), int(labelled[row])

    def mask_values(self, decoding: Decoding) -> Iterator[tuple[int, int]]:
        """The largest value of the first PNG masks of objects: who writes one so writes all so."""
        column = self.detections.column(keys.MASK, Kind.BYTES)
        spans = column.values[: _MASKS if decoding.part else 0]
        rows = np.repeat(np.arange(len(self)), column.counts)[: len(spans)].tolist()
        sizes = png_sizes(column.buffer, spans).tolist()
        found = zip(rows, spans.tolist(), sizes, strict=True)
        for row, (start, length), (height, width) in found:
            if height * width and decoding.is_cheap(height, width, length):
                with suppress(ValueError):  # it is no PNG
                    pixels = decode_pixels(memoryview(column.buffer)[start : start + length])
                    scale = 255 if pixels.dtype == bool else 1  # as TensorFlow reads 1 bit
                    yield row, int(pixels.max()) * scale

    def _count_boxes(self) -> None:
        found, keys_of_boxes = self.detections, self.detections.mapping.box
        self.lengths: list[tuple[int, dict[str, int]]] = []
        self._uneven = np.zeros(len(self), bool)
        self.stated_box_counts = self.box_counts = np.zeros(len(self), np.int64)
        if not keys_of_boxes:
            return
        readable = self.live.copy()  # whose boxes are of the right kind
        for key in keys_of_boxes:
            for column in self.examples.columns_of(key):
                if column.kind not in (None, Kind.FLOAT):
                    readable &= ~column.present
        self.stated_box_counts = found.box_counts * readable
        sides = [self.examples.column(key, Kind.FLOAT) for key in keys_of_boxes]
        others = self._lists_beside_boxes()
        for column in sides[1:]:
            self._uneven |= column.counts != self.stated_box_counts
        for column in others:
            self._uneven |= (column.counts != self.stated_box_counts) & (column.counts > 0)
        self._uneven &= readable
        for row in np.flatnonzero(self._uneven).tolist():
            listed = [*sides, *(one for one in others if one.counts[row])]
            self.lengths.append((row, {one.key: int(one.counts[row]) for one in listed}))
        good = readable & ~self._uneven & found.box_rows
        self.box_counts = np.where(good, found.box_counts, 0)

    def _lists_beside_boxes(self) -> list[Column]:
        """The lists with one value an object, as far as there are any."""
        found = self.detections
        lists = [
            found.column(keys.CLASS_TEXT, Kind.BYTES),
            found.column(keys.CLASS_LABEL, Kind.INT64),
        ]
        for key in _PER_OBJECT:
            for column in found.columns_of(key):
                spec = self.expected.get(column.key)
                # Masks as numbers are pixels, not one value an object.
                is_mask_of_numbers = key == keys.MASK and column.kind is Kind.FLOAT
                is_taken = column.kind is not None and (spec is None or spec.takes(column.kind))
                if is_taken and not is_mask_of_numbers:
                    lists.append(column)
        if found.annotation_id_column is not None:
            lists.append(found.annotation_id_column)
        return lists

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes that can be read."""
        found, counts = self.detections, self.box_counts
        held = np.where(found.box_rows, found.box_counts, 0)
        corners = np.empty((0, 4))
        if counts.any():
            corners = found.boxes
            if (held != counts).any():
                corners = corners[np.repeat(counts > 0, held)]
            corners = corners.astype(np.float64)
        sizes = self.sizes
        return Boxes(corners, counts, sizes[:, 0], sizes[:, 1], _ClassNames(found))

    @cached_property
    def uses(self) -> tuple[np.ndarray, list[tuple[str | None, int | None]]]:
        """What names the classes of the boxes; as :meth:`DetectionColumns.class_uses`."""
        return self.detections.class_uses(self.box_counts)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class _ClassNames:
    """For each record what names the classes of its boxes: texts, or else ids."""

    detections: Detections  # not the batch, which has the boxes: its buffer could not be used again

    def __getitem__(self, row: int, /) -> Sequence[object]:
        found = self.detections
        texts = found.column(keys.CLASS_TEXT, Kind.BYTES).row_splits[row : row + 2].tolist()
        named = found.class_text_values[texts[0] : texts[1]]
        labels: list[int] = found.column(keys.CLASS_LABEL, Kind.INT64)[row].tolist()
        return named or labels

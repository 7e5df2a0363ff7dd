"""What a batch of records states of its images, in typed columns, as a field mapping names them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription
from tfod.detection.images.image import ImageHeader, read_image_header
from tfod.example.example_batch import Column, ExampleBatch, bytes_of, texts_of
from tfod.example.wire import Kind
from tfod.kernel import code_spans

T = TypeVar("T")
_NARROW = 1 << 16
OD_API = FieldMapping()
_USUAL_KEYS = {
    **OD_API.by_name,
    "image_class_text": keys.IMAGE_CLASS_TEXT,
    "image_class_label": keys.IMAGE_CLASS_LABEL,
    **{one.name: one.key for one in keys.OBJECT_ATTRIBUTES if one.name in OD_API.by_name},
}
# Those that a mapping has unless it says that it has not.
_FIRST_FIELD_MAPPING = frozenset(role for role, key in OD_API.by_name.items() if key)


class DetectionColumns:
    """What the records of a batch state, whether it fits together or not.

    Args:
        examples: the records.
        mapping: which key holds what.
        repeating: keys that only repeat what others say, such as the number of channels.
        headers: of the encoded images, where these are no longer in the records.
        expected: what is expected of each key; None for what importers expect.
        in_pixels: whether the corners of boxes are read as pixels.
    """

    def __init__(
        self,
        examples: ExampleBatch,
        mapping: FieldMapping = OD_API,
        repeating: Collection[str] = (),
        headers: Sequence[ImageHeader | None] | None = None,
        expected: FeatureDescription | None = None,
        in_pixels: bool = False,
    ) -> None:
        self.examples = examples
        self.expected = expected
        self.mapping = mapping
        self.has_pixel_boxes = in_pixels or mapping.has_pixel_boxes
        _, self._hidden, _ = usual_keys(mapping)
        self._repeating = frozenset(repeating)
        self._headers = headers
        self.odd_text_keys: set[str] = set()
        self._oddities: defaultdict[int, list[str]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self.examples)

    def own_key(self, key: str) -> str | None:
        """The key that holds what the OD API has under a key; None where nothing does."""
        return own_key(self.mapping, key)

    def columns_of(self, key: str) -> list[Column]:
        """The columns of what the OD API has under a key, of each kind of list."""
        own = self.own_key(key)
        return self.examples.columns_of(own) if own else []

    def column(self, key: str, kind: Kind) -> Column:
        """The column of one kind of what the OD API has under a key; an empty one for none."""
        own = self.own_key(key)
        if own is None:
            return Column.empty(key, kind, len(self))
        return self.examples.column(own, kind)

    @cached_property
    def other_keys(self) -> list[str]:
        """The keys of the batch that have no place in a plain Detection, in their order."""
        used = {self.own_key(key) for key in PLAIN_KEYS} | self._repeating | self._hidden
        return [key for key in self.examples.columns if key not in used]

    # Texts and numbers of the image

    @cached_property
    def filenames(self) -> list[str | None]:
        """Of each image."""
        return self._texts(keys.FILENAME)

    @cached_property
    def source_ids(self) -> list[str | None]:
        """Of each image; its number, where the format has numbers."""
        if self.mapping.source_id is None and self.mapping.image_id:
            return [None if one is None else str(one) for one in self.image_ids]
        return self._texts(keys.SOURCE_ID)

    @cached_property
    def formats(self) -> list[str | None]:
        """What each record says of its image's format."""
        return self._texts(keys.FORMAT)

    @cached_property
    def sha256s(self) -> list[str | None]:
        """The digests that the records have for their images."""
        return self._texts(keys.SHA256)

    def _texts(self, key: str) -> list[str | None]:
        """A feature of one text; None where a record has none, or several."""
        column = self.column(key, Kind.BYTES)
        rows, spans = single_values(column)
        texts = texts_of(column.buffer, spans)
        if texts is None:
            texts = [
                self._decoded(row, column.key, value)
                for row, value in zip(rows.tolist(), bytes_of(column.buffer, spans), strict=True)
            ]
        return self._by_row(rows, texts)

    def _by_row(self, rows: np.ndarray, values: Sequence[T]) -> list[T | None]:
        """A list over all records: None for those that are not among the rows."""
        if len(rows) == len(self):
            return list(values)
        found: list[T | None] = [None] * len(self)
        for row, value in zip(rows.tolist(), values, strict=True):
            found[row] = value
        return found

    def _decoded(self, row: int, key: str, value: bytes) -> str:
        text = lenient_text(value)
        if text.encode() != value:
            self._note_odd_text(row, key)
        return text

    def _note_odd_text(self, row: int, key: str) -> None:
        self.odd_text_keys.add(key)
        self.note(row, f"{key} is not UTF-8, read as Latin-1")

    def note(self, row: int, oddity: str) -> None:
        """Note what was read with a liberty, once for each record."""
        if oddity not in self._oddities[row]:
            self._oddities[row].append(oddity)

    def warnings(self, row: int) -> list[str]:
        """What was read with a liberty, as short sentences without a location."""
        return self._oddities.get(row, [])

    @cached_property
    def heights(self) -> list[int | None]:
        """What each record says of its image's height, pixels; None where it says nothing."""
        return self._integers(keys.HEIGHT)

    @cached_property
    def widths(self) -> list[int | None]:
        """What each record says of its image's width, pixels; None where it says nothing."""
        return self._integers(keys.WIDTH)

    def _integers(self, key: str) -> list[int | None]:
        rows, values = single_values(self.column(key, Kind.INT64))
        return self._by_row(rows, values.tolist())

    @cached_property
    def encoded(self) -> np.ndarray:
        """Start and end of each encoded image in the batch's buffer; -1 where there is none.

        int64 of shape (records, 2).
        """
        rows, spans = single_values(self.column(keys.ENCODED, Kind.BYTES))
        found = np.full((len(self), 2), -1, np.int64)
        found[rows, 0] = spans[:, 0]
        found[rows, 1] = spans[:, 0] + spans[:, 1]
        return found

    @cached_property
    def headers(self) -> Sequence[ImageHeader | None]:
        """What the header of each encoded image says; None where there is none."""
        if self._headers is not None:
            return self._headers
        buffer = self.examples.buffer
        found: list[ImageHeader | None] = [None] * len(self)
        rows = np.flatnonzero(self.encoded[:, 1] > self.encoded[:, 0])
        for row, (start, end) in zip(rows.tolist(), self.encoded[rows].tolist(), strict=True):
            found[row] = read_image_header(buffer, start, end)
        return found

    def _header(self, row: int) -> ImageHeader | None:
        if self._headers is not None or "headers" in vars(self):  # all were asked for
            return self.headers[row]
        start, end = self.encoded[row].tolist()
        return read_image_header(self.examples.buffer, start, end) if end > start else None

    @cached_property
    def sizes(self) -> np.ndarray:
        """Height and width of each image in pixels, its header's where the record says no size.

        int64 of shape (records, 2); 0 where neither says it.
        """
        found = np.zeros((len(self), 2), np.int64)
        for side, key in enumerate((keys.HEIGHT, keys.WIDTH)):
            rows, values = single_values(self.column(key, Kind.INT64))
            found[rows, side] = values
        for row in np.flatnonzero((found <= 0).any(axis=1)).tolist():
            header = self._header(row)
            found[row] = (header.height, header.width) if header else (0, 0)
        return found

    @property
    def has_one_class(self) -> bool:
        """Whether each image has one class and no objects, as in shards for classification."""
        return not self.mapping.box

    # Objects

    @cached_property
    def flat_boxes(self) -> Column | None:
        """The column of all four numbers of each box, where a single key holds them."""
        box = self.mapping.box
        return self.examples.column(box[0], Kind.FLOAT) if len(box) == 1 else None

    @cached_property
    def box_counts(self) -> np.ndarray:
        """How many objects each record has, int64 of shape (records,)."""
        if self.flat_boxes is not None:
            counts: np.ndarray = self.flat_boxes.counts // 4
            return counts
        return self.column(keys.XMIN, Kind.FLOAT).counts

    @cached_property
    def class_texts(self) -> tuple[np.ndarray, list[str]]:
        """Class texts as a dictionary: the code of each value of the column, and the texts."""
        column = self.column(keys.CLASS_TEXT, Kind.BYTES)
        codes, firsts = code_spans(column.buffer, column.values)
        texts = texts_of(column.buffer, column.values[firsts])
        if texts is None:
            values = bytes_of(column.buffer, column.values[firsts])
            texts = [lenient_text(one) for one in values]
            odd = [code for code, one in enumerate(values) if texts[code].encode() != one]
            places = np.flatnonzero(np.isin(codes, odd))
            for row in np.searchsorted(column.row_splits, places, "right") - 1:
                self._note_odd_text(int(row), column.key)
        return codes, texts

    @cached_property
    def class_text_values(self) -> list[str]:
        """The class text of every value of the column, by row as its ``row_splits`` say."""
        codes, texts = self.class_texts
        return [texts[code] for code in codes.tolist()]

    def class_uses(
        self, counts: np.ndarray
    ) -> tuple[np.ndarray, list[tuple[str | None, int | None]]]:
        """A code of each object, and of each code the pair of class text and id.

        ``counts`` are the objects of each record. A list that has another length names none.
        """
        texts = self.column(keys.CLASS_TEXT, Kind.BYTES)
        labels = self.column(keys.CLASS_LABEL, Kind.INT64)
        text_codes, names = self.class_texts
        label_codes, ids = _coded(labels.values)
        # In both 0 is an object without one.
        pairs = _of_objects(texts, text_codes + 1, counts) * (len(ids) + 1)
        codes, kinds = _coded(pairs + _of_objects(labels, label_codes + 1, counts))
        split = [divmod(kind, len(ids) + 1) for kind in kinds]
        return codes, [(names[a - 1] if a else None, ids[b - 1] if b else None) for a, b in split]

    def texts_in(self, column: Column, row: int) -> list[str]:
        """The texts of one record in a column of byte strings."""
        spans = column[row]
        texts = texts_of(column.buffer, spans)
        if texts is None:
            values = bytes_of(column.buffer, spans)
            texts = [self._decoded(row, column.key, value) for value in values]
        return texts

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key: place for place, key in enumerate(self.other_keys)}

    def other_keys_in(self, row: int) -> list[str]:
        """Those of the other keys that a record has, in the order of the batch."""
        there = {one.key for one in self.examples.columns_in(row)}
        return sorted(filter(self._places.__contains__, there), key=self._places.__getitem__)

    def attribute_keys_in(self, row: int) -> list[str]:
        """The keys that may hold attributes of a record's objects."""
        own = [key for key in self.other_keys_in(row) if key.startswith(keys.ATTRIBUTE_PREFIX)]
        return own + self._known_attribute_keys

    @cached_property
    def _known_attribute_keys(self) -> list[str]:
        known = {attribute.key for attribute in keys.OBJECT_ATTRIBUTES}
        return sorted(key for key in known if self.columns_of(key))

    # Formats with one record an object

    @cached_property
    def image_ids(self) -> list[int | str | None]:
        """Of each image, where records that share one are one image; None where there is none."""
        key = self.mapping.image_id
        found: list[int | str | None] = [None] * len(self)
        for column in self.examples.columns_of(key) if key else ():
            rows, values = single_values(column)
            if column.kind is Kind.BYTES:
                ids = [x.decode("utf-8", "replace") for x in bytes_of(column.buffer, values)]
            else:
                ids = values.tolist()
            for row, one in zip(rows.tolist(), ids, strict=True):
                found[row] = one
        return found

    @cached_property
    def annotation_id_column(self) -> Column | None:
        """The numbers of the objects, where the mapping has such."""
        key = self.mapping.annotation_id
        return self.examples.column(key, Kind.INT64) if key else None

    def annotation_ids(self, row: int) -> list[int]:
        """The numbers of a record's objects; none where it has none."""
        column = self.annotation_id_column
        return column[row].tolist() if column is not None else []


def single_values(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The rows that have one value, and those values."""
    counts = column.lengths
    if len(column.values) == len(column.rows) and (counts == 1).all():
        return column.rows, column.values
    single = counts == 1
    return column.rows[single], column.values[column.splits[:-1][single]]


def lenient_text(value: bytes) -> str:
    """A text as a Detection has it: UTF-8, or else Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@functools.lru_cache(16)
def usual_keys(mapping: FieldMapping) -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """Usual key of each role to its own; keys looked at otherwise, or not at all; all own keys."""
    if mapping == OD_API:
        return {}, frozenset(), frozenset()
    names: dict[str, str] = {}
    hidden = [*keys.BOX, *mapping.box]
    if not mapping.box:  # nor are there objects that could have these
        hidden += [keys.MASK, keys.KEYPOINT_X, keys.KEYPOINT_Y]
    for role, own in mapping.by_name.items():
        usual = _USUAL_KEYS[role]
        if usual is None:
            hidden += [own] if own else []
        elif own:
            names[usual] = own
        elif role in _FIRST_FIELD_MAPPING:  # the format has none, whatever is under the usual key
            hidden.append(usual)
    if len(mapping.box) == len(keys.BOX):
        names.update(zip(keys.BOX, mapping.box, strict=True))
    return names, frozenset(hidden).difference(names), frozenset(names.values())


def own_key(mapping: FieldMapping, key: str) -> str | None:
    """Return the key that holds what the OD API has under a key; None if a mapping has none."""
    names, hidden, moved = usual_keys(mapping)
    return names.get(key) or (None if key in hidden or key in moved else key)


PLAIN_KEYS = (
    *(keys.FILENAME, keys.SOURCE_ID, keys.FORMAT, keys.SHA256, keys.HEIGHT, keys.WIDTH),
    *(keys.ENCODED, *keys.BOX, keys.CLASS_TEXT, keys.CLASS_LABEL),
)
"""Keys that nearly every record has."""


def _coded(values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A code of each number, int64 of shape (n,), and the numbers of the codes, ascending."""
    low = int(values.min(initial=0))
    if int(values.max(initial=0)) - low >= _NARROW:
        numbers, codes = np.unique(values, return_inverse=True)
        return codes, numbers.tolist()
    places = values - low  # ids of classes are few and near: no sorting
    there = np.bincount(places) > 0
    return (np.cumsum(there) - 1)[places], (np.flatnonzero(there) + low).tolist()


def _of_objects(column: Column, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The value of each object from a list over the objects, 0 without one; int64 of shape (n,)."""
    if len(values) == counts.sum() and (column.counts == counts).all():
        return values
    found = np.zeros(int(counts.sum()), np.int64)
    there = (column.counts == counts) & (counts > 0)
    found[np.repeat(there, counts)] = values[np.repeat(there, column.counts)]
    return found

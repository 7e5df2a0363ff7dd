"""Typed columns of a batch of records, by the keys of a field mapping."""

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
from tfod.example.example_batch import Column, ExampleBatch, copy_bytes, decode_texts
from tfod.example.wire import Kind
from tfod.kernel import code_spans

T = TypeVar("T")
_MAX_CODE_RANGE = 1 << 16
OD_API = FieldMapping()
_USUAL_KEYS = {
    **OD_API.by_name,
    "image_class_text": keys.IMAGE_CLASS_TEXT,
    "image_class_label": keys.IMAGE_CLASS_LABEL,
    **{x.name: x.key for x in keys.OBJECT_ATTRIBUTES if x.name in OD_API.by_name},
}
# Fields of the OD API: a mapping without them means that the format lacks them.
_ALWAYS_MAPPED = frozenset(role for role, key in OD_API.by_name.items() if key)


class DetectionColumns:
    """The content of a batch of records in columns, whether it is consistent or not.

    Args:
        mapping: keys of the image, its boxes and so on.
        redundant_keys: keys to ignore, such as the number of channels.
        headers: image headers, if the records no longer contain the images.
        expected: expected features by key; None for the features that importers expect.
        in_pixels: whether the corners of boxes are in pixels.
    """

    def __init__(
        self,
        examples: ExampleBatch,
        mapping: FieldMapping = OD_API,
        redundant_keys: Collection[str] = (),
        headers: Sequence[ImageHeader | None] | None = None,
        expected: FeatureDescription | None = None,
        in_pixels: bool = False,
    ) -> None:
        self.examples = examples
        self.expected = expected
        self.mapping = mapping
        self.has_pixel_boxes = in_pixels or mapping.has_pixel_boxes
        _, self._hidden, _ = resolve_keys(mapping)
        self._redundant_keys = frozenset(redundant_keys)
        self._headers = headers
        self.latin1_keys: set[str] = set()
        self._warnings: defaultdict[int, list[str]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self.examples)

    def map_key(self, key: str) -> str | None:
        """Return the key of the batch for a key of the OD API, or None."""
        return map_key(self.mapping, key)

    def find_columns(self, key: str) -> list[Column]:
        """Return the columns for a key of the OD API, one for each kind of list."""
        mapped = self.map_key(key)
        return self.examples.find_columns(mapped) if mapped else []

    def column(self, key: str, kind: Kind) -> Column:
        """Return the column for a key of the OD API and a kind of list, or an empty column."""
        mapped = self.map_key(key)
        if mapped is None:
            return Column.empty(key, kind, len(self))
        return self.examples.column(mapped, kind)

    @cached_property
    def other_keys(self) -> list[str]:
        """The keys that most records lack, in the order of the batch."""
        used = {self.map_key(key) for key in PLAIN_KEYS} | self._redundant_keys | self._hidden
        return [key for key in self.examples.columns if key not in used]

    # Texts and numbers of the image

    @cached_property
    def filenames(self) -> list[str | None]:
        """The file name of each image."""
        return self._texts(keys.FILENAME)

    @cached_property
    def source_ids(self) -> list[str | None]:
        """The source id of each image, or its number if the format has numbers."""
        if self.mapping.source_id is None and self.mapping.image_id:
            return [None if x is None else str(x) for x in self.image_ids]
        return self._texts(keys.SOURCE_ID)

    @cached_property
    def formats(self) -> list[str | None]:
        """The declared format of each image."""
        return self._texts(keys.FORMAT)

    @cached_property
    def sha256s(self) -> list[str | None]:
        """The declared SHA-256 of each image."""
        return self._texts(keys.SHA256)

    def _texts(self, key: str) -> list[str | None]:
        """Return a single text per record; None if it has none or several."""
        column = self.column(key, Kind.BYTES)
        rows, spans = select_single_values(column)
        texts = decode_texts(column.buffer, spans)
        if texts is None:
            texts = [
                self._decode(row, column.key, value)
                for row, value in zip(rows.tolist(), copy_bytes(column.buffer, spans), strict=True)
            ]
        return self._by_row(rows, texts)

    def _by_row(self, rows: np.ndarray, values: Sequence[T]) -> list[T | None]:
        """Expand values of some rows to all records, with None for the other rows."""
        if len(rows) == len(self):
            return list(values)
        expanded: list[T | None] = [None] * len(self)
        for row, value in zip(rows.tolist(), values, strict=True):
            expanded[row] = value
        return expanded

    def _decode(self, row: int, key: str, value: bytes) -> str:
        text = decode_text(value)
        if text.encode() != value:
            self._note_latin1(row, key)
        return text

    def _note_latin1(self, row: int, key: str) -> None:
        self.latin1_keys.add(key)
        self.note(row, f"{key} is not UTF-8; read as Latin-1")

    def note(self, row: int, warning: str) -> None:
        """Add a warning about a tolerated deviation, once per record."""
        if warning not in self._warnings[row]:
            self._warnings[row].append(warning)

    def warnings(self, row: int) -> list[str]:
        """Return tolerated deviations as short sentences without a location."""
        return self._warnings.get(row, [])

    @cached_property
    def heights(self) -> list[int | None]:
        """The declared image height of each record in pixels, or None."""
        return self._integers(keys.HEIGHT)

    @cached_property
    def widths(self) -> list[int | None]:
        """The declared image width of each record in pixels, or None."""
        return self._integers(keys.WIDTH)

    def _integers(self, key: str) -> list[int | None]:
        rows, values = select_single_values(self.column(key, Kind.INT64))
        return self._by_row(rows, values.tolist())

    @cached_property
    def encoded(self) -> np.ndarray:
        """The start and end of each image in the buffer, or -1; int64 of shape (records, 2)."""
        rows, spans = select_single_values(self.column(keys.ENCODED, Kind.BYTES))
        bounds = np.full((len(self), 2), -1, np.int64)
        bounds[rows, 0] = spans[:, 0]
        bounds[rows, 1] = spans[:, 0] + spans[:, 1]
        return bounds

    @cached_property
    def headers(self) -> Sequence[ImageHeader | None]:
        """The image header of each record, or None."""
        if self._headers is not None:
            return self._headers
        buffer = self.examples.buffer
        headers: list[ImageHeader | None] = [None] * len(self)
        rows = np.flatnonzero(self.encoded[:, 1] > self.encoded[:, 0])
        for row, (start, end) in zip(rows.tolist(), self.encoded[rows].tolist(), strict=True):
            headers[row] = read_image_header(buffer, start, end)
        return headers

    def _header(self, row: int) -> ImageHeader | None:
        if self._headers is not None or "headers" in vars(self):  # all headers were read
            return self.headers[row]
        start, end = self.encoded[row].tolist()
        return read_image_header(self.examples.buffer, start, end) if end > start else None

    @cached_property
    def sizes(self) -> np.ndarray:
        """The height and width of each image in pixels: declared, else from its header, else 0."""
        sizes = np.zeros((len(self), 2), np.int64)
        for side, key in enumerate((keys.HEIGHT, keys.WIDTH)):
            rows, values = select_single_values(self.column(key, Kind.INT64))
            sizes[rows, side] = values
        for row in np.flatnonzero((sizes <= 0).any(axis=1)).tolist():
            header = self._header(row)
            sizes[row] = (header.height, header.width) if header else (0, 0)
        return sizes

    @property
    def has_one_class(self) -> bool:
        """Whether images have one class and no objects, as in classification shards."""
        return not self.mapping.box

    # Objects

    @cached_property
    def flat_boxes(self) -> Column | None:
        """The column with all four numbers of each box, if a single key holds them."""
        box = self.mapping.box
        return self.examples.column(box[0], Kind.FLOAT) if len(box) == 1 else None

    @cached_property
    def box_counts(self) -> np.ndarray:
        """The number of objects of each record, intp of shape (records,)."""
        if self.flat_boxes is not None:
            return self.flat_boxes.counts // 4
        return self.column(keys.XMIN, Kind.FLOAT).counts

    @cached_property
    def class_texts(self) -> tuple[np.ndarray, list[str]]:
        """Class texts as a dictionary: a code for each value of the column, and the texts."""
        column = self.column(keys.CLASS_TEXT, Kind.BYTES)
        codes, firsts = code_spans(column.buffer, column.values)
        texts = decode_texts(column.buffer, column.values[firsts])
        if texts is None:
            values = copy_bytes(column.buffer, column.values[firsts])
            texts = [decode_text(value) for value in values]
            latin1 = [code for code, value in enumerate(values) if texts[code].encode() != value]
            indices = np.flatnonzero(np.isin(codes, latin1))
            for row in np.searchsorted(column.row_splits, indices, "right") - 1:
                self._note_latin1(int(row), column.key)
        return codes, texts

    @cached_property
    def class_text_values(self) -> list[str]:
        """The class text of each value of the column, in its order."""
        codes, texts = self.class_texts
        return [texts[code] for code in codes.tolist()]

    def class_uses(
        self, counts: np.ndarray
    ) -> tuple[np.ndarray, list[tuple[str | None, int | None]]]:
        """Return a code for each object, and the class text and id of each code."""
        texts = self.column(keys.CLASS_TEXT, Kind.BYTES)
        labels = self.column(keys.CLASS_LABEL, Kind.INT64)
        text_codes, names = self.class_texts
        label_codes, ids = _factorize(labels.values)
        # Shifted by one, 0 stands for an object without text or id.
        pairs = _align_to_objects(texts, text_codes + 1, counts) * (len(ids) + 1)
        codes, kinds = _factorize(pairs + _align_to_objects(labels, label_codes + 1, counts))
        uses: list[tuple[str | None, int | None]] = []
        for kind in kinds:
            text, label = divmod(kind, len(ids) + 1)
            uses.append((names[text - 1] if text else None, ids[label - 1] if label else None))
        return codes, uses

    def texts_in(self, column: Column, row: int) -> list[str]:
        """Return the texts of one record in a column of byte strings."""
        spans = column[row]
        texts = decode_texts(column.buffer, spans)
        if texts is None:
            values = copy_bytes(column.buffer, spans)
            texts = [self._decode(row, column.key, value) for value in values]
        return texts

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {key: index for index, key in enumerate(self.other_keys)}

    def other_keys_in(self, row: int) -> list[str]:
        """Return the :attr:`other_keys` of a record, in the order of the batch."""
        row_keys = {column.key for column in self.examples.columns_in(row)}
        return sorted(filter(self._order.__contains__, row_keys), key=self._order.__getitem__)

    def attribute_keys_in(self, row: int) -> list[str]:
        """Return the keys that may hold attributes of a record's objects."""
        prefixed = [key for key in self.other_keys_in(row) if key.startswith(keys.ATTRIBUTE_PREFIX)]
        return prefixed + self._known_attribute_keys

    @cached_property
    def _known_attribute_keys(self) -> list[str]:
        native_keys = {attribute.key for attribute in keys.OBJECT_ATTRIBUTES}
        return sorted(key for key in native_keys if self.find_columns(key))

    # Formats with one record per object

    @cached_property
    def image_ids(self) -> list[int | str | None]:
        """The image id of each record, or None; records with the same id are one image."""
        key = self.mapping.image_id
        image_ids: list[int | str | None] = [None] * len(self)
        for column in self.examples.find_columns(key) if key else ():
            rows, values = select_single_values(column)
            if column.kind is Kind.BYTES:
                ids = [x.decode("utf-8", "replace") for x in copy_bytes(column.buffer, values)]
            else:
                ids = values.tolist()
            for row, image_id in zip(rows.tolist(), ids, strict=True):
                image_ids[row] = image_id
        return image_ids

    @cached_property
    def annotation_id_column(self) -> Column | None:
        """The column with the numbers of the objects, or None."""
        key = self.mapping.annotation_id
        return self.examples.column(key, Kind.INT64) if key else None

    def annotation_ids(self, row: int) -> list[int]:
        """Return the numbers of a record's objects, empty if it has none."""
        column = self.annotation_id_column
        return column[row].tolist() if column is not None else []


def select_single_values(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with exactly one value, and those values."""
    counts = column.lengths
    if len(column.values) == len(column.rows) and (counts == 1).all():
        return column.rows, column.values
    single = counts == 1
    return column.rows[single], column.values[column.splits[:-1][single]]


def decode_text(value: bytes) -> str:
    """Decode a text as UTF-8, or else as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


@functools.lru_cache(16)
def resolve_keys(mapping: FieldMapping) -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """Return a mapping's renamed keys by OD API key, all hidden keys, and all new keys."""
    if mapping == OD_API:
        return {}, frozenset(), frozenset()
    names: dict[str, str] = {}
    hidden = [*keys.BOX, *mapping.box]
    if not mapping.box:  # without objects, these keys mean nothing
        hidden += [keys.MASK, keys.KEYPOINT_X, keys.KEYPOINT_Y]
    for role, mapped in mapping.by_name.items():
        usual = _USUAL_KEYS[role]
        if usual is None:
            hidden += [mapped] if mapped else []
        elif mapped:
            names[usual] = mapped
        elif role in _ALWAYS_MAPPED:  # the format lacks the field; ignore its usual key
            hidden.append(usual)
    if len(mapping.box) == len(keys.BOX):
        names.update(zip(keys.BOX, mapping.box, strict=True))
    return names, frozenset(hidden).difference(names), frozenset(names.values())


def map_key(mapping: FieldMapping, key: str) -> str | None:
    """Return the key of a mapping for a key of the OD API, or None."""
    names, hidden, moved = resolve_keys(mapping)
    return names.get(key) or (None if key in hidden or key in moved else key)


PLAIN_KEYS = (
    *(keys.FILENAME, keys.SOURCE_ID, keys.FORMAT, keys.SHA256, keys.HEIGHT, keys.WIDTH),
    *(keys.ENCODED, *keys.BOX, keys.CLASS_TEXT, keys.CLASS_LABEL),
)
"""Keys that nearly every record has."""


def _factorize(values: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return a code for each number, intp of shape (n,), and the numbers in ascending order."""
    low = int(values.min(initial=0))
    if int(values.max(initial=0)) - low >= _MAX_CODE_RANGE:
        numbers, codes = np.unique(values, return_inverse=True)
        return codes, numbers.tolist()
    # Class ids are few and close together, which avoids sorting.
    offsets = (values - low).astype(np.intp, copy=False)
    is_used = np.bincount(offsets) > 0
    return (np.cumsum(is_used) - 1)[offsets], (np.flatnonzero(is_used) + low).tolist()


def _align_to_objects(column: Column, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the value of each object, 0 if its record lacks a full list; int64 of shape (n,)."""
    if len(values) == counts.sum() and (column.counts == counts).all():
        return values.astype(np.int64, copy=False)
    spread = np.zeros(int(counts.sum()), np.int64)
    is_full = (column.counts == counts) & (counts > 0)
    spread[np.repeat(is_full, counts)] = values[np.repeat(is_full, column.counts)]
    return spread

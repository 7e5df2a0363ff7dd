"""Layouts: which feature keys records have, what each key holds, and which layout fits best.

Every command and reader asks here where the image, the boxes and the classes are. The checker adds
severities to a layout (:mod:`tfod.checker.profiles.profile`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import DetectionColumns, decode_text, resolve_keys
from tfod.detection.features import field_mapping
from tfod.detection.features.field_mapping import FieldMapping, classification_field_mapping
from tfod.detection.features.schema import PROFILES, FeatureDescription, FeatureSpec
from tfod.detection.problems import read_features
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch, copy_byte_strings
from tfod.example.wire import Kind
from tfod.sources.label_map_search import ClassesOfShard
from tfod.sources.resolved import Shard
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.zip_entry import ZipEntryError

BOX_KEY = keys.XMIN.rpartition("/")[0]
"""The common prefix of the OD API's box keys."""
SEGMENTATION = frozenset({keys.IMAGE_MASKS["semantic"]})
"""The keys of DeepLab's records: masks of whole images, no boxes. Panoptic records have both."""
_DETECTION_KEYS = (keys.KNOWN_KEYS | {"image/channels", "image/colorspace"}) - SEGMENTATION
"""Keys that a record of detection may have, with or without objects."""
_OBJECT_KEY = re.compile(r"box|polygon|[xy]_?(min|max)|(min|max)_?[xy]", re.IGNORECASE)
_MAX_KEYS = 8
_MAX_RECORDS = 64
_MAX_RECORDS_OF_A_SHARD = 32
_MAX_TRIED = 10_000
"""Records of a shard that are read in search of one that has features."""
MAX_RECORD_BYTES = 64 << 20
_MAX_UNREACHABLE = 2  # remote shards: each one of a dead server takes a whole timeout


@dataclass(frozen=True)
class Layout:
    """What the records of a shard hold under which keys.

    Attributes:
        name: the name that ``--profile`` takes.
        title: the purpose, in one line.
        features: the kind, shape, default and meaning of each feature.
        field_mapping: the keys of the image, its name, its boxes, …
    """

    name: str
    title: str
    features: FeatureDescription
    field_mapping: FieldMapping = field(default_factory=FieldMapping)

    @cached_property
    def expected(self) -> FeatureDescription:
        """What is expected of each key: by the layout, and for other keys by their readers.

        CVAT's layout has no image/format, and an import of it stops if that is a number.
        """
        return {**read_features(self.field_mapping), **self.features}

    def key_for(self, key: str) -> str:
        """Return the key under which the records hold what the OD API has under ``key``."""
        if key == BOX_KEY:
            return self.field_mapping.box_prefix or key
        return resolve_keys(self.field_mapping)[0].get(key, key)

    @property
    def has_other_boxes(self) -> bool:
        """Whether the boxes are under other keys than the OD API's."""
        return self.field_mapping.box not in (keys.BOX, ())


_TITLES_AND_MAPPINGS = {
    "cvat": ("annotations as CVAT's TFRecord 1.0 has them, ready to upload", FieldMapping()),
    "tf_detection_api": ("ready to train with the TF Object Detection API", FieldMapping()),
    "tf_vision": ("ready to train with TF-Vision or MediaPipe Model Maker", FieldMapping()),
    "roboflow": ("Roboflow's TFRecord export", FieldMapping()),
    "open_images": ("Open Images as create_oid_tf_record.py writes it", FieldMapping()),
    "keras_coco": (
        "COCO as in the Keras guide: one record per annotation, boxes in pixels",
        field_mapping.KERAS_COCO,
    ),
    "slim_classification": (
        "images with one label, as TF-Slim writes them",
        field_mapping.SLIM_CLASSIFICATION,
    ),
    "image_classification": (
        "images with one label, as in TensorFlow's tutorial",
        field_mapping.IMAGE_CLASSIFICATION,
    ),
    "image_label": ("images, encoded or raw, with one label", field_mapping.IMAGE_LABEL),
}
LAYOUTS: Mapping[str, Layout] = {
    name: Layout(name, title, PROFILES[name], mapping)
    for name, (title, mapping) in _TITLES_AND_MAPPINGS.items()
}
"""All layouts, by name."""
OD_API = LAYOUTS["tf_detection_api"]
_CANDIDATES = [layout for name, layout in LAYOUTS.items() if name != "tf_vision"]
"""The layouts that keys can tell; tf_vision has no key of its own."""


@dataclass
class KeyCounts:
    """How many records have each feature key.

    Attributes:
        records: the number of records that have any feature.
        images: the number of those whose image is not empty.
        by_key: the number of records with each key and kind.
        shard: the first shard with a record that can be read.
    """

    records: int = 0
    images: int = 0
    by_key: Counter[tuple[str, Kind | None]] = field(default_factory=Counter)
    shard: str = ""

    def add(self, examples: ExampleBatch, max_records: int | None = None) -> None:
        """Count the records of a batch, at most the first ``max_records``."""
        if len(examples) > len(examples.unreadable):
            self.shard = self.shard or examples.records.shard
        has_features = np.zeros(len(examples), bool)
        for column in examples.lists.values():
            has_features[column.rows] = True
        rows = np.flatnonzero(has_features)[:max_records]
        self.records += len(rows)
        for key_and_kind, column in examples.lists.items() if len(rows) else ():
            count = int(np.searchsorted(column.rows, rows[-1], "right"))
            self.by_key[key_and_kind] += count
            if key_and_kind == (keys.ENCODED, Kind.BYTES):
                values = column.values[: column.splits[count]]
                self.images += int(np.count_nonzero(values[:, 1]))

    @property
    def keys(self) -> Collection[str]:
        """The keys that occur, in their order."""
        return dict.fromkeys(key for key, _ in self.by_key)

    @property
    def common(self) -> Mapping[str, Kind | None]:
        """The keys that at least half of the records have, with their most frequent kinds."""
        common: dict[str, Kind | None] = {}
        for (key, kind), count in self.by_key.most_common():
            if 2 * count >= self.records:
                common.setdefault(key, kind)
        return common


def choose_layout(counts: KeyCounts) -> tuple[Layout, str] | None:
    """Return the layout with the most of its keys and the reason, or None if no layout fits.

    A layout whose required keys all occur comes first, then one that needs no images if there are
    none. Of equal ones it is the one with the fewest keys. Records that fit none and have an image
    and its label under usual keys are images with a label.
    """
    if not counts.records:
        return None
    common = counts.common
    fits = [fit for fit in (_Fit(one, common) for one in _CANDIDATES) if fit.is_likely(counts.keys)]
    if not fits:
        return _image_and_label(counts)
    has_images = 2 * counts.images >= counts.records

    def rank(fit: _Fit) -> tuple[bool, bool, int, int]:
        lacks_images = keys.ENCODED in fit.required and not has_images
        return bool(fit.missing), lacks_images, -len(fit.present), len(fit.features)

    best = min(fits, key=rank)
    layout = best.layout
    if layout.name in ("image_classification", "image_label"):  # with names and texts, if any
        mapping = classification_field_mapping(common) or layout.field_mapping
        layout = replace(layout, field_mapping=mapping)
    reason = f"best fit: {len(best.present)} of its {len(best.features)} features are there"
    missing = ", ".join(best.missing)
    return layout, f"{reason}, without {missing}" if missing else reason


def _image_and_label(counts: KeyCounts) -> tuple[Layout, str] | None:
    common = counts.common
    mapping = classification_field_mapping(common)
    if mapping is None or not {keys.ENCODED, *keys.BOX}.isdisjoint(counts.keys):
        return None
    features = {key: FeatureSpec(kind, ()) for key, kind in common.items()
                if kind and key in mapping.all_keys}  # fmt: skip
    layout = Layout("image_label", LAYOUTS["image_label"].title, features, mapping)
    return layout, f"best fit: an image under {mapping.encoded} and its label"


class _Fit:
    """What common keys share with a layout's features, and which required ones they lack."""

    def __init__(self, layout: Layout, common: Mapping[str, Kind | None]) -> None:
        self.layout = layout
        self.features = layout.features
        present = {key for key, spec in self.features.items() if common.get(key) is spec.kind}
        self.present = present - {keys.SHA256}  # Datumaro adds it to any
        self.required = [key for key, spec in self.features.items() if spec.required]
        self.missing = [key for key in self.required if key not in self.present]

    def is_likely(self, occurring: Collection[str]) -> bool:
        """Whether the records may be of the layout.

        Records of detection have boxes, of whose keys one may be misspelt, or only keys that
        records without objects may have. Other layouts need their image, boxes and classes, or all
        that they require.
        """
        mapping = self.layout.field_mapping
        box = mapping.box
        if box and box != keys.BOX:
            return self.present.issuperset((mapping.encoded, *box, mapping.class_label))
        if not box:
            return not self.missing
        if sum(key in occurring for key in box) >= len(box) - 1:
            return bool(self.present)  # the boxes are not those of a few records alone
        known = all(
            key in _DETECTION_KEYS or key.startswith(keys.ATTRIBUTE_PREFIX) for key in occurring
        )
        return known and 2 * len(self.missing) <= len(self.required)


def layout_of(shards: Sequence[Shard]) -> Layout:
    """Return the layout of shards that are to be read as detections.

    Records with any key of the OD API are read as its records, even if they fit no layout. So are
    shards without any readable feature, whose reader says what is wrong.

    Raises:
        TfodError: the records have only keys of an unknown layout.
    """
    counts = peek(shards)
    choice = choose_layout(counts)
    if choice is not None:
        return choice[0]
    if counts.records and keys.KNOWN_KEYS.isdisjoint(counts.keys):
        names = ", ".join(list(counts.keys)[:_MAX_KEYS])
        raise TfodError(
            f"{counts.shard}: records with these keys cannot be read as images with boxes or "
            f"labels ({names}); name the keys with --profile, which tfod describe --as-profile "
            "begins"
        )
    return OD_API


def no_objects_sentence(present: Collection[str], mappings: Collection[FieldMapping]) -> str:
    """Return where objects were looked for without finding any, and what the records have.

    Args:
        present: the keys of the records.
        mappings: the field mappings by which they were read.
    """
    prefixes = sorted({mapping.box_prefix for mapping in mappings} - {""})
    read = {key for mapping in mappings for key in mapping.all_keys}
    unread = [key for key in present if key not in read and _OBJECT_KEY.search(key)]
    if not prefixes and not unread:
        return "no objects: the records are images with labels, without boxes"
    place = f" under {' or '.join(prefixes)}" if prefixes else ""
    names = unread or list(present)
    listed = ", ".join(names[:_MAX_KEYS]) + ", …" * (len(names) > _MAX_KEYS)
    return (
        f"no objects{place}; the records have {listed}; if boxes are under other keys, name them "
        "with --profile (tfod describe --as-profile)"
    )


def layout_of_batch(examples: ExampleBatch) -> Layout:
    """Return the layout of the records of a batch, the OD API's if none fits."""
    counts = KeyCounts()
    counts.add(examples, _MAX_RECORDS)
    choice = choose_layout(counts)
    return choice[0] if choice else OD_API


def peek(shards: Sequence[Shard], max_record_bytes: int = MAX_RECORD_BYTES) -> KeyCounts:
    """Count the keys of the first records; what cannot be read is left to the reader."""
    counts, unreachable = KeyCounts(), 0
    for shard in shards:
        if counts.records >= _MAX_RECORDS:
            break
        if shard.is_remote and unreachable == _MAX_UNREACHABLE:
            continue
        try:
            _peek_into(shard, counts, max_record_bytes)
        except (OSError, ZipEntryError):
            unreachable += shard.is_remote
    return counts


def _peek_into(shard: Shard, counts: KeyCounts, max_record_bytes: int) -> None:
    tried, enough = 0, counts.records + _MAX_RECORDS_OF_A_SHARD
    with shard.open(read_ahead=False) as stream:
        for records in walk(stream, shard.name, max_record_bytes=max_record_bytes):
            if isinstance(records, Damage):
                continue
            counts.add(ExampleBatch.of(records), enough - counts.records)
            tried += len(records)
            if counts.records == enough or tried >= _MAX_TRIED:
                break


def classes_in(path: str, mapping: FieldMapping | None = None) -> ClassesOfShard:
    """Return the classes of the first batch of a shard that has any, of objects or of images.

    Args:
        path: a file, a URL, or an entry of a zip as if the zip were a folder.
        mapping: the keys of the records; None for those of the layout that fits best.
    """
    tried = 0
    with suppress(OSError, ZipEntryError, TfodError), open_shard(path) as (stream, size):
        for records in walk(stream, path, size, MAX_RECORD_BYTES):
            if isinstance(records, Damage):
                continue
            classes = _classes_of(ExampleBatch.of(records), mapping)
            tried += len(records)
            if classes.texts or classes.ids or tried >= _MAX_TRIED:
                return classes
    return ClassesOfShard()


def _classes_of(examples: ExampleBatch, mapping: FieldMapping | None) -> ClassesOfShard:
    if mapping is None:
        mapping = layout_of_batch(examples).field_mapping
    columns = DetectionColumns(examples, mapping)
    text_key, label_key = (
        (keys.CLASS_TEXT, keys.CLASS_LABEL)
        if mapping.box
        else (keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL)
    )
    texts = columns.column(text_key, Kind.BYTES)
    values = map(decode_text, copy_byte_strings(texts.buffer, texts.values))
    labels = columns.column(label_key, Kind.INT64).values
    return ClassesOfShard(frozenset(filter(None, values)), frozenset(labels.tolist()))

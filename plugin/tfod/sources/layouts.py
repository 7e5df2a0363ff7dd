"""Layouts: feature keys and their meaning, and the search for the layout that fits best.

All commands and readers use layouts to find images, boxes and classes.
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
from tfod.errors import TfodError, truncate
from tfod.example.example_batch import ExampleBatch, copy_bytes
from tfod.example.wire import Kind
from tfod.sources.label_map_search import ShardClasses
from tfod.sources.resolved import Shard
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.zip_entry import ZipEntryError

BOX_KEY = keys.XMIN.rpartition("/")[0]
"""The common prefix of the box keys of the OD API."""
SEGMENTATION = frozenset({keys.IMAGE_MASKS["semantic"]})
"""The mask key of DeepLab records, which have no boxes. Panoptic records have both."""
_DETECTION_KEYS = (keys.KNOWN_KEYS | {"image/channels", "image/colorspace"}) - SEGMENTATION
"""Keys of detection records, with or without objects."""
_OBJECT_KEY = re.compile(r"box|polygon|[xy]_?(min|max)|(min|max)_?[xy]", re.IGNORECASE)
_MAX_KEYS = 8
_MAX_RECORDS = 64
_MAX_RECORDS_PER_SHARD = 32
_MAX_TRIED = 10_000
"""The maximum number of records of a shard to read until one has features."""
MAX_RECORD_BYTES = 64 << 20
_MAX_UNREACHABLE = 2  # remote shards; each one on an unreachable server waits for the timeout


@dataclass(frozen=True)
class Layout:
    """A layout: the feature keys of records and their meaning.

    Attributes:
        name: value of ``--profile``.
        title: purpose of the layout, in one line.
        features: kind, shape, default and meaning of each feature.
        field_mapping: keys of the image, its name, its boxes, …
    """

    name: str
    title: str
    features: FeatureDescription
    field_mapping: FieldMapping = field(default_factory=FieldMapping)

    @cached_property
    def expected(self) -> FeatureDescription:
        """The expected features, including those that only a reader expects.

        For example, the CVAT layout has no image/format, but an import fails if it is a number.
        """
        return {**read_features(self.field_mapping), **self.features}

    def key_for(self, key: str) -> str:
        """Return the key of this layout for a key of the OD API."""
        if key == BOX_KEY:
            return self.field_mapping.box_prefix or key
        return resolve_keys(self.field_mapping)[0].get(key, key)

    @property
    def has_custom_boxes(self) -> bool:
        """Whether the boxes do not have the keys of the OD API."""
        return self.field_mapping.box not in (keys.BOX, ())


_TITLES_AND_MAPPINGS = {
    "cvat": ("annotations in CVAT's TFRecord 1.0 format, ready to upload", FieldMapping()),
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
"""The layouts by name."""
OD_API = LAYOUTS["tf_detection_api"]
_CANDIDATES = [layout for name, layout in LAYOUTS.items() if name != "tf_vision"]
"""The layouts to choose from. The keys of tf_vision do not distinguish it from others."""


@dataclass
class KeyCounts:
    """Numbers of records with each feature key.

    Attributes:
        records: number of records with features.
        images: number of records with a non-empty image.
        by_key: number of records by key and kind.
        shard: name of the first shard with a readable record.
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
                self.images += np.count_nonzero(column.values[: column.splits[count], 1])

    @property
    def keys(self) -> Collection[str]:
        """The keys that occur, in order."""
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
    """Return the best layout and the reason, or None if no layout fits.

    Layouts with all required keys are preferred, then layouts without images if the records have
    none, then those with the most keys present, then those with the fewest keys. If none fits, an
    image and its label under usual keys are sufficient.
    """
    if not counts.records:
        return None
    common = counts.common
    fits = [_Fit(layout, common) for layout in _CANDIDATES]
    fits = [fit for fit in fits if fit.is_likely(counts.keys)]
    if not fits:
        return _image_and_label(counts)

    def rank(fit: _Fit) -> tuple[bool, bool, int, int]:
        lacks_images = keys.ENCODED in fit.required and 2 * counts.images < counts.records
        return bool(fit.missing), lacks_images, -len(fit.present), len(fit.features)

    best = min(fits, key=rank)
    layout = best.layout
    if layout.name in ("image_classification", "image_label"):  # add the keys of names and texts
        mapping = classification_field_mapping(common) or layout.field_mapping
        layout = replace(layout, field_mapping=mapping)
    reason = f"best fit: {len(best.present)} of its {len(best.features)} features are present"
    missing = ", ".join(best.missing)
    return layout, f"{reason}, {missing} missing" if missing else reason


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
    """The features of a layout that are present, and the required ones that are missing."""

    def __init__(self, layout: Layout, common: Mapping[str, Kind | None]) -> None:
        self.layout = layout
        self.features = layout.features
        present = {key for key, spec in self.features.items() if common.get(key) is spec.kind}
        self.present = present - {keys.SHA256}  # Datumaro adds it to every layout
        self.required = [key for key, spec in self.features.items() if spec.required]
        self.missing = [key for key in self.required if key not in self.present]

    def is_likely(self, occurring: Collection[str]) -> bool:
        """Return whether the records may have this layout.

        Detection records need box keys, of which one may be misspelled, or else only keys of
        records without objects. Other layouts need their image, boxes and classes; or all
        required keys if they have no boxes.
        """
        mapping = self.layout.field_mapping
        box = mapping.box
        if box and box != keys.BOX:
            return self.present.issuperset((mapping.encoded, *box, mapping.class_label))
        if not box:
            return not self.missing
        if sum(key in occurring for key in box) >= len(box) - 1:
            return bool(self.present)  # empty if only a few records have boxes
        is_detection = all(
            key in _DETECTION_KEYS or key.startswith(keys.ATTRIBUTE_PREFIX) for key in occurring
        )
        return is_detection and 2 * len(self.missing) <= len(self.required)


def find_layout(shards: Sequence[Shard]) -> Layout:
    """Return the layout of shards to read, by default the OD API's.

    Records with only unknown keys raise TfodError.
    """
    counts = count_keys(shards)
    if choice := choose_layout(counts):
        return choice[0]
    if counts.records and keys.KNOWN_KEYS.isdisjoint(counts.keys):
        names = ", ".join(list(counts.keys)[:_MAX_KEYS])
        raise TfodError(
            f"{counts.shard}: records with these keys cannot be read as images with boxes or "
            f"labels ({names}); write a profile with tfod describe --as-profile, name the keys "
            "in it, and pass it with --profile"
        )
    return OD_API


def describe_missing_objects(present: Collection[str], mappings: Collection[FieldMapping]) -> str:
    """Return a sentence about records without objects: the keys that were read and exist."""
    prefixes = sorted({mapping.box_prefix for mapping in mappings} - {""})
    read_keys = {key for mapping in mappings for key in mapping.all_keys}
    unread = [key for key in present if key not in read_keys and _OBJECT_KEY.search(key)]
    if not prefixes and not unread:
        return "no objects: the records are images with labels, without boxes"
    location = f" under {' or '.join(prefixes)}" if prefixes else ""
    names = unread or list(present)
    listed = ", ".join(map(truncate, names[:_MAX_KEYS])) + (", …" if len(names) > _MAX_KEYS else "")
    return (
        f"no objects{location}; the records have {listed}; if the boxes have other keys, name "
        "these with --profile (tfod describe --as-profile)"
    )


def find_batch_layout(examples: ExampleBatch) -> Layout:
    """Return the layout of a batch of records, by default the OD API's."""
    counts = KeyCounts()
    counts.add(examples, _MAX_RECORDS)
    choice = choose_layout(counts)
    return choice[0] if choice else OD_API


def count_keys(shards: Sequence[Shard], max_record_bytes: int = MAX_RECORD_BYTES) -> KeyCounts:
    """Count the keys of the first records; errors are ignored, since readers will raise them."""
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
    tried, max_records = 0, counts.records + _MAX_RECORDS_PER_SHARD
    with shard.open(read_ahead=False) as stream:
        for records in walk(stream, shard.name, max_record_bytes=max_record_bytes):
            if isinstance(records, Damage):
                continue
            counts.add(ExampleBatch.of(records), max_records - counts.records)
            tried += len(records)
            if counts.records == max_records or tried >= _MAX_TRIED:
                break


def read_classes(path: str, mapping: FieldMapping | None = None) -> ShardClasses:
    """Return the object or image classes of the first batch of a shard that has any.

    In the path of a zip entry, the zip is written like a folder.
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
    return ShardClasses()


def _classes_of(examples: ExampleBatch, mapping: FieldMapping | None) -> ShardClasses:
    if mapping is None:
        mapping = find_batch_layout(examples).field_mapping
    columns = DetectionColumns(examples, mapping)
    text_key, label_key = (
        (keys.CLASS_TEXT, keys.CLASS_LABEL)
        if mapping.box
        else (keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL)
    )
    texts = columns.column(text_key, Kind.BYTES)
    values = map(decode_text, copy_bytes(texts.buffer, texts.values))
    labels = columns.column(label_key, Kind.INT64).values
    return ShardClasses(frozenset(filter(None, values)), frozenset(labels.tolist()))

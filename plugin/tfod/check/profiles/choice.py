"""The profile of a check: what was asked for, or what the first records fit best, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfod.check.dataset import Shard
from tfod.check.profiles.profile import OFF, READY, Profile
from tfod.check.records.result import Misfit
from tfod.check.report import ChosenProfile
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.example.columns import ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.zip_entry import ZipEntryError

SEGMENTATION = frozenset({keys.IMAGE_MASKS["semantic"]})
"""Of DeepLab's records: masks of whole images, and no boxes. Those of panoptic masks have both."""
_KNOWN = (keys.KNOWN_KEYS | {"image/channels", "image/colorspace"}) - SEGMENTATION
"""Keys that a record of detection may have, with or without objects."""
_GUESSED = [one for name, one in READY.items() if name != "tf_vision"]  # it has no key of its own
_ENOUGH = 64
_ENOUGH_OF_A_SHARD = 32
_MOST_TRIED = 10_000
"""Records of a shard that are looked at for want of one that has features."""
_LARGEST_RECORD = 64 << 20
_MOST_UNREACHABLE = 2  # remote shards: each of a dead server takes a whole timeout
_NOTHING_TO_CHECK = ("BOX", "LAB", "IMG", "NAM", "TSK", "SET003", "EXA008")
NO_PROFILE = Profile(
    "none", "no expectation at all", {}, FieldMapping.only(), dict.fromkeys(_NOTHING_TO_CHECK, OFF)
)
"""Of records that fit none."""
AS_IMPORTED = Profile("none", "what Datumaro's import looks for in any records", {})
"""Of such records for Datumaro, whose import reads the keys that it knows."""


@dataclass
class KeyCounts:
    """How many records have each feature key.

    Attributes:
        records: how many were looked at; those without any feature say nothing and do not count.
        of: of each key with its kind.
        images: how many of them have an image, which is not empty.
        shard: the first that has a record that can be read.
    """

    records: int = 0
    images: int = 0
    of: Counter[tuple[str, Kind | None]] = field(default_factory=Counter)
    shard: str = ""

    def add(self, examples: ExampleBatch, most: int | None = None) -> None:
        """Count the records of a batch, of many the first."""
        if len(examples) > len(examples.refused):
            self.shard = self.shard or examples.records.shard
        has_any = np.zeros(len(examples), bool)
        for column in examples.lists.values():
            has_any[column.rows] = True
        rows = np.flatnonzero(has_any)[:most]
        self.records += len(rows)
        for found, column in examples.lists.items() if len(rows) else ():
            count = int(np.searchsorted(column.rows, rows[-1], "right"))
            self.of[found] += count
            if found == (keys.ENCODED, Kind.BYTES):
                values = column.values[: column.splits[count]]
                self.images += int(np.count_nonzero(values[:, 1]))

    @property
    def keys(self) -> Collection[str]:
        """The keys that are there, in their order."""
        return dict.fromkeys(key for key, _ in self.of)

    @property
    def common(self) -> Mapping[str, Kind | None]:
        """The keys that at least half of the records have, with their kinds."""
        return {key: kind for (key, kind), count in self.of.items() if 2 * count >= self.records}


def choose_profile(found: KeyCounts) -> tuple[Profile, str] | None:
    """The ready profile with the most of its keys, and why; None when the records fit none.

    One whose required keys are all there comes first, then one that needs no images where there are
    none. Of equals it is the one with the fewest keys.
    """
    if not found.records:
        return None
    common = found.common
    fits = [fit for fit in (_Fit(one, common) for one in _GUESSED) if fit.is_likely(found.keys)]
    if not fits:
        return None
    has_images = 2 * found.images >= found.records

    def rank(fit: _Fit) -> tuple[bool, bool, int, int]:
        lacks_images = keys.ENCODED in fit.required and not has_images
        return bool(fit.missing), lacks_images, -len(fit.present), len(fit.features)

    best = min(fits, key=rank)
    why = f"best fit: {len(best.present)} of its {len(best.features)} features are there"
    missing = ", ".join(best.missing)
    return best.profile, f"{why}, without {missing}" if missing else why


class _Fit:
    """What common keys have of a profile's features, in their kinds, and lack of the required."""

    def __init__(self, profile: Profile, common: Mapping[str, Kind | None]) -> None:
        self.profile = profile
        self.features = profile.features
        there = {key for key, spec in self.features.items() if common.get(key) is spec.kind}
        self.present = there - {keys.SHA256}  # Datumaro adds it to any
        self.required = [key for key, spec in self.features.items() if spec.required]
        self.missing = [key for key in self.required if key not in self.present]

    def is_likely(self, there: Collection[str]) -> bool:
        """Whether records may be meant to be of the profile.

        Those of detection have boxes, of whose keys one may be misspelt, or nothing but keys that
        they may have, as images without objects. Of other kinds all that is required is there.
        """
        box = self.profile.field_mapping.box
        if box != keys.BOX:
            return not self.missing
        if sum(key in there for key in box) >= len(box) - 1:
            return bool(self.present)  # the boxes are not those of a few records alone
        known = all(key in _KNOWN or key.startswith(keys.ATTRIBUTE_PREFIX) for key in there)
        return known and 2 * len(self.missing) <= len(self.required)


def profile_of(
    asked: Profile | None,
    shards: Sequence[Shard],
    max_record_bytes: int,
    implied: Profile | None = None,
) -> tuple[Profile, ChosenProfile, Misfit | None]:
    """The profile, why it is this one; and the records' features, where none fits them.

    Args:
        asked: the one that the user named.
        shards: whose first records are looked at.
        max_record_bytes: larger records are not read.
        implied: that of the receiver, in place of the one that fits best. Records of another kind
            do not fit it, however little it requires.
    """
    if asked is not None:
        return asked, ChosenProfile(asked.name, "asked for"), None
    found = _peek(shards, min(_LARGEST_RECORD, max_record_bytes))
    profile, why = choose_profile(found) or (None, "")
    if implied is not None and (not found.records or _is_read(implied, profile, found)):
        return implied, ChosenProfile(implied.name, "the receiver's"), None
    if implied is None and profile is not None:
        return profile, ChosenProfile(profile.name, why), None
    if not found.shard:
        return NO_PROFILE, ChosenProfile(NO_PROFILE.name, "no record could be read"), None
    layout = profile.name if profile and _has_boxes_elsewhere(profile) else ""
    misfit = Misfit(tuple(found.keys), layout, found.shard)
    return NO_PROFILE, ChosenProfile(NO_PROFILE.name, "no profile fits; pass --profile"), misfit


def _is_read(implied: Profile, profile: Profile | None, found: KeyCounts) -> bool:
    """Whether a receiver of the implied profile reads the records, whatever their defects.

    Where that is the OD API's keys, half of the records must have a name or boxes under them.
    """
    if profile is None or implied.field_mapping.box != keys.BOX:
        return profile is implied
    known = {keys.FILENAME, *keys.BOX}
    return not _has_boxes_elsewhere(profile) and not known.isdisjoint(found.common)


def _has_boxes_elsewhere(profile: Profile) -> bool:
    return profile.field_mapping.box not in (keys.BOX, ())


def _peek(shards: Sequence[Shard], limit: int) -> KeyCounts:
    """Count the keys of the first records; what cannot be read is reported by the examination."""
    found, unreachable = KeyCounts(), 0
    for shard in shards:
        if found.records >= _ENOUGH:
            break
        if shard.is_remote and unreachable == _MOST_UNREACHABLE:
            continue
        try:
            _peek_into(shard, found, limit)
        except (OSError, ZipEntryError):
            unreachable += shard.is_remote
    return found


def _peek_into(shard: Shard, found: KeyCounts, limit: int) -> None:
    tried, enough = 0, found.records + _ENOUGH_OF_A_SHARD
    with shard.open(read_ahead=False) as stream:
        for records in walk(stream, shard.name, max_record_bytes=limit):
            if isinstance(records, Damage):
                continue
            found.add(ExampleBatch.of(records), enough - found.records)
            tried += len(records)
            if found.records == enough or tried >= _MOST_TRIED:
                break

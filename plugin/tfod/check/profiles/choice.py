"""The profile of a check: what was asked for, or what the first records fit best, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tfod.check.dataset import Shard
from tfod.check.findings.report import ChosenProfile
from tfod.check.profiles.profile import OFF, READY, Profile
from tfod.check.records.result import Misfit
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.example.columns import ExampleBatch
from tfod.example.wire import Kind
from tfod.tfrecord.compression import ReadableStream
from tfod.tfrecord.reader import read_record_batch_stream
from tfod.tfrecord.storage.zip_entry import ZipEntryError

Sample: TypeAlias = "Mapping[str, tuple[Kind | None, bool]]"
"""The keys of one record, each with its kind and whether it has values (bytes: a non-empty one)."""

_EXACTLY = (*("keras_coco", "image_classification", "image_label", "slim_classification"),)
"""They fit wholly or not at all: what lacks one of their keys is of a kind that is not known."""
_WITH_IMAGES = ("open_images", "roboflow", "tf_detection_api")
"""From the narrowest to the widest."""
_WITHOUT_IMAGES = ("cvat",)
SEGMENTATION = frozenset(keys.IMAGE_MASKS.values())
"""Keys of DeepLab's records: masks of the whole image, and no boxes."""
_KNOWN = (keys.KNOWN_KEYS | {"image/channels", "image/colorspace"}) - SEGMENTATION
"""Keys that a record of detection may have, with or without objects."""
_SAMPLES = 64
_SAMPLES_OF_A_SHARD = 32
_MOST_TRIED = 10_000
"""Records of a shard that are looked at for want of one that can be a sample."""
_LARGEST_SAMPLE = 64 << 20
_MOST_UNREACHABLE = 2  # remote shards: each of a dead server takes a whole timeout
_NOTHING_TO_CHECK = ("BOX", "LAB", "IMG", "NAM", "TSK", "SET003", "EXA008")
_NO_PROFILE = Profile(
    "none", "no expectation at all", {}, FieldMapping.only(), dict.fromkeys(_NOTHING_TO_CHECK, OFF)
)


def samples_of(examples: ExampleBatch) -> list[Sample]:
    """What :func:`choose_profile` needs of each record; of one that cannot be read, no keys."""
    found: list[dict[str, tuple[Kind | None, bool]]] = [{} for _ in range(len(examples))]
    for column in examples.lists.values():
        there = np.ones(len(column.values), bool)
        if column.kind is Kind.BYTES:
            there = column.values[:, 1] > 0
        ends = np.concatenate(([0], np.cumsum(there)))[column.splits].tolist()
        for row, start, end in zip(column.rows.tolist(), ends[:-1], ends[1:], strict=True):
            found[row][column.key] = (column.kind, end > start)
    return list(found)


def choose_profile(samples: Sequence[Sample]) -> tuple[Profile, str] | None:
    """The ready profile that fits best, and why; None when none is near.

    A profile fits when at least half of the records have all its required features, of the right
    kind, no record has a key that speaks against it, and what is about objects has some, or
    nothing else: DeepLab's segmentation has all that Roboflow's images have, and no boxes.
    Where none fits, the nearest of the OD API's own is taken, if half of its required features or
    its boxes are there.
    """
    if not samples:
        return None
    images = sum(one.get(keys.ENCODED) == (Kind.BYTES, True) for one in samples)
    most_have = 2 * images >= len(samples)
    preferred = _WITH_IMAGES if most_have else _WITHOUT_IMAGES
    exact = [_Fit(READY[name], samples) for name in _EXACTLY]
    fits = [_Fit(READY[name], samples) for name in preferred]
    # Keys of images may be there without images, as in Datumaro's own test data.
    rest = [_Fit(READY[name], samples) for name in _WITH_IMAGES if name not in preferred]
    exact = [fit for fit in exact if fit.has_box or not fit.profile.field_mapping.box]
    for fit in (*exact, *fits, *rest):
        if fit.is_whole:
            return fit.profile, fit.reason(images)
    # Of equally near ones the widest: it asks for the least.
    nearest = min(reversed(fits), key=lambda fit: (not fit.is_near, fit.lacks))
    return (nearest.profile, nearest.shortfall()) if nearest.is_near else None


@dataclass(frozen=True)
class _Fit:
    """How well a profile fits the records."""

    profile: Profile
    samples: Sequence[Sample]

    def _is_common(self, found: Iterable[bool]) -> bool:
        """Whether it is so of at least half of the records."""
        return 2 * sum(found) >= len(self.samples)

    @cached_property
    def required(self) -> list[str]:
        """Keys of the features that it requires."""
        return [key for key, spec in self.profile.features.items() if spec.required]

    @cached_property
    def missing(self) -> list[str]:
        """Those that more than half of the records lack."""
        return [
            key
            for key in self.required
            if not self._is_common(self._has(one, key) for one in self.samples)
        ]

    @cached_property
    def against(self) -> list[str]:
        """Keys that speak against it and are there."""
        there = {key for one in self.samples for key in one}
        return [key for key in self.profile.speaks_against if key in there]

    @cached_property
    def has_box(self) -> bool:
        """Whether its box keys are there, and half of the records have any of its features.

        Shards beside a table of another kind do not make it one of detection. Of several keys one
        may be absent: it is misspelt, and the check says so.
        """
        box, features = self.profile.field_mapping.box, self.profile.features.keys()
        there = sum(any(key in one for one in self.samples) for key in box)
        return (
            there >= max(1, len(box) - 1)
            and bool(box)
            and self._is_common(not features.isdisjoint(one) for one in self.samples)
        )

    @property
    def is_whole(self) -> bool:
        together = (all(self._has(one, key) for key in self.required) for one in self.samples)
        return self._is_common(together) and not self.against and self.is_likely

    @property
    def is_near(self) -> bool:
        return self.has_box or (self.is_likely and 2 * len(self.missing) <= len(self.required))

    @property
    def is_likely(self) -> bool:
        """Records without objects are those of a detection dataset if they hold nothing else."""
        if not self.profile.field_mapping.box or self.has_box:
            return True
        known = self.profile.features.keys() | _KNOWN
        return all(
            key in known or key.startswith(keys.ATTRIBUTE_PREFIX)
            for one in self.samples
            for key in one
        )

    @property
    def lacks(self) -> int:
        return len(self.missing) + len(self.against)

    def _has(self, sample: Sample, key: str) -> bool:
        """Whether a record has a feature, of the right kind."""
        return sample.get(key, (None, False))[0] is self.profile.features[key].kind

    def reason(self, images: int) -> str:
        """Why it fits, for the report; ``images`` is how many records have one."""
        features, count = self.profile.features, len(self.required)
        present = sum(any(self._has(one, key) for one in self.samples) for key in features)
        without = "" if self.profile.images else f"{'few' if images else 'no'} images, and "
        what = f"all {count} required features" if count > 3 else _enumerated(self.required)
        fit = f"best fit: {without}{what} {_are(count)} there"
        return f"{fit}, with {present} of its {len(features)} features"

    def shortfall(self) -> str:
        """What keeps the nearest profile from fitting, for the report."""
        if self.missing:
            return f"nearest: {_enumerated(self.missing)} {_are(len(self.missing))} missing"
        if self.against:
            return f"nearest: {_enumerated(self.against)} {_are(len(self.against))} unexpected"
        return f"nearest: few records have all of {_enumerated(self.required)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _enumerated(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def profile_of(
    asked: Profile | None,
    shards: Sequence[Shard],
    max_record_bytes: int,
    implied: Profile | None = None,
) -> tuple[Profile, ChosenProfile, Misfit | None]:
    """The profile, why it is this one; and the records' features, where none fits them.

    Args:
        asked: the one that the user named.
        shards: where samples come from.
        max_record_bytes: larger records are not read.
        implied: that of the receiver, in place of the one that fits best. Records of another kind
            do not fit it, however little it requires.
    """
    if asked is not None:
        return asked, ChosenProfile(asked.name, "asked for"), None
    samples: list[Sample] = []
    first = ""
    for name, found in _samples(shards, min(_LARGEST_SAMPLE, max_record_bytes)):
        first = first or name
        samples += found
        if len(samples) >= _SAMPLES:
            break
    chosen = choose_profile(samples)
    if implied is not None and (not samples or _is_read(implied, chosen, samples)):
        return implied, ChosenProfile(implied.name, "the receiver's"), None
    if implied is None and chosen is not None:
        return chosen[0], ChosenProfile(chosen[0].name, chosen[1]), None
    if not first:
        return _NO_PROFILE, ChosenProfile(_NO_PROFILE.name, "no record could be read"), None
    found_keys = tuple(dict.fromkeys(key for sample in samples for key in sample))
    why = ChosenProfile(_NO_PROFILE.name, "no profile fits; pass --profile")
    layout = chosen[0].name if chosen is not None and _has_boxes_elsewhere(chosen[0]) else ""
    return _NO_PROFILE, why, Misfit(found_keys, layout, first)


def _is_read(
    implied: Profile, chosen: tuple[Profile, str] | None, samples: Sequence[Sample]
) -> bool:
    """Whether a receiver of the implied profile reads the records, whatever their defects.

    Where that is the OD API's keys, half of the records must have a name or boxes under them.
    """
    if chosen is None or implied.field_mapping.box != keys.BOX:
        return chosen is not None and chosen[0] is implied
    if _has_boxes_elsewhere(chosen[0]):
        return False
    known = (keys.FILENAME, *keys.BOX)
    return 2 * sum(not one.keys().isdisjoint(known) for one in samples) >= len(samples)


def _has_boxes_elsewhere(profile: Profile) -> bool:
    return profile.field_mapping.box not in (keys.BOX, ())


def _samples(shards: Sequence[Shard], limit: int) -> Iterator[tuple[str, list[Sample]]]:
    """Of each shard that has records some samples, if there are any."""
    unreachable = 0
    for shard in shards:
        if shard.is_remote and unreachable == _MOST_UNREACHABLE:
            continue
        try:
            with shard.open(read_ahead=False) as stream:
                yield from _read_samples(stream, shard.name, limit)
        except OSError:
            unreachable += shard.is_remote


def _read_samples(
    stream: ReadableStream, name: str, limit: int
) -> Iterator[tuple[str, list[Sample]]]:
    found: list[Sample] = []
    tried = readable = 0
    batches = read_record_batch_stream(
        stream, name, on_damage=lambda _: None, max_record_bytes=limit
    )
    try:
        for records in batches:
            examples = ExampleBatch.of(records)
            samples = samples_of(examples)[: _MOST_TRIED - tried]
            tried += len(samples)
            readable += len(examples) - len(examples.refused)
            # What has no features at all says nothing about the others.
            found += filter(None, samples)
            if len(found) >= _SAMPLES_OF_A_SHARD or tried == _MOST_TRIED:
                break
    except (OSError, ZipEntryError):
        pass  # found again, and reported, when the records are examined
    if readable:
        yield name, found[:_SAMPLES_OF_A_SHARD]

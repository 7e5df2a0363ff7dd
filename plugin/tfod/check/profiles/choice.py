"""Which ready profile fits a shard, judged from some of its records, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tfod.check.profiles.profile import READY, Profile
from tfod.detection import keys
from tfod.example.columns import ExampleBatch
from tfod.example.wire import Kind

Sample: TypeAlias = "Mapping[str, tuple[Kind | None, bool]]"
"""The keys of one record, each with its kind and whether it has values (bytes: a non-empty one)."""

_EXACTLY = ("keras_coco", "image_classification", "image_label", "slim_classification")
"""They fit wholly or not at all: what lacks one of their keys is of a kind that is not known."""
_WITH_IMAGES = ("open_images", "roboflow", "tf_detection_api")
"""From the narrowest to the widest."""
_WITHOUT_IMAGES = ("cvat",)
_MOST_NAMES = 3
_KNOWN = keys.KNOWN_KEYS | {"image/channels", "image/colorspace"}
"""Keys that a record of detection may have, with or without objects."""


def samples_of(examples: ExampleBatch) -> list[Sample]:
    """What :func:`choose_profile` needs of each record; of one that cannot be read, no keys."""
    found: list[dict[str, tuple[Kind | None, bool]]] = [{} for _ in range(len(examples))]
    for column in (*examples.columns.values(), *examples.others.values()):
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
    exact = [_Fit.of(READY[name], samples) for name in _EXACTLY]
    fits = [_Fit.of(READY[name], samples) for name in preferred]
    # Keys of images may be there without images, as in Datumaro's own test data.
    rest = [_Fit.of(READY[name], samples) for name in _WITH_IMAGES if name not in preferred]
    for fit in (*exact, *fits, *rest):
        if fit.is_whole:
            return fit.profile, fit.reason(images)
    # Of equally near ones the widest: it asks for the least.
    nearest = min(reversed(fits), key=lambda fit: (not fit.is_near, fit.lacks))
    return (nearest.profile, nearest.shortfall()) if nearest.is_near else None


@dataclass(frozen=True)
class _Fit:
    """How well a profile fits.

    Attributes:
        required: the features it requires.
        missing: of them, those that more than half of the records lack.
        is_together: at least half of the records have all required features.
        against: keys that speak against it and are there.
        present: how many of its features are there in any record.
        has_box: all its box keys are there, and at least half of the records have any of its
            features: shards beside a table of another kind do not make it one of detection.
        has_others: there are keys that mean nothing to it or to the OD API.
    """

    profile: Profile
    required: tuple[str, ...]
    missing: tuple[str, ...]
    is_together: bool
    against: tuple[str, ...]
    present: int
    has_box: bool
    has_others: bool

    @classmethod
    def of(cls, profile: Profile, samples: Sequence[Sample]) -> _Fit:
        features = profile.features
        asked = [(key, spec.kind) for key, spec in features.items() if spec.required]
        together = [all(_has(one, key, kind) for key, kind in asked) for one in samples]
        counts = {key: sum(_has(one, key, kind) for one in samples) for key, kind in asked}
        box = profile.field_mapping.box
        alike = sum(not features.keys().isdisjoint(one) for one in samples)
        return cls(
            profile=profile,
            required=tuple(counts),
            missing=tuple(key for key, count in counts.items() if 2 * count < len(samples)),
            is_together=2 * sum(together) >= len(samples),
            against=tuple(
                key for key in profile.speaks_against if any(key in one for one in samples)
            ),
            present=sum(
                any(_has(one, key, spec.kind) for one in samples) for key, spec in features.items()
            ),
            has_box=bool(box)
            and 2 * alike >= len(samples)
            and all(any(key in one for one in samples) for key in box),
            has_others=any(
                key not in features and not _is_known(key) for one in samples for key in one
            ),
        )

    @property
    def is_whole(self) -> bool:
        return self.is_together and not self.against and self.is_likely

    @property
    def is_near(self) -> bool:
        return self.has_box or (self.is_likely and 2 * len(self.missing) <= len(self.required))

    @property
    def is_likely(self) -> bool:
        """Records without objects are those of a detection dataset if they hold nothing else."""
        return not self.profile.field_mapping.box or self.has_box or not self.has_others

    @property
    def lacks(self) -> int:
        return len(self.missing) + len(self.against)

    def reason(self, images: int) -> str:
        """Why it fits, for the report; ``images`` is how many records have one."""
        without = "" if self.profile.images else f"{'few' if images else 'no'} images, and "
        if len(self.required) <= _MOST_NAMES:
            what = _enumerated(self.required)
        else:
            what = f"all {len(self.required)} required features"
        return (
            f"best fit: {without}{what} {_are(len(self.required))} there, with "
            f"{self.present} of its {len(self.profile.features)} features"
        )

    def shortfall(self) -> str:
        """What keeps the nearest profile from fitting, for the report."""
        if self.missing:
            return f"nearest: {_enumerated(self.missing)} {_are(len(self.missing))} missing"
        if self.against:
            return f"nearest: {_enumerated(self.against)} would not be there"
        return f"nearest: few records have all of {_enumerated(self.required)}"


def _is_known(key: str) -> bool:
    return key in _KNOWN or key.startswith(keys.ATTRIBUTE_PREFIX)


def _has(sample: Sample, key: str, kind: Kind) -> bool:
    return sample.get(key, (None, False))[0] is kind


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _enumerated(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

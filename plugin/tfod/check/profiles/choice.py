"""Which ready profile fits a shard by some of its records, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
    exact = [_Fit(READY[name], samples) for name in _EXACTLY]
    fits = [_Fit(READY[name], samples) for name in preferred]
    # Keys of images may be there without images, as in Datumaro's own test data.
    rest = [_Fit(READY[name], samples) for name in _WITH_IMAGES if name not in preferred]
    for fit in (*exact, *fits, *rest):
        if fit.is_whole:
            return fit.profile, fit.reason(images)
    # Of equally near ones the widest: it asks for the least.
    nearest = min(
        reversed(fits), key=lambda fit: (not fit.is_near, len(fit.missing) + len(fit.against))
    )
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
        """Whether all its box keys are there, and half of the records have any of its features.

        Shards beside a table of another kind do not make it one of detection.
        """
        box, features = self.profile.field_mapping.box, self.profile.features.keys()
        return (
            bool(box)
            and self._is_common(not features.isdisjoint(one) for one in self.samples)
            and all(any(key in one for one in self.samples) for key in box)
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

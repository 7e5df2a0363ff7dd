"""What a profile makes of feature keys: which are expected, and what rules are to call them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tfod.check.profiles.profile import Profile
from tfod.check.records.boxes import BOX_KEY
from tfod.detection.columns import usual_keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.detection.problems import READ_KINDS, READ_ONCE
from tfod.example.wire import Kind


def own_key(field_mapping: FieldMapping, key: str) -> str:
    """What the records of a mapping call what the OD API has under a key."""
    if key == BOX_KEY:
        return field_mapping.box_prefix or key
    return usual_keys(field_mapping)[0].get(key, key)


@dataclass(frozen=True)
class Expectation:
    """What a profile makes of feature keys.

    Attributes:
        profile: which.
        exa003_says_names: whether EXA003 says no less severely than NAM001 that a file name is
            missing.
    """

    profile: Profile
    exa003_says_names: bool = True

    @cached_property
    def features(self) -> FeatureDescription:
        """What is expected of each key: by the profile, and by readers of others, wherever they
        are.

        CVAT's layout has no image/format, and an import of it stops at one that is a number.
        """
        field_mapping = self.profile.field_mapping
        found = {}
        names, hidden, moved = usual_keys(field_mapping)
        for key, kinds in READ_KINDS.items():
            own = names.get(key, key)
            if own in names.values() or own not in hidden | moved:
                found[own] = _optional(kinds, key in READ_ONCE)
        if len(field_mapping.box) == 1:
            found[field_mapping.box[0]] = _optional((Kind.FLOAT,))
        if field_mapping.image_id:
            found[field_mapping.image_id] = _optional((Kind.INT64, Kind.BYTES), is_one=True)
        if field_mapping.annotation_id:
            found[field_mapping.annotation_id] = _optional((Kind.INT64,))
        return {**found, **self.profile.features}


def _optional(kinds: Sequence[Kind], is_one: bool = False) -> FeatureSpec:
    if not is_one:
        return FeatureSpec(kinds[0], also=tuple(kinds[1:]))
    default = b"" if kinds[0] is Kind.BYTES else 0
    return FeatureSpec(kinds[0], (), default, also=tuple(kinds[1:]))

"""What a profile makes of feature keys: which are expected, and what rules are to call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfod.check.profiles.profile import Profile
from tfod.detection import keys
from tfod.detection.columns import usual_keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.detection.problems import READ_KINDS, READ_ONCE
from tfod.example.wire import Kind

BOX_PREFIX = keys.XMIN.rpartition("/")[0]


def renamed_keys(field_mapping: FieldMapping) -> dict[str, str]:
    """The OD API's keys that a mapping has others in place of, with those."""
    own = field_mapping.by_name
    found = {key: own[role] for role, key in FieldMapping().by_name.items() if key}
    if len(field_mapping.box) == len(keys.BOX):
        found.update(zip(keys.BOX, field_mapping.box, strict=True))
    found[BOX_PREFIX] = field_mapping.box_prefix
    return {key: other for key, other in found.items() if other and other != key}


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
        """What is expected of each key."""
        return expected_features(self.profile)

    @cached_property
    def renamed(self) -> Mapping[str, str]:
        """The OD API's keys that the profile has others in place of, with those."""
        return renamed_keys(self.profile.field_mapping)


def expected_features(profile: Profile) -> FeatureDescription:
    """What is expected of each key: by the profile, and by readers of others, wherever they are.

    CVAT's layout has no image/format, and an import of it stops at one that is a number.
    """
    field_mapping = profile.field_mapping
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
    return {**found, **profile.features}


def _optional(kinds: Sequence[Kind], is_one: bool = False) -> FeatureSpec:
    if not is_one:
        return FeatureSpec(kinds[0], also=tuple(kinds[1:]))
    default = b"" if kinds[0] is Kind.BYTES else 0
    return FeatureSpec(kinds[0], (), default, also=tuple(kinds[1:]))

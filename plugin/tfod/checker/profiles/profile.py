"""Profiles: a layout that records are expected to have, and how severe each rule is for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.checker.finding import Severity
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import PROFILES, FeatureDescription
from tfod.sources.layouts import LAYOUTS, Layout

OFF = None
"""In place of a severity: the rule does not apply."""

Severities = Mapping[str, "Severity | None"]
"""Code of a rule, or the three letters of a family, to how severe it is (None: off)."""


def severities(
    *, error: str = "", warning: str = "", info: str = "", off: str = ""
) -> dict[str, Severity | None]:
    """Severities of codes and families, which are separated by spaces."""
    levels = {Severity.ERROR: error, Severity.WARNING: warning, Severity.INFO: info, OFF: off}
    return {name: level for level, names in levels.items() for name in names.split()}


@dataclass(frozen=True)
class Profile(Layout):
    """A layout, and how severe the findings about it are.

    Attributes:
        severities: the severities of rules that differ from their own.
    """

    severities: Severities = field(default_factory=dict)


_NO_NAMES = severities(off="NAM LAB BOX TSK", error="LAB019")  # at which an import stops


_SEVERITIES: Mapping[str, Severities] = {
    "cvat": severities(off="IMG001 NAM010 NAM011"),  # no trainer reads them
    "roboflow": severities(off="NAM007 NAM012"),
    # What comes once for each annotation; whole paths; no label map; ids from 0.
    "keras_coco": severities(off="IMG010 NAM002 TSK006 BOX010 NAM005 LAB001 LAB018 LAB009 LAB012"),
    "slim_classification": _NO_NAMES,
    "image_classification": _NO_NAMES,
    "image_label": _NO_NAMES | severities(off="IMG002"),
}


def profile_of_layout(layout: Layout) -> Profile:
    """Add the severities of the check to a layout."""
    own = _SEVERITIES.get(layout.name, {})
    return Profile(layout.name, layout.title, layout.features, layout.field_mapping, own)


READY = {name: profile_of_layout(layout) for name, layout in LAYOUTS.items()}
"""The profiles that have a name."""


_MEANINGS: dict[str, str] = {
    keys.MASK: "mask of each object, as PNGs or numbers",
    keys.EXTRA_ATTRIBUTES: "what the other keys cannot say, as JSON; for tfod only",
    **{attribute.key: f"{attribute.name} of each object" for attribute in keys.OBJECT_ATTRIBUTES},
    **{
        key: spec.meaning
        for features in reversed(list(PROFILES.values()))
        for key, spec in features.items()
    },
}


def known_meaning(key: str) -> str:
    """What a key of the known formats says; "" for others."""
    return _MEANINGS.get(key, "")


def field_mapping_among(
    features: FeatureDescription, usual: FieldMapping | None = None
) -> FieldMapping:
    """The field mapping, by default the TF Object Detection API's, of keys that are features."""
    usual = usual or FieldMapping()
    found: dict[str, Any] = {
        name: key if key in features else None for name, key in usual.by_name.items()
    }
    if all(key in features for key in usual.box):
        found["box"] = usual.box
    return FieldMapping.only(**found)


def profile_of_features(name: str, title: str, features: FeatureDescription) -> Profile:
    """A profile of nothing but features.

    FieldMapping and severities are those of the ready profile that has most of its keys among them.
    """
    nearest = max(READY.values(), key=lambda ready: _likeness(ready, features))
    found = field_mapping_among(features, nearest.field_mapping)
    return Profile(
        name, title, features, found, nearest.severities if found.all_keys else _NO_NAMES
    )


def _likeness(ready: Profile, features: FeatureDescription) -> tuple[int, bool]:
    """How many keys they share, and whether both hold images."""
    mapping = ready.field_mapping
    shared = len(mapping.all_keys & features.keys())
    return shared, (mapping.encoded in ready.features) == (mapping.encoded in features)

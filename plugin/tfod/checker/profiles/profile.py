"""Profiles: the expected layout of records, and the severities of rules for it."""

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
"""Used instead of a severity if the rule does not apply."""

Severities = Mapping[str, "Severity | None"]
"""Severity by code of a rule or by the three letters of a family; None for off."""


def severities(
    *, error: str = "", warning: str = "", info: str = "", off: str = ""
) -> dict[str, Severity | None]:
    """Return the severities of codes and families, which are separated by spaces."""
    levels = {Severity.ERROR: error, Severity.WARNING: warning, Severity.INFO: info, OFF: off}
    return {name: level for level, names in levels.items() for name in names.split()}


@dataclass(frozen=True)
class Profile(Layout):
    """A layout, the severities of rules that differ from their defaults for it, and its file."""

    severities: Severities = field(default_factory=dict)
    path: str = field(default="", compare=False)


_NO_NAMES = severities(off="NAM LAB BOX TSK", error="LAB019")  # imports fail because of LAB019


_SEVERITIES: Mapping[str, Severities] = {
    "cvat": severities(off="IMG001 NAM010 NAM011"),  # not read by trainers
    "roboflow": severities(off="NAM007 NAM012"),
    # One record per annotation, file names that are paths, no label map, and ids from 0.
    "keras_coco": severities(off="IMG010 NAM002 TSK006 BOX010 NAM005 LAB001 LAB018 LAB009 LAB012"),
    "slim_classification": _NO_NAMES,
    "image_classification": _NO_NAMES,
    "image_label": _NO_NAMES | severities(off="IMG002"),
}


def layout_to_profile(layout: Layout) -> Profile:
    """Return the profile of a layout."""
    levels = _SEVERITIES.get(layout.name, {})
    return Profile(layout.name, layout.title, layout.features, layout.field_mapping, levels)


READY = {name: layout_to_profile(layout) for name, layout in LAYOUTS.items()}
"""The built-in profiles, by name."""


_MEANINGS: dict[str, str] = {
    keys.MASK: "mask of each object, as PNGs or numbers",
    keys.EXTRA_ATTRIBUTES: "further attributes, as JSON; for tfod only",
    **{attribute.key: f"{attribute.name} of each object" for attribute in keys.OBJECT_ATTRIBUTES},
    **{
        key: spec.meaning
        for features in reversed(list(PROFILES.values()))
        for key, spec in features.items()
    },
}


def get_meaning(key: str) -> str:
    """Return the meaning of a key of the known formats; "" for other keys."""
    return _MEANINGS.get(key, "")


def restrict_field_mapping(
    features: FeatureDescription, usual: FieldMapping | None = None
) -> FieldMapping:
    """Return a field mapping, by default the OD API's, without keys that are not features."""
    usual = usual or FieldMapping()
    keys = usual.by_name.items()
    mapping: dict[str, Any] = {name: key if key in features else None for name, key in keys}
    if all(key in features for key in usual.box):
        mapping["box"] = usual.box
    return FieldMapping.only(**mapping)


def features_to_profile(name: str, title: str, features: FeatureDescription) -> Profile:
    """Make a profile from features, similar to the built-in profile that shares most keys."""
    nearest = max(READY.values(), key=lambda profile: _similarity(profile, features))
    mapping = restrict_field_mapping(features, nearest.field_mapping)
    levels = nearest.severities if mapping.all_keys else _NO_NAMES
    return Profile(name, title, features, mapping, levels)


def _similarity(profile: Profile, features: FeatureDescription) -> tuple[int, bool]:
    """Return the number of shared keys, and whether both or neither have images."""
    mapping = profile.field_mapping
    shared = len(mapping.all_keys & features.keys())
    return shared, (mapping.encoded in profile.features) == (mapping.encoded in features)

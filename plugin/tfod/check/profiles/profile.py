"""Profiles: what a record is expected to be, and which rules apply how severely.

A profile is a feature description, the keys that play a part (where the image is, where its
name), and the rules whose severity differs from their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfod.check.finding import Severity
from tfod.detection import keys
from tfod.detection.columns import usual_keys
from tfod.detection.features import field_mapping
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import PROFILES, FeatureDescription, FeatureSpec
from tfod.detection.problems import READ_KINDS, READ_ONCE
from tfod.example.wire import Kind

OFF = None
"""In place of a severity: the rule does not apply."""

BOX_KEY = keys.XMIN.rpartition("/")[0]
"""What the keys of the OD API's boxes begin with."""
Severities = Mapping[str, "Severity | None"]
"""Code of a rule, or the three letters of a family, to how severe it is (None: off)."""


def severities(
    *, error: str = "", warning: str = "", info: str = "", off: str = ""
) -> dict[str, Severity | None]:
    """Severities of codes and families, which are separated by spaces."""
    levels = {Severity.ERROR: error, Severity.WARNING: warning, Severity.INFO: info, OFF: off}
    return {name: level for level, names in levels.items() for name in names.split()}


@dataclass(frozen=True)
class Profile:
    """What is expected of a shard.

    Attributes:
        name: what ``--profile`` calls it.
        title: what it is for, in one line.
        features: each feature's kind, shape, default and meaning.
        field_mapping: which of them is the image, its name, its boxes, …
        severities: of rules that are of another severity than their own.
    """

    name: str
    title: str
    features: FeatureDescription
    field_mapping: FieldMapping = field(default_factory=FieldMapping)
    severities: Severities = field(default_factory=dict)

    @cached_property
    def expected(self) -> FeatureDescription:
        """What is expected of each key: by the profile, and of others by whoever reads them.

        CVAT's layout has no image/format, and an import of it stops at one that is a number.
        """
        mapping, found = self.field_mapping, dict[str, FeatureSpec]()
        names, hidden, moved = usual_keys(mapping)
        for key, kinds in READ_KINDS.items():
            own = names.get(key, key)
            if own in names.values() or own not in hidden | moved:
                found[own] = _optional(kinds, key in READ_ONCE)
        if len(mapping.box) == 1:
            found[mapping.box[0]] = _optional((Kind.FLOAT,))
        if mapping.image_id:
            found[mapping.image_id] = _optional((Kind.INT64, Kind.BYTES), is_one=True)
        if mapping.annotation_id:
            found[mapping.annotation_id] = _optional((Kind.INT64,))
        return {**found, **self.features}

    def own(self, key: str) -> str:
        """What the records call what the OD API has under a key."""
        if key == BOX_KEY:
            return self.field_mapping.box_prefix or key
        return usual_keys(self.field_mapping)[0].get(key, key)


def _optional(kinds: Sequence[Kind], is_one: bool = False) -> FeatureSpec:
    if not is_one:
        return FeatureSpec(kinds[0], also=tuple(kinds[1:]))
    default = b"" if kinds[0] is Kind.BYTES else 0
    return FeatureSpec(kinds[0], (), default, also=tuple(kinds[1:]))


_NO_NAMES = severities(off="NAM LAB BOX TSK", error="LAB019")  # at which an import stops


def _ready(name: str, title: str, **more: Any) -> Profile:
    return Profile(name, title, PROFILES[name], **more)


READY = {
    profile.name: profile
    for profile in (
        _ready(
            "cvat",
            "annotations as CVAT's TFRecord 1.0 has them, ready to upload",
            severities=severities(off="IMG001 NAM010 NAM011"),  # no trainer reads them
        ),
        _ready("tf_detection_api", "ready to train with the TF Object Detection API"),
        _ready("tf_vision", "ready to train with TF-Vision or MediaPipe Model Maker"),
        _ready(
            "roboflow",
            "Roboflow's TFRecord export",
            severities=severities(off="NAM007 NAM012"),
        ),
        _ready("open_images", "Open Images as create_oid_tf_record.py writes it"),
        _ready(
            "keras_coco",
            "COCO as in the Keras guide: one record an annotation, boxes in pixels",
            field_mapping=field_mapping.KERAS_COCO,
            # What comes once for each annotation; whole paths; no label map; ids from 0.
            severities=severities(
                off="IMG010 NAM002 TSK006 BOX010 NAM005 LAB001 LAB018 LAB009 LAB012"
            ),
        ),
        _ready(
            "slim_classification",
            "images with one label, as TF-Slim writes them",
            field_mapping=field_mapping.SLIM_CLASSIFICATION,
            severities=_NO_NAMES,
        ),
        _ready(
            "image_classification",
            "images with one label, as in TensorFlow's tutorial",
            field_mapping=field_mapping.IMAGE_CLASSIFICATION,
            severities=_NO_NAMES,
        ),
        _ready(
            "image_label",
            "images, encoded or raw, with one label",
            field_mapping=field_mapping.IMAGE_LABEL,
            severities=_NO_NAMES | severities(off="IMG002"),
        ),
    )
}
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

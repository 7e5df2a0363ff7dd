"""The profile of a check: the requested one, or the one for the layout of the first records."""

from __future__ import annotations

from collections.abc import Sequence

from tfod.checker.analysis.result import UnmatchedRecords
from tfod.checker.profiles.profile import Profile, layout_to_profile, severities
from tfod.checker.report import ChosenProfile
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.sources.layouts import MAX_RECORD_BYTES, KeyCounts, choose_layout, count_keys
from tfod.sources.resolved import Shard

_NOT_APPLICABLE = severities(off="BOX LAB IMG NAM TSK SET003 EXA008")
NO_PROFILE = Profile("none", "no expectations", {}, FieldMapping.only(), _NOT_APPLICABLE)
"""The profile for records that match no other."""
AS_IMPORTED = Profile("none", "the keys that Datumaro's import reads", {})
"""The profile for such records if the receiver is Datumaro, which reads the keys that it knows."""


def choose_profile(
    requested: Profile | None,
    shards: Sequence[Shard],
    max_record_bytes: int,
    implied: Profile | None = None,
) -> tuple[Profile, ChosenProfile, UnmatchedRecords | None]:
    """Choose a profile, with the reason, and the records' features if no profile matches.

    Args:
        requested: profile that the user requested.
        shards: shards whose first records are read.
        max_record_bytes: larger records are not read.
        implied: profile of the receiver, used instead of the best match if it reads the layout.
    """
    if requested is not None:
        return (
            requested,
            ChosenProfile(requested.name, "requested", requested.path or requested.name),
            None,
        )
    counts = count_keys(shards, min(MAX_RECORD_BYTES, max_record_bytes))
    layout, reason = choose_layout(counts) or (None, "")
    profile = layout_to_profile(layout) if layout else None
    if implied is not None and (not counts.records or _is_read(implied, profile, counts)):
        return implied, ChosenProfile(implied.name, "used by the receiver"), None
    if implied is None and profile is not None:
        return profile, ChosenProfile(profile.name, reason), None
    if not counts.shard:
        return NO_PROFILE, ChosenProfile(NO_PROFILE.name, "no record could be read"), None
    other = profile.name if profile and profile.has_custom_boxes else ""
    unmatched = UnmatchedRecords(tuple(counts.keys), other, counts.shard)
    reason = "no profile matches; pass --profile"
    return NO_PROFILE, ChosenProfile(NO_PROFILE.name, reason), unmatched


def _is_read(implied: Profile, profile: Profile | None, counts: KeyCounts) -> bool:
    """Return whether a receiver reads such records: for the OD API, half have a name or boxes."""
    if profile is None or implied.field_mapping.box != keys.BOX:
        return profile is not None and profile.name == implied.name
    name_and_boxes = {keys.FILENAME, *keys.BOX}
    return not profile.has_custom_boxes and not name_and_boxes.isdisjoint(counts.common)

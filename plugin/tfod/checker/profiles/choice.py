"""The profile of a check: the requested one, or the one for the layout of the first records."""

from __future__ import annotations

from collections.abc import Sequence

from tfod.checker.analysis.result import UnmatchedRecords
from tfod.checker.profiles.profile import OFF, Profile, profile_of_layout
from tfod.checker.report import ChosenProfile
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.sources.layouts import MAX_RECORD_BYTES, KeyCounts, choose_layout, peek
from tfod.sources.resolved import Shard

_NOTHING_TO_CHECK = ("BOX", "LAB", "IMG", "NAM", "TSK", "SET003", "EXA008")
NO_PROFILE = Profile(
    "none", "no expectation at all", {}, FieldMapping.only(), dict.fromkeys(_NOTHING_TO_CHECK, OFF)
)
"""Of records that fit none."""
AS_IMPORTED = Profile("none", "what Datumaro's import looks for in any records", {})
"""Of such records for Datumaro, whose import reads the keys that it knows."""


def profile_of(
    asked: Profile | None,
    shards: Sequence[Shard],
    max_record_bytes: int,
    implied: Profile | None = None,
) -> tuple[Profile, ChosenProfile, UnmatchedRecords | None]:
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
    counts = peek(shards, min(MAX_RECORD_BYTES, max_record_bytes))
    layout, reason = choose_layout(counts) or (None, "")
    profile = profile_of_layout(layout) if layout else None
    if implied is not None and (not counts.records or _is_read(implied, profile, counts)):
        return implied, ChosenProfile(implied.name, "the receiver's"), None
    if implied is None and profile is not None:
        return profile, ChosenProfile(profile.name, reason), None
    if not counts.shard:
        return NO_PROFILE, ChosenProfile(NO_PROFILE.name, "no record could be read"), None
    other = profile.name if profile and profile.has_other_boxes else ""
    unmatched = UnmatchedRecords(tuple(counts.keys), other, counts.shard)
    return NO_PROFILE, ChosenProfile(NO_PROFILE.name, "no profile fits; pass --profile"), unmatched


def _is_read(implied: Profile, profile: Profile | None, counts: KeyCounts) -> bool:
    """Whether a receiver of the implied profile reads the records, whatever their defects.

    For the OD API's keys, half of the records must have a name or boxes under them.
    """
    if profile is None or implied.field_mapping.box != keys.BOX:
        return profile is not None and profile.name == implied.name
    known = {keys.FILENAME, *keys.BOX}
    return not profile.has_other_boxes and not known.isdisjoint(counts.common)

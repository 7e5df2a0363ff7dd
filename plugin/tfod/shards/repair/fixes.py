"""Which function fixes what which rule finds in a record, and in which order they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from tfod.shards.repair import box_fixes, class_fixes, record_fixes
from tfod.shards.repair.changes import Change
from tfod.shards.repair.record import EditedRecord

Fix: TypeAlias = "Callable[[EditedRecord], Iterator[Change]]"
"""Changes a record, and yields what it did. What it cannot be certain of it leaves alone."""

FIXES: tuple[tuple[str, Fix], ...] = (
    # Dtypes and shapes first, since the others look at values.
    ("EXA007", record_fixes.keep_the_last),
    ("EXA006", record_fixes.remove_empty_features),
    ("EXA004", record_fixes.convert_dtypes),
    ("EXA005", record_fixes.correct_shapes),
    ("EXA003", record_fixes.add_missing),
    ("BOX002", box_fixes.drop_not_finite),
    ("BOX006", box_fixes.put_in_order),
    ("BOX003", box_fixes.clip_far_outside),
    ("BOX004", box_fixes.clip_slightly_outside),
    ("BOX007", box_fixes.drop_without_area),
    ("BOX009", box_fixes.drop_duplicates),
    ("LAB011", class_fixes.spell_as_the_map),
    ("LAB010", class_fixes.name_by_id),
    ("LAB008", class_fixes.follow_the_text),
    ("LAB014", class_fixes.add_text_or_id),
    ("IMG004", record_fixes.write_format),
    ("IMG014", record_fixes.write_format_of_raw),
    ("IMG006", record_fixes.write_size),
    ("IMG012", record_fixes.write_positive_size),
    ("IMG008", record_fixes.write_digest),
    ("NAM007", record_fixes.write_source_id),
)
_OF_LAYOUT = frozenset({"EXA003", "EXA004", "EXA005", "EXA006", "EXA007"})
_OF_EACH_BOX = frozenset({"BOX002", "BOX003", "BOX004", "BOX006", "BOX007"})
_MOST_ROUNDS = 4


def fix_record(record: EditedRecord, codes: frozenset[str]) -> list[Change]:
    """Fix what rules of these codes find in a record; return what was done."""
    done: list[Change] = []
    for _ in range(_MOST_ROUNDS):  # what is fixed may show more, as two objects that became equal
        found = list(_round(record, codes))
        done += found
        if not found:
            break
    return done


def _round(record: EditedRecord, codes: frozenset[str]) -> Iterator[Change]:
    for code, fix in FIXES:
        if code in codes and not _is_known_sound(record, code):
            for change in fix(record):
                yield replace(change, code=code)


def _is_known_sound(record: EditedRecord, code: str) -> bool:
    """Whether it is known that a rule finds nothing, as of most records it is."""
    if code in _OF_LAYOUT:
        return record.layout_codes is not None and code not in record.layout_codes
    return code in _OF_EACH_BOX and record.boxes_are_sound

"""How the renderers say things: the verdict, amounts, places."""

from __future__ import annotations

from collections.abc import Iterator

from tfod_validator.amounts import plural
from tfod_validator.finding import Finding, Severity
from tfod_validator.receivers import ANY, RECEIVERS
from tfod_validator.render.visible import visible
from tfod_validator.report import Report

SEVEREST_FIRST = tuple(sorted(Severity, key=lambda one: -one.rank))
_UNITS = ("kB", "MB", "GB", "TB")


def size(count: int | None) -> str:
    """Bytes as people say them."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def count_in(count: int, places: int, noun: str, what: str = "") -> str:
    """``211 more in 6 shards``; without places only the count."""
    counted = f"{count:,} {what}".rstrip()
    return f"{counted} in {plural(places, noun)}" if places else counted


def verdict(report: Report) -> str:
    """``VALID`` or ``INVALID``, and for whom unless it is for any: ``VALID for CVAT``."""
    return ("VALID" if report.valid else "INVALID") + _for_whom(report)


def verdict_as_title(report: Report) -> str:
    """The same in small letters: ``Valid for CVAT``."""
    return ("Valid" if report.valid else "Invalid") + _for_whom(report)


def _for_whom(report: Report) -> str:
    return "" if report.receiver == ANY.name else f" for {RECEIVERS[report.receiver].title}"


def tally(report: Report) -> str:
    """``2 errors, 1 warning, 0 infos``, and which level fails if it is not errors."""
    found = ", ".join(
        plural(report.counts.by_severity.get(one, 0), one.value) for one in SEVEREST_FIRST
    )
    level = report.fail_on
    return found if level is Severity.ERROR else f"{found} ({level.value}s fail, too)"


def amounts(report: Report) -> str:
    """What was looked at: ``6 shards, 1,204 records, 1,204 pictures, 8,310 boxes``."""
    counts = report.counts
    nouns = ("shard", "record", "picture", "box")
    numbers = (counts.shards, counts.records, counts.pictures, counts.boxes)
    return ", ".join(map(plural, numbers, nouns))


def unnamed_key(finding: Finding) -> str:
    """Key of the feature that is to blame, unless the message names it."""
    key = finding.feature or ""
    return "" if key in finding.message else visible(key)


def place_parts(finding: Finding) -> Iterator[str]:
    """The place in parts that should stay in one piece: a shard's name may hold spaces.

    ``train.record,`` ``record 12,`` ``byte 4096,`` ``image/encoded`` ``(000012.jpg)``
    """
    parts = [visible(finding.shard)] if finding.shard else []
    if finding.record is not None:
        parts.append(f"record {finding.record}")
    if finding.offset is not None:
        parts.append(f"byte {finding.offset}")
    key = unnamed_key(finding)
    if key:
        parts.append(key)
    for number, part in enumerate(parts, 1):
        yield part + ("," if number < len(parts) else "")
    if finding.item and finding.item != finding.shard:
        yield f"({visible(finding.item)})"

"""The findings of a report by image: what somebody mends who opens one image after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.check.finding import Finding, Severity
from tfod.check.reporters.drawing import Card
from tfod.check.reporters.groups import Group


@dataclass(frozen=True)
class Line:
    """What is said once of an image, or of a file, though it may be found several times.

    Attributes:
        code, severity, title: the rule's; the title is the message where the rule is unknown.
        count: how often.
        message: of the first finding.
    """

    code: str
    severity: Severity
    title: str
    count: int
    message: str


@dataclass(frozen=True)
class Entry:
    """An image, or a file where no image is concerned, with what was found in it.

    Attributes:
        name: what people know it by.
        where: file, record and byte.
        lines: the severest first.
        card: the image with its boxes; None where it is not shown.
    """

    name: str
    where: str
    lines: tuple[Line, ...]
    card: Card | None = None

    @property
    def severity(self) -> Severity | None:
        """Of the worst; None where nothing was found."""
        return self.lines[0].severity if self.lines else None


@dataclass(frozen=True)
class ByImage:
    """The entries of a report.

    Attributes:
        files: what concerns no image: zips, label maps, sets of shards.
        images: those with findings, the severest first, those that can be shown before the others.
        sound: images without findings, to look at.
    """

    files: tuple[Entry, ...]
    images: tuple[Entry, ...]
    sound: tuple[Entry, ...]


def by_image(
    findings: Sequence[Finding], groups: Sequence[Group], cards: Sequence[Card]
) -> ByImage:
    """Gather findings by the record that they are about.

    Args:
        findings: the report's.
        groups: their rules.
        cards: images to show.
    """
    rules = {group.code: group for group in groups}
    shown = {(card.sample.place.shard, card.sample.place.record): card for card in cards}
    gathered: dict[tuple[str, int | None], list[Finding]] = {}
    for one in findings:
        gathered.setdefault((one.shard, one.record), []).append(one)
    entries = [
        Entry(_name(found), found[0].where, _lines(found, rules), shown.get(key))
        for key, found in gathered.items()
        if key[1] is not None
    ]
    entries.sort(key=lambda one: (-one.lines[0].severity.rank, one.card is None))
    files = [
        Entry(found[0].shard, "", _lines(found, rules))
        for (_, record), found in gathered.items()
        if record is None
    ]
    files.sort(key=lambda one: -one.lines[0].severity.rank)
    sound = [
        Entry(card.sample.place.item or "", f"{key[0]}, record {key[1]}", (), card)
        for key, card in shown.items()
        if key not in gathered
    ]
    return ByImage(tuple(files), tuple(entries), tuple(sound))


def _lines(findings: Sequence[Finding], rules: Mapping[str, Group]) -> tuple[Line, ...]:
    by_code: dict[str, list[Finding]] = {}
    for one in findings:
        by_code.setdefault(one.code, []).append(one)
    lines = [
        Line(
            code=code,
            severity=found[0].severity,
            title=(rules[code].title if code in rules else "") or found[0].message,
            count=len(found),
            message=found[0].message,
        )
        for code, found in by_code.items()
    ]
    return tuple(sorted(lines, key=lambda one: -one.severity.rank))


def _name(findings: Sequence[Finding]) -> str:
    named = next((one.item for one in findings if one.item), "")
    return named or f"record {findings[0].record}"

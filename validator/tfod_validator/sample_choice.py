"""Chooses pictures to show in the HTML report, and reads them again from their shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from tfod.damage import HEADER_BYTES
from tfod.errors import TfodError
from tfod.example import Example
from tfod.headers import ShardPart
from tfod.picture import picture_size
from tfod.records import Record, is_record_header, read_record_stream, read_records

from tfod_validator.archive import Archive, ArchiveDamageError
from tfod_validator.archive_contents import look_through
from tfod_validator.collector import Collector
from tfod_validator.finding import Finding, Place
from tfod_validator.profile import Policy, Roles
from tfod_validator.report import Report
from tfod_validator.samples import Sample
from tfod_validator.sources import Inventory, Location

_LARGEST_RECORD = 64 << 20


@dataclass
class _Offence:
    """A record with findings."""

    place: Place
    findings: list[Finding] = field(default_factory=list)

    @property
    def codes(self) -> tuple[str, ...]:
        """The rules that fired on it."""
        return tuple(dict.fromkeys(one.code for one in self.findings))

    @property
    def objects(self) -> frozenset[int]:
        """Numbers of the boxes that the findings are about."""
        values = [one.value for one in self.findings if isinstance(one.value, dict)]
        numbers = [value.get("object") for value in values]
        return frozenset(number for number in numbers if isinstance(number, int))


def choose_samples(report: Report, inventory: Inventory, roles: Roles, most: int) -> list[Sample]:
    """At most so many pictures with findings, with as many rules as possible among them.

    What cannot be read again is left out.
    """
    chosen = _choose(report.findings, most)
    by_shard: dict[str, list[_Offence]] = {}
    for offence in chosen:
        by_shard.setdefault(offence.place.shard, []).append(offence)
    samples = []
    for shard, offences in by_shard.items():
        wanted = {one.place.record: one for one in offences}
        try:
            with _records_of(shard, offences, inventory) as records:
                left = len(wanted)
                for record in records:
                    offence_here = wanted.get(record.number)
                    if offence_here is not None:
                        sample = _sample(Example(record, shard), offence_here, roles)
                        samples += [sample] if sample else []
                        left -= 1
                    if not left:
                        break
        except (OSError, TfodError):
            continue
    return samples


def _choose(findings: Sequence[Finding], most: int) -> list[_Offence]:
    """Records with findings: one for each rule, the severe ones first, then any."""
    offences: dict[tuple[str, int], _Offence] = {}
    for one in findings:
        if one.record is not None:
            place = Place(one.shard, one.record, one.offset, one.item)
            offence = offences.setdefault((one.shard, one.record), _Offence(place))
            offence.findings.append(one)
    severest = sorted(findings, key=lambda one: -one.severity.rank)
    chosen: dict[tuple[str, int], _Offence] = {}
    shown: set[str] = set()
    for again in (False, True):
        for one in severest:
            if len(chosen) >= most:
                break
            if one.record is not None and (again or one.code not in shown):
                key = one.shard, one.record
                chosen[key] = offences[key]
                shown.update(offences[key].codes)
    return list(chosen.values())


@contextmanager
def _records_of(
    shard: str, offences: Sequence[_Offence], inventory: Inventory
) -> Iterator[Iterator[Record]]:
    """Those records of a shard that are wanted, and perhaps others between them."""
    location = next((one for one in inventory.locations if one.name == shard), None)
    if location is not None and location not in inventory.archives:
        yield _wanted_of_file(location, offences)
        return
    archive_name = next((one for one in inventory.archives if shard.startswith(one.name)), None)
    if archive_name is None:
        yield iter(())
        return
    silent = Collector(Policy(), 0)
    with Archive(archive_name.path, archive_name.name, silent) as archive:
        contents = look_through(archive, silent, needs_label_map=False)
        entries = [one for one in contents.shards.values() if archive.place(one).shard == shard]
        if not entries:
            raise ArchiveDamageError(f"{shard}: not found again")
        with archive.open(entries[0]) as stream:
            yield read_record_stream(
                stream, shard, on_damage=_ignore, max_record_bytes=_LARGEST_RECORD
            )


def _wanted_of_file(location: Location, offences: Sequence[_Offence]) -> Iterator[Record]:
    with location.open() as stream:
        head = stream.read(HEADER_BYTES)
    if location.remote or not is_record_header(head):
        with location.open() as stream:
            yield from read_record_stream(
                stream, location.name, on_damage=_ignore, max_record_bytes=_LARGEST_RECORD
            )
        return
    size = location.size() or 0
    for one in sorted(offences, key=lambda offence: offence.place.record or 0):
        part = ShardPart(one.place.offset or 0, size, one.place.record or 0)
        records = read_records(
            location.path, part=part, on_damage=_ignore, max_record_bytes=_LARGEST_RECORD
        )
        record = next(records, None)
        if record is not None:
            yield record


def _ignore(_: object) -> None:
    pass  # the report has it


def _sample(example: Example, offence: _Offence, roles: Roles) -> Sample | None:
    """The picture of a record and its boxes; None when there is nothing to be seen."""
    picture = _first(example, roles.encoded)
    size = picture_size(picture) if picture else None
    height, width = size or (_integer(example, roles.height), _integer(example, roles.width))
    boxes = np.zeros((0, 4))
    classes: list[str] = []
    try:
        boxes = _boxes(example, roles, height, width)
        if roles.class_text:
            raw = example.byte_strings(roles.class_text)
            classes = [value.decode("utf-8", "replace") for value in raw]
        if roles.class_label and not classes:
            classes = [f"#{label}" for label in example.ints(roles.class_label)]
    except TfodError:
        pass  # the picture alone, then
    if picture is None and not len(boxes):
        return None
    return Sample(
        place=offence.place,
        codes=offence.codes,
        messages=tuple(one.message for one in offence.findings),
        picture=picture,
        height=height or 0,
        width=width or 0,
        boxes=boxes,
        classes=tuple(classes),
        offending=offence.objects,
    )


def _boxes(example: Example, roles: Roles, height: int, width: int) -> np.ndarray:
    """Boxes, normalized, shape (n, 4)."""
    if len(roles.box) == 4:
        rows = example.float_rows(roles.box)
        return np.zeros((0, 4)) if rows is None else rows.T.astype(np.float64)
    if len(roles.box) == 1 and height and width:
        x, y, box_width, box_height = [*example.floats(roles.box[0]).tolist(), 0, 0, 0, 0][:4]
        corners = [x / width, y / height, (x + box_width) / width, (y + box_height) / height]
        return np.array([corners])
    return np.zeros((0, 4))


def _first(example: Example, key: str | None) -> bytes | None:
    try:
        values = example.byte_strings(key) if key else []
    except TfodError:
        return None
    return values[0] if values and values[0] else None


def _integer(example: Example, key: str | None) -> int:
    try:
        values = example.ints(key) if key else []
    except TfodError:
        return 0
    return values[0] if values and 0 < values[0] < 1 << 31 else 0

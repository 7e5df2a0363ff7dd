"""Chooses pictures to show in the HTML report, and reads them again from their shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tfod.damage import HEADER_BYTES
from tfod.errors import TfodError
from tfod.example import Example
from tfod.headers import ShardPart
from tfod.records import Record, is_record_header, read_record_stream
from tfod.remote_stream import RemoteStream
from tfod.roles import Roles

from tfod_validator.archive import Archive, ArchiveDamageError
from tfod_validator.archive_contents import look_through
from tfod_validator.collector import Collector
from tfod_validator.finding import Finding, Place
from tfod_validator.profile import Policy
from tfod_validator.report import Report
from tfod_validator.sample_reading import read_sample
from tfod_validator.samples import Sample
from tfod_validator.sources import Inventory, Location

_LARGEST_RECORD = 64 << 20
_NEAR = 4 << 20  # bytes; a web server has sent as many before it hears that they are not wanted


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
                        # Without picture and boxes there is nothing to be seen.
                        samples += [sample] if sample.picture or len(sample.boxes) else []
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
        has_places = is_record_header(stream.read(HEADER_BYTES)) and stream.seekable()
        if not has_places:
            stream.seek(0)
            yield from read_record_stream(
                stream, location.name, on_damage=_ignore, max_record_bytes=_LARGEST_RECORD
            )
            return
        size = stream.size if isinstance(stream, RemoteStream) else location.size()
        for start, first, last in _runs(offences):
            stream.seek(start)
            records = read_record_stream(
                stream,
                location.name,
                part=ShardPart(start, size or 0, first),
                on_damage=_ignore,
                max_record_bytes=_LARGEST_RECORD,
            )
            for record in records:
                yield record
                if record.number >= last:
                    break


def _runs(offences: Sequence[_Offence]) -> Iterator[tuple[int, int, int]]:
    """Where to begin to read, and the first and the last record: what is near is read in one go."""
    runs: list[list[Place]] = []
    for place in sorted((one.place for one in offences), key=lambda place: place.record or 0):
        if runs and (place.offset or 0) - (runs[-1][-1].offset or 0) < _NEAR:
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        yield run[0].offset or 0, run[0].record or 0, run[-1].record or 0


def _ignore(_: object) -> None:
    pass  # the report has it


def _sample(example: Example, offence: _Offence, roles: Roles) -> Sample:
    """A record with what was found about it."""
    return replace(
        read_sample(example, offence.place, roles),
        codes=offence.codes,
        messages=tuple(one.message for one in offence.findings),
        offending=offence.objects,
    )

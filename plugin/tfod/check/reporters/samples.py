"""Images to show in the HTML report: chosen by the findings, and read again from their shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np

from tfod.check.finding import Finding, Place
from tfod.check.profiles.profile import READY, Profile
from tfod.check.report import Report
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.search import Inventory, Location
from tfod.detection.field_mapping import FieldMapping
from tfod.detection.image import image_size
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.compression import ReadableStream
from tfod.tfrecord.framing import HEADER_BYTES, ShardPart, is_record_header
from tfod.tfrecord.reader import RecordBatch, read_record_batch_stream

if TYPE_CHECKING:
    from tfod.tfrecord.storage.remote_stream import RemoteStream

_LARGEST_RECORD = 64 << 20
_ABOUT_CLASSES = ("LAB", "TSK")
_MOST_SOUND = 4
"""Images of a valid report that are shown though nothing was found in them."""
_FIRST_RECORDS = 40
"""Records of a shard among which images with boxes are looked for."""
_NEAR = 4 << 20  # bytes; a web server has sent as many before it hears that they are not wanted


@dataclass(frozen=True, eq=False)
class Sample:
    """An image with findings, as it is in the shard.

    Attributes:
        place: which record.
        codes: of the rules that fired on it.
        messages: what they said.
        image: its encoded bytes; None where the record holds none.
        height, width: pixels, as the record says; 0 where it does not.
        boxes: shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; may be outside [0, 1], inverted
            or not finite.
        classes: of the boxes, as the report names them; may be fewer.
        offending: numbers of the boxes that the findings are about; empty if that is unknown.
    """

    place: Place
    codes: tuple[str, ...]
    messages: tuple[str, ...]
    image: bytes | None
    height: int
    width: int
    boxes: np.ndarray
    classes: tuple[str, ...]
    offending: frozenset[int] = frozenset()


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

    @property
    def classes(self) -> frozenset[str]:
        """The classes that the findings are about."""
        about = (one.value for one in self.findings if one.code[:3] in _ABOUT_CLASSES)
        return frozenset(value for value in about if isinstance(value, str))


def choose_samples(
    report: Report, inventory: Inventory, profile: Profile | None, most: int
) -> list[Sample]:
    """At most so many images with findings, with as many rules as possible among them.

    A valid report has some without findings, too, for people to see that the boxes are where they
    should be. What cannot be read again is left out.

    Args:
        report: the report.
        inventory: what it is about.
        profile: the one that was asked for; None where each dataset was checked by a ready one.
        most: how many there may be.
    """

    def field_mapping_of(shard: str) -> FieldMapping:
        dataset = report.dataset_of(shard)
        known = profile or READY.get((dataset or report).profile.name)
        return known.field_mapping if known else FieldMapping()

    chosen = _choose(report.findings, most)
    by_shard: dict[str, list[_Offence]] = {}
    for offence in chosen:
        by_shard.setdefault(offence.place.shard, []).append(offence)
    samples = []
    for shard, offences in by_shard.items():
        field_mapping = field_mapping_of(shard)
        wanted = {one.place.record: one for one in offences}
        try:
            with _batches_of(shard, offences, inventory) as batches:
                for example, offence in _wanted(batches, wanted):
                    sample = _sample(example, offence, field_mapping)
                    # Without image and boxes there is nothing to be seen.
                    samples += [sample] if sample.image or len(sample.boxes) else []
        except (OSError, TfodError):
            continue
    if report.valid:
        wanted_sound = min(_MOST_SOUND, most) - len(samples)
        found = {(one.shard, one.record) for one in report.findings}
        sound = (one for one in _sound(inventory, field_mapping_of) if _key(one) not in found)
        samples += islice(sound, max(0, wanted_sound))
    return samples


def _wanted(
    batches: Iterator[RecordBatch], offences: dict[int | None, _Offence]
) -> Iterator[tuple[Example, _Offence]]:
    """Those records, each once; what lies behind the last one is not read."""
    for records in batches:
        here = [number for number in records.numbers.tolist() if number in offences]
        if here:
            examples = ExampleBatch.of(records)
            for number in here:
                yield Example(examples, number - records.first), offences.pop(number)
        if not offences:
            return


def _key(sample: Sample) -> tuple[str, int | None]:
    return sample.place.shard, sample.place.record


def _sound(
    inventory: Inventory, field_mapping_of: Callable[[str], FieldMapping]
) -> Iterator[Sample]:
    """Images with boxes from the beginning of each shard."""
    for location in inventory.locations:
        try:
            for shard, batches in _shards_of(location, inventory):
                field_mapping = field_mapping_of(shard)
                examples = (
                    one for batch in batches for one in Example.rows_of(ExampleBatch.of(batch))
                )
                for example in islice(examples, _FIRST_RECORDS):
                    record = example.record
                    place = Place(
                        shard, record.number, record.offset, read_name(example, field_mapping)
                    )
                    sample = read_sample(example, place, field_mapping)
                    if sample.image and len(sample.boxes):
                        yield sample
        except (OSError, TfodError):
            continue


def _shards_of(
    location: Location, inventory: Inventory
) -> Iterator[tuple[str, Iterator[RecordBatch]]]:
    """The shards of a file, which may be a zip, and their records."""
    if location not in inventory.archives:
        with location.open() as stream:
            yield location.name, _batches(stream, location.name)
        return
    with Archives() as archives:
        for shard, unpacked in archives.open(location.path, location.name).opened():
            yield shard.name, _batches(unpacked, shard.name)


def _batches(stream: ReadableStream, shard: str) -> Iterator[RecordBatch]:
    return read_record_batch_stream(
        stream, shard, on_damage=_ignore, max_record_bytes=_LARGEST_RECORD
    )


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
def _batches_of(
    shard: str, offences: Sequence[_Offence], inventory: Inventory
) -> Iterator[Iterator[RecordBatch]]:
    """Those records of a shard that are wanted, and perhaps others between them."""
    location = next((one for one in inventory.locations if one.name == shard), None)
    if location is not None and location not in inventory.archives:
        yield _wanted_of_file(location, offences)
        return
    archive = next((one for one in inventory.archives if shard.startswith(one.name)), None)
    if archive is None:
        yield iter(())
        return
    with Archives() as archives:
        for one, stream in archives.open(archive.path, archive.name).opened():
            if one.name == shard:
                yield _batches(stream, shard)
                return
    raise ArchiveDamageError(f"{shard}: not found again")


def _wanted_of_file(location: Location, offences: Sequence[_Offence]) -> Iterator[RecordBatch]:
    with location.open() as stream:
        has_places = is_record_header(stream.read(HEADER_BYTES)) and stream.seekable()
        if not has_places:
            stream.seek(0)
            yield from _batches(stream, location.name)
            return
        size = cast("RemoteStream", stream).size if location.remote else location.size()
        for start, first, last in _runs(offences):
            stream.seek(start)
            batches = read_record_batch_stream(
                stream,
                location.name,
                part=ShardPart(start, size or 0, first),
                on_damage=_ignore,
                max_record_bytes=_LARGEST_RECORD,
            )
            for records in batches:
                yield records
                if records.first + len(records) > last:
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


def _sample(example: Example, offence: _Offence, field_mapping: FieldMapping) -> Sample:
    """A record with what was found about it."""
    sample = read_sample(example, offence.place, field_mapping)
    classes = {n for n, name in enumerate(sample.classes) if name in offence.classes}
    return replace(
        sample,
        codes=offence.codes,
        messages=tuple(one.message for one in offence.findings),
        offending=offence.objects | classes,
    )


def read_sample(example: Example, place: Place, field_mapping: FieldMapping) -> Sample:
    """The image of a record and its boxes, as far as they can be read.

    Args:
        example: the record.
        place: where it is.
        field_mapping: what its keys are called.
    """
    image = _first(example, field_mapping.encoded)
    size = image_size(image) if image else None
    height, width = size or (
        read_size(example, field_mapping.height),
        read_size(example, field_mapping.width),
    )
    boxes = np.zeros((0, 4))
    classes: list[str] = []
    try:
        boxes = _boxes(example, field_mapping, height, width)
        if field_mapping.class_text:
            raw = example.byte_strings(field_mapping.class_text)
            classes = [value.decode("utf-8", "replace") for value in raw]
        if field_mapping.class_label and not classes:
            classes = [f"#{label}" for label in example.ints(field_mapping.class_label)]
    except TfodError:
        pass  # the image alone, then
    return Sample(
        place=place,
        codes=(),
        messages=(),
        image=image,
        height=height,
        width=width,
        boxes=boxes,
        classes=tuple(classes),
    )


def _boxes(example: Example, field_mapping: FieldMapping, height: int, width: int) -> np.ndarray:
    """Boxes, normalized, shape (n, 4)."""
    if len(field_mapping.box) == 4:
        sides = [example.floats(key) for key in field_mapping.box]
        rows = np.stack(sides) if len({len(side) for side in sides}) == 1 else None
        return np.zeros((0, 4)) if rows is None else rows.T.astype(np.float64)
    if len(field_mapping.box) == 1 and height and width:
        x, y, box_width, box_height = [*example.floats(field_mapping.box[0]).tolist(), 0, 0, 0, 0][
            :4
        ]
        corners = [x / width, y / height, (x + box_width) / width, (y + box_height) / height]
        return np.array([corners])
    return np.zeros((0, 4))


def _first(example: Example, key: str | None) -> bytes | None:
    try:
        values = example.byte_strings(key) if key else []
    except TfodError:
        return None
    return values[0] if values and values[0] else None


def read_name(example: Example, field_mapping: FieldMapping) -> str | None:
    """The image's file name; None where there is none."""
    name = _first(example, field_mapping.filename)
    return name.decode("utf-8", "replace") if name else None


def read_size(example: Example, key: str | None) -> int:
    """A height or a width in pixels; 0 where there is none that can be one."""
    try:
        values = example.ints(key) if key else []
    except TfodError:
        return 0
    return values[0] if values and 0 < values[0] < 1 << 31 else 0

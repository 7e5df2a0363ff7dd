"""Images to show in the HTML report: chosen by the findings, and read again from their shards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np

from tfod.check.findings.finding import Finding, Place
from tfod.check.findings.report import Report
from tfod.check.profiles.profile import READY, Profile
from tfod.check.sources.inventory import Inventory, Location
from tfod.check.sources.shard_walk import WalkedShard, walk_shards
from tfod.detection.boxes import normalized_xywh
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import image_size
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
        image: its encoded bytes; None where the record holds none.
        height, width: pixels, as the record says; 0 where it does not.
        boxes: shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; may be outside [0, 1], inverted
            or not finite.
        classes: of the boxes, as the report names them; may be fewer.
        offending: numbers of the boxes that the findings are about; empty if that is unknown.
    """

    place: Place
    codes: tuple[str, ...]
    image: bytes | None
    height: int
    width: int
    boxes: np.ndarray
    classes: tuple[str, ...]
    offending: frozenset[int] = frozenset()


def choose_samples(
    report: Report, inventory: Inventory, profile: Profile | None, most: int = 12
) -> list[Sample]:
    """At most so many images with findings, with as many rules as possible among them.

    A valid report has some without findings, too, for people to see that the boxes are where they
    should be. What cannot be read again is left out. ``profile`` is the one that was asked for;
    None where each dataset was checked by a ready one.
    """

    def field_mapping_of(shard: str) -> FieldMapping:
        dataset = report.dataset_of(shard)
        known = profile or READY.get((dataset or report).profile.name)
        return known.field_mapping if known else FieldMapping()

    by_shard: dict[str, dict[int, list[Finding]]] = {}
    for (shard, record), findings in _choose(report.findings, most).items():
        by_shard.setdefault(shard, {})[record] = findings
    samples = []
    for shard, wanted in by_shard.items():
        field_mapping = field_mapping_of(shard)
        try:
            with closing(_batches_of(shard, wanted, inventory)) as batches:
                for example, findings in _wanted(batches, wanted):
                    sample = _sample(example, findings, field_mapping)
                    # Without image and boxes there is nothing to be seen.
                    samples += [sample] if sample.image or len(sample.boxes) else []
        except (OSError, TfodError):
            continue
    if report.valid:
        found = {(one.shard, one.record) for one in report.findings}
        sound = (
            one
            for one in _sound(inventory, field_mapping_of)
            if (one.place.shard, one.place.record) not in found
        )
        samples += islice(sound, max(0, min(_MOST_SOUND, most) - len(samples)))
    return samples


def _choose(findings: Sequence[Finding], most: int) -> dict[tuple[str, int], list[Finding]]:
    """Records with their findings: one for each rule, the severe ones first, then any."""
    by_record: dict[tuple[str, int], list[Finding]] = {}
    for one in findings:
        if one.record is not None:
            by_record.setdefault((one.shard, one.record), []).append(one)
    severest = sorted(findings, key=lambda one: -one.severity.rank)
    chosen: dict[tuple[str, int], list[Finding]] = {}
    shown: set[str] = set()
    for again in (False, True):
        for one in severest:
            if len(chosen) >= most:
                break
            if one.record is not None and (again or one.code not in shown):
                key = one.shard, one.record
                chosen[key] = by_record[key]
                shown.update(other.code for other in by_record[key])
    return chosen


def _wanted(
    batches: Iterator[RecordBatch], wanted: dict[int, list[Finding]]
) -> Iterator[tuple[Example, list[Finding]]]:
    for records in batches:
        here = [number for number in records.numbers.tolist() if number in wanted]
        if here:
            examples = ExampleBatch.of(records)
            for number in here:
                yield Example(examples, number - records.first), wanted.pop(number)
        if not wanted:
            return


def _batches_of(
    shard: str, wanted: Mapping[int, Sequence[Finding]], inventory: Inventory
) -> Generator[RecordBatch, None, None]:
    """Those records of a shard that are wanted, and others between them."""
    location = next((one for one in inventory.locations if one.name == shard), None)
    if location is not None and location not in inventory.archives:
        yield from _batches_of_file(location, wanted)
        return
    archives = [one for one in inventory.archives if shard.startswith(one.name)]
    for one in walk_shards(Inventory((), archives), None):
        if one.name == shard:
            with one.open() as stream:
                yield from _batches(stream, shard)
            return


def _batches_of_file(
    location: Location, wanted: Mapping[int, Sequence[Finding]]
) -> Iterator[RecordBatch]:
    with location.open() as stream:
        has_offsets = is_record_header(stream.read(HEADER_BYTES)) and stream.seekable()
        if not has_offsets:
            stream.seek(0)
            yield from _batches(stream, location.name)
            return
        size = cast("RemoteStream", stream).size if location.remote else location.size()
        offsets = {record: wanted[record][0].offset or 0 for record in sorted(wanted)}
        runs: list[list[int]] = []  # what is near is read in one go
        for record, offset in offsets.items():
            if not runs or offset - offsets[runs[-1][-1]] >= _NEAR:
                runs.append([])
            runs[-1].append(record)
        for run in runs:
            start = offsets[run[0]]
            stream.seek(start)
            for records in _batches(stream, location.name, ShardPart(start, size or 0, run[0])):
                yield records
                if records.first + len(records) > run[-1]:
                    break


def _sound(
    inventory: Inventory, field_mapping_of: Callable[[str], FieldMapping]
) -> Iterator[Sample]:
    """Images with boxes from the beginning of each shard."""
    with suppress(OSError, TfodError):  # what is gone meanwhile ends it
        for shard in walk_shards(inventory, None):
            yield from _sound_of_shard(shard, field_mapping_of(shard.name))


def _sound_of_shard(shard: WalkedShard, field_mapping: FieldMapping) -> Iterator[Sample]:
    with suppress(OSError, TfodError), shard.open() as stream:
        batches = map(ExampleBatch.of, _batches(stream, shard.name))
        examples = (one for batch in batches for one in Example.rows_of(batch))
        for example in islice(examples, _FIRST_RECORDS):
            sample = read_sample(example, field_mapping)
            if sample.image and len(sample.boxes):
                yield sample


def _batches(
    stream: ReadableStream, shard: str, part: ShardPart | None = None
) -> Iterator[RecordBatch]:
    return read_record_batch_stream(
        stream,
        shard,
        part=part,
        on_damage=lambda _: None,  # the report has it
        max_record_bytes=_LARGEST_RECORD,
    )


def _sample(example: Example, findings: Sequence[Finding], field_mapping: FieldMapping) -> Sample:
    sample = read_sample(example, field_mapping)
    values = [one.value for one in findings if isinstance(one.value, dict)]
    objects = {one.get("object") for one in values}
    wrong = [one.value for one in findings if one.code[:3] in _ABOUT_CLASSES]
    objects |= {number for number, name in enumerate(sample.classes) if name in wrong}
    first = findings[0]
    return replace(
        sample,
        place=Place(first.shard, first.record, first.offset, first.item),
        codes=tuple(dict.fromkeys(one.code for one in findings)),
        offending=frozenset(number for number in objects if isinstance(number, int)),
    )


def read_sample(example: Example, field_mapping: FieldMapping) -> Sample:
    """The image of a record and its boxes, as far as they can be read; keys as in the mapping."""
    record = example.record
    name = _first(example, field_mapping.filename)
    item = name.decode("utf-8", "replace") if name else None
    image = _first(example, field_mapping.encoded)
    height, width = (image_size(image) if image else None) or (
        _read_size(example, field_mapping.height),
        _read_size(example, field_mapping.width),
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
    place = Place(example.shard, record.number, record.offset, item)
    return Sample(place, (), image, height, width, boxes, tuple(classes))


def _boxes(example: Example, field_mapping: FieldMapping, height: int, width: int) -> np.ndarray:
    """Boxes, normalized, shape (n, 4)."""
    lists = [example.floats(key) for key in field_mapping.box]
    in_pixels = field_mapping.has_pixel_boxes
    if len({len(side) for side in lists}) != 1 or (in_pixels and not (height and width)):
        return np.zeros((0, 4))
    values = np.stack(lists, axis=-1).astype(np.float64).reshape(-1)
    whole = values[: len(values) // 4 * 4].reshape(-1, 4)
    return normalized_xywh(whole, np.array([height, width])) if in_pixels else whole


def _first(example: Example, key: str | None) -> bytes | None:
    try:
        values = example.byte_strings(key) if key else []
    except TfodError:
        return None
    return values[0] or None if values else None


def _read_size(example: Example, key: str | None) -> int:
    """A height or a width in pixels; 0 where there is none that can be one."""
    values = read_ints(example, key)
    return values[0] if values and 0 < values[0] < 1 << 31 else 0


def read_ints(example: Example, key: str | None) -> list[int]:
    """The numbers of a feature; none where they cannot be read."""
    try:
        return example.ints(key) if key else []
    except TfodError:
        return []

"""Images to show in the HTML report: chosen by the findings, and read again from their shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tfod.checker.finding import Finding
from tfod.checker.profiles.profile import READY, Profile
from tfod.checker.report import Report
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import image_size
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Kind
from tfod.sources.resolved import Shard
from tfod.tfrecord.compression import Compression, PeekedStream
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import Record, RecordBatch, walk

_LARGEST_RECORD = 64 << 20
_ABOUT_CLASSES = ("LAB", "TSK")
_MOST_SOUND = 4
"""Images of a valid report that are shown though nothing was found in them."""
_FIRST_RECORDS = 40
"""Records of a shard among which images with boxes are looked for."""


@dataclass(frozen=True, eq=False)
class Sample:
    """An image with its objects, as it is in the shard.

    Attributes:
        shard, record: which record.
        item: its file name, or what else people know it by.
        image: its encoded bytes; None where the record holds none.
        height, width: pixels, as the record says; 0 where it does not.
        boxes: shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; may be outside [0, 1], inverted
            or not finite.
        classes: of the boxes, as the report names them; may be fewer.
        offending: numbers of the boxes that findings are about; empty if that is unknown.
    """

    shard: str
    record: int
    item: str | None
    image: bytes | None
    height: int
    width: int
    boxes: np.ndarray
    classes: tuple[str, ...]
    offending: frozenset[int] = frozenset()


def choose_samples(
    report: Report, shards: Sequence[Shard], profile: Profile | None, most: int = 12
) -> list[Sample]:
    """At most so many images with findings, with as many rules as possible among them.

    A valid report has some without findings, too, for people to see that the boxes are where they
    should be. What cannot be read again is left out. ``profile`` is the one that was asked for;
    None where each dataset was checked by a ready one.
    """
    chosen: list[Sample] = []
    wanted = _choose(report.findings, most)
    for shard in shards:
        here = {
            found[0].offset or 0: found for (name, _), found in wanted.items() if name == shard.name
        }
        field_mapping = _field_mapping_of(report, shard.name, profile)
        for record in _records(shard, sorted(here)) if here else ():
            sample = _accused(_sample_of(record, shard, field_mapping), here[record.offset])
            # Without image and boxes there is nothing to be seen.
            if sample.image or len(sample.boxes):
                chosen.append(sample)
    sound = min(_MOST_SOUND, most) if report.valid else 0
    for shard in shards if len(chosen) < sound else ():
        field_mapping = _field_mapping_of(report, shard.name, profile)
        for record in islice(_records(shard), _FIRST_RECORDS):
            sample = _sample_of(record, shard, field_mapping)
            is_other = (sample.shard, sample.record) not in wanted
            if is_other and sample.image and len(sample.boxes):
                chosen.append(sample)
            if len(chosen) >= sound:
                return chosen
    return chosen


def _field_mapping_of(report: Report, shard: str, profile: Profile | None) -> FieldMapping:
    known = profile or READY.get((report.dataset_of(shard) or report).profile.name)
    return known.field_mapping if known else FieldMapping()


def _sample_of(record: Record, shard: Shard, field_mapping: FieldMapping) -> Sample:
    examples = ExampleBatch.of(RecordBatch.of(record, shard.name))
    return read_sample(Detections(examples, field_mapping), 0)


def _choose(findings: Sequence[Finding], most: int) -> dict[tuple[str, int], list[Finding]]:
    """Records with their findings: the first of each rule, the severe ones first, then any."""
    by_record: dict[tuple[str, int], list[Finding]] = {}
    first: dict[str, tuple[str, int]] = {}
    for one in sorted(findings, key=lambda one: -one.severity.rank):
        if one.record is not None:
            place = one.shard, one.record
            by_record.setdefault(place, []).append(one)
            first.setdefault(one.code, place)
    places = dict.fromkeys((*first.values(), *by_record))
    return {place: by_record[place] for place in list(places)[:most]}


def _accused(sample: Sample, findings: Sequence[Finding]) -> Sample:
    objects = {one.value.get("object") for one in findings if isinstance(one.value, dict)}
    wrong = [one.value for one in findings if one.code[:3] in _ABOUT_CLASSES]
    objects |= {number for number, name in enumerate(sample.classes) if name in wrong}
    return replace(
        sample,
        record=findings[0].record or 0,
        item=findings[0].item,
        offending=frozenset(number for number in objects if isinstance(number, int)),
    )


def _records(shard: Shard, offsets: Sequence[int] = ()) -> Iterator[Record]:
    """The records that begin at these bytes, in order, or all; damaged ones are left out.

    Where bytes can be passed over, they are: then the first of these records has the number 0.
    """
    with suppress(OSError, TfodError), shard.open(read_ahead=False) as stream:
        spans = [(0, offsets)]
        if offsets and stream.seekable():
            if PeekedStream(stream).compression is Compression.NONE:
                spans = [(one, [one]) for one in offsets]
            stream.seek(0)
        for start, wanted in spans:
            if start:
                stream.seek(start)
            for batch in walk(stream, shard.name, None, _LARGEST_RECORD):
                if isinstance(batch, Damage):
                    continue
                places = batch.offsets + start
                rows = (
                    np.flatnonzero(np.isin(places, wanted)).tolist()
                    if wanted
                    else range(len(batch))
                )
                yield from (batch.record(row)._replace(offset=int(places[row])) for row in rows)
                if wanted and places[-1] >= wanted[-1]:
                    break


def read_sample(detections: Detections, row: int) -> Sample:
    """The image of a record and its boxes, as far as they can be read."""
    start, end = detections.encoded[row].tolist()
    image = bytes(detections.examples.buffer[start:end]) or None
    header = image_size(image) if image else None
    height, width = header or (detections.heights[row] or 0, detections.widths[row] or 0)
    first, last = detections.box_splits[row : row + 2].tolist()
    texts, ids = classes_of(detections, row)
    records = detections.examples.records
    return Sample(
        shard=records.shard,
        record=records.first + row,
        item=detections.filenames[row] or None,
        image=image,
        height=height,
        width=width,
        boxes=detections.boxes[first:last],
        classes=tuple(texts or (f"#{one}" for one in ids)),
    )


def classes_of(detections: Detections, row: int) -> tuple[list[str], list[int]]:
    """Texts and ids of the classes of a record's objects, as far as it has them."""
    texts = detections.texts_in(detections.column(keys.CLASS_TEXT, Kind.BYTES), row)
    labels = detections.column(keys.CLASS_LABEL, Kind.INT64)
    first, last = labels.row_splits[row : row + 2].tolist()
    return texts, labels.values[first:last].tolist()

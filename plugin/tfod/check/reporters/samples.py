"""Images to show in the HTML report: chosen by the findings, and read again from their shards."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tfod.check.dataset import Shard
from tfod.check.findings.finding import Finding
from tfod.check.findings.report import Report
from tfod.check.profiles.profile import READY, Profile
from tfod.detection.boxes import normalized_xywh
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import image_size
from tfod.errors import TfodError
from tfod.example.example import Example
from tfod.tfrecord.compression import Compression, InflatingStream
from tfod.tfrecord.framing import FOOTER_BYTES, HEADER_BYTES, length_in_header
from tfod.tfrecord.reader import Record, shard_compression

if TYPE_CHECKING:
    from tfod.tfrecord.storage.open import ShardStream

T = TypeVar("T")
_LARGEST_RECORD = 64 << 20
_ABOUT_CLASSES = ("LAB", "TSK")
_MOST_SOUND = 4
"""Images of a valid report that are shown though nothing was found in them."""
_FIRST_RECORDS = 40
"""Records of a shard among which images with boxes are looked for."""
_STEP = 1 << 20  # bytes
_NEAR = 4 << 20  # bytes; a web server has sent as many before it hears that they are not wanted


@dataclass(frozen=True, eq=False)
class Sample:
    """An image with findings, as it is in the shard.

    Attributes:
        shard, record: which record.
        item: its file name, or what else people know it by.
        codes: of the rules that fired on it.
        image: its encoded bytes; None where the record holds none.
        height, width: pixels, as the record says; 0 where it does not.
        boxes: shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; may be outside [0, 1], inverted
            or not finite.
        classes: of the boxes, as the report names them; may be fewer.
        offending: numbers of the boxes that the findings are about; empty if that is unknown.
    """

    shard: str
    record: int
    item: str | None
    codes: tuple[str, ...]
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
    wanted = _choose(report.findings, most)
    chosen: list[Sample] = []
    for shard in shards:
        here = [found for (name, _), found in sorted(wanted.items()) if name == shard.name]
        places = {found[0].offset or 0: found for found in here}
        field_mapping = _field_mapping_of(report, shard.name, profile)
        for offset, sample in _read(shard, places, field_mapping) if here else ():
            # Without image and boxes there is nothing to be seen.
            if sample.image or len(sample.boxes):
                chosen.append(_accused(sample, places[offset]))
    sound = min(_MOST_SOUND, most) if report.valid else 0
    for shard in shards if len(chosen) < sound else ():
        field_mapping = _field_mapping_of(report, shard.name, profile)
        for _, sample in _read(shard, repeat(None, _FIRST_RECORDS), field_mapping):
            is_other = (sample.shard, sample.record) not in wanted
            if is_other and sample.image and len(sample.boxes):
                chosen.append(sample)
            if len(chosen) >= sound:
                return chosen
    return chosen


def _field_mapping_of(report: Report, shard: str, profile: Profile | None) -> FieldMapping:
    known = profile or READY.get((report.dataset_of(shard) or report).profile.name)
    return known.field_mapping if known else FieldMapping()


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


def _read(
    shard: Shard, offsets: Iterable[int | None], field_mapping: FieldMapping
) -> Iterator[tuple[int, Sample]]:
    """What is at some places of a shard, as :func:`_records` has them, as far as it is there."""
    with suppress(OSError, TfodError, EOFError, zlib.error), shard.open(read_ahead=False) as stream:
        for record in _records(stream, offsets):
            with suppress(TfodError):
                yield record.offset, read_sample(Example.of(record, shard.name), field_mapping)


def _accused(sample: Sample, findings: Sequence[Finding]) -> Sample:
    objects = {one.value.get("object") for one in findings if isinstance(one.value, dict)}
    wrong = [one.value for one in findings if one.code[:3] in _ABOUT_CLASSES]
    objects |= {number for number, name in enumerate(sample.classes) if name in wrong}
    return replace(
        sample,
        record=findings[0].record or 0,
        item=findings[0].item,
        codes=tuple(dict.fromkeys(one.code for one in findings)),
        offending=frozenset(number for number in objects if isinstance(number, int)),
    )


def _records(shard: ShardStream, offsets: Iterable[int | None]) -> Iterator[Record]:
    """The records that begin at these bytes, in order; what lies near is read on the way.

    None is the one behind the last. Records that are too large, cut off, or whose length is damaged
    are left out. Their numbers are those of the offsets.
    """
    stored = io.BufferedReader(shard)
    is_plain = shard_compression(stored.peek(HEADER_BYTES)[:HEADER_BYTES]) is Compression.NONE
    stream = stored if is_plain else io.BufferedReader(InflatingStream(stored))
    position = 0
    for number, wanted in enumerate(offsets):
        offset = position if wanted is None else wanted
        if is_plain and offset - position > _NEAR and shard.seekable():
            position = stream.seek(offset)
        while position < offset and (passed := stream.read(min(offset - position, _STEP))):
            position += len(passed)
        head = stream.read(HEADER_BYTES)
        length = length_in_header(head) if len(head) == HEADER_BYTES else None
        if length is None or length > _LARGEST_RECORD:
            position += len(head)
            continue
        framed = stream.read(length + FOOTER_BYTES)
        position += len(head) + len(framed)
        if len(framed) >= length:
            yield Record(number, offset, bytearray(framed), 0, length)


def read_sample(example: Example, field_mapping: FieldMapping) -> Sample:
    """The image of a record and its boxes, as far as they can be read; keys as in the mapping."""
    image = _first(_values(example.byte_strings, field_mapping.encoded)) or None
    height, width = (image_size(image) if image else None) or (
        _first(read_ints(example, field_mapping.height)) or 0,
        _first(read_ints(example, field_mapping.width)) or 0,
    )
    ids = read_ints(example, field_mapping.class_label)
    return Sample(
        shard=example.shard,
        record=example.record.number,
        item=_first(_texts(example, field_mapping.filename)) or None,
        codes=(),
        image=image,
        height=height,
        width=width,
        boxes=_boxes(example, field_mapping, height, width),
        classes=tuple(_texts(example, field_mapping.class_text) or [f"#{one}" for one in ids]),
    )


def _boxes(example: Example, field_mapping: FieldMapping, height: int, width: int) -> np.ndarray:
    """Boxes, normalized, shape (n, 4); none where the lists of their sides do not go together."""
    lists = [_values(example.floats, key) for key in field_mapping.box]
    in_pixels = field_mapping.has_pixel_boxes
    if len({len(side) for side in lists}) != 1 or (in_pixels and not (height and width)):
        return np.zeros((0, 4))
    values = np.stack(lists, axis=-1).astype(np.float64).reshape(-1)
    whole = values[: len(values) // 4 * 4].reshape(-1, 4)
    return normalized_xywh(whole, np.array([height, width])) if in_pixels else whole


def _texts(example: Example, key: str | None) -> list[str]:
    return [one.decode("utf-8", "replace") for one in _values(example.byte_strings, key)]


def read_ints(example: Example, key: str | None) -> list[int]:
    """The numbers of a feature; none where they cannot be read."""
    return _values(example.ints, key)


def _values(read: Callable[[str], Iterable[T]], key: str | None) -> list[T]:
    """The values of a feature; none where they cannot be read."""
    try:
        return list(read(key)) if key else []
    except TfodError:
        return []


def _first(values: Sequence[T]) -> T | None:
    return values[0] if values else None

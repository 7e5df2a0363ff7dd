"""Records to look at: of each an image with its boxes, masks, keypoints and classes.

The reporters of the check draw them (:mod:`tfod.check.reporters.drawing`), and make the page.
"""

from __future__ import annotations

import colorsys
import contextlib
import difflib
import io
import itertools
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfod.check.dataset import Found, Shard
from tfod.check.findings.finding import plural
from tfod.check.profiles.choice import profile_of
from tfod.check.profiles.profile import Profile
from tfod.check.records.image_bytes import strict_pillow
from tfod.check.reporters.drawing import MOST_DRAWN, REACH, draw, fits_into_memory
from tfod.check.reporters.html import Card
from tfod.check.reporters.samples import Sample, read_ints, read_sample
from tfod.check.reporters.wording import record_name
from tfod.detection.detection import Detection, PngMask
from tfod.detection.detections import Detections
from tfod.detection.images.image import sniff_format
from tfod.detection.images.masks import decode_mask_png, png_size
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import RecordError, TfodError
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import walk
from tfod.tfrecord.storage.zip_entry import ZipEntryError

if TYPE_CHECKING:
    from PIL import Image

_LARGEST_RECORD = 256 << 20
_MOST_NAMES, _MOST_LABELS = 8, 6
_TALLEST = 22.0  # rem, of an image on a page
_CHANNELS = ("channels", "depth", "image/channels")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MASK_OPACITY = 110
_FARTHEST = 1000  # keypoint from its image, in widths or heights
_GOLDEN, _FIRST_HUE, _SATURATIONS = 0.6180339887498949, 0.36, (0.78, 0.6, 0.95)
_GAMMA, _LUMINANCES = 2.2, (0.2126, 0.7152, 0.0722)  # of sRGB; of red, green and blue
_LUMINANCE = 0.17
"""Of a class's colour; white on it has a contrast of 4.7 to 1, WCAG 2.2 asks for 4.5."""


@dataclass
class Shown:
    """The chosen records, and what could not be read on the way to the last of them."""

    cards: Sequence[Card] = ()
    unreadable: int = 0
    damage: Damage | None = None

    @property
    def boxes(self) -> int:
        """How many there are, drawn or not; labels of whole images have no colour."""
        return sum(count for one in self.cards for _, colour, count in one.classes if colour)


class _Record(NamedTuple):
    """A record as it is to be drawn.

    Attributes:
        sample: its image and boxes.
        classes: of each box the name and the colour.
        detection: has the rest; nothing, where the record has a problem.
        labels: classes of the whole image.
        notes: what is odd, in a few words each.
    """

    sample: Sample
    classes: Sequence[tuple[str, str]]
    detection: Detection
    labels: Sequence[str]
    notes: Sequence[str]


def draw_records(
    found: Found,
    profile: Profile | None = None,
    *,
    first: int = 24,
    records: frozenset[int] | None = None,
    at_random: int | None = None,
    class_name: str | None = None,
) -> Shown:
    """Draw records, in the order of the shards.

    Args:
        found: the shards.
        profile: of all of them; else the one that fits best.
        first: how many, unless one of the next two says otherwise.
        records: their numbers in the only shard.
        at_random: how many are drawn by lot.
        class_name: only those with an object, or a label, of this class.

    Raises:
        TfodError: the shards hold nothing that can be shown, or nothing of that class; or jinja2 or
            Pillow is not installed.
    """
    profile, _, unknown = profile_of(profile, found.shards, _LARGEST_RECORD)
    if unknown is not None:
        features = ", ".join(unknown.keys[:_MOST_NAMES]) or "none"
        raise TfodError(
            f"{unknown.shard}: there are no images or boxes to show, its features are {features};"
            " tfod describe says more"
        )
    several = len(found.shards) > 1
    if records is not None and several:
        raise TfodError("--records are numbers within a shard; name one shard, not several")
    shown = Shown()
    chosen = _records(found, profile, shown)
    if records is not None:
        chosen = _numbered(chosen, records)
    if class_name is not None:
        chosen = _of_class(chosen, class_name)
    card = partial(_card, several=several)
    if at_random is not None:
        shown.cards = _drawn(chosen, at_random, card)
    else:
        shown.cards = [card(one) for one in itertools.islice(chosen, None if records else first)]
    if not shown.cards and shown.damage is not None:
        raise shown.damage.to_error()
    return shown


# Which records


def _records(found: Found, profile: Profile, shown: Shown) -> Iterator[_Record]:
    for dataset, shard in ((one, shard) for one in found.datasets for shard in one.shards):
        label_map = dataset.label_map_of(shard)
        for detections, row in _rows(shard, profile, shown):
            yield _read(detections, row, label_map.label_map if label_map else None)


def _rows(shard: Shard, profile: Profile, shown: Shown) -> Iterator[tuple[Detections, int]]:
    with shard.open() as stream:
        try:
            for records in walk(stream, shard.name, shard.size, _LARGEST_RECORD):
                if isinstance(records, Damage):
                    shown.unreadable += 1
                    shown.damage = shown.damage or records
                    continue
                detections = Detections(ExampleBatch.of(records), profile.field_mapping)
                refused = detections.examples.refused
                shown.unreadable += len(refused)
                yield from ((detections, row) for row in range(len(records)) if row not in refused)
        except ZipEntryError:
            shown.unreadable += 1


def _numbered(records: Iterator[_Record], numbers: frozenset[int]) -> Iterator[_Record]:
    last = -1
    for one in records:
        last = one.sample.record
        if last in numbers:
            yield one
        if last >= max(numbers):
            return
    raise TfodError(f"--records {max(numbers)}: the last record is {last}")


def _of_class(records: Iterator[_Record], name: str) -> Iterator[_Record]:
    classes: set[str] = set()
    for one in records:
        names = {*one.sample.classes, *one.labels}
        classes |= names
        if name in names:
            yield one
    if name not in classes:
        near = difflib.get_close_matches(name, classes, n=3) or sorted(classes)[:_MOST_NAMES]
        some = ", ".join(map(repr, near)) or "none"
        raise TfodError(f"no object is of the class {name!r}; there are {some}")


def _drawn(
    records: Iterable[_Record], count: int, card: Callable[[_Record], Card]
) -> Sequence[Card]:
    """So many, each as likely as any other, in their order; the same ones in every run."""
    chance = random.Random(0)
    kept: list[tuple[int, Card]] = []
    for place, one in enumerate(records):
        at = place if place < count else chance.randrange(place + 1)
        if at < count:
            kept[at : at + 1] = [(place, card(one))]
    return [card for _, card in sorted(kept, key=lambda one: one[0])]


# What is to be seen of a record


def _read(detections: Detections, row: int, label_map: LabelMap | None) -> _Record:
    """What is to be seen of a record, which is an Example; what cannot be read is left out."""
    example, field_mapping = Example(detections.examples, row), detections.mapping
    sample = read_sample(example, field_mapping)
    if sample.image and sniff_format(sample.image[:16]) is None:
        sample = replace(sample, image=_encoded_pixels(example, sample) or sample.image)
    texts = itertools.chain(sample.classes, itertools.repeat(""))
    ids = itertools.chain(read_ints(example, field_mapping.class_label), itertools.repeat(None))
    boxes = zip(texts, ids, sample.boxes, strict=False)
    classes = [_class(text, label, label_map) for text, label, _ in boxes]
    detection, notes = Detection(), list(_notes(sample.boxes))
    try:
        detection = detections[row]
    except RecordError as error:
        notes.insert(0, f"{error.feature or ''} {error.cause}".strip())
    labels = []
    for one in detection.image_labels[:_MOST_LABELS]:
        name, _ = _class(one.text or "", one.label, label_map)
        labels.append(f"not {name}" if one.confidence == 0 else name)
    sample = replace(sample, classes=tuple(name for name, _ in classes))
    return _Record(sample, classes, detection, labels, notes)


def _class(text: str, label: int | None, label_map: LabelMap | None) -> tuple[str, str]:
    """Name and colour of a class: the text decides, then the id."""
    number = "" if label is None else f"#{label}"
    item = label_map.find(text) if label_map and text else None
    if item is None and label_map and label is not None and text in ("", number):
        item = label_map.find_id(label)
        text = item.class_name if item else number
    text = text or number
    return text, class_colour(text, item.id if item else None)


def _notes(boxes: np.ndarray) -> Iterator[str]:
    """What is wrong with the boxes, as far as it changes how they are drawn."""
    drawn = boxes[~np.isnan(boxes).any(axis=1)]
    inverted = (drawn[:, 2:] < drawn[:, :2]).any(axis=1)
    far = ((drawn < -REACH) | (drawn > 1 + REACH)).any(axis=1)
    for count, what in (
        (len(boxes) - len(drawn), "not a number, not drawn"),
        (int(inverted.sum()), "inverted"),
        (int(far.sum()), "far outside the image"),
        (len(drawn) - MOST_DRAWN, "too many, not drawn"),
    ):
        if count > 0:
            yield f"{plural(count, 'box')} {what}"


def _encoded_pixels(example: Example, sample: Sample) -> bytes | None:
    """Raw pixels as an image, where height, width and channels say that they are that."""
    pixels, area = sample.image or b"", sample.height * sample.width
    channels = len(pixels) // area if area else 0
    said = {count for key in _CHANNELS for count in read_ints(example, key)}
    if channels not in _MODES or area * channels != len(pixels) or not said <= {channels}:
        return None
    with strict_pillow():
        from PIL import Image

        image = Image.frombytes(_MODES[channels], (sample.width, sample.height), pixels)
        image.save(file := io.BytesIO(), "BMP")
    return file.getvalue()


# Drawing


def _card(record: _Record, *, several: bool) -> Card:
    sample, where = record.sample, record_name(record.sample.record)
    counts = Counter(record.classes).most_common()
    return Card(
        svg=draw(
            sample,
            colours=[colour for _, colour in record.classes],
            most_named=MOST_DRAWN,
            tallest=_TALLEST,
            masks=partial(_mask_layer, record),
            points=_points(record),
        ),
        name=sample.item or "",
        where=f"{sample.shard}, {where}" if several else where,
        notes=record.notes,
        classes=[
            *((name, "", 1) for name in record.labels),
            *((name, colour, count) for (name, colour), count in counts),
        ],
    )


def _points(record: _Record) -> Iterator[tuple[float, float, str, bool]]:
    """Keypoints: x and y, normalized, their object's colour, and whether they are visible."""
    found = record.detection.keypoints
    if found is None:
        return
    is_near = (np.abs(found.xy) < _FARTHEST).all(axis=2)  # nor is it NaN
    for number, place in np.argwhere((found.visibility != 0) & is_near).tolist():
        x, y = found.xy[number, place].tolist()
        yield x, y, record.classes[number][1], bool(found.visibility[number, place] == 2)


def _mask_layer(record: _Record, size: tuple[int, int]) -> Image.Image | None:
    """The masks of a record in the colours of their objects, translucent; None without one."""
    from PIL import Image, ImageColor

    found, layer = record.detection, None
    masks: Iterable[PngMask | np.ndarray | None] = found.masks or ()
    if found.numerical_masks is not None:
        masks = found.numerical_masks
    for mask, (_, colour) in zip(masks, record.classes, strict=False):
        drawn = _decoded(mask) if isinstance(mask, PngMask) else mask
        if drawn is not None:
            layer = layer or Image.new("RGBA", size, (0, 0, 0, 0))
            inside = Image.fromarray(np.where(drawn > 0, 255, 0).astype("u1"))
            inside = inside.resize(size, Image.Resampling.NEAREST)
            layer.paste((*ImageColor.getrgb(colour)[:3], _MASK_OPACITY), (0, 0), inside)
    return layer


def _decoded(mask: PngMask) -> np.ndarray | None:
    """Where a mask is; None of one that is broken or a bomb."""
    size = png_size(mask.data)
    if size is not None and fits_into_memory(size):
        with contextlib.suppress(ValueError):
            return decode_mask_png(mask.data)
    return None


def class_colour(name: str, label: int | None) -> str:
    """The colour of a class: by its id, whose neighbours differ most, or by its name."""
    return _colour(label if label is not None else zlib.crc32(name.encode("utf-8", "replace")))


@cache
def _colour(place: int) -> str:
    # Steps of the golden ratio never come near an earlier hue.
    hue = (_FIRST_HUE + place * _GOLDEN) % 1
    saturation = _SATURATIONS[place // 8 % len(_SATURATIONS)]
    light = np.array(colorsys.hls_to_rgb(hue, 0.5, saturation)) ** _GAMMA
    light = np.minimum(1, light * _LUMINANCE / (light @ _LUMINANCES))
    red, green, blue = np.rint(255 * light ** (1 / _GAMMA)).astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"

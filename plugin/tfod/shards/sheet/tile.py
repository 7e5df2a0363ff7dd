"""What a sheet shows of one record."""

from __future__ import annotations

import colorsys
import contextlib
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tfod.check.dataset import LabelMapFile
from tfod.check.findings.finding import plural
from tfod.check.reporters.drawing import MOST_DRAWN, REACH, fits_into_memory
from tfod.check.reporters.samples import Sample, read_ints, read_sample
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.detections import Detections
from tfod.detection.images.image import image_size, sniff_format
from tfod.detection.images.masks import decode_mask_png
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import RecordError
from tfod.example.example import Example

if TYPE_CHECKING:
    from PIL import Image

Colour: TypeAlias = tuple[int, int, int]
"""Red, green, blue."""
_CHANNELS = ("channels", "depth", "image/channels")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MASK_OPACITY = 110
_PNG_HEAD = 64  # bytes, in which its size is
_MOST_LABELS = 6
_GOLDEN, _FIRST_HUE, _SATURATIONS = 0.6180339887498949, 0.36, (0.78, 0.6, 0.95)
_LUMINANCE = 0.17
"""Of a class's colour; white on it has a contrast of 4.8 to 1, WCAG 2.2 asks for 4.5."""


@dataclass(frozen=True, eq=False)
class Tile:
    """A record as a sheet shows it.

    Attributes:
        sample: its image and boxes, with the names of their classes; ``colours`` are the boxes'.
        masks: of each object, a PNG or numbers of shape (height, width); None for none.
        labels: classes of the whole image.
        notes: what is odd about it, in a few words each.
    """

    sample: Sample
    colours: Sequence[Colour]
    masks: Sequence[PngMask | np.ndarray | None]
    keypoints: Keypoints | None
    labels: Sequence[str]
    notes: Sequence[str]

    @property
    def classes(self) -> Counter[tuple[str, Colour]]:
        """How many objects each class has."""
        return Counter(zip(self.sample.classes, self.colours, strict=False))


def make_tile(detections: Detections, row: int, label_map: LabelMapFile | None) -> Tile:
    """Find what is to be seen of a record, which is an Example; what cannot be read is left out."""
    example, field_mapping = Example(detections.examples, row), detections.mapping
    sample = read_sample(example, field_mapping)
    if sample.image and sniff_format(sample.image[:16]) is None:
        sample = replace(sample, image=_encoded_pixels(example, sample) or sample.image)
    ids = read_ints(example, field_mapping.class_label)
    names, colours = _classes(sample, ids, label_map.label_map if label_map else None)
    sample = replace(sample, classes=names)
    detection, notes = Detection(), list(_notes(sample))
    try:
        detection = detections[row]
    except RecordError as error:
        notes.insert(0, f"{error.feature or ''} {error.cause}".strip())
    numbers = detection.numerical_masks
    return Tile(
        sample=sample,
        colours=colours,
        masks=detection.masks or () if numbers is None else list(numbers),
        keypoints=detection.keypoints,
        labels=_labels(detection, label_map.label_map if label_map else None),
        notes=notes,
    )


def _classes(
    sample: Sample, ids: Sequence[int], label_map: LabelMap | None
) -> tuple[tuple[str, ...], list[Colour]]:
    """Names and colours of the boxes; the text decides, then the id."""
    names, colours = [], []
    for number in range(len(sample.boxes)):
        name = sample.classes[number] if number < len(sample.classes) else ""
        label = ids[number] if number < len(ids) else None
        item = label_map.find(name) if label_map and name else None
        if item is None and label_map and label is not None and name in ("", f"#{label}"):
            item = label_map.find_id(label)
            name = item.class_name if item else name
        names.append(name)
        colours.append(class_colour(name, item.id if item else None))
    return tuple(names), colours


def _notes(sample: Sample) -> Iterator[str]:
    """What is wrong with the boxes, as far as it changes how they are drawn."""
    boxes = sample.boxes
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


def _labels(detection: Detection, label_map: LabelMap | None) -> list[str]:
    found = []
    for one in detection.image_labels:
        item = label_map.find_id(one.label) if label_map and one.label is not None else None
        name = one.text or (item.class_name if item else f"#{one.label}")
        found.append(f"not {name}" if one.confidence == 0 else name)
    return found[:_MOST_LABELS]


def _encoded_pixels(example: Example, sample: Sample) -> bytes | None:
    """Raw pixels as an image, where height, width and channels say that they are that."""
    pixels, area = sample.image or b"", sample.height * sample.width
    channels = len(pixels) // area if area else 0
    said = {count for key in _CHANNELS for count in read_ints(example, key)}
    if channels not in _MODES or area * channels != len(pixels) or not said <= {channels}:
        return None
    from PIL import Image

    file = io.BytesIO()
    size = sample.width, sample.height
    if not fits_into_memory(size):
        return None
    Image.frombytes(_MODES[channels], size, pixels).save(file, "BMP")
    return file.getvalue()


def mask_layer(tile: Tile, size: tuple[int, int]) -> Image.Image | None:
    """The masks of a tile in the colours of their objects, translucent; None without one."""
    from PIL import Image

    layer = None
    for number, mask in enumerate(tile.masks):
        drawn = _drawn(mask) if isinstance(mask, PngMask) else mask
        if drawn is None:
            continue
        layer = layer or Image.new("RGBA", size, (0, 0, 0, 0))
        colour = tile.colours[number] if number < len(tile.colours) else (0, 0, 0)
        inside = Image.fromarray(np.where(drawn > 0, 255, 0).astype("u1"))
        inside = inside.resize(size, Image.Resampling.NEAREST)
        layer.paste((*colour, _MASK_OPACITY), (0, 0), inside)
    return layer


def _drawn(mask: PngMask) -> np.ndarray | None:
    """Where a mask is; None of one that is broken or a bomb."""
    size = image_size(bytes(mask.data[:_PNG_HEAD]))
    if size is not None and fits_into_memory(size):
        with contextlib.suppress(ValueError):
            return decode_mask_png(mask.data)
    return None


# A colour for each class, the same in every run, on which white letters can be read


def class_colour(name: str, label: int | None) -> Colour:
    """The colour of a class: by its id, whose neighbours differ most, or by its name."""
    return _colour(label if label is not None else zlib.crc32(name.encode("utf-8", "replace")))


@cache
def _colour(place: int) -> Colour:
    # Steps of the golden ratio never come near an earlier hue.
    hue = (_FIRST_HUE + place * _GOLDEN) % 1
    saturation = _SATURATIONS[place // 8 % len(_SATURATIONS)]
    low, high = 0.0, 1.0
    for _ in range(12):
        lightness = (low + high) / 2
        rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
        low, high = (low, lightness) if _luminance(rgb) > _LUMINANCE else (lightness, high)
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue, low, saturation))
    return red, green, blue


def _luminance(rgb: tuple[float, float, float]) -> float:
    """Relative luminance of sRGB, as WCAG defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def spelled(colour: Colour) -> str:
    """``#d1242f``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)

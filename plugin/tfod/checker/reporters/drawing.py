"""An image with its boxes, as SVG: the report, ``tfod show`` and the service all draw it here."""

from __future__ import annotations

import base64
import colorsys
import contextlib
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tfod.checker.analysis.encoded_images import PILLOW_FORMATS, strict_pillow
from tfod.checker.finding import plural, size
from tfod.checker.reporters.escaping import columns, shortened_name, visible
from tfod.checker.reporters.samples import Sample
from tfod.detection.detection import Detection, PngMask
from tfod.detection.images.mask_images import decode_mask_png, png_size
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from jinja2 import Template
    from PIL import Image

MOST_DRAWN = 200
WRONG, OTHER = "#e3001b", "#7fd4ff"
"""Colours of boxes that a finding is about, and of others."""
_REACH = 0.25  # how far outside its image a box is drawn, as a part of it; others end there
_LONGEST = 480  # pixels of the longer side of an image on a page
_UNIT = 1000.0  # width of an image in the units of its SVG
_AIR = 0.03  # room around boxes that reach outside, so that their lines are seen
_USUAL_WIDTH, _LETTER = 20.0, 0.8  # of images in a report, and the height of names, rem
_CELL, _RIM = 0.7, 0.225  # width of a letter and of what is around a name, as parts of its height
_USUAL_SIZE, _UTMOST_ASPECT = (320, 240), 6.0
_MASK_OPACITY = 110
_GOLDEN, _FIRST_HUE = 0.6180339887498949, 0.36
_GAMMA, _LUMINANCES = 2.2, (0.2126, 0.7152, 0.0722)  # of sRGB; of red, green and blue
_LUMINANCE = 0.17
"""Of a class's colour; white on it has a contrast of 4.7 to 1, WCAG 2.2 asks for 4.5."""


def draw(
    sample: Sample,
    *,
    tallest: float = 12.0,
    colours: Sequence[str] = (),
    detection: Detection | None = None,
) -> str:
    """Draw a sample as SVG in which the image is 1,000 units wide, with a margin for boxes outside.

    The pixels are shown as they are stored, as TensorFlow sees them: EXIF orientation is not
    applied. An image that is missing, broken or a bomb is a grey field. The wrong boxes are on top.
    Names do not cover each other: where there is no room for one, the box's tooltip alone has it.

    Args:
        sample: what to draw.
        tallest: height on a page at most, rem.
        colours: of the boxes; by default the wrong ones are red and the others blue.
        detection: with masks and keypoints, which are drawn in the colours of their boxes.

    Raises:
        TfodError: Pillow or jinja2 is not installed.
    """
    small, aspect = shrunk(sample, _LONGEST)
    numbers, corners = _drawn_boxes(sample)
    colours = colours or [
        WRONG if number in sample.offending else OTHER for number in range(len(sample.boxes))
    ]
    scale = np.array((_UNIT, _UNIT / aspect) * 2)
    frame = (_extent(corners) * scale).tolist()
    wide, high = frame[2] - frame[0], frame[3] - frame[1]
    width = tallest * wide / high
    letter = _LETTER * wide / min(_USUAL_WIDTH, width)
    boxes = [
        _Box(
            (box * scale).tolist(),
            number,
            sample.classes[number] if number < len(sample.classes) else "",
            colours[number],
            number in sample.offending,
        )
        for number, box in zip(numbers, corners, strict=True)
    ]
    _place_names(boxes, frame, letter)
    layer = _mask_layer(detection, colours, aspect) if detection else None
    svg: str = template_of("drawing.svg").render(
        view=f"{frame[0]:.0f} {frame[1]:.0f} {wide:.0f} {high:.0f}",
        width=width,
        tallest=tallest,
        about=f"{plural(len(numbers), 'box')} on {sample.item or 'the image'}",
        picture=_data_url(small, "JPEG") if small else None,
        high=_UNIT / aspect,
        why="image does not decode" if sample.image else "no image in the record",
        letter=letter,
        masks=_data_url(layer, "PNG") if layer else None,
        boxes=boxes,
        points=_points(detection, colours, scale) if detection else (),
        other=OTHER,
    )
    return svg


@cache
def template_of(name: str) -> Template:
    """A template of the page: before a fork, since loading it takes as long as a small check.

    Raises:
        TfodError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise TfodError(f"the HTML report needs jinja2; {how_to_install('validator')}") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tfod.checker.reporters"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # Control characters are spelled out wherever a text is written.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number="{:,}".format, size=size, plural=plural)
    environment.filters.update(shortened=shortened_name)
    return environment.get_template(name)


def undrawn(sample: Sample) -> int:
    """Boxes that are too many to draw, or not finite."""
    return len(sample.boxes) - len(_drawn_boxes(sample)[0])


def class_colour(name: str, label: int | None) -> str:
    """The colour of a class: by its id, whose neighbours differ most, or by its name."""
    place = label if label is not None else zlib.crc32(name.encode("utf-8", "replace"))
    # Steps of the golden ratio never come near an earlier hue.
    light = np.array(colorsys.hls_to_rgb((_FIRST_HUE + place * _GOLDEN) % 1, 0.5, 0.8)) ** _GAMMA
    light = np.minimum(1, light * _LUMINANCE / (light @ _LUMINANCES))
    red, green, blue = np.rint(255 * light ** (1 / _GAMMA)).astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"


# Boxes and their names


def _drawn_boxes(sample: Sample) -> tuple[list[int], np.ndarray]:
    """Boxes of a sample as they are drawn; those that reach farther outside end at ``_REACH``.

    Returns:
        Their numbers, with no NaN among them, not too many, the offending ones last; and the boxes,
        shape (n, 4), normalized, the smaller coordinate first.
    """
    boxes = np.asarray(sample.boxes, np.float64).reshape(-1, 4)
    known = np.nonzero(~np.isnan(boxes).any(axis=1))[0].tolist()
    numbers = sorted(known, key=lambda one: one not in sample.offending)[:MOST_DRAWN][::-1]
    upright = np.sort(boxes[numbers].reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    return numbers, np.clip(upright, -_REACH, 1 + _REACH)


def _extent(boxes: np.ndarray) -> np.ndarray:
    """The image and all that reaches outside: left, top, right, bottom, normalized."""
    corners = np.vstack((boxes, (0.0, 0.0, 1.0, 1.0)))
    least, most = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
    return np.concatenate((least - _AIR * (least < 0), most + _AIR * (most > 1)))


@dataclass
class _Box:
    """A box as it is drawn; ``place`` is where its name begins, None where there is no room."""

    corners: Sequence[float]
    number: int
    name: str
    colour: str
    is_wrong: bool
    place: tuple[float, float] | None = None


def _place_names(boxes: Sequence[_Box], frame: Sequence[float], letter: float) -> None:
    """Find room for names above their boxes, in them at the top or below; for wrong ones first."""
    left, top, right, bottom = frame
    taken: list[tuple[float, float, float]] = []  # left, top, right
    height = 1.3 * letter
    for box in reversed(boxes):
        width = (columns(shortened_name(box.name)) * _CELL + 2 * _RIM) * letter
        x = max(left, min(box.corners[0], right - width))
        for y in (box.corners[1] - height, box.corners[1] + 0.1 * letter, box.corners[3]):
            is_free = all(
                x + width <= start or end <= x or abs(y - other) >= height
                for start, other, end in taken
            )
            if box.name and is_free and top <= y and y + height <= bottom:
                taken.append((x, y, x + width))
                box.place = x + _RIM * letter, y + letter
                break


def _points(
    detection: Detection, colours: Sequence[str], scale: np.ndarray
) -> Iterator[tuple[float, float, str, bool]]:
    """Keypoints, their colour and whether they are visible; those far outside are not drawn."""
    found = detection.keypoints
    if found is None:
        return
    near = (found.xy >= -_REACH) & (found.xy <= 1 + _REACH)  # nor is it NaN
    for number, place in np.argwhere((found.visibility != 0) & near.all(axis=2)).tolist():
        x, y = (found.xy[number, place] * scale[:2]).tolist()
        yield x, y, colours[number], bool(found.visibility[number, place] == 2)


# Pixels


def _data_url(image: Image.Image, kind: str) -> str:
    image.save(file := io.BytesIO(), kind, quality=80)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def _mask_layer(detection: Detection, colours: Sequence[str], aspect: float) -> Image.Image | None:
    """The masks of a record in the colours of their objects, translucent; None without one."""
    from PIL import Image, ImageColor

    layer, size = None, (_LONGEST, max(1, round(_LONGEST / aspect)))
    masks = detection.masks if detection.numerical_masks is None else detection.numerical_masks
    for mask, colour in zip(() if masks is None else masks, colours, strict=False):
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
    if size is not None and _fits_into_memory(size):
        with contextlib.suppress(ValueError):
            return decode_mask_png(mask.data)
    return None


def shrunk(sample: Sample, longest: int) -> tuple[Image.Image | None, float]:
    """Decode an image, at most ``longest`` pixels a side, to 8-bit RGB.

    Returns:
        The image, None if it is missing, broken or a bomb; and the width by height at which to show
        it: what a record says may be absurd, and an image that is a line is no use either.

    Raises:
        TfodError: Pillow is not installed.
    """
    small, size = None, (sample.width, sample.height)
    if sample.image:
        with strict_pillow():
            from PIL import Image

            try:
                with Image.open(io.BytesIO(sample.image), formats=PILLOW_FORMATS) as image:
                    full = image.size
                    if _fits_into_memory(full):
                        image.draft("RGB", (longest, longest))
                        small, size = _rgb(image, longest), full
            except Exception:  # whatever decoders raise on broken bytes: OSError, struct.error, ...
                small = None
    width, height = size if min(size) > 0 else _USUAL_SIZE
    return small, min(max(width / height, 1 / _UTMOST_ASPECT), _UTMOST_ASPECT)


def _fits_into_memory(size: tuple[int, int]) -> bool:
    """Whether an image of this width and height is no decompression bomb."""
    from PIL import Image

    return Image.MAX_IMAGE_PIXELS is None or size[0] * size[1] <= Image.MAX_IMAGE_PIXELS


def _rgb(image: Image.Image, longest: int) -> Image.Image:
    """Small, without transparency, which JPEG does not have."""
    from PIL import Image

    small = image.copy()
    if image.mode.startswith("I"):  # of 16 bits; a plain conversion would clip it to white
        values = np.asarray(image).astype(np.float64)
        small = Image.fromarray((values / max(values.max(), 1.0) * 255).clip(0, 255).astype("u1"))
    small.thumbnail((longest, longest))
    if "A" not in small.getbands() and "transparency" not in small.info:
        return small.convert("RGB")
    layer = small.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")

"""An image with its boxes, as SVG: the report, ``tfod show`` and the service all draw it here."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from tfod.check.findings.finding import plural
from tfod.check.records.image_bytes import PILLOW_FORMATS, strict_pillow
from tfod.check.reporters.escaping import columns, shortened_name, visible
from tfod.check.reporters.samples import Sample

if TYPE_CHECKING:
    from PIL import Image

MOST_DRAWN = 200
REACH = 0.25
"""How far outside its image a box is drawn, as a part of the image; farther ones end there."""
_LONGEST = 480
"""Pixels of the longer side of an image on a page."""
WRONG, OTHER = "#e3001b", "#7fd4ff"
"""Colours of boxes that a finding is about, and of others."""
_UNIT = 1000.0  # width of an image in the units of its SVG
_AIR = 0.03  # room around boxes that reach outside, so that their lines are seen
_TINY = 0.025  # a wrong box that is smaller, as a part of the image, gets a ring around it
_USUAL_WIDTH, _LETTER = 20.0, 0.8  # of images in a report, and the height of names, rem
_MOST_NAMED = 24
_CELL, _RIM = 0.7, 0.225  # width of a letter and of what is around a name, as parts of its height
_LINE = 'fill="none" stroke-linejoin="round" vector-effect="non-scaling-stroke"'
_USUAL_SIZE, _UTMOST_ASPECT = (320, 240), 6.0


def draw(
    sample: Sample,
    *,
    colours: Sequence[str] = (),
    most_named: int = _MOST_NAMED,
    tallest: float = 12.0,
    masks: Callable[[tuple[int, int]], Image.Image | None] | None = None,
    points: Iterable[tuple[float, float, str, bool]] = (),
) -> str:
    """Draw a sample as SVG in which the image is 1,000 units wide, with a margin for boxes outside.

    The pixels are shown as they are stored, as TensorFlow sees them: EXIF orientation is not
    applied. An image that is missing, broken or a bomb is a grey field. The wrong boxes are on top.
    Names do not cover each other: where there is no room for one, the box's tooltip alone has it.

    Args:
        sample: what to draw.
        colours: of the boxes; by default the wrong ones are red and the others blue.
        most_named: where there are more boxes, only the wrong ones have their class on them.
        tallest: height on a page at most, rem.
        masks: makes an image of a size, width and height, that lies over it; None for none.
        points: keypoints: x and y, normalized, colour, and whether they are filled.

    Raises:
        TfodError: Pillow is not installed.
    """
    small, aspect = shrunk(sample, _LONGEST)
    numbers, boxes = _drawn_boxes(sample)
    scale = np.array((_UNIT, _UNIT / aspect) * 2)
    left, top, right, bottom = (_extent(boxes) * scale).tolist()
    wide, high = right - left, bottom - top
    width = tallest * wide / high
    letter = _LETTER * wide / min(_USUAL_WIDTH, width)
    size = f'width="{width:.2f}rem" height="{tallest:.2f}rem"'
    about = f"{plural(len(numbers), 'box')} on {sample.item or 'the image'}"
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="image" '
        f'viewBox="{left:.0f} {top:.0f} {wide:.0f} {high:.0f}" {size} role="img" '
        f'aria-label="{escape(visible(about))}" font-family="system-ui, sans-serif">',
        _picture(small, scale, "JPEG") if small else _placeholder(sample, scale, letter),
    ]
    layer = masks((_LONGEST, max(1, round(_LONGEST / aspect)))) if masks else None
    svg += [_picture(layer, scale, "PNG")] if layer else []
    corners = (boxes * scale).tolist()
    tags: list[_Tag] = []
    for place, number in enumerate(numbers):
        is_wrong = number in sample.offending
        colour = colours[number] if colours else WRONG if is_wrong else OTHER
        name = sample.classes[number] if number < len(sample.classes) else ""
        title = f"object {number}: {name}" if name else f"object {number}"
        svg.append(_box(corners[place], title, colour, is_wrong=is_wrong))
        if name and (is_wrong or len(numbers) <= most_named):
            tags.append(_Tag(corners[place], shortened_name(name), colour, is_wrong=is_wrong))
    names = list(_placed(tags, (left, top, right, bottom), letter))
    for x, y, colour, filled in points:
        edge, inside = ("#fff", colour) if filled else (colour, "#fff")
        svg.append(
            f'<circle class="point" cx="{x * scale[0]:.1f}" cy="{y * scale[1]:.1f}" '
            f'r="{letter * 0.28:.1f}" stroke="{edge}" stroke-width="{letter * 0.1:.1f}" '
            f'fill="{inside}"/>'
        )
    return "\n".join((*svg, *names, "</svg>"))


def undrawn(sample: Sample) -> int:
    """Boxes that are too many to draw, or not finite."""
    return len(sample.boxes) - len(_drawn_boxes(sample)[0])


def _drawn_boxes(sample: Sample) -> tuple[list[int], np.ndarray]:
    """Boxes of a sample as they are drawn; those that reach farther outside end at ``REACH``.

    Returns:
        Their numbers, with no NaN among them, not too many, the offending ones last; and the boxes,
        shape (n, 4), normalized, the smaller coordinate first.
    """
    boxes = np.asarray(sample.boxes, np.float64).reshape(-1, 4)
    known = np.nonzero(~np.isnan(boxes).any(axis=1))[0].tolist()
    numbers = sorted(known, key=lambda one: one not in sample.offending)[:MOST_DRAWN][::-1]
    upright = np.sort(boxes[numbers].reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    return numbers, np.clip(upright, -REACH, 1 + REACH)


def _extent(boxes: np.ndarray) -> np.ndarray:
    """The image and all that reaches outside: left, top, right, bottom, normalized."""
    corners = np.vstack((boxes, (0.0, 0.0, 1.0, 1.0)))
    least, most = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
    return np.concatenate((least - _AIR * (least < 0), most + _AIR * (most > 1)))


def _box(corners: Sequence[float], title: str, colour: str, *, is_wrong: bool) -> str:
    """A box with its tooltip: a line in the middle of a wider one, which any image lets see."""
    x1, y1, x2, y2 = corners
    rim, thick = ("#000", 1.75) if colour == OTHER else ("#fff", 2.5)
    path = f"M{x1:.1f} {y1:.1f}H{x2:.1f}V{y2:.1f}H{x1:.1f}Z"
    ring = ""
    if is_wrong and max(x2 - x1, y2 - y1) < _TINY * _UNIT:
        middle = f'cx="{(x1 + x2) / 2:.1f}" cy="{(y1 + y2) / 2:.1f}" r="28"'
        ring = f'<circle {middle} {_LINE} stroke="{colour}" stroke-width="{thick}"/>'
    return (
        f'<g class="box{" bad" if is_wrong else ""}" pointer-events="all">'
        f"<title>{escape(visible(title))}</title>"
        f'<path d="{path}" {_LINE} stroke="{rim}" stroke-opacity=".8" stroke-width="{2 * thick}"/>'
        f'<path class="line" d="{path}" stroke="{colour}" {_LINE} stroke-width="{thick}"/>'
        f"{ring}</g>"
    )


@dataclass(frozen=True)
class _Tag:
    """The class of a box, to be written beside it."""

    box: Sequence[float]
    name: str
    colour: str
    is_wrong: bool


def _placed(tags: Sequence[_Tag], frame: Sequence[float], letter: float) -> Iterator[str]:
    """Tags where there is room for them, the last ones first; they are written in their order."""
    found: list[str] = []
    taken: list[Sequence[float]] = []
    for tag in reversed(tags):
        for area in _areas(tag, frame, letter):
            if not any(_overlap(area, other) for other in taken):
                taken.append(area)
                found.append(_text(tag, area, letter))
                break
    yield from reversed(found)


def _areas(
    tag: _Tag, frame: Sequence[float], letter: float
) -> Iterator[tuple[float, float, float, float]]:
    """Where a tag may be: above the box, in it, below it; at its left or its right side."""
    left, top, right, bottom = frame
    x1, y1, x2, y2 = tag.box
    width, height = (columns(tag.name) * _CELL + 2 * _RIM) * letter, 1.3 * letter
    gap = 0.1 * letter
    for y in (y1 - height, y1 + gap, y2, y2 - height - gap):
        for x in (x1, x2 - width):
            within = max(left, min(x, right - width))
            if top <= y and y + height <= bottom:
                yield within, y, within + width, y + height


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    is_beside = one[2] <= other[0] or other[2] <= one[0]
    return not (is_beside or one[3] <= other[1] or other[3] <= one[1])


def _text(tag: _Tag, area: Sequence[float], letter: float) -> str:
    rim = "#123a5c" if tag.colour == OTHER else tag.colour
    x, y = area[0] + _RIM * letter, area[1] + letter
    return (
        f'<text class="tag-text{" bad" if tag.is_wrong else ""}" x="{x:.1f}" y="{y:.1f}" '
        f'font-size="{letter:.1f}" font-weight="600" '
        f'fill="#fff" stroke="{rim}" stroke-width="{2 * _RIM * letter:.1f}" '
        f'stroke-linejoin="round" paint-order="stroke" pointer-events="none">'
        f"{escape(tag.name)}</text>"
    )


def _picture(image: Image.Image, scale: np.ndarray, kind: str) -> str:
    image.save(file := io.BytesIO(), kind, quality=80)
    content = base64.b64encode(file.getvalue()).decode("ascii")
    return (
        f'<image href="data:image/{kind.lower()};base64,{content}" width="{scale[0]:.0f}" '
        f'height="{scale[1]:.1f}" preserveAspectRatio="none"/>'
    )


def _placeholder(sample: Sample, scale: np.ndarray, letter: float) -> str:
    why = "image does not decode" if sample.image else "no image in the record"
    letter = min(letter, scale[0] / 14, scale[1] / 2)
    return (
        f'<rect width="{scale[0]:.0f}" height="{scale[1]:.1f}" fill="#6e737b"/>'
        f'<text x="{scale[0] / 2:.1f}" y="{scale[1] * 0.93:.1f}" font-size="{letter:.1f}" '
        f'fill="#fff" text-anchor="middle">{why}</text>'
    )


# The pixels


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
                    if fits_into_memory(full):
                        image.draft("RGB", (longest, longest))
                        small, size = _rgb(image, longest), full
            except Exception:  # whatever decoders raise on broken bytes: OSError, struct.error, ...
                small = None
    width, height = size if min(size) > 0 else _USUAL_SIZE
    return small, min(max(width / height, 1 / _UTMOST_ASPECT), _UTMOST_ASPECT)


def fits_into_memory(size: tuple[int, int]) -> bool:
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

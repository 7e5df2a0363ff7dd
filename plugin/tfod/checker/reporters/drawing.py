"""Drawing of images with their boxes as SVG, for the report, ``tfod show`` and the service."""

from __future__ import annotations

import base64
import contextlib
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tfod.checker.finding import plural, size
from tfod.checker.reporters.escaping import columns, shorten_name, visible
from tfod.checker.reporters.samples import Sample
from tfod.detection.detection import Detection, PngMask
from tfod.detection.images.mask_images import decode_mask_png, png_size
from tfod.detection.images.pillow import open_image, strict_pillow
from tfod.errors import TfodError, how_to_install

if TYPE_CHECKING:
    from jinja2 import Template
    from PIL import Image

MAX_DRAWN = 200
PALETTE = (
    *("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6"),
    *("#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"),
)
"""Colours of classes, which people with color blindness can tell apart (M. Petroff, 2021)."""
_SEED = 9  # with it, person, bicycle, car, motorcycle, bus, truck, cat and dog differ
_LIGHT = 0.179  # relative luminance above which black text has a higher contrast than white text
_MAX_OVERHANG = 0.25  # boxes are clipped at this fraction of the image size outside of the image
_MAX_SIDE = 960  # pixels of the longer side of an image on a page, where it can be enlarged
_UNIT = 1000.0  # width of an image in the units of its SVG
_MARGIN = 0.03  # space around boxes that extend outside, so that their lines are visible
_USUAL_WIDTH, _LETTER_HEIGHT = 20.0, 0.8  # width of images in a report, and height of names, rem
_LETTER_WIDTH, _NAME_MARGIN = 0.7, 0.225  # as fractions of the height of a name
_DEFAULT_SIZE, _MAX_ASPECT = (320, 240), 6.0
_MASK_OPACITY = 110
_GAMMA, _LUMINANCES = 2.2, (0.2126, 0.7152, 0.0722)  # sRGB: gamma; red, green and blue


def draw(
    sample: Sample,
    *,
    max_height: float = 12.0,
    max_width: float = _USUAL_WIDTH,
    detection: Detection | None = None,
) -> str:
    """Draw a sample as SVG in which the image is 1,000 units wide, with a margin for boxes outside.

    The pixels are shown as stored, as TensorFlow reads them, without EXIF orientation. An image
    that is missing, damaged or a decompression bomb is grey. Boxes with findings are on top, with
    thick lines. Names do not overlap: if there is no space for a name, only the tooltip of the box
    has it.

    Args:
        sample: the image and its boxes.
        max_height: maximum height on a page, rem.
        max_width: maximum width, rem, which determines the size of letters.
        detection: masks and keypoints to draw in the colours of their classes.
    """
    small, aspect = make_thumbnail(sample, _MAX_SIDE)
    numbers, corners = _select_boxes(sample)
    names = [
        *sample.classes[: len(sample.boxes)],
        *[""] * (len(sample.boxes) - len(sample.classes)),
    ]
    colours = [*map(choose_class_colour, names)]
    scale = np.array((_UNIT, _UNIT / aspect) * 2)
    frame = (_compute_extent(corners) * scale).tolist()
    frame_width, frame_height = frame[2] - frame[0], frame[3] - frame[1]
    width = max_height * frame_width / frame_height
    letter = _LETTER_HEIGHT * frame_width / min(max_width, width)
    boxes = [
        _Box(
            (box * scale).tolist(),
            number,
            names[number],
            colours[number],
            number in sample.offending,
        )
        for number, box in zip(numbers, corners, strict=True)
    ]
    _place_names(boxes, frame, letter)
    layer = _draw_masks(detection, colours, aspect) if detection else None
    svg: str = get_template("drawing.svg").render(
        view=f"{frame[0]:.0f} {frame[1]:.0f} {frame_width:.0f} {frame_height:.0f}",
        width=width,
        height=max_height,
        about=f"{plural(len(numbers), 'box')} on {sample.item or 'the image'}",
        picture=_data_url(small, "JPEG") if small else None,
        image_height=_UNIT / aspect,
        why="image cannot be decoded" if sample.image else "no image in the record",
        letter=letter,
        masks=_data_url(layer, "PNG") if layer else None,
        boxes=boxes,
        points=_list_points(detection, colours, scale) if detection else (),
    )
    return svg


@cache
def get_template(name: str) -> Template:
    """Load a template, which takes as long as a small check."""
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
        # Escapes control characters in all texts.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number="{:,}".format, size=size, plural=plural)
    return environment.get_template(name)


def count_undrawn(sample: Sample) -> int:
    """Return the number of boxes that are not drawn: too many, or with NaN."""
    return len(sample.boxes) - len(_select_boxes(sample)[0])


def choose_class_colour(name: str) -> str:
    """Return the colour of a class, which depends only on its name."""
    return PALETTE[zlib.crc32(name.encode("utf-8", "replace"), _SEED) % len(PALETTE)]


def choose_text_colour(background: str) -> str:
    """Return black or white, whichever has the higher contrast on a colour of the palette."""
    light = (np.array([*bytes.fromhex(background[1:])]) / 255) ** _GAMMA
    return "#000" if light @ _LUMINANCES > _LIGHT else "#fff"


# Boxes and their names


def _select_boxes(sample: Sample) -> tuple[list[int], np.ndarray]:
    """Select the boxes to draw, and clip those that extend far outside.

    Returns:
        The numbers of at most ``MAX_DRAWN`` boxes without NaN, those with findings last; and the
        boxes, shape (n, 4), normalized, the smaller coordinates first.
    """
    boxes = np.asarray(sample.boxes, np.float64).reshape(-1, 4)
    finite = np.nonzero(~np.isnan(boxes).any(axis=1))[0].tolist()
    numbers = sorted(finite, key=lambda number: number not in sample.offending)[:MAX_DRAWN][::-1]
    ordered = np.sort(boxes[numbers].reshape(-1, 2, 2), axis=1).reshape(-1, 4)
    return numbers, np.clip(ordered, -_MAX_OVERHANG, 1 + _MAX_OVERHANG)


def _compute_extent(boxes: np.ndarray) -> np.ndarray:
    """Return the extent of the image and its boxes: left, top, right, bottom, normalized."""
    corners = np.vstack((boxes, (0.0, 0.0, 1.0, 1.0)))
    low, high = corners[:, :2].min(axis=0), corners[:, 2:].max(axis=0)
    # A margin only at the sides where boxes extend outside.
    return np.concatenate((low - _MARGIN * (low < 0), high + _MARGIN * (high > 1)))


@dataclass
class _Box:
    """A box to draw. ``name_start`` is the position of its name, None if there is no space."""

    corners: Sequence[float]
    number: int
    name: str
    colour: str
    is_wrong: bool
    name_start: tuple[float, float] | None = None

    @property
    def text_colour(self) -> str:
        """The colour of the name, and of the rim of the line."""
        return choose_text_colour(self.colour)

    @property
    def tag(self) -> str:
        """The shortened name; an exclamation mark before it marks a box with findings."""
        return f"! {shorten_name(self.name)}" if self.is_wrong else shorten_name(self.name)


def _place_names(boxes: Sequence[_Box], frame: Sequence[float], letter: float) -> None:
    """Place names above, in or below their boxes, starting with the boxes with findings."""
    left, top, right, bottom = frame
    used: list[tuple[float, float, float]] = []  # left, top, right
    height = 1.3 * letter
    for box in reversed(boxes):
        width = (columns(box.tag) * _LETTER_WIDTH + 2 * _NAME_MARGIN) * letter
        x = max(left, min(box.corners[0], right - width))
        for y in (box.corners[1] - height, box.corners[1] + 0.1 * letter, box.corners[3]):
            is_free = all(
                x + width <= start or end <= x or abs(y - other) >= height
                for start, other, end in used
            )
            if box.name and is_free and top <= y and y + height <= bottom:
                used.append((x, y, x + width))
                box.name_start = x + _NAME_MARGIN * letter, y + letter
                break


def _list_points(
    detection: Detection, colours: Sequence[str], scale: np.ndarray
) -> Iterator[tuple[float, float, str, bool]]:
    """Yield x, y, colour and visibility of keypoints, except for those far outside."""
    keypoints = detection.keypoints
    if keypoints is None:
        return
    xy, visibility = keypoints.xy, keypoints.visibility
    is_near = (xy >= -_MAX_OVERHANG) & (xy <= 1 + _MAX_OVERHANG)  # False for NaN
    for number, index in np.argwhere((visibility != 0) & is_near.all(axis=2)).tolist():
        x, y = (xy[number, index] * scale[:2]).tolist()
        yield x, y, colours[number], bool(visibility[number, index] == 2)


# Pixels


def _data_url(image: Image.Image, kind: str) -> str:
    image.save(file := io.BytesIO(), kind, quality=80)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def _draw_masks(detection: Detection, colours: Sequence[str], aspect: float) -> Image.Image | None:
    """Draw the masks of a record in translucent colours; None if there are no masks."""
    from PIL import Image, ImageColor

    layer, size = None, (_MAX_SIDE, max(1, round(_MAX_SIDE / aspect)))
    masks = detection.masks if detection.numerical_masks is None else detection.numerical_masks
    for mask, colour in zip(() if masks is None else masks, colours, strict=False):
        drawn = _decode_mask(mask) if isinstance(mask, PngMask) else mask
        if drawn is not None:
            layer = layer or Image.new("RGBA", size, (0, 0, 0, 0))
            inside = Image.fromarray(np.where(drawn > 0, 255, 0).astype("u1"))
            inside = inside.resize(size, Image.Resampling.NEAREST)
            layer.paste((*ImageColor.getrgb(colour)[:3], _MASK_OPACITY), (0, 0), inside)
    return layer


def _decode_mask(mask: PngMask) -> np.ndarray | None:
    """Decode a mask; None if it is damaged or a decompression bomb."""
    size = png_size(mask.data)
    if size is not None and _fits_into_memory(size):
        with contextlib.suppress(ValueError):
            return decode_mask_png(mask.data)
    return None


def make_thumbnail(sample: Sample, max_side: int) -> tuple[Image.Image | None, float]:
    """Decode an image to 8-bit RGB, with sides of at most ``max_side`` pixels.

    Returns:
        The image, None if it is missing, damaged or a decompression bomb; and the aspect ratio at
        which to show it, which is limited, because the declared size may be wrong.
    """
    small, size = None, (sample.width, sample.height)
    if sample.image:
        with strict_pillow():
            try:
                with open_image(sample.image) as image:
                    full = image.size
                    if _fits_into_memory(full):
                        image.draft("RGB", (max_side, max_side))
                        small, size = _to_small_rgb(image, max_side), full
            except Exception:  # decoders raise many types for damaged bytes
                small = None
    width, height = size if min(size) > 0 else _DEFAULT_SIZE
    return small, min(max(width / height, 1 / _MAX_ASPECT), _MAX_ASPECT)


def _fits_into_memory(size: tuple[int, int]) -> bool:
    """Return whether an image of this width and height is not a decompression bomb."""
    from PIL import Image

    return Image.MAX_IMAGE_PIXELS is None or size[0] * size[1] <= Image.MAX_IMAGE_PIXELS


def _to_small_rgb(image: Image.Image, max_side: int) -> Image.Image:
    """Shrink an image, and remove transparency, which JPEG does not support."""
    from PIL import Image

    small = image.copy()
    if image.mode.startswith("I"):  # 16 bits; convert() would clip values to white
        values = np.asarray(image).astype(np.float64)
        small = Image.fromarray((values / max(values.max(), 1.0) * 255).clip(0, 255).astype("u1"))
    small.thumbnail((max_side, max_side))
    if "A" not in small.getbands() and "transparency" not in small.info:
        return small.convert("RGB")
    layer = small.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")

"""Draw the example data set: shapes on soft backgrounds, annotated as Pascal VOC.

Twelve small images, eight to train and four to validate, in the folders and files that
Datumaro's ``voc`` format reads. One image has no object, two are PNG, one class has a name that
is not ASCII, and some objects are truncated by the edge, occluded by another one, or difficult to
see. The seed is fixed, so every run draws the same; the bytes of an image may differ from one
Pillow release to the next.

    python examples/draw_shapes.py [folder]
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree

from PIL import Image, ImageChops, ImageDraw

SEED = 11
OBJECTS = {"train": (3, 1, 4, 2, 5, 0, 3, 2), "val": (2, 4, 3, 5)}
"""How many objects the images of each subset have; 0 is a negative, an image of nothing."""
SIZES = ((320, 240), (320, 240), (240, 320), (320, 214))
"""Widths and heights in pixels, one image after the other."""
PNG_EVERY = 6
OVERSAMPLING = 4
"""Images are drawn this much larger and scaled down, which makes edges smooth."""

Color: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]

BACKGROUNDS: Sequence[tuple[Color, Color]] = (
    ((246, 239, 228), (232, 220, 203)),
    ((230, 240, 245), (207, 224, 234)),
    ((236, 243, 230), (216, 230, 208)),
    ((245, 234, 238), (232, 214, 222)),
)
"""The colour at the top and the one at the bottom."""


def circle() -> list[Point]:
    """Outline of a circle of radius 1, as a polygon of many corners."""
    return [_on_circle(step / 96) for step in range(96)]


def square() -> list[Point]:
    """Outline of a square whose corners lie on the circle of radius 1."""
    return [_on_circle(step / 4 + 1 / 8) for step in range(4)]


def triangle() -> list[Point]:
    """Outline of a triangle with a corner at the top."""
    return [_on_circle(step / 3) for step in range(3)]


def star() -> list[Point]:
    """Outline of a star with five points, one at the top."""
    return [_on_circle(step / 10, 0.45 if step % 2 else 1.0) for step in range(10)]


def _on_circle(turn: float, radius: float = 1.0) -> Point:
    """Point that lies clockwise from the top by so many turns; y goes down."""
    angle = 2 * math.pi * turn
    return radius * math.sin(angle), -radius * math.cos(angle)


@dataclass(frozen=True)
class ShapeClass:
    """A class of the data set: its outline, its colour, and whether it can be seen to lean."""

    outline: Callable[[], list[Point]]
    color: Color
    leans: bool


CLASSES = {
    "circle": ShapeClass(circle, (226, 92, 74), leans=False),
    "square": ShapeClass(square, (58, 122, 184), leans=False),
    "triangle": ShapeClass(triangle, (72, 158, 112), leans=True),
    "étoile": ShapeClass(star, (240, 176, 48), leans=True),
}


@dataclass(frozen=True)
class Shape:
    """One object: a class, and its outline in pixels, which may leave the drawing."""

    name: str
    outline: tuple[Point, ...]
    tilt: float

    @property
    def extent(self) -> Box:
        """The outline's ``xmin, ymin, xmax, ymax``."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    @property
    def pose(self) -> str:
        """Where it leans to, in VOC's words."""
        if not CLASSES[self.name].leans:
            return "Unspecified"
        if abs(self.tilt) < 10:
            return "Frontal"
        return "Left" if self.tilt < 0 else "Right"


@dataclass(frozen=True)
class Drawing:
    """An image's file name and size, and its shapes from the back to the front."""

    filename: str
    size: tuple[int, int]
    background: tuple[Color, Color]
    shapes: tuple[Shape, ...]


def random_shape(size: tuple[int, int], rng: random.Random) -> Shape:
    """Put a shape somewhere; its middle is in the drawing."""
    name = rng.choice(list(CLASSES))
    radius = rng.uniform(14, 56)
    tilt = rng.uniform(-32, 32)
    cx, cy = (rng.uniform(0.06, 0.94) * side for side in size)
    cos, sin = math.cos(math.radians(tilt)), math.sin(math.radians(tilt))
    outline = tuple(
        (cx + radius * (x * cos - y * sin), cy + radius * (x * sin + y * cos))
        for x, y in CLASSES[name].outline()
    )
    return Shape(name, outline, tilt)


def random_image(filename: str, number: int, objects: int, rng: random.Random) -> Drawing:
    """Place so many shapes that each can still be seen."""
    size = SIZES[number % len(SIZES)]
    shapes: list[Shape] = []
    while len(shapes) < objects:
        candidates = [*shapes, random_shape(size, rng)]
        if min(visible_parts(candidates, size)) > 0.45:
            shapes = candidates
    return Drawing(filename, size, BACKGROUNDS[number % len(BACKGROUNDS)], tuple(shapes))


def all_images() -> Iterator[tuple[str, Drawing]]:
    """Every image of the data set, behind the name of its subset."""
    rng = random.Random(SEED)
    number = 0
    for subset, counts in OBJECTS.items():
        for objects in counts:
            number += 1
            suffix = "png" if number % PNG_EVERY == 3 else "jpg"
            yield subset, random_image(f"shapes_{number:02}.{suffix}", number, objects, rng)


def visible_parts(shapes: Sequence[Shape], size: tuple[int, int]) -> list[float]:
    """How much of each shape's part inside the image no later shape covers, 0 to 1."""
    parts = []
    covered = Image.new("L", size)
    for shape in reversed(shapes):
        mask = Image.new("L", size)
        ImageDraw.Draw(mask).polygon(shape.outline, fill=255)
        visible = ImageChops.subtract(mask, covered)
        parts.append(visible.histogram()[255] / mask.histogram()[255])
        covered = ImageChops.lighter(covered, mask)
    return parts[::-1]


def clipped_extent(shape: Shape, size: tuple[int, int]) -> Box:
    """The part of a shape's extent that is in an image of this width and height."""
    xmin, ymin, xmax, ymax = shape.extent
    return max(0.0, xmin), max(0.0, ymin), min(xmax, size[0]), min(ymax, size[1])


def is_difficult(box: Box, visible: float) -> bool:
    """Whether an object is small, or mostly hidden."""
    return min(box[2] - box[0], box[3] - box[1]) < 24 or visible < 0.6


def draw(drawing: Drawing) -> Image.Image:
    """Draw the drawing, RGB."""
    width, height = (side * OVERSAMPLING for side in drawing.size)
    top, bottom = (Image.new("RGB", (width, height), color) for color in drawing.background)
    shade = Image.linear_gradient("L").resize((width, height))
    image = Image.composite(bottom, top, shade)
    pen = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        color = CLASSES[shape.name].color
        edge = tuple(round(channel * 0.8) for channel in color)
        outline = [(x * OVERSAMPLING, y * OVERSAMPLING) for x, y in shape.outline]
        pen.polygon(outline, fill=color, outline=edge, width=2 * OVERSAMPLING)
    return image.resize(drawing.size, Image.Resampling.LANCZOS)


def annotation(drawing: Drawing) -> ElementTree.ElementTree:
    """Describe the image in VOC's XML.

    Boxes are in pixels from 0 and half-open, as Datumaro reads them unless it is told otherwise;
    the original VOC counts from 1. They end at the image's edge and include what is occluded.
    """
    root = ElementTree.Element("annotation")
    _add(root, folder="shapes_voc", filename=drawing.filename)
    _add(ElementTree.SubElement(root, "source"), database="tfod's shapes")
    width, height = drawing.size
    _add(ElementTree.SubElement(root, "size"), width=width, height=height, depth=3)
    _add(root, segmented=0)
    parts = visible_parts(drawing.shapes, drawing.size)
    for shape, visible in zip(drawing.shapes, parts, strict=True):
        box = clipped_extent(shape, drawing.size)
        element = ElementTree.SubElement(root, "object")
        _add(
            element,
            name=shape.name,
            pose=shape.pose,
            truncated=int(box != shape.extent),
            occluded=int(visible < 0.95),
            difficult=int(is_difficult(box, visible)),
        )
        corners = (f"{value:.2f}" for value in box)
        names = ("xmin", "ymin", "xmax", "ymax")
        _add(ElementTree.SubElement(element, "bndbox"), **dict(zip(names, corners, strict=True)))
    ElementTree.indent(root)
    return ElementTree.ElementTree(root)


def _add(parent: ElementTree.Element, **texts: object) -> None:
    for tag, text in texts.items():
        ElementTree.SubElement(parent, tag).text = str(text)


def write_image(drawing: Drawing, folder: Path) -> None:
    """Write the image and its annotation."""
    path = folder / "JPEGImages" / drawing.filename
    image = draw(drawing)
    if path.suffix == ".png":
        image.save(path, optimize=True)
    else:
        image.save(path, quality=88)
    xml = folder / "Annotations" / f"{path.stem}.xml"
    annotation(drawing).write(xml, encoding="utf-8")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a text file, the same on every system."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_dataset(folder: Path) -> None:
    """Write the whole data set in place of an earlier one."""
    places = [folder / name for name in ("JPEGImages", "Annotations", "ImageSets")]
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    for place in (*places, folder / "ImageSets" / "Main"):
        place.mkdir(parents=True)
    colors = {name: ",".join(map(str, kind.color)) for name, kind in CLASSES.items()}
    write_lines(
        folder / "labelmap.txt",
        ["# label:color_rgb:parts:actions", *(f"{n}:{c}::" for n, c in colors.items())],
    )
    stems: dict[str, list[str]] = {subset: [] for subset in OBJECTS}
    for subset, drawing in all_images():
        write_image(drawing, folder)
        stems[subset].append(Path(drawing.filename).stem)
    for subset, lines in stems.items():
        write_lines(folder / "ImageSets" / "Main" / f"{subset}.txt", lines)


def main() -> None:
    """Draw the data set beside this script, or in the folder that is named."""
    parser = argparse.ArgumentParser(description="Draw the example data set shapes_voc.")
    beside = Path(__file__).with_name("shapes_voc")
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="default: %(default)s")
    write_dataset(parser.parse_args().folder)


if __name__ == "__main__":
    main()

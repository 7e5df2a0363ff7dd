"""Draw the example dataset shapes_voc: shapes with Pascal VOC annotations.

It has eight images for training and four for validation, in the layout of Datumaro's ``voc``
format. One image has no object, two are PNG files, the name of a class is not ASCII, and some
objects are truncated, occluded or difficult to see. The random seed is fixed; only the bytes of
the image files depend on the version of Pillow.

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
"""The number of objects in each image of each subset. An image without objects is a negative."""
SIZES = ((320, 240), (320, 240), (240, 320), (320, 214))
"""Widths and heights in pixels, used in turn."""
PNG_EVERY = 6
OVERSAMPLING = 4
"""The factor by which images are drawn larger and then reduced, for smooth edges."""

Color: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]
Box: TypeAlias = tuple[float, float, float, float]

BACKGROUNDS: Sequence[tuple[Color, Color]] = (
    ((246, 239, 228), (232, 220, 203)),
    ((230, 240, 245), (207, 224, 234)),
    ((236, 243, 230), (216, 230, 208)),
    ((245, 234, 238), (232, 214, 222)),
)
"""Pairs of the colors at the top and at the bottom."""


def circle() -> list[Point]:
    """Return the outline of a circle of radius 1, as a polygon with many corners."""
    return [_on_circle(step / 96) for step in range(96)]


def square() -> list[Point]:
    """Return the outline of a square with its corners on the circle of radius 1."""
    return [_on_circle(step / 4 + 1 / 8) for step in range(4)]


def triangle() -> list[Point]:
    """Return the outline of a triangle with a corner at the top."""
    return [_on_circle(step / 3) for step in range(3)]


def star() -> list[Point]:
    """Return the outline of a star with five points, one of them at the top."""
    return [_on_circle(step / 10, 0.45 if step % 2 else 1.0) for step in range(10)]


def _on_circle(turns: float, radius: float = 1.0) -> Point:
    """Return the point at a clockwise angle from the top; y increases downward."""
    angle = 2 * math.pi * turns
    return radius * math.sin(angle), -radius * math.cos(angle)


@dataclass(frozen=True)
class ShapeClass:
    """A class: its outline, its color, and whether its rotation is visible."""

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
    """An object: its class, its outline in pixels, and its rotation in degrees."""

    name: str
    outline: tuple[Point, ...]
    tilt: float

    @property
    def extent(self) -> Box:
        """The ``xmin, ymin, xmax, ymax`` of the outline."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    @property
    def pose(self) -> str:
        """The pose for Pascal VOC, derived from the rotation."""
        if not CLASSES[self.name].leans:
            return "Unspecified"
        if abs(self.tilt) < 10:
            return "Frontal"
        return "Left" if self.tilt < 0 else "Right"


@dataclass(frozen=True)
class Drawing:
    """An image: its file name, size and background, and its shapes from back to front."""

    filename: str
    size: tuple[int, int]
    background: tuple[Color, Color]
    shapes: tuple[Shape, ...]


def random_shape(size: tuple[int, int], rng: random.Random) -> Shape:
    """Create a random shape whose center is inside the image."""
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
    """Create an image with a number of shapes, each of which is visible."""
    size = SIZES[number % len(SIZES)]
    shapes: list[Shape] = []
    while len(shapes) < objects:
        candidates = [*shapes, random_shape(size, rng)]
        if min(visible_parts(candidates, size)) > 0.45:
            shapes = candidates
    return Drawing(filename, size, BACKGROUNDS[number % len(BACKGROUNDS)], tuple(shapes))


def all_images() -> Iterator[tuple[str, Drawing]]:
    """Yield the subset and the drawing of each image."""
    rng = random.Random(SEED)
    number = 0
    for subset, counts in OBJECTS.items():
        for objects in counts:
            number += 1
            suffix = "png" if number % PNG_EVERY == 3 else "jpg"
            yield subset, random_image(f"shapes_{number:02}.{suffix}", number, objects, rng)


def visible_parts(shapes: Sequence[Shape], size: tuple[int, int]) -> list[float]:
    """Return the fraction of each shape inside the image that no later shape covers."""
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
    """Return the extent of a shape, clipped to the image size."""
    xmin, ymin, xmax, ymax = shape.extent
    return max(0.0, xmin), max(0.0, ymin), min(xmax, size[0]), min(ymax, size[1])


def is_difficult(box: Box, visible: float) -> bool:
    """Return whether an object is small or largely hidden."""
    return min(box[2] - box[0], box[3] - box[1]) < 24 or visible < 0.6


def draw(drawing: Drawing) -> Image.Image:
    """Render a drawing as an RGB image."""
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
    """Return the annotation of an image as Pascal VOC XML.

    Pixels are numbered from 0, as Datumaro expects, while the original VOC numbers them from 1.
    Boxes are clipped to the image, and include occluded parts.
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
    """Write an image and its annotation."""
    path = folder / "JPEGImages" / drawing.filename
    image = draw(drawing)
    if path.suffix == ".png":
        image.save(path, optimize=True)
    else:
        image.save(path, quality=88)
    xml = folder / "Annotations" / f"{path.stem}.xml"
    annotation(drawing).write(xml, encoding="utf-8")


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a text file with Unix line endings."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_dataset(folder: Path) -> None:
    """Write the dataset, and replace an earlier one."""
    folders = [folder / name for name in ("JPEGImages", "Annotations", "ImageSets")]
    for path in folders:
        shutil.rmtree(path, ignore_errors=True)
    for path in (*folders, folder / "ImageSets" / "Main"):
        path.mkdir(parents=True)
    colors = {name: ",".join(map(str, shape.color)) for name, shape in CLASSES.items()}
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
    """Draw the dataset in a folder, by default next to this script."""
    parser = argparse.ArgumentParser(description="Draw the example dataset shapes_voc.")
    default = Path(__file__).with_name("shapes_voc")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=default, help="default: %(default)s"
    )
    write_dataset(parser.parse_args().folder)


if __name__ == "__main__":
    main()

"""Annotate the drawings of shapes_voc as COCO does.

The drawings are copied from shapes_voc. What VOC does not say comes from the outlines that the
drawings were drawn from, which draw_shapes.py makes again.

    python examples/annotate_shapes.py [folder]
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draw_shapes import Box, Drawing, Shape, all_images, clipped_extent, visible_parts, write_lines
from PIL import Image, ImageDraw

IMAGES = Path(__file__).with_name("shapes_voc") / "JPEGImages"
CATEGORIES = {"circle": 1, "square": 3, "triangle": 7, "étoile": 11}
"""COCO's ids, with gaps as in COCO."""
CORNERS = ("top", "right", "left")
"""The keypoints of a triangle."""
CROWD = "shapes_05.jpg"
"""The image whose circles are a crowd, too."""
MOST_CORNERS = 12


@dataclass(frozen=True)
class SeenShape:
    """A shape as annotators see it: the part of its extent that is in the drawing."""

    shape: Shape
    box: Box
    visible: float

    @property
    def is_truncated(self) -> bool:
        """Whether the image's edge cuts it."""
        return self.box != self.shape.extent

    @property
    def is_occluded(self) -> bool:
        """Whether another shape hides some of it."""
        return self.visible < 0.95


def seen_shapes(drawing: Drawing) -> list[SeenShape]:
    """The shapes of a drawing, from the back to the front."""
    parts = visible_parts(drawing.shapes, drawing.size)
    return [
        SeenShape(shape, clipped_extent(shape, drawing.size), visible)
        for shape, visible in zip(drawing.shapes, parts, strict=True)
    ]


def write_coco(root: Path, drawings: Sequence[tuple[str, Drawing]]) -> None:
    """Write drawings, instances and keypoints of each subset, laid out as COCO's own."""
    folder = root / "annotations"
    folder.mkdir(parents=True)
    for subset, one in drawings:
        media = root / "images" / subset
        media.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(IMAGES / one.filename, media / one.filename)
    for subset in dict.fromkeys(subset for subset, _ in drawings):
        members = [(1000 + 7 * n, one) for n, (s, one) in enumerate(drawings) if s == subset]
        images = [
            {"id": key, "file_name": one.filename, "width": one.size[0], "height": one.size[1]}
            for key, one in members
        ]
        instances = [annotation for key, one in members for annotation in coco_instances(key, one)]
        names = [{"id": number, "name": name} for name, number in CATEGORIES.items()]
        write_json(folder / f"instances_{subset}.json", images, instances, names)
    triangle = {"id": CATEGORIES["triangle"], "name": "triangle", "keypoints": list(CORNERS)}
    train = [(1000 + 7 * n, one) for n, (s, one) in enumerate(drawings) if s == "train"]
    images = [{"id": key, "file_name": one.filename} for key, one in train]
    points = [annotation for key, one in train for annotation in coco_keypoints(key, one)]
    triangle["skeleton"] = [[1, 2], [2, 3], [3, 1]]
    write_json(folder / "person_keypoints_train.json", images, points, [triangle])


def coco_instances(image_id: int, drawing: Drawing) -> Iterator[dict[str, Any]]:
    """The shapes as polygons; in one image the circles also as a crowd."""
    for number, seen in enumerate(seen_shapes(drawing)):
        outline = polygon_of(seen, drawing.size)
        yield {
            "id": image_id * 100 + number,
            "image_id": image_id,
            "category_id": CATEGORIES[seen.shape.name],
            "bbox": x_y_width_height(seen.box),
            "area": area_of(outline),
            "iscrowd": 0,
            "segmentation": [outline],
        }
    if drawing.filename == CROWD:
        yield crowd_of(image_id, drawing)


def crowd_of(image_id: int, drawing: Drawing) -> dict[str, Any]:
    """All circles of an image as one annotation, its pixels as runs."""
    mask = Image.new("1", drawing.size)
    for shape in drawing.shapes:
        if shape.name == "circle":
            ImageDraw.Draw(mask).polygon(shape.outline, fill=1)
    left, top, right, bottom = mask.getbbox()
    width, height = drawing.size
    runs = [0]
    for x in range(width):  # COCO's runs go down the columns and begin with the outside
        for y in range(height):
            if bool(mask.getpixel((x, y))) != (len(runs) % 2 == 0):
                runs.append(0)
            runs[-1] += 1
    return {
        "id": image_id * 100 + 99,
        "image_id": image_id,
        "category_id": CATEGORIES["circle"],
        "bbox": [left, top, right - left, bottom - top],
        "area": sum(runs[1::2]),
        "iscrowd": 1,
        "segmentation": {"size": [height, width], "counts": runs},
    }


def coco_keypoints(image_id: int, drawing: Drawing) -> Iterator[dict[str, Any]]:
    """The corners of the triangles: not labelled outside of the drawing."""
    width, height = drawing.size
    for number, seen in enumerate(seen_shapes(drawing)):
        if seen.shape.name != "triangle":
            continue
        points: list[float] = []
        for x, y in seen.shape.outline:
            inside = 0 <= x < width and 0 <= y < height
            visibility = (1 if seen.is_occluded else 2) if inside else 0
            points += [round(x, 1), round(y, 1), visibility] if inside else [0, 0, 0]
        yield {
            "id": image_id * 100 + number,
            "image_id": image_id,
            "category_id": CATEGORIES["triangle"],
            "bbox": x_y_width_height(seen.box),
            "area": area_of(polygon_of(seen, drawing.size)),
            "iscrowd": 0,
            "num_keypoints": sum(value > 0 for value in points[2::3]),
            "keypoints": points,
        }


def polygon_of(seen: SeenShape, size: tuple[int, int]) -> list[float]:
    """The outline as x, y, x, y, …, held inside the drawing, of a circle only some corners."""
    step = max(1, len(seen.shape.outline) // MOST_CORNERS)
    width, height = size
    return [
        round(value, 1)
        for x, y in seen.shape.outline[::step]
        for value in (min(max(x, 0), width), min(max(y, 0), height))
    ]


def area_of(outline: Sequence[float]) -> float:
    """The area of a polygon, in pixels."""
    xs, ys = outline[::2], outline[1::2]
    pairs = zip(xs, ys, [*xs[1:], xs[0]], [*ys[1:], ys[0]], strict=True)
    return round(abs(sum(x0 * y1 - x1 * y0 for x0, y0, x1, y1 in pairs)) / 2, 2)


def x_y_width_height(box: Box) -> list[float]:
    """COCO's box, to a hundredth of a pixel."""
    left, top, right, bottom = (round(value, 2) for value in box)
    return [left, top, round(right - left, 2), round(bottom - top, 2)]


def write_json(
    path: Path,
    images: Sequence[dict[str, Any]],
    annotations: Sequence[dict[str, Any]],
    categories: Sequence[dict[str, Any]] = (),
) -> None:
    """Write one of COCO's files, an entry a line."""
    lists = {"images": images, "annotations": annotations, "categories": categories}
    texts = [
        f'"{key}": [\n' + ",\n".join(json.dumps(one, ensure_ascii=False) for one in entries) + "\n]"
        for key, entries in lists.items()
        if entries
    ]
    write_lines(path, ["{", ",\n".join(texts), "}"])


def main() -> None:
    """Write the folder beside this script, or into the folder that is named."""
    parser = argparse.ArgumentParser(description="Annotate shapes_voc as COCO does.")
    beside = Path(__file__).parent
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="default: %(default)s")
    folder = parser.parse_args().folder
    shutil.rmtree(folder / "shapes_coco", ignore_errors=True)
    write_coco(folder / "shapes_coco", list(all_images()))


if __name__ == "__main__":
    main()

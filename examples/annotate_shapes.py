"""Annotate the images of shapes_voc in COCO format.

Images are copied from shapes_voc. Polygons and keypoints, which VOC does not have, come from
draw_shapes.py, which generates the same shapes again.

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
"""Category ids, with gaps as in COCO."""
CORNERS = ("top", "right", "left")
"""The keypoints of a triangle."""
CROWD = "shapes_05.jpg"
"""The image that also has an annotation of all circles as a crowd."""
MAX_CORNERS = 12


@dataclass(frozen=True)
class SeenShape:
    """A shape, the part of its extent inside the image, and its visible fraction."""

    shape: Shape
    box: Box
    visible: float

    @property
    def is_truncated(self) -> bool:
        """Whether the shape extends beyond the image."""
        return self.box != self.shape.extent

    @property
    def is_occluded(self) -> bool:
        """Whether another shape hides a part of it."""
        return self.visible < 0.95


def seen_shapes(drawing: Drawing) -> list[SeenShape]:
    """Return the shapes of a drawing from back to front."""
    parts = visible_parts(drawing.shapes, drawing.size)
    return [
        SeenShape(shape, clipped_extent(shape, drawing.size), visible)
        for shape, visible in zip(drawing.shapes, parts, strict=True)
    ]


def write_coco(root: Path, drawings: Sequence[tuple[str, Drawing]]) -> None:
    """Write images, instances and keypoints of each subset, in the layout of COCO."""
    folder = root / "annotations"
    folder.mkdir(parents=True)
    members: dict[str, dict[int, Drawing]] = {}
    for number, (subset, drawing) in enumerate(drawings):
        media = root / "images" / subset
        media.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(IMAGES / drawing.filename, media / drawing.filename)
        members.setdefault(subset, {})[1000 + 7 * number] = drawing
    categories = [{"id": number, "name": name} for name, number in CATEGORIES.items()]
    for subset, by_id in members.items():
        images = [
            {"id": key, "file_name": item.filename, "width": item.size[0], "height": item.size[1]}
            for key, item in by_id.items()
        ]
        instances = [shape for key, item in by_id.items() for shape in coco_instances(key, item)]
        write_json(folder / f"instances_{subset}.json", images, instances, categories)
    triangle = {"id": CATEGORIES["triangle"], "name": "triangle", "keypoints": list(CORNERS)}
    train = members["train"]
    images = [{"id": key, "file_name": item.filename} for key, item in train.items()]
    points = [shape for key, item in train.items() for shape in coco_keypoints(key, item)]
    triangle["skeleton"] = [[1, 2], [2, 3], [3, 1]]
    write_json(folder / "person_keypoints_train.json", images, points, [triangle])


def coco_instances(image_id: int, drawing: Drawing) -> Iterator[dict[str, Any]]:
    """Yield the shapes as polygons, and in one image the circles as a crowd."""
    for number, seen in enumerate(seen_shapes(drawing)):
        outline = clipped_polygon(seen, drawing.size)
        yield {
            "id": image_id * 100 + number,
            "image_id": image_id,
            "category_id": CATEGORIES[seen.shape.name],
            "bbox": to_coco_box(seen.box),
            "area": polygon_area(outline),
            "iscrowd": 0,
            "segmentation": [outline],
        }
    if drawing.filename == CROWD:
        yield make_crowd(image_id, drawing)


def make_crowd(image_id: int, drawing: Drawing) -> dict[str, Any]:
    """Return all circles of an image as one run-length encoded annotation."""
    mask = Image.new("1", drawing.size)
    for shape in drawing.shapes:
        if shape.name == "circle":
            ImageDraw.Draw(mask).polygon(shape.outline, fill=1)
    left, top, right, bottom = mask.getbbox()
    width, height = drawing.size
    runs = [0]
    for x in range(width):  # column by column; the first run is background
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
    """Yield the triangles with keypoints, which are not labeled outside the image."""
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
            "bbox": to_coco_box(seen.box),
            "area": polygon_area(clipped_polygon(seen, drawing.size)),
            "iscrowd": 0,
            "num_keypoints": sum(value > 0 for value in points[2::3]),
            "keypoints": points,
        }


def clipped_polygon(seen: SeenShape, size: tuple[int, int]) -> list[float]:
    """Return the outline as x, y, x, y, …, clipped to the image, with at most 12 corners."""
    step = max(1, len(seen.shape.outline) // MAX_CORNERS)
    width, height = size
    return [
        round(value, 1)
        for x, y in seen.shape.outline[::step]
        for value in (min(max(x, 0), width), min(max(y, 0), height))
    ]


def polygon_area(outline: Sequence[float]) -> float:
    """Compute the area of a polygon in pixels."""
    xs, ys = outline[::2], outline[1::2]
    pairs = zip(xs, ys, [*xs[1:], xs[0]], [*ys[1:], ys[0]], strict=True)
    return round(abs(sum(x0 * y1 - x1 * y0 for x0, y0, x1, y1 in pairs)) / 2, 2)


def to_coco_box(box: Box) -> list[float]:
    """Return x, y, width and height, rounded to a hundredth of a pixel."""
    left, top, right, bottom = (round(value, 2) for value in box)
    return [left, top, round(right - left, 2), round(bottom - top, 2)]


def write_json(
    path: Path,
    images: Sequence[dict[str, Any]],
    annotations: Sequence[dict[str, Any]],
    categories: Sequence[dict[str, Any]] = (),
) -> None:
    """Write a COCO file with one entry per line."""
    lists = {"images": images, "annotations": annotations, "categories": categories}
    texts = [
        f'"{key}": [\n'
        + ",\n".join(json.dumps(item, ensure_ascii=False) for item in entries)
        + "\n]"
        for key, entries in lists.items()
        if entries
    ]
    write_lines(path, ["{", ",\n".join(texts), "}"])


def main() -> None:
    """Write shapes_coco to a folder, by default the folder of this script."""
    parser = argparse.ArgumentParser(description="Annotate the images of shapes_voc as COCO.")
    default = Path(__file__).parent
    parser.add_argument(
        "folder", nargs="?", type=Path, default=default, help="default: %(default)s"
    )
    folder = parser.parse_args().folder
    shutil.rmtree(folder / "shapes_coco", ignore_errors=True)
    write_coco(folder / "shapes_coco", list(all_images()))


if __name__ == "__main__":
    main()

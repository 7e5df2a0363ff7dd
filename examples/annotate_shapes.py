"""Annotate the drawings of shapes_voc in other formats: COCO, KITTI and Open Images.

The drawings are copied from shapes_voc, for KITTI and Open Images a few under names of their own.
What VOC does not say comes from the outlines that the drawings were drawn from, which
draw_shapes.py makes again.

    python examples/annotate_shapes.py [folder]
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draw_shapes import (
    Box,
    Drawing,
    Shape,
    all_images,
    clipped_extent,
    is_difficult,
    visible_parts,
    write_lines,
)
from PIL import Image, ImageDraw

IMAGES = Path(__file__).with_name("shapes_voc") / "JPEGImages"
CATEGORIES = {"circle": 1, "square": 3, "triangle": 7, "étoile": 11}
"""COCO's ids, with gaps as in COCO."""
MIDS = {"circle": "/m/01vkl", "square": "/m/0j3gb", "triangle": "/m/07p_7", "étoile": "/m/06ngk"}
"""Names of classes in the manner of Open Images."""
CORNERS = ("top", "right", "left")
"""The keypoints of a triangle."""
CROWD = "shapes_05.jpg"
"""The image whose circles are a crowd, too."""
MOST_CORNERS = 12
KITTI = ("shapes_03.png", "shapes_09.png")
OPEN_IMAGES = {
    "shapes_02.jpg": "02a9f1c3d5e70b48",
    "shapes_01.jpg": "5b1c08e4a7d92f63",
    "shapes_06.jpg": "c7d3e95f1a2b4860",
}
"""Hexadecimal ids, which decide in which shard an image is."""


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
    """Write drawings, instances, keypoints and captions of each subset, laid out as COCO's own."""
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
        captions = [
            {"id": key, "image_id": key, "caption": text}
            for key, one in members
            for text in captions_of(one)
        ]
        write_json(folder / f"captions_{subset}.json", images, captions)
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


def captions_of(drawing: Drawing) -> list[str]:
    """What is to be seen, in a sentence."""
    names = [shape.name for shape in drawing.shapes]
    if not names:
        return ["Nothing at all.", "An empty drawing."]
    counts = [f"{names.count(name)} {name}" for name in dict.fromkeys(names)]
    return [f"An image of {', '.join(counts)}."]


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


def write_kitti(folder: Path, drawings: Sequence[tuple[str, Drawing]]) -> None:
    """Write two images; in the second the first object overlaps a region nobody cares for."""
    images, labels = folder / "training" / "image_2", folder / "training" / "label_2"
    images.mkdir(parents=True)
    labels.mkdir()
    by_name = {drawing.filename: drawing for _, drawing in drawings}
    for number, filename in enumerate(KITTI):
        shutil.copyfile(IMAGES / filename, images / f"{number:06}.png")
        shapes = seen_shapes(by_name[filename])
        lines = [kitti_line(seen) for seen in shapes]
        if number:
            box = " ".join(f"{value:.2f}" for value in shapes[0].box)
            lines.append(f"DontCare -1 -1 -10 {box} -1 -1 -1 -1000 -1000 -1000 -10")
        write_lines(labels / f"{number:06}.txt", lines)


def kitti_line(seen: SeenShape) -> str:
    """One object; its place in space is made up of its size."""
    left, top, right, bottom = seen.box
    name = seen.shape.name.capitalize()
    extent = seen.shape.extent
    whole = (extent[2] - extent[0]) * (extent[3] - extent[1])
    truncated = 1 - (right - left) * (bottom - top) / whole
    alpha = seen.shape.tilt / 90
    corners = f"{left:.2f} {top:.2f} {right:.2f} {bottom:.2f}"
    space = f"{(bottom - top) / 40:.2f} {(right - left) / 40:.2f} 0.50 {left / 40:.2f} 1.65 12.50"
    return (
        f"{name} {truncated:.2f} {int(seen.is_occluded)} {alpha:.2f} {corners} {space} {alpha:.2f}"
    )


def write_open_images(folder: Path, drawings: Sequence[tuple[str, Drawing]]) -> None:
    """Write three drawings with boxes and classes, in the files that Open Images has."""
    images, annotations = folder / "images" / "train", folder / "annotations"
    images.mkdir(parents=True)
    annotations.mkdir()
    by_name = {drawing.filename: drawing for _, drawing in drawings}
    boxes: list[list[Any]] = []
    labels: list[list[Any]] = []
    for filename, image_id in OPEN_IMAGES.items():
        shutil.copyfile(IMAGES / filename, images / f"{image_id}.jpg")
        drawing = by_name[filename]
        boxes += [open_images_row(image_id, seen, drawing) for seen in seen_shapes(drawing)]
        there = {shape.name for shape in drawing.shapes}
        labels += [[image_id, "verification", MIDS[n], int(n in there)] for n in list(MIDS)[1:]]
    flags = ["IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside"]
    head = ["ImageID", "Source", "LabelName", "Confidence"]
    prefix = "oidv6-train-annotations"
    write_csv(
        annotations / f"{prefix}-bbox.csv", [*head, "XMin", "XMax", "YMin", "YMax", *flags], boxes
    )
    write_csv(annotations / f"{prefix}-human-imagelabels.csv", head, labels)
    names = [[mid, name] for name, mid in MIDS.items()]
    write_csv(annotations / "oidv6-class-descriptions.csv", ["LabelName", "DisplayName"], names)
    items = [
        f"item {{ id: {number} name: '{mid}' display_name: '{name}' }}"
        for number, (name, mid) in enumerate(MIDS.items(), start=1)
    ]
    write_lines(folder / "label_map.pbtxt", items)


def open_images_row(image_id: str, seen: SeenShape, drawing: Drawing) -> list[Any]:
    """One box; what is hard to see counts as a group and as an image of the thing."""
    width, height = drawing.size
    left, top, right, bottom = seen.box
    sides = (left / width, right / width, top / height, bottom / height)
    hard = int(is_difficult(seen.box, seen.visible))
    flags = (int(seen.is_occluded), int(seen.is_truncated), hard, hard, 0)
    return [
        *(image_id, "xclick", MIDS[seen.shape.name], 1),
        *(f"{side:.6f}" for side in sides),
        *flags,
    ]


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV, the same on every system."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    """Write the three folders beside this script, or into the folder that is named."""
    parser = argparse.ArgumentParser(description="Annotate shapes_voc in other formats.")
    beside = Path(__file__).parent
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="default: %(default)s")
    folder = parser.parse_args().folder
    drawings = list(all_images())
    for name in ("shapes_coco", "shapes_kitti", "shapes_open_images"):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_coco(folder / "shapes_coco", drawings)
    write_kitti(folder / "shapes_kitti", drawings)
    write_open_images(folder / "shapes_open_images", drawings)


if __name__ == "__main__":
    main()

"""A small COCO in a folder: two things and a stuff, a crowd, captions, and an image of nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = (24, 32)
"""Height and width of the images."""
CATEGORIES = [
    {"id": 1, "name": "person", "isthing": 1},
    {"id": 18, "name": "dog", "isthing": 1},
    {"id": 119, "name": "flower", "isthing": 0},
]
_SEGMENTS = [  # id, category, crowd, left, top, right, bottom; the ids need all three channels
    (7, 1, 0, 2, 3, 10, 20),
    (300, 18, 0, 12, 4, 20, 12),
    (70000, 119, 0, 20, 12, 32, 24),
    (70001, 18, 1, 0, 20, 12, 24),
]


def write_panoptic_coco(folder: Path) -> dict[str, list[str]]:
    """Write it; returns the options of Model Garden's script that name its parts."""
    height, width = SIZE
    images: list[dict[str, Any]] = []
    for number, name in enumerate(("a.jpg", "b.jpg", "empty.jpg"), 1):
        place = folder / ("left" if number == 1 else "right")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.full((height, width, 3), 60 * number, np.uint8)
        Image.fromarray(pixels).save(place / name)
        images.append({"id": 400 + number, "file_name": name, "height": height, "width": width})
    objects, panoptic = [], []
    (folder / "pngs").mkdir()
    for image, count in zip(images, (4, 2, 0), strict=True):
        ids = np.zeros(SIZE, np.int64)
        segments = []
        for number, category, crowd, left, top, right, bottom in _SEGMENTS[:count]:
            ids[top:bottom, left:right] = number
            box = [left, top, right - left, bottom - top]
            segment = {"category_id": category, "iscrowd": crowd, "bbox": box, "area": 3.5}
            segments.append({**segment, "id": number})
            if category != 119:
                outline = [[left, top, right, top, right, bottom, left, bottom]]
                runs = {"size": [height, width], "counts": [0, height * width]}
                objects.append(
                    {
                        **segment,
                        "id": 1000 * image["id"] + number,
                        "image_id": image["id"],
                        "segmentation": runs if crowd else outline,
                    }
                )
        name = image["file_name"].replace("jpg", "png")
        Image.fromarray(np.stack([ids >> by & 255 for by in (0, 8, 16)], -1).astype(np.uint8)).save(
            folder / "pngs" / name
        )
        panoptic.append({"image_id": image["id"], "file_name": name, "segments_info": segments})
    things = [one for one in CATEGORIES if one["isthing"]]
    captions = [{"id": 1, "image_id": 401, "caption": "Ein Mensch, größer als ein Hund."}]
    for file, members, categories in (
        ("instances", objects, things),
        ("captions", captions, []),
        ("panoptic", panoptic, CATEGORIES),
    ):
        found = {"images": images, "annotations": members, "categories": categories}
        (folder / f"{file}.json").write_text(json.dumps(found))
    return {
        "images": [f"--image_dir={folder / 'left'}", f"--image_dir={folder / 'right'}"],
        "objects": [f"--object_annotations_file={folder / 'instances.json'}"],
        "captions": [f"--caption_annotations_file={folder / 'captions.json'}"],
        "info": [f"--image_info_file={folder / 'captions.json'}"],
        "panoptic": [
            f"--panoptic_annotations_file={folder / 'panoptic.json'}",
            f"--panoptic_masks_dir={folder / 'pngs'}",
        ],
    }

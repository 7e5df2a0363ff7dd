"""Writer of a dataset with images in Datumaro's own format, for import into a project of CVAT.

CVAT's own XML would lose masks and images in folders there (``formats/cvat.py``,
``CvatExtractor``). Source of the layout: datumaro/plugins/data_formats/datumaro/format.py.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

from tfod.cvat.records import (
    NewImages,
    ShapeBuilder,
    ZipRecord,
    make_datumaro_attributes,
    require_storable,
)
from tfod.detection.images.mask_images import run_lengths
from tfod.formats.cvat.shapes import MASK, POINTS, CvatShape, decode_runs
from tfod.formats.dataset import DEFAULT_SUBSET
from tfod.tfrecord.image_names import safe_relative_path


class _Subset:
    """A new task; its items are in a temporary file, since there can be 100,000."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.images = 0
        self.objects = 0

    def add(self, item: Mapping[str, Any], objects: int) -> None:
        self.stream.write((("," if self.images else "") + json.dumps(item)).encode())
        self.images += 1
        self.objects += objects


def write_dataset(
    records: Iterable[ZipRecord],
    labels: Iterable[str],
    builder: ShapeBuilder,
    images: NewImages,
    path: str,
) -> dict[str, tuple[int, int]]:
    """Write a zip with the images and ``annotations/<subset>.json``, or raise TfodError.

    Returns the numbers of images and objects of each subset. ``builder`` counts losses, ``images``
    lists changed names. Classes without a label become new labels.
    """
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    numbers.update({name: numbers[name] for name in labels})
    subsets: dict[str, _Subset] = {}
    with ExitStack() as files, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for record in records:
            image = images.make(record)
            subset = (safe_relative_path(record.subset) or DEFAULT_SUBSET).replace("/", "_")
            if subset not in subsets:
                stream = files.enter_context(tempfile.TemporaryFile(dir=os.path.dirname(path)))
                require_storable("subset", subset, "rename its shard")
                subsets[subset] = _Subset(stream)
            name = image.item_id + image.extension
            archive.writestr(f"images/{subset}/{name}", image.encoded)
            shapes = builder.make_shapes(record, image.size)
            tags = (
                {
                    "id": 0,
                    "type": "label",
                    "attributes": dict(tag.attributes),
                    "group": 0,
                    "label_id": numbers[tag.label],
                }
                for tag in builder.make_tags(record)
            )
            pairs = enumerate(shapes)
            annotations = [_make_annotation(shape, i, numbers, image.size) for i, shape in pairs]
            item = {
                "id": image.item_id,
                "annotations": [*annotations, *tags],
                "attr": {},
                "image": {"path": name, "size": list(image.size)},
            }
            subsets[subset].add(item, len(shapes))
        for name in numbers:
            require_storable("class", name, "give it another name")
        names = [{"name": name, "parent": "", "attributes": []} for name in numbers]
        # No further keys: older readers reject keys that they do not know.
        categories = {"label": {"labels": names, "attributes": ["occluded"]}}
        head = json.dumps({"categories": categories})[:-1] + ', "items": ['
        for name, subset_file in subsets.items():
            subset_file.stream.write(b"]}")
            subset_file.stream.seek(0)
            with archive.open(f"annotations/{name}.json", "w", force_zip64=True) as out:
                out.write(head.encode())
                shutil.copyfileobj(subset_file.stream, out)
    return {name: (subset.images, subset.objects) for name, subset in subsets.items()}


def _make_annotation(
    shape: CvatShape, number: int, labels: Mapping[str, int], size: tuple[int, int]
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": number,
        "attributes": make_datumaro_attributes(shape),
        "group": shape.group,
        "label_id": labels[shape.label],
        "z_order": shape.z_order,
    }
    left, top, right, bottom = shape.extent
    if shape.kind == POINTS:
        visible = [2] * (len(shape.points) // 2)
        return {**fields, "type": "points", "points": shape.points, "visibility": visible}
    if shape.kind == MASK:
        mask = decode_runs(shape.runs, shape.extent, size)
        counts = compress_runs(run_lengths(mask.ravel(order="F")))
        return {**fields, "type": "mask", "rle": {"counts": counts, "size": list(size)}}
    return {**fields, "type": "bbox", "bbox": [left, top, right - left, bottom - top]}


def compress_runs(runs: Iterable[int]) -> str:
    """Encode lengths of column-wise runs as COCO's text.

    From the fourth on, each number is the difference from the number two before it. Numbers are
    written in groups of five bits. Source: ``rleToString`` in cocoapi's common/maskApi.c.
    """
    counts = np.fromiter(runs, np.int64)
    steps = counts.copy()
    steps[3:] -= counts[1:-2]
    letters = []
    for value in steps.tolist():
        more = True
        while more:
            bits = value & 0x1F
            value >>= 5
            more = value != (-1 if bits & 0x10 else 0)
            letters.append(chr((bits | (0x20 if more else 0)) + 48))
    return "".join(letters)

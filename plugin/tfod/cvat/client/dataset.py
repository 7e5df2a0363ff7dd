"""A dataset with its images, in Datumaro's own format, as servers import it into a project.

CVAT's own XML would lose masks and images in folders there (``formats/cvat.py``,
``CvatExtractor``). Source of the layout: datumaro/plugins/data_formats/datumaro/format.py.
"""

from __future__ import annotations

import json
import posixpath
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from tfod.cvat.client.task import LiveTask
from tfod.cvat.records import ShapeBuilder, ZipRecord
from tfod.detection.images.image import EXTENSION_OF_FORMAT, sniff_format
from tfod.detection.images.masks import run_lengths
from tfod.errors import TfodError
from tfod.formats.cvat_shapes import MASK, POINTS, Attributes, CvatShape, decode_runs
from tfod.formats.dataset import size_of
from tfod.tfrecord.image_names import IdMaker, safe_relative_path

_DEFAULT_SUBSET = "default"
_TRUTH = {"true": True, "false": False}


@dataclass
class Subset:
    """A task that is to be made, and its items as they come, on disk: 100,000 are too many to hold.

    Attributes:
        images, objects: how many.
    """

    stream: IO[str]
    ids: IdMaker = field(default_factory=IdMaker)
    images: int = 0
    objects: int = 0


def write_dataset(
    records: Iterable[ZipRecord], live: LiveTask, builder: ShapeBuilder, path: str
) -> dict[str, Subset]:
    """Write a zip with the images and ``annotations/<subset>.json``.

    Returns what is in each subset; ``builder`` counts what does not come along.

    Raises:
        TfodError: a record has no image.
    """
    labels = {name: place for place, name in enumerate(live.labels)}
    files: dict[str, Subset] = {}
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for record in records:
                name = safe_relative_path(record.subset) or _DEFAULT_SUBSET
                subset = name.replace("/", "_")
                if subset not in files:
                    files[subset] = _begin(f"{path}.{len(files)}.json", labels)
                _add(archive, files[subset], subset, record, builder, labels)
            for number, (subset, file) in enumerate(files.items()):
                file.stream.write("]}")
                file.stream.close()
                archive.write(
                    f"{path}.{number}.json",
                    f"annotations/{subset}.json",
                    compress_type=zipfile.ZIP_DEFLATED,
                )
    finally:
        for file in files.values():
            file.stream.close()
    return files


def _begin(path: str, labels: Mapping[str, int]) -> Subset:
    stream = open(path, "w", encoding="utf-8")
    names = [{"name": name, "parent": "", "attributes": []} for name in labels]
    categories = {"label": {"labels": names, "attributes": ["occluded"]}}
    # No other keys: newer readers know some that older ones do not, and refuse the older ones'.
    stream.write(json.dumps({"categories": categories})[:-1] + ', "items": [')
    return Subset(stream)


def _add(
    archive: zipfile.ZipFile,
    file: Subset,
    subset: str,
    record: ZipRecord,
    builder: ShapeBuilder,
    labels: Mapping[str, int],
) -> None:
    detection = record.detection
    encoded = bytes(detection.encoded or b"")
    size = size_of(detection)
    if not all(size):
        raise TfodError(f"{record.where}: the size of the image is not known")
    filename = safe_relative_path(detection.filename or "")
    item_id, extension = file.ids.make(filename, f"image_{file.images:06d}")
    if not extension:
        extension = EXTENSION_OF_FORMAT.get(sniff_format(encoded[:16]) or "", ".jpg")
    image = item_id + extension
    shapes = builder.shapes(record, size)
    annotations = [
        *(_annotation(one, number, labels, size) for number, one in enumerate(shapes)),
        *(
            {
                "id": 0,
                "type": "label",
                "attributes": _attributes(tag.attributes),
                "group": 0,
                "label_id": labels[tag.label],
            }
            for tag in builder.tags(record)
        ),
    ]
    archive.writestr(posixpath.join("images", subset, image), encoded)
    item = {
        "id": item_id,
        "annotations": annotations,
        "attr": {},
        "image": {"path": image, "size": list(size)},
    }
    file.stream.write(("," if file.images else "") + json.dumps(item))
    file.images += 1
    file.objects += len(shapes)


def _annotation(
    shape: CvatShape, number: int, labels: Mapping[str, int], size: tuple[int, int]
) -> dict[str, Any]:
    attributes = _attributes(shape.attributes)
    attributes["occluded"] = shape.occluded
    if shape.rotation:
        attributes["rotation"] = shape.rotation
    found: dict[str, Any] = {
        "id": number,
        "attributes": attributes,
        "group": shape.group,
        "label_id": labels[shape.label],
        "z_order": shape.z_order,
    }
    left, top, right, bottom = shape.extent
    if shape.kind == POINTS:
        visible = [2] * (len(shape.points) // 2)
        return {**found, "type": "points", "points": shape.points, "visibility": visible}
    if shape.kind == MASK:
        mask = decode_runs(shape.runs, shape.extent, size)
        counts = compressed_runs(run_lengths(mask.ravel(order="F")))
        return {**found, "type": "mask", "rle": {"counts": counts, "size": list(size)}}
    return {**found, "type": "bbox", "bbox": [left, top, right - left, bottom - top]}


def _attributes(attributes: Attributes) -> dict[str, Any]:
    return {name: _TRUTH.get(text, text) for name, text in attributes}


def compressed_runs(runs: Iterable[int]) -> str:
    """COCO's text of runs that go column by column.

    Each number, from the third on less the one before the last, in groups of five bits.
    Source: ``rleToString`` in cocoapi's common/maskApi.c.
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

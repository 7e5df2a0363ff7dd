"""The benchmark data: shards and images, the same in every run."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tfod
from PIL import Image, ImageFilter
from sizes import (
    BOXES,
    CLASSES,
    HEIGHT,
    IMAGE_BYTES,
    MANY_SHARDS,
    TRAINING_SHARDS,
    WARM_UP,
    WIDTH,
    Sizes,
)

_DISTINCT_IMAGES = 20


@dataclass(frozen=True)
class Data:
    root: Path
    sizes: Sizes

    def folder(self, name: str) -> Path:
        return self.root / name

    def shard(self, name: str) -> Path:
        return self.folder(name) / "train.tfrecord"


def make_data(root: Path, sizes: Sizes) -> Data:
    """Write all datasets.

    ``images`` has 100 kB images, ``unimaged`` the same records without images, ``bare`` many more
    records without images, ``unhashed`` images without SHA-256, ``many`` numbered shards without
    images, ``training`` numbered shards with images. ``one``, ``validated`` and ``…_of_peer``
    contain the first records of these. ``files`` is a folder of JPEG files, ``coco`` a dataset with
    some of these, ``bare_coco`` and ``bare_voc`` have the records of ``validated``, ``tiny`` has a
    record per shard.
    """
    data = Data(root, sizes)
    images = _make_images()
    _write(data, "one", _detections(1))
    _write(data, "warm_up", _detections(WARM_UP, images))
    _write(data, "images", _detections(sizes.images, images))
    _write(data, "unimaged", _detections(sizes.images))
    _write(data, "images_of_peer", _detections(sizes.images_of_peer, images))
    _write(data, "unimaged_of_peer", _detections(sizes.images_of_peer))
    _write(data, "bare", _detections(sizes.bare))
    _write(data, "bare_of_peer", _detections(sizes.bare_of_peer))
    _write(data, "validated", _detections(sizes.validated))
    with_images = _detections(sizes.images, images)
    _write(data, "unhashed", (replace(detection, sha256=None) for detection in with_images))
    _write(data, "many", _detections(MANY_SHARDS * sizes.bare), MANY_SHARDS)
    _write(data, "training", _detections(sizes.training, images), TRAINING_SHARDS)
    data.folder("files").mkdir()
    for number in range(sizes.files):
        image = add_comment(images[number % len(images)], number)
        (data.folder("files") / f"{number:06d}.jpg").write_bytes(image)
    _write_coco(data, sizes.coco)
    _write(data, "tiny", _detections(sizes.tiny_shards), sizes.tiny_shards)
    for name, image_folder in (("coco", "images"), ("voc", "JPEGImages")):
        target = data.folder(f"bare_{name}")
        tfod.convert(data.folder("validated"), target, target_format=name, no_images=True)
        (target / image_folder).mkdir()  # Datumaro does not import a dataset without it
    return data


def write_images(data: Data, name: str, count: int) -> None:
    """Write a shard with images, which are all different."""
    _write(data, name, _detections(count, _make_images()))


def _make_images() -> list[bytes]:
    return list(distinct_images(HEIGHT, WIDTH, IMAGE_BYTES, _DISTINCT_IMAGES))


def _write(
    data: Data, name: str, detections: Iterator[tfod.Detection], num_shards: int = 1
) -> None:
    payloads = map(tfod.encode_detection, detections)
    tfod.write_records(data.folder(name), "train", payloads, num_shards=num_shards)
    items = tuple(tfod.LabelMapItem(number + 1, text) for number, text in enumerate(CLASSES))
    (data.folder(name) / "label_map.pbtxt").write_text(tfod.LabelMap(items).to_text())


def _detections(count: int, images: list[bytes] | None = None) -> Iterator[tfod.Detection]:
    random = np.random.default_rng(7)
    for number in range(count):
        corners = np.sort(random.random((BOXES, 2, 2), dtype=np.float32), axis=1)
        classes = random.integers(0, len(CLASSES), BOXES).tolist()
        detection = tfod.Detection(
            filename=f"{number:06d}.jpg",
            source_id=f"{number:06d}",
            format="jpeg" if images else "",
            sha256="",
            height=HEIGHT,
            width=WIDTH,
            encoded=b"",
            boxes=corners.reshape(BOXES, 4),
            class_text=[CLASSES[index] for index in classes],
            class_label=[index + 1 for index in classes],
        )
        if images:
            image = add_comment(images[number % len(images)], number)
            digest = hashlib.sha256(image).hexdigest()
            detection = replace(detection, encoded=image, sha256=digest)
        yield detection


def _write_coco(data: Data, count: int) -> None:
    images = data.folder("coco") / "images" / "train"
    images.mkdir(parents=True)
    document: dict[str, list[dict[str, Any]]] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": n, "name": name} for n, name in enumerate(CLASSES, start=1)],
    }
    for number, path in enumerate(sorted(data.folder("files").iterdir())[:count], start=1):
        os.link(path, images / path.name)
        image = {"id": number, "file_name": path.name, "height": HEIGHT, "width": WIDTH}
        document["images"].append(image)
        for box in range(BOXES):
            document["annotations"].append(
                {
                    "id": number * BOXES + box,
                    "image_id": number,
                    "category_id": 1 + box % len(CLASSES),
                    "bbox": [20 * box, 10 * box, 30, 30],
                    "area": 900,
                    "iscrowd": 0,
                    "segmentation": [],
                }
            )
    (data.folder("coco") / "annotations").mkdir()
    path = data.folder("coco") / "annotations" / "instances_train.json"
    path.write_text(json.dumps(document))


def distinct_images(height: int, width: int, size: int, count: int) -> Iterator[bytes]:
    """Yield JPEG files of smoothed noise, each of about ``size`` bytes."""
    random = np.random.default_rng(11)
    for _ in range(count):
        pixels = random.integers(0, 256, (height, width, 3), np.uint8)
        image = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(0.9))
        files = (_jpeg(image, quality) for quality in range(50, 96, 3))
        yield min(files, key=lambda file: abs(len(file) - size))


def _jpeg(image: Image.Image, quality: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def add_comment(image: bytes, number: int) -> bytes:
    """Return a JPEG file with a number as a comment after its first marker."""
    comment = b"\xff\xfe\x00\x0a%08d" % number
    return image[:2] + comment + image[2:]

"""Pack the images of shapes_voc in CVAT's "TFRecord 1.0" format: a good zip and a broken one.

Each image of the broken zip has at most one common defect. Both zips contain default.tfrecord and
label_map.pbtxt, and do not depend on the machine.

    python examples/pack_shapes.py [folder]
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from annotate_shapes import IMAGES, seen_shapes
from draw_shapes import CLASSES, Image, all_images
from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.writer import RecordWriter

LABEL_MAP = LabelMap.from_names(CLASSES)
Break = Callable[[Detection], Detection]


def make_detection(number: int, image: Image) -> Detection:
    """Return an image with its normalized boxes and classes; the number is its source id."""
    width, height = image.size
    shapes = seen_shapes(image)
    names = [seen.shape.name for seen in shapes]
    boxes = np.array([seen.box for seen in shapes], "<f8").reshape(-1, 4)
    return Detection(
        filename=image.filename,
        source_id=str(number),
        format="png" if image.filename.endswith(".png") else "jpeg",
        width=width,
        height=height,
        encoded=(IMAGES / image.filename).read_bytes(),
        boxes=(boxes / (width, height, width, height)).astype("<f4"),
        class_text=names,
        class_label=[list(CLASSES).index(name) + 1 for name in names],
    )


def move_outside(detection: Detection) -> Detection:
    """Extend the last box beyond the image."""
    boxes = detection.boxes.copy()
    boxes[-1, 2] = 1.15
    return replace(detection, boxes=boxes)


def invert(detection: Detection) -> Detection:
    """Swap the left and right sides of the first box."""
    boxes = detection.boxes.copy()
    boxes[0] = boxes[0, [2, 1, 0, 3]]
    return replace(detection, boxes=boxes)


def misspell(detection: Detection) -> Detection:
    """Replace the first class by one that is not in the label map."""
    return replace(detection, class_text=["cirkle", *(detection.class_text or ())[1:]])


def duplicate(detection: Detection) -> Detection:
    """Repeat the last box."""
    texts, labels = detection.class_text or (), detection.class_label or ()
    return replace(
        detection,
        boxes=np.vstack([detection.boxes, detection.boxes[-1:]]),
        class_text=[*texts, *texts[-1:]],
        class_label=[*labels, *labels[-1:]],
    )


def truncate(detection: Detection) -> Detection:
    """Remove the last third of the image file."""
    data = bytes(detection.encoded or b"")
    return replace(detection, encoded=data[: len(data) * 2 // 3])


def swap_size(detection: Detection) -> Detection:
    """Swap height and width."""
    return replace(detection, height=detection.width, width=detection.height)


DEFECTS: Mapping[str, Break] = {
    "shapes_02.jpg": move_outside,
    "shapes_04.jpg": misspell,
    "shapes_05.jpg": invert,
    "shapes_08.jpg": duplicate,
    "shapes_10.jpg": truncate,
    "shapes_11.jpg": swap_size,
}
DAMAGED = "shapes_12.jpg"
"""The image whose record is changed after it is written, so that its checksum is wrong."""


def make_shard(defects: Mapping[str, Break] | None = None) -> bytes:
    """Return a shard of all images, with or without defects."""
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for number, (_, image) in enumerate(all_images(), 1):
        detection = make_detection(number, image)
        if defects is None:
            writer.write(encode_detection(detection))
            continue
        if image.filename in defects:
            detection = defects[image.filename](detection)
        writer.write(encode_detection(detection))
        if image.filename == DAMAGED:
            stream.seek(-100, io.SEEK_CUR)
            byte = stream.read(1)[0]
            stream.seek(-1, io.SEEK_CUR)
            stream.write(bytes([byte ^ 0xFF]))
            stream.seek(0, io.SEEK_END)
    return stream.getvalue()


def make_zips() -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of the zips."""
    for name, shard in (("good", make_shard()), ("broken", make_shard(DEFECTS))):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for member, data in (
                ("default.tfrecord", shard),
                ("label_map.pbtxt", LABEL_MAP.to_text().encode()),
            ):
                # Not compressed, since the output of deflate depends on the machine.
                archive.writestr(zipfile.ZipInfo(member), data)
        yield f"shapes_{name}.zip", stream.getvalue()


def main() -> None:
    """Write both zips to a folder, by default the folder of this script."""
    parser = argparse.ArgumentParser(description="Pack shapes_voc as two zips.")
    default = Path(__file__).parent
    parser.add_argument(
        "folder", nargs="?", type=Path, default=default, help="default: %(default)s"
    )
    folder = parser.parse_args().folder
    for name, data in make_zips():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()

"""Pack the images of shapes_voc as CVAT's "TFRecord 1.0" does: a good zip and a broken one.

The broken zip has what is often wrong with such zips, a defect in an image of its own. Both hold
default.tfrecord and label_map.pbtxt, and are the same on every machine.

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


def detection_of(number: int, image: Image) -> Detection:
    """An image, its number, and its boxes as fractions of its sides."""
    width, height = image.size
    shapes = seen_shapes(image)
    names = [seen.shape.name for seen in shapes]
    sides = np.array([seen.box for seen in shapes], "<f8").reshape(-1, 4)
    return Detection(
        filename=image.filename,
        source_id=str(number),
        format="png" if image.filename.endswith(".png") else "jpeg",
        width=width,
        height=height,
        encoded=(IMAGES / image.filename).read_bytes(),
        boxes=(sides / (width, height, width, height)).astype("<f4"),
        class_text=names,
        class_label=[list(CLASSES).index(name) + 1 for name in names],
    )


def past_the_edge(one: Detection) -> Detection:
    """The last box reaches out of the image."""
    boxes = one.boxes.copy()
    boxes[-1, 2] = 1.15
    return replace(one, boxes=boxes)


def inverted(one: Detection) -> Detection:
    """The first box has its left and right sides swapped."""
    boxes = one.boxes.copy()
    boxes[0] = boxes[0, [2, 1, 0, 3]]
    return replace(one, boxes=boxes)


def misspelled(one: Detection) -> Detection:
    """The first class is not in the label map."""
    return replace(one, class_text=["cirkle", *(one.class_text or ())[1:]])


def drawn_twice(one: Detection) -> Detection:
    """The last box is there twice."""
    return replace(
        one,
        boxes=np.vstack([one.boxes, one.boxes[-1:]]),
        class_text=[*(one.class_text or ()), *(one.class_text or ())[-1:]],
        class_label=[*(one.class_label or ()), *(one.class_label or ())[-1:]],
    )


def cut_short(one: Detection) -> Detection:
    """The last third of the image file is missing."""
    data = bytes(one.encoded or b"")
    return replace(one, encoded=data[: len(data) * 2 // 3])


def turned(one: Detection) -> Detection:
    """Height and width are swapped."""
    return replace(one, height=one.width, width=one.height)


DEFECTS: Mapping[str, Break] = {
    "shapes_02.jpg": past_the_edge,
    "shapes_04.jpg": misspelled,
    "shapes_05.jpg": inverted,
    "shapes_08.jpg": drawn_twice,
    "shapes_10.jpg": cut_short,
    "shapes_11.jpg": turned,
}
CHANGED = "shapes_12.jpg"
"""The image in whose record a byte changes after it is written, so that its checksum is wrong."""


def shard_of(defects: Mapping[str, Break] | None = None) -> bytes:
    """All images in a shard, whole or with those defects."""
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for one in (detection_of(number, image) for number, (_, image) in enumerate(all_images(), 1)):
        if defects is None:
            writer.write(encode_detection(one))
            continue
        writer.write(encode_detection(defects.get(one.filename or "", lambda same: same)(one)))
        if one.filename == CHANGED:
            stream.seek(-100, io.SEEK_CUR)
            byte = stream.read(1)[0]
            stream.seek(-1, io.SEEK_CUR)
            stream.write(bytes([byte ^ 0xFF]))
            stream.seek(0, io.SEEK_END)
    return stream.getvalue()


def zips() -> Iterator[tuple[str, bytes]]:
    """The zips by their names."""
    for name, shard in (("good", shard_of()), ("broken", shard_of(DEFECTS))):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for member, data in (
                ("default.tfrecord", shard),
                ("label_map.pbtxt", LABEL_MAP.to_text().encode()),
            ):
                # Stored, since deflate differs between machines and images hardly shrink.
                archive.writestr(zipfile.ZipInfo(member), data)
        yield f"shapes_{name}.zip", stream.getvalue()


def main() -> None:
    """Write both zips beside this script, or into the folder that is named."""
    parser = argparse.ArgumentParser(description="Pack shapes_voc as two zips.")
    beside = Path(__file__).parent
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="default: %(default)s")
    folder = parser.parse_args().folder
    for name, data in zips():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()

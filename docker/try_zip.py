"""Write a test zip to standard output, for docker/try: `try_zip.py good` or `try_zip.py bad`."""

from __future__ import annotations

import io
import sys
import zipfile

from PIL import Image
from tfod import RecordWriter, bytes_feature, encode_example, float_feature, int64_feature

WIDTH, HEIGHT = 64, 48
LABEL_MAP = "item { id: 1 name: 'cat' }\n"


def main() -> None:
    """Write a zip with one image and one box, which extends beyond the image if it is bad."""
    xmax = {"good": 0.75, "bad": 1.5}[sys.argv[1]]
    shard = io.BytesIO()
    writer = RecordWriter(shard)
    writer.write(_record(xmax))
    writer.finish()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("default.tfrecord", shard.getvalue())
        archive.writestr("label_map.pbtxt", LABEL_MAP)
    sys.stdout.buffer.write(stream.getvalue())


def _record(xmax: float) -> bytes:
    image = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), "teal").save(image, "JPEG")
    return encode_example(
        {
            "image/encoded": bytes_feature([image.getvalue()]),
            "image/format": bytes_feature([b"jpeg"]),
            "image/filename": bytes_feature([b"a.jpg"]),
            "image/source_id": bytes_feature([b"a.jpg"]),
            "image/height": int64_feature([HEIGHT]),
            "image/width": int64_feature([WIDTH]),
            "image/object/bbox/xmin": float_feature([0.25]),
            "image/object/bbox/ymin": float_feature([0.25]),
            "image/object/bbox/xmax": float_feature([xmax]),
            "image/object/bbox/ymax": float_feature([0.75]),
            "image/object/class/text": bytes_feature([b"cat"]),
            "image/object/class/label": int64_feature([1]),
        }
    )


if __name__ == "__main__":
    main()

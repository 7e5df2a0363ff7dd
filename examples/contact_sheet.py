"""Draw the boxes of a shard onto its pictures: an example of the library, and README's picture.

    python examples/contact_sheet.py SHARD out.png [columns rows]

Needs Pillow. Reads with tfod alone: no Datumaro, no TensorFlow.
"""

from __future__ import annotations

import contextlib
import io
import sys
from itertools import islice

import tfod
from PIL import Image, ImageDraw, ImageFont

TILE = (320, 240)
GAP = 6
COLOURS = ("#d1495b", "#00798c", "#edae49", "#30638e", "#5b8c5a", "#8d6b94")


def font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font with letters beyond ASCII, where this machine has one."""
    names = ["DejaVuSans.ttf"]
    with contextlib.suppress(ImportError):
        import matplotlib

        names.append(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    for name in names:
        with contextlib.suppress(OSError):
            return ImageFont.truetype(name, 12)
    return ImageFont.load_default()


FONT = font()


def draw(detection: tfod.Detection) -> Image.Image:
    """One picture with its boxes and classes, fitted into a tile."""
    picture = Image.open(io.BytesIO(bytes(detection.encoded or b""))).convert("RGB")
    pen = ImageDraw.Draw(picture)
    width, height = picture.size
    texts = detection.class_text or [""] * len(detection.boxes)
    for box, text in zip(detection.boxes, texts, strict=True):
        left, top, right, bottom = (box * (width, height, width, height)).tolist()
        colour = COLOURS[sum(text.encode()) % len(COLOURS)]
        pen.rectangle((left, top, right, bottom), outline=colour, width=3)
        label = pen.textbbox((left + 4, top + 2), text, font=FONT)
        pen.rectangle((left, top, label[2] + 4, label[3] + 3), fill=colour)
        pen.text((left + 4, top + 2), text, fill="white", font=FONT)
    picture.thumbnail(TILE)
    tile = Image.new("RGB", TILE, "#f4f4f4")
    tile.paste(picture, ((TILE[0] - picture.width) // 2, (TILE[1] - picture.height) // 2))
    return tile


def main() -> None:
    """Read the command line and draw."""
    source, target, *grid = sys.argv[1:]
    columns, rows = (int(number) for number in grid) if grid else (4, 2)
    step = (TILE[0] + GAP, TILE[1] + GAP)
    sheet = Image.new("RGB", (columns * step[0] - GAP, rows * step[1] - GAP), "white")
    for place, detection in enumerate(islice(tfod.read_detections(source), columns * rows)):
        at = (place % columns * step[0], place // columns * step[1])
        sheet.paste(draw(detection), at)
    sheet.save(target)


if __name__ == "__main__":
    main()

"""The drawing of a Detection in notebooks."""

from __future__ import annotations

from tfod.checker.reporters.drawing import draw
from tfod.checker.reporters.samples import Sample
from tfod.detection.detection import Detection
from tfod.detection.images.image import image_size
from tfod.errors import TfodError

_HEIGHT, _WIDTH = 28.0, 36.0  # rem


def draw_detection(detection: Detection) -> str | None:
    """Draw an image with its objects as SVG; None without Pillow or jinja2."""
    image = bytes(detection.encoded) if detection.encoded else None
    size = (image_size(image) if image else None) or (detection.height or 0, detection.width or 0)
    classes = detection.class_text or [f"#{label}" for label in detection.class_label or ()]
    name = detection.filename
    sample = Sample("", 0, name, image, *size, boxes=detection.boxes, classes=tuple(classes))
    try:
        return draw(sample, max_height=_HEIGHT, max_width=_WIDTH, detection=detection)
    except (ImportError, TfodError):
        return None

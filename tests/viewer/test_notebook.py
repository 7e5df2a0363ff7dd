"""Detections in notebooks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tfod
from tfod.checker.reporters.drawing import choose_class_colour, get_template
from tfod.detection.images.mask_images import encode_mask_png

from tests.commands import run_python
from tests.mutants.sound import jpeg

BOXES = np.array([(0.25, 0.25, 0.5, 0.75), (0.5, 0.25, 1.0, 0.75)], "<f4")
IMAGE = {"encoded": jpeg(), "filename": "<a>.jpg", "boxes": BOXES}


def draw(detection: tfod.Detection) -> str:
    html = detection._repr_html_()
    assert html is not None and "<a>" not in html
    return html


def test_boxes_masks_and_keypoints() -> None:
    mask = tfod.PngMask(encode_mask_png(np.ones((20, 40), bool)))
    points = tfod.Keypoints(np.full((2, 1, 2), 0.5, "<f4"), np.full((2, 1), 2))
    named = tfod.Detection(**IMAGE, class_text=["cat", "dog"], masks=[mask, None], keypoints=points)
    html = draw(named)
    assert html.count('class="line"') == 2 and html.count('class="point"') == 2
    assert ">cat</text>" in html and choose_class_colour("dog") in html
    assert "data:image/jpeg" in html and "data:image/png" in html


def test_detections_of_any_content() -> None:
    assert ">#7</text>" in draw(tfod.Detection(**IMAGE, class_label=[7, 8]))
    assert draw(tfod.Detection(**IMAGE)).count('class="line"') == 2
    assert "no image in the record" in draw(tfod.Detection())
    assert "cannot be decoded" in draw(tfod.Detection(encoded=b"x", height=3, width=4))


@pytest.mark.parametrize("module", ["PIL", "jinja2"])
def test_without_pillow_or_jinja2(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook then shows the text of the dataclass."""
    monkeypatch.setitem(sys.modules, module, None)
    get_template.cache_clear()
    assert tfod.Detection(**IMAGE)._repr_html_() is None


def test_reading_does_not_load_the_drawing() -> None:
    script = "import sys, tfod; tfod.Detection; print([x for x in sys.modules if 'viewer' in x])"
    assert run_python("-c", script).out == "[]\n"

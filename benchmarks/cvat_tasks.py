"""Measurements of the Django app for CVAT, with the contract double of CVAT of the tests.

The time of a process includes its start. The peers are the exporters of CVAT that use
Datumaro's plugins: TFRecord 1.0, which CVAT had until 2.11, and COCO 1.0.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measure import Sample
from sizes import CLASSES, EXPORTED_BOXES

_DOUBLE = Path(__file__).parents[1] / "tests" / "cvat" / "server" / "double"
_REGISTRY = "cvat.apps.dataset_manager.formats.registry"
_TICKS_PER_SECOND = 100  # in /proc/PID/stat


def export_from_cvat(count: int, width: int, height: int, format_name: str) -> Sample:
    """Export a task without images in one of our formats, as a worker of CVAT does."""
    import django

    _use_double("tfod.cvat.django_settings")
    django.setup()
    from cvat.apps.dataset_manager.formats.registry import make_exporter

    data, setup_seconds = _load_task(count, width, height)
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/export.zip", "wb") as file:
        with tempfile.TemporaryDirectory(dir=folder) as temp_dir:
            make_exporter(format_name)(file, temp_dir, data, save_images=False)
        return Sample(_seconds_of_process() - setup_seconds, count, count * EXPORTED_BOXES)


def export_from_cvat_with_datumaro(count: int, width: int, height: int, format_name: str) -> Sample:
    """Export the task with a plugin of Datumaro, as ``formats/*.py`` of CVAT do.

    ``tf_detection_api`` is TFRecord 1.0 until CVAT 2.11, ``coco_instances`` is COCO 1.0.
    """
    import django

    _use_double("cvat.settings.production")
    django.setup()
    from cvat.apps.dataset_manager.bindings import GetCVATDataExtractor
    from cvat.apps.dataset_manager.formats.registry import dm_env
    from cvat.apps.dataset_manager.util import make_zip_archive
    from datumaro.components.dataset import Dataset

    data, setup_seconds = _load_task(count, width, height)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        with GetCVATDataExtractor(data, convert_annotations=_to_datumaro) as extractor:
            dataset = Dataset.from_extractors(extractor, env=dm_env)
            dataset.export(str(output), format_name, save_media=False)
        make_zip_archive(str(output), str(Path(folder) / "export.zip"))
        assert ("tensorflow" in sys.modules) == (format_name == "tf_detection_api")
        assert not any(name.startswith("tfod") for name in sys.modules)
        return Sample(_seconds_of_process() - setup_seconds, count, count * EXPORTED_BOXES)


def _to_datumaro(frame: Any, _: Any, map_label: Callable[[str], int], *__: Any) -> list[Any]:
    """Convert the rectangles of a frame, as CVAT does."""
    from datumaro.components.annotation import Bbox

    shapes = ((shape, shape.points) for shape in frame.labeled_shapes)
    return [
        Bbox(x0, y0, x1 - x0, y1 - y0, label=map_label(shape.label))
        for shape, (x0, y0, x1, y1) in shapes
    ]


def register_in_cvat() -> Sample:
    import django

    _use_double("cvat.settings.production")
    django.setup()
    registry = __import__(_REGISTRY, fromlist=["EXPORT_FORMATS"])
    assert not any(name.startswith("tfod") for name in sys.modules)
    before = _resident()
    begin = time.perf_counter()
    from tfod.cvat import apps

    apps.TfodConfig("tfod.cvat", SimpleNamespace(__path__=["."])).ready()
    seconds = time.perf_counter() - begin
    assert "TFRecord 1.0" in registry.EXPORT_FORMATS
    return Sample(seconds, 1, peak_bytes=max(0, _resident() - before))


def _use_double(settings: str) -> None:
    import os

    sys.path[:0] = [str(_DOUBLE), str(_DOUBLE.parents[3])]
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    os.environ["CVAT_DOUBLE_DATABASE"] = os.path.join(tempfile.mkdtemp(), "db.sqlite3")


def _load_task(count: int, width: int, height: int) -> tuple[Any, float]:
    """Return the data of a task for an exporter, and the seconds that loading it took."""
    from cvat.apps.dataset_manager.task import load
    from cvat.apps.engine.models import Annotations, Frame, Label, Task

    begin = time.perf_counter()
    frames = [
        Frame(f"street/frame_{number:06d}.jpg", width, height, b"") for number in range(count)
    ]
    shapes = [
        {
            "type": "rectangle",
            "frame": number,
            "label": CLASSES[box % len(CLASSES)],
            "points": [20.0 * box, 10.0 * box, 20.0 * box + 50.5, 10.0 * box + 40.25],
            "occluded": False,
            "outside": False,
            "z_order": 0,
            "group": 0,
            "source": "manual",
            "rotation": 0.0,
            "attributes": {},
            "elements": [],
            "id": None,
        }
        for number in range(count)
        for box in range(EXPORTED_BOXES)
    ]
    task = Task(frames, [Label(name) for name in CLASSES], Annotations(shapes, [], []))
    data = load(task)
    return data, time.perf_counter() - begin


def _seconds_of_process() -> float:
    """Return the time since the start of this process, to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_PER_SECOND


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmRSS" in line)

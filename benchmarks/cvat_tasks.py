"""Measurements of the Django app for CVAT, with the contract double of CVAT of the tests.

The time of a process includes its start. The peer is the exporter that CVAT had until 2.11, which
uses Datumaro's built-in plugin.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measure import Sample
from sizes import CLASSES, EXPORTED_BOXES, HEIGHT, WIDTH

_DOUBLE = Path(__file__).parents[1] / "tests" / "cvat" / "server" / "double"
_REGISTRY = "cvat.apps.dataset_manager.formats.registry"
_TICKS_PER_SECOND = 100  # in /proc/PID/stat


def export_from_cvat(count: int) -> Sample:
    """Export a task without images as "TFRecord 1.0", as a worker of CVAT does."""
    import django

    _use_double("tfod.cvat.django_settings")
    django.setup()
    from cvat.apps.dataset_manager.task import export

    task, setup_seconds = _task(count)
    with tempfile.TemporaryDirectory() as folder:
        export(task, Path(folder) / "export.zip", "TFRecord 1.0", temp_root=folder)
        return Sample(_seconds_of_process() - setup_seconds, count, count * EXPORTED_BOXES)


def export_from_cvat_with_tensorflow(count: int) -> Sample:
    """Export the task with Datumaro's plugin, as ``formats/tfrecord.py`` of CVAT 2.11 did."""
    import django

    _use_double("cvat.settings.production")
    django.setup()
    from cvat.apps.dataset_manager.bindings import GetCVATDataExtractor, TaskData
    from cvat.apps.dataset_manager.formats.registry import dm_env
    from cvat.apps.dataset_manager.util import make_zip_archive
    from datumaro.components.dataset import Dataset

    task, setup_seconds = _task(count)
    with tempfile.TemporaryDirectory() as folder:
        shards = Path(folder) / "shards"
        with GetCVATDataExtractor(TaskData(task.annotations, task)) as extractor:
            dataset = Dataset.from_extractors(extractor, env=dm_env)
            dataset.export(str(shards), "tf_detection_api", save_media=False)
        make_zip_archive(str(shards), str(Path(folder) / "export.zip"))
        assert "tensorflow" in sys.modules
        assert not any(name.startswith("tfod") for name in sys.modules)
        return Sample(_seconds_of_process() - setup_seconds, count, count * EXPORTED_BOXES)


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

    sys.path[:0] = [str(_DOUBLE), str(_DOUBLE.parents[2])]
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    os.environ["CVAT_DOUBLE_DATABASE"] = os.path.join(tempfile.mkdtemp(), "db.sqlite3")


def _task(count: int) -> tuple[Any, float]:
    """Create a task, and return it with the time that this took, in seconds."""
    from cvat.apps.engine.models import Annotations, Frame, Label, Task

    begin = time.perf_counter()
    frames = [
        Frame(f"street/frame_{number:06d}.jpg", WIDTH, HEIGHT, b"") for number in range(count)
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
    return task, time.perf_counter() - begin


def _seconds_of_process() -> float:
    """Return the time since the start of this process, to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_PER_SECOND


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmRSS" in line)

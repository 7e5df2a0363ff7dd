"""An export of a large task holds one image at a time.

A process measures its resident memory. Images of 50 MB may not add a third of their size.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run_python
from tests.cvat.server.test_registration import SERVERS, settings_of

FRAMES, SIZE = 1000, 50_000
CODE = """
import django, json, os, sys
django.setup()
from cvat.apps.dataset_manager import task as server
from cvat.apps.engine.models import Annotations, Frame, Label, Task
from tests.cvat.server.tasks import box

def image(number):
    # Random bytes after the head of a JPEG cannot be compressed.
    return Frame(f"{number}.jpg", 640, 480, lambda: b"\\xff\\xd8\\xff" + os.urandom(size))

def peak():
    # Of this program. getrusage includes the process that started it.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

def export(frames):
    shapes = [box(frame, "cat", i, i, i + 30, i + 20) for frame in range(frames) for i in range(5)]
    task = Task([image(number) for number in range(frames)], [Label("cat")], Annotations(shapes))
    path = os.path.join(folder, "out.zip")
    before = peak()
    server.export(task, path, "TFRecord 1.0", save_images=True, temp_root=folder)
    return os.path.getsize(path), peak() - before

folder, frames, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
export(20)
print(json.dumps(export(frames)))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.parametrize("double", SERVERS)
def test_an_export_holds_one_image_at_a_time(tmp_path: Path, double: str) -> None:
    settings = settings_of(double, Path(__file__).parents[3])
    done = run_python("-c", CODE, tmp_path, FRAMES, SIZE, **settings)
    assert done.code == 0, done.err
    written, growth = json.loads(done.out)
    assert written > FRAMES * SIZE
    assert growth < FRAMES * SIZE / 3

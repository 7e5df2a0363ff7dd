"""Processes of both servers: the registration of the formats, and the memory of an export.

Shown: the menus have both formats and the server's own; existing formats stay; a broken tfod does
not stop the server; a server that loads formats on demand does not load ours earlier; the base
settings can be selected.
"""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_python
from tests.cvat.server.conftest import DOUBLE

SERVERS = ["2.15"] if metadata.version("datumaro").startswith("0.") else ["2.15", "2.73"]
FORMATS = ["COCO 1.0", "TFRecord 1.0", "TFRecord Masks 1.0"]
START = "import django, json, sys; django.setup();"
NAMES = (
    "from cvat.apps.dataset_manager.views import get_export_formats, get_import_formats;"
    "both = [[one.DISPLAY_NAME for one in get()] for get in (get_export_formats,"
    " get_import_formats)];"
    "assert both[0] == both[1], both;"
)
PRINT_NAMES = NAMES + "print(json.dumps(both[0]))"


def settings_of(double: str, *path: Path, **environment: str) -> dict[str, str]:
    """Return the environment of a server, with these folders before the double on its path."""
    own = os.environ.get("PYTHONPATH")
    return {
        "CVAT_DOUBLE": double,
        "DJANGO_SETTINGS_MODULE": "tfod.cvat.django_settings",
        "PYTHONPATH": os.pathsep.join([*map(str, (*path, DOUBLE)), *([own] if own else [])]),
        **environment,
    }


def run_code(
    code: str, double: str = SERVERS[-1], *path: Path, **environment: str
) -> tuple[Any, str]:
    """Run code in a process of the server, and return the printed JSON and the log."""
    done = run_python("-c", code, **settings_of(double, *path, **environment))
    assert done.code == 0, done.err
    assert "Traceback" not in done.err or "logging.basicConfig" in code
    return json.loads(done.out), done.err


@pytest.mark.parametrize("double", SERVERS)
def test_both_formats_are_in_both_menus(double: str) -> None:
    """The page filters by extension and dimension, and a project only accepts ZIP.

    The server starts without our .pth file, like with a folder on its path. The menu must not load
    what only the import and export need.
    """
    code = (
        "import cvat.apps.dataset_manager.formats.registry;"
        "loaded = [name for name in sys.modules"
        " if name.startswith(('tfod.checker', 'tfod.datumaro.', 'tensorflow'))"
        " and name != 'tfod.datumaro.activation'];"
        "print(json.dumps([loaded, both[0], [[one.NAME, one.VERSION, one.EXT, one.ENABLED,"
        " str(one.DIMENSION)] for get in (get_export_formats, get_import_formats)"
        " for one in get()[1:]]]))"
    )
    for options in ({}, {"TFOD_ACTIVATE": "0"}):
        (loaded, formats, details), _ = run_code(START + NAMES + code, double, **options)
        assert loaded == [] or not options
        assert formats == FORMATS
        expected = [[name, "1.0", "ZIP", True, "2d"] for name in ("TFRecord", "TFRecord Masks")]
        assert details == expected * 2


def test_without_our_settings_there_are_no_formats() -> None:
    settings = {"DJANGO_SETTINGS_MODULE": "cvat.settings.production"}
    assert run_code(START + PRINT_NAMES, **settings)[0] == FORMATS[:1]


def test_existing_formats_stay(tmp_path: Path) -> None:
    """A patched server keeps its own format, and gets the other one."""
    (tmp_path / "patched.py").write_text(
        "from cvat.settings.production import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'patch']\n"
    )
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "__init__.py").touch()
    (tmp_path / "patch" / "apps.py").write_text(
        "from django.apps import AppConfig\n"
        "class Patch(AppConfig):\n"
        "    name = 'patch'\n"
        "    def ready(self):\n"
        "        from cvat.apps.dataset_manager.formats import registry\n"
        "        for add in registry.exporter, registry.importer:\n"
        "            @add(name='TFRecord', ext='ZIP', version='1.0')\n"
        "            def theirs(*args, **kwargs): pass\n"
    )
    code = START + (
        "from cvat.apps.dataset_manager.formats.registry import EXPORT_FORMATS, IMPORT_FORMATS;"
        "print(json.dumps([[name, one.__module__.split('.')[0]]"
        " for formats in (EXPORT_FORMATS, IMPORT_FORMATS) for name, one in formats.items()]))"
    )
    found, _ = run_code(code, SERVERS[-1], tmp_path, TFOD_CVAT_BASE_SETTINGS="patched")
    assert (
        found == [list(pair) for pair in zip(FORMATS, ("cvat", "patch", "tfod"), strict=True)] * 2
    )


def test_settings_of_the_owner(tmp_path: Path) -> None:
    (tmp_path / "owned.py").write_text(
        "from cvat.settings.production import *\nDEBUG = True\nOWN_SETTING = 41\n"
    )
    code = START + (
        "from django.conf import settings;"
        "print(json.dumps([settings.OWN_SETTING, settings.INSTALLED_APPS, settings.CVAT_DOCS_URL]))"
    )
    found, _ = run_code(code, SERVERS[-1], tmp_path, TFOD_CVAT_BASE_SETTINGS="owned")
    own, apps, address = found
    assert (own, apps[-2:]) == (41, ["cvat.apps.quality_control", "tfod.cvat"])
    assert address.startswith("https://")


@pytest.mark.parametrize(
    ("damage", "texts"),
    [
        # A module that cannot be imported, such as one for another Python.
        ("sys.modules['tfod.cvat.server'] = None", ["tfod.cvat", "continues without"]),
        # Another version of CVAT may expect other arguments of its decorators.
        (
            "import tfod.cvat.server as formats;"
            "formats.register = lambda registry: registry.exporter(nonsense=1)",
            ["nonsense"],
        ),
    ],
)
def test_a_broken_tfod_does_not_stop_the_server(damage: str, texts: list[str]) -> None:
    code = f"import sys, logging; logging.basicConfig(); {damage};"
    formats, log = run_code(code + START + PRINT_NAMES)
    assert formats == FORMATS[:1]
    assert all(text in log for text in texts)


@pytest.mark.skipif("2.73" not in SERVERS, reason="servers with Datumaro 0.3 load it at the start")
def test_formats_are_loaded_on_demand() -> None:
    """CVAT removed its format because each process had to load it."""
    code = START + (
        "heavy = ('datumaro', 'numpy', 'google', 'tensorflow', 'PIL', 'lxml', 'tfod.checker',"
        " 'tfod.datumaro', 'tfod.cvat.server.zip_export',"
        " 'cvat.apps.dataset_manager.formats.registry');"
        "print(json.dumps([name for name in sys.modules for one in heavy"
        " if name == one or name.startswith(one + '.')]))"
    )
    assert run_code(code, "2.73")[0] == []


@pytest.mark.parametrize("double", SERVERS)
def test_a_format_that_is_imported_first_imports_the_registry(double: str) -> None:
    """The registry is imported completely while the format is imported."""
    code = START + "import cvat.apps.dataset_manager.formats.coco;" + PRINT_NAMES
    assert sorted(run_code(code, double)[0]) == FORMATS


def test_invalid_base_settings() -> None:
    settings = settings_of(SERVERS[0], TFOD_CVAT_BASE_SETTINGS="no.such.settings")
    done = run_python("-c", "import django; django.setup()", **settings)
    assert done.code != 0
    assert "No module named 'no'" in done.err


FRAMES, SIZE = 1000, 50_000
EXPORT = """
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
    """Images of 50 MB may not add a third of their size to the resident memory."""
    settings = settings_of(double, Path(__file__).parents[3])
    done = run_python("-c", EXPORT, tmp_path, FRAMES, SIZE, **settings)
    assert done.code == 0, done.err
    written, growth = json.loads(done.out)
    assert written > FRAMES * SIZE
    assert growth < FRAMES * SIZE / 3

"""Registration in a real Django project, each time a process of its own, on both servers.

Shown: both formats are there for export and import, with the server's own; what names they have
already is left alone; a tfod that is broken costs the server nothing; a server that imports its
formats on demand loads nothing of ours before; the base settings can be chosen.
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
ASK = (
    "from cvat.apps.dataset_manager.views import get_export_formats, get_import_formats;"
    "both = [[one.DISPLAY_NAME for one in get()] for get in (get_export_formats,"
    " get_import_formats)];"
    "assert both[0] == both[1], both;"
    "print(json.dumps(both[0]))"
)


def python_path(*first: Path) -> str:
    """The double in front of what there is already."""
    own = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*(str(one) for one in (*first, DOUBLE)), *([own] if own else [])])


def settings_of(double: str, *path: Path, **environment: str) -> dict[str, str]:
    """The environment of a server."""
    return {
        "CVAT_DOUBLE": double,
        "DJANGO_SETTINGS_MODULE": "tfod.cvat.django_settings",
        "PYTHONPATH": python_path(*path),
        **environment,
    }


def run_code(
    code: str, double: str = SERVERS[-1], *path: Path, **environment: str
) -> tuple[Any, str]:
    """What a process of the server prints, as JSON, and its log."""
    done = run_python("-c", code, **settings_of(double, *path, **environment))
    assert done.code == 0, done.err
    return json.loads(done.out), done.err


@pytest.mark.parametrize("double", SERVERS)
def test_both_formats_are_in_both_menus(double: str) -> None:
    """The web page filters by extension and dimension; a project takes ZIP alone."""
    code = ASK.replace("print(", "0 and print(") + (
        ";print(json.dumps([both[0], [[one.NAME, one.VERSION, one.EXT, one.ENABLED,"
        " str(one.DIMENSION)] for get in (get_export_formats, get_import_formats)"
        " for one in get()[1:]]]))"
    )
    (formats, details), log = run_code(START + code, double)
    assert formats == FORMATS
    wanted = [[name, "1.0", "ZIP", True, "2d"] for name in ("TFRecord", "TFRecord Masks")]
    assert details == wanted * 2
    assert "Traceback" not in log


def test_without_the_app_there_is_nothing_of_ours() -> None:
    formats, _ = run_code(START + ASK, DJANGO_SETTINGS_MODULE="cvat.settings.production")
    assert formats == FORMATS[:1]


@pytest.mark.parametrize("double", SERVERS)
def test_without_the_start_up_hook_of_the_package(double: str) -> None:
    """A server finds tfod in a folder on its path: no .pth file has run.

    Listing the formats loads no more than the server has: the menu asks each web worker, and the
    work is done by others.
    """
    code = START + (
        "import cvat.apps.dataset_manager.formats.registry;"
        "loaded = [name for name in sys.modules"
        " if name.startswith(('tfod.checker', 'tfod.datumaro.', 'tensorflow'))"
        " and name != 'tfod.datumaro.activation'];"
    )
    asked = ASK.replace("print(json.dumps(both[0]))", "print(json.dumps([loaded, both[0]]))")
    assert run_code(code + asked, double, TFOD_ACTIVATE="0")[0] == [[], FORMATS]


def test_formats_that_are_there_already_stay(tmp_path: Path) -> None:
    """A server that was patched by hand keeps its own, and still gets what it lacks."""
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
        "        @registry.exporter(name='TFRecord', ext='ZIP', version='1.0')\n"
        "        def theirs(*args, **kwargs): pass\n"
        "        @registry.importer(name='TFRecord', ext='ZIP', version='1.0')\n"
        "        def theirs(*args, **kwargs): pass\n"
    )
    code = START + (
        "from cvat.apps.dataset_manager.formats.registry import EXPORT_FORMATS, IMPORT_FORMATS;"
        "print(json.dumps([[name, one.__module__] for formats in (EXPORT_FORMATS, IMPORT_FORMATS)"
        " for name, one in formats.items()]))"
    )
    found, log = run_code(code, SERVERS[-1], tmp_path, TFOD_CVAT_BASE_SETTINGS="patched")
    assert [name for name, _ in found] == FORMATS * 2
    assert [module for name, module in found if name == "TFRecord 1.0"] == ["patch.apps"] * 2
    masks = [module for name, module in found if name == "TFRecord Masks 1.0"]
    assert all(module.startswith("tfod.cvat") for module in masks)
    assert "Traceback" not in log


def test_settings_of_the_owner(tmp_path: Path) -> None:
    (tmp_path / "owned.py").write_text(
        "from cvat.settings.production import *\nDEBUG = True\nOWN_SETTING = 41\n"
    )
    code = START + (
        "from django.conf import settings;"
        "print(json.dumps([settings.OWN_SETTING, settings.INSTALLED_APPS,"
        " settings.CVAT_DOCS_URL]))"
    )
    found, _ = run_code(code, SERVERS[-1], tmp_path, TFOD_CVAT_BASE_SETTINGS="owned")
    own, apps, address = found
    assert own == 41
    assert apps[-2:] == ["cvat.apps.quality_control", "tfod.cvat"]
    assert address.startswith("https://")


def test_a_broken_tfod_leaves_the_server_up() -> None:
    """As where a package was built for another Python: the import of the module fails."""
    code = "import sys, logging; logging.basicConfig(); sys.modules['tfod.cvat.server'] = None;"
    formats, log = run_code(code + START + ASK)
    assert formats == FORMATS[:1]
    assert "tfod.cvat" in log
    assert "continues without" in log


def test_a_registry_that_refuses_leaves_the_server_up() -> None:
    """The decorators are CVAT's: another version may want other arguments."""
    code = (
        "import logging; logging.basicConfig(); import tfod.cvat.server as formats;"
        "formats.register = lambda registry: registry.exporter(nonsense=1);"
    )
    formats, log = run_code(code + START + ASK)
    assert formats == FORMATS[:1]
    assert "nonsense" in log


@pytest.mark.skipif("2.73" not in SERVERS, reason="servers with Datumaro 0.3 import it at start")
def test_a_lazy_server_stays_lazy() -> None:
    """What made CVAT drop the format: that every process paid for it."""
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
    """The registry then ends while a module of its own is still half imported."""
    formats, log = run_code(START + "import cvat.apps.dataset_manager.formats.coco;" + ASK, double)
    assert sorted(formats) == FORMATS
    assert "Traceback" not in log


def test_nonsense_as_base_settings_is_named() -> None:
    settings = settings_of(SERVERS[0], TFOD_CVAT_BASE_SETTINGS="no.such.settings")
    done = run_python("-c", "import django; django.setup()", **settings)
    assert done.code != 0
    assert "No module named 'no'" in done.err

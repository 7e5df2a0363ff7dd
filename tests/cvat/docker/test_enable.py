"""enable.sh, sourced under `set -eu` as CVAT's entry point sources what is in /etc/cvat/init.d."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

DOCKER = Path(__file__).parents[3] / "docker/cvat"
COMPOSE = yaml.safe_load((DOCKER / "docker-compose.tfrecord.yml").read_text(encoding="utf-8"))
# What the entry point does with each of the scripts, and what a process after it sees.
ENTRY_POINT = """
set -eu
. "$1"
echo "settings=${DJANGO_SETTINGS_MODULE-unset}"
echo "base=${TFOD_CVAT_BASE_SETTINGS-unset}"
echo "path=${PYTHONPATH-unset}"
type -t tfod_enable || true
"""
IMAGE = {"DJANGO_SETTINGS_MODULE": "cvat.settings.production"}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with one release of a package that imports its base, as ours does."""
    release = tmp_path / "volume/releases/tfod-1"
    app = release / "tfod/cvat"
    app.mkdir(parents=True)
    (release / "tfod/__init__.py").touch()
    (app / "__init__.py").touch()
    (app / "apps.py").touch()
    (app / "django_settings.py").write_text(
        "import importlib, os\nimportlib.import_module(os.environ['TFOD_CVAT_BASE_SETTINGS'])\n"
    )
    shutil.copy(DOCKER / "enable.sh", release)
    (tmp_path / "volume/current").symlink_to("releases/tfod-1")
    return tmp_path / "volume"


@pytest.fixture
def cvat(tmp_path: Path) -> Path:
    """A folder with settings to import, such as CVAT and its administrators bring."""
    settings = tmp_path / "home/cvat/settings"
    settings.mkdir(parents=True)
    (tmp_path / "home/cvat/__init__.py").touch()
    (settings / "__init__.py").touch()
    (settings / "production.py").touch()
    (tmp_path / "home/ldap_settings.py").touch()
    return tmp_path / "home"


def start(script: Path, cvat: Path, **environment: str) -> tuple[dict[str, str], list[str]]:
    """The variables after the script, and the lines that were printed beside them."""
    python = script.parent / "bin"
    python.mkdir()
    (python / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "-c", ENTRY_POINT, "entry", str(script)],
        cwd=cvat,
        env={"PATH": f"{python}{os.pathsep}{os.environ['PATH']}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    output = [line for line in lines if line.startswith("tfod: ")]
    variables = [line.split("=", 1) for line in lines if line not in output]
    assert [name for name, *_ in variables] == ["settings", "base", "path"], lines
    return dict(variables), output


def by_compose(volume: Path, folder: Path) -> Path:
    """The script that docker-compose.tfrecord.yml puts into the container, for this volume."""
    script = folder / "tfod.sh"
    script.write_text(COMPOSE["configs"]["tfod"]["content"].replace("/opt/tfod", str(volume)))
    return script


def by_image(volume: Path, folder: Path) -> Path:
    """The link that the Dockerfile's stage `server` has."""
    script = folder / "tfod.sh"
    script.symlink_to(volume / "current/enable.sh")
    return script


@pytest.mark.parametrize("way", [by_compose, by_image])
def test_variables_lead_to_the_release(
    way: Callable[[Path, Path], Path], volume: Path, cvat: Path, tmp_path: Path
) -> None:
    variables, output = start(way(volume, tmp_path), cvat, **IMAGE)
    release = str((volume / "current").resolve())
    assert variables == {
        "settings": "tfod.cvat.django_settings",
        "base": "cvat.settings.production",
        "path": release,
    }
    assert output == [
        f"tfod: TFRecord formats of {release}, with the settings cvat.settings.production"
    ]


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ({}, "cvat.settings.production"),
        ({"DJANGO_SETTINGS_MODULE": "ldap_settings"}, "ldap_settings"),
        ({**IMAGE, "TFOD_CVAT_BASE_SETTINGS": "ldap_settings"}, "ldap_settings"),
        ({"DJANGO_SETTINGS_MODULE": "tfod.cvat.django_settings"}, "cvat.settings.production"),
    ],
)
def test_settings_that_somebody_chose_are_the_base(
    given: dict[str, str], base: str, volume: Path, cvat: Path, tmp_path: Path
) -> None:
    variables, _ = start(by_compose(volume, tmp_path), cvat, **given)
    assert (variables["settings"], variables["base"]) == ("tfod.cvat.django_settings", base)


def test_a_path_that_was_there_stays(volume: Path, cvat: Path, tmp_path: Path) -> None:
    variables, _ = start(by_compose(volume, tmp_path), cvat, **IMAGE, PYTHONPATH="/coverage")
    assert variables["path"] == f"{(volume / 'current').resolve()}:/coverage"


def nothing_installed(volume: Path) -> str:
    shutil.rmtree(volume)
    volume.mkdir()
    return "nothing is installed"


def no_app(volume: Path) -> str:
    (volume / "current/tfod/cvat/apps.py").unlink()
    return "No module named 'tfod.cvat.apps'"


def broken_module(volume: Path) -> str:
    (volume / "current/tfod/__init__.py").write_text("import numpy.that_is_not_there\n")
    return "Error: "


@pytest.mark.parametrize("damage", [nothing_installed, no_app, broken_module])
def test_cvat_starts_as_it_was_when_tfod_is_broken(
    damage: Callable[[Path], str], volume: Path, cvat: Path, tmp_path: Path
) -> None:
    script = by_compose(volume, tmp_path)
    reason = damage(volume)
    variables, (output,) = start(script, cvat, **IMAGE)
    assert variables == {"settings": "cvat.settings.production", "base": "unset", "path": "unset"}
    assert output.startswith("tfod: no TFRecord formats: ") and reason in output


def test_cvat_starts_when_the_script_is_damaged(volume: Path, tmp_path: Path) -> None:
    (volume / "current/enable.sh").write_text("tfod_enable() {\n")
    script = by_compose(volume, tmp_path)
    done = subprocess.run(
        ["bash", "-c", ENTRY_POINT, "entry", str(script)],
        env={"PATH": os.environ["PATH"], **IMAGE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "settings=cvat.settings.production\n" in done.stdout
    assert "syntax error" in done.stderr

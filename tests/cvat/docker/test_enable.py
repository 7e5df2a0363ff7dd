"""enable.sh, sourced under `set -eu` like all scripts in /etc/cvat/init.d of CVAT's image."""

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
# CVAT's entry point, and then the variables that a later process has.
ENTRY_POINT = """
set -eu
. "$1"
echo "settings=${DJANGO_SETTINGS_MODULE-unset}"
echo "base=${TFOD_CVAT_BASE_SETTINGS-unset}"
echo "path=${PYTHONPATH-unset}"
type -t tfod_enable || true
"""
IMAGE = {"DJANGO_SETTINGS_MODULE": "cvat.settings.production"}
OURS = "tfod.cvat.django_settings"
Way = Callable[[Path, Path], Path]


def write(folder: Path, *names: str) -> Path:
    """Write empty files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with one release of a package that imports the base settings like tfod."""
    release = tmp_path / "volume/releases/tfod-1"
    write(release, "tfod/__init__.py", "tfod/cvat/__init__.py", "tfod/cvat/apps.py")
    (release / "tfod/cvat/django_settings.py").write_text(
        "import importlib, os\nimportlib.import_module(os.environ['TFOD_CVAT_BASE_SETTINGS'])\n"
    )
    shutil.copy(DOCKER / "enable.sh", release)
    (tmp_path / "volume/current").symlink_to("releases/tfod-1")
    return tmp_path / "volume"


@pytest.fixture
def cvat(tmp_path: Path) -> Path:
    """A folder with the settings of CVAT and of an administrator."""
    settings = [f"cvat/{name}.py" for name in ("__init__", "settings/__init__")]
    return write(tmp_path / "home", *settings, "cvat/settings/production.py", "ldap_settings.py")


def start(script: Path, cvat: Path, **environment: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables after the script, and the lines that it printed."""
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
    """Write the script that docker-compose.tfrecord.yml adds to the container."""
    script = folder / "tfod.sh"
    script.write_text(COMPOSE["configs"]["tfod"]["content"].replace("/opt/tfod", str(volume)))
    return script


def by_image(volume: Path, folder: Path) -> Path:
    """Make the link that the stage `server` of the Dockerfile has."""
    script = folder / "tfod.sh"
    script.symlink_to(volume / "current/enable.sh")
    return script


@pytest.mark.parametrize(
    ("given", "base"),
    [
        (IMAGE, "cvat.settings.production"),
        ({}, "cvat.settings.production"),
        ({"DJANGO_SETTINGS_MODULE": "ldap_settings"}, "ldap_settings"),
        ({**IMAGE, "TFOD_CVAT_BASE_SETTINGS": "ldap_settings"}, "ldap_settings"),
        ({"DJANGO_SETTINGS_MODULE": OURS}, "cvat.settings.production"),
    ],
)
@pytest.mark.parametrize(("way", "path"), [(by_compose, "/coverage"), (by_image, "")])
def test_variables_name_the_release_and_the_settings_of_the_owner(
    way: Way, path: str, given: dict[str, str], base: str, volume: Path, cvat: Path, tmp_path: Path
) -> None:
    more = {"PYTHONPATH": path} if path else {}
    variables, (line,) = start(way(volume, tmp_path), cvat, **given, **more)
    release = str((volume / "current").resolve())
    expected = f"{release}:{path}" if path else release
    assert variables == {"settings": OURS, "base": base, "path": expected}
    assert release in line and base in line


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
def test_cvat_starts_without_tfod_if_tfod_is_broken(
    damage: Callable[[Path], str], volume: Path, cvat: Path, tmp_path: Path
) -> None:
    script = by_compose(volume, tmp_path)
    reason = damage(volume)
    variables, (output,) = start(script, cvat, **IMAGE)
    assert variables == {"settings": "cvat.settings.production", "base": "unset", "path": "unset"}
    assert output.startswith("tfod: no TFRecord formats: ") and reason in output


def test_cvat_starts_if_the_script_is_damaged(volume: Path, tmp_path: Path) -> None:
    (volume / "current/enable.sh").write_text("tfod_enable() {\n")
    command = ["bash", "-c", ENTRY_POINT, "entry", str(by_compose(volume, tmp_path))]
    environment = {"PATH": os.environ["PATH"], **IMAGE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert "settings=cvat.settings.production\n" in done.stdout
    assert "syntax error" in done.stderr

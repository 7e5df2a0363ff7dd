"""The wheel: what is in it, and that it works where it is installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path

import pytest
from tfod.version import __version__ as version

from tests.commands import require
from tests.conftest import CORPUS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_contents(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "tfod/__init__.py",
        "tfod/__init__.pyi",
        "tfod/py.typed",
        "tfod/datumaro/dataset_base.py",
        "tfod/label_maps/coco.pbtxt",
        "tfod_validator/examples/shapes_good.zip",
        "tfod_validator/examples/shapes_broken.zip",
        "tfod/cli/main.py",
        "tfod/checker/profiles/profile.schema.json",
        "_tfod_import_hook.py",
        "_tfod_startup.py",
        "tfod_datumaro.pth",
        "tfod_datumaro.start",
    } <= names
    assert not [name for name in names if name.startswith(("tests", "examples", "benchmarks"))]
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    required = [
        line.partition(": ")[2]
        for line in text.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert required == ["google-crc32c>=1.5.0", "numpy>=1.22.4", "protobuf>=3.19.6"]


def test_the_index_page_has_absolute_links(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    message = message_from_string(zipfile.ZipFile(wheel).read(metadata).decode())
    urls = dict(url.split(", ") for url in message.get_all("Project-URL", []))
    assert urls.keys() == {"Source", "Issues", "Documentation", "Changelog", "Security"}
    below = re.compile(rf"{re.escape(urls['Source'])}/(?:blob|raw)/v{re.escape(version)}/(.+)")
    targets = re.findall(r"\]\(([^)]+)\)", message.get_payload())
    assert len(targets) > 20 and not [one for one in targets if not one.startswith("https://")]
    found = filter(None, map(below.match, (*targets, *urls.values())))
    paths = [match[1].partition("#")[0] for match in found]
    assert len(paths) > 20 and all((ROOT / path).exists() for path in paths)
    assert sum(urls["Source"].removeprefix("https://") in text for text in addresses()) == 1


def addresses() -> Iterator[str]:
    """The texts of the files that Git knows, but for the changelog."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and name != "CHANGELOG.md" and (ROOT / name).is_file():
            yield (ROOT / name).read_text("utf-8", "replace")


def test_an_installed_copy_finds_its_label_maps_and_activates(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys, os, site; sys.path.insert(0, {str(tmp_path)!r});"
        # The environment's own .pth file imported it, with the hook turned off.
        "os.environ['TFOD_ACTIVATE'] = '1'; sys.modules.pop('_tfod_startup', None);"
        f"site.addsitedir({str(tmp_path)!r});"
        "import tfod; print(tfod.__file__, tfod.packaged_label_maps(),"
        "[type(f).__module__ for f in sys.meta_path][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TFOD_ACTIVATE": "0", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert "'coco'" in done.stdout and "_tfod_import_hook" in done.stdout


def installed(wheel: Path, folder: Path, *source: str) -> Path:
    """The command of an environment that has the wheel; what it needs is the one's that runs."""
    venv.create(folder)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run(
        [*command, "--no-index", "--no-compile", *(source or [str(wheel)])],
        check=True,
        capture_output=True,
    )
    return folder / "bin" / "tfod"


def output_of(*command: str | Path) -> str:
    environment = {"PATH": "", "TFOD_ACTIVATE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_wheel_has_the_compiled_kernel(wheel: Path, tmp_path: Path) -> None:
    """It is of this platform, of any Python 3, and reads."""
    require("a cargo that runs", _cargo_runs())
    assert wheel.name.startswith("tfod-") and "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    tfod = installed(wheel, tmp_path / "environment")
    assert output_of(tfod, "--version").endswith(" (compiled kernel)\n")
    shard = CORPUS / "blood-cells" / "test.record"
    assert output_of(tfod, "describe", shard).startswith("1 shard, ")


@pytest.mark.parametrize(
    ("from_index", "advice"),
    [(True, "pip install 'tfod[torch]'"), (False, "pip install '.[torch]' in a clone of tfod")],
)
def test_an_extra_is_installed_from_where_tfod_is_from(
    from_index: bool, advice: str, wheel: Path, tmp_path: Path
) -> None:
    index = ("--ignore-installed", "--find-links", str(wheel.parent), "tfod")
    source = index if from_index else ()
    python = installed(wheel, tmp_path / "environment", *source).with_name("python")
    code = "from tfod.errors import how_to_install; print(how_to_install('torch'))"
    assert output_of(python, "-c", code) == f"{advice}\n"


def _cargo_runs() -> bool:
    """There may be one that cannot: rustup's, without a toolchain."""
    cargo = shutil.which("cargo")
    return cargo is not None and not subprocess.run([cargo, "--version"], check=False).returncode


@pytest.mark.parametrize("said", ["no cargo", "error: no toolchain"])
def test_without_cargo_it_installs_and_says_so_once(tmp_path: Path, said: str) -> None:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    programs = tmp_path / "programs"
    programs.mkdir()
    if said != "no cargo":
        cargo = programs / "cargo"
        cargo.write_text(f"#!{shutil.which('sh')}\necho '{said}' >&2\nexit 1\n")
        cargo.chmod(0o755)
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-w", str(tmp_path), str(ROOT)],
        env={**os.environ, "PATH": str(programs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    output = [line.strip() for line in done.stdout.splitlines() if "the kernel is" in line]
    assert output == [f"tfod: the kernel is not compiled ({said}): slower, same results"]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    tfod = installed(wheel, tmp_path / "environment")
    slower = "(Python kernel, slower: not compiled when tfod was installed)"
    assert output_of(tfod, "--version").endswith(f" {slower}\n")


def test_uvx_runs_it_from_a_clone(tmp_path: Path) -> None:
    """As docs/install.md types it."""
    uvx = Path(sys.executable).with_name("uvx")
    require("uvx", uvx.exists())
    (line,) = (
        line.removeprefix("$ ")
        for line in (ROOT / "docs" / "install.md").read_text("utf-8").splitlines()
        if line.startswith("$ uvx ")
    )
    environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path), "PATH": f"{uvx.parent}:/usr/bin"}
    done = subprocess.run(
        shlex.split(line), cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("VALID: 0 errors, 0 warnings, 0 infos\n")

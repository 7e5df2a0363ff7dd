"""The contents of the wheel, and an installed copy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from tfod.version import __version__ as version

from tests.commands import require, run_command
from tests.conftest import CORPUS

ROOT = Path(__file__).parents[1]


def output_of(*command: object, **environment: str) -> str:
    """Return the output of a program that does not find this clone."""
    changes = {"PATH": "", "TFOD_ACTIVATE": "0", "PYTHONPATH": "", **environment}
    done = run_command(*command, folder=ROOT, **changes)
    return done.out + done.succeeded()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    output_of(sys.executable, *build, **os.environ)
    return next(folder.glob("*.whl"))


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        return message_from_bytes(archive.read(name))


def test_contents(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, files in {
        "": "_tfod_import_hook.py _tfod_startup.py tfod_datumaro.pth tfod_datumaro.start",
        "tfod/": "__init__.py __init__.pyi py.typed datumaro/dataset_base.py cli/main.py "
        "label_maps/coco.pbtxt checker/profiles/profile.schema.json",
        "tfod_validator/examples/": "shapes_good.zip shapes_broken.zip",
    }.items():
        assert {f"{folder}{name}" for name in files.split()} <= names
    assert not [name for name in names if name.startswith(("tests", "examples", "benchmarks"))]
    required = metadata_of(wheel).get_all("Requires-Dist", [])
    assert [each for each in required if "extra ==" not in each] == [
        *("google-crc32c>=1.5.0", "numpy>=1.22.4", "protobuf>=3.19.6")
    ]


def test_the_index_page_has_absolute_links(wheel: Path) -> None:
    message = metadata_of(wheel)
    urls = dict(url.split(", ") for url in message.get_all("Project-URL", []))
    assert urls.keys() == {"Source", "Issues", "Documentation", "Changelog", "Security"}
    below = re.compile(rf"{re.escape(urls['Source'])}/(?:blob|raw)/v{re.escape(version)}/(.+)")
    targets = re.findall(r"\]\(([^)]+)\)", str(message.get_payload()))
    assert len(targets) > 20 and all(target.startswith("https://") for target in targets)
    found = filter(None, map(below.match, (*targets, *urls.values())))
    paths = [match[1].partition("#")[0] for match in found]
    assert len(paths) > 20 and all((ROOT / path).exists() for path in paths)
    # One file of the repository has the address, besides the changelog.
    address = urls["Source"].removeprefix("https://")
    names = output_of("git", "ls-files", "-z", **os.environ).split("\0")
    files = [ROOT / name for name in names if name and name != "CHANGELOG.md"]
    assert (
        sum(address in path.read_text("utf-8", "replace") for path in files if path.exists()) == 1
    )


def test_an_installed_copy_finds_its_label_maps_and_activates(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys, os, site; sys.path.insert(0, {str(tmp_path)!r});"
        # The .pth file of this environment imported it, without the hook.
        "os.environ['TFOD_ACTIVATE'] = '1'; sys.modules.pop('_tfod_startup', None);"
        f"site.addsitedir({str(tmp_path)!r});"
        "import tfod; print(tfod.__file__, tfod.packaged_label_maps(),"
        "[type(f).__module__ for f in sys.meta_path][0])"
    )
    printed = output_of(sys.executable, "-c", code)
    assert printed.startswith(str(tmp_path))
    assert "'coco'" in printed and "_tfod_import_hook" in printed


def installed(folder: Path, *source: object) -> Path:
    """Install the wheel in a new environment with links to this one, and return its command."""
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    output_of(*pip, "--no-deps", "--no-index", "--no-compile", *source, **os.environ)
    return folder / "bin" / "tfod"


def test_the_wheel_has_the_compiled_kernel(wheel: Path, tmp_path: Path) -> None:
    """The wheel is for this platform and any Python 3."""
    cargo = shutil.which("cargo")  # rustup's does not run without a toolchain
    require("a cargo that runs", bool(cargo) and not run_command(cargo, "--version").code)
    assert wheel.name.startswith("tfod-") and "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    tfod = installed(tmp_path / "environment", wheel)
    assert output_of(tfod, "--version").endswith(" (compiled kernel)\n")
    shard = CORPUS / "blood-cells" / "test.record"
    assert output_of(tfod, "describe", shard).startswith("1 shard, ")


def test_the_advice_for_an_extra_depends_on_the_source(wheel: Path, tmp_path: Path) -> None:
    """An extra is installed from the index or the clone, like tfod."""
    code = "from tfod.errors import how_to_install; print(how_to_install('torch'))"
    index = ("--ignore-installed", "--find-links", wheel.parent, "tfod")
    for number, (source, advice) in enumerate(
        (
            (index, "pip install 'tfod[torch]'"),
            ((wheel,), "pip install '.[torch]' in a clone of tfod"),
        )
    ):
        python = installed(tmp_path / str(number), *source).with_name("python")
        assert output_of(python, "-c", code) == f"{advice}\n"


@pytest.mark.parametrize("reason", ["no cargo", "error: no toolchain"])
def test_an_installation_without_cargo_warns_once(tmp_path: Path, reason: str) -> None:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    programs = tmp_path / "programs"
    programs.mkdir()
    if reason != "no cargo":
        cargo = programs / "cargo"
        cargo.write_text(f"#!{shutil.which('sh')}\necho '{reason}' >&2\nexit 1\n")
        cargo.chmod(0o755)
    options = ("-v", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT)
    environment = {**os.environ, "PATH": str(programs)}
    output = output_of(sys.executable, "-m", "pip", "wheel", *options, **environment)
    warnings = [line.strip() for line in output.splitlines() if "the kernel is" in line]
    assert warnings == [f"tfod: the kernel is not compiled ({reason}): slower, same results"]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    tfod = installed(tmp_path / "environment", wheel)
    slower = "(Python kernel, slower: not compiled when tfod was installed)"
    assert output_of(tfod, "--version").endswith(f" {slower}\n")


def test_uvx_runs_it_from_a_clone(tmp_path: Path) -> None:
    """The command of docs/install.md."""
    uvx = Path(sys.executable).with_name("uvx")
    require("uvx", uvx.exists())
    lines = (ROOT / "docs" / "install.md").read_text("utf-8").splitlines()
    (line,) = (line.removeprefix("$ ") for line in lines if line.startswith("$ uvx "))
    environment = {"UV_CACHE_DIR": str(tmp_path), "PATH": f"{uvx.parent}:/usr/bin"}
    printed = output_of(*shlex.split(line), **os.environ | environment)
    assert "VALID: 0 errors, 0 warnings, 0 infos\n" in printed

"""The package of docker/cvat/Dockerfile, next to only the packages of CVAT's images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cvat.docker.pinned import PINNED

ROOT = Path(__file__).parents[3]
MAX_BYTES = 3_400_000
# Writes and reads an example, which uses the compiled code of NumPy and of the checksums.
PROGRAM = """
import sys, google_crc32c, tfod, tfod.cvat, tfod.sources.resolver
example = tfod.encode_example({"image/width": tfod.int64_feature([7])})
(shard,) = tfod.write_records(sys.argv[1], "train", [example])
(read,) = tfod.read_examples(shard)
label_map, *_ = tfod.parse_label_map("item { id: 1 name: 'cat' }")
print(tfod.__file__, list(read), len(label_map.items), google_crc32c.implementation)
print(*sorted(sys.modules))
"""


def pip(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")  # in a fifth of pip's time
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps"]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    folder = tmp_path_factory.mktemp("package")
    pip("--no-build-isolation", "--target", str(folder), str(ROOT))
    return folder


def test_it_is_small_and_contains_only_the_program(package: Path) -> None:
    files = [path.relative_to(package) for path in package.rglob("*") if path.is_file()]
    assert sum((package / one).stat().st_size for one in files) < MAX_BYTES
    first = {one.parts[0] for one in files}
    assert {"tfod", "tfod_validator", "_tfod_import_hook.py"} <= first
    assert not first & {"tests", "docs", "examples", "benchmarks", "numpy", "google"}
    assert Path("tfod/cvat/django_settings.py") in files
    assert any(one.match("tfod-*.dist-info/METADATA") for one in files)


# tests/lowest.txt has the lower bounds of the first release, too.
@pytest.mark.parametrize("release", PINNED)
def test_it_runs_with_the_packages_of_the_image(
    release: str, package: Path, tmp_path: Path
) -> None:
    version, *pinned = PINNED[release]
    python = interpreter(version)
    libraries = tmp_path / "libraries"
    try:
        only = ("--only-binary", ":all:", "--python-version", version)
        pip(*only, "--target", str(libraries), *pinned)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no {', '.join(pinned)} on this machine: {error.stderr.decode()[-200:]}")
    path = os.pathsep.join(map(str, (package, libraries)))
    # Without `site`, the path has only these two folders and the standard library.
    done = subprocess.run(
        [python, "-S", "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, modules = done.stdout.splitlines()
    assert first == f"{package}/tfod/__init__.py ['image/width'] 1 c"
    assert not {"datumaro", "django", "lxml", "PIL"} & set(modules.split())


def interpreter(version: str) -> str:
    done = subprocess.run([ROOT / "tests/find_python", version], capture_output=True, text=True)
    if done.returncode or not shutil.which(done.stdout.strip()):
        pytest.skip(f"no Python {version} on this machine")
    return done.stdout.strip()

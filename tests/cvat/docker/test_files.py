"""The Dockerfile, the scripts, the values for Helm and the page that says how they are used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docker/cvat"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.tfrecord.yaml").read_text("utf-8"))
PAGE = (ROOT / "docs/cvat-install.md").read_text(encoding="utf-8")

# Keys of `cvat.backend` that the templates of CVAT's chart read for every pod of the backend, the
# initializer's included: 2.11, 2.15 and 2.73. There is none for further init containers.
CHART_KEYS = {
    "image": str,
    "tag": str,
    "imagePullPolicy": str,
    "additionalEnv": list,
    "additionalVolumes": list,
    "additionalVolumeMounts": list,
}


def test_what_the_dockerfile_copies_is_sent_to_the_builder() -> None:
    rules = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    common = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    own = {"!docker/cvat/enable.sh", "!docker/cvat/install.py"}
    assert {rule for rule in rules if rule[0] != "#"} == own | {
        rule for rule in common if rule and rule[0] != "#"
    } - {"!docker/constraints.txt"}  # of the service
    named = set(re.findall(r"docker/cvat/[\w.]+", DOCKERFILE)) - {"docker/cvat/Dockerfile"}
    assert {"!" + one for one in named} == own
    assert all((ROOT / one).is_file() for one in named)


@pytest.mark.parametrize("name", ["try", "enable.sh"])
def test_scripts_are_sound(name: str) -> None:
    subprocess.run(["bash", "-n", str(FOLDER / name)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "--shell=bash", str(FOLDER / name)], check=True)
    assert os.access(FOLDER / name, os.X_OK) == (name == "try")


def test_values_are_keys_that_the_chart_reads() -> None:
    assert set(VALUES) == {"cvat"} and set(VALUES["cvat"]) == {"backend"}
    backend = VALUES["cvat"]["backend"]
    assert set(backend) <= set(CHART_KEYS)
    assert all(isinstance(value, CHART_KEYS[key]) for key, value in backend.items())
    options = {one["name"]: one["value"] for one in backend["additionalEnv"]}
    assert options == {"TFOD_CVAT_EMPTY_FRAMES": "keep", "TFOD_CVAT_OTHER_FRAMES": "refuse"}
    assert f"{backend['image']}:{backend['tag']}" in PAGE


def test_the_page_names_what_is_there() -> None:
    for path in re.findall(r"docker/cvat/([\w.-]+)", PAGE):
        assert (FOLDER / path).exists(), path
    compose = (FOLDER / "docker-compose.tfrecord.yml").read_text(encoding="utf-8")
    variables = set(re.findall(r"\bTFOD_\w+", PAGE))
    options = {f"TFOD_CVAT_{one}" for one in ("EMPTY_FRAMES", "LABEL_MAPS", "OTHER_FRAMES")}
    assert variables == {"TFOD_SOURCE", *options}
    assert all(one in compose for one in variables)

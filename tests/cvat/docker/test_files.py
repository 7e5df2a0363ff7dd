"""The Compose file with CVAT's own, the Dockerfile, the scripts, the values for Helm, the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import schema_errors

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docker/cvat"
DOCKERFILE = (FOLDER / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs/cvat-install.md").read_text("utf-8")
COMPOSE = (FOLDER / "docker-compose.tfrecord.yml").read_text("utf-8")
OURS: dict[str, Any] = yaml.safe_load(COMPOSE)
SERVICES: dict[str, Any] = OURS["services"]
DOUBLES = [
    yaml.safe_load(path.read_text("utf-8"))["services"]
    for path in (Path(__file__).parent / "cvat").glob("compose-*.yml")
]
OPTIONS = {f"TFOD_CVAT_{name}" for name in ("EMPTY_FRAMES", "LABEL_MAPS", "OTHER_FRAMES")}

# Keys of `cvat.backend` that the chart of CVAT 2.11, 2.15 and 2.73 reads for every pod of the
# backend and for the initializer. No key adds init containers.
CHART_KEYS = {
    "image": str,
    "tag": str,
    "imagePullPolicy": str,
    "additionalEnv": list,
    "additionalVolumes": list,
    "additionalVolumeMounts": list,
}


def test_compose_schema() -> None:
    assert schema_errors("compose-spec", FOLDER / "docker-compose.tfrecord.yml") == ""


def test_compose_declares_what_it_uses() -> None:
    for service in SERVICES.values():
        assert {one.partition(":")[0] for one in service["volumes"]} == set(OURS["volumes"])
        assert {one["source"] for one in service.get("configs", [])} <= set(OURS["configs"])
        assert set(service.get("depends_on", {})) <= set(SERVICES)
    assert len(DOUBLES) == 2
    assert set(SERVICES) - set.intersection(*map(set, DOUBLES)) == {"tfod"}


def test_compose_replaces_no_setting_of_cvat_and_its_owner() -> None:
    """Compose merges these four by variable, target and service. It replaces all others.

    CVAT's guide to LDAP sets DJANGO_SETTINGS_MODULE in an override file.
    """
    assert OURS.keys() == {"x-tfod", "services", "volumes", "configs"}
    for name in ("cvat_server", "cvat_worker_import", "cvat_worker_export"):
        service = SERVICES[name]
        assert service.keys() == {"environment", "volumes", "configs", "depends_on"}
        assert service["environment"] == dict.fromkeys(OPTIONS)
        waits = {"condition": "service_completed_successfully", "required": False}
        assert service["depends_on"] == {"tfod": waits}
        for services in DOUBLES:
            assert not re.search("/opt/tfod|/etc/cvat/init.d", str(services[name]))


def test_the_installer_has_no_rights() -> None:
    assert (
        SERVICES["tfod"].items()
        >= {
            "read_only": True,
            "cap_drop": ["ALL"],
            "network_mode": "none",
            "security_opt": ["no-new-privileges:true"],
        }.items()
    )
    assert "restart" not in SERVICES["tfod"]


def test_compose_has_no_relative_path() -> None:
    """Compose resolves paths of the second file in CVAT's folder."""
    assert SERVICES["tfod"]["build"]["context"].startswith("${TFOD_SOURCE:?")
    assert not re.search(r"""[\s"'\[]\.{1,2}/""", COMPOSE)


def test_the_builder_gets_the_files_of_the_dockerfile() -> None:
    def rules(path: Path) -> set[str]:
        return {line for line in path.read_text("utf-8").splitlines() if line and line[0] != "#"}

    own = {"!docker/cvat/enable.sh", "!docker/cvat/install.py"}
    common = rules(ROOT / ".dockerignore") - {"!docker/constraints.txt"}  # only for the service
    assert rules(FOLDER / "Dockerfile.dockerignore") == own | common
    copied = set(re.findall(r"docker/cvat/[\w.]+", DOCKERFILE)) - {"docker/cvat/Dockerfile"}
    assert {f"!{name}" for name in copied} == own
    assert all((ROOT / name).is_file() for name in copied)


@pytest.mark.parametrize("name", ["try", "enable.sh"])
def test_syntax_of_scripts(name: str) -> None:
    subprocess.run(["bash", "-n", str(FOLDER / name)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", "--shell=bash", str(FOLDER / name)], check=True)
    assert os.access(FOLDER / name, os.X_OK) == (name == "try")


def test_the_chart_reads_all_keys_of_the_values() -> None:
    values = yaml.safe_load((FOLDER / "values.tfrecord.yaml").read_text("utf-8"))
    backend = values["cvat"]["backend"]
    assert (list(values), list(values["cvat"])) == (["cvat"], ["backend"])
    assert set(backend) <= set(CHART_KEYS)
    assert all(isinstance(value, CHART_KEYS[key]) for key, value in backend.items())
    options = {one["name"]: one["value"] for one in backend["additionalEnv"]}
    assert options == {"TFOD_CVAT_EMPTY_FRAMES": "keep", "TFOD_CVAT_OTHER_FRAMES": "refuse"}
    assert f"{backend['image']}:{backend['tag']}" in PAGE


def test_names_on_the_page_exist() -> None:
    for path in re.findall(r"docker/cvat/([\w.-]+)", PAGE):
        assert (FOLDER / path).exists(), path
    variables = set(re.findall(r"\bTFOD_\w+", PAGE))
    assert variables == {"TFOD_SOURCE", *OPTIONS}
    assert all(name in COMPOSE for name in variables)

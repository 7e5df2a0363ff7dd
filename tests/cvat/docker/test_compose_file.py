"""docker-compose.tfrecord.yml, by itself and with CVAT's own file of several versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("check_jsonschema")

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docker/cvat/docker-compose.tfrecord.yml"
OURS: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
DOUBLES = sorted((Path(__file__).parent / "cvat").glob("compose-*.yml"))
CVAT_SERVICES = ("cvat_server", "cvat_worker_import", "cvat_worker_export")


def read_yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(FILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_is_named_is_declared() -> None:
    for service in OURS["services"].values():
        assert {one.partition(":")[0] for one in service["volumes"]} == set(OURS["volumes"])
        assert {one["source"] for one in service.get("configs", [])} <= set(OURS["configs"])
        assert set(service.get("depends_on", {})) <= set(OURS["services"])


def test_every_cvat_has_the_services_that_are_named() -> None:
    common = set.intersection(*(set(read_yaml(path)["services"]) for path in DOUBLES))
    assert set(OURS["services"]) - common == {"tfod"}
    assert len(DOUBLES) == 2


def test_what_cvat_and_its_owner_have_stays() -> None:
    """Compose adds to these four by variable, target and service; all else it would replace.

    CVAT's guide to LDAP sets DJANGO_SETTINGS_MODULE in an override of its own.
    """
    assert OURS.keys() == {"x-tfod", "services", "volumes", "configs"}
    for name in CVAT_SERVICES:
        service = OURS["services"][name]
        assert service.keys() == {"environment", "volumes", "configs", "depends_on"}
        assert service["environment"] == dict.fromkeys(
            ("TFOD_CVAT_EMPTY_FRAMES", "TFOD_CVAT_LABEL_MAPS", "TFOD_CVAT_OTHER_FRAMES")
        )
        waits = {"condition": "service_completed_successfully", "required": False}
        assert service["depends_on"] == {"tfod": waits}
        there = [str(read_yaml(path)["services"][name]) for path in DOUBLES]
        assert not any("/opt/tfod" in one or "/etc/cvat/init.d" in one for one in there)


def test_installer_may_do_little() -> None:
    service = OURS["services"]["tfod"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["network_mode"] == "none"
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "restart" not in service


def test_no_path_depends_on_the_folder_of_the_first_file() -> None:
    """A relative path of the second file would be one of CVAT's folder."""
    assert OURS["services"]["tfod"]["build"]["context"].startswith("${TFOD_SOURCE:?")
    assert not re.search(r"""[\s"'\[]\.{1,2}/""", FILE.read_text(encoding="utf-8"))

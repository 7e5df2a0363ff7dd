"""docker-compose.tfrecord.yml, by itself and with CVAT's own file of several versions."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cvat.docker.compose_merge import merge, merge_service

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


@pytest.mark.parametrize("path", DOUBLES, ids=lambda path: path.stem)
def test_merged_services_are_those_of_cvat_and_more(path: Path) -> None:
    cvat = read_yaml(path)
    merged = merge(cvat, OURS)
    assert merged.get("name") == cvat.get("name")
    for name in CVAT_SERVICES:
        before, after = merge_service(cvat["services"][name], {}), merged["services"][name]
        assert after.pop("configs") == {"/etc/cvat/init.d/tfod.sh": "tfod"}
        assert after["volumes"].pop("/opt/tfod") == ("tfod", "ro")
        assert after["environment"].pop("TFOD_CVAT_EMPTY_FRAMES", "absent") is None
        waits = after["depends_on"].pop("tfod")
        assert waits == {"condition": "service_completed_successfully", "required": False}
        assert after == before
    untouched = set(cvat["services"]) - set(CVAT_SERVICES)
    assert all(merged["services"][name] == cvat["services"][name] for name in untouched)
    assert merged["volumes"] == {**cvat["volumes"], "tfod": None}


def test_settings_that_somebody_chose_stay() -> None:
    """CVAT's guide to LDAP sets this variable in an override; the file must not take its place."""
    ldap = {"services": {"cvat_server": {"environment": ["DJANGO_SETTINGS_MODULE=settings"]}}}
    for files in ([ldap, OURS], [OURS, ldap]):
        project = read_yaml(DOUBLES[0])
        for one in files:
            project = merge(project, one)
        environment = project["services"]["cvat_server"]["environment"]
        assert environment["DJANGO_SETTINGS_MODULE"] == "settings"
        assert "PYTHONPATH" not in environment


def test_installer_may_do_little() -> None:
    service = OURS["services"]["tfod"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["network_mode"] == "none"
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "restart" not in service


def test_no_path_depends_on_the_folder_of_the_first_file() -> None:
    """A relative path of the second file would be one of CVAT's folder."""
    assert OURS["services"]["tfod"]["build"]["context"].startswith("${TFOD_SOURCE:-https://")
    assert not re.search(r"""[\s"'\[]\.{1,2}/""", FILE.read_text(encoding="utf-8"))

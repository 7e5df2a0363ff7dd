"""What can be said of the container's files without an engine; docker/try builds and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/validator/Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCALED = {"nginx", "web", "worker", "postgres"}
OURS = {"validator", "web", "worker"}


def instructions(name: str) -> list[str]:
    """What stands behind an instruction of the Dockerfile, in order, lines joined."""
    joined = re.sub(r"\\\n(\s*#.*\n)*\s*", "", DOCKERFILE)
    return re.findall(rf"^{name}\s+(.+)$", joined, re.MULTILINE)


def default_of(text: str) -> str:
    """A text of compose.yml when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def tag_of(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[2]


def test_the_last_stage_runs_as_a_user_by_number() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    (user,) = re.findall(r"^USER (.+)$", last, re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert last.index("USER") < last.index("ENTRYPOINT")


def test_all_stages_are_of_one_pinned_base() -> None:
    assert [line.split()[0] for line in instructions("FROM")] == ["${BASE}"] * 3
    (base,) = instructions("ARG")
    assert re.fullmatch(r"3\.1[0-3]-slim-\w+", tag_of(base))


def test_image_serves_and_says_whether_it_does() -> None:
    assert instructions("ENTRYPOINT") == ['["tfod"]']
    assert instructions("CMD") == ['["serve", "--host", "0.0.0.0", "--data", "/data"]']
    (health,) = instructions("HEALTHCHECK")
    assert "CMD [" in health and "http://127.0.0.1:8080/healthz" in health
    assert instructions("EXPOSE") == ["8080"]
    assert instructions("VOLUME") == ["/data"]


def test_context_is_what_the_wheel_is_built_from() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    assert all((ROOT / one).exists() for one in sent)
    examples = {f"examples/shapes_{name}.zip" for name in ("good", "broken")}
    named = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    named |= {"plugin", "validator", "label_maps"}
    assert sent == named | examples


def test_profile_scale_adds_servers_and_workers_to_the_service_alone() -> None:
    assert {name for name, one in SERVICES.items() if not one.get("profiles")} == {"validator"}
    assert {name for name, one in SERVICES.items() if one.get("profiles") == ["scale"]} == SCALED
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    for name in ("web", "worker"):
        waits_for = SERVICES[name]["depends_on"]
        assert set(waits_for) == {"postgres"}
        assert all(one == {"condition": "service_healthy"} for one in waits_for.values())
        assert "TFOD_DATABASE_URL" in SERVICES[name]["environment"]


@pytest.mark.parametrize("name", SERVICES)
def test_containers_may_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["pids_limit"]
    assert service["restart"] == "unless-stopped"
    assert "cap_add" not in service or name not in OURS


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    tag = default_of(tag_of(SERVICES[name]["image"]))
    assert tag == "local" if name in OURS else re.match(r"\d", tag)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(one.startswith("127.0.0.1:") for one in ports)
    assert not ports or name in ("validator", "nginx")


def test_single_container_and_profile_can_run_side_by_side() -> None:
    ports = [default_of(one) for name in SERVICES for one in SERVICES[name].get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080"]
    assert SERVICES["validator"]["volumes"] != SERVICES["web"]["volumes"]
    assert SERVICES["web"]["volumes"] == SERVICES["worker"]["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_health_is_checked_wherever_something_listens(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check == {"disable": True} if name == "worker" else check["test"][0] == "CMD"
    if name in ("validator", "web"):
        (of_image,) = instructions("HEALTHCHECK")
        assert check["test"][-1] in of_image


def test_what_services_name_is_declared() -> None:
    def named(key: str) -> set[str]:
        return {
            one.partition(":")[0]
            for service in SERVICES.values()
            for one in service.get(key, [])
            if not one.startswith("./")
        }

    assert named("volumes") == set(COMPOSE["volumes"])
    assert named("secrets") == set(COMPOSE["secrets"])
    assert named("networks") - {"default"} == set(COMPOSE["networks"])
    assert COMPOSE["networks"]["servers"] == {"internal": True}


@pytest.mark.parametrize("name", ["validator", "web", "worker"])
def test_commands_are_of_tfod(name: str) -> None:
    from tfod.cli.arguments import build_parser

    default = ["serve", "--host", "0.0.0.0", "--data", "/data"]
    options = build_parser("serve").parse_args(SERVICES[name].get("command", default))
    assert str(options.data) == "/data"


@pytest.mark.parametrize("name", ["try", "as_container"])
def test_scripts_are_sound(name: str) -> None:
    path = ROOT / "docker" / name
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", str(path)], check=True)

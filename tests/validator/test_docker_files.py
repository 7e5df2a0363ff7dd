"""What can be said of the container's files without an engine; docker/try builds and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tfod.cli.arguments import build_parser

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/validator/Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker/compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {"validator", "web", "worker"}


def instructions(name: str) -> list[str]:
    """What stands behind an instruction of the Dockerfile, in order, lines joined."""
    joined = re.sub(r"\\\n(\s*#.*\n)*\s*", "", DOCKERFILE)
    return re.findall(rf"^{name}\s+(.+)$", joined, re.MULTILINE)


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


def test_context_is_what_the_wheel_is_built_from() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    assert all((ROOT / one).exists() for one in sent)
    examples = {f"examples/shapes_{name}.zip" for name in ("good", "broken")}
    named = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"}
    named |= {"plugin", "validator", "label_maps"}
    named |= {"docker/constraints.txt", "docker/build-constraints.txt"}
    assert sent == named | examples


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_of_compose(name: str) -> None:
    """A container may do little, listens to this machine only, and its health is checked."""
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["pids_limit"]
    assert service["restart"] == "unless-stopped"
    tag = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", tag_of(service["image"]))  # when no variable is set
    assert tag == "local" if name in OURS else re.match(r"\d", tag)
    ports = service.get("ports", [])
    assert all(one.startswith("127.0.0.1:") for one in ports)
    assert not ports or name in ("validator", "nginx")
    check = service["healthcheck"]
    assert check == {"disable": True} if name == "worker" else check["test"][0] == "CMD"
    if name in ("validator", "web"):
        (of_image,) = instructions("HEALTHCHECK")
        assert check["test"][-1] in of_image
    if name in OURS:
        assert "cap_add" not in service
        default = ["serve", "--host", "0.0.0.0", "--data", "/data"]
        options = build_parser("serve").parse_args(service.get("command", default))
        assert str(options.data) == "/data"


@pytest.mark.parametrize("name", ["try", "as_container"])
def test_scripts_are_sound(name: str) -> None:
    path = ROOT / "docker" / name
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", str(path)], check=True)

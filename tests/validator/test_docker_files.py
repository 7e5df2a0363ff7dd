"""What can be said of the container's files without an engine; docker/try builds and runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tfod.cli.arguments import build_parser

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/validator/Dockerfile").read_text(encoding="utf-8")
COMPOSE_FILES = {name: ROOT / "docker" / name for name in ("compose.yml", "compose.scale.yml")}
BASE = ROOT / "docker" / "compose.base.yml"
OURS = {"validator", "web", "worker"}
VARIABLE = re.compile(r"\$\{(\w+)([^}]*)\}")


def services_of(path: Path) -> dict[str, dict[str, Any]]:
    """The services of a Compose file; each has what it extends in the base."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    if path == BASE:
        return found
    base = services_of(BASE)
    extended = {name: service.pop("extends") for name, service in found.items()}
    assert {one["file"] for one in extended.values()} == {BASE.name}
    return {name: base[extended[name]["service"]] | service for name, service in found.items()}


SERVICES = {
    name: service for path in COMPOSE_FILES.values() for name, service in services_of(path).items()
}


def instructions(name: str) -> list[str]:
    """What stands behind an instruction of the Dockerfile, in order, lines joined."""
    joined = re.sub(r"\\\n(\s*#.*\n)*\s*", "", DOCKERFILE)
    return re.findall(rf"^{name}\s+(.+)$", joined, re.MULTILINE)


def tag_of(image: str) -> str:
    name = image.partition("@")[0]  # without the digest that `make pin` adds
    return name.rpartition("/")[2].partition(":")[2]


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
    tag = tag_of(service["image"])
    assert tag == "${TFOD_VERSION:-local}" if name in OURS else re.match(r"\d", tag)
    ports = service.get("ports", [])
    assert all(one.startswith("127.0.0.1:") for one in ports)
    assert not ports or name in ("validator", "nginx")
    if name in ("validator", "web"):
        assert "healthcheck" not in service, "the image has one"
        assert len(instructions("HEALTHCHECK")) == 1
    else:
        check = service["healthcheck"]
        assert check == {"disable": True} if name == "worker" else check["test"][0] == "CMD"
    if name in OURS:
        assert "cap_add" not in service
        default = ["serve", "--host", "0.0.0.0", "--data", "/data"]
        options = build_parser("serve").parse_args(service.get("command", default))
        assert str(options.data) == "/data"


def variables_of(name: str) -> dict[str, set[str]]:
    """The variables in a Compose file and its base, with what stands behind their names."""
    found: dict[str, set[str]] = {}
    for path in (COMPOSE_FILES[name], BASE):
        for variable, rest in VARIABLE.findall(path.read_text(encoding="utf-8")):
            found.setdefault(variable, set()).add(rest[:2])
    return found


def test_one_container_needs_no_variables() -> None:
    assert set().union(*variables_of("compose.yml").values()) == {":-"}


def test_a_network_needs_secrets() -> None:
    """Compose refuses the file without them; none has a default."""
    variables = variables_of("compose.scale.yml")
    needed = {name for name, rest in variables.items() if rest == {":?"}}
    assert needed == {"TFOD_TOKEN", "TFOD_REDIS_PASSWORD"}
    assert all(rest == {":-"} for name, rest in variables.items() if name not in needed)
    settings = {name: SERVICES[name]["environment"] for name in ("web", "worker")}
    assert settings["web"]["TFOD_TOKEN"].startswith("${TFOD_TOKEN:?")
    assert all("${TFOD_REDIS_PASSWORD:?" in one["TFOD_QUEUE"] for one in settings.values())
    assert "${TFOD_REDIS_PASSWORD:?}" in SERVICES["redis"]["command"]


@pytest.mark.parametrize("path", [*COMPOSE_FILES.values(), BASE], ids=lambda path: path.name)
def test_compose_files_have_the_form_that_compose_wants(path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for service in document["services"].values():
        named = {one.partition(":")[0] for one in service.get("volumes", [])}
        assert {one for one in named if "/" not in one} <= set(document.get("volumes", {}))
        assert set(service.get("networks", [])) <= set(document.get("networks", {}))
        assert set(service.get("depends_on", {})) <= set(document["services"])


@pytest.mark.parametrize("name", ["try", "as_container"])
def test_scripts_are_sound(name: str) -> None:
    path = ROOT / "docker" / name
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-x", str(path)], check=True)

"""The files of the containers and their pinned packages; docker/try builds and runs them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tfod.cli.arguments import build_parser

from tests.commands import schema_errors

yaml = pytest.importorskip("yaml")
tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/validator/Dockerfile").read_text(encoding="utf-8")
COMPOSE_FILES = {name: ROOT / "docker" / name for name in ("compose.yml", "compose.scale.yml")}
BASE = ROOT / "docker" / "compose.base.yml"
OURS = {"validator", "web", "worker"}
VARIABLE = re.compile(r"\$\{(\w+)([^}]*)\}")


def services_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return the services of a Compose file, each with the service of the base that it extends."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    if path == BASE:
        return found
    base = services_of(BASE)
    extended = {name: service.pop("extends") for name, service in found.items()}
    assert {extension["file"] for extension in extended.values()} == {BASE.name}
    return {name: base[extended[name]["service"]] | service for name, service in found.items()}


SERVICES = {
    name: service for path in COMPOSE_FILES.values() for name, service in services_of(path).items()
}


def instructions(name: str) -> list[str]:
    """Return the arguments of an instruction of the Dockerfile, in order, with joined lines."""
    joined = re.sub(r"\\\n(\s*#.*\n)*\s*", "", DOCKERFILE)
    return re.findall(rf"^{name}\s+(.+)$", joined, re.MULTILINE)


def tag_of(image: str) -> str:
    name = image.partition("@")[0]  # without the digest that `make pin` adds
    return name.rpartition("/")[2].partition(":")[2]


def test_the_dockerfile_has_one_pinned_base_and_a_user_by_number() -> None:
    assert [line.split()[0] for line in instructions("FROM")] == ["${BASE}"] * 3
    (base,) = instructions("ARG")
    assert re.fullmatch(r"3\.1[0-3]-slim-\w+", tag_of(base))
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    (user,) = re.findall(r"^USER (.+)$", last, re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert last.index("USER") < last.index("ENTRYPOINT")


def test_the_context_has_only_the_sources_of_the_wheel() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {rule[1:] for rule in rules if rule.startswith("!")}
    assert all((ROOT / name).exists() for name in sent)
    names = "pyproject.toml hatch_build.py README.md LICENSE plugin validator label_maps"
    names += " docker/constraints.txt docker/build-constraints.txt"
    names += " examples/shapes_good.zip examples/shapes_broken.zip"
    assert sent == {*names.split()}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_of_compose(name: str) -> None:
    """A container has few rights, listens only to this machine, and its health is checked."""
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] and service["pids_limit"]
    assert service["restart"] == "unless-stopped"
    tag = tag_of(service["image"])
    assert tag == "${TFOD_VERSION:-local}" if name in OURS else re.match(r"\d", tag)
    ports = service.get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
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
    """Return the variables in a Compose file and its base, with the operators after their names."""
    found: dict[str, set[str]] = {}
    for path in (COMPOSE_FILES[name], BASE):
        for variable, rest in VARIABLE.findall(path.read_text(encoding="utf-8")):
            found.setdefault(variable, set()).add(rest[:2])
    return found


def test_only_a_network_needs_variables() -> None:
    """Compose refuses a file without its secrets, which have no defaults."""
    assert set().union(*variables_of("compose.yml").values()) == {":-"}
    variables = variables_of("compose.scale.yml")
    needed = {name for name, rest in variables.items() if rest == {":?"}}
    assert needed == {"TFOD_TOKEN", "TFOD_REDIS_PASSWORD"}
    assert all(rest == {":-"} for name, rest in variables.items() if name not in needed)
    settings = {name: SERVICES[name]["environment"] for name in ("web", "worker")}
    assert settings["web"]["TFOD_TOKEN"].startswith("${TFOD_TOKEN:?")
    assert all("${TFOD_REDIS_PASSWORD:?" in each["TFOD_QUEUE"] for each in settings.values())
    assert "${TFOD_REDIS_PASSWORD:?}" in SERVICES["redis"]["command"]


@pytest.mark.parametrize("path", [*COMPOSE_FILES.values(), BASE], ids=lambda path: path.name)
def test_compose_files_fit_the_schema_and_name_what_they_define(path: Path) -> None:
    assert schema_errors("compose-spec", path) == ""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for service in document["services"].values():
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", [])}
        assert {name for name in volumes if "/" not in name} <= set(document.get("volumes", {}))
        assert set(service.get("networks", [])) <= set(document.get("networks", {}))
        assert set(service.get("depends_on", {})) <= set(document["services"])


PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
CORE = PYPROJECT["project"]["dependencies"]
NEEDED = {
    "constraints.txt": [*CORE, *EXTRAS["validator"], *EXTRAS["scale"]],
    "build-constraints.txt": PYPROJECT["build-system"]["requires"],
}


def unpinned(requirements: Iterable[str], text: str, python: str) -> Iterator[str]:
    """Yield the requirements that no line pins to one version, with hashes, on this Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}

    def applies(requirement: Requirement) -> bool:
        return requirement.marker is None or requirement.marker.evaluate(environment)

    pins: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        pin, *hashes = re.split(r"\s+--hash=sha256:", line.rstrip())
        if hashes:
            requirement = Requirement(pin)
            (version,) = requirement.specifier
            if version.operator == "==" and applies(requirement):
                pins[canonicalize_name(requirement.name)] = version.version
    for each in requirements:
        requirement = Requirement(each)
        pinned = pins.get(canonicalize_name(requirement.name), "")
        if applies(requirement) and not (pinned and requirement.specifier.contains(pinned)):
            yield each


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.15"])
@pytest.mark.parametrize("name", NEEDED)
def test_the_packages_of_the_images_are_pinned(name: str, python: str) -> None:
    text = (ROOT / "docker" / name).read_text("utf-8")
    assert list(unpinned(NEEDED[name], text, python)) == [], "type: make constraints"


@pytest.mark.parametrize(
    ("line", "is_complete"),
    [
        ("Foo==2.1 \\\n    --hash=sha256:0a \\\n    --hash=sha256:0b\n", True),
        ("foo==2.1 ; python_full_version >= '3.11' \\\n    --hash=sha256:0a\n", True),
        ("foo==2.1 ; python_full_version < '3.11' \\\n    --hash=sha256:0a\n", False),
        ("foo==1.9 \\\n    --hash=sha256:0a\n", False),
        ("foo==2.1\n", False),
        ("foo>=2.1 \\\n    --hash=sha256:0a\n", False),
        ("bar==2.1 \\\n    --hash=sha256:0a\n", False),
    ],
)
def test_a_pin_has_one_valid_version_and_hashes(line: str, is_complete: bool) -> None:
    assert list(unpinned(["foo>=2"], line, "3.12")) == ([] if is_complete else ["foo>=2"])

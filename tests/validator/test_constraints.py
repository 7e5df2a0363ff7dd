"""docker/constraints.txt and build-constraints.txt pin what is in the images, with hashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = {
    "constraints.txt": [*PROJECT["dependencies"], *EXTRAS["validator"], *EXTRAS["scale"]],
    "build-constraints.txt": PYPROJECT["build-system"]["requires"],
}


def unpinned(requirements: Iterable[str], text: str, python: str) -> Iterator[str]:
    """The requirements that no line pins on this Python: to one version, with hashes."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line[:1] not in ("", "#")]
    pins: dict[str, str] = {}
    for line in lines:
        pin, *hashes = re.split(r"\s+--hash=sha256:", line.rstrip())
        requirement = Requirement(pin)
        (version,) = requirement.specifier
        if version.operator == "==" and hashes and _applies(requirement, environment):
            pins[canonicalize_name(requirement.name)] = version.version
    for each in requirements:
        wanted = Requirement(each)
        pinned = pins.get(canonicalize_name(wanted.name), "")
        if _applies(wanted, environment) and not (pinned and wanted.specifier.contains(pinned)):
            yield each


def _applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.15"])
@pytest.mark.parametrize("name", NEEDED)
def test_all_that_tfod_needs_is_pinned(name: str, python: str) -> None:
    text = (ROOT / "docker" / name).read_text("utf-8")
    assert list(unpinned(NEEDED[name], text, python)) == [], "type: make constraints"


@pytest.mark.parametrize(
    ("line", "complete"),
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
def test_a_pin_has_one_version_that_is_allowed_and_hashes(line: str, complete: bool) -> None:
    assert list(unpinned(["foo>=2"], line, "3.12")) == ([] if complete else ["foo>=2"])

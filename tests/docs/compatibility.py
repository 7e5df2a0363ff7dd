"""The table of docs/compatibility.md, from the versions in the tests. `make docs` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cvat.docker.pinned import PINNED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
_TABLE = re.compile(r"(?<=<!-- Written by `make docs`. -->\n).*?(?=\n<!-- End. -->)", re.DOTALL)


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def find(pattern: str, path: str) -> str:
    """Return the group of a pattern that a file must have."""
    match = re.search(pattern, text_of(path), re.MULTILINE)
    assert match, f"{path} has no {pattern}"
    return match[1]


def pythons() -> list[str]:
    """Return the Pythons of the Makefile, from the oldest."""
    return find(r"^ALL_PYTHONS = (.+)$", "Makefile").split()


def python_of_ci() -> str:
    """Return the Python on which `make test` runs all tests in CI."""
    return find(r'\n  linux:\n(?:.+\n)+?.*python-version: "(.+?)"', ".github/workflows/ci.yml")


def servers() -> list[str]:
    """Return the versions of CVAT that have a double in the tests."""
    double = find(r"chosen not in \((.+?)\)", "tests/cvat/server/double/cvat/__init__.py")
    return re.findall(r'"([\d.]+)"', double)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table."""
    oldest, *_, newest = pythons()
    for python in pythons():
        tests = "core"
        if python == newest:
            tests = "core, checker, service"
        if python == python_of_ci():
            tests = "everything"
        if python == oldest:
            tests = "core; core, checker, service with the oldest supported packages"
        yield "Python", python, tests
    old = find(r"^datumaro\S*==(.+)$", "tests/datumaro-0.3.txt")
    yield "Datumaro", old, "the formats; CVAT's export and import"
    yield "Datumaro", "newest 1.x", "everything"
    for version, (python, *packages) in PINNED.items():
        named = ", ".join(one.replace("==", " ") for one in packages if "setuptools" not in one)
        menus = "; export and import" if version in servers() else ""
        yield "CVAT", version, f"the package on Python {python} with {named}{menus}"
    sdk = find(r'"cvat-sdk>=([\d.]+)"', "pyproject.toml")
    server = find(r"tfod cvat needs ([\d.]+) or later", "plugin/tfod/cvat/client/connection.py")
    yield "cvat-sdk", f"{sdk} or later", f"`tfod cvat` with the newest; servers from {server}"
    pyodide = find(r'"version": "(.+?)"', "validator/browser/pyodide.json")
    yield "Pyodide", pyodide, "the page of `make browser` in Chromium"


def table(lines: Sequence[tuple[str, str, str]]) -> str:
    """Return a table in Markdown, in which a cell is empty if it repeats the one above."""
    texts = ["| | version | tests |", "|---|---|---|"]
    above = ""
    for name, version, tests in lines:
        texts.append(f"| {'' if name == above else name} | {version} | {tests} |")
        above = name
    return "\n".join(texts)


def page() -> str:
    """Return the page with the current table."""
    return _TABLE.sub(lambda _: table(list(rows())), PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

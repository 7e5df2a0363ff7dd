"""The layout in DESIGN.md and CONTRIBUTING.md: imports between packages go one way."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator, Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "plugin"
PACKAGES = (
    *("kernel", "tfrecord", "example", "detection", "sources", "training", "formats", "checker"),
    *("shards", "viewer", "functions", "datumaro", "beam", "cvat", "cli"),
)
"""A package imports only packages before it."""
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:plugin|validator|tests|docs|benchmarks)/[\w./-]+|pyproject\.toml)[^`]*`")


def module_name(path: Path) -> str:
    """Return ``tfod.checker.rules`` for its ``__init__.py``, too."""
    parts = path.relative_to(PLUGIN).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PLUGIN.glob("tfod/**/*.py"))}


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules of tfod that a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write {node.module} with its full name"
            for alias in node.names:
                names = (f"{node.module}.{alias.name}", node.module)
                yield from [name for name in names if name in MODULES][:1]


@cache
def all_imports() -> Mapping[str, Set[str]]:
    """Return the imports of each module."""
    return {name: set(imports_of(path)) - {name} for name, path in MODULES.items()}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def files_matching(pattern: str) -> list[str]:
    """Return the names of the modules whose source has the pattern."""
    paths = [*MODULES.values(), *PLUGIN.parent.glob("validator/**/*.py")]
    return [path.name for path in paths if re.search(pattern, path.read_text("utf-8"), re.M)]


def test_imports_between_packages_go_one_way() -> None:
    folders = {path.parent.name for path in PLUGIN.glob("tfod/*/__init__.py")}
    assert folders <= set(PACKAGES)  # a small package is a module
    order = {package: number for number, package in enumerate(PACKAGES)}
    wrong = [
        f"{module} -> {other}"
        for module, others in all_imports().items()
        for other in sorted(others)
        if package_of(module) in order
        and order.get(package_of(other), -1) > order[package_of(module)]
    ]
    assert not wrong
    TopologicalSorter(all_imports()).prepare()  # its CycleError names the modules
    imports_service = re.compile(r"^\s*(from|import) tfod_validator", re.MULTILINE)
    assert not [path for path in MODULES.values() if imports_service.search(path.read_text())]


def test_only_one_function_opens_images() -> None:
    opening = r"\bImage\.open\(|imdecode|imread|ImageFile\.Parser|_open_core"
    assert files_matching(opening) == ["pillow.py"]


def test_only_two_functions_truncate_texts_of_the_data() -> None:
    """excerpt() and truncate() of tfod.errors do it, without slices and precisions."""
    assert files_matching(r"\[:[48]0\]|:\.[48]0\}") == []


def test_every_package_has_a_docstring_with_its_imports() -> None:
    for package in PACKAGES:
        docstring = ast.get_docstring(ast.parse(MODULES[f"tfod.{package}"].read_bytes()))
        assert docstring and "import" in docstring, package


def test_the_drawing_of_the_packages_is_current() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "draw_rooms.py"))
    expected = drawn["drawing"](drawn["arrows"]())
    assert drawn["DRAWING"].read_text(encoding="utf-8") == expected, "type: make docs"


def test_every_path_of_contributing_exists() -> None:
    paths = _PATH.findall(CONTRIBUTING)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_change_needs_few_places() -> None:
    table = CONTRIBUTING.partition("\n## Where would I change")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith(("| a ", "| the ", "| how "))]
    assert len(rows) >= 13
    assert [row for row in rows if not 1 <= len(_PATH.findall(row)) <= 3] == []

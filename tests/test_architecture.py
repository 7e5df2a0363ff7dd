"""The house as DESIGN.md has it: imports between rooms point down, and nothing goes in a circle."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator, Mapping, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "plugin"
ROOMS = (
    *("kernel", "tfrecord", "example", "detection", "sources", "training", "formats", "checker"),
    *("shards", "functions", "datumaro", "beam", "cvat", "cli"),
)
"""From the lowest to the highest."""


def module_name(path: Path) -> str:
    """``tfod.checker.rules`` for its ``__init__.py``, too."""
    parts = path.relative_to(PLUGIN).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PLUGIN.glob("tfod/**/*.py"))}


def imports_of(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write {node.module} with its full name"
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                yield from [name for name in (whole, node.module) if name in MODULES][:1]


@cache
def all_imports() -> Mapping[str, Set[str]]:
    """What each module of ours imports of ours."""
    return {name: set(imports_of(path)) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_folder_is_a_room_of_the_design() -> None:
    folders = {path.parent.name for path in PLUGIN.glob("tfod/*/__init__.py")}
    assert folders <= set(ROOMS)  # a small room is a module


def test_imports_between_rooms_point_down() -> None:
    floor = {room: number for number, room in enumerate(ROOMS)}
    upward = [
        f"{module} -> {other}"
        for module, others in all_imports().items()
        for other in sorted(others)
        if room_of(module) in floor and floor.get(room_of(other), -1) > floor[room_of(module)]
    ]
    assert not upward


def test_no_module_imports_itself_by_way_of_others() -> None:
    TopologicalSorter(all_imports()).prepare()  # its CycleError names them


def test_only_one_function_opens_images() -> None:
    opening = re.compile(r"\bImage\.open\(|imdecode|imread|ImageFile\.Parser|_open_core")
    paths = [*MODULES.values(), *PLUGIN.parent.glob("validator/**/*.py")]
    found = [path.name for path in paths if opening.search(path.read_text())]
    assert found == ["pillow.py"]


def test_only_two_functions_truncate_texts_of_the_data() -> None:
    """excerpt() and truncate() of tfod.errors: no slice, and no precision of a format."""
    cutting = re.compile(r"\[:[48]0\]|:\.[48]0\}")
    paths = [*MODULES.values(), *PLUGIN.parent.glob("validator/**/*.py")]
    assert [path.name for path in paths if cutting.search(path.read_text())] == []


def test_the_plugin_knows_nothing_of_the_service() -> None:
    imported = re.compile(r"^\s*(from|import) tfod_validator", re.MULTILINE)
    assert [path for path in MODULES.values() if imported.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is_for(room: str) -> None:
    output = ast.get_docstring(ast.parse(MODULES[f"tfod.{room}"].read_bytes()))
    assert output
    assert "import" in output  # which rooms it may


def test_the_drawing_of_the_rooms_is_of_this_code() -> None:
    path = PLUGIN.parent / "docs" / "draw_rooms.py"
    drawn = runpy.run_path(str(path))
    expected = drawn["drawing"](drawn["arrows"]())
    assert drawn["DRAWING"].read_text(encoding="utf-8") == expected, "type: make docs"

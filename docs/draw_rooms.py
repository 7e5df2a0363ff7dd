"""Draw docs/rooms.svg: the packages of tfod and their imports.

``tests/test_architecture.py`` checks that the drawing is up to date.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs" / "rooms.svg"
_WIDTH, _HEIGHT = 112, 36  # size of a package
_GAP, _LEVEL_HEIGHT = 72, 80
_STYLE = """
  svg { background: #fff; font: 15px system-ui, sans-serif; }
  rect { fill: #eef3f8; stroke: #345; rx: 6px; }
  text { fill: #123; text-anchor: middle; dominant-baseline: central; }
  line { stroke: #345; marker-end: url(#head); }
"""


def find_packages(root: Path) -> dict[str, Path]:
    """Return the packages in a folder, and the modules on the same level, by name."""
    folders = {path.parent.name: path.parent for path in root.glob("*/__init__.py")}
    return {**folders, **{name: root / f"{name}.py" for name in ("beam", "functions")}}


def find_imports(path: Path) -> Iterator[str]:
    """Yield the names of all modules that a module or the modules of a folder import."""
    for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the packages that each package and the service import."""
    packages = find_packages(root / "plugin" / "tfod")
    graph = {}
    for name, path in [*packages.items(), ("validator", root / "validator" / "tfod_validator")]:
        parts = (module.split(".") for module in find_imports(path) if module.startswith("tfod."))
        graph[name] = {part[1] for part in parts if part[1] in packages} - {name}
    return graph


def sort_into_levels(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Return the packages of each level, from the bottom; imports are on lower levels."""
    levels: dict[str, int] = {}

    def find_level(package: str) -> int:
        if package not in levels:
            levels[package] = 1 + max(map(find_level, graph[package]), default=-1)
        return levels[package]

    by_level = defaultdict(list)
    for package in sorted(graph):
        by_level[find_level(package)].append(package)
    return [by_level[number] for number in sorted(by_level)]


def is_implied(package: str, imported: str, graph: Mapping[str, Set[str]]) -> bool:
    """Return whether an arrow is redundant, since there is also an indirect path."""
    waiting, seen = list(graph[package] - {imported}), set()
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += graph[current]
    return imported in seen


def drawing(graph: Mapping[str, Set[str]]) -> str:
    """Draw the packages as SVG, without redundant arrows."""
    levels = sort_into_levels(graph)
    width = max(map(len, levels)) * (_WIDTH + _GAP) + _GAP
    height = len(levels) * _LEVEL_HEIGHT
    corners = {}
    for number, level in enumerate(levels):
        left = (width - len(level) * (_WIDTH + _GAP) + _GAP) // 2
        top = height - (number + 1) * _LEVEL_HEIGHT + (_LEVEL_HEIGHT - _HEIGHT) // 2
        for index, package in enumerate(level):
            corners[package] = (left + index * (_WIDTH + _GAP), top)
    arrows = [
        _arrow(corners[package], corners[imported])
        for package in sorted(graph)
        for imported in sorted(graph[package])
        if not is_implied(package, imported, graph)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            "<title>The packages of tfod and their imports</title>",
            f"<style>{_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>',
            *arrows,
            *(_package(package, *corner) for package, corner in corners.items()),
            "</svg>\n",
        ]
    )


def _package(name: str, left: int, top: int) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}"/>'
        f'<text x="{left + _WIDTH // 2}" y="{top + _HEIGHT // 2}">{name}</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x, y = start[0] + _WIDTH // 2, start[1] + _HEIGHT
    return f'<line x1="{x}" y1="{y}" x2="{end[0] + _WIDTH // 2}" y2="{end[1]}"/>'


if __name__ == "__main__":
    DRAWING.write_text(drawing(arrows()), encoding="utf-8")

"""Draws docs/rooms.svg: the rooms of the house, and which imports which, as the code has it.

``python docs/draw_rooms.py`` writes it anew; ``tests/test_architecture.py`` says when that is due.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs" / "rooms.svg"
_WIDTH, _HEIGHT, _GAP, _FLOOR = 112, 36, 72, 80  # of a room, between two, and of a floor
_STYLE = """
  svg { background: #fff; font: 15px system-ui, sans-serif; }
  rect { fill: #eef3f8; stroke: #345; rx: 6px; }
  text { fill: #123; text-anchor: middle; dominant-baseline: central; }
  line { stroke: #345; marker-end: url(#head); }
"""


def rooms(package: Path) -> dict[str, Path]:
    """Folders and modules of a package by their names, those of its top level aside."""
    folders = {path.parent.name: path.parent for path in package.glob("*/__init__.py")}
    return {**folders, "beam": package / "beam.py"}


def imports(of: Path) -> Iterator[str]:
    """Names of all modules that are imported anywhere in a module or folder."""
    for path in sorted(of.rglob("*.py")) if of.is_dir() else [of]:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{one.name}" for one in node.names)


def arrows(root: Path = ROOT) -> dict[str, set[str]]:
    """The rooms that each room imports, the service above them all."""
    places = rooms(root / "plugin" / "tfod")
    found = {}
    for room, place in [*places.items(), ("validator", root / "validator" / "tfod_validator")]:
        parts = (name.split(".") for name in imports(place) if name.startswith("tfod."))
        found[room] = {part[1] for part in parts if part[1] in places} - {room}
    return found


def floors(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """Rooms from the lowest floor up: each stands above all that it imports."""
    level: dict[str, int] = {}

    def level_of(room: str) -> int:
        if room not in level:
            level[room] = 1 + max((level_of(one) for one in graph[room]), default=-1)
        return level[room]

    by_level = defaultdict(list)
    for room in sorted(graph):
        by_level[level_of(room)].append(room)
    return [by_level[number] for number in sorted(by_level)]


def implied(room: str, other: str, graph: Mapping[str, Set[str]]) -> bool:
    """Whether an arrow adds nothing: the room reaches the other by way of a third, too."""
    waiting, seen = list(graph[room] - {other}), set()
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += graph[one]
    return other in seen


def drawing(graph: Mapping[str, Set[str]]) -> str:
    """The rooms as an SVG, without the arrows that others imply."""
    levels = floors(graph)
    width = max(map(len, levels)) * (_WIDTH + _GAP) + _GAP
    height = len(levels) * _FLOOR
    places = {}
    for number, level in enumerate(levels):
        left = (width - len(level) * (_WIDTH + _GAP) + _GAP) // 2
        top = height - (number + 1) * _FLOOR + (_FLOOR - _HEIGHT) // 2
        places |= {room: (left + at * (_WIDTH + _GAP), top) for at, room in enumerate(level)}
    arrows = [
        _arrow(places[room], places[other])
        for room in sorted(graph)
        for other in sorted(graph[room])
        if not implied(room, other, graph)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            "<title>The rooms of tfod, and which imports which</title>",
            f"<style>{_STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>',
            *arrows,
            *(_room(room, *place) for room, place in places.items()),
            "</svg>\n",
        ]
    )


def _room(name: str, left: int, top: int) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}"/>'
        f'<text x="{left + _WIDTH // 2}" y="{top + _HEIGHT // 2}">{name}</text>'
    )


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """From the middle of a room's lower side to that of the other's upper side."""
    x, y = start[0] + _WIDTH // 2, start[1] + _HEIGHT
    return f'<line x1="{x}" y1="{y}" x2="{end[0] + _WIDTH // 2}" y2="{end[1]}"/>'


if __name__ == "__main__":
    DRAWING.write_text(drawing(arrows()), encoding="utf-8")

"""The figures of docs/style.md: ``python docs/code_figures.py FOLDER...``, tests left out."""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from pathlib import Path

_TESTS = {"tests", "test", "__spec__"}


def figures(folder: str) -> str:
    """A row of the table: modules, lines, functions and folders of Python under a folder."""
    paths = [path for path in Path(folder).rglob("*.py") if not _TESTS & set(path.parts)]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    lines = {path: text.count("\n") for path, text in texts.items()}
    small = sum(count < 60 for path, count in lines.items() if path.name != "__init__.py")
    nodes = [node for text in texts.values() for node in ast.walk(ast.parse(text))]
    functions = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    values = (
        len(paths),
        sum(lines.values()),
        round(statistics.median(lines.values())),
        max(lines.values()),
        small,
        max(Counter(path.parent for path in paths).values()),
        len(functions),
        functions[len(functions) // 2],
        functions[len(functions) * 9 // 10],
        functions[-1],
    )
    return " | ".join(["", folder, *(f"{value:,}" for value in values), ""]).strip()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(figures(name))

"""Compute the figures of docs/style.md: ``python docs/code_figures.py FOLDER...``, without tests.

``python docs/code_figures.py --walk check examples/shapes_broken.zip`` counts the functions that a
command calls. Comprehensions and generator expressions count as parts of their functions.
"""

from __future__ import annotations

import ast
import contextlib
import io
import statistics
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

_TESTS = {"tests", "test", "__spec__"}
_NOT_FUNCTIONS = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"}


def figures(folder: str) -> str:
    """Return a row of the table: numbers of modules, lines and functions in a folder."""
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


def walk(arguments: list[str]) -> str:
    """Return the numbers of modules and functions of tfod that a command calls, and the depth.

    The second call in a process is counted: in total, without rules, and in checker and cli.
    """
    from tfod.cli.main import main

    root = str(Path(sys.modules["tfod"].__file__ or "").parent)
    called: set[tuple[str, str]] = set()
    depth = deepest = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, deepest
        code = frame.f_code
        if not code.co_filename.startswith(root) or event not in ("call", "return"):
            return
        if code.co_name in _NOT_FUNCTIONS:
            return
        depth += 1 if event == "call" else -1
        deepest = max(deepest, depth)
        if code.co_name != "<lambda>":
            called.add((code.co_filename.removeprefix(root), f"{code.co_firstlineno}"))

    with contextlib.redirect_stdout(io.StringIO()):
        main(arguments)
        sys.setprofile(note)
        main(arguments)
        sys.setprofile(None)
    no_rules = {(path, line) for path, line in called if "/checker/rules/" not in path}
    checker = {(path, line) for path, line in no_rules if path.startswith(("/checker/", "/cli/"))}
    parts = {"all": called, "without rules": no_rules, "of these in checker and cli": checker}
    counts = [
        f"{name}: {len({path for path, _ in functions})} modules, {len(functions)} functions"
        for name, functions in parts.items()
    ]
    return "; ".join([*counts, f"{deepest} deep"])


if __name__ == "__main__":
    if sys.argv[1] == "--walk":
        print(walk(sys.argv[2:]))
    else:
        for name in sys.argv[1:]:
            print(figures(name))

"""The figures of docs/style.md: ``python docs/code_figures.py FOLDER...``, tests left out.

``python docs/code_figures.py --walk check examples/shapes_broken.zip`` counts what a command walks
through. A comprehension is a part of its function, as it is from Python 3.12 on; so is a generator
expression, which is another way to write a loop.
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
_OF_ITS_FUNCTION = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"}


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


def walk(arguments: list[str]) -> str:
    """What a command's second call in a process walks through: modules, functions, and how deep.

    Of tfod alone; then the same without the rules' own, and of that the part of check and cli.
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
        if code.co_name in _OF_ITS_FUNCTION:
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
    others = {one for one in called if "/checker/rules/" not in one[0]}
    room = {one for one in others if one[0].startswith(("/checker/", "/cli/"))}
    parts = {"all": called, "without rules": others, "of it check and cli": room}
    counts = [
        f"{name}: {len({one[0] for one in some})} modules, {len(some)} functions"
        for name, some in parts.items()
    ]
    return "; ".join([*counts, f"{deepest} deep"])


if __name__ == "__main__":
    if sys.argv[1] == "--walk":
        print(walk(sys.argv[2:]))
    else:
        for name in sys.argv[1:]:
            print(figures(name))

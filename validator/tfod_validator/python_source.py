"""Values and dotted names from Python source, read from its syntax tree without running it."""

from __future__ import annotations

import ast
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from tfod.errors import TfodError

_USUAL_IMPORTS = {"tf": "tensorflow", "tensorflow": "tensorflow", "np": "numpy", "numpy": "numpy"}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_MOST_STEPS = 1_000_000
_LONGEST = 100_000


class PythonSource:
    """A Python file as a syntax tree.

    A name stands for what it is bound to if that happens once in the whole file and not under a
    condition; ``tf`` and ``np`` need no import, so that a pasted piece can be read.
    """

    def __init__(self, data: bytes, path: str) -> None:
        """Parse a file.

        Raises:
            TfodError: it is not Python 3.
        """
        self.path = path
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in the user's texts
                self.tree = ast.parse(data)
        except SyntaxError as error:
            line = f":{error.lineno}" if error.lineno else ""
            raise TfodError(f"{path}{line}: is not Python 3: {error.msg}") from None
        except (ValueError, MemoryError, RecursionError) as error:
            raise TfodError(f"{path}: is not Python 3: {error}") from None
        self._bindings = Counter(_bound_names(self.tree))
        self._constants = dict(_constants(self.tree))
        self._imports = dict(_imports(self.tree))
        self._steps = 0

    def fail(self, node: ast.AST, what: str) -> NoReturn:
        """Raise a TfodError that names the line."""
        raise TfodError(f"{self.path}:{getattr(node, 'lineno', 1)}: {what}")

    def fail_to_read(self, node: ast.AST) -> NoReturn:
        """Raise a TfodError: this expression cannot be known without running the file."""
        why = ""
        if isinstance(node, ast.Name):
            if node.id in self._imports:
                why = f" (it comes from {self._imports[node.id].rpartition('.')[0] or 'an import'})"
            elif self._bindings[node.id] > 1:
                why = f" (it is set in {self._bindings[node.id]} places)"
            elif node.id not in self._bindings:
                why = " (it is not set in this file)"
        self.fail(node, f"{self.text(node)} cannot be read without running the file{why}")

    def text(self, node: ast.AST) -> str:
        """The source of an expression, in one short line."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:59] + "…"

    def times_bound(self, name: str) -> int:
        """In how many places the file binds a name."""
        return self._bindings[name]

    def follow(self, node: ast.expr) -> ast.expr:
        """What a name is bound to; every other expression is itself."""
        while isinstance(node, ast.Name) and self._stands_for_a_constant(node.id):
            self._step(node)
            node = self._constants[node.id]
        return node

    def dotted(self, node: ast.expr) -> str | None:
        """``tensorflow.io.VarLenFeature`` for whatever spelling of it; None if it is no name."""
        self._step(node)
        node = self.follow(node)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else None
        if not isinstance(node, ast.Name):
            return None
        if node.id in self._imports:
            return self._imports[node.id]
        if node.id in self._bindings:
            return None
        if node.id in _USUAL_IMPORTS:
            return _USUAL_IMPORTS[node.id]
        return f"{self._imports['*']}.{node.id}" if "*" in self._imports else node.id

    def value(self, node: ast.expr) -> Any:
        """The value of a literal, or of a sum or product of such.

        Raises:
            TfodError: it cannot be known without running the file.
        """
        self._step(node)
        node = self.follow(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one) for one in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return self._signed(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self._combined(node)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._part(one) for one in node.values)
        return self.fail_to_read(node)

    def _signed(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
        return self.fail_to_read(node)

    def _combined(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Mult):
            sizes = [len(one) for one in (left, right) if isinstance(one, (str, bytes, list))]
            counts = [one for one in (left, right) if isinstance(one, int)]
            if sizes and counts and sizes[0] * counts[0] > _LONGEST:
                self.fail(node, f"{self.text(node)} is too long for a feature description")
        try:
            return _OPERATORS[type(node.op)](left, right)
        except (TypeError, ArithmeticError):
            return self.fail_to_read(node)

    def _part(self, node: ast.expr) -> str:
        """A part of an f-string."""
        if isinstance(node, ast.FormattedValue):
            value = self.value(node.value)
            if node.conversion != -1 or node.format_spec or not isinstance(value, (str, int)):
                self.fail_to_read(node.value)
            return str(value)
        return str(self.value(node))

    def _stands_for_a_constant(self, name: str) -> bool:
        return name in self._constants and self._bindings[name] == 1

    def _step(self, node: ast.AST) -> None:
        """Names that stand for names can be circular, and a small file a huge list."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self.fail(node, "is too entangled to be read without running the file")


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that the body of the module or of a function sets, whatever else happens."""
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for statement in scope.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, statement.value
            elif (
                isinstance(statement, ast.AnnAssign)
                and statement.value
                and isinstance(statement.target, ast.Name)
            ):
                yield statement.target.id, statement.value


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each imported name with its dotted path; ``*`` with the TensorFlow module it is from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name, f"{module}.{alias.name}"
                elif module.startswith("tensorflow"):
                    yield "*", module

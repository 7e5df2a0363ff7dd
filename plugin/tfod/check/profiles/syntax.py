"""Literals and the names of literals from Python source, read without running it."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from tfod.errors import TfodError

_LONGEST_CHAIN = 10
"""A name may stand for a name, and so on; so often."""


class PythonSource:
    """A Python file as a syntax tree.

    A name stands for what it is assigned if the whole file binds it once. Nothing is computed:
    a value is a literal, or a list of literals and of names that stand for one.
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
        self._assigned = {
            target.id: value
            for target, value in assignments(self.tree)
            if isinstance(target, ast.Name) and self._bindings[target.id] == 1
        }
        self._imports = dict(_imports(self.tree))

    def fail(self, node: ast.AST, what: str) -> NoReturn:
        """Raise a TfodError that names the line."""
        raise TfodError(f"{self.path}:{getattr(node, 'lineno', 1)}: {what}")

    def fail_to_read(self, node: ast.AST) -> NoReturn:
        """Raise a TfodError: this expression cannot be known without running the file."""
        why = "; write its value instead"
        if isinstance(node, ast.Name):
            if node.id in self._imports:
                why = " (it is imported)" + why
            elif self._bindings[node.id] > 1:
                why = f" (it is set in {self._bindings[node.id]} places)" + why
            elif not self._bindings[node.id]:
                why = " (it is not set in this file)" + why
        self.fail(node, f"{self.text(node)} cannot be read without running the file{why}")

    def text(self, node: ast.AST) -> str:
        """The source of an expression, in one short line."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:59] + "…"

    def is_assigned_once(self, name: str) -> bool:
        """Whether the file binds a name in one place."""
        return self._bindings[name] == 1

    def follow(self, node: ast.expr) -> ast.expr:
        """What a name stands for; every other expression is itself."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(node, ast.Name) or node.id not in self._assigned:
                break
            node = self._assigned[node.id]
        return node

    def last_name(self, node: ast.expr) -> str | None:
        """``VarLenFeature`` for whatever spelling of ``tf.io.VarLenFeature``; None for others."""
        node = self.follow(node)
        if isinstance(node, ast.Attribute):
            return node.attr
        if not isinstance(node, ast.Name):
            return None
        if node.id in self._imports:
            return self._imports[node.id]
        return None if self._bindings[node.id] else node.id

    def literal(self, node: ast.expr, *, in_list: bool = False) -> Any:
        """The value of a literal, or of a list of literals and names; tuples become lists.

        Raises:
            TfodError: it cannot be known without running the file.
        """
        found = self.follow(node)
        is_list = isinstance(found, (ast.List, ast.Tuple))
        if is_list and in_list and found is not node:  # lists of names of lists grow without end
            self.fail_to_read(node)
        if isinstance(found, (ast.List, ast.Tuple)):
            return [self.literal(one, in_list=True) for one in found.elts]
        try:
            return ast.literal_eval(found)
        except (ValueError, TypeError, SyntaxError):
            self.fail_to_read(found)


def assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target that is assigned something, and what."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value:
            yield node.target, node.value


def last_part(node: ast.expr) -> str:
    """The name of a variable, or of an attribute; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


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


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each imported name with what its module calls it."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                original = alias.name.rpartition(".")[2]
                yield alias.asname or alias.name.partition(".")[0], original

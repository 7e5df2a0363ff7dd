"""A ``feature_description`` of ``tf.io`` objects, read from Python source without running it.

People have such a dict in their training script. It is read from the syntax tree; where that
does not say what a value is, one line names the file, the line and the expression.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

from tfod.errors import TfodError
from tfod.schema import FeatureDescription

from tfod_validator.feature_calls import FeatureCalls
from tfod_validator.feature_values import is_utf8
from tfod_validator.profile import Profile, profile_of_features
from tfod_validator.python_source import PythonSource

PREFERRED_NAME = "feature_description"
"""What the dict is best called, should a file hold several."""

_CHANGING = ("update", "setdefault", "pop", "popitem", "clear")


def read_python_profile(data: bytes, path: str) -> Profile:
    """The profile that a Python file's feature description stands for.

    Raises:
        TfodError: there is none, there are several, or it cannot be read without running it.
    """
    try:
        name, features = _Descriptions(PythonSource(data, path)).read()
    except RecursionError:
        raise TfodError(f"{path}: is nested too deeply to be read") from None
    file = Path(path).name
    title = f"{name} of {file}" if name else f"the features of {file}"
    return profile_of_features(file.partition(".")[0] or "profile", title, features)


class _Table(NamedTuple):
    """An expression that is a dict of ``tf.io`` objects, and what it is called ("" if nothing)."""

    name: str
    node: ast.expr


class _Descriptions:
    """The dicts of ``tf.io`` objects in a file."""

    def __init__(self, source: PythonSource) -> None:
        self.source = source
        self.calls = FeatureCalls(source)

    def read(self) -> tuple[str, FeatureDescription]:
        """The name and the features of the dict that is meant."""
        tables = self._tables()
        preferred = [table for table in tables if table.name == PREFERRED_NAME]
        tables = preferred or tables
        if not tables:
            raise TfodError(
                f"{self.source.path}: has no dict of tf.io features; expected such as "
                f"{PREFERRED_NAME} = {{'image/encoded': tf.io.FixedLenFeature([], tf.string)}}"
            )
        found = [self._features(table) for table in tables]
        if any(features != found[0] for features in found[1:]):
            places = " and ".join(
                f"{table.name or 'one without a name'} in line {table.node.lineno}"
                for table in tables
            )
            raise TfodError(
                f"{self.source.path}: has several feature descriptions, {places}; call the one "
                f"that is meant {PREFERRED_NAME}, and only that one"
            )
        return tables[0].name, found[0]

    def _tables(self) -> list[_Table]:
        """The outermost such dicts, in the order of the file."""
        names = dict(_names_of_expressions(self.source.tree))
        found = [
            node
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.expr) and self._is_table(node)
        ]
        parts = {id(part) for node in found for part in self._parts(node)}
        outermost = [node for node in found if id(node) not in parts]
        outermost.sort(key=lambda node: (node.lineno, node.col_offset))
        return [_Table(names.get(id(node), ""), node) for node in outermost]

    def _is_table(self, node: ast.expr) -> bool:
        if isinstance(node, ast.DictComp):
            return self.calls.class_of(node.value) is not None
        values: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            values = [value for key, value in zip(node.keys, node.values, strict=True) if key]
        elif _is_dict_call(node):
            values = [keyword.value for keyword in node.keywords if keyword.arg]
            values += [pair.elts[1] for pair in _pairs(node)]
        return any(self.calls.class_of(value) for value in values) or any(
            self._is_table(part) for part in self._parts(node)
        )

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        """The dicts that one is put together from."""
        found: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            found = [value for key, value in zip(node.keys, node.values, strict=True) if not key]
        elif _is_dict_call(node):
            found = [keyword.value for keyword in node.keywords if not keyword.arg]
            found += [one for one in node.args if not isinstance(one, (ast.List, ast.Tuple))]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            found = [node.left, node.right]
        return [self.source.follow(one) for one in found]

    def _features(self, table: _Table) -> FeatureDescription:
        if table.name:
            self._refuse_changes(table.name)
        found = {}
        for key, value in self._entries(table.node):
            key, spec = self.calls.read(key, value)
            found[key] = spec
        return found

    def _refuse_changes(self, name: str) -> None:
        """A dict that is changed after it was made is another one when it is used."""
        for node in ast.walk(self.source.tree):
            if not _changes(node, name):
                continue
            adds = any(
                isinstance(one, ast.expr) and (self.calls.class_of(one) or self._is_table(one))
                for one in map(self._followed, ast.walk(node))
            )
            is_sum = isinstance(node, ast.AugAssign)
            if adds or is_sum or self.source.times_bound(name) == 1:
                self.source.fail(
                    node,
                    f"{name} is changed here, which cannot be followed without running the file; "
                    "write it as one dict",
                )

    def _followed(self, node: ast.AST) -> ast.AST:
        return self.source.follow(node) if isinstance(node, ast.expr) else node

    def _entries(self, node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
        """The keys of a dict with the expressions of their values."""
        node = self.source.follow(node)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    yield from self._entries(value)
                else:
                    yield self._key(key), value
        elif _is_dict_call(node):
            for argument in node.args:
                if not isinstance(argument, (ast.List, ast.Tuple)):
                    yield from self._entries(argument)
                elif len(_pairs(node)) < len(argument.elts):
                    self.source.fail_to_read(argument)
            for pair in _pairs(node):
                yield self._key(pair.elts[0]), pair.elts[1]
            for keyword in node.keywords:
                if keyword.arg is None:
                    yield from self._entries(keyword.value)
                else:
                    yield keyword.arg, keyword.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from self._entries(node.left)
            yield from self._entries(node.right)
        else:
            self.source.fail_to_read(node)

    def _key(self, node: ast.expr) -> str:
        key = self.source.value(node)
        if not isinstance(key, str) or not is_utf8(key):
            self.source.fail(node, f"the key {self.source.text(node)} is no text")
        return key


def _is_dict_call(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"


def _pairs(call: ast.Call) -> list[ast.Tuple | ast.List]:
    """The pairs of ``dict([(key, value), ...])``."""
    return [
        pair
        for argument in call.args
        if isinstance(argument, (ast.List, ast.Tuple))
        for pair in argument.elts
        if isinstance(pair, (ast.List, ast.Tuple)) and len(pair.elts) == 2
    ]


def _names_of_expressions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What each expression is called where it stands: a variable, an attribute, a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield id(node.value), _last_name(target)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value:
            yield id(node.value), _last_name(node.target)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _changes(node: ast.AST, name: str) -> bool:
    """Whether this statement or call changes a dict of that name."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        return any(_is_item_of(target, name) for target in node.targets)
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.BitOr) and _last_name(node.target) == name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _CHANGING and _last_name(node.func.value) == name
    return False


def _is_item_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Subscript) and _last_name(node.value) == name

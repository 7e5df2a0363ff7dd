"""A feature description from Python source, as a script has it for ``tf.io.parse_example``.

Nothing is run. A dict literal of ``tf.io`` calls is read, with literals and with names that are
set to a literal once; of everything else one line names the place.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import warnings
from collections import Counter
from typing import Any, NoReturn

from tfod.errors import TfodError

_PREFERRED_NAME = "feature_description"  # of the dict that is meant, should a file hold several
_of = inspect.signature
_CALLS = {
    "FixedLenFeature": _of(lambda shape, dtype, default_value=None: None),
    "VarLenFeature": _of(lambda dtype: None),
    "FixedLenSequenceFeature": _of(lambda shape, dtype, allow_missing=0, default_value=None: None),
    "RaggedFeature": _of(lambda dtype: None),  # with partitions it is of several keys
}
_DTYPES = {"string": "string", "int64": "int64", "float32": "float32", "float": "float32",
           "str_": "string", "bytes_": "string", "object_": "string"}  # fmt: skip
"""What ``tf.as_dtype`` takes, of what an Example holds."""
_LONGEST_CONSTANT = 200  # characters; a small file could stand for a huge description


class PythonSource:
    """A Python file as a syntax tree, and its constants; raises TfodError for what is no Python."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in the user's texts
                nodes = list(ast.walk(ast.parse(data)))
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            where = f"{path}:{getattr(error, 'lineno', None) or 1}"
            raise TfodError(f"{where}: is not Python 3: {getattr(error, 'msg', error)}") from None
        self.bound: Counter[str] = Counter()
        self.names: dict[ast.AST, str] = {}  # of what is assigned; "" of what is given to a call
        self.changes: dict[str, ast.AST] = {}
        for node in nodes:
            self._look_at(node)
        self.constants: dict[str, Any] = {}
        for value, name in self.names.items():
            if self.bound[name] == 1 and name not in self.changes:
                with contextlib.suppress(ValueError, TypeError):
                    constant = ast.literal_eval(value)
                    if len(repr(constant)) <= _LONGEST_CONSTANT:
                        self.constants[name] = constant

    def _look_at(self, node: ast.AST) -> None:
        if isinstance(node, ast.arg):
            self.bound[node.arg] += 1
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bound[node.id] += 1
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            self.names[node.value] = _target_of(target)
        elif isinstance(node, (ast.Call, ast.keyword, ast.Return)):
            self.names.update(dict.fromkeys(ast.iter_child_nodes(node), ""))
        elif isinstance(node, ast.AugAssign):
            self.bound[_target_of(node.target)] -= 1
            self.changes[_target_of(node.target)] = node
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and (
            not isinstance(node.ctx, ast.Load) or getattr(node, "attr", "") == "update"
        ):
            self.changes[_target_of(node.value)] = node

    def read(self) -> tuple[str, dict[str, dict[str, Any]]]:
        """The name of the only feature description, and its features as in a profile's file.

        A default may have bytes, and lists in lists. Raises TfodError for anything else.
        """
        dicts = [(name, one) for one, name in self.names.items() if isinstance(one, ast.Dict)]
        tables = [(name, one) for name, one in dicts if any(map(_call_of, one.values))]
        tables = [(name, one) for name, one in tables if name == _PREFERRED_NAME] or tables
        if not tables:
            example = f"{_PREFERRED_NAME} = {{'width': tf.io.VarLenFeature(tf.int64)}}"
            raise TfodError(f"{self.path}: has no dict of tf.io calls, such as {example}")
        found = [self._features(name, one) for name, one in tables]
        for (_, one), features in zip(tables, found, strict=True):
            if features != found[0]:
                self._fail(one, f"is another feature description; call one {_PREFERRED_NAME}")
        return tables[0][0], found[0]

    def _features(self, name: str, table: ast.Dict) -> dict[str, dict[str, Any]]:
        if name and name in self.changes and self.bound[name] < 2:  # else it may be of another
            self._fail(self.changes[name], f"{name} is changed here; write it as one dict")
        found = {}
        for key_node, call in zip(table.keys, table.values, strict=True):
            if key_node is None:
                self._fail(call, "a dict is taken over here; write its features into this one")
            key = self._value(key_node)
            if not isinstance(key, str):
                self._fail(key_node, f"the key {key!r:.60} is not text")
            found[key] = self._feature(key, call)
        return found

    def _feature(self, key: str, node: ast.expr) -> dict[str, Any]:
        name = _call_of(node)
        if name is None or not isinstance(node, ast.Call):
            self._fail(node, f"{key!r} is {ast.unparse(node):.60}; give {', '.join(_CALLS)}")
        try:
            keywords = {one.arg or "**": one.value for one in node.keywords}
            given = _CALLS[name].bind(*node.args, **keywords).arguments
        except TypeError as error:
            self._fail(node, f"{key!r}: {name}: {error}")
        dtype = self._dtype(key, given.pop("dtype"))
        values = {parameter: self._value(one) for parameter, one in given.items()}
        if name == "FixedLenSequenceFeature" and values.get("allow_missing") is not True:
            self._fail(node, f"{key!r} is of a SequenceExample; of an Example: allow_missing=True")
        if name != "FixedLenFeature":  # any number of values
            return {"kind": "VarLenFeature", "dtype": dtype}
        shape, default = values["shape"], values.get("default_value")
        shape = [shape] if isinstance(shape, int) else shape
        found = {"kind": name, "dtype": dtype, "shape": shape}
        return found if default is None else {**found, "default": default}

    def _dtype(self, key: str, node: ast.expr) -> str:
        name = node.value if isinstance(node, ast.Constant) else _name_of(node)
        if isinstance(node, ast.Name) and self.bound[node.id]:
            name = self.constants.get(node.id)
        if str(name) not in _DTYPES:
            self._fail(node, f"{key!r} has the dtype {ast.unparse(node):.40}, which no Example has")
        return _DTYPES[str(name)]

    def _value(self, node: ast.expr) -> Any:
        """The value of a literal, a name, or a list of both; tuples become lists."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(one) for one in node.elts]
        try:
            value = self.constants.get(getattr(node, "id", ""))
            value = ast.literal_eval(node) if value is None else value
        except (ValueError, TypeError):
            self._fail(node, f"{ast.unparse(node):.60} is no literal; write its value instead")
        return list(value) if isinstance(value, tuple) else value

    def _fail(self, node: ast.AST, what: str) -> NoReturn:
        raise TfodError(f"{self.path}:{getattr(node, 'lineno', 1)}: {what}")


def _call_of(node: ast.expr) -> str | None:
    name = _name_of(node.func) if isinstance(node, ast.Call) else None
    return name if name in _CALLS else None


def _name_of(node: ast.expr) -> str:
    """``int64`` for ``tf.int64``; "" for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _target_of(node: ast.expr) -> str:
    """``f``, or ``self.f``; "" for what is no name, such as an item."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return getattr(node, "id", "")

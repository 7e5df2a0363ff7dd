"""Feature descriptions for ``tf.io.parse_example`` from Python source.

The source is not run. It must have a dict literal of ``tf.io`` calls, with literals or names that
are set to a literal once. For anything else, an error names the line.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import warnings
from collections import Counter
from typing import Any, NoReturn

from tfod.errors import TfodError, excerpt, truncate

_PREFERRED_NAME = "feature_description"  # the dict to use if a file has several
_sign = inspect.signature
_CALLS = {
    "FixedLenFeature": _sign(lambda shape, dtype, default_value=None: None),
    "VarLenFeature": _sign(lambda dtype: None),
    "FixedLenSequenceFeature": _sign(lambda shape, dtype, allow_missing=0, default_value=None: 0),
    "RaggedFeature": _sign(lambda dtype: None),  # partitions, which need more keys, are errors
}
_DTYPES = {"string": "string", "int64": "int64", "float32": "float32", "float": "float32",
           "str_": "string", "bytes_": "string", "object_": "string"}  # fmt: skip
"""The names that ``tf.as_dtype`` accepts for the dtypes of an Example."""
_MAX_CONSTANT_LENGTH = 200  # characters, so that a small file cannot make a huge description


class PythonSource:
    """The syntax tree and the constants of a Python file."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about invalid escapes in strings
                nodes = list(ast.walk(ast.parse(data)))
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            location = f"{path}:{getattr(error, 'lineno', None) or 1}"
            message = getattr(error, "msg", error)
            raise TfodError(f"{location}: is not Python 3: {message}") from None
        self.bound: Counter[str] = Counter()
        self.names: dict[ast.AST, str] = {}  # names of assigned values; "" for arguments of calls
        self.changes: dict[str, ast.AST] = {}
        for node in nodes:
            self._record_names(node)
        self.constants: dict[str, Any] = {}
        for value, name in self.names.items():
            if self.bound[name] == 1 and name not in self.changes:
                with contextlib.suppress(ValueError, TypeError):
                    constant = ast.literal_eval(value)
                    if len(repr(constant)) <= _MAX_CONSTANT_LENGTH:
                        self.constants[name] = constant

    def _record_names(self, node: ast.AST) -> None:
        if isinstance(node, ast.arg):
            self.bound[node.arg] += 1
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bound[node.id] += 1
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            self.names[node.value] = _get_target(target)
        elif isinstance(node, (ast.Call, ast.keyword, ast.Return)):
            self.names.update(dict.fromkeys(ast.iter_child_nodes(node), ""))
        elif isinstance(node, ast.AugAssign):
            self.bound[_get_target(node.target)] -= 1
            self.changes[_get_target(node.target)] = node
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and (
            not isinstance(node.ctx, ast.Load) or getattr(node, "attr", "") == "update"
        ):
            self.changes[_get_target(node.value)] = node

    def read(self) -> tuple[str, dict[str, dict[str, Any]]]:
        """Return the name of the feature description, and its features as in a profile file.

        Defaults may have bytes and nested lists.
        """
        dicts = [(name, node) for node, name in self.names.items() if isinstance(node, ast.Dict)]
        tables = [(name, node) for name, node in dicts if any(map(_get_call, node.values))]
        tables = [(name, node) for name, node in tables if name == _PREFERRED_NAME] or tables
        if not tables:
            example = f"{_PREFERRED_NAME} = {{'width': tf.io.VarLenFeature(tf.int64)}}"
            raise TfodError(f"{self.path}: has no dict of tf.io calls, such as {example}")
        descriptions = [self._read_features(name, node) for name, node in tables]
        for (_, node), features in zip(tables, descriptions, strict=True):
            if features != descriptions[0]:
                self._fail(node, f"a second feature description; rename one to {_PREFERRED_NAME}")
        return tables[0][0], descriptions[0]

    def _read_features(self, name: str, table: ast.Dict) -> dict[str, dict[str, Any]]:
        if name and name in self.changes and self.bound[name] < 2:  # else it may be another dict
            self._fail(self.changes[name], f"{name} is changed here; write it as one dict")
        features = {}
        for key_node, call in zip(table.keys, table.values, strict=True):
            if key_node is None:
                self._fail(call, "another dict is included here; write its features into this one")
            key = self._read_value(key_node)
            if not isinstance(key, str):
                self._fail(key_node, f"the key {excerpt(key)} is not text")
            features[key] = self._read_feature(key, call)
        return features

    def _read_feature(self, key: str, node: ast.expr) -> dict[str, Any]:
        name = _get_call(node)
        if name is None or not isinstance(node, ast.Call):
            self._fail(node, f"{excerpt(key)} is {ast.unparse(node):.60}; use {', '.join(_CALLS)}")
        try:
            keywords = {keyword.arg or "**": keyword.value for keyword in node.keywords}
            arguments = _CALLS[name].bind(*node.args, **keywords).arguments
        except TypeError as error:
            self._fail(node, f"{excerpt(key)}: {name}: {error}")
        dtype = self._read_dtype(key, arguments.pop("dtype"))
        values = {name: self._read_value(value) for name, value in arguments.items()}
        if name == "FixedLenSequenceFeature" and values.get("allow_missing") is not True:
            self._fail(
                node,
                f"{excerpt(key)} is for SequenceExamples; for Examples, add allow_missing=True",
            )
        if name != "FixedLenFeature":  # any number of values
            return {"kind": "VarLenFeature", "dtype": dtype}
        shape, default = values["shape"], values.get("default_value")
        shape = [shape] if isinstance(shape, int) else shape
        feature = {"kind": name, "dtype": dtype, "shape": shape}
        return feature if default is None else {**feature, "default": default}

    def _read_dtype(self, key: str, node: ast.expr) -> str:
        name = node.value if isinstance(node, ast.Constant) else _get_name(node)
        if isinstance(node, ast.Name) and self.bound[node.id]:
            name = self.constants.get(node.id)
        if str(name) not in _DTYPES:
            dtype = truncate(ast.unparse(node))
            self._fail(node, f"{excerpt(key)}: dtype {dtype} is invalid in an Example")
        return _DTYPES[str(name)]

    def _read_value(self, node: ast.expr) -> Any:
        """Return the value of a literal, a name, or a list of both; tuples become lists."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._read_value(element) for element in node.elts]
        try:
            value = self.constants.get(getattr(node, "id", ""))
            value = ast.literal_eval(node) if value is None else value
        except (ValueError, TypeError):
            self._fail(node, f"{ast.unparse(node):.60} is not a literal; write its value instead")
        return list(value) if isinstance(value, tuple) else value

    def _fail(self, node: ast.AST, problem: str) -> NoReturn:
        raise TfodError(f"{self.path}:{getattr(node, 'lineno', 1)}: {problem}")


def _get_call(node: ast.expr) -> str | None:
    name = _get_name(node.func) if isinstance(node, ast.Call) else None
    return name if name in _CALLS else None


def _get_name(node: ast.expr) -> str:
    """Return the last part of a name: ``int64`` for ``tf.int64``; "" if the node is not a name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _get_target(node: ast.expr) -> str:
    """Return a name, also ``self.f``; "" for anything else, such as an item."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return getattr(node, "id", "")

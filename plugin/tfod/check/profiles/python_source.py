"""A ``feature_description`` of ``tf.io`` objects, read from Python source without running it.

People have such a dict in their training script: a literal, ``dict(key=...)``, ``**`` and ``|`` of
such, with calls of ``FixedLenFeature``, ``VarLenFeature`` and ``FixedLenSequenceFeature`` whose
arguments are literals or names of literals. Of everything else one line names the place.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tfod.check.profiles.feature_values import (
    DTYPES,
    FeatureValueError,
    fixed_length,
    is_utf8,
    known_meaning,
)
from tfod.check.profiles.profile import Profile, profile_of_features
from tfod.check.profiles.syntax import PythonSource, assignments, last_part
from tfod.detection.schema import FeatureDescription, FeatureSpec
from tfod.errors import TfodError
from tfod.example.wire import Kind

PREFERRED_NAME = "feature_description"
"""What the dict is best called, should a file hold several."""
_MOST_FEATURES = 100_000
"""In all dicts of a file; each is counted again where ``**`` takes it over."""
_PARAMETERS = {
    "FixedLenFeature": ("shape", "dtype", "default_value"),
    "VarLenFeature": ("dtype",),
    "FixedLenSequenceFeature": ("shape", "dtype", "allow_missing", "default_value"),
}
_UNSUPPORTED = ("RaggedFeature", "SparseFeature")
_NEEDED = {"shape", "dtype"}
_DTYPE_SYNONYMS = {
    "float": "float32",
    "str_": "string",
    "bytes_": "string",
    "object_": "string",
}
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
        self._is_known_table: dict[int, bool] = {}  # by the id of the node, as what follows
        self._known_features: dict[int, FeatureDescription] = {}
        self._count = 0
        self._changes = defaultdict(list)
        for node in ast.walk(source.tree):
            for name in _changed_by(node):
                self._changes[name].append(node)

    def read(self) -> tuple[str, FeatureDescription]:
        """The name and the features of the dict that is meant."""
        tables = self._tables()
        tables = [table for table in tables if table.name == PREFERRED_NAME] or tables
        if not tables:
            self._fail_without_any()
        for table in tables:
            self._refuse_changes(table.name)
        found = [self._features(table.node) for table in tables]
        if any(features != found[0] for features in found[1:]):
            places = [
                f"{one.name or 'one without a name'} in line {one.node.lineno}" for one in tables
            ]
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            raise TfodError(
                f"{self.source.path}: has several feature descriptions, "
                f"{' and '.join(places[:3])}{more}; call the one that is meant {PREFERRED_NAME}, "
                "and only that one"
            )
        return tables[0].name, found[0]

    def _fail_without_any(self) -> None:
        example = f"{PREFERRED_NAME} = {{'image/encoded': tf.io.FixedLenFeature([], tf.string)}}"
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Call) and self._class_of(node):
                what = (
                    f"{self.source.text(node)} is not in a dict that can be read without running "
                )
                self.source.fail(node, f"{what}the file; write such as {example}")
        raise TfodError(
            f"{self.source.path}: has no dict of tf.io features; expected such as {example}"
        )

    def _tables(self) -> list[_Table]:
        """The outermost such dicts, in the order of the file."""
        names = {id(value): last_part(name) for name, value in assignments(self.source.tree)}
        found = [
            node
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.expr) and _is_dict(node) and self._is_table(node)
        ]
        parts = {
            id(self.source.follow(value))
            for node in found
            for key, value in _items(node)
            if key is None
        }
        outermost = [node for node in found if id(node) not in parts]
        outermost.sort(key=lambda node: (node.lineno, node.col_offset))
        return [_Table(names.get(id(node), ""), node) for node in outermost]

    def _is_table(self, node: ast.expr) -> bool:
        """Whether a dict, or one that it is put together from, has a ``tf.io`` object."""
        node = self.source.follow(node)
        if id(node) not in self._is_known_table:
            self._is_known_table[id(node)] = False  # while this is asked, of circles
            self._is_known_table[id(node)] = any(
                self._is_table(value) if key is None else self._class_of(value)
                for key, value in _items(node)
            )
        return self._is_known_table[id(node)]

    def _refuse_changes(self, name: str) -> None:
        """A dict that is changed after it was made is another one when it is used."""
        for node in self._changes[name] if name else ():
            adds = any(
                self._class_of(one) or self._is_table(one)
                for one in ast.walk(node)
                if isinstance(one, ast.expr)
            )
            is_sum = isinstance(node, ast.AugAssign)
            if adds or is_sum or self.source.is_assigned_once(name):
                self.source.fail(
                    node,
                    f"{name} is changed here, which cannot be followed without running the file; "
                    "write it as one dict",
                )

    def _features(self, node: ast.expr) -> FeatureDescription:
        """The features of a dict; each dict is read once, however often others take it over."""
        node = self.source.follow(node)
        if not _is_dict(node) or isinstance(node, ast.DictComp):
            self.source.fail_to_read(node)
        if id(node) not in self._known_features:
            found: dict[str, FeatureSpec] = {}
            for key, value in _items(node):
                more = self._features(value) if key is None else self._feature(key, value)
                found.update(more)
                self._count += len(more)
                if self._count > _MOST_FEATURES:
                    self.source.fail(node, f"has more than {_MOST_FEATURES:,} features up to here")
            self._known_features[id(node)] = found
        return self._known_features[id(node)]

    def _feature(self, key_node: ast.expr | str, value: ast.expr) -> FeatureDescription:
        key = key_node if isinstance(key_node, str) else self.source.literal(key_node)
        if not isinstance(key, str) or not is_utf8(key):
            self.source.fail(value, f"the key {key!r:.60} is not text")
        call = self.source.follow(value)
        name = self._class_of(call)
        if name is None or not isinstance(call, ast.Call):
            self.source.fail(
                value,
                f"{key!r} is {self.source.text(value)}, which is not a tf.io feature or cannot be "
                "read without running the file",
            )
        if name in _UNSUPPORTED:
            self.source.fail(
                call,
                f"{key!r} is a {name}, which is not supported; describe each list of values "
                "that the record has as VarLenFeature",
            )
        return {key: self._spec(key, name, call)}

    def _class_of(self, node: ast.expr) -> str | None:
        """``VarLenFeature`` and the like, if this is a call of it."""
        node = self.source.follow(node)
        name = self.source.last_name(node.func) if isinstance(node, ast.Call) else None
        return name if name in _PARAMETERS or name in _UNSUPPORTED else None

    def _spec(self, key: str, name: str, call: ast.Call) -> FeatureSpec:
        arguments = self._arguments(key, name, call)
        kind = self._kind(key, arguments["dtype"])
        values: dict[str, Any] = {
            parameter: self.source.literal(node)
            for parameter, node in arguments.items()
            if parameter != "dtype"
        }
        if name == "FixedLenSequenceFeature" and values.get("allow_missing") is not True:
            self.source.fail(
                call,
                f"{key!r} is a FixedLenSequenceFeature of a SequenceExample, which is not "
                "supported; of an Example it has allow_missing=True",
            )
        if name != "FixedLenFeature":  # any number of values
            return FeatureSpec(kind, meaning=known_meaning(key))
        shape, default = values["shape"], values.get("default_value")
        try:
            return fixed_length(kind, shape, default, meaning=known_meaning(key))
        except FeatureValueError as error:
            self.source.fail(call, f"{key!r}: {error}")

    def _arguments(self, key: str, name: str, call: ast.Call) -> dict[str, ast.expr]:
        """Each parameter with the expression that is given for it."""
        parameters = _PARAMETERS[name]
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                self.source.fail_to_read(argument)
        if len(call.args) > len(parameters):
            self.source.fail(call, f"{key!r}: {name} takes {', '.join(parameters)} and no more")
        found = dict(zip(parameters, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None:
                self.source.fail_to_read(keyword.value)
            if keyword.arg not in parameters or keyword.arg in found:
                what = "twice" if keyword.arg in found else "that it does not take"
                self.source.fail(call, f"{key!r}: {name} is given {keyword.arg} {what}")
            found[keyword.arg] = keyword.value
        for parameter in parameters:
            if parameter in _NEEDED and parameter not in found:
                self.source.fail(call, f"{key!r}: {name} is given no {parameter}")
        return found

    def _kind(self, key: str, node: ast.expr) -> Kind:
        """The kind of a dtype, for what ``tf.as_dtype`` takes."""
        found = self.source.follow(node)
        is_text = isinstance(found, ast.Constant)
        said = str(self.source.literal(found)) if is_text else self.source.last_name(found)
        if said is None:
            self.source.fail_to_read(node)
        name = _DTYPE_SYNONYMS.get(said, said)
        if name not in DTYPES:
            self.source.fail(
                node,
                f"{key!r} has the dtype {self.source.text(node)}, and an Example holds tf.string, "
                "tf.int64 and tf.float32 only",
            )
        return DTYPES[name]


def _is_dict(node: ast.expr) -> bool:
    """Whether an expression makes a dict in a way that is known here."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "dict"
    is_union = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
    return is_union or isinstance(node, (ast.Dict, ast.DictComp))


def _items(node: ast.expr) -> Iterator[tuple[ast.expr | str | None, ast.expr]]:
    """Keys and values of a dict; None is the key of a dict that it takes over."""
    if isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.DictComp):
        yield node.key, node.value
    elif isinstance(node, ast.Call) and _is_dict(node):
        yield from ((None, argument) for argument in node.args)
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords)
    elif isinstance(node, ast.BinOp) and _is_dict(node):
        yield None, node.left
        yield None, node.right


def _changed_by(node: ast.AST) -> list[str]:
    """Names of the dicts that a statement or call changes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        return [
            last_part(target.value) for target in node.targets if isinstance(target, ast.Subscript)
        ]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
        return [last_part(node.target)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [last_part(node.func.value)] if node.func.attr in _CHANGING else []
    return []

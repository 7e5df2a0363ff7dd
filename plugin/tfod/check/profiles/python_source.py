"""A ``feature_description`` of ``tf.io`` objects, read from Python source without running it.

People have such a dict in their training script: a literal, ``dict(key=...)``, ``**`` and ``|`` of
such, with calls of ``FixedLenFeature``, ``VarLenFeature`` and ``FixedLenSequenceFeature`` whose
arguments are literals or names of literals. Nothing is computed; a name stands for what it is
assigned if the whole file binds it once. Of everything else one line names the place.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NoReturn

from tfod.errors import TfodError

PREFERRED_NAME = "feature_description"
"""What the dict is best called, should a file hold several."""
_MOST_FEATURES = 100_000
"""In all dicts of a file; each is counted again where ``**`` takes it over."""
_LONGEST_CHAIN = 10
"""A name may stand for a name, and so on; so often."""
_SIGNATURES = {
    "FixedLenFeature": inspect.signature(lambda shape, dtype, default_value=None: None),
    "VarLenFeature": inspect.signature(lambda dtype: None),
    "FixedLenSequenceFeature": inspect.signature(
        lambda shape, dtype, allow_missing=False, default_value=None: None
    ),
}
_DTYPES = {"string": "string", "int64": "int64", "float32": "float32", "float": "float32",
           "str_": "string", "bytes_": "string", "object_": "string"}  # fmt: skip
"""What ``tf.as_dtype`` takes, of what an Example holds."""
_CHANGING = ("update", "setdefault", "pop", "popitem", "clear")


def read_python_features(data: bytes, path: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The name of a file's feature description, and its features as a profile's file has them.

    A default may have bytes, and lists in lists.

    Raises:
        TfodError: there is not exactly one, or it cannot be read without running the file.
    """
    return _Source(data, path).read()


class _Source:
    """A Python file as a syntax tree."""

    def __init__(self, data: bytes, path: str) -> None:
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
        self.bindings: Counter[str] = Counter()
        self.assigned: dict[str, ast.expr] = {}
        self.names: dict[int, str] = {}  # of what is assigned, by the id of its node
        self.imports: dict[str, str] = {}
        self.changes: defaultdict[str, list[ast.AST]] = defaultdict(list)
        self.is_known_table: dict[int, bool] = {}
        self.known_features: dict[int, dict[str, dict[str, Any]]] = {}
        self.count = 0
        for node in ast.walk(self.tree):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        """Remember the names that a node binds, and the dicts that it changes."""
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    self.assigned[target.id] = node.value
                self.names[id(node.value)] = _last_part(target)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bindings[node.id] += 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bindings[node.name] += 1
        elif isinstance(node, ast.arg):
            self.bindings[node.arg] += 1
        elif isinstance(node, ast.alias):
            name = node.asname or node.name.partition(".")[0]
            self.bindings[name] += 1
            self.imports[name] = node.name.rpartition(".")[2]
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            self.changes[_last_part(node.value)].append(node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
            self.changes[_last_part(node.target)].append(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changed = node.func.value if node.func.attr in _CHANGING else node
            self.changes[_last_part(changed)].append(node)

    def read(self) -> tuple[str, dict[str, dict[str, Any]]]:
        """The name and the features of the dict that is meant."""
        tables = self._tables()
        named = [(name, node) for name, node in tables if name == PREFERRED_NAME]
        tables = named or tables
        if not tables:
            raise TfodError(
                f"{self.path}: has no dict of {', '.join(_SIGNATURES)} that can be read without "
                f"running it; write {PREFERRED_NAME} = {{'width': tf.io.VarLenFeature(tf.int64)}}"
            )
        for name, _ in tables:
            self._refuse_changes(name)
        found = [self._features(node) for _, node in tables]
        if any(features != found[0] for features in found[1:]):
            places = " and ".join(
                f"{name or 'one'} in line {node.lineno}" for name, node in tables[:3]
            )
            raise TfodError(
                f"{self.path}: has {len(tables)} feature descriptions: {places}; "
                f"call the one that is meant {PREFERRED_NAME}, and only that one"
            )
        return tables[0][0], found[0]

    def _tables(self) -> list[tuple[str, ast.expr]]:
        """The outermost dicts of ``tf.io`` objects with their names, in the order of the file."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.expr) and _is_dict(node) and self._is_table(node)
        ]
        parts = {id(self.follow(one)) for node in found for key, one in _items(node) if key is None}
        outermost = [node for node in found if id(node) not in parts]
        outermost.sort(key=lambda node: (node.lineno, node.col_offset))
        return [(self.names.get(id(node), ""), node) for node in outermost]

    def _is_table(self, node: ast.expr) -> bool:
        """Whether a dict, or one that it is put together from, has a ``tf.io`` object."""
        node = self.follow(node)
        if id(node) not in self.is_known_table:
            self.is_known_table[id(node)] = False  # while this is asked, of circles
            self.is_known_table[id(node)] = any(
                self._is_table(value) if key is None else self._class_of(value)
                for key, value in _items(node)
            )
        return self.is_known_table[id(node)]

    def _refuse_changes(self, name: str) -> None:
        """A dict that is changed after it was made is another one when it is used.

        Where the name is bound again, the change may be of something else that has it.
        """
        for node in self.changes[name] if name else ():
            parts = (one for one in ast.walk(node) if isinstance(one, ast.expr))
            if (
                isinstance(node, ast.AugAssign)
                or self.bindings[name] == 1
                or any(self._class_of(one) or self._is_table(one) for one in parts)
            ):
                self.fail(
                    node,
                    f"{name} is changed here, which cannot be followed without running the file; "
                    "write it as one dict",
                )

    def _features(self, node: ast.expr) -> dict[str, dict[str, Any]]:
        """The features of a dict; each dict is read once, however often others take it over."""
        node = self.follow(node)
        if not _is_dict(node):
            self.fail_to_read(node)
        if id(node) not in self.known_features:
            found: dict[str, dict[str, Any]] = {}
            for key, value in _items(node):
                more = self._features(value) if key is None else self._feature(key, value)
                found.update(more)
                self.count += len(more)
                if self.count > _MOST_FEATURES:
                    self.fail(node, f"has more than {_MOST_FEATURES:,} features up to here")
            self.known_features[id(node)] = found
        return self.known_features[id(node)]

    def _feature(self, key_node: ast.expr | str, value: ast.expr) -> dict[str, dict[str, Any]]:
        key = key_node if isinstance(key_node, str) else self.literal(key_node)
        if not isinstance(key, str):
            self.fail(value, f"the key {key!r:.60} is not text")
        call = self.follow(value)
        name = self._class_of(call)
        if name is None or not isinstance(call, ast.Call):
            self.fail(
                value,
                f"{key!r} is {self.text(value)}, which is not supported or cannot be read without "
                f"running the file; give {', '.join(_SIGNATURES)}",
            )
        given = self._arguments(key, name, call)
        dtype = self._dtype(key, given.pop("dtype"))
        values = {parameter: self.literal(node) for parameter, node in given.items()}
        if name == "FixedLenSequenceFeature" and values.get("allow_missing") is not True:
            self.fail(
                call,
                f"{key!r} is a FixedLenSequenceFeature of a SequenceExample, which is not "
                "supported; of an Example it has allow_missing=True",
            )
        if name != "FixedLenFeature":  # any number of values
            return {key: {"kind": "VarLenFeature", "dtype": dtype}}
        shape, default = values["shape"], values.get("default_value")
        shape = [shape] if isinstance(shape, int) else shape
        feature = {"kind": "FixedLenFeature", "dtype": dtype, "shape": shape}
        return {key: feature if default is None else {**feature, "default": default}}

    def _arguments(self, key: str, name: str, call: ast.Call) -> dict[str, ast.expr]:
        """Each parameter with the expression that is given for it."""
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                self.fail_to_read(argument)
        keywords: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                self.fail_to_read(keyword.value)
            keywords[keyword.arg] = keyword.value
        try:
            return dict(_SIGNATURES[name].bind(*call.args, **keywords).arguments)
        except TypeError as error:
            self.fail(call, f"{key!r}: {name}: {error}")

    def _dtype(self, key: str, node: ast.expr) -> str:
        found = self.follow(node)
        is_text = isinstance(found, ast.Constant)
        name = str(self.literal(found)) if is_text else self.last_name(found)
        if name is None:
            self.fail_to_read(node)
        if name not in _DTYPES:
            self.fail(
                node,
                f"{key!r} has the dtype {self.text(node)}, and an Example holds tf.string, "
                "tf.int64 and tf.float32 only",
            )
        return _DTYPES[name]

    def _class_of(self, node: ast.expr) -> str | None:
        """``VarLenFeature`` and the like, if this is a call of it."""
        node = self.follow(node)
        name = self.last_name(node.func) if isinstance(node, ast.Call) else None
        return name if name in _SIGNATURES else None

    # Names and literals

    def follow(self, node: ast.expr) -> ast.expr:
        """What a name stands for; every other expression is itself."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(node, ast.Name) or self.bindings[node.id] != 1:
                break
            node = self.assigned.get(node.id, node)
        return node

    def last_name(self, node: ast.expr) -> str | None:
        """``VarLenFeature`` for whatever spelling of ``tf.io.VarLenFeature``; None for others."""
        node = self.follow(node)
        if isinstance(node, ast.Attribute):
            return node.attr
        if not isinstance(node, ast.Name):
            return None
        return self.imports.get(node.id, None if self.bindings[node.id] else node.id)

    def literal(self, node: ast.expr, *, in_list: bool = False) -> Any:
        """The value of a literal, or of a list of literals and names; tuples become lists."""
        found = self.follow(node)
        if isinstance(found, (ast.List, ast.Tuple)):
            if in_list and found is not node:  # lists of names of lists grow without end
                self.fail_to_read(node)
            return [self.literal(one, in_list=True) for one in found.elts]
        try:
            return ast.literal_eval(found)
        except (ValueError, TypeError, SyntaxError):
            self.fail_to_read(found)

    def fail(self, node: ast.AST, what: str) -> NoReturn:
        """Raise a TfodError that names the line."""
        raise TfodError(f"{self.path}:{getattr(node, 'lineno', 1)}: {what}")

    def fail_to_read(self, node: ast.AST) -> NoReturn:
        """Raise a TfodError: this expression cannot be known without running the file."""
        why = ""
        if isinstance(node, ast.Name):
            count = self.bindings[node.id]
            why = f" (it is set in {count} places)" if count else " (it is not set in this file)"
            why = " (it is imported)" if node.id in self.imports else why if count != 1 else ""
        self.fail(
            node,
            f"{self.text(node)} cannot be read without running the file{why}; "
            "write its value instead",
        )

    def text(self, node: ast.AST) -> str:
        """The source of an expression, in one short line."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= 60 else text[:59] + "…"


def _is_dict(node: ast.expr) -> bool:
    """Whether an expression makes a dict in a way that is known here."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "dict"
    is_union = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
    return is_union or isinstance(node, ast.Dict)


def _items(node: ast.expr) -> Iterator[tuple[ast.expr | str | None, ast.expr]]:
    """Keys and values of a dict; None is the key of a dict that it takes over."""
    if isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.Call) and _is_dict(node):
        yield from ((None, argument) for argument in node.args)
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords)
    elif isinstance(node, ast.BinOp) and _is_dict(node):
        yield None, node.left
        yield None, node.right


def _last_part(node: ast.expr) -> str:
    """The name of a variable, or of an attribute; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

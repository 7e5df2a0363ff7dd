"""Calls such as ``tf.io.FixedLenFeature([], tf.string)`` in Python source, as feature specs.

TensorFlow 1's names are taken too. What becomes of each class: a FixedLenSequenceFeature and a
RaggedFeature of an Example hold any number of values, as a VarLenFeature does; a SparseFeature
and the features of a SequenceExample are not supported.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any

from tfod.schema import FeatureSpec
from tfod.wire import Kind

from tfod_validator.feature_values import DTYPES, FeatureValueError, fixed_length, known_meaning
from tfod_validator.python_source import PythonSource

_PARAMETERS = {
    "FixedLenFeature": ("shape", "dtype", "default_value"),
    "VarLenFeature": ("dtype",),
    "FixedLenSequenceFeature": ("shape", "dtype", "allow_missing", "default_value"),
    "RaggedFeature": ("dtype", "value_key", "partitions", "row_splits_dtype", "validate"),
    "SparseFeature": ("index_key", "value_key", "dtype", "size", "already_sorted"),
}
_NEEDED = {"shape", "dtype"}
_NUMPY_TEXTS = ("str_", "bytes_", "object_")


class FeatureCalls:
    """Reads the ``tf.io`` features of a file."""

    def __init__(self, source: PythonSource) -> None:
        self.source = source

    def class_of(self, node: ast.expr) -> str | None:
        """``VarLenFeature`` and the like, if this is a call of it."""
        node = self.source.follow(node)
        if not isinstance(node, ast.Call):
            return None
        module, _, name = (self.source.dotted(node.func) or "").rpartition(".")
        is_tensorflow = module.partition(".")[0] in ("", "tensorflow")
        return name if is_tensorflow and name in _PARAMETERS else None

    def read(self, key: str, value: ast.expr) -> tuple[str, FeatureSpec]:
        """The feature's key in the record (a RaggedFeature may name another) and what it is.

        Raises:
            TfodError: it is none, not supported, or cannot be read without running the file.
        """
        call = self.source.follow(value)
        name = self.class_of(call)
        if name is None or not isinstance(call, ast.Call):
            self.source.fail(
                value,
                f"{key!r} is {self.source.text(value)}, which is no tf.io feature or cannot be "
                "read without running the file",
            )
        if name == "SparseFeature":
            self.source.fail(
                call,
                f"{key!r} is a SparseFeature, which is not supported; describe the features of "
                "its indices and values as VarLenFeature",
            )
        arguments = self._arguments(key, name, call)
        kind = self._kind(key, arguments["dtype"])
        if name == "FixedLenFeature":
            return key, self._fixed(key, kind, call, arguments)
        if name == "FixedLenSequenceFeature":
            self._refuse_sequence_example(key, call, arguments)
        if name == "RaggedFeature":
            key = self._ragged_key(key, call, arguments)
        return key, FeatureSpec(kind, meaning=known_meaning(key))

    def _arguments(self, key: str, name: str, call: ast.Call) -> dict[str, ast.expr]:
        """Each parameter with the expression that is given for it."""
        parameters = _PARAMETERS[name]
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
        for argument in found.values():
            if isinstance(argument, ast.Starred):
                self.source.fail_to_read(argument)
        for parameter in parameters:
            if parameter in _NEEDED and parameter not in found:
                self.source.fail(call, f"{key!r}: {name} is given no {parameter}")
        return found

    def _kind(self, key: str, node: ast.expr) -> Kind:
        name = self._dtype_name(self.source.follow(node))
        if name not in DTYPES:
            self.source.fail(
                node,
                f"{key!r} has the dtype {self.source.text(node)}, and an Example holds tf.string, "
                "tf.int64 and tf.float32 only",
            )
        return DTYPES[name]

    def _dtype_name(self, node: ast.expr) -> str:
        """TensorFlow's name of a dtype, for what ``tf.as_dtype`` takes."""
        if isinstance(node, ast.Constant):
            name = str(node.value)
        else:
            dotted = self.source.dotted(node)
            if dotted is None:
                self.source.fail_to_read(node)
            module, _, name = dotted.rpartition(".")
            if module == "numpy":
                return "string" if name in _NUMPY_TEXTS else name
            if not module.startswith("tensorflow") and not hasattr(builtins, dotted):
                self.source.fail_to_read(node)
        return "float32" if name == "float" else name

    def _fixed(
        self, key: str, kind: Kind, call: ast.Call, arguments: dict[str, ast.expr]
    ) -> FeatureSpec:
        values: dict[str, Any] = {
            name: self.source.value(arguments[name]) if name in arguments else None
            for name in ("shape", "default_value")
        }
        try:
            return fixed_length(
                kind, values["shape"], values["default_value"], meaning=known_meaning(key)
            )
        except FeatureValueError as error:
            self.source.fail(call, f"{key!r}: {error}")

    def _refuse_sequence_example(
        self, key: str, call: ast.Call, arguments: dict[str, ast.expr]
    ) -> None:
        missing = arguments.get("allow_missing")
        if missing is None or self.source.value(missing) is not True:
            self.source.fail(
                call,
                f"{key!r} is a FixedLenSequenceFeature of a SequenceExample, which is not "
                "supported; of an Example it has allow_missing=True",
            )

    def _ragged_key(self, key: str, call: ast.Call, arguments: dict[str, ast.expr]) -> str:
        if "partitions" in arguments and self.source.value(arguments["partitions"]):
            self.source.fail(call, f"{key!r}: a RaggedFeature of several rows is not supported")
        value_key = arguments.get("value_key")
        named = self.source.value(value_key) if value_key else None
        return key if named is None else str(named)

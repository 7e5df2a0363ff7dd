"""The configuration of a check: ``tfod.toml``, or ``[tool.tfod]`` of ``pyproject.toml``.

``tfod.schema.json`` has the list of the keys, for editors and for this module: what is described
there is what is taken, and the descriptions are the words of the errors.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfod.check.findings.finding import Severity
from tfod.check.profiles.policy import Selection
from tfod.check.profiles.profile import OFF, READY, Severities
from tfod.check.rules.registry import FAMILIES, all_rules, require_rule_names
from tfod.detection.labels.label_map import packaged_label_maps
from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.storage.urls import is_url

FILES = ("tfod.toml", "pyproject.toml")
"""Names of the files, in each folder the first that is there."""
_LARGEST_FILE = 256 << 10
_NESTED = "is nested too deeply for a configuration"
_TABLE = ("tool", "tfod")
_MENTION = re.compile(rb"tool\W+tfod|^\s*\[\s*tool\s*\]", re.MULTILINE)
_TOO_DEEP = re.compile(rb"(?:\.[^.\n=,]+){64}")
"""Keys of so many parts take memory that is the square of them."""
_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "profile": lambda: READY,
    "label-map": packaged_label_maps,
}
"""What the keys of paths may name besides."""


@dataclass(frozen=True)
class Configuration:
    """What a file says.

    Attributes:
        file: its path; None where there is none.
        folder: the file's, to which paths in it are relative.
        values: by key, as they are in the file.
    """

    file: str | None = None
    folder: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """A value, of paths as they are from the working folder; None where the file has none."""
        value: Any = self.values.get(key)
        if not isinstance(value, str) or schema()["properties"][key].get("format") != "path":
            return value
        is_name = is_url(value) or value in _NAMES.get(key, tuple)()
        return value if is_name else os.path.join(self.folder, value)

    def selection(self) -> Selection:
        """What it says of rules for all shards."""
        return _selection(self.values)

    def selections_by_path(self) -> Mapping[str, Selection]:
        """What it says of rules for some shards, by the patterns of their paths."""
        tables = self.values.get("per-path", {})
        return {pattern: _selection(table) for pattern, table in tables.items()}

    def require_no_files(self) -> None:
        """Refuse paths, of a file that comes from another machine.

        Raises:
            TfodError: it has some.
        """
        for key, value in self.values.items():
            names = _NAMES.get(key, tuple)()
            if schema()["properties"][key].get("format") == "path" and value not in names:
                raise TfodError(
                    f"{self.file}: {key}: a file cannot be named here"
                    + (f"; give {', '.join(names)}, or leave it out" if names else "")
                )


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    import importlib.resources  # loaded where there is a configuration

    file = importlib.resources.files("tfod.check").joinpath("tfod.schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def find_configuration() -> Configuration:
    """The nearest file in the working folder and those above it; without any, none.

    Raises:
        TfodError: it is not what it should be.
    """
    try:
        folder, above = os.getcwd(), ""
    except OSError:  # it was deleted
        return Configuration()
    while True:
        for name in FILES:
            path = os.path.join(above, name)
            if os.path.isfile(path) and (found := _load(path, path)) is not None:
                return found
        if os.path.dirname(folder) == folder:
            return Configuration()
        folder, above = os.path.dirname(folder), os.path.join(above, os.pardir)


def load_configuration(path: str, name: str | None = None) -> Configuration:
    """The configuration in a file.

    Args:
        path: where the file is.
        name: what it is called, if not that; paths in it are relative to this one.

    Raises:
        TfodError: it has none, or it is not what it should be.
        OSError: it cannot be read.
    """
    found = _load(path, name or path)
    if found is None:
        raise TfodError(f"{name or path}: has no [tool.tfod]; add it, or name another file")
    return found


def _load(path: str, name: str) -> Configuration | None:
    with open(path, "rb") as file:
        return read_configuration(file.read(_LARGEST_FILE + 1), name, os.path.dirname(name))


def read_configuration(data: bytes, file: str, folder: str = "") -> Configuration | None:
    """The configuration that is the content of a file; None of a pyproject.toml without one.

    Args:
        data: the content.
        file: its name, or its path; that of a pyproject.toml decides that it is one.
        folder: to which paths in it are relative.

    Raises:
        TfodError: it is not TOML, or has other keys or values than the schema; one line says
            where and why.
    """
    is_project = os.path.basename(file) == "pyproject.toml"
    if is_project and not _MENTION.search(data):
        return None
    if len(data) > _LARGEST_FILE:
        raise TfodError(f"{file}: is larger than {_LARGEST_FILE >> 10} KiB")
    if _TOO_DEEP.search(data):
        raise TfodError(f"{file}: {_NESTED}")
    table = _TABLE if is_project else ()
    try:
        text = data.decode("utf-8-sig")
        values = _toml(file).loads(text)
        for name in table:
            values = values.get(name) if isinstance(values, dict) else None
        if values is None:
            return None
        _Check(file, text, table).value(values, schema(), ())
    except RecursionError:
        raise TfodError(f"{file}: {_NESTED}") from None
    except ValueError as error:  # of dates and of bytes that are not UTF-8, too
        what, _, place = str(error).partition(" (at line ")
        line = f":{place.partition(',')[0]}" if place else ""
        if "'\\n'" in what:
            what += "; is a quotation mark missing?"
        raise TfodError(f"{file}{line}: is not valid TOML: {what}") from None
    return Configuration(file, folder, values)


def _toml(file: str) -> Any:
    for name in ("tomllib", "tomli"):  # the first is Python's own from 3.11 on
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise TfodError(
        f"{file}: Python 3.10 needs tomli to read it: {how_to_install('validator')}; or pass "
        "--no-config"
    )


def _selection(values: Mapping[str, Any]) -> Selection:
    return Selection(
        values.get("select"),
        values.get("ignore", ()),
        severities_of(values.get("severities", {})),
    )


def severities_of(words: Mapping[str, str]) -> Severities:
    """Severities by their words; ``off`` is one."""
    return {name: OFF if word == "off" else Severity(word) for name, word in words.items()}


def to_toml(configuration: Configuration) -> str:
    """All keys with their values and where these are from, as a file that can be saved again."""
    defaults = {key: one.get("default") for key, one in schema()["properties"].items()}
    file = _toml_value(configuration.file or "")[1:-1]  # what cannot be printed is escaped
    unset = dict.fromkeys(defaults.keys() - configuration.values.keys(), "default")
    lines = _toml_lines({**defaults, **configuration.values}, "", file, unset)
    return "".join(f"{line}\n" for line in lines)


def _toml_lines(
    values: Mapping[str, Any], table: str, origin: str, origins: Mapping[str, str]
) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if value is None:
            yield f"# {key} is not set"
        elif key not in tables:
            yield f"{_toml_key(key)} = {_toml_value(value)}  # {origins.get(key, origin)}"
    for key, value in tables.items():
        name = f"{table}.{_toml_key(key)}" if table else _toml_key(key)
        if not all(isinstance(one, dict) for one in value.values()) or not value:
            yield f"\n[{name}]"
        yield from _toml_lines(value, name, origin, {})


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)


@dataclass(frozen=True)
class _Check:
    """Holds a file against as much of JSON Schema as the schema has."""

    file: str
    text: str
    table: Sequence[str]

    def value(self, value: Any, schema_of: Mapping[str, Any], path: Sequence[str]) -> None:
        """Check a value, and those in it."""
        if "$ref" in schema_of:
            schema_of = schema()["definitions"][schema_of["$ref"].rpartition("/")[2]]
        if schema_of is schema()["definitions"]["name"] and isinstance(value, str):
            self._rule(value, path)
        elif not _fits(value, schema_of):
            shown = json.dumps(value, default=str)
            if len(shown) > 80:
                shown = shown[:79] + "…"
            self._refuse(path, f"expected {schema_of['description']}, not {shown}")
        if isinstance(value, list):
            for one in value:
                self.value(one, schema_of["items"], path)
        elif isinstance(value, dict):
            for key, one in value.items():
                self.value(one, self._schema_of_key(key, schema_of, path), (*path, key))

    def _schema_of_key(
        self, key: str, schema_of: Mapping[str, Any], path: Sequence[str]
    ) -> Mapping[str, Any]:
        known: dict[str, Mapping[str, Any]] = schema_of.get("properties", {})
        others: Mapping[str, Any] = schema_of["additionalProperties"]
        if "patternProperties" in schema_of:
            self._rule(key, (*path, key))
            (others,) = schema_of["patternProperties"].values()
        if key not in known and not others:
            import difflib  # loaded for an error alone

            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            self._refuse((*path, key), f"there is no such key; {hint}")
        return known.get(key, others)

    def _rule(self, name: str, path: Sequence[str]) -> None:
        if name not in _names_of_rules():  # where it is takes a while to find
            require_rule_names([name], self._where(path))

    def _refuse(self, path: Sequence[str], what: str) -> None:
        raise TfodError(f"{self._where(path)}: {what}")

    def _where(self, path: Sequence[str]) -> str:
        """``tfod.toml:3: per-path."val/*".ignore``."""
        line = _line_of(self.text, (*self.table, *path), self.file)
        name = ".".join(map(_toml_key, path)) or "the file"
        return f"{self.file}{f':{line}' if line else ''}: {name}"


@functools.cache
def _names_of_rules() -> frozenset[str]:
    return frozenset((*FAMILIES, *all_rules()))


def _fits(value: Any, schema_of: Mapping[str, Any]) -> bool:
    """Whether a value is what a schema describes, without those in it."""
    types = {"string": str, "boolean": bool, "array": list, "object": dict}
    if not isinstance(value, types[schema_of.get("type", "string")]):
        return False
    if isinstance(value, str) and "pattern" in schema_of:
        return bool(re.search(schema_of["pattern"], value))
    if isinstance(value, list):
        return bool(value) or not schema_of.get("minItems")
    return "enum" not in schema_of or value in schema_of["enum"]


def _line_of(text: str, path: Sequence[str], file: str) -> int | None:
    """The line of a key, or of what it is in, from 1; None where it is spread too far to find."""
    header: tuple[str, ...] = ()
    found = None
    for number, line in enumerate(text.split("\n"), 1):
        key, equals, _ = line.partition("=")
        is_header = line.lstrip().startswith("[")
        if not is_header and not equals:
            continue
        try:
            keys = tuple(_keys(_toml(file).loads(line if is_header else f"{key}=0")))
        except ValueError:
            continue
        if is_header:
            header, keys = keys, ()
        here = (*header, *keys)
        if here[: len(path)] == tuple(path):
            return number
        if keys and here == tuple(path[: len(here)]):
            found = number
    return found


def _keys(table: Any) -> Iterator[str]:
    """The keys from a table to the one value in it."""
    while table and isinstance(table, (dict, list)):
        if isinstance(table, dict):
            yield next(iter(table))
        table = next(iter(table.values() if isinstance(table, dict) else table))

"""The settings of a configuration file, with their lines: protobuf's text format, and YAML.

No schema is needed: what is looked up must be what is expected there, the rest may be anything, as
the trainers' files have hundreds of fields and gain more with every release.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from google.protobuf import text_format

from tfod.convert.documents import yaml_error
from tfod.errors import TfodError, how_to_install

Scalar: TypeAlias = "str | int | float | bool"
_T = TypeVar("_T", str, int, bool)
_YAML = (".yaml", ".yml")
_LARGEST_FILE = 256 << 10
_MOST_VALUES = 1 << 16  # an alias of YAML that is named often makes many out of one
_LONGEST_NUMBER = 400
_LARGEST_INT = (1 << 31) - 1
_LONGEST_RUN = "\\" * 200  # protobuf takes quadratic time for backslashes in a row
_LONGEST_LINE = 1 << 16  # and copies the line for each value
_MERGED = "tag:yaml.org,2002:merge"
_PLAIN = (":bool", ":int", ":float")
_BLOCKS = (("{", "}"), ("<", ">"))
_WORDS = {"true": True, "false": False}
_EXPECTED = {str: "a text", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True)
class Setting:
    """One value.

    Attributes:
        path: the names of the fields that lead to it: ``model.ssd.num_classes``.
        value: what is set, or the default.
        line: in the file, from 1; None for a default.
    """

    path: str
    value: Any
    line: int | None = None

    def __str__(self) -> str:
        """```train_config.batch_size: 32` (line 12)``."""
        where = "the default" if self.line is None else f"line {self.line}"
        return f"`{self.path}: {_shown(self.value)}` ({where})"

    def set_to(self, value: Scalar) -> str:
        """What to do for another value: ``Set `model.ssd.num_classes: 3` in line 4.``."""
        where = "" if self.line is None else f" in line {self.line}"
        return f"Set `{self.path}: {_shown(value)}`{where}."


def _shown(value: Scalar) -> str:
    """As the file has it: texts in quotes, names of constants (``PNG_MASKS``) without."""
    is_name = isinstance(value, str) and value.isidentifier() and value.isupper()
    return str(value) if is_name else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Section:
    """Fields under their names; those that are repeated, and lists, have several values.

    Attributes:
        file: the path of the configuration.
        path: the names of the fields that lead here; empty for the whole file.
        fields: by name; a value is a section or a setting.
    """

    file: str
    path: str = ""
    fields: Mapping[str, Sequence[Section | Setting]] = field(default_factory=dict)

    def sections(self, path: str) -> list[Section]:
        """All sections that names with dots between them lead to.

        Raises:
            TfodError: a single value stands there.
        """
        first, _, rest = path.partition(".")
        found = []
        for one in self.fields.get(first, ()):
            if isinstance(one, Setting):
                raise self._error(one, "fields")
            found += one.sections(rest) if rest else [one]
        return found

    def settings(self, path: str, kind: type[_T]) -> list[Setting]:
        """All values that names lead to; where they lead to a section, all values in that.

        Raises:
            TfodError: one of them is of another kind.
        """
        above, _, name = path.rpartition(".")
        found = []
        for section in self.sections(above) if above else (self,):
            for one in section.fields.get(name, ()):
                if isinstance(one, Section):
                    found += [each for inner in one.fields for each in one.settings(inner, kind)]
                elif not _is_a(one.value, kind):
                    raise self._error(one, _EXPECTED[kind])
                else:
                    found.append(one)
        return found

    def get(self, path: str, kind: type[_T], default: _T) -> Setting:
        """The only value that names lead to, or the default.

        Raises:
            TfodError: it is of another kind, or there are several.
        """
        whole = _joined(self.path, path)
        found = self.settings(path, kind)
        if len(found) > 1:
            times = f"{len(found)} times; the trainer takes it once"
            raise TfodError(f"{self.file}:{found[1].line}: {whole} is given {times}")
        return found[0] if found else Setting(whole, default)

    def _error(self, found: Setting, expected: str) -> TfodError:
        shown = _shown(found.value)[:60]
        return TfodError(
            f"{self.file}:{found.line}: {found.path}: expected {expected}, not {shown}"
        )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_a(value: Scalar, kind: type) -> bool:
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST_INT
    return isinstance(value, kind)


def read_settings(path: str) -> tuple[Section, bool]:
    """Read a configuration.

    Returns:
        Its fields, and whether it is YAML, which its name says.

    Raises:
        TfodError: it cannot be read, or is neither YAML nor protobuf's text format; one line says
            where and why.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise TfodError(f"{path} is not a file")
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise TfodError(f"{path}: {error.strerror}") from None
    if len(data) > _LARGEST_FILE:
        most = _LARGEST_FILE >> 10
        raise TfodError(
            f"{path}: is larger than {most} KiB, so it is not a trainer's configuration"
        )
    is_yaml = path.lower().endswith(_YAML)
    try:
        text = data.decode("utf-8-sig")
        return (_read_yaml if is_yaml else _read_text_format)(text, path), is_yaml
    except UnicodeDecodeError as error:
        raise TfodError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    except RecursionError:
        raise TfodError(f"{path}: is nested too deeply for a configuration") from None


# Protobuf's text format


def _read_text_format(text: str, file: str) -> Section:
    if _LONGEST_RUN in text:
        raise TfodError(f"{file}: has more than {len(_LONGEST_RUN)} backslashes in a row")
    lines = text.split("\n")
    if max(map(len, lines)) > _LONGEST_LINE:
        raise TfodError(f"{file}: has a line of more than {_LONGEST_LINE} characters")
    try:
        tokens = text_format.Tokenizer(lines)
        return Section(file, "", _message(tokens, file, "", end=""))
    except text_format.ParseError as error:
        reason = str(error).rpartition("': ")[2].strip().rstrip(".")[:100]
        place = f"{file}:{error.GetLine()}:{error.GetColumn()}"
        raise TfodError(f"{place}: not protobuf's text format: {reason}") from None


def _message(
    tokens: text_format.Tokenizer, file: str, path: str, end: str
) -> dict[str, list[Section | Setting]]:
    """The fields up to the end of a message; ``end`` is empty at the end of the file."""
    found: dict[str, list[Section | Setting]] = {}
    while not tokens.TryConsume(end):
        name = _field_name(tokens)
        values = found.setdefault(name, [])
        has_colon, inner = tokens.TryConsume(":"), _joined(path, name)
        if not tokens.TryConsume("["):
            values.append(_value(tokens, file, inner, has_colon))
        elif not tokens.TryConsume("]"):
            values.append(_value(tokens, file, inner, has_colon))
            while not tokens.TryConsume("]"):
                tokens.Consume(",")
                values.append(_value(tokens, file, inner, has_colon))
        if not tokens.TryConsume(","):
            tokens.TryConsume(";")
    return found


def _field_name(tokens: text_format.Tokenizer) -> str:
    """The name of a field; that of an extension stands in brackets, with dots and slashes."""
    if not tokens.TryConsume("["):
        return str(tokens.ConsumeIdentifier())
    parts = []
    while not tokens.TryConsume("]"):
        if tokens.AtEnd():
            raise tokens.ParseError('Expected "]".')
        parts.append(tokens.token)
        tokens.NextToken()
    return f"[{''.join(parts)}]"


def _value(
    tokens: text_format.Tokenizer, file: str, path: str, has_colon: bool
) -> Section | Setting:
    for start, end in _BLOCKS:
        if tokens.TryConsume(start):
            return Section(file, path, _message(tokens, file, path, end))
    if not has_colon:
        raise tokens.ParseError('Expected ":".')
    line = tokens.ParseError("").GetLine()
    if tokens.token[:1] in ("'", '"'):
        return Setting(path, tokens.ConsumeString(), line)
    sign = "-" if tokens.TryConsume("-") else ""
    word = tokens.token
    if not word or word in "{}<>[]:,;":
        raise tokens.ParseError("Expected a value.")
    tokens.NextToken()
    return Setting(path, _scalar(sign + word), line)


def _scalar(word: str) -> Scalar:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) <= _LONGEST_NUMBER:
        with suppress(ValueError):
            return int(word, 0)
        with suppress(ValueError):
            return float(word.rstrip("fF"))
    return word


# YAML


def _read_yaml(text: str, file: str) -> Section:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        hint = how_to_install("validator")
        raise TfodError(f"{file}: configurations in YAML need PyYAML; {hint}") from None
    left = itertools.count(_MOST_VALUES, -1)

    def values(node: Any, path: str) -> list[Section | Setting]:
        """What a node holds: a section, the values of a list, a value, or nothing."""
        if next(left) < 0:
            raise TfodError(f"{file}: has more than {_MOST_VALUES} values")
        if isinstance(node, yaml.SequenceNode):
            return [each for one in node.value for each in values(one, path)]
        if isinstance(node, yaml.MappingNode):
            own: dict[str, Sequence[Section | Setting]] = {}
            merged: dict[str, Sequence[Section | Setting]] = {}
            for key, value in node.value:
                if key.tag == _MERGED:
                    for one in values(value, path):
                        merged.update(one.fields if isinstance(one, Section) else {})
                elif isinstance(key, yaml.ScalarNode):
                    own[key.value] = values(value, _joined(path, key.value))
            return [Section(file, path, {**merged, **own})]
        if node is None or node.tag.endswith(":null"):
            return []
        is_plain = node.tag.endswith(_PLAIN) and len(node.value) <= _LONGEST_NUMBER
        value = node.value
        if is_plain:
            with suppress(ValueError, LookupError):  # of a tag such as !!int, the text says no
                value = loader.construct_object(node)
        return [Setting(path, value, node.start_mark.line + 1)]

    try:
        loader = yaml.SafeLoader(text)
        found = values(loader.get_single_node(), "")
    except yaml.YAMLError as error:
        raise yaml_error(file, error) from None
    if len(found) == 1 and isinstance(found[0], Section):
        return found[0]
    raise TfodError(f"{file}: expected fields such as task:")

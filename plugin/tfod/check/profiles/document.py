"""YAML and JSON files from anybody, held against a JSON schema.

Aliases in YAML (which grow small files into huge documents) are refused, and so is a key that is
given twice, of which parsers silently drop one.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfod.errors import TfodError, how_to_install

LARGEST_FILE = 256 << 10
_LONGEST_NUMBER = 400
"""Characters; a number to base 60 (1:1:1:…) would cost the square of its length."""
_LONGEST_MESSAGE = 160


def load(path: str, schema: dict[str, Any]) -> Any:
    """What a YAML file, or a JSON file by its name, holds.

    Raises:
        TfodError: it cannot be read, or does not fit the schema; or PyYAML or jsonschema is absent.
    """
    data = read_file(path)
    parse = _parse_json if Path(path).suffix.lower() == ".json" else _parse_yaml
    try:
        document = parse(data, path)
        require_schema(document, schema, path)
    except RecursionError:
        raise TfodError(f"{path}: is nested too deeply for a profile") from None
    return document


def read_file(path: str) -> bytes:
    """The bytes of a file that a person wrote; TfodError where it cannot be one."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise TfodError(f"{path}: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise TfodError(f"{path}: is larger than {LARGEST_FILE >> 10} KiB, so it is not a profile")
    return data


def require_schema(document: Any, schema: dict[str, Any], source: str) -> None:
    """Raise TfodError where a document does not fit a schema, or jsonschema is absent.

    The line has jsonschema's words, and the description of what was expected.
    """
    jsonschema = import_extra("jsonschema", "profiles in files need jsonschema")
    try:  # half a character, such as \ud800, and numbers that Python refuses to print
        json.dumps(document, ensure_ascii=False, skipkeys=True, default=str).encode()
    except ValueError:
        raise TfodError(f"{source}: has a value that JSON in UTF-8 cannot hold") from None
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(document))
    if not errors:
        return
    error = jsonschema.exceptions.best_match(errors)
    # Of an anyOf the whole has the description, not each of its parts.
    while error.parent is not None and "description" not in error.schema:
        error = error.parent
    what = " ".join(error.message.split())
    if len(what) > _LONGEST_MESSAGE:  # the value comes first, what is wrong with it last
        what = f"{what[:60]}…{what[-90:]}"
    expected = f"; expected {error.schema['description']}" if "description" in error.schema else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    where = ": ".join(filter(None, (source, _path(error.absolute_path))))
    raise TfodError(f"{where}: {what}{expected}{more}")


def import_extra(module: str, why: str) -> Any:
    """A module of an extra; TfodError says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise TfodError(f"{why}; {how_to_install('validator')}") from None


def _path(path: Sequence[Any]) -> str:
    """``features['image/encoded'].kind``."""
    text = ""
    for step in path:
        is_name = isinstance(step, str) and step.isidentifier()
        text += (f".{step}" if text else step) if is_name else f"[{step!r:.60}]"
    return text


def _parse_yaml(data: bytes, source: str) -> Any:
    yaml = import_extra("yaml", "profiles in YAML need PyYAML")

    def fail(what: str, mark: Any) -> None:
        raise yaml.MarkedYAMLError(None, None, what, mark)

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                fail("a profile has no aliases (*)", self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def construct_scalar(self, node: Any) -> Any:
            if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
                fail(f"a number of {len(node.value):,} characters", node.start_mark)
            return super().construct_scalar(node)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key.value, str) and key.value in seen:
                    fail(f"{key.value!r:.60} is given twice", key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(data.decode("utf-8-sig"), Loader)
    except (yaml.YAMLError, ValueError) as error:  # such as of a date, or bytes not UTF-8
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TfodError(f"{source}{line}: not a valid YAML file: {what}") from None


def _parse_json(data: bytes, source: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"{key!r:.60} is given twice")
            found[key] = value
        return found

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise TfodError(f"{source}:{error.lineno}: not a valid JSON file: {error.msg}") from None
    except ValueError as error:  # such as an integer of thousands of digits
        raise TfodError(f"{source}: not a valid JSON file: {error}") from None

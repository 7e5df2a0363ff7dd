"""YAML and JSON of profile files: parsed with care, then held against the schema.

A profile may come from anybody, so aliases (which grow small files into huge documents) are
refused, and so is a key that comes twice, of which parsers silently drop one.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.resources
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from tfod.check.profiles.feature_values import is_utf8, shown
from tfod.errors import TfodError, how_to_install

_LONGEST_NUMBER = 400
"""Characters; a number to base 60 (1:1:1:…) would cost the square of its length."""
_ODD_LINE_BREAKS = frozenset("\x85\u2028\u2029")


def _yaml_module() -> ModuleType:
    """PyYAML.

    Raises:
        TfodError: it is absent.
    """
    try:
        return importlib.import_module("yaml")
    except ImportError:
        raise TfodError(f"profiles in YAML need PyYAML; {how_to_install('validator')}") from None


def parse_yaml(data: bytes, source: str) -> Any:
    """The content of a YAML file.

    Raises:
        TfodError: it is no YAML, has aliases, or a key twice.
    """
    yaml = _yaml_module()
    try:
        loader = yaml.SafeLoader(data.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_aliases_and_repeats(yaml, node, source)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TfodError(f"{source}{line}: is no YAML: {what}") from None
    except UnicodeDecodeError:
        raise TfodError(f"{source}: is no text in UTF-8") from None
    except ValueError as error:  # such as a date that does not exist
        raise TfodError(f"{source}: has a value that is none: {error}") from None


def _refuse_aliases_and_repeats(yaml: ModuleType, root: Any, source: str) -> None:
    seen_nodes = set()
    pending = [root]
    while pending:
        node = pending.pop()
        line = node.start_mark.line + 1
        if id(node) in seen_nodes:
            raise TfodError(
                f"{source}:{line}: is used again by an alias (*), which a profile cannot have"
            )
        seen_nodes.add(id(node))
        if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
            raise TfodError(f"{source}:{line}: has a number of {len(node.value):,} characters")
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            seen_keys = set()
            for key, value in node.value:
                pending += key, value
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in seen_keys:
                    line = key.start_mark.line + 1
                    raise TfodError(f"{source}:{line}: has {shown(key.value)} twice")
                seen_keys.add(key.value)


def to_yaml(document: Any) -> str:
    """A document as YAML that :func:`parse_yaml` reads back equal.

    Raises:
        TfodError: PyYAML is absent.
    """
    yaml = _yaml_module()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        pass

    def represent(dumper: Any, text: str) -> Any:
        # PyYAML itself writes these so that it reads them back as spaces.
        style = '"' if _ODD_LINE_BREAKS & set(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=80)
    return text


def parse_json(data: bytes, source: str) -> Any:
    """The content of a JSON file.

    Raises:
        TfodError: it is no JSON, or has a key twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            raise TfodError(f"{source}: has {shown(counts.most_common(1)[0][0])} twice")
        return found

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise TfodError(f"{source}:{error.lineno}: is no JSON: {error.msg}") from None
    except UnicodeDecodeError:
        raise TfodError(f"{source}: is no text in UTF-8") from None
    except ValueError as error:  # such as an integer of thousands of digits
        raise TfodError(f"{source}: has a value that is none: {error}") from None


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a profile file."""
    file = importlib.resources.files("tfod.check.profiles").joinpath("profile.schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def require_schema(document: Any, source: str) -> None:
    """Hold a document against the schema.

    Raises:
        TfodError: it does not fit; or jsonschema is absent.
    """
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match
    except ImportError:
        raise TfodError(
            f"profiles in files need jsonschema; {how_to_install('validator')}"
        ) from None
    for path, what in _odd_values(document):
        raise TfodError(f"{source}: {_path(path)}: {what}")
    errors = list(Draft202012Validator(schema()).iter_errors(document))
    if errors:
        # The context of an anyOf says less than the description of what it is part of.
        error = best_match(errors, key=lambda one: (-len(one.path), one.validator != "required"))
        while error.parent is not None:
            error = error.parent
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise TfodError(f"{source}: {_path(error.absolute_path)}: {_what(error)}{more}")


def _odd_values(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, str]]:
    """What no schema can say: keys that are no texts, and texts that are none in UTF-8."""
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(key, str):
                yield from _odd_values(key, path)
                yield from _odd_values(value, (*path, key))
            else:  # YAML reads a bare 1, yes or null as something else.
                yield path, f"the key {shown(key)} is no text; put quotes around it"
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from _odd_values(value, (*path, place))
    elif isinstance(document, str) and not is_utf8(document):
        yield path, f"{shown(document)} has half a character"


def _path(path: Sequence[Any]) -> str:
    """``features['image/encoded'].kind``."""
    text = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text or "the file"


def _what(error: Any) -> str:
    """What was expected, in the words of the schema's descriptions."""
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f"{missing} is missing"
    if error.validator == "additionalProperties":
        known = list(error.schema["properties"])
        odd = next(name for name in error.instance if name not in known)
        near = difflib.get_close_matches(odd, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"there is no field {odd!r}; {hint}"
    return f"expected {error.schema['description']}; found {shown(error.instance)}"

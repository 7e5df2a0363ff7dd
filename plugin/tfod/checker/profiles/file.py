"""Profiles from files of anybody: YAML and JSON after ``profile.schema.json``, and Python source.

Aliases in YAML (which grow small files into huge documents) are refused, and so is a key that is
given twice, of which parsers silently drop one.
"""

from __future__ import annotations

import base64
import difflib
import functools
import importlib
import importlib.resources
import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tfod.checker.finding import Severity
from tfod.checker.profiles.profile import (
    OFF,
    READY,
    Profile,
    field_mapping_among,
    known_meaning,
    profile_of_features,
)
from tfod.checker.profiles.python_source import PythonSource
from tfod.checker.rules.registry import require_rule_names
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.errors import TfodError, how_to_install
from tfod.example.wire import Kind

_LARGEST_FILE = 256 << 10
_MOST_VALUES = (1 << 31) - 1
_LONGEST_NUMBER = 400
"""Characters; a number to base 60 (1:1:1:…) would cost the square of its length."""
_ODD_LINE_BREAKS = frozenset("\x85\u2028\u2029")
"""What PyYAML does not read back as it wrote it, unless it is escaped."""
_DTYPES = {"string": Kind.BYTES, "int64": Kind.INT64, "float32": Kind.FLOAT}


def load_profile(name_or_path: str) -> Profile:
    """A ready profile by its name, or one from the YAML, JSON or Python file of this path.

    Raises:
        TfodError: there is no such profile, or the file holds none; one line says where and why.
    """
    if name_or_path in READY:
        return READY[name_or_path]
    path = Path(name_or_path)
    if path.suffix.lower() not in (".py", ".json", ".yaml", ".yml"):
        near = difflib.get_close_matches(name_or_path, READY, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise TfodError(
            f"{name_or_path}: there is no such profile; {meant}give {', '.join(READY)}, or a file "
            "whose name ends in .yaml, .json or .py"
        )
    try:
        document = load(name_or_path, schema())
    except RecursionError:
        raise TfodError(f"{name_or_path}: is nested too deeply for a profile") from None
    features = {
        key: _spec(one, f"{name_or_path}: features[{key!r}]")
        for key, one in document["features"].items()
    }
    name = document.get("name") or path.name.partition(".")[0] or "profile"
    title = document.get("title", "")
    if path.suffix.lower() == ".py":  # which is nothing but features
        return profile_of_features(name, title, features)
    rules = document.get("rules", {})
    require_rule_names(map(str, rules), f"{name_or_path}: rules")
    mapping = dict(document.get("field_mapping", {}))
    if "box" in mapping:
        mapping["box"] = tuple(mapping["box"])
    return Profile(
        name,
        title,
        features,
        replace(field_mapping_among(features), **mapping),
        {code: OFF if word in (False, "off") else Severity(word) for code, word in rules.items()},
    )


def load(path: str, schema: dict[str, Any]) -> Any:
    """The document in a YAML, JSON or Python file, which fits a schema.

    Raises:
        TfodError: it cannot be read, or does not fit; or PyYAML or jsonschema is absent.
        RecursionError: it is nested too deeply.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise TfodError(f"{path}: {error.strerror}") from None
    if len(data) > _LARGEST_FILE:
        raise TfodError(f"{path}: is larger than {_LARGEST_FILE >> 10} KiB, so it is not a profile")
    parse = {".py": _parse_python, ".json": _parse_json}.get(Path(path).suffix.lower(), _parse_yaml)
    document = parse(data, path)
    _require_schema(document, schema, path)
    return document


def profile_of_description(description: FeatureDescription, source: str) -> Profile:
    """A profile, called as the source, under which the records that were described are as expected.

    Raises:
        TfodError: no record has a feature.
    """
    features = {key: replace(spec, meaning=known_meaning(key)) for key, spec in description.items()}
    if not features:
        raise TfodError(f"{source}: no record has a feature to expect")
    file = Path(source).resolve().name
    name = file.partition(".")[0].replace("*", "").strip("-_") or "profile"
    return profile_of_features(name, f"as {file} is", features)


def profile_to_yaml(profile: Profile) -> str:
    """The profile as a file that :func:`load_profile` reads back equal.

    Raises:
        TfodError: PyYAML is absent.
    """
    yaml = _import_extra("yaml", "PyYAML")
    document = profile_to_document(profile)
    plain = _ODD_LINE_BREAKS.isdisjoint(json.dumps(document, ensure_ascii=False))
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=plain, width=80)
    return text


def profile_to_document(profile: Profile) -> dict[str, Any]:
    """The profile as its file holds it, for YAML or JSON.

    What a reader takes for granted (the TF Object Detection API's field mapping, empty texts)
    is left out.
    """
    granted = field_mapping_among(profile.features)
    found = {each.name: getattr(profile.field_mapping, each.name) for each in fields(FieldMapping)}
    mapping = {
        name: list(key) if name == "box" else key
        for name, key in found.items()
        if key != getattr(granted, name)
    }
    document = {
        "name": profile.name,
        "title": profile.title,
        "features": {key: _spec_to_document(spec) for key, spec in profile.features.items()},
        "field_mapping": mapping,
        "rules": {code: one.value if one else "off" for code, one in profile.severities.items()},
    }
    return {name: one for name, one in document.items() if one}


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a profile file."""
    file = importlib.resources.files("tfod.checker.profiles").joinpath("profile.schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _parse_python(data: bytes, path: str) -> Any:
    name, features = PythonSource(data, path).read()
    for key, one in features.items():
        one["meaning"] = known_meaning(key)
        if "default" in one:
            one["default"] = _plain(one["default"])
    file = Path(path).name
    return {"title": f"{name or 'the features'} of {file}", "features": features}


def _parse_json(data: bytes, path: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"{key!r:.60} is given twice")
            found[key] = value
        return found

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except ValueError as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TfodError(f"{path}{line}: not a valid JSON file: {error}") from None


def _parse_yaml(data: bytes, path: str) -> Any:
    yaml = _import_extra("yaml", "PyYAML")

    def fail(what: str, mark: Any) -> None:
        raise yaml.MarkedYAMLError(None, None, what, mark)

    # mypy does not know a module that is imported only when it is needed.
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
                if str(key.value) in seen:
                    fail(f"{key.value!r:.60} is given twice", key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(data.decode("utf-8-sig"), Loader)
    except (yaml.YAMLError, ValueError) as error:  # such as of a date, or bytes not UTF-8
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TfodError(f"{path}{line}: not a valid YAML file: {what}") from None


def _require_schema(document: Any, schema: dict[str, Any], path: str) -> None:
    """Raise TfodError, in jsonschema's words, with the description of what was expected."""
    jsonschema = _import_extra("jsonschema", "jsonschema")
    try:  # half a character, such as \ud800, and numbers that Python refuses to print
        json.dumps(document, ensure_ascii=False, skipkeys=True, default=str).encode()
    except ValueError:
        raise TfodError(f"{path}: has a value that JSON in UTF-8 cannot hold") from None
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(document)
    )
    if error is None:
        return
    where, what = error.json_path.removeprefix("$").lstrip("."), error.message
    # Of an anyOf the whole has the description, not each of its parts.
    while error.parent is not None and "description" not in error.schema:
        error = error.parent
    expected = error.schema.get("description", "a profile")
    raise TfodError(
        f"{path}: {_short(where)}{': ' * bool(where)}{_short(what)}; expected {expected}"
    )


def _short(text: str) -> str:
    """On one line; jsonschema says the value first and what is wrong with it last."""
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:60]}…{text[-90:]}"


def _import_extra(module: str, called: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise TfodError(f"profiles in files need {called}; {how_to_install('validator')}") from None


def _spec(document: Mapping[str, Any], where: str) -> FeatureSpec:
    kind, meaning = _DTYPES[document["dtype"]], document.get("meaning", "")
    demanded = document.get("required", False)
    if document["kind"] == "VarLenFeature":
        return FeatureSpec(kind, None, None, meaning, demanded)
    shape = tuple(map(int, document.get("shape", [])))
    length = math.prod(shape)
    if length > _MOST_VALUES:
        raise TfodError(f"{where}: the shape has more than {_MOST_VALUES:,} values")
    default = document.get("default")
    if default is None:
        return FeatureSpec(kind, shape, None, meaning, demanded)
    values = default if isinstance(default, list) else [default]
    if len(values) != length:
        raise TfodError(f"{where}: the shape has {length} values and the default {len(values)}")
    if kind is Kind.INT64 and any(isinstance(one, float) for one in values):
        raise TfodError(f"{where}: the default of an int64 has no decimal point")
    try:
        found = tuple(_VALUES[kind](one) for one in values)
    except (ValueError, OverflowError):
        raise TfodError(f"{where}: the default is not valid base64, or too large") from None
    return FeatureSpec(kind, shape, found if length > 1 else found[0], meaning, demanded)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


_VALUES: Mapping[Kind, Any] = {Kind.BYTES: _bytes, Kind.INT64: int, Kind.FLOAT: float}


def _spec_to_document(spec: FeatureSpec) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "VarLenFeature" if spec.shape is None else "FixedLenFeature",
        "dtype": next(name for name, kind in _DTYPES.items() if kind is spec.kind),
    }
    if spec.shape is not None:
        document["shape"] = list(spec.shape)
    if spec.default is not None:
        document["default"] = _plain(spec.default)
    if spec.is_mandatory:
        document["required"] = True
    if spec.meaning:
        document["meaning"] = spec.meaning
    return document


def _plain(value: Any) -> Any:
    """A default as JSON has it: bytes as text or base64, lists in lists as one list."""
    if isinstance(value, (list, tuple)):
        nested = ([*_plain(one)] if isinstance(one, list) else [_plain(one)] for one in value)
        return [one for part in nested for one in part]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return int(value) if isinstance(value, bool) else value

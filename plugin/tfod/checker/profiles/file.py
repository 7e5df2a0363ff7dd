"""Profiles from untrusted files: YAML and JSON by ``profile.schema.json``, and Python source.

Aliases in YAML, which can expand small files to huge documents, are rejected. So are duplicate
keys, of which parsers silently drop one.
"""

from __future__ import annotations

import base64
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
    features_to_profile,
    get_meaning,
    restrict_field_mapping,
)
from tfod.checker.profiles.python_source import PythonSource
from tfod.checker.rules.registry import require_rule_names
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.errors import TfodError, excerpt, how_to_install, suggest
from tfod.example.wire import Kind

_MAX_FILE_BYTES = 256 << 10
_MAX_VALUES = (1 << 31) - 1
_MAX_NUMBER_LENGTH = 400  # parsing numbers to base 60 (1:1:1:…) takes quadratic time
_UNUSUAL_LINE_BREAKS = frozenset("\x85\u2028\u2029")
"""Characters that PyYAML does not read back correctly, unless they are escaped."""
_DTYPES = {"string": Kind.BYTES, "int64": Kind.INT64, "float32": Kind.FLOAT}


def load_profile(name_or_path: str) -> Profile:
    """Return a built-in profile by its name, or load one from a YAML, JSON or Python file."""
    if name_or_path.lower() in READY:
        return READY[name_or_path.lower()]
    path = Path(name_or_path)
    if path.suffix.lower() not in (".py", ".json", ".yaml", ".yml"):
        hint = suggest(name_or_path.lower(), READY)
        raise TfodError(
            f"{name_or_path}: there is no such profile; {hint}{' ' if hint else ''}pass "
            f"{', '.join(READY)}, or a file whose name ends in .yaml, .json or .py"
        )
    try:
        document = load(name_or_path, schema())
    except RecursionError:
        raise TfodError(f"{name_or_path}: is nested too deeply for a profile") from None
    features = {
        key: _parse_spec(feature, f"{name_or_path}: features[{excerpt(key)}]")
        for key, feature in document["features"].items()
    }
    name = document.get("name") or path.name.partition(".")[0] or "profile"
    title = document.get("title", "")
    if path.suffix.lower() == ".py":  # a description has only features
        return replace(features_to_profile(name, title, features), path=name_or_path)
    rules = document.get("rules", {})
    require_rule_names(map(str, rules), f"{name_or_path}: rules")
    mapping = dict(document.get("field_mapping", {}))
    if "box" in mapping:
        mapping["box"] = tuple(mapping["box"])
    return Profile(
        name,
        title,
        features,
        replace(restrict_field_mapping(features), **mapping),
        {
            code: OFF if level in (False, "off") else Severity(level)
            for code, level in rules.items()
        },
        name_or_path,
    )


def load(path: str, schema: dict[str, Any]) -> Any:
    """Load and validate a YAML, JSON or Python file; raise RecursionError if nested too deeply."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TfodError(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise TfodError(f"{path}: is not a profile: it is larger than {_MAX_FILE_BYTES >> 10} KiB")
    parse = {".py": _parse_python, ".json": _parse_json}.get(Path(path).suffix.lower(), _parse_yaml)
    document = parse(data, path)
    _require_schema(document, schema, path)
    return document


def description_to_profile(description: FeatureDescription, source: str) -> Profile:
    """Make a profile from the description of records, named after their source."""
    features = {key: replace(spec, meaning=get_meaning(key)) for key, spec in description.items()}
    if not features:
        raise TfodError(f"{source}: the records have no features")
    file = Path(source).resolve().name
    name = file.partition(".")[0].replace("*", "").strip("-_") or "profile"
    return features_to_profile(name, f"like {file}", features)


def profile_to_yaml(profile: Profile) -> str:
    """Convert a profile to YAML, which :func:`load_profile` reads back as an equal profile."""
    yaml = _import_extra("yaml", "PyYAML")
    document = profile_to_document(profile)
    is_plain = _UNUSUAL_LINE_BREAKS.isdisjoint(json.dumps(document, ensure_ascii=False))
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=is_plain, width=80)
    return text


def profile_to_document(profile: Profile) -> dict[str, Any]:
    """Convert a profile to the document of its file, without default values."""
    default = restrict_field_mapping(profile.features)
    names = [field.name for field in fields(FieldMapping)]
    keys = {name: getattr(profile.field_mapping, name) for name in names}
    mapping = {
        name: list(key) if name == "box" else key
        for name, key in keys.items()
        if key != getattr(default, name)
    }
    document = {
        "name": profile.name,
        "title": profile.title,
        "features": {key: _spec_to_document(spec) for key, spec in profile.features.items()},
        "field_mapping": mapping,
        "rules": {
            code: severity.value if severity else "off"
            for code, severity in profile.severities.items()
        },
    }
    return {name: value for name, value in document.items() if value}


@functools.cache
def schema() -> dict[str, Any]:
    """Load the JSON schema of profile files."""
    file = importlib.resources.files("tfod.checker.profiles").joinpath("profile.schema.json")
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _parse_python(data: bytes, path: str) -> Any:
    name, features = PythonSource(data, path).read()
    for key, feature in features.items():
        feature["meaning"] = get_meaning(key)
        if "default" in feature:
            feature["default"] = _default_to_json(feature["default"])
    file = Path(path).name
    return {"title": f"{name or 'the features'} of {file}", "features": features}


def _parse_json(data: bytes, path: str) -> Any:
    def make_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise ValueError(f"duplicate key {excerpt(key)}")
            values[key] = value
        return values

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=make_dict)
    except ValueError as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TfodError(f"{path}{line}: not a valid JSON file: {error}") from None


def _parse_yaml(data: bytes, path: str) -> Any:
    yaml = _import_extra("yaml", "PyYAML")

    def fail(problem: str, mark: Any) -> None:
        raise yaml.MarkedYAMLError(None, None, problem, mark)

    # mypy does not know a module that is imported on demand.
    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                fail("aliases (*) are not allowed in a profile", self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def construct_scalar(self, node: Any) -> Any:
            if node.tag.endswith((":int", ":float")) and len(node.value) > _MAX_NUMBER_LENGTH:
                fail(f"a number has {len(node.value):,} characters", node.start_mark)
            return super().construct_scalar(node)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                if str(key.value) in seen:
                    fail(f"duplicate key {excerpt(key.value)}", key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(data.decode("utf-8-sig"), Loader)
    except (yaml.YAMLError, ValueError) as error:  # also for invalid dates and UTF-8
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TfodError(f"{path}{line}: not a valid YAML file: {problem}") from None


def _require_schema(document: Any, schema: dict[str, Any], path: str) -> None:
    """Raise TfodError with jsonschema's message and the description of the expected value."""
    jsonschema = _import_extra("jsonschema", "jsonschema")
    try:  # fails for half characters, such as \ud800, and for numbers that Python cannot print
        json.dumps(document, ensure_ascii=False, skipkeys=True, default=str).encode()
    except ValueError:
        raise TfodError(f"{path}: has a value that cannot be written as JSON in UTF-8") from None
    validator = jsonschema.Draft202012Validator(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if error is None:
        return
    location, problem = error.json_path.removeprefix("$").lstrip("."), error.message
    # The parts of an anyOf have no description, but the anyOf has.
    while error.parent is not None and "description" not in error.schema:
        error = error.parent
    expected = error.schema.get("description", "a profile")
    prefix = f"{path}: {_shorten(location)}: " if location else f"{path}: "
    raise TfodError(f"{prefix}{_shorten(problem)}; expected {expected}")


def _shorten(text: str) -> str:
    # The messages of jsonschema begin with the value and end with the problem.
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:60]}…{text[-90:]}"


def _import_extra(module: str, title: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise TfodError(f"profiles in files need {title}; {how_to_install('validator')}") from None


def _parse_spec(document: Mapping[str, Any], location: str) -> FeatureSpec:
    kind, meaning = _DTYPES[document["dtype"]], document.get("meaning", "")
    is_required = document.get("required", False)
    if document["kind"] == "VarLenFeature":
        return FeatureSpec(kind, None, None, meaning, is_required)
    shape = tuple(map(int, document.get("shape", [])))
    length = math.prod(shape)
    if length > _MAX_VALUES:
        raise TfodError(f"{location}: the shape has more than {_MAX_VALUES:,} values")
    default = document.get("default")
    if default is None:
        return FeatureSpec(kind, shape, None, meaning, is_required)
    values = default if isinstance(default, list) else [default]
    if len(values) != length:
        raise TfodError(f"{location}: the shape has {length} values and the default {len(values)}")
    if kind is Kind.INT64 and any(isinstance(value, float) for value in values):
        raise TfodError(f"{location}: the default of an int64 must not have a decimal point")
    try:
        converted = tuple(_CONVERTERS[kind](value) for value in values)
    except (ValueError, OverflowError):
        raise TfodError(f"{location}: the default is not valid base64, or too large") from None
    default = converted if length > 1 else converted[0]
    return FeatureSpec(kind, shape, default, meaning, is_required)


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


_CONVERTERS: Mapping[Kind, Any] = {Kind.BYTES: _to_bytes, Kind.INT64: int, Kind.FLOAT: float}


def _spec_to_document(spec: FeatureSpec) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "VarLenFeature" if spec.shape is None else "FixedLenFeature",
        "dtype": next(name for name, kind in _DTYPES.items() if kind is spec.kind),
    }
    if spec.shape is not None:
        document["shape"] = list(spec.shape)
    if spec.default is not None:
        document["default"] = _default_to_json(spec.default)
    if spec.is_mandatory:
        document["required"] = True
    if spec.meaning:
        document["meaning"] = spec.meaning
    return document


def _default_to_json(value: Any) -> Any:
    """Convert a default to JSON: bytes to text or base64, and nested lists to a flat list."""
    if isinstance(value, (list, tuple)):
        parts = (
            [*_default_to_json(item)] if isinstance(item, list) else [_default_to_json(item)]
            for item in value
        )
        return [item for part in parts for item in part]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return int(value) if isinstance(value, bool) else value

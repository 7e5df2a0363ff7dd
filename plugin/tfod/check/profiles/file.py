"""Profiles from files: YAML and JSON after ``profile.schema.json``, and Python source."""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import importlib.resources
import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tfod.check.findings.finding import Severity
from tfod.check.profiles.document import import_extra, load, read_file, require_schema
from tfod.check.profiles.profile import (
    OFF,
    READY,
    Profile,
    field_mapping_among,
    known_meaning,
    profile_of_features,
)
from tfod.check.profiles.python_source import PythonSource
from tfod.check.rules.registry import require_rule_names
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec, Value
from tfod.errors import TfodError
from tfod.example.wire import Kind

_LARGEST_DEFAULT = 1 << 20
_MOST_VALUES = (1 << 31) - 1
_ODD_LINE_BREAKS = frozenset("\x85\u2028\u2029")
_DTYPES = {"string": Kind.BYTES, "int64": Kind.INT64, "float32": Kind.FLOAT}
_DTYPE_NAMES = {kind: name for name, kind in _DTYPES.items()}


def load_profile(name_or_path: str) -> Profile:
    """A ready profile by its name, or one from the YAML, JSON or Python file of this path.

    Raises:
        TfodError: there is no such profile, or the file holds none; one line says where and why.
    """
    if name_or_path in READY:
        return READY[name_or_path]
    suffix = Path(name_or_path).suffix.lower()
    if suffix not in (".py", ".json", ".yaml", ".yml"):
        near = difflib.get_close_matches(name_or_path, READY, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise TfodError(
            f"{name_or_path}: there is no such profile; {meant}give {', '.join(READY)}, or a file "
            "whose name ends in .yaml, .json or .py"
        )
    if suffix == ".py":
        try:
            return _from_python(read_file(name_or_path), Path(name_or_path))
        except RecursionError:
            raise TfodError(f"{name_or_path}: is nested too deeply for a profile") from None
    return _from_document(load(name_or_path, schema()), name_or_path)


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
    yaml = import_extra("yaml", "profiles in YAML need PyYAML")

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        pass

    def represent(dumper: Any, text: str) -> Any:
        # PyYAML itself writes these so that it reads them back as spaces.
        style = '"' if _ODD_LINE_BREAKS & set(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    document = profile_to_document(profile)
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=80)
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
    rules = {name: one.value if one else "off" for name, one in profile.severities.items()}
    document = {
        "name": profile.name,
        "title": profile.title,
        "features": {key: _spec_to_document(spec) for key, spec in profile.features.items()},
        "field_mapping": mapping,
        "rules": rules,
        "speaks_against": list(profile.speaks_against),
        "images": profile.images,
    }
    return {name: one for name, one in document.items() if one not in ("", {}, [], None)}


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON schema of a profile file."""
    file = importlib.resources.files("tfod.check.profiles").joinpath("profile.schema.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _from_document(document: Any, source: str) -> Profile:
    """A profile from a document that fits the schema."""
    require_rule_names(map(str, document.get("rules", {})), f"{source}: rules")
    features = _features(document, source)
    given = document.get("field_mapping", {})
    named: dict[str, Any] = {
        name: tuple(one) if name == "box" else one for name, one in given.items()
    }
    return Profile(
        name=document.get("name", Path(source).name.partition(".")[0] or "profile"),
        title=document.get("title", ""),
        features=features,
        field_mapping=replace(field_mapping_among(features), **named),
        severities={
            name: OFF if word in (False, "off") else Severity(word)
            for name, word in document.get("rules", {}).items()
        },
        speaks_against=tuple(document.get("speaks_against", ())),
        images=document.get("images"),
    )


def _from_python(data: bytes, path: Path) -> Profile:
    """The profile that a Python file's feature description stands for."""
    name, found = PythonSource(data, str(path)).read()
    for key, one in found.items():
        one["meaning"] = known_meaning(key)
        if "default" in one:
            one["default"] = _plain(one["default"])
    title = f"{name} of {path.name}" if name else f"the features of {path.name}"
    document = {"features": found}
    require_schema(document, schema(), str(path))
    features = _features(document, str(path))
    return profile_of_features(path.name.partition(".")[0] or "profile", title, features)


def _features(document: Any, source: str) -> FeatureDescription:
    return {
        key: _spec(one, f"{source}: features[{key!r}]") for key, one in document["features"].items()
    }


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
    if sum(len(str(one)) for one in values) > _LARGEST_DEFAULT:
        raise TfodError(f"{where}: the default is larger than {_LARGEST_DEFAULT >> 20} MiB")
    try:
        found = tuple(_value(kind, one) for one in values)
    except (binascii.Error, ValueError):
        raise TfodError(f"{where}: the default is not valid base64") from None
    except OverflowError:
        raise TfodError(f"{where}: the default is too large for a float") from None
    return FeatureSpec(kind, shape, found if length > 1 else found[0], meaning, demanded)


def _value(kind: Kind, value: Any) -> Value:
    if kind is not Kind.BYTES:
        return float(value) if kind is Kind.FLOAT else int(value)
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


def _spec_to_document(spec: FeatureSpec) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "VarLenFeature" if spec.shape is None else "FixedLenFeature",
        "dtype": _DTYPE_NAMES[spec.kind],
    }
    if spec.shape is not None:
        document["shape"] = list(spec.shape)
    if spec.default is not None:
        document["default"] = _plain(spec.default)
    if spec.demanded:
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

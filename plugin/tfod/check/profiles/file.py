"""Profiles from files: YAML and JSON after ``profile.schema.json``, and Python source.

See :mod:`tfod.check.profiles.python_source` for the last of them.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tfod.check.finding import Severity
from tfod.check.profiles.document import parse_json, parse_yaml, require_schema, to_yaml
from tfod.check.profiles.feature_values import (
    DTYPE_NAMES,
    DTYPES,
    FeatureValueError,
    fixed_length,
    known_meaning,
)
from tfod.check.profiles.profile import (
    OFF,
    READY,
    Profile,
    Severities,
    field_mapping_among,
    profile_of_features,
)
from tfod.check.profiles.python_source import read_python_profile
from tfod.check.rule_names import require_rule_names
from tfod.detection.describe import Description
from tfod.detection.field_mapping import FieldMapping
from tfod.detection.schema import FeatureDescription, FeatureSpec, Value
from tfod.errors import TfodError

_LARGEST_FILE = 256 << 10
_OFF_WORD = "off"


def load_profile(name_or_path: str) -> Profile:
    """A ready profile by its name, or one from a file.

    Args:
        name_or_path: a name of :data:`~tfod.check.profiles.profile.READY`, or the path of a YAML,
            JSON or Python file.

    Raises:
        TfodError: there is no such profile, or the file is none; one line says where and why.
    """
    if name_or_path in READY:
        return READY[name_or_path]
    path = Path(name_or_path)
    suffix = path.suffix.lower()
    if suffix not in (".py", ".json", ".yaml", ".yml"):
        raise TfodError(_no_such_profile(name_or_path))
    data = _read(path)
    if suffix == ".py":
        return read_python_profile(data, str(path))
    parse = parse_json if suffix == ".json" else parse_yaml
    try:
        return profile_from_document(parse(data, str(path)), str(path))
    except RecursionError:
        raise TfodError(f"{path}: is nested too deeply for a profile") from None


def _no_such_profile(name: str) -> str:
    near = difflib.get_close_matches(name, READY, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return (
        f"{name}: is no profile; {meant}give {', '.join(READY)}, or a file whose name ends in "
        ".yaml, .json or .py"
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise TfodError(f"{path}: {error.strerror}") from None
    if len(data) > _LARGEST_FILE:
        raise TfodError(f"{path}: is larger than {_LARGEST_FILE >> 10} KiB, so it is not a profile")
    return data


def profile_from_document(document: Any, source: str) -> Profile:
    """A profile from the parsed content of a YAML or JSON file.

    Raises:
        TfodError: it is no profile; the message names ``source``, the place in it and what was
            expected.
    """
    if isinstance(document, dict) and isinstance(document.get("rules"), dict):
        require_rule_names(document["rules"], f"{source}: rules")
    require_schema(document, source)
    features = {
        key: _feature(one, f"{source}: features[{key!r}]")
        for key, one in document["features"].items()
    }
    return Profile(
        name=document.get("name", Path(source).name.partition(".")[0] or "profile"),
        title=document.get("title", ""),
        features=features,
        field_mapping=_field_mapping(document.get("field_mapping", {}), features),
        severities={
            name: OFF if word in (False, _OFF_WORD) else Severity(word)
            for name, word in document.get("rules", {}).items()
        },
        speaks_against=tuple(document.get("speaks_against", ())),
        images=document.get("images"),
    )


def _feature(document: Mapping[str, Any], where: str) -> FeatureSpec:
    kind = DTYPES[document["dtype"]]
    meaning, demanded = document.get("meaning", ""), document.get("required", False)
    if document["kind"] == "VarLenFeature":
        return FeatureSpec(kind, None, None, meaning, demanded)
    if "default" not in document and document.get("required") is False:
        raise TfodError(
            f"{where}: a FixedLenFeature that is not required needs a default, or TensorFlow "
            "refuses records without it"
        )
    try:
        default = _from_base64(document.get("default"))
        return fixed_length(
            kind, document.get("shape", []), default, meaning=meaning, demanded=demanded
        )
    except FeatureValueError as error:
        raise TfodError(f"{where}: {error}") from None


def _from_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError):
        raise FeatureValueError("default: the text after base64 is none") from None


def _field_mapping(document: Mapping[str, Any], features: FeatureDescription) -> FieldMapping:
    known = {**vars(field_mapping_among(features)), **document}
    return FieldMapping(**{**known, "box": tuple(known["box"])})


def profile_of_description(found: Description, source: str) -> Profile:
    """A profile under which the records that were described are as expected.

    Args:
        found: what is in the shards.
        source: what they were found by; the profile gets its name.

    Raises:
        TfodError: no record has a feature.
    """
    features = {
        key: replace(spec, meaning=known_meaning(key))
        for key, spec in found.feature_description().items()
    }
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
    return to_yaml(profile_to_document(profile))


def profile_to_document(profile: Profile) -> dict[str, Any]:
    """The profile as its file holds it, for YAML or JSON.

    What a reader takes for granted (the TF Object Detection API's field mapping, empty texts)
    is left out.
    """
    document: dict[str, Any] = {"name": profile.name}
    if profile.title:
        document["title"] = profile.title
    document["features"] = {
        key: _feature_to_document(spec) for key, spec in profile.features.items()
    }
    if field_mapping := _field_mapping_to_document(profile):
        document["field_mapping"] = field_mapping
    if profile.severities:
        document["rules"] = _severities_to_document(profile.severities)
    if profile.speaks_against:
        document["speaks_against"] = list(profile.speaks_against)
    if profile.images is not None:
        document["images"] = profile.images
    return document


def _feature_to_document(spec: FeatureSpec) -> dict[str, Any]:
    fixed = spec.shape is not None
    document: dict[str, Any] = {
        "kind": "FixedLenFeature" if fixed else "VarLenFeature",
        "dtype": DTYPE_NAMES[spec.kind],
    }
    if spec.shape is not None:
        document["shape"] = list(spec.shape)
    if spec.default is not None:
        if isinstance(spec.default, tuple):
            document["default"] = [_to_base64(one) for one in spec.default]
        else:
            document["default"] = _to_base64(spec.default)
    if spec.demanded:
        document["required"] = True
    if spec.meaning:
        document["meaning"] = spec.meaning
    return document


def _to_base64(value: Value) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _field_mapping_to_document(profile: Profile) -> dict[str, Any]:
    granted = field_mapping_among(profile.features)
    found = {}
    for each in fields(FieldMapping):
        key = getattr(profile.field_mapping, each.name)
        if key != getattr(granted, each.name):
            found[each.name] = list(key) if each.name == "box" else key
    return found


def _severities_to_document(severities: Severities) -> dict[str, str]:
    return {name: said.value if said else _OFF_WORD for name, said in severities.items()}

"""The configuration of a check: ``tfod.toml``, or ``[tool.tfod]`` of ``pyproject.toml``."""

from __future__ import annotations

import fnmatch
import importlib
import os
import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfod.checker.check import Options
from tfod.checker.finding import Severity
from tfod.checker.profiles.policy import combine_severities
from tfod.checker.profiles.profile import OFF, READY, Profile, Severities
from tfod.checker.receivers import RECEIVERS
from tfod.checker.rules.registry import require_rule_names
from tfod.detection.labels.label_map import packaged_label_maps, require_label_map
from tfod.errors import TfodError, excerpt, how_to_install
from tfod.tfrecord.storage.urls import is_url

T = TypeVar("T")
LEVELS = ("error", "warning", "info", "off")
"""Severities in words."""
_LARGEST_FILE = 256 << 10


class Configuration(NamedTuple):
    """The settings of a file, or of a caller; None or empty if they are not set.

    Attributes:
        file: path of the file; None if the settings are not from a file.
        receiver: value of the key ``for``.
        profile, label_map: names, or paths relative to the working folder.
        exclude: patterns of paths that are not checked, relative to the folder of the file.
    """

    file: str | None = None
    receiver: str | None = None
    profile: str | None = None
    label_map: str | None = None
    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    severity: Mapping[str, str] = {}
    fail_on: str | None = None
    exclude: Sequence[str] = ()

    def excludes(self, path: str) -> bool:
        """Return whether a pattern matches a file or one of its folders; ``*`` matches slashes.

        Files outside of the configuration's folder are never excluded.
        """
        if is_url(path) or not self.exclude:
            return False
        relative = os.path.relpath(path, os.path.dirname(self.file or "") or os.curdir)
        paths = map(posixpath.normpath, self.exclude)
        patterns = (pattern for path in paths for pattern in (path, f"{path}/*"))
        return not relative.startswith(os.pardir) and any(
            fnmatch.fnmatchcase(relative.replace(os.sep, "/"), pattern) for pattern in patterns
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_levels(value: object) -> bool:
    return isinstance(value, dict) and all(level in LEVELS for level in value.values())


_RULES = 'a list of rules and families, such as ["BOX003", "IMG"]'
_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "for": (
        lambda value: isinstance(value, str) and value.lower() in RECEIVERS,
        f"one of {', '.join(RECEIVERS)}",
    ),
    "profile": (_is_text, f"{', '.join(READY)}, or a file"),
    "label_map": (_is_text, "a file, or the name of a label map that comes with tfod"),
    "select": (lambda value: _are_texts(value) and bool(value), _RULES),
    "ignore": (_are_texts, _RULES),
    "severity": (_are_levels, f'a table such as {{BOX003 = "warning"}}, with {", ".join(LEVELS)}'),
    "fail_on": (("error", "warning").__contains__, "error or warning"),
    "exclude": (_are_texts, 'a list of paths and patterns, such as ["old/*"]'),
}
"""For each key, a predicate for valid values, and a description of them."""


def find_configuration() -> Configuration:
    """Read the nearest configuration in the working folder and its parents, or an empty one."""
    for above in range(len(Path(os.getcwd()).parts)):
        for name in ("tfod.toml", "pyproject.toml"):
            path = os.path.join(*[os.pardir] * above, name)
            if os.path.isfile(path) and (configuration := _read(path)) is not None:
                return configuration
    return Configuration()


def load_configuration(path: str) -> Configuration:
    """Read the configuration in a file; raise OSError if it cannot be read."""
    configuration = _read(path)
    if configuration is None:
        raise TfodError(f"{path}: has no [tool.tfod]; add it, or name another file")
    return configuration


def make_options(requested: Configuration, file: Configuration, **more: Any) -> Options:
    """Return the options of a check: the requested ones, completed from a configuration file.

    Args:
        requested: settings of the command line or the service. Their severities take precedence
            over ``select``.
        file: the configuration file.
        more: options that a configuration cannot have.
    """

    def choose(key: str) -> Any:
        return getattr(requested, key) or getattr(file, key)

    def load(key: str, loader: Callable[[str], T]) -> T | None:
        try:
            return loader(choose(key)) if choose(key) else None
        except TfodError as error:
            if getattr(requested, key):
                raise
            raise TfodError(f"{file.file}: {key}: {error}") from None

    load("label_map", require_label_map)
    return Options(
        profile=load("profile", _load_profile),
        receiver=RECEIVERS[choose("receiver").lower()] if choose("receiver") else None,
        label_map=choose("label_map"),
        severities=combine_severities(
            choose("select"),
            choose("ignore"),
            _parse_levels(file.severity),
            _parse_levels(requested.severity),
        ),
        configuration=file.file,
        fail_on=Severity(choose("fail_on") or "error"),
        **more,
    )


def _load_profile(name: str) -> Profile:
    from tfod.checker.profiles.file import load_profile  # few checks need it

    return load_profile(name)


def _parse_levels(levels: Mapping[str, str]) -> Severities:
    return {name: OFF if level == "off" else Severity(level) for name, level in levels.items()}


def _read(file: str) -> Configuration | None:
    """Read a configuration file; None for a pyproject.toml without settings for tfod."""
    with open(file, "rb") as stream:
        data = stream.read(_LARGEST_FILE + 1)
    is_project = os.path.basename(file) == "pyproject.toml"
    if is_project and b"tfod" not in data:  # not parsed: its errors are not tfod's concern
        return None
    if len(data) > _LARGEST_FILE:
        raise TfodError(f"{file}: is larger than {_LARGEST_FILE >> 10} KiB")
    try:  # Python includes the module since 3.11
        toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        values = toml.loads(data.decode("utf-8-sig"))
    except ImportError:
        install = how_to_install("validator")
        raise TfodError(f"{file}: Python 3.10 needs tomli to read it: {install}") from None
    except (ValueError, RecursionError) as error:  # also for invalid dates and UTF-8
        raise TfodError(f"{file}: is not valid TOML: {error}") from None
    if is_project:
        tools = values.get("tool")
        values = tools.get("tfod") if isinstance(tools, dict) else None
        if values is None:
            return None
    if not isinstance(values, dict):
        raise TfodError(f"{file}: tool.tfod: expected a table of keys")
    for key, value in values.items():
        _require_fit(key, value, file)
    settings = {"receiver" if key == "for" else key: value for key, value in values.items()}
    for key, names in (("profile", READY), ("label_map", packaged_label_maps())):
        value = settings.get(key)
        is_name = value in names or (key == "profile" and str(value).lower() in names)
        if value is not None and not is_name and not is_url(value):
            settings[key] = os.path.join(os.path.dirname(file), value)
    return Configuration(file, **settings)


def _require_fit(key: str, value: Any, file: str) -> None:
    """Raise TfodError if a key is unknown, or its value is invalid."""
    if key not in _KEYS:
        raise TfodError(f"{file}: {key}: there is no such key; the keys are {', '.join(_KEYS)}")
    fits, expected = _KEYS[key]
    if not fits(value):
        wrong = "" if isinstance(value, (dict, list)) else f", not {excerpt(value)}"
        raise TfodError(f"{file}: {key}: expected {expected}{wrong}")
    if key in ("select", "ignore", "severity"):
        require_rule_names(value, f"{file}: {key}")

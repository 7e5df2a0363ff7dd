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
from tfod.checker.profiles.policy import severities_of
from tfod.checker.profiles.profile import OFF, READY, Profile, Severities
from tfod.checker.receivers import RECEIVERS
from tfod.checker.rules.registry import require_rule_names
from tfod.detection.labels.label_map import packaged_label_maps, require_label_map
from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.storage.urls import is_url

T = TypeVar("T")
LEVELS = ("error", "warning", "info", "off")
"""Severities in words."""
_LARGEST_FILE = 256 << 10


class Configuration(NamedTuple):
    """What a file says, or who asks for a check; None and empty where nothing is said.

    Attributes:
        file: its path; None where it is no file.
        receiver: the key ``for``.
        profile, label_map: names, or paths as they are from the working folder.
        exclude: patterns of paths that are not checked, relative to the file's folder.
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
        """Whether a file, or a folder that it is in, is not to be checked; ``*`` matches slashes.

        A file outside of the configuration's folder is checked.
        """
        if is_url(path) or not self.exclude:
            return False
        inside = os.path.relpath(path, os.path.dirname(self.file or "") or os.curdir)
        patterns = map(posixpath.normpath, self.exclude)
        forms = (form for one in patterns for form in (one, f"{one}/*"))
        return not inside.startswith(os.pardir) and any(
            fnmatch.fnmatchcase(inside.replace(os.sep, "/"), one) for one in forms
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_levels(value: object) -> bool:
    return isinstance(value, dict) and all(one in LEVELS for one in value.values())


_RULES = 'a list of rules and families, such as ["BOX003", "IMG"]'
_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "for": (tuple(RECEIVERS).__contains__, f"one of {', '.join(RECEIVERS)}"),
    "profile": (_is_text, f"{', '.join(READY)}, or a file"),
    "label_map": (_is_text, "a file, or the name of a label map that tfod has"),
    "select": (lambda value: _are_texts(value) and bool(value), _RULES),
    "ignore": (_are_texts, _RULES),
    "severity": (_are_levels, f'a table such as {{BOX003 = "warning"}}, of {", ".join(LEVELS)}'),
    "fail_on": (("error", "warning").__contains__, "error or warning"),
    "exclude": (_are_texts, 'a list of paths and patterns, such as ["old/*"]'),
}
"""Each key: whether a value fits, and what is expected."""


def find_configuration() -> Configuration:
    """The nearest file in the working folder and those above it; without any, an empty one.

    Raises:
        TfodError: it is not what it should be.
    """
    for above in range(len(Path(os.getcwd()).parts)):
        for name in ("tfod.toml", "pyproject.toml"):
            path = os.path.join(*[os.pardir] * above, name)
            if os.path.isfile(path) and (found := _read(path)) is not None:
                return found
    return Configuration()


def load_configuration(path: str) -> Configuration:
    """The configuration in a file.

    Raises:
        TfodError: it has none, or it is not what it should be.
        OSError: it cannot be read.
    """
    found = _read(path)
    if found is None:
        raise TfodError(f"{path}: has no [tool.tfod]; add it, or name another file")
    return found


def options_of(asked: Configuration, file: Configuration, **more: Any) -> Options:
    """The options of a check: what is asked for, and of the rest what the file says.

    Args:
        asked: on the command line or of the service; severities of it are stronger than ``select``.
        file: the configuration.
        more: options that no configuration has.

    Raises:
        TfodError: there is no such profile or label map; of one in the file it says so.
    """

    def chosen(key: str) -> Any:
        return getattr(asked, key) or getattr(file, key)

    def loaded(key: str, load: Callable[[str], T]) -> T | None:
        try:
            return load(chosen(key)) if chosen(key) else None
        except TfodError as error:
            if getattr(asked, key):
                raise
            raise TfodError(f"{file.file}: {key}: {error}") from None

    loaded("label_map", require_label_map)
    return Options(
        profile=loaded("profile", _load_profile),
        receiver=RECEIVERS[chosen("receiver")] if chosen("receiver") else None,
        label_map=chosen("label_map"),
        severities=severities_of(
            chosen("select"), chosen("ignore"), _in_words(file.severity), _in_words(asked.severity)
        ),
        configuration=file.file,
        fail_on=Severity(chosen("fail_on") or "error"),
        **more,
    )


def _load_profile(name: str) -> Profile:
    from tfod.checker.profiles.file import load_profile  # few checks are given one

    return load_profile(name)


def _in_words(words: Mapping[str, str]) -> Severities:
    return {name: OFF if word == "off" else Severity(word) for name, word in words.items()}


def _read(file: str) -> Configuration | None:
    """What a file says; None of a pyproject.toml that says nothing of tfod."""
    with open(file, "rb") as stream:
        data = stream.read(_LARGEST_FILE + 1)
    is_project = os.path.basename(file) == "pyproject.toml"
    if is_project and b"tfod" not in data:  # others' files are not ours to judge
        return None
    if len(data) > _LARGEST_FILE:
        raise TfodError(f"{file}: is larger than {_LARGEST_FILE >> 10} KiB")
    try:  # the module is Python's own from 3.11 on
        toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        values = toml.loads(data.decode("utf-8-sig"))
    except ImportError:
        install = how_to_install("validator")
        raise TfodError(f"{file}: Python 3.10 needs tomli to read it: {install}") from None
    except (ValueError, RecursionError) as error:  # of dates, and of bytes that are not UTF-8, too
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
    given = {"receiver" if key == "for" else key: value for key, value in values.items()}
    for key, names in (("profile", READY), ("label_map", packaged_label_maps())):
        value = given.get(key)
        if value is not None and value not in names and not is_url(value):
            given[key] = os.path.join(os.path.dirname(file), value)
    return Configuration(file, **given)


def _require_fit(key: str, value: Any, file: str) -> None:
    """Raise TfodError where a key is unknown, or its value is of another kind."""
    if key not in _KEYS:
        raise TfodError(f"{file}: {key}: there is no such key; the keys are {', '.join(_KEYS)}")
    fits, expected = _KEYS[key]
    if not fits(value):
        wrong = "" if isinstance(value, (dict, list)) else f", not {value!r:.80}"
        raise TfodError(f"{file}: {key}: expected {expected}{wrong}")
    if key in ("select", "ignore", "severity"):
        require_rule_names(value, f"{file}: {key}")

"""How `docker compose -f A -f B` merges two files, for the keys that CVAT's and ours have.

After the merge rules of the compose specification: mappings by key, `environment` by variable,
`volumes` and `configs` of a service by their target in the container, `depends_on` by service; a
command is replaced, and so is every plain value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mapping = dict[str, Any]


def merge(first: Mapping, second: Mapping) -> Mapping:
    """The project that two files make."""
    merged = {**first, **second}
    for key in ("volumes", "networks", "configs"):
        merged[key] = {**(first.get(key) or {}), **(second.get(key) or {})}
    services = dict(first["services"])
    for name, service in second["services"].items():
        services[name] = merge_service(services.get(name, {}), service)
    merged["services"] = services
    return merged


def merge_service(first: Mapping, second: Mapping) -> Mapping:
    """A service that both files name."""
    merged = {**first, **second}
    for key in _READERS:
        if key in first or key in second:
            merged[key] = {**_by_key(first, key), **_by_key(second, key)}
    return merged


def _by_key(service: Mapping, key: str) -> Mapping:
    """What a service says under a key; it may be read already, by an earlier merge."""
    given = service.get(key) or {}
    return dict(given) if isinstance(given, dict) else _READERS[key](given)


def environment(given: list[str]) -> Mapping:
    """Values by variable."""
    parts = [entry.partition("=") for entry in given]
    return {name: value if equals else None for name, equals, value in parts}


def dependencies(given: list[str]) -> Mapping:
    """Conditions by service."""
    return {name: {"condition": "service_started"} for name in given}


def volumes(given: list[str]) -> Mapping:
    """(source, mode) by target."""
    parts = [entry.split(":") for entry in given]
    return {target: (source, *mode) for source, target, *mode in parts}


def configs(given: list[Mapping]) -> Mapping:
    """Source by target."""
    return {entry["target"]: entry["source"] for entry in given}


# How the lists are read; mappings are by key already.
_READERS: dict[str, Callable[[list[Any]], Mapping]] = {
    "environment": environment,
    "depends_on": dependencies,
    "volumes": volumes,
    "configs": configs,
}

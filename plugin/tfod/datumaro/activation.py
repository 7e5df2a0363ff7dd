"""Patches that register our formats in Datumaro and shorten its error messages.

Datumaro 1.x has no plugin folders and no entry points; the 0.3 line has folders only inside its
own package and its projects. Therefore a start-up hook (``_tfod_import_hook``, run by a ``.pth`` or
``.start`` file) waits until a module of Datumaro is imported, and calls its function in PATCHES.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tfod.datumaro
from tfod.errors import TfodError, get_user_message

# Modules of Datumaro that import TensorFlow when they are loaded.
_REPLACED_MODULES = frozenset(("tf_detection_api_format", "tf_detection_api"))


def activate() -> None:
    """Register our formats in all environments of Datumaro; can be called again.

    This is for programs without the start-up hook, such as a CVAT server.
    """
    for name, patch in PATCHES.items():
        if name in sys.modules or name == "datumaro.components.environment":
            patch(importlib.import_module(name))
    for module in list(sys.modules.values()):
        # torch has modules whose __getattr__ returns something for every name.
        default = getattr(module, "__dict__", {}).get("DEFAULT_ENVIRONMENT")
        if default is not None and getattr(default, "_builtins_initialized", False):
            register(default)


def register(environment: Any) -> None:
    """Register our formats in a Datumaro environment, and replace formats with the same names."""
    is_old_line = not hasattr(environment, "exporters")
    registries = {
        "Base": environment.extractors,
        "Importer": environment.importers,
        "Exporter": environment.converters if is_old_line else environment.exporters,
    }
    plugins = [
        (registry, getattr(tfod.datumaro, name))
        for name in tfod.datumaro.PLUGINS
        for ending, registry in registries.items()
        if name.endswith(ending)
    ]
    names = {plugin.NAME for _, plugin in plugins}
    groups = getattr(environment.importers, "extension_groups", {})
    for extension, members in groups.items():
        groups[extension] = [member for member in members if member[0] not in names]
    for registry, plugin in plugins:
        registry.register(plugin.NAME, plugin)


def patch_environment(module: Any) -> None:
    """Make every environment register our formats after Datumaro's own."""
    environment: Any = module.Environment
    if _is_patched(environment._register_builtin_plugins):
        return
    original = environment._register_builtin_plugins

    @functools.wraps(original)
    def register_builtin_plugins(self: Any) -> None:
        original(self)
        register(self)

    environment._register_builtin_plugins = _mark(register_builtin_plugins)
    _skip_replaced_modules(environment)
    _normalize_extensions(module)


def _skip_replaced_modules(environment: Any) -> None:
    """Keep Datumaro from loading the formats that we replace, which would import TensorFlow."""
    original = environment._find_plugins

    @functools.wraps(original)
    def find_plugins(plugins_dir: str) -> list[str]:
        names: list[str] = original(plugins_dir)
        return [name for name in names if _REPLACED_MODULES.isdisjoint(name.split("."))]

    environment._find_plugins = staticmethod(find_plugins)


def _normalize_extensions(module: Any) -> None:
    """Add an extension for numbered shards, since Datumaro 1.x selects importers by extension."""
    original = getattr(module, "get_all_file_extensions", None)
    if original is None:
        return

    @functools.wraps(original)
    def get_all_file_extensions(path: str, ignore_dirs: Any) -> list[str]:
        from tfod.tfrecord.shard_sets.search import find_shards
        from tfod.tfrecord.shard_sets.shard_names import SHARD_EXTENSIONS

        extensions: list[str] = original(path, ignore_dirs)
        if not any(extension.lower() in SHARD_EXTENSIONS for extension in extensions):
            try:
                find_shards(path)
            except (TfodError, OSError):
                return extensions
            extensions = [*extensions, SHARD_EXTENSIONS[0]]
        return extensions

    module.get_all_file_extensions = get_all_file_extensions


def patch_commands(module: Any) -> None:
    """Add ``datum export`` to Datumaro 1.x, which has removed it."""
    original = getattr(module, "get_non_project_commands", None)
    if original is None or _is_patched(original):
        return

    @functools.wraps(original)
    def get_non_project_commands() -> list[Any]:
        from tfod.datumaro import commands as export_command

        existing: list[Any] = original()
        if any(command[0] == "export" for command in existing):
            return existing
        return [*existing, ("export", export_command, "Export a dataset in some format")]

    module.get_non_project_commands = _mark(get_non_project_commands)


def patch_main(module: Any) -> None:
    """Make ``datum`` print errors of our formats as one line, and accept a folder as project."""
    original: Callable[..., int] = module.main
    if _is_patched(original):
        return

    @functools.wraps(original)
    def main(args: list[str] | None = None) -> int:
        from datumaro.cli import commands

        from tfod.datumaro.commands import without_project

        # 1.x has no projects, and its export command is ours.
        has_export = hasattr(commands, "get_non_project_commands")
        args = without_project(sys.argv[1:] if args is None else args, has_export=has_export)
        plain = _PlainErrors()
        logging.getLogger().addFilter(plain)
        try:
            return original(args)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except Exception as error:
            if get_user_message(error) is None:
                raise
            return 1
        finally:
            logging.getLogger().removeFilter(plain)

    module.main = _mark(main)


class _PlainErrors(logging.Filter):
    """Replaces the outermost exception, which Datumaro logs, with our error inside it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, BaseException):
            plain = get_user_message(record.msg)
            if plain is not None:
                record.msg, record.args = plain, ()
        return True


def _mark(function: Any) -> Any:
    function._tfod = True
    return function


def _is_patched(function: Any) -> bool:
    return getattr(function, "_tfod", False)


PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "datumaro.components.environment": patch_environment,
    "datumaro.cli.commands": patch_commands,
    "datumaro.cli.__main__": patch_main,
}
"""The functions that patch modules of Datumaro when they are loaded, by module name."""

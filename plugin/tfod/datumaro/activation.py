"""Making Datumaro know our formats right after ``pip install``, and speak plainly when they fail.

Datumaro 1.x has no plugin folders and no entry points; the 0.3 line has folders only inside its
own package and its projects. So a start-up hook (``_tfod_import_hook``, run by a ``.pth`` file)
waits until Datumaro is imported and then calls the functions here, module by module.
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
from tfod.errors import TfodError, in_plain_words

# Modules of Datumaro's own that import TensorFlow as soon as they are loaded.
_REPLACED_MODULES = frozenset(("tf_detection_api_format", "tf_detection_api"))


def activate() -> None:
    """Make every Datumaro environment know our formats, from now on; may be called again.

    For programs where the start-up hook does not run, such as a CVAT server that finds tfod in a
    folder on its path.
    """
    for name, patch in PATCHES.items():
        if name in sys.modules or name == "datumaro.components.environment":
            patch(importlib.import_module(name))
    for module in list(sys.modules.values()):
        # Not getattr: torch puts things there that make up whatever they are asked for.
        default = getattr(module, "__dict__", {}).get("DEFAULT_ENVIRONMENT")
        if default is not None and getattr(default, "_builtins_initialized", False):
            register(default)


def register(environment: Any) -> None:
    """Register our formats in one Datumaro environment, instead of any it has by their names."""
    old_line = not hasattr(environment, "exporters")
    registries = {
        "Base": environment.extractors,
        "Importer": environment.importers,
        "Exporter": environment.converters if old_line else environment.exporters,
    }
    plugins = [
        (registry, getattr(tfod.datumaro, name))
        for name in tfod.datumaro.PLUGINS
        for ending, registry in registries.items()
        if name.endswith(ending)
    ]
    ours = {plugin.NAME for _, plugin in plugins}
    groups = getattr(environment.importers, "extension_groups", {})
    for extension, members in groups.items():
        groups[extension] = [one for one in members if one[0] not in ours]
    for registry, plugin in plugins:
        registry.register(plugin.NAME, plugin)


def patch_environment(module: Any) -> None:
    """Every environment registers our formats behind Datumaro's own."""
    environment: Any = module.Environment
    if _is_patched(environment._register_builtin_plugins):
        return
    original = environment._register_builtin_plugins

    @functools.wraps(original)
    def register_builtin_plugins(self: Any) -> None:
        original(self)
        register(self)

    environment._register_builtin_plugins = _mark(register_builtin_plugins)
    _leave_out_replaced_modules(environment)
    _normalize_extensions(module)


def _leave_out_replaced_modules(environment: Any) -> None:
    """Keep Datumaro from loading what we replace: it would load TensorFlow to no end."""
    original = environment._find_plugins

    @functools.wraps(original)
    def find_plugins(plugins_dir: str) -> list[str]:
        found: list[str] = original(plugins_dir)
        return [name for name in found if _REPLACED_MODULES.isdisjoint(name.split("."))]

    environment._find_plugins = staticmethod(find_plugins)


def _normalize_extensions(module: Any) -> None:
    """Datumaro 1.x asks importers by file extension; a numbered shard's is different each time."""
    original = getattr(module, "get_all_file_extensions", None)
    if original is None:
        return

    @functools.wraps(original)
    def get_all_file_extensions(path: str, ignore_dirs: Any) -> list[str]:
        from tfod.tfrecord.shard_sets.search import find_shards
        from tfod.tfrecord.shard_sets.shard_names import SHARD_EXTENSIONS

        found: list[str] = original(path, ignore_dirs)
        if not any(extension.lower() in SHARD_EXTENSIONS for extension in found):
            try:
                find_shards(path)
            except (TfodError, OSError):
                return found
            found = [*found, SHARD_EXTENSIONS[0]]
        return found

    module.get_all_file_extensions = get_all_file_extensions


def patch_commands(module: Any) -> None:
    """Bring ``datum export`` back to Datumaro 1.x, which dropped it."""
    original = getattr(module, "get_non_project_commands", None)
    if original is None or _is_patched(original):
        return

    @functools.wraps(original)
    def get_non_project_commands() -> list[Any]:
        from tfod.datumaro import commands as export_command

        known: list[Any] = original()
        if any(command[0] == "export" for command in known):
            return known
        return [*known, ("export", export_command, "Export a dataset in some format")]

    module.get_non_project_commands = _mark(get_non_project_commands)


def patch_main(module: Any) -> None:
    """End ``datum`` with one line and exit code 1 where our formats say what is wrong.

    And take a folder for a project (:mod:`tfod.datumaro.commands`).
    """
    original: Callable[..., int] = module.main
    if _is_patched(original):
        return

    @functools.wraps(original)
    def main(args: list[str] | None = None) -> int:
        from datumaro.cli import commands

        from tfod.datumaro.commands import without_project

        # 1.x has no projects, and the command is ours.
        has_export = hasattr(commands, "get_non_project_commands")
        args = without_project(sys.argv[1:] if args is None else args, has_export=has_export)
        plain = _OneLine()
        logging.getLogger().addFilter(plain)
        try:
            return original(args)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except Exception as error:
            if in_plain_words(error) is None:
                raise
            return 1
        finally:
            logging.getLogger().removeFilter(plain)

    module.main = _mark(main)


class _OneLine(logging.Filter):
    """Datumaro logs the outermost exception; what is wrong is what we raised inside."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, BaseException):
            plain = in_plain_words(record.msg)
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
"""What is done to which of Datumaro's modules as soon as it is loaded."""

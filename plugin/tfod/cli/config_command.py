"""The configuration on the command line: the options that have a key in it, and ``tfod config``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from tfod.check.configuration import (
    FILES,
    Configuration,
    find_configuration,
    load_configuration,
    schema,
    severities_of,
    to_toml,
)
from tfod.check.findings.finding import Severity
from tfod.check.profiles.policy import Selection, Selections
from tfod.check.profiles.profile import READY
from tfod.check.receivers import RECEIVERS
from tfod.check.rules.registry import require_rule_names
from tfod.cli.command_line import Commands, add_label_map, file_name, print_line, print_text
from tfod.errors import TfodError

_LEVELS = tuple(one.value for one in reversed(Severity))
_OPTIONS = {"for": "receiver"}
"""Names of options by their keys, where they are not the same."""
_OF_RULES = ("select", "ignore", "severities", "per-path")


def add_parser(commands: Commands) -> None:
    """Add ``config`` to the commands."""
    parser = commands.add_parser(
        "config",
        help="say which configuration a check here would use",
        description="Say which tfod.toml, or pyproject.toml with [tool.tfod], `tfod check` uses "
        "here, and what it says.",
    )
    _add_choice(parser)
    how = parser.add_mutually_exclusive_group()
    text = "print all keys with their values and where these are from, as a tfod.toml"
    how.add_argument("--show", action="store_true", help=text)
    text = "print the JSON schema of the file, for editors"
    how.add_argument("--schema", action="store_true", help=text)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.schema:
        print_text(json.dumps(schema(), ensure_ascii=False, indent=2) + "\n")
        return 0
    configuration = _chosen(arguments)
    if arguments.show:
        print_text(to_toml(configuration))
    else:
        nothing = f"no configuration: there is neither {FILES[0]} nor {FILES[1]} with [tool.tfod]"
        print_line(configuration.file or f"{nothing} in this folder or above it")
    return 0


def add_configured_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that have a key in the configuration, and those that choose it."""
    group = parser.add_argument_group("what is expected (tfod.toml has keys for these)")
    add = group.add_argument
    text = "who reads the shards next, which decides what is an error; any lists what each of them "
    text += "makes of it (default: any, without the list; cvat where a CVAT task or --profile cvat "
    text += "is given)"
    add("--for", dest="receiver", choices=tuple(RECEIVERS), help=text)
    text = f"the feature description: {', '.join(READY)}, or a file (YAML, JSON, or Python with a "
    text += "feature_description); without it that of --for, or the one that fits best"
    add("--profile", metavar="NAME|FILE", help=text)
    add_label_map(group)
    text = "check these rules alone: codes and families, separated by commas"
    add("--select", type=_split, action="extend", metavar="CODES", help=text)
    text = "do not check these; of a family and a code the code decides"
    add("--ignore", type=_split, action="extend", metavar="CODES", help=text)
    text = "severity of a rule or a family: error, warning, info or off; stronger than --ignore"
    add("--severity", action="append", default=[], metavar="CODE=LEVEL", help=text)
    add("--fail-on", choices=_LEVELS[:2], help="default: error")
    add(
        "--baseline",
        type=file_name,
        metavar="FILE",
        help="report only what is not in this baseline",
    )
    _add_choice(group)


def _add_choice(parser: argparse._ActionsContainer) -> None:
    group = parser.add_mutually_exclusive_group()
    text = "the configuration (default: the nearest tfod.toml, or pyproject.toml with [tool.tfod], "
    text += "in this folder or above it)"
    group.add_argument("--config", type=file_name, metavar="FILE", help=text)
    group.add_argument("--no-config", action="store_true", help="use no configuration")


def _chosen(arguments: argparse.Namespace) -> Configuration:
    if arguments.no_config:
        return Configuration()
    if arguments.config is not None:
        return load_configuration(arguments.config)
    return find_configuration()


def configure(arguments: argparse.Namespace) -> tuple[Configuration, Selections]:
    """Read the configuration, and fill in the options that were not typed, whose default is None.

    Returns:
        The configuration, and what it and the command line say of rules.

    Raises:
        TfodError: the configuration or an option makes no sense.
    """
    configuration = _chosen(arguments)
    arguments.config = configuration.file
    for key in configuration.values:
        option = _OPTIONS.get(key, key.replace("-", "_"))
        if key not in _OF_RULES and getattr(arguments, option, "") is None:
            setattr(arguments, option, configuration.value(key))
    for option in ("select", "ignore"):
        require_rule_names(getattr(arguments, option) or (), f"--{option}")
    typed = Selection(
        arguments.select,
        arguments.ignore or (),
        severities_of(dict(_severity(text) for text in arguments.severity)),
    )
    by_path = configuration.selections_by_path()
    folder = os.path.abspath(configuration.folder) if by_path else ""
    selections = Selections(
        configuration.selection(), by_path, typed, folder, os.getcwd() if by_path else ""
    )
    return configuration, selections


def _split(text: str) -> Sequence[str]:
    codes = [code for one in text.split(",") if (code := one.strip().upper())]
    if not codes:
        raise argparse.ArgumentTypeError(f"{text!r} names no rule")
    return codes


def _severity(text: str) -> tuple[str, str]:
    code, _, level = text.partition("=")
    code, level = code.strip().upper(), level.strip().lower()
    require_rule_names([code], f"--severity {text}")
    if level not in (*_LEVELS, "off"):
        raise TfodError(f"--severity {text}: expected CODE=error, warning, info or off")
    return code, level

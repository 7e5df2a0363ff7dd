"""``datum export`` for Datumaro 1.x, which dropped the command when it dropped projects.

The options are those of the 0.3 line; ``-p`` takes a dataset folder in place of a project.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from tfod.errors import TfodError


def build_parser(parser_ctor: Callable[..., Any] = argparse.ArgumentParser) -> Any:
    """Build the parser, in the way Datumaro's own commands do."""
    from datumaro.cli.util import MultilineFormatter
    from datumaro.cli.util.dataset_utils import FilterModes
    from datumaro.components.environment import DEFAULT_ENVIRONMENT

    parser = parser_ctor(
        help="Export a dataset in some format",
        description="Exports the dataset in a folder in some format (added by tfod). Each format "
        "has its own options behind the '--' separator; '-- -h' shows them. By default only "
        "annotations are exported; '--save-media' includes images.|n"
        f"Formats: {', '.join(sorted(DEFAULT_ENVIRONMENT.exporters))}|n"
        "Example: %(prog)s -f tf_detection_api -p path/to/dataset -o out -- --save-images",
        formatter_class=MultilineFormatter,
    )
    parser.add_argument("-f", "--format", required=True, help="Output format")
    parser.add_argument(
        "-p",
        "--project",
        dest="project_dir",
        default=".",
        help="Folder of the dataset, in any format that is recognised (default: current dir)",
    )
    parser.add_argument(
        "-if", "--input-format", help="Format of the dataset (default: recognise it)"
    )
    parser.add_argument(
        "--input-args",
        default="",
        help="Options of the input format, in one argument: --input-args '--profile my.yaml'",
    )
    parser.add_argument(
        "-o",
        "--output-dir",
        dest="dst_dir",
        help="Directory to save output (default: a subdir in the current one)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="Overwrite existing files in the save directory"
    )
    parser.add_argument("-e", "--filter", help="XML XPath filter expression for dataset items")
    parser.add_argument(
        "--filter-mode",
        default=FilterModes.i.name,
        type=FilterModes.parse,
        help=f"Filter mode, one of {', '.join(FilterModes.list_options())} (default: i)",
    )
    parser.add_argument(
        "extra_args",
        nargs=argparse.REMAINDER,
        help="Options of the output format, behind the '--' separator (pass '-- -h' for help)",
    )
    parser.set_defaults(command=export_command)
    return parser


def export_command(args: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        CliException: an argument makes no sense; ``datum`` prints it as one line.
    """
    from datumaro.cli.util.errors import CliException
    from datumaro.components.errors import DatumaroError

    try:
        return _export(args)
    except (DatumaroError, TfodError) as error:
        raise CliException(str(error)) from error


def _export(args: argparse.Namespace) -> int:
    from datumaro.cli.util.dataset_utils import FilterModes
    from datumaro.components.dataset import Dataset
    from datumaro.components.environment import DEFAULT_ENVIRONMENT

    environment = DEFAULT_ENVIRONMENT
    if args.format not in environment.exporters:
        raise TfodError(f"Exporter for format '{args.format}' is not found")
    exporter = environment.exporters[args.format]
    options = exporter.parse_cmdline(args.extra_args)
    source = os.path.abspath(args.project_dir)
    if not os.path.exists(source):
        raise TfodError(f"{args.project_dir}: no such folder; pass the dataset with -p")
    _check_filter(args.filter)
    target = _target_folder(args)
    input_format = args.input_format or _recognise(environment, source)
    if input_format not in environment.importers:
        raise TfodError(f"Importer for format '{input_format}' is not found")
    importer = environment.importers[input_format]
    input_options = importer.parse_cmdline(_split(args.input_args))
    dataset = Dataset.import_from(source, input_format, **input_options)
    if args.filter:
        dataset = dataset.filter(args.filter, **FilterModes.make_filter_args(args.filter_mode))
    dataset.export(format=args.format, save_dir=target, **options)
    logging.info("Results have been saved to '%s'", target)
    return 0


def _split(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise TfodError(f"--input-args: {options!r} ends too early ({error})") from None


def _check_filter(expression: str | None) -> None:
    """Refuse what is no XPath: Datumaro would log it, and export everything."""
    from lxml import etree

    try:
        etree.XPath(expression or "/item")
    except etree.XPathSyntaxError as error:
        raise TfodError(f"-e: {expression!r} is not an XPath expression ({error})") from None


def _target_folder(args: argparse.Namespace) -> str:
    from datumaro.cli.util.dataset_utils import generate_next_file_name
    from datumaro.util.os_util import make_file_name

    folder = args.dst_dir
    if not folder:
        return str(
            os.path.abspath(generate_next_file_name(f"export-{make_file_name(args.format)}"))
        )
    if not args.overwrite and os.path.isdir(folder) and os.listdir(folder):
        raise TfodError(f"Directory '{folder}' already exists (pass --overwrite to overwrite)")
    return str(os.path.abspath(folder))


def _recognise(environment: Any, source: str) -> str:
    if os.path.isfile(source):  # Datumaro looks at folders alone
        return "tf_detection_api"
    matches: list[str] = environment.detect_dataset(source)
    # Of a family (voc, voc_detection, voc_segmentation) the head reads all the others do.
    for head in matches:
        if all(one == head or one.startswith(f"{head}_") for one in matches):
            return head
    if matches:
        raise TfodError(
            f"Multiple formats match the dataset: {', '.join(matches)}; choose one with -if"
        )
    raise TfodError(f"{source}: no dataset format was recognised; name it with -if")


_PROJECT_OPTIONS = ("-p", "--project")
_MARK_OF_PROJECT = ".datumaro"  # datumaro.components.project.ProjectLayout.aux_dir


def without_project(arguments: Sequence[str], *, has_export: bool) -> list[str]:
    """The command line with the folder where Datumaro takes one.

    Args:
        arguments: behind ``datum``.
        has_export: ``datum export`` takes a folder with ``-p``, as ours on 1.x does.
    """
    found = list(arguments)
    if not found or found[0] not in ("transform", "export"):
        return found
    end = found.index("--") if "--" in found else len(found)
    place = next((at for at in range(1, end - 1) if found[at] in _PROJECT_OPTIONS), None)
    if place is None or os.path.isdir(os.path.join(found[place + 1], _MARK_OF_PROJECT)):
        return found
    if found[0] == "transform":
        folder = found[place + 1]
        # Behind the options: an argument in front of them would take them for the transform's.
        return [*found[:place], *found[place + 2 : end], folder, *found[end:]]
    if not has_export:
        return ["convert", *found[1:place], "-i", *found[place + 1 :]]
    return found

"""``datum export`` for Datumaro 1.x, which has removed the command together with projects.

The options are the same as in the 0.3 line, but ``-p`` is a dataset folder instead of a project.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from tfod.errors import TfodError, excerpt


def build_parser(parser_ctor: Callable[..., Any] = argparse.ArgumentParser) -> Any:
    """Build the parser, like Datumaro's own commands."""
    from datumaro.cli.util import MultilineFormatter
    from datumaro.cli.util.dataset_utils import FilterModes
    from datumaro.components.environment import DEFAULT_ENVIRONMENT

    parser = parser_ctor(
        help="Export a dataset in some format",
        description="Exports the dataset in a folder in some format (added by tfod). Each format "
        "has its own options after the '--' separator; '-- -h' shows them. By default only "
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
        help="Dataset folder; its format is detected without -if (default: current dir)",
    )
    parser.add_argument("-if", "--input-format", help="Format of the dataset (default: detected)")
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
        help="Options of the output format, after the '--' separator (pass '-- -h' for help)",
    )
    parser.set_defaults(command=export_command)
    return parser


def export_command(args: argparse.Namespace) -> int:
    """Run the command; raises CliException, which ``datum`` prints as one line."""
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
    input_format = args.input_format or _detect_format(environment, source)
    if input_format not in environment.importers:
        raise TfodError(f"Importer for format '{input_format}' is not found")
    importer = environment.importers[input_format]
    input_options = importer.parse_cmdline(_split_options(args.input_args))
    dataset = Dataset.import_from(source, input_format, **input_options)
    if args.filter:
        dataset = dataset.filter(args.filter, **FilterModes.make_filter_args(args.filter_mode))
    dataset.export(format=args.format, save_dir=target, **options)
    logging.info("Results have been saved to '%s'", target)
    return 0


def _split_options(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise TfodError(f"--input-args: {excerpt(options)} ends too early ({error})") from None


def _check_filter(expression: str | None) -> None:
    """Raise TfodError for invalid XPath, which Datumaro only logs before it exports everything."""
    from lxml import etree

    try:
        etree.XPath(expression or "/item")
    except etree.XPathSyntaxError as error:
        raise TfodError(f"-e: {excerpt(expression)} is not an XPath expression ({error})") from None


def _target_folder(args: argparse.Namespace) -> str:
    from datumaro.cli.util.dataset_utils import generate_next_file_name
    from datumaro.util.os_util import make_file_name

    folder = args.dst_dir
    if not folder:
        name = generate_next_file_name(f"export-{make_file_name(args.format)}")
        return str(os.path.abspath(name))
    if not args.overwrite and os.path.isdir(folder) and os.listdir(folder):
        raise TfodError(f"Directory '{folder}' already exists (pass --overwrite to overwrite)")
    return str(os.path.abspath(folder))


def _detect_format(environment: Any, source: str) -> str:
    if os.path.isfile(source):  # Datumaro detects only folders
        return "tf_detection_api"
    matches: list[str] = environment.detect_dataset(source)
    # In a family (voc, voc_detection, voc_segmentation), the first format reads all the others.
    for head in matches:
        if all(match == head or match.startswith(f"{head}_") for match in matches):
            return head
    if matches:
        raise TfodError(f"Multiple formats match: {', '.join(matches)}; choose one with -if")
    raise TfodError(f"{source}: no dataset format was detected; set it with -if")


_PROJECT_OPTIONS = ("-p", "--project")
_PROJECT_MARKER = ".datumaro"  # datumaro.components.project.ProjectLayout.aux_dir


def without_project(arguments: Sequence[str], *, has_export: bool) -> list[str]:
    """Replace ``-p FOLDER`` with the arguments that Datumaro expects for a folder.

    ``has_export`` means that ``-p`` of ``datum export`` accepts a folder, as ours on 1.x does.
    """
    words = list(arguments)
    if not words or words[0] not in ("transform", "export"):
        return words
    command, end = words[0], words.index("--") if "--" in words else len(words)
    indices = (index for index in range(1, end - 1) if words[index] in _PROJECT_OPTIONS)
    index = next(indices, None)
    if index is None or os.path.isdir(os.path.join(words[index + 1], _PROJECT_MARKER)):
        return words
    before, folder, after = words[:index], words[index + 1], words[index + 2 :]
    if command == "transform":
        # The folder comes last, since options before it would count as the transform's.
        return [*before, *words[index + 2 : end], folder, *words[end:]]
    if not has_export:
        return ["convert", *before[1:], "-i", folder, *after]
    return words

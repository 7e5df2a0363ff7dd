"""``tfod cvat``: shards out of a CVAT server and back into it, from outside."""

from __future__ import annotations

import argparse
import os
import tempfile

from tfod.cli.command_line import add_number, print_line, print_note, whole_number
from tfod.cvat.client.connection import add_connection_options, connect
from tfod.cvat.client.task import KINDS, Target
from tfod.errors import TfodError

EXIT_OK = 0
EXIT_FINDINGS = 1
KEEP, DROP = "keep", "drop"
APPEND, REPLACE = "append", "replace"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``cvat`` to the commands."""
    parser = commands.add_parser(
        "cvat",
        help="export shards from a CVAT server, and import them",
        description="Shards out of a CVAT server and back into it, without any change to the "
        "server: app.cvat.ai, for example.",
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_export(verbs)
    _add_import(verbs)


def _add_export(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "export",
        help="write a task, a job or a project as a zip of shards",
        description="Write the annotations of a task, a job or a project as a zip of "
        "<subset>.tfrecord and label_map.pbtxt.",
    )
    _add_target(parser)
    parser.add_argument("out", metavar="OUT.zip", help="the zip to write")
    parser.add_argument("--with-images", action="store_true", help="the images too")
    parser.add_argument(
        "--save-masks", action="store_true", help="an instance mask for each object, as PNG"
    )
    add_number(parser, "--num-shards", "shards of each subset", 1)
    parser.add_argument(
        "--empty-frames",
        choices=(KEEP, DROP),
        default=KEEP,
        help="frames without an annotation (default: keep)",
    )
    parser.add_argument("--force", action="store_true", help="write over a zip that is there")
    add_connection_options(parser)
    parser.set_defaults(run=_export)


def _add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "import",
        help="check a zip of shards against a task, a job or a project, and import it",
        description="Check a zip against the task as it is now, say what would change, and import "
        "it. Exit status 1: the check has found errors, and nothing was touched.",
    )
    _add_target(parser)
    parser.add_argument("zip", metavar="ANNO.zip", help="shards and their label map")
    parser.add_argument(
        "--mode",
        choices=(APPEND, REPLACE),
        default=REPLACE,
        help="what becomes of the annotations that are there (default: replace, as in CVAT)",
    )
    parser.add_argument("--dry-run", action="store_true", help="stop before anything is touched")
    parser.add_argument(
        "--label-map", metavar="FILE|NAME", help="a label map in place of the one in the zip"
    )
    add_connection_options(parser)
    parser.set_defaults(run=_import)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="what ID is the number of")
    parser.add_argument(
        "number", metavar="ID", type=whole_number(1), help="as in its page's address"
    )


def _export(arguments: argparse.Namespace) -> int:
    from tfod.cvat.client.export import FORMAT, convert_export
    from tfod.cvat.client.requests import export_dataset
    from tfod.cvat.frame_shards import ExportOptions

    out, target = arguments.out, Target(arguments.kind, arguments.number)
    if os.path.isdir(out) or not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise TfodError(f"{out}: name a file in a folder that is there")
    if os.path.exists(out) and not arguments.force:
        raise TfodError(f"{out} is there already; name another file, or write over it with --force")
    options = ExportOptions(
        with_images=arguments.with_images,
        save_masks=arguments.save_masks,
        num_shards=arguments.num_shards,
        keep_empty=arguments.empty_frames == KEEP,
    )
    with tempfile.TemporaryDirectory(prefix="tfod-cvat-") as scratch:
        source = os.path.join(scratch, "export.zip")
        with connect(arguments) as server:
            target.retrieve(server)
            export_dataset(server, target, FORMAT, source, options.with_images)
        exported = convert_export(source, out, options)
    print_line(f"{out}: {exported.summary()}")
    for sentence in exported.notes():
        print_note(sentence)
    return EXIT_OK


def _import(arguments: argparse.Namespace) -> int:
    from tfod.cvat.client.importing import ImportOptions, import_zip

    if not os.path.isfile(arguments.zip):
        raise TfodError(f"{arguments.zip}: no such file; name a zip of shards")
    options = ImportOptions(
        path=arguments.zip,
        append=arguments.mode == APPEND,
        dry_run=arguments.dry_run,
        label_map=arguments.label_map,
    )
    with connect(arguments) as server:
        done = import_zip(
            server, Target(arguments.kind, arguments.number), options, print_line, print_note
        )
    return EXIT_OK if done else EXIT_FINDINGS

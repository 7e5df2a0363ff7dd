"""The command ``tfod cvat``: export and import of shards through the API of a CVAT server."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from typing import Any

from tfod.cli.arguments import Parser, add_label_map, output_path, whole_number
from tfod.cli.printing import print_line, print_note
from tfod.cvat.client.connection import (
    DEFAULT_HOST,
    HOST_VARIABLE,
    KINDS,
    TOKEN_VARIABLE,
    Target,
    connect,
)
from tfod.errors import TfodError


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``cvat``."""
    parser.description = (
        "Export shards from a CVAT server, or import them. Works with any server, such as "
        "app.cvat.ai: nothing is installed there."
    )
    commands = parser.add_commands()
    export = commands.add_parser(
        "export",
        help="write a task, job or project as a zip of shards",
        description="Write the annotations of a task, job or project as a zip of "
        "<subset>.tfrecord and label_map.pbtxt.",
    )
    export.set_defaults(run=_export)
    add = _add_target(export)
    add("out", metavar="OUT.zip", help="the zip to write", type=output_path)
    add("--with-images", action="store_true", help="include the images")
    add("--save-masks", action="store_true", help="write a PNG instance mask per object")
    text = "frames without annotations (default: keep)"
    add("--empty-frames", help=text, choices=("keep", "drop"), default="keep")
    add("--overwrite", action="store_true", help="replace an existing zip")
    add_label_map(add, "keep the class ids of this label map; new classes get higher ids")

    importing = commands.add_parser(
        "import",
        help="check a zip against a task, job or project, and import it",
        description="Check a zip against the current state of the task, show what would change, "
        "and import it. Exit status 1: the check found errors, and nothing was changed.",
    )
    importing.set_defaults(run=_import)
    add = _add_target(importing)
    add("zip", metavar="ANNO.zip", help="a zip of shards and their label map")
    text = "what to do with existing annotations (default: replace, as in CVAT)"
    add("--mode", help=text, choices=("append", "replace"), default="replace")
    text = "also delete annotations that the zip cannot restore"
    add("--force", action="store_true", help=text)
    text = "images that match no frame (default: refuse the zip)"
    add("--other-frames", help=text, choices=("refuse", "skip"), default="refuse")
    add("--dry-run", action="store_true", help="show what would change, but do not import")
    add_label_map(add, "use this label map instead of the one in the zip")


def _add_target(parser: argparse.ArgumentParser) -> Callable[..., Any]:
    """Add the arguments that name a task and its server, and return ``add_argument``."""
    parser.epilog = (
        f"Log in with the variable {TOKEN_VARIABLE}, or with CVAT_USER and PASS. "
        "CVAT_ORGANIZATION is the slug of an organization."
    )
    add = parser.add_argument
    add("kind", metavar="KIND", help=", ".join(KINDS), choices=KINDS)
    add("number", metavar="ID", help="the number in its URL", type=whole_number(1))
    text = f"URL of the server (default: {HOST_VARIABLE}, or {DEFAULT_HOST})"
    add("--server", metavar="URL", help=text)
    add("--insecure", action="store_true", help="send the token or password over http://")
    return add


def _export(arguments: argparse.Namespace) -> int:
    from tfod.cvat.client.exporting import FORMAT, convert_export
    from tfod.cvat.client.live_task import count_unexported
    from tfod.cvat.frame_shards import ExportOptions

    out, target = arguments.out, Target(arguments.kind, arguments.number)
    if os.path.isdir(out) or not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise TfodError(f"{out}: name a file in an existing folder")
    if os.path.exists(out) and not arguments.overwrite:
        raise TfodError(f"{out} already exists; name another file, or pass --overwrite")
    options = ExportOptions(
        with_images=arguments.with_images,
        save_masks=arguments.save_masks,
        keep_empty=arguments.empty_frames == "keep",
        label_map=arguments.label_map,
    )
    with tempfile.TemporaryDirectory(prefix="tfod-cvat-") as scratch:
        source = os.path.join(scratch, "export.zip")
        with connect(arguments.server, insecure=arguments.insecure) as server:
            server.retrieve(target)
            hidden, tracks = count_unexported(server, target)
            server.export(target, FORMAT, source, options.with_images)
        exported = convert_export(source, out, options, hidden, tracks)
    print_line(f"{out}: {exported.summary()}")
    if options.label_map:
        print_line(f"label map: {options.label_map}")
    for sentence in exported.notes:
        print_note(sentence)
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from tfod.cvat.client.importing import ImportOptions, import_zip

    if not os.path.isfile(arguments.zip):
        raise TfodError(f"{arguments.zip}: no such file; name a zip of shards")
    options = ImportOptions(
        path=arguments.zip,
        append=arguments.mode == "append",
        force=arguments.force,
        dry_run=arguments.dry_run,
        label_map=arguments.label_map,
        skips_others=arguments.other_frames == "skip",
    )
    target = Target(arguments.kind, arguments.number)
    with connect(arguments.server, insecure=arguments.insecure) as server:
        succeeded = import_zip(server, target, options, _print_lines, print_note)
    return 0 if succeeded else 1


def _print_lines(text: str) -> None:
    for line in text.split("\n"):
        print_line(line)

"""``tfod cvat``: shards out of a CVAT server and back into it, from outside."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from typing import Any

from tfod.cli.arguments import Parser, add_label_map, to_write, whole_number
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
    """What ``cvat`` takes."""
    parser.description = (
        "Shards out of a CVAT server and back into it, without any change to the "
        "server: app.cvat.ai, for example."
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    export = verbs.add_parser(
        "export",
        help="write a task, a job or a project as a zip of shards",
        description="Write the annotations of a task, a job or a project as a zip of "
        "<subset>.tfrecord and label_map.pbtxt.",
    )
    export.set_defaults(run=_export)
    add = _on_a_server(export)
    add("out", metavar="OUT.zip", help="the zip to write", type=to_write)
    add("--with-images", action="store_true", help="the images too")
    add("--save-masks", action="store_true", help="an instance mask for each object, as PNG")
    text = "frames without an annotation (default: keep)"
    add("--empty-frames", help=text, choices=("keep", "drop"), default="keep")
    add("--overwrite", action="store_true", help="write over a zip that is there")
    add_label_map(add, "classes keep its ids, new ones get ids above its highest")

    importing = verbs.add_parser(
        "import",
        help="check a zip of shards against a task, a job or a project, and import it",
        description="Check a zip against the task as it is now, say what would change, and import "
        "it. Exit status 1: the check has found errors, and nothing was touched.",
    )
    importing.set_defaults(run=_import)
    add = _on_a_server(importing)
    add("zip", metavar="ANNO.zip", help="shards and their label map")
    text = "of what is there (default: replace, as in CVAT)"
    add("--mode", help=text, choices=("append", "replace"), default="replace")
    add("--force", action="store_true", help="delete also what the zip cannot bring back")
    text = "images of no frame (default: refuse the zip)"
    add("--other-frames", help=text, choices=("refuse", "skip"), default="refuse")
    add("--dry-run", action="store_true", help="stop before anything is touched")
    add_label_map(add, "a label map in place of the one in the zip")


def _on_a_server(parser: argparse.ArgumentParser) -> Callable[..., Any]:
    """The arguments that say what on which server."""
    parser.epilog = f"{TOKEN_VARIABLE}, or CVAT_USER and PASS, log in; CVAT_ORGANIZATION is a slug."
    add = parser.add_argument
    add("kind", metavar="KIND", help=", ".join(KINDS), choices=KINDS)
    add("number", metavar="ID", help="as in its page's address", type=whole_number(1))
    add("--server", metavar="URL", help=f"default: {HOST_VARIABLE}, or {DEFAULT_HOST}")
    return add


def _export(arguments: argparse.Namespace) -> int:
    from tfod.cvat.client.exporting import FORMAT, convert_export
    from tfod.cvat.client.live_task import count_unexported
    from tfod.cvat.frame_shards import ExportOptions

    out, target = arguments.out, Target(arguments.kind, arguments.number)
    if os.path.isdir(out) or not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        raise TfodError(f"{out}: name a file in a folder that is there")
    if os.path.exists(out) and not arguments.overwrite:
        raise TfodError(f"{out} is there already; name another file, or pass --overwrite")
    options = ExportOptions(
        with_images=arguments.with_images,
        save_masks=arguments.save_masks,
        keep_empty=arguments.empty_frames == "keep",
        label_map=arguments.label_map,
    )
    with tempfile.TemporaryDirectory(prefix="tfod-cvat-") as scratch:
        source = os.path.join(scratch, "export.zip")
        with connect(arguments.server) as server:
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
    with connect(arguments.server) as server:
        done = import_zip(server, target, options, _print_lines, print_note)
    return 0 if done else 1


def _print_lines(text: str) -> None:
    for line in text.split("\n"):
        print_line(line)

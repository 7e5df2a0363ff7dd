"""The command ``tfod show``."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from urllib.parse import urlencode

from tfod.checker.finding import plural
from tfod.checker.reporters.drawing import get_template
from tfod.checker.reporters.html import render_cards
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    load_named_profile,
    not_empty,
    whole_number,
)
from tfod.cli.printing import (
    begin_output,
    existing_files,
    list_source_files,
    print_line,
    print_note,
)
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.shards.show import draw_records, require_drawable
from tfod.sources.other_tools import make_no_shards_error
from tfod.sources.resolver import resolve

_MAX_RECORDS = 10_000


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``show``."""
    parser.description = (
        "Write an HTML page that shows images with their boxes, masks, keypoints and classes, "
        "each with its record number and file name. The page is a single file that loads nothing. "
        "With --serve, look at all records in a browser."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "a shard, folder, glob, zip, fsspec URL, or - for standard input"
    add("source", metavar="SOURCE", help=text, type=not_empty)
    add_output(add, "the page to write (default: sheet.html)")
    either = parser.add_mutually_exclusive_group().add_argument
    number = whole_number(1, _MAX_RECORDS)
    text = "show the first N records (default: 24)"
    either("--first", metavar="N", help=text, type=number, default=24)
    text = "instead of writing a page, open a viewer on a local port, and check the shards"
    either("--serve", help=text, action="store_true")
    text = "show these records of a single shard, such as 3,7"
    either("--records", metavar="LIST", help=text, type=_record_numbers)
    add("--class", metavar="NAME", help="only records with this class", dest="class_name")
    text = "port of --serve (default: any free port)"
    add("--port", metavar="N", help=text, type=whole_number(0, 65535))
    add_label_map(add)
    add_profile(add)


def _record_numbers(text: str) -> frozenset[int]:
    return frozenset(map(whole_number(), text.split(",")))


def _run(options: argparse.Namespace) -> int:
    if options.serve:
        return _serve(options)
    if options.port is not None:
        raise TfodError(f"--port {options.port}: add --serve")
    options.output = options.output or "sheet.html"
    if not options.output.lower().endswith(".html"):
        raise TfodError(f"-o {options.output}: the output is an HTML page; use the extension .html")
    with resolve([options.source], options.label_map) as sources:
        inputs = list_source_files(sources)
        inputs += existing_files(options.label_map, options.profile)
        with begin_output(options.output, inputs) as output:
            drawing = draw_records(
                sources,
                load_named_profile(options.profile),
                first=options.first,
                records=options.records,
                class_name=options.class_name,
            )
            if not drawing.cards:
                message = "no record can be shown; run tfod check to find out why"
                error = ShardsNotFoundError(f"{options.source}: {message}")
                raise error if sources.shards else make_no_shards_error(options.source, error)
            output.write(render_cards(drawing.cards, _get_title(options.source)))
    counts = f"{plural(len(drawing.cards), 'record')}, {plural(drawing.boxes, 'box')}"
    label_maps = {name: None for dataset in sources.datasets for name in dataset.label_maps}
    suffix = f"; label map: {', '.join(label_maps)}" if label_maps else ""
    print_line(f"{options.output}: {counts}{suffix}")
    if drawing.without_objects:
        print_note(drawing.without_objects)
    if drawing.unreadable:
        damaged = plural(drawing.unreadable, "damaged record")
        print_note(f"{damaged} skipped; run tfod check to list them")
    return 0


def _get_title(source: str) -> str:
    return os.path.basename(os.path.normpath(source)) or source


def _serve(options: argparse.Namespace) -> int:
    """Serve the viewer until Ctrl-C."""
    from tfod.checker.check import Options
    from tfod.viewer.server import serve
    from tfod.viewer.session import Session

    if options.output:
        raise TfodError(f"-o {options.output}: --serve writes no page; leave out one of them")
    profile = load_named_profile(options.profile)
    with resolve([options.source], options.label_map) as sources:
        if not sources.shards:
            raise make_no_shards_error(
                options.source, ShardsNotFoundError(f"{options.source}: contains no shards")
            )
        require_drawable(sources.shards, profile)
        get_template("drawing.svg")  # raises an error without jinja2
        session = Session(sources, Options(profile=profile, label_map=options.label_map))
        fragment = f"#{urlencode({'class': options.class_name})}" if options.class_name else ""
        with closing(session):
            title = _get_title(options.source)
            serve(session, title, options.port or 0, fragment, _announce)
    return 0


def _announce(url: str) -> None:
    print_line(f"showing on {url} until Ctrl-C")
    sys.stdout.flush()

"""``tfod show``: a page of images with their boxes."""

from __future__ import annotations

import argparse
import os

from tfod.checker.finding import plural
from tfod.checker.reporters.html import render_cards
from tfod.cli.arguments import (
    Parser,
    add_label_map,
    add_output,
    add_profile,
    named_profile,
    not_empty,
    whole_number,
)
from tfod.cli.printing import begin_output, files_among, files_of, print_line, print_note
from tfod.errors import ShardsNotFoundError, TfodError
from tfod.shards.show import draw_records
from tfod.sources.other_tools import no_shards_error
from tfod.sources.resolver import resolve

_MOST = 10_000


def add_arguments(parser: Parser) -> None:
    """What ``show`` takes."""
    parser.description = (
        "Write an HTML page of images with their boxes, masks, keypoints and classes; below each "
        "the record's number and the file name. It is one file, and loads nothing."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "a shard, a folder, a glob, a zip, an fsspec URL, or -"
    add("source", metavar="SOURCE", help=text, type=not_empty)
    add_output(add, "the page to write (default: sheet.html)", default="sheet.html")
    either = parser.add_mutually_exclusive_group().add_argument
    number = whole_number(1, _MOST)
    text = "the first N records (default: 24)"
    either("--first", metavar="N", help=text, type=number, default=24)
    either("--records", metavar="LIST", help="records by number: 3,7 (one shard)", type=_numbers)
    add("--class", metavar="NAME", help="only records with this class", dest="class_name")
    add_label_map(add)
    add_profile(add)


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(whole_number(), text.split(",")))


def _run(options: argparse.Namespace) -> int:
    if not options.output.lower().endswith(".html"):
        raise TfodError(f"-o {options.output}: it is an HTML page; let its name end in .html")
    with resolve([options.source], options.label_map) as found:
        read = [*files_of(found), *files_among(options.label_map, options.profile)]
        with begin_output(options.output, read) as output:
            shown = draw_records(
                found,
                named_profile(options.profile),
                first=options.first,
                records=options.records,
                class_name=options.class_name,
            )
            if not shown.cards:
                what = "no record to show; tfod check says what is wrong"
                error = ShardsNotFoundError(f"{options.source}: {what}")
                raise no_shards_error(options.source, error) if not found.shards else error
            title = os.path.basename(os.path.normpath(options.source)) or options.source
            output.write(render_cards(shown.cards, title))
    records, boxes = plural(len(shown.cards), "record"), plural(shown.boxes, "box")
    label_maps = dict.fromkeys(name for one in found.datasets for name in one.label_maps)
    used = f"; label map: {', '.join(label_maps)}" if label_maps else ""
    print_line(f"{options.output}: {records}, {boxes}{used}")
    if shown.without_objects:
        print_note(shown.without_objects)
    if shown.unreadable:
        print_note(f"{plural(shown.unreadable, 'damaged record')} skipped; tfod check lists them")
    return 0

"""``tfod show``: a contact sheet of images with their boxes, as PNG or HTML."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from tfod.check.amounts import plural
from tfod.check.profiles.file import load_profile
from tfod.check.reporters.drawing import can_show
from tfod.check.reporters.escaping import visible
from tfod.check.sources import take_inventory
from tfod.errors import TfodError
from tfod.shards.sheet import Choice, Tile, chosen_tiles, paint_sheet, render_page
from tfod.shards.sheet.choice import Seen
from tfod.tfrecord.storage.publishing import AtomicFile

_ENDINGS = (".png", ".html")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z", re.ASCII)
_MOST = 10_000
_MOST_NAMES = 5


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``show`` to the commands."""
    parser = commands.add_parser(
        "show",
        help="draw images with their boxes on a contact sheet",
        description="Draw a contact sheet of images with their boxes, masks, keypoints and "
        "classes; below each the record's number and the file name.",
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="a shard, a folder, a glob, a zip, an fsspec URL, or -"
    )
    parser.add_argument(
        "-o",
        "--output",
        default="sheet.png",
        metavar="FILE",
        help="a .png, or a .html that is one file (default: sheet.png)",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--first", type=_count, metavar="N", help="the first N records (default: 24)"
    )
    which.add_argument(
        "--records", type=_numbers, metavar="LIST", help="records by number: 3,7-9 (one shard)"
    )
    which.add_argument("--random", type=_count, metavar="N", help="N records at random")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of --random (default: 0)")
    parser.add_argument(
        "--class", dest="class_name", metavar="NAME", help="only records with this class"
    )
    parser.add_argument(
        "--label-map", metavar="FILE|NAME", help="a label map for all shards; beside them otherwise"
    )
    parser.add_argument(
        "--profile", metavar="NAME|FILE", help="as for tfod check; the best fit otherwise"
    )
    parser.add_argument(
        "--columns", type=_count, default=4, metavar="N", help="beside each other (default: 4)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a FILE that is there")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST:,}")
    return int(text)


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(
                f"{part!r} is neither a number nor a range such as 7-9"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise argparse.ArgumentTypeError(f"{part!r} is not a range of 1 to {_MOST:,} records")
        found.update(range(first, last + 1))
    return frozenset(found)


def run(options: argparse.Namespace) -> int:
    """Run the command; return its exit code.

    Raises:
        TfodError: there is nothing to show, or the sheet cannot be written.
    """
    path = os.path.realpath(options.output)
    ending = os.path.splitext(path)[1].lower()
    if ending not in _ENDINGS:
        raise TfodError(f"-o {options.output}: a sheet ends in .png or .html")
    if os.path.lexists(path) and not (options.overwrite and os.path.isfile(path)):
        raise TfodError(f"{options.output} is there already; pass --overwrite, or another name")
    choice = Choice(
        options.first or 24, options.records, options.random, options.seed, options.class_name
    )
    seen = Seen()
    folder, name = os.path.split(path)
    # Begun first: nobody wants to hear at the end that it cannot be written.
    file = AtomicFile(folder, "tfod-sheet")
    try:
        with take_inventory([options.source]) as inventory:
            profile = load_profile(options.profile) if options.profile else None
            tiles = list(chosen_tiles(inventory, choice, options.label_map, seen, profile))
        if not tiles:
            raise TfodError(f"{options.source}: no record to show")
        if ending == ".png":
            file.write(paint_sheet(tiles, options.columns))
        else:
            title = os.path.basename(os.path.normpath(options.source)) or options.source
            file.write(render_page(tiles, title, options.columns).encode("utf-8", "replace"))
        file.publish(name)
    finally:
        file.discard()
    _tell(options.output, tiles, seen, in_image=ending == ".png")
    return 0


def _tell(path: str, tiles: Sequence[Tile], seen: Seen, *, in_image: bool) -> None:
    boxes = sum(len(tile.sample.boxes) for tile in tiles)
    print(f"{path}: {plural(len(tiles), 'record')}, {plural(boxes, 'box')}")
    if seen.unreadable:
        what = plural(seen.unreadable, "damage")
        print(f"tfod: {what} passed over; tfod check says which", file=sys.stderr)
    if in_image:
        names = dict.fromkeys(visible(name) for tile in tiles for name in tile.sample.classes)
        lacking = [name for name in names if not can_show(name)][:_MOST_NAMES]
        if lacking:
            print(
                f"tfod: no font here has all letters of {', '.join(lacking)}; "
                "install one, or write a .html",
                file=sys.stderr,
            )

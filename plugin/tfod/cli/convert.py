"""The command ``tfod convert``."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Sequence

from tfod.checker.finding import plural
from tfod.cli.arguments import (
    MAX_SHARDS,
    Parser,
    add_label_map,
    add_profile,
    add_receiver,
    not_empty,
    output_path,
    select_arguments,
    whole_number,
)
from tfod.cli.printing import print_line, print_note
from tfod.formats.options import OddBoxes, OddMasks
from tfod.formats.table import FORMATS, TARGETS
from tfod.functions import convert

_MAX_LISTED = 4  # files per folder


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``convert``."""
    parser.description = (
        "Convert a dataset from Pascal VOC, COCO, YOLO, CSV or CVAT XML to shards, or from "
        "shards to these. Anything that the other format cannot store is reported."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "shards, or a dataset in another format"
    add("source", metavar="SOURCE", help=text, type=not_empty)
    text = "a folder, or a file with the extension .record, .tfrecord, .json, .csv or .xml"
    add("target", metavar="DEST", help=text, type=output_path)
    text = "format of SOURCE, if it is ambiguous: %(choices)s"
    add("--from", metavar="FORMAT", help=text, choices=FORMATS, dest="source_format")
    text = "format of DEST: one of these, keras_coco, roboflow or roboflow_coco (default: shards)"
    add("--to", metavar="FORMAT", help=text, choices=TARGETS, dest="target_format")
    text = "folder of images to read; from shards, to write"
    add("--images", metavar="DIR", help=text, type=not_empty)
    text = "write no images; use the sizes in the annotations"
    add("--no-images", action="store_true", help=text)
    add_label_map(add, "label map with class ids (default: ids in SOURCE)")
    add_profile(add)
    text = "convert only this subset; without subsets, the name of the result"
    add("--set", metavar="NAME", help=text, dest="subset", type=not_empty)
    text = "number of shards per subset (default: 1)"
    add("--num-shards", metavar="N", help=text, type=whole_number(1, MAX_SHARDS), default=1)
    text = "write outlines as masks, and to YOLO the opposite"
    add("--masks", action="store_true", help=text)
    text = "write poses to YOLO if the objects have masks, too"
    add("--keypoints", action="store_true", help=text)
    text = "omit objects that VOC marks as difficult"
    add("--ignore-difficult", action="store_true", help=text)
    add_receiver(add)
    text = "normalize the boxes of SOURCE shards, which are in pixels"
    add("--boxes", help=text, choices=("pixels",))
    text = "boxes that are inverted, flat, not finite or outside the image (default: refuse)"
    values = [action.value for action in (OddBoxes.REFUSE, OddBoxes.CLIP, OddBoxes.DROP)]
    add("--odd-boxes", help=text, choices=values, default="refuse")
    text = "masks whose size differs from the image (default: refuse)"
    values = [action.value for action in OddMasks]
    add("--odd-masks", help=text, choices=values, default="refuse")
    text = "images with an EXIF rotation: rotate them, or keep them and rotate the boxes back "
    text += "(default: upright)"
    add("--exif", help=text, choices=("upright", "keep"), default="upright")
    add("--overwrite", action="store_true", help="replace existing files")
    add("--dry-run", action="store_true", help="show what would be done, but write nothing")


def _run(arguments: argparse.Namespace) -> int:
    options = select_arguments(convert, arguments)
    result = convert(arguments.source, arguments.target, **options)
    for subset, images in result.images.items():
        counts = f"{plural(images, 'image')}, {plural(result.objects[subset], 'object')}"
        print_line(f"{arguments.target}: {subset}: {counts}")
    if result.label_maps:
        print_line(f"label map: {', '.join(result.label_maps)}")
    if arguments.dry_run:
        _print_files("written", result.paths)
        _print_files("deleted", result.deleted)
    if result.notes:
        print_note("; ".join(result.notes))
    return 0


def _print_files(verb: str, paths: Sequence[str]) -> None:
    """Print the paths of files that would be written or deleted; a number for many in a folder."""
    existing = sum(map(os.path.lexists, paths)) if verb == "written" else 0
    replaced = f", {existing:,} instead of existing files" if existing else ""
    if paths:
        print_line(f"{plural(len(paths), 'file')} would be {verb}{replaced}:")
    for folder, group in itertools.groupby(sorted(paths, key=os.path.split), os.path.dirname):
        names = list(group)
        if len(names) > _MAX_LISTED:
            names = [f"{folder or os.curdir}: {len(names):,} files"]
        for name in names:
            print_line(f"  {name}")

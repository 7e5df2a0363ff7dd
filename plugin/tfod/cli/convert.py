"""``tfod convert``: shards from and to other formats."""

from __future__ import annotations

import argparse

from tfod.check.findings.finding import plural
from tfod.cli.arguments import MOST_SHARDS, Arguments, Parser, file_name, to_write, whole_number
from tfod.cli.output import print_line, print_note
from tfod.shards.convert.formats import FORMATS, ReadOptions
from tfod.shards.create.problems import ExifOrientation, OddBoxes, Policy


def add_arguments(parser: Parser) -> None:
    """What ``convert`` takes."""
    parser.description = (
        "Convert a dataset, subset by subset. What the other format has no place for "
        "is counted. Nothing is written over."
    )
    parser.set_defaults(run=_run)
    arguments = Arguments(parser)
    text = "shards, or a dataset of another format"
    arguments.value("source", "SOURCE", text, type=file_name)
    text = "the folder or file to write, which must not be there"
    arguments.value("target", "DEST", text, type=to_write)
    text = "the format of SOURCE, where the path does not say it: %(choices)s"
    arguments.value("--from", "FORMAT", text, choices=FORMATS, dest="source_format")
    text = "the format of DEST, likewise"
    arguments.value("--to", "FORMAT", text, choices=FORMATS, dest="target_format")
    arguments.label_map("a label map for all records; what is found in SOURCE otherwise")
    text = "the folder of images: of shards where to write them, else where they are"
    arguments.value("--images", "FOLDER", text)
    arguments.flag("--no-images", "write no images")
    text = "shards of each subset, if DEST is shards (default: 1)"
    arguments.value("--num-shards", "N", text, type=whole_number(1, MOST_SHARDS), default=1)
    add_policy(arguments)


def add_policy(arguments: Arguments) -> None:
    """Add what is to be done with boxes and images that do not fit."""
    text = "of boxes that are inverted, flat, not finite or outside the image: write nothing, "
    text += "clip what reaches outside and leave out the rest, or leave all out (default: refuse)"
    kinds = [one.value for one in (OddBoxes.REFUSE, OddBoxes.CLIP, OddBoxes.DROP)]
    arguments.value("--odd-boxes", None, text, choices=kinds, default="refuse")
    add_image_policy(arguments)


def add_image_policy(arguments: Arguments) -> None:
    """Add what is to be done with images that do not fit."""
    text = "where sizes do not tell whether an image was annotated as its EXIF orientation shows "
    text += "it: refuse it, assume that it was, or that it was not (default: auto)"
    kinds = [one.value for one in ExifOrientation]
    arguments.value("--exif-orientation", None, text, choices=kinds, default="auto")
    arguments.flag("--skip-missing-images", "leave out images that are missing")


def policy_of(options: argparse.Namespace) -> Policy:
    """What these options say."""
    boxes, orientation = OddBoxes(options.odd_boxes), ExifOrientation(options.exif_orientation)
    return Policy(boxes, orientation, options.skip_missing_images)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.convert.convert import Options, convert

    read = ReadOptions(options.label_map, options.images, policy_of(options))
    named = options.source_format, options.target_format
    done = convert(
        options.source,
        options.target,
        Options(*named, read, options.no_images, options.num_shards),
    )
    for subset, images in done.images.items():
        counts = f"{plural(images, 'image')}, {plural(done.objects[subset], 'object')}"
        print_line(f"{options.target}: {subset}: {counts}")
    if done.notes:
        print_note("; ".join(done.notes))
    return 0

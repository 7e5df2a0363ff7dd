"""``tfod convert``: a dataset of one format as one of another."""

from __future__ import annotations

import argparse

from tfod.check.findings.finding import plural
from tfod.cli.command_line import Commands, add_number, print_line, print_note
from tfod.cli.create_command import add_policy, policy_of
from tfod.shards.convert.formats import FORMATS, ReadOptions


def add_parser(commands: Commands) -> None:
    """Add ``convert`` to the commands."""
    parser = commands.add_parser(
        "convert",
        help="write shards as COCO, Pascal VOC, YOLO or CVAT XML, or these as shards",
        description="Convert a dataset, subset by subset. What the other format has no place for "
        "is counted. Nothing is written over.",
    )
    add = parser.add_argument
    add("source", metavar="A", help="shards, or a dataset of another format: a folder or a file")
    add("target", metavar="B", help="the folder or file to write, which must not be there")
    text = "the format of A or B, where the path does not say it: %(choices)s"
    add("--from", dest="source_format", choices=FORMATS, metavar="FORMAT", help=text)
    add("--to", dest="target_format", choices=FORMATS, metavar="FORMAT", help=text)
    text = "a label map for all records; what is found in A otherwise"
    add("--label-map", metavar="FILE|NAME", help=text)
    text = "the folder of images: of shards where to write them, else where they are"
    add("--images", metavar="FOLDER", help=text)
    add("--no-images", action="store_true", help="write no images")
    add_number(parser, "--num-shards", "shards of each subset, if B is shards (default: 1)", 1)
    add_policy(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from tfod.shards.convert.convert import Options, convert

    done = convert(
        options.source,
        options.target,
        Options(
            options.source_format,
            options.target_format,
            ReadOptions(options.label_map, options.images, policy_of(options)),
            options.no_images,
            options.num_shards,
        ),
    )
    for subset, images in done.images.items():
        counts = f"{plural(images, 'image')}, {plural(done.objects[subset], 'object')}"
        print_line(f"{options.target}: {subset}: {counts}")
    if done.notes:
        print_note("; ".join(done.notes))
    return 0

"""``tfod convert``: a dataset of one format as another."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from tfod.checker.finding import plural
from tfod.cli.arguments import (
    MOST_SHARDS,
    Parser,
    add_label_map,
    add_profile,
    add_receiver,
    named_profile,
    not_empty,
    to_write,
    whole_number,
)
from tfod.cli.printing import print_line, print_note
from tfod.formats.options import OddBoxes, OddMasks, Options
from tfod.formats.table import FORMATS, TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfod.formats.options import CompleteShard


def add_arguments(parser: Parser) -> None:
    """What ``convert`` takes."""
    parser.description = (
        "Convert a dataset, subset by subset: Pascal VOC, COCO, YOLO, a CSV or CVAT XML to shards "
        "and back. What the other format has no place for is counted."
    )
    parser.set_defaults(run=_run)
    add = parser.add_argument
    text = "shards, or a dataset of another format"
    add("source", metavar="SOURCE", help=text, type=not_empty)
    text = "a folder, or a file by its name: .record, .tfrecord, .json, .csv, .xml"
    add("target", metavar="DEST", help=text, type=to_write)
    text = "the format of SOURCE, where the path does not say it: %(choices)s"
    add("--from", metavar="FORMAT", help=text, choices=FORMATS, dest="source_format")
    text = "the format of DEST: likewise, keras_coco or roboflow (default: shards)"
    add("--to", metavar="FORMAT", help=text, choices=TARGETS, dest="target_format")
    text = "the images: where they are; from shards where to write them"
    add("--images", metavar="DIR", help=text, type=not_empty)
    text = "the annotations alone; sizes are those that they give"
    add("--no-images", action="store_true", help=text)
    add_label_map(add, "the ids of the classes; what is found in SOURCE otherwise")
    add_profile(add)
    text = "only this subset; the name of the one that has none"
    add("--set", metavar="NAME", help=text, dest="subset", type=not_empty)
    text = "shards of each subset (default: 1), never more than images"
    add("--num-shards", metavar="N", help=text, type=whole_number(1, MOST_SHARDS), default=1)
    add("--masks", action="store_true", help="outlines as masks, one for each object")
    text = "leave out objects that VOC calls difficult"
    add("--ignore-difficult", action="store_true", help=text)
    add_receiver(add)
    text = "the boxes of shards are pixels, which they must not be: divide them"
    add("--boxes", help=text, choices=("pixels",))
    text = "boxes that are inverted, flat, not finite or outside the image (default: refuse)"
    kinds = [one.value for one in (OddBoxes.REFUSE, OddBoxes.CLIP, OddBoxes.DROP)]
    add("--odd-boxes", help=text, choices=kinds, default="refuse")
    text = "masks of another size than their image (default: refuse)"
    kinds = [one.value for one in OddMasks]
    add("--odd-masks", help=text, choices=kinds, default="refuse")
    text = "photos with an EXIF orientation: store them upright, or keep them as they are "
    text += "and put the boxes on the stored pixels (default: upright)"
    add("--exif", help=text, choices=("upright", "keep"), default="upright")
    add("--overwrite", action="store_true", help="replace files of the same names")


def _run(options: argparse.Namespace) -> int:
    from tfod.detection.images.source_ids import LARGEST_FOR
    from tfod.formats.table import convert

    profile = named_profile(options.profile)
    wanted = Options(
        field_mapping=profile.field_mapping if profile else None,
        label_map=options.label_map,
        images=options.images,
        no_images=options.no_images,
        subset=options.subset,
        masks=options.masks,
        ignore_difficult=options.ignore_difficult,
        odd_boxes=OddBoxes(options.odd_boxes),
        odd_masks=OddMasks(options.odd_masks),
        upright=options.exif == "upright",
        num_shards=options.num_shards,
        largest_source_id=LARGEST_FOR.get(options.receiver),
        verify=None if options.no_images else functools.partial(_verify, options.receiver),
        boxes_in_pixels=options.boxes == "pixels",
        overwrite=options.overwrite,
    )
    formats = options.source_format, options.target_format
    done = convert(options.source, options.target, wanted, *formats)
    for subset, images in done.images.items():
        counts = f"{plural(images, 'image')}, {plural(done.objects[subset], 'object')}"
        print_line(f"{options.target}: {subset}: {counts}")
    if done.label_maps:
        print_line(f"label map: {', '.join(done.label_maps)}")
    if done.notes:
        print_note("; ".join(done.notes))
    return 0


def _verify(
    receiver: str | None, shards: Sequence[CompleteShard], label_map: str, layout: str
) -> None:
    from tfod.shards.verify import verify  # the check takes its time to load

    verify(shards, label_map, layout, receiver)

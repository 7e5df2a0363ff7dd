"""``tfod create``: shards from Pascal VOC, COCO or a CSV; and ``tfod convert``."""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfod.check.findings.finding import plural
from tfod.cli.command_line import (
    MOST_SHARDS,
    Commands,
    add_number,
    add_receiver,
    file_name,
    print_line,
    print_note,
)
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError
from tfod.shards.convert.formats import FORMATS, ReadOptions
from tfod.shards.create.problems import ExifOrientation, OddBoxes, Policy

if TYPE_CHECKING:
    from tfod.shards.create.output import Created, Options

_COCO_SETS = {"train": 100, "val": 50, "testdev": 50}
"""The sets of the OD API's script, and how many files it writes for each."""


def add_parser(commands: Commands) -> None:
    """Add ``create`` and ``convert`` to the commands."""
    parser = commands.add_parser(
        "create",
        help="make shards from Pascal VOC, COCO or a CSV",
        description="Shards as the OD API's create_*_tf_record.py scripts make them, and the "
        "label map beside them, without TensorFlow. The options are the scripts' own, with dashes.",
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)

    pascal = formats.add_parser(
        "pascal",
        help="from Pascal VOC's XML, one file an image (also LabelImg's)",
        description="As create_pascal_tf_record.py.",
        usage="%(prog)s --data-dir DIR --output-path PATH [options]",
    )
    _add(pascal, "data-dir", "the devkit, one of its years, or a folder of annotations", True)
    _add(pascal, "output-path", "the shard to write: pascal.record", True)
    _add(pascal, "year", "VOC2007, VOC2012 or merged (default: VOC2007, else the folder itself)")
    _add(pascal, "set", "train, val, or another list (default: train, without lists everything)",
         dest="image_set")  # fmt: skip
    _add(pascal, "annotations-dir", "folder of the XML files in the year's (default: Annotations, "
         "annotations or annots, else the folder itself)")  # fmt: skip
    _add(pascal, "image-dir", "folder of the images (default: JPEGImages or images, else "
         "beside their XML)")  # fmt: skip
    _add_flag(pascal, "ignore-difficult-instances", "leave out difficult objects")
    _add_common(pascal, _by_names("pascal", "create_pascal"), "1")

    coco = formats.add_parser(
        "coco",
        help="from COCO's JSON: boxes, masks, keypoints",
        description="As create_coco_tf_record.py of the OD API; one set is enough.",
        usage="%(prog)s --output-dir DIR [options]",
    )
    for name, images in (("train", "train"), ("val", "val"), ("testdev", "test")):
        _add(coco, f"{images}-image-dir", f"folder of the images of {name}")
        _add(coco, f"{name}-annotations-file", f"JSON of the instances of {name}")
    for name in ("train", "val"):
        _add(coco, f"{name}-keypoint-annotations-file", f"JSON of the keypoints of {name}")
    _add(coco, "output-dir", "folder to write coco_train.record-00000-of-00100 … to", True)
    _add_flag(coco, "include-masks", "a mask for each object, as PNG (needs pycocotools)")
    _add_common(coco, _coco, "100 for train, 50 for the others", maps="the ids of the categories")

    csv = formats.add_parser(
        "csv",
        help="from a CSV of filename,width,height,class,xmin,ymin,xmax,ymax",
        description="As generate_tfrecord.py of the raccoon recipe.",
        usage="%(prog)s --csv-input INPUT --image-dir DIR --output-path PATH [options]",
    )
    _add(csv, "csv-input", "the CSV", True)
    _add(csv, "image-dir", "the folder of the images", True)
    _add(csv, "output-path", "the shard to write: train.record", True)
    _add_common(csv, _by_names("csv", "create_from_csv"), "1")
    _add_convert(commands)


def _add_convert(commands: Commands) -> None:
    parser = commands.add_parser(
        "convert",
        help="write shards as COCO, Pascal VOC, YOLO or CVAT XML, or these as shards",
        description="Convert a dataset, subset by subset. What the other format has no place for "
        "is counted. Nothing is written over.",
    )
    add = parser.add_argument
    add("source", type=file_name, metavar="SOURCE", help="shards, or a dataset of another format")
    add("target", metavar="DEST", help="the folder or file to write, which must not be there")
    text = "the format of SOURCE, where the path does not say it: %(choices)s"
    add("--from", dest="source_format", choices=FORMATS, metavar="FORMAT", help=text)
    text = "the format of DEST, likewise"
    add("--to", dest="target_format", choices=FORMATS, metavar="FORMAT", help=text)
    text = "a label map for all records; what is found in SOURCE otherwise"
    add("--label-map", metavar="FILE|NAME", help=text)
    text = "the folder of images: of shards where to write them, else where they are"
    add("--images", metavar="FOLDER", help=text)
    add("--no-images", action="store_true", help="write no images")
    text = "shards of each subset, if DEST is shards (default: 1)"
    add_number(parser, "--num-shards", text, 1, most=MOST_SHARDS)
    _add_policy(parser)
    parser.set_defaults(run=_convert)


def _add(
    parser: argparse.ArgumentParser, name: str, text: str, required: bool = False, **options: Any
) -> None:
    options = {"metavar": name.rpartition("-")[2].upper(), **options}
    parser.add_argument(f"--{name}", help=text, required=required, **options)


def _add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(f"--{name}", help=text, action="store_true")


def _add_common(
    parser: argparse.ArgumentParser,
    create: Callable[[argparse.Namespace, Options], Created],
    num_shards: str,
    maps: str = "the one beside the shards, else one that fits",
) -> None:
    _add(parser, "label-map-path", f"a label map, or a name that tfod ships (default: {maps})",
         metavar="FILE|NAME", dest="label_map")  # fmt: skip
    text = f"files, never more than images (default: {num_shards})"
    add_number(parser, "--num-shards", text, most=MOST_SHARDS)
    _add_policy(parser)
    _add_flag(parser, "overwrite", "replace what is there")
    add_receiver(parser)
    parser.set_defaults(run=_create, create=create)


def _add_policy(parser: argparse.ArgumentParser) -> None:
    """Add what is to be done with boxes and images that do not fit."""
    text = "of boxes that are inverted, flat, not finite or outside the image: write nothing, "
    text += "clip what reaches outside and leave out the rest, or leave all out (default: refuse)"
    kinds = [one.value for one in (OddBoxes.REFUSE, OddBoxes.CLIP, OddBoxes.DROP)]
    parser.add_argument("--odd-boxes", choices=kinds, default="refuse", help=text)
    add_image_policy(parser)


def add_image_policy(parser: argparse.ArgumentParser) -> None:
    """Add what is to be done with images that do not fit."""
    text = "where sizes do not tell whether an image was annotated as its EXIF orientation shows "
    text += "it: refuse it, assume that it was, or that it was not (default: auto)"
    kinds = [one.value for one in ExifOrientation]
    parser.add_argument("--exif-orientation", choices=kinds, default="auto", help=text)
    _add_flag(parser, "skip-missing-images", "leave out images that are missing")


def policy_of(options: argparse.Namespace) -> Policy:
    """What these options say."""
    boxes, orientation = OddBoxes(options.odd_boxes), ExifOrientation(options.exif_orientation)
    return Policy(boxes, orientation, options.skip_missing_images)


def _convert(options: argparse.Namespace) -> int:
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


def _create(options: argparse.Namespace) -> int:
    from tfod.shards.create.output import InvalidError, Options, verify

    common = Options(
        label_map=options.label_map,
        num_shards=options.num_shards,
        overwrite=options.overwrite,
        policy=policy_of(options),
        verify=functools.partial(verify, receiver=options.receiver),
        largest_source_id=LARGEST_FOR.get(options.receiver),
    )
    try:
        created: Created = options.create(options, common)
    except InvalidError as error:
        print_note(str(error), "tfod create")
        return 1
    for one in created.sets:
        files = plural(len(one.shards), "file")
        counts = f"{plural(one.images, 'image')}, {plural(one.objects, 'object')}"
        print_line(f"{one.shards[0]}: {counts}, {files}")
    there = "" if created.label_map_written else " (was there)"
    print_line(f"label map: {created.label_map}{there}")
    for note in created.notes:
        print_note(note, "tfod create")
    return 0


def _by_names(module: str, name: str) -> Callable[[argparse.Namespace, Options], Created]:
    """What creates shards of the options that its parameters are called like."""

    def create(given: argparse.Namespace, options: Options) -> Created:
        function = getattr(importlib.import_module(f"tfod.shards.create.{module}"), name)
        names = inspect.signature(function).parameters.keys() & vars(given).keys()
        created: Created = function(options=options, **{one: getattr(given, one) for one in names})
        return created

    return create


def _coco(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.coco.create import create_coco
    from tfod.shards.create.coco.reader import CocoSet

    sets = []
    for name, num_shards in _COCO_SETS.items():
        images = "test" if name == "testdev" else name
        needed = f"{images}_image_dir", f"{name}_annotations_file"
        folder, file = (getattr(given, one) for one in needed)
        points = getattr(given, f"{name}_keypoint_annotations_file", None)
        if not (folder or file or points):
            continue
        if not (folder and file):
            missing = needed[bool(folder)].replace("_", "-")
            raise TfodError(f"--{missing} is missing; name it, or leave the set {name} out")
        file_name, is_test = f"coco_{name}.record", images != name
        sets.append(CocoSet(file_name, folder, file, points, is_test, num_shards))
    if not sets:
        raise TfodError("name the files of a set: --train-image-dir and --train-annotations-file")
    return create_coco(sets, given.output_dir, options, include_masks=given.include_masks)

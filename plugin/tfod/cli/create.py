"""``tfod create``: shards from Pascal VOC, COCO or a CSV."""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfod.check.findings.finding import plural
from tfod.cli.arguments import MOST_SHARDS, Arguments, Parser, to_write, whole_number
from tfod.cli.convert import add_policy, policy_of
from tfod.cli.output import print_line, print_note
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError

if TYPE_CHECKING:
    from tfod.shards.create.output import Created, Options

_COCO_SETS = {"train": 100, "val": 50, "testdev": 50}
"""The sets of the OD API's script, and how many files it writes for each."""


def add_arguments(parser: Parser) -> None:
    """What ``create`` takes."""
    parser.description = (
        "Shards as the OD API's create_*_tf_record.py scripts make them, and the "
        "label map beside them, without TensorFlow. The options are the scripts' own, with dashes."
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)
    text = "from Pascal VOC's XML, one file an image (also LabelImg's)"
    _add_pascal(formats.add_parser("pascal", help=text))
    text = "from COCO's JSON: boxes, masks, keypoints"
    _add_coco(formats.add_parser("coco", help=text))
    text = "from a CSV of filename,width,height,class,xmin,ymin,xmax,ymax"
    _add_csv(formats.add_parser("csv", help=text))


def _add_pascal(parser: argparse.ArgumentParser) -> None:
    parser.description = "As create_pascal_tf_record.py."
    parser.set_defaults(create=_by_names("pascal", "create_pascal"))
    arguments = Arguments(parser)
    text = "the devkit, one of its years, or a folder of annotations"
    arguments.value("--data-dir", "DIR", text, required=True)
    text = "the shard to write: pascal.record"
    arguments.value("--output-path", "PATH", text, required=True, type=to_write)
    text = "VOC2007, VOC2012 or merged (default: VOC2007, else the folder itself)"
    arguments.value("--year", "YEAR", text)
    text = "train, val, or another list (default: train, without lists everything)"
    arguments.value("--set", "SET", text, dest="image_set")
    text = "folder of the XML files in the year's (default: Annotations, annotations or annots, "
    arguments.value("--annotations-dir", "DIR", text + "else the folder itself)")
    text = "folder of the images (default: JPEGImages or images, else beside their XML)"
    arguments.value("--image-dir", "DIR", text)
    arguments.flag("--ignore-difficult-instances", "leave out difficult objects")
    _add_common(parser, "1")


def _add_coco(parser: argparse.ArgumentParser) -> None:
    parser.description = "As create_coco_tf_record.py of the OD API; one set is enough."
    parser.set_defaults(create=_coco)
    arguments = Arguments(parser)
    for name, images in (("train", "train"), ("val", "val"), ("testdev", "test")):
        arguments.value(f"--{images}-image-dir", "DIR", f"folder of the images of {name}")
        text = f"JSON of the instances of {name}"
        arguments.value(f"--{name}-annotations-file", "FILE", text)
    for name in ("train", "val"):
        text = f"JSON of the keypoints of {name}"
        arguments.value(f"--{name}-keypoint-annotations-file", "FILE", text)
    text = "folder to write coco_train.record-00000-of-00100 … to"
    arguments.value("--output-dir", "DIR", text, required=True, type=to_write)
    arguments.flag("--include-masks", "a mask for each object, as PNG (needs pycocotools)")
    _add_common(parser, "100 for train, 50 for the others", "the ids of the categories")


def _add_csv(parser: argparse.ArgumentParser) -> None:
    parser.description = "As generate_tfrecord.py of the raccoon recipe."
    parser.set_defaults(create=_by_names("csv", "create_from_csv"))
    arguments = Arguments(parser)
    arguments.value("--csv-input", "INPUT", "the CSV", required=True)
    arguments.value("--image-dir", "DIR", "the folder of the images", required=True)
    text = "the shard to write: train.record"
    arguments.value("--output-path", "PATH", text, required=True, type=to_write)
    _add_common(parser, "1")


def _add_common(
    parser: argparse.ArgumentParser,
    num_shards: str,
    maps: str = "the one beside the shards, else one that fits",
) -> None:
    """Add what all formats share; the defaults as the help says them."""
    parser.set_defaults(run=_run)
    arguments = Arguments(parser)
    text = f"a label map, or a name that tfod ships (default: {maps})"
    arguments.value("--label-map-path", "FILE|NAME", text, dest="label_map")
    text = f"files, never more than images (default: {num_shards})"
    arguments.value("--num-shards", "N", text, type=whole_number(1, MOST_SHARDS))
    add_policy(arguments)
    arguments.flag("--overwrite", "replace what is there")
    arguments.receiver()


def _run(options: argparse.Namespace) -> int:
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

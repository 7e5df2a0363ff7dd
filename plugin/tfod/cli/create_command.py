"""``tfod create``: shards from Pascal VOC, COCO, KITTI, Open Images or a CSV; ``tfod convert``.

The options of ``create`` are those of the OD API's scripts, with the same meanings and defaults;
``--data_dir`` may be spelt ``--data-dir``.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfod.check.findings.finding import plural
from tfod.cli.command_line import (
    Commands,
    add_number,
    add_receiver,
    add_runner_options,
    print_line,
    print_note,
    runner_of,
    whole_number,
)
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError
from tfod.shards.convert.formats import FORMATS, ReadOptions
from tfod.shards.create.problems import ExifOrientation, OddBoxes, Policy

if TYPE_CHECKING:
    from tfod.shards.create.coco.reader import CocoSet
    from tfod.shards.create.output import Created, Options

_MOST_SHARDS = 99_999  # as many as five digits can say
# What workers read, whose working directory is another one.
_FOLDERS = (
    *("data_dir", "image_dir", "images_directory", "panoptic_masks_dir"),
    *("train_image_dir", "val_image_dir", "test_image_dir"),
)
# The sets of the OD API's script, and how many files it writes for each; and Model Garden's.
_COCO_SETS = {"train": 100, "val": 50, "testdev": 50}
_MODEL_GARDEN_SHARDS = 32
_MODEL_GARDEN_FILES = (
    *("image_dir", "image_info_file", "object_annotations_file", "caption_annotations_file"),
    *("panoptic_annotations_file", "panoptic_masks_dir"),
)
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def add_parser(commands: Commands) -> None:
    """Add ``create`` and ``convert`` to the commands."""
    parser = commands.add_parser(
        "create",
        help="make shards from Pascal VOC, COCO, KITTI, Open Images or a CSV",
        description="Shards as the OD API's create_*_tf_record.py scripts make them, and the "
        "label map beside them, without TensorFlow. The options are the scripts' own.",
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)

    pascal = formats.add_parser(
        "pascal",
        help="from Pascal VOC's XML, one file an image (also LabelImg's)",
        description="As create_pascal_tf_record.py.",
    )
    _add(pascal, "data_dir", "the devkit, one of its years, or a folder of annotations", True)
    _add(pascal, "output_path", "the shard to write: pascal.record", True)
    _add(pascal, "year", "VOC2007, VOC2012 or merged (default: VOC2007, else the folder itself)")
    _add(pascal, "set", "train, val, or another list (default: train, without lists everything)",
         dest="image_set")  # fmt: skip
    _add(pascal, "annotations_dir", "folder of the XML files in the year's (default: Annotations, "
         "annotations or annots, else the folder itself)")  # fmt: skip
    _add(pascal, "image_dir", "folder of the images (default: JPEGImages or images, else "
         "beside their XML)")  # fmt: skip
    _add_flag(pascal, "ignore_difficult_instances", "leave out difficult objects")
    _add_common(pascal, _by_names("pascal", "create_pascal"), "1")

    coco = formats.add_parser(
        "coco",
        help="from COCO's JSON: boxes, masks, keypoints, captions",
        description="As create_coco_tf_record.py: the OD API's, into --output_dir (one set is "
        "enough), or TF-Vision's, which puts --output_file_prefix in front of its files.",
    )
    for name, images in (("train", "train"), ("val", "val"), ("testdev", "test")):
        _add(coco, f"{images}_image_dir", f"folder of the images of {name}")
        _add(coco, f"{name}_annotations_file", f"JSON of the instances of {name}")
    for name in ("train", "val"):
        _add(coco, f"{name}_keypoint_annotations_file", f"JSON of the keypoints of {name}")
        _add(coco, f"{name}_caption_annotations_file", f"JSON of the captions of {name}")
    _add(coco, "output_dir", "folder to write coco_train.record-00000-of-00100 … to")
    _add(coco, "image_dir", "folder of the images; several times for several", action="append")
    _add(coco, "image_info_file", "JSON of the images that get a record (default: that of the "
         "objects, else that of the captions)")  # fmt: skip
    _add(coco, "object_annotations_file", "JSON of the instances")
    _add(coco, "caption_annotations_file", "JSON of the captions")
    _add(coco, "panoptic_annotations_file", "JSON of the panoptic segments")
    _add(coco, "panoptic_masks_dir", "folder of the PNGs of the panoptic segments")
    _add_flag(coco, "include_panoptic_masks", "masks of categories and of instances, too")
    _add_flag(coco, "panoptic_skip_crowd", "leave crowds out of the panoptic masks")
    _add(coco, "output_file_prefix", "what -00000-of-00032.tfrecord … is put behind")
    _add_flag(coco, "include_masks", "a mask for each object, as PNG (needs pycocotools)")
    _add_flag(coco, "remove_non_person_annotations", "only objects of the class person")
    _add_flag(coco, "remove_non_person_images", "only images with a person")
    shards = "100 for train, 50 for the others, 32 behind a prefix"
    _add_common(coco, _coco, shards, maps="the ids of the categories")

    kitti = formats.add_parser(
        "kitti", help="from KITTI's object detection", description="As create_kitti_tf_record.py."
    )
    _add(kitti, "data_dir", "holds training/label_2 and the images", True)
    _add(kitti, "output_path", "what _train.tfrecord and _val.tfrecord are put behind", True)
    _add(kitti, "classes_to_use", "with commas, in lower case; dontcare takes out what overlaps "
         "such a region", default="car,pedestrian,dontcare", type=_classes)  # fmt: skip
    _add(kitti, "validation_set_size", "images of lower numbers are the validation set",
         default=500, type=whole_number())  # fmt: skip
    _add_common(kitti, _by_names("kitti", "create_kitti"), "1")

    oid = formats.add_parser(
        "open_images", help="from Open Images' CSVs", description="As create_oid_tf_record.py."
    )
    for name, parameter, text, is_required in (
        ("input_box_annotations_csv", "box_annotations_csv", "the CSV of the boxes", True),
        ("input_image_label_annotations_csv", "image_label_annotations_csv",
         "the CSV of the images' classes", False),
        ("input_images_directory", "images_directory", "the folder of the images", True),
        ("output_tf_record_path_prefix", "output_path_prefix",
         "what shards' numbers are put behind", True),
    ):  # fmt: skip
        _add(oid, name, text, is_required, dest=parameter)
    create_open_images = _by_names("open_images", "create_open_images")
    _add_common(oid, create_open_images, "100", option="input_label_map")

    csv = formats.add_parser(
        "csv",
        help="from a CSV of filename,width,height,class,xmin,ymin,xmax,ymax",
        description="As generate_tfrecord.py of the raccoon recipe.",
    )
    _add(csv, "csv_input", "the CSV", True)
    _add(csv, "image_dir", "the folder of the images", True)
    _add(csv, "output_path", "the shard to write: train.record", True)
    _add_flag(csv, "include_unlisted_images", "also write images that no row names, without "
              "objects")  # fmt: skip
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
    _add_policy(parser)
    parser.set_defaults(run=_convert)


def _add(
    parser: argparse.ArgumentParser, name: str, text: str, required: bool = False, **options: Any
) -> None:
    """Add an option in both spellings."""
    if "default" in options:
        text += " (default: %(default)s)"
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    options = {"dest": name, "metavar": None if "choices" in options else name.upper(), **options}
    parser.add_argument(*spellings, help=text, required=required, **options)


def _add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a flag as absl has them: ``--name``, ``--name=true``, ``--name=false``."""
    _add(parser, name, text, nargs="?", const=True, type=_truth, metavar="true|false")
    parser.set_defaults(**{name: False})


def _classes(text: str) -> list[str]:
    return [one.strip().lower() for one in text.split(",")]


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTH[text.lower()]


def _add_common(
    parser: argparse.ArgumentParser,
    create: Callable[[argparse.Namespace, Options], Created],
    num_shards: str,
    option: str = "label_map_path",
    maps: str = "the one beside the shards, else one that fits",
) -> None:
    _add(parser, option, f"a label map, or a name that tfod ships (default: {maps})",
         metavar="FILE|NAME", dest="label_map")  # fmt: skip
    _add(parser, "num_shards", f"files, never more than images (default: {num_shards})",
         type=whole_number(1, _MOST_SHARDS), metavar="N")  # fmt: skip
    _add_policy(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    add_receiver(parser)
    add_runner_options(parser)
    # absl's own, which the scripts' instructions tell people to type.
    parser.add_argument("--logtostderr", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_create, create=create)


def _add_policy(parser: argparse.ArgumentParser) -> None:
    """Add what is to be done with boxes and images that do not fit."""
    _add(parser, "odd_boxes", "of boxes that are inverted, flat, not finite or reach outside the "
         "image: write nothing, clip what reaches outside and leave out the rest, or leave them "
         "all out", default="refuse", choices=["refuse", "clip", "drop"])  # fmt: skip
    add_image_policy(parser)


def add_image_policy(parser: argparse.ArgumentParser) -> None:
    """Add what is to be done with images that do not fit."""
    _add(parser, "exif_orientation", "where sizes do not tell whether an image was annotated as "
         "its EXIF orientation shows it: refuse it, assume that it was, or that it was not",
         default="auto", choices=[one.value for one in ExifOrientation])  # fmt: skip
    _add_flag(parser, "skip_missing_images", "leave out images that are missing")


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
    runner = runner_of(options)
    if runner is not None:
        for name in _FOLDERS:
            given = getattr(options, name, None)
            if isinstance(given, list):
                setattr(options, name, [os.path.abspath(one) for one in given])
            elif given:
                setattr(options, name, os.path.abspath(given))
    from tfod.shards.create.output import InvalidError, Options, verify

    common = Options(
        label_map=options.label_map,
        num_shards=options.num_shards,
        overwrite=options.overwrite,
        policy=policy_of(options),
        runner=runner,
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

    sets = [one for name in _COCO_SETS if (one := _coco_set(given, name))]
    others = [name for name in _MODEL_GARDEN_FILES if getattr(given, name)]
    folder, prefix = given.output_dir, given.output_file_prefix
    if not (folder or prefix) or (prefix and (folder or sets)) or (folder and others):
        raise TfodError(
            "give the options of one of the two scripts: --output_dir with --train_image_dir … "
            "(OD API), or --output_file_prefix with --image_dir … (TF-Vision)"
        )
    if prefix:
        sets, folder = [_model_garden_set(given)], os.path.dirname(prefix)
    if not sets:
        raise TfodError("name the files of a set: --train_image_dir and --train_annotations_file")
    return create_coco(
        sets,
        folder,
        options,
        include_masks=given.include_masks,
        remove_non_person_annotations=given.remove_non_person_annotations,
        remove_non_person_images=given.remove_non_person_images,
    )


def _coco_set(options: argparse.Namespace, name: str) -> CocoSet | None:
    from tfod.shards.create.coco.reader import CocoSet

    given = vars(options)
    images = "test" if name == "testdev" else name
    wanted = f"{images}_image_dir", f"{name}_annotations_file"
    keypoints = given.get(f"{name}_keypoint_annotations_file")
    captions = given.get(f"{name}_caption_annotations_file")
    if not any((*map(given.get, wanted), keypoints, captions)):
        return None
    for option in wanted:
        if not given[option]:
            raise TfodError(f"--{option} is missing; name it, or leave the set {name} out")
    return CocoSet(
        f"coco_{name}.record",
        [given[wanted[0]]],
        given[wanted[1]],
        keypoints,
        captions,
        is_test=images != name,
        num_shards=_COCO_SETS[name],
    )


def _model_garden_set(given: argparse.Namespace) -> CocoSet:
    from tfod.shards.create.coco.panoptic import PanopticFiles
    from tfod.shards.create.coco.reader import CocoSet

    if not given.image_dir:
        raise TfodError("--image_dir is missing; name the folder of the images")
    json, pngs = given.panoptic_annotations_file, given.panoptic_masks_dir
    if bool(json) != bool(pngs):
        missing = "panoptic_annotations_file" if pngs else "panoptic_masks_dir"
        raise TfodError(f"--{missing} is missing; panoptic segments are a JSON and PNGs")
    return CocoSet(
        os.path.basename(given.output_file_prefix),
        given.image_dir,
        given.object_annotations_file,
        caption_annotations_file=given.caption_annotations_file,
        image_info_file=given.image_info_file,
        panoptic=PanopticFiles(json, pngs, given.include_panoptic_masks, given.panoptic_skip_crowd)
        if json
        else None,
        num_shards=_MODEL_GARDEN_SHARDS,
        extension=".tfrecord",
    )

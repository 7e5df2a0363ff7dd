"""``tfod create``: shards from Pascal VOC, COCO, KITTI, Open Images or a CSV.

The options are those of the OD API's scripts, with the same meanings and defaults;
``--data_dir`` may be spelt ``--data-dir``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfod.check.finding import Finding, Severity
from tfod.cli.runner_options import add_runner_options, runner_of
from tfod.errors import TfodError
from tfod.shards.create.problems import ExifOrientation, OddBoxes, Policy

if TYPE_CHECKING:
    from tfod.check.report import Report
    from tfod.shards.create.coco import CocoSet
    from tfod.shards.create.output import CompleteShard, Created, CreatedSet, Options

EXIT_OK = 0
EXIT_INVALID = 1
_MOST_ERRORS = 10
_MOST_SHARDS = 99_999  # as many as five digits can say
# What workers read, whose working directory is another one.
_FOLDERS = (
    *("data_dir", "image_dir", "input_images_directory"),
    *("train_image_dir", "val_image_dir", "test_image_dir"),
)
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``create`` to the commands."""
    parser = commands.add_parser(
        "create",
        help="make shards from Pascal VOC, COCO, KITTI, Open Images or a CSV",
        description="Shards as the OD API's create_*_tf_record.py scripts make them, and the "
        "label map beside them, without TensorFlow. The options are the scripts' own.",
    )
    formats = parser.add_subparsers(title="formats", metavar="FORMAT", required=True)
    _add_pascal(formats)
    _add_coco(formats)
    _add_kitti(formats)
    _add_open_images(formats)
    _add_csv(formats)


def _add_pascal(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = formats.add_parser(
        "pascal",
        help="from Pascal VOC's XML, one file an image (also LabelImg's)",
        description="As create_pascal_tf_record.py.",
    )
    _add(parser, "data_dir", "the devkit, one of its years, or a folder of annotations", True)
    _add(parser, "output_path", "the shard to write: pascal.record", True)
    _add(parser, "year", "VOC2007, VOC2012 or merged (default: VOC2007, else the folder itself)")
    _add(parser, "set", "train, val, or another list (default: train, without lists everything)")
    _add(parser, "annotations_dir", "folder of the XML files in the year's (default: Annotations, "
         "annotations or annots, else the folder itself)")  # fmt: skip
    _add(parser, "image_dir", "folder of the images (default: JPEGImages or images, else beside "
         "their XML)")  # fmt: skip
    _add_label_map(parser, "label_map_path")
    _add_flag(parser, "ignore_difficult_instances", "leave out difficult objects")
    _add_common(parser, "1", _pascal)


def _add_coco(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = formats.add_parser(
        "coco",
        help="from COCO's JSON: boxes, masks, keypoints, captions",
        description="As create_coco_tf_record.py; one set is enough.",
    )
    for name, images in (("train", "train"), ("val", "val"), ("testdev", "test")):
        _add(parser, f"{images}_image_dir", f"folder of the images of {name}")
        _add(parser, f"{name}_annotations_file", f"JSON of the instances of {name}")
    for name in ("train", "val"):
        _add(parser, f"{name}_keypoint_annotations_file", f"JSON of the keypoints of {name}")
        _add(parser, f"{name}_caption_annotations_file", f"JSON of the captions of {name}")
    _add(parser, "output_dir", "folder to write coco_train.record-00000-of-00100 … to", True)
    _add_label_map(parser, "label_map_path", "the ids of the categories")
    _add_flag(parser, "include_masks", "a mask for each object, as PNG (needs pycocotools)")
    _add_flag(parser, "remove_non_person_annotations", "only objects of the class person")
    _add_flag(parser, "remove_non_person_images", "only images with a person")
    _add_common(parser, "100 for train, 50 for the others", _coco)


def _add_kitti(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = formats.add_parser(
        "kitti",
        help="from KITTI's object detection",
        description="As create_kitti_tf_record.py.",
    )
    _add(parser, "data_dir", "holds training/label_2 and the images", True)
    _add(parser, "output_path", "what _train.tfrecord and _val.tfrecord are put behind", True)
    _add(
        parser,
        "classes_to_use",
        "with commas, in lower case; dontcare takes out what overlaps such a region",
        default="car,pedestrian,dontcare",
    )
    _add_label_map(parser, "label_map_path")
    _add(
        parser,
        "validation_set_size",
        "images of lower numbers are the validation set",
        default=500,
        type=_whole_number,
    )
    _add_common(parser, "1", _kitti)


def _add_open_images(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = formats.add_parser(
        "open_images",
        help="from Open Images' CSVs",
        description="As create_oid_tf_record.py.",
    )
    _add(parser, "input_box_annotations_csv", "the CSV of the boxes", True)
    _add(parser, "input_image_label_annotations_csv", "the CSV of the images' classes")
    _add(parser, "input_images_directory", "the folder of the images", True)
    _add_label_map(parser, "input_label_map")
    _add(parser, "output_tf_record_path_prefix", "what shards' numbers are put behind", True)
    _add_common(parser, "100", _open_images)


def _add_csv(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = formats.add_parser(
        "csv",
        help="from a CSV of filename,width,height,class,xmin,ymin,xmax,ymax",
        description="As generate_tfrecord.py of the raccoon recipe.",
    )
    _add(parser, "csv_input", "the CSV", True)
    _add(parser, "image_dir", "the folder of the images", True)
    _add(parser, "output_path", "the shard to write: train.record", True)
    _add_label_map(parser, "label_map_path")
    _add_common(parser, "1", _csv)


def _add(
    parser: argparse.ArgumentParser,
    name: str,
    text: str,
    required: bool = False,
    **options: Any,
) -> None:
    """Add an option in both spellings."""
    if "default" in options:
        text += " (default: %(default)s)"
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    parser.add_argument(*spellings, help=text, required=required, **{"dest": name, **options})


def _add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add a flag as absl has them: ``--name``, ``--name=true``, ``--name=false``."""
    _add(parser, name, text, nargs="?", const=True, type=_truth, metavar="true|false")
    parser.set_defaults(**{name: False})


def _add_label_map(
    parser: argparse.ArgumentParser,
    name: str,
    default: str = "the one beside the shards, else one that fits",
) -> None:
    text = f"a label map, or a name that tfod ships (default: {default})"
    _add(parser, name, text, metavar="FILE|NAME", dest="label_map")


def _add_common(
    parser: argparse.ArgumentParser,
    num_shards: str,
    create: Callable[[argparse.Namespace, Options], Created],
) -> None:
    _add(
        parser,
        "num_shards",
        f"files, never more than images (default: {num_shards})",
        type=_number_of_shards,
        metavar="N",
    )
    _add(
        parser,
        "odd_boxes",
        "of boxes that are inverted, flat, not finite or reach outside the image: write nothing, "
        "clip what reaches outside and leave out the rest, or leave them all out",
        default=OddBoxes.REFUSE.value,
        choices=[one.value for one in OddBoxes],
    )
    _add(
        parser,
        "exif_orientation",
        "where sizes do not tell whether an image was annotated as its EXIF orientation shows it: "
        "write nothing, take it that it was, or that it was not",
        default=ExifOrientation.AUTO.value,
        choices=[one.value for one in ExifOrientation],
    )
    _add_flag(parser, "skip_missing_images", "leave out images that are missing")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    add_runner_options(parser)
    # absl's own, which the scripts' instructions tell people to type.
    parser.add_argument("--logtostderr", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_run, create=create)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTH[text.lower()]


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _number_of_shards(text: str) -> int:
    number = _whole_number(text)
    if not 1 <= number <= _MOST_SHARDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {_MOST_SHARDS}")
    return number


def _run(options: argparse.Namespace) -> int:
    options.runner = runner_of(options)
    if options.runner is not None:
        for name in _FOLDERS:
            if getattr(options, name, None):
                setattr(options, name, os.path.abspath(getattr(options, name)))
    from tfod.shards.create.output import Options

    policy = Policy(
        OddBoxes(options.odd_boxes),
        ExifOrientation(options.exif_orientation),
        options.skip_missing_images,
    )
    try:
        created: Created = options.create(
            options,
            Options(
                label_map=options.label_map,
                num_shards=options.num_shards,
                overwrite=options.overwrite,
                policy=policy,
                runner=options.runner,
                verify=_verify,
            ),
        )
    except _InvalidError as error:
        print(error, file=sys.stderr)
        return EXIT_INVALID
    for one in created.sets:
        print(_sentence(one))
    there = "" if created.label_map_written else " (was there)"
    print(f"label map: {created.label_map}{there}", flush=True)
    for note in created.notes:
        print(f"tfod create: {note}", file=sys.stderr)
    return EXIT_OK


class _InvalidError(TfodError):
    """What was made would be called INVALID."""


def _verify(shards: Sequence[CompleteShard], label_map: str) -> None:
    """Check what was made, as ``tfod check`` would, before it gets its names.

    Raises:
        _InvalidError: it is INVALID; the text has an error a line, each with its source.
    """
    from tfod.check.check import Options, check
    from tfod.check.profiles.profile import READY
    from tfod.check.receivers import TRAINING
    from tfod.check.sources import Location, inventory_of

    if not shards:
        return
    with tempfile.TemporaryDirectory(prefix="tfod-create-") as folder:
        path = os.path.join(folder, "label_map.pbtxt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(label_map)
        options = Options(
            profile=READY["tf_detection_api"],
            receiver=TRAINING,
            label_map=path,
            max_findings=_MOST_ERRORS,
            jobs=os.cpu_count() or 1,
            hash_sources=False,
        )
        inventory = inventory_of([Location(one.path, one.aside) for one in shards])
        report = check(inventory, options)
    if not report.valid:
        raise _InvalidError(_invalid(report, {one.path: one.source for one in shards}))


def _invalid(report: Report, sources: Mapping[str, str]) -> str:
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    count = report.counts.by_severity[Severity.ERROR]
    lines = [f"tfod create: nothing is written: it would be INVALID, {_plural(count, 'error')}"]
    lines += [_error(one, sources.get(one.shard, "")) for one in errors]
    if count > len(errors):
        lines.append(f"  and {count - len(errors)} more")
    return "\n".join(lines)


def _error(one: Finding, source: str) -> str:
    where = ", ".join(part for part in (source, one.item) if part) or "the label map"
    return f"  {where}: {one.message} ({one.code}). {one.fix}"


def _sentence(one: CreatedSet) -> str:
    files = _plural(len(one.shards), "file")
    counts = f"{_plural(one.images, 'image')}, {_plural(one.objects, 'object')}"
    return f"{one.shards[0]}: {counts}, {files}"


def _plural(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _pascal(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.pascal import YEARS, PascalSource, create_pascal

    if given.year is not None and given.year not in YEARS:
        raise TfodError(f"--year must be one of {', '.join(YEARS)}, not {given.year!r}")
    source = PascalSource(
        given.data_dir, given.year, given.set, given.annotations_dir, given.image_dir
    )
    return create_pascal(
        source,
        given.output_path,
        options,
        ignore_difficult_instances=given.ignore_difficult_instances,
    )


def _coco(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.coco import CocoContent, create_coco

    sets = [one for one in map(partial(_coco_set, given), ("train", "val", "testdev")) if one]
    if not sets:
        raise TfodError("name the files of a set: --train_image_dir and --train_annotations_file")
    content = CocoContent(
        include_masks=given.include_masks,
        remove_non_person_annotations=given.remove_non_person_annotations,
        remove_non_person_images=given.remove_non_person_images,
    )
    return create_coco(sets, given.output_dir, options, content=content)


def _coco_set(options: argparse.Namespace, name: str) -> CocoSet | None:
    from tfod.shards.create.coco import CocoSet

    given = vars(options)
    image_dir = "test_image_dir" if name == "testdev" else f"{name}_image_dir"
    instances = f"{name}_annotations_file"
    keypoints = given.get(f"{name}_keypoint_annotations_file")
    captions = given.get(f"{name}_caption_annotations_file")
    if not any((given[image_dir], given[instances], keypoints, captions)):
        return None
    for option in (image_dir, instances):
        if not given[option]:
            raise TfodError(f"--{option} is missing; name it, or leave the set {name} out")
    return CocoSet(name, given[image_dir], given[instances], keypoints, captions)


def _kitti(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.kitti import create_kitti

    return create_kitti(
        given.data_dir,
        given.output_path,
        options,
        classes_to_use=[one.strip().lower() for one in given.classes_to_use.split(",")],
        validation_set_size=given.validation_set_size,
    )


def _open_images(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.open_images import OpenImagesSource, create_open_images

    source = OpenImagesSource(
        given.input_images_directory,
        given.input_box_annotations_csv,
        given.input_image_label_annotations_csv,
    )
    return create_open_images(source, given.output_tf_record_path_prefix, options)


def _csv(given: argparse.Namespace, options: Options) -> Created:
    from tfod.shards.create.from_csv import create_from_csv

    return create_from_csv(given.csv_input, given.image_dir, given.output_path, options)

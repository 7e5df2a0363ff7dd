"""The TF Object Detection CSV to shards, as generate_tfrecord.py makes them.

Boxes are divided by the size that the CSV gives, which they were drawn at, and records come in the
order of their names. Other than the script (datitran/raccoon_dataset), which divides by the image's
own size, has the classes in its own code and writes ``jpg`` as every format, this takes ids from a
label map, the format from the image's bytes, and adds the SHA-256.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from tfod.convert.csv import CsvImage, DetectionCsv, read_detection_csv
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, made_label_map
from tfod.shards.create.objects import detection_of
from tfod.shards.create.output import Created, Options, Plan, PlannedSet, write_sets
from tfod.shards.create.problems import Problems
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.search import files_below


def create_from_csv(
    csv_input: str,
    image_dir: str,
    output_path: str,
    options: Options | None = None,
) -> Created:
    """Write the images that a CSV names; others of the folder are counted.

    Args:
        csv_input: the file, as :func:`~tfod.convert.csv.read_detection_csv` reads it.
        image_dir: the folder of the images.
        output_path: of the shard; of several the numbered names start with it.
        options: as for all formats. Without a label map the one beside the shards is taken; else
            one is made of the classes in the CSV, in the order of their names.

    Raises:
        TfodError: something is missing, odd or there already.
    """
    options = options or Options()
    try:
        found = read_detection_csv(csv_input)
    except OSError as error:
        raise TfodError(f"{csv_input} cannot be read: {error.strerror}") from None
    names = {box.class_name for image in found.images for box in image.boxes}
    chosen = choose_label_map(
        options.label_map,
        output_path,
        lambda: made_label_map(sorted(names), f"made from {csv_input}"),
    )
    images = sorted(found.images, key=attrgetter("filename"))
    make = functools.partial(_make, csv_input, image_dir, chosen)
    planned = PlannedSet(output_path, options.num_shards or 1, csv_input, images, make)
    plan = Plan([planned], chosen, Problems(options.policy), options)
    created = write_sets(plan, sources=[csv_input])
    notes = (*found.liberties, *_unread(found, csv_input), *created.notes)
    unlisted = list(_unlisted_images(image_dir, found))
    if unlisted:
        notes += (
            f"{len(unlisted)} images of {image_dir} that no row names, left out (the first: "
            f"{unlisted[0]}); a row of the name alone writes one without objects",
        )
    return replace(created, notes=notes)


def _unlisted_images(folder: str, found: DetectionCsv) -> Iterator[str]:
    listed = {safe_relative_path(one.filename) for one in found.images}
    for path in files_below(folder):
        name = os.path.relpath(path, folder).replace(os.sep, "/")
        if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION and name not in listed:
            yield name


def _unread(found: DetectionCsv, csv_input: str) -> Iterator[str]:
    """What of the CSV has no place in a record, or no image of its own."""
    if found.other_columns:
        names = ", ".join(name or "(without a name)" for name in found.other_columns)
        yield f"{csv_input}: columns that are not read: {names}"
    paths = Counter(safe_relative_path(one.filename) for one in found.images)
    shared = [path for path, count in paths.items() if count > 1]
    if shared:
        yield (
            f"{len(shared)} images that several names in the CSV mean, a record for each name "
            f"(the first: {shared[0]})"
        )


def _make(
    csv_input: str, image_dir: str, chosen: ChosenLabelMap, found: CsvImage, problems: Problems
) -> Detection | None:
    filename = safe_relative_path(found.filename)
    image = read_image(os.path.join(image_dir, filename), csv_input, problems)
    if image is None:
        return None
    problems.annotated += len(found.boxes)
    return detection_of(
        image,
        filename,
        chosen,
        problems,
        where=f"{csv_input}, {found.filename}",
        names=[one.class_name for one in found.boxes],
        boxes=[one.corners for one in found.boxes],
        places=[f"{csv_input}, row {one.row}" for one in found.boxes],
        annotated=(found.height, found.width),
    )

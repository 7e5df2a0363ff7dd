"""The TF Object Detection CSV to shards, as generate_tfrecord.py makes them.

Boxes are divided by the size that the CSV gives, which they were drawn at, and records come in the
order of their names. Other than the script (datitran/raccoon_dataset), which divides by the image's
own size, has the classes in its own code and writes ``jpg`` as every format, this takes ids from a
label map, the format from the image's bytes, and adds the SHA-256.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from tfod.convert.csv import CsvImage, DetectionCsv, read_detection_csv
from tfod.detection.detection import Detection
from tfod.detection.label_map import LabelMap
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map
from tfod.shards.create.objects import Objects, detection_of
from tfod.shards.create.output import Created, Options, PlannedSet, write_sets
from tfod.shards.create.problems import Policy, Problems
from tfod.tfrecord.image_names import safe_relative_path


def create_from_csv(
    csv_input: str, image_dir: str, output_path: str, options: Options | None = None
) -> Created:
    """Write the images that a CSV names.

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
        found = read_detection_csv(csv_input, odd_boxes=True)
    except OSError as error:
        raise TfodError(f"{csv_input} cannot be read: {error.strerror}") from None
    chosen = choose_label_map(
        options.label_map, output_path, lambda: _made_label_map(found.images, csv_input)
    )
    images = sorted(found.images, key=attrgetter("filename"))
    maker = _Maker(csv_input, image_dir, chosen, options.policy)
    planned = PlannedSet(output_path, options.num_shards or 1, csv_input, images, maker)
    created = write_sets([planned], chosen, Problems(), options, sources=[csv_input])
    notes = (*found.liberties, *_unread(found, csv_input), *created.notes)
    return replace(created, notes=notes)


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


@dataclass(frozen=True)
class _Maker:
    """Makes the records."""

    csv_input: str
    image_dir: str
    chosen: ChosenLabelMap
    policy: Policy

    def __call__(self, found: CsvImage, problems: Problems) -> Detection | None:
        filename = safe_relative_path(found.filename)
        path = os.path.join(self.image_dir, filename)
        image = read_image(path, self.csv_input, problems, self.policy)
        if image is None:
            return None
        problems.annotated += len(found.boxes)
        objects = Objects(
            names=[one.class_name for one in found.boxes],
            boxes=[one.corners for one in found.boxes],
            places=[f"{self.csv_input}, row {one.row}" for one in found.boxes],
        )
        return detection_of(
            image,
            filename,
            objects,
            self.chosen,
            self.policy,
            problems,
            where=f"{self.csv_input}, {found.filename}",
            said=(found.height, found.width),
        )


def _made_label_map(images: Sequence[CsvImage], csv_input: str) -> ChosenLabelMap:
    names = {box.class_name for image in images for box in image.boxes}
    return ChosenLabelMap(LabelMap.from_names(sorted(names)), f"made from {csv_input}")

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
from dataclasses import dataclass
from operator import attrgetter

from tfod.convert.detection_csv import CsvImage, DetectionCsv, read_detection_csv
from tfod.detection.detection import Detection
from tfod.detection.label_map import LabelMap
from tfod.errors import TfodError
from tfod.shards.create.boxes import normalized, sound_boxes
from tfod.shards.create.frames import count_other_size, frame_of
from tfod.shards.create.images import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map
from tfod.shards.create.output import Created, PlannedSet, Runner, Verify, write_sets
from tfod.shards.create.policy import STRICT, Policy
from tfod.shards.create.tally import Tally
from tfod.tfrecord.image_names import safe_relative_path


def create_from_csv(
    csv_input: str,
    image_dir: str,
    output_path: str,
    *,
    label_map: str | None = None,
    num_shards: int = 1,
    overwrite: bool = False,
    runner: Runner | None = None,
    policy: Policy = STRICT,
    verify: Verify | None = None,
) -> Created:
    """Write the images that a CSV names.

    Args:
        csv_input: the file, as :func:`~tfod.convert.detection_csv.read_detection_csv` reads it.
        image_dir: the folder of the images.
        output_path: of the shard; of several the numbered names start with it.
        label_map: a file, or a name that tfod ships. Without it the one beside the shards is
            taken; else one is made of the classes in the CSV, in the order of their names.
        num_shards: how many files.
        overwrite: replace what is there.
        runner: lets workers of Apache Beam make the records.
        policy: what to do with boxes and images that do not fit.
        verify: is given the complete files before they have their names.

    Raises:
        TfodError: something is missing, odd or there already.
    """
    try:
        found = read_detection_csv(csv_input, odd_boxes=True)
    except OSError as error:
        raise TfodError(f"{csv_input} cannot be read: {error.strerror}") from None
    tally = Tally()
    chosen = choose_label_map(
        label_map,
        os.path.dirname(output_path) or ".",
        lambda: _made_label_map(found.images, csv_input),
    )
    images = sorted(found.images, key=attrgetter("filename"))
    maker = _Maker(csv_input, image_dir, chosen, policy)
    planned = PlannedSet(output_path, num_shards, csv_input, images, maker)
    created = write_sets(
        [planned], chosen, tally, overwrite, sources=[csv_input], runner=runner, verify=verify
    )
    return created.with_notes([*found.liberties, *_unread(found, csv_input)])


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

    def __call__(self, found: CsvImage, tally: Tally) -> Detection | None:
        filename = safe_relative_path(found.filename)
        path = os.path.join(self.image_dir, filename)
        image = read_image(path, self.csv_input, tally, self.policy)
        if image is None:
            return None
        where = f"{self.csv_input}, {found.filename}"
        tally.annotated += len(found.boxes)
        corners = [one.corners for one in found.boxes]
        said = (found.height, found.width)
        frame = frame_of(image, said, corners, self.policy.exif_orientation, where, tally)
        count_other_size(frame, where, tally)
        places = [f"{self.csv_input}, row {one.row}" for one in found.boxes]
        sound = sound_boxes(corners, frame.size, places, self.policy.odd_boxes, tally)
        names = [found.boxes[row].class_name for row in sound.kept]
        return Detection(
            **image.fields(filename),
            boxes=normalized(sound.corners, frame.size, frame.orientation),
            class_text=names,
            class_label=[self.chosen.id_of(name, where) for name in names],
        )


def _made_label_map(images: Sequence[CsvImage], csv_input: str) -> ChosenLabelMap:
    names = {box.class_name for image in images for box in image.boxes}
    return ChosenLabelMap(LabelMap.from_names(sorted(names)), f"made from {csv_input}")

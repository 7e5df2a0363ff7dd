"""Open Images to shards, as create_oid_tf_record.py makes them.

Every image of the folder becomes a record, boxes are normalized in the CSV already, and the
shard follows from the image's id. Other than the script this also writes format, size and
SHA-256, ``image/class/confidence`` (without which a class that was verified to be absent reads as
present) and ``is_inside``.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.detection.label_map import LabelMap
from tfod.errors import TfodError
from tfod.shards.create.boxes import normalized, sound_boxes
from tfod.shards.create.frames import frame_of
from tfod.shards.create.images import read_image
from tfod.shards.create.label_maps import choose_label_map, shipped_label_map
from tfod.shards.create.open_images_csv import BoxRow, ImageRows, LabelRow, box_rows, label_rows
from tfod.shards.create.output import Created, PlannedSet, Runner, Verify, write_sets
from tfod.shards.create.policy import STRICT, Policy
from tfod.shards.create.tally import Tally

NUM_SHARDS = 100
_EXTENSION = ".jpg"  # of every image of Open Images
_MAP = "open_images_v4"
_NORMALIZED = (1, 1)  # the size that its boxes are of


@dataclass(frozen=True)
class OpenImagesSource:
    """Where one set of Open Images is.

    Attributes:
        images_directory: the folder of its images, each named by its id.
        box_annotations_csv: its boxes.
        image_label_annotations_csv: the classes of whole images, if wanted.
    """

    images_directory: str
    box_annotations_csv: str
    image_label_annotations_csv: str | None = None


def create_open_images(
    source: OpenImagesSource,
    output_path_prefix: str,
    *,
    label_map: str | None = None,
    num_shards: int = NUM_SHARDS,
    overwrite: bool = False,
    runner: Runner | None = None,
    policy: Policy = STRICT,
    verify: Verify | None = None,
) -> Created:
    """Write ``<output_path_prefix>-00000-of-00100`` and so on.

    A CSV that is sorted by ImageID, as Open Images' own are, is streamed. Of another one the rows
    of the folder's images are held in memory, and a note says so.

    Args:
        source: the files.
        output_path_prefix: what the files' names start with.
        label_map: a file, or a name that tfod ships, whose names are Open Images' (``/m/01g317``).
            Without it the one beside the shards is taken, else ``open_images_v4``. Annotations of
            classes that it lacks are left out, as by the script; they are counted.
        num_shards: how many files, fewer where one would be left without an image; the id
            (hexadecimal) modulo their number says which.
        overwrite: replace what is there.
        runner: lets workers of Apache Beam make the records.
        policy: what to do with boxes and images that do not fit.
        verify: is given the complete files before they have their names.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    tally = Tally()
    folder = os.path.dirname(output_path_prefix) or "."
    chosen = choose_label_map(label_map, folder, lambda: shipped_label_map(_MAP))
    ids = _image_ids(source.images_directory, tally)
    count = _shards_with_images(ids, num_shards)
    planned = PlannedSet(
        output_path_prefix,
        count,
        source.box_annotations_csv,
        _items(source, ids, tally, policy),
        _Maker(source.images_directory, chosen.label_map, policy),
        lambda one: _shard_of(one.image_id, count),
    )
    labels = source.image_label_annotations_csv
    sources = [source.box_annotations_csv, *([labels] if labels else [])]
    return write_sets(
        [planned], chosen, tally, overwrite, sources=sources, runner=runner, verify=verify
    )


@dataclass(frozen=True)
class _Item:
    """An image, and its rows in the CSVs."""

    image_id: str
    boxes: Sequence[BoxRow]
    labels: Sequence[LabelRow]


def _items(
    source: OpenImagesSource, ids: Sequence[str], tally: Tally, policy: Policy
) -> Iterator[_Item]:
    boxes = box_rows(source.box_annotations_csv, ids, tally, policy)
    labels: ImageRows[LabelRow] | None = None
    if source.image_label_annotations_csv:
        labels = label_rows(source.image_label_annotations_csv, ids, tally, policy)
    for image_id in ids:
        yield _Item(image_id, boxes.take(image_id), labels.take(image_id) if labels else ())


@dataclass(frozen=True)
class _Maker:
    """Makes the records."""

    images_directory: str
    label_map: LabelMap
    policy: Policy

    def __call__(self, item: _Item, tally: Tally) -> Detection | None:
        filename = f"{item.image_id}{_EXTENSION}"
        path = os.path.join(self.images_directory, filename)
        image = read_image(path, self.images_directory, tally, self.policy)
        if image is None:
            return None
        tally.annotated += len(item.boxes)
        boxes = [one for one in item.boxes if self._is_known(one, tally)]
        corners, choice = [one.corners for one in boxes], self.policy.exif_orientation
        frame = frame_of(image, (None, None), corners, choice, path, tally)
        places = [one.where for one in boxes]
        sound = sound_boxes(corners, _NORMALIZED, places, self.policy.odd_boxes, tally)
        boxes = [boxes[row] for row in sound.kept]
        return Detection(
            **image.fields(filename, item.image_id),
            boxes=normalized(sound.corners, _NORMALIZED, frame.orientation),
            class_text=[one.name for one in boxes],
            class_label=[self._id(one.name) for one in boxes],
            attributes=_attributes(boxes),
            image_labels=[
                ImageLabel(one.name, self._id(one.name), one.confidence)
                for one in item.labels
                if self._is_known(one, tally)
            ],
        )

    def _is_known(self, row: BoxRow | LabelRow, tally: Tally) -> bool:
        if self.label_map.find(row.name) is not None:
            return True
        what = "boxes" if isinstance(row, BoxRow) else "classes of images"
        tally.add(
            f"{what} that the label map lacks the class of, left out", f"{row.where}: {row.name}"
        )
        return False

    def _id(self, name: str) -> int:
        item = self.label_map.find(name)
        assert item is not None  # those of unknown classes are left out
        return item.id


def _attributes(boxes: Sequence[BoxRow]) -> dict[str, list[Any]]:
    """One CSV has the same columns in all its rows."""
    names = boxes[0].flags if boxes else ()
    return {name: [one.flags[name] for one in boxes] for name in names}


def _image_ids(folder: str, tally: Tally) -> list[str]:
    """Ids of the images in a folder, in the order of the CSVs; others are counted."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise TfodError(f"{folder} cannot be read: {error.strerror}") from None
    ids = sorted(
        name[: -len(_EXTENSION)]
        for name in names
        if name.endswith(_EXTENSION) and not name.startswith(".")
    )
    if not ids:
        raise TfodError(f"{folder} holds no *{_EXTENSION}; name the folder of the images")
    for name in sorted(names):
        extension = os.path.splitext(name)[1]
        if extension != _EXTENSION and extension.lower() in FORMAT_OF_EXTENSION:
            what = f"images whose names do not end in {_EXTENSION}, left out"
            tally.add(what, os.path.join(folder, name))
    return ids


def _shards_with_images(ids: Sequence[str], most: int) -> int:
    """The largest number of shards, up to ``most``, of which each gets an image.

    The script leaves files of 0 bytes, which nobody can tell from a failed download.
    """
    count = min(most, len(ids))
    while len({_shard_of(image_id, count) for image_id in ids}) < count:
        count -= 1
    return count


def _shard_of(image_id: str, count: int) -> int:
    """The id modulo the number of shards; of an id that is not a number its checksum."""
    try:
        return int(image_id, 16) % count
    except ValueError:
        return zlib.crc32(image_id.encode(errors="surrogateescape")) % count

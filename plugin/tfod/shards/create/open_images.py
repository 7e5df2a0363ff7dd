"""Open Images to shards, as create_oid_tf_record.py makes them.

Every image of the folder becomes a record, boxes are normalized in the CSV already, and the
shard follows from the image's id. Other than the script this also writes format, size and
SHA-256, ``image/class/confidence`` (without which a class that was verified to be absent reads as
present) and ``is_inside``.
"""

from __future__ import annotations

import functools
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfod.convert.open_images import BoxRow, LabelRow, box_rows, is_sorted, label_rows
from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.image import FORMAT_OF_EXTENSION
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map, named_label_map
from tfod.shards.create.objects import Objects, detection_of
from tfod.shards.create.output import Created, Options, PlannedSet, write_sets
from tfod.shards.create.problems import Policy, Problems, Refusal

NUM_SHARDS = 100
_EXTENSION = ".jpg"  # of every image of Open Images
_MAP = "open_images_v4"
_ABSENT = Refusal(
    "rows of images that are not in the folder",
    "put the images there, take their rows out, or leave them out with --skip_missing_images",
)
_NOT_SORTED = "CSVs that are not sorted by ImageID, held in memory; sort them to stream them"


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
    source: OpenImagesSource, output_path_prefix: str, options: Options | None = None
) -> Created:
    """Write ``<output_path_prefix>-00000-of-00100`` and so on.

    A CSV that is sorted by ImageID, as Open Images' own are, is streamed. Of another one the rows
    of the folder's images are held in memory, and a note says so.

    Args:
        source: the files.
        output_path_prefix: what the files' names start with.
        options: as for all formats. The names of the label map are Open Images'
            (``/m/01g317``); without one the one beside the shards is taken, else
            ``open_images_v4``. Annotations of classes that it lacks are left out, as by the
            script; they are counted. There are fewer shards than :data:`NUM_SHARDS`, or than were
            asked for, where one would be left without an image; the id (hexadecimal) modulo their
            number says which.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    options, problems = options or Options(), Problems()
    chosen = choose_label_map(options.label_map, output_path_prefix, lambda: named_label_map(_MAP))
    ids = _image_ids(source.images_directory, problems)
    count = _shards_with_images(ids, options.num_shards or NUM_SHARDS)
    planned = PlannedSet(
        output_path_prefix,
        count,
        source.box_annotations_csv,
        _items(source, ids, problems, options.policy),
        _Maker(source.images_directory, chosen, options.policy),
        lambda one: _shard_of(one.image_id, count),
    )
    labels = source.image_label_annotations_csv
    sources = [source.box_annotations_csv, *([labels] if labels else [])]
    return write_sets([planned], chosen, problems, options, sources=sources)


@dataclass(frozen=True)
class _Item:
    """An image, and its rows in the CSVs."""

    image_id: str
    boxes: Sequence[BoxRow]
    labels: Sequence[LabelRow]


def _items(
    source: OpenImagesSource, ids: Sequence[str], problems: Problems, policy: Policy
) -> Iterator[_Item]:
    def absent(path: str, line: int, image_id: str) -> None:
        where = f"{path}, line {line}: {image_id}"
        if policy.skip_missing_images:
            problems.add(f"{_ABSENT.what}, left out", where)
        else:
            problems.refuse(_ABSENT, where)

    def opened(path: str) -> tuple[str, bool]:
        if not is_sorted(path):
            problems.add(_NOT_SORTED, path)
            return path, False
        return path, True

    boxes = box_rows(*opened(source.box_annotations_csv), ids, absent)
    labels: Iterator[Sequence[LabelRow]] = itertools.repeat(())
    if source.image_label_annotations_csv:
        labels = label_rows(*opened(source.image_label_annotations_csv), ids, absent)
    return map(_Item, ids, boxes, labels)


@dataclass(frozen=True)
class _Maker:
    """Makes the records."""

    images_directory: str
    chosen: ChosenLabelMap
    policy: Policy

    def __call__(self, item: _Item, problems: Problems) -> Detection | None:
        filename = f"{item.image_id}{_EXTENSION}"
        path = os.path.join(self.images_directory, filename)
        image = read_image(path, self.images_directory, problems, self.policy)
        if image is None:
            return None
        problems.annotated += len(item.boxes)
        is_known = functools.partial(self._is_known, problems)
        rows = [one for one in item.boxes if is_known(one, "boxes")]
        objects = Objects(
            names=[one.name for one in rows],
            boxes=[one.corners for one in rows],
            places=[one.where for one in rows],
            # One CSV has the same columns in all its rows.
            attributes={
                name: [one.flags[name] for one in rows] for name in (rows[0].flags if rows else ())
            },
        )
        labels = [one for one in item.labels if is_known(one, "classes of images")]
        return detection_of(
            image,
            filename,
            objects,
            self.chosen,
            self.policy,
            problems,
            where=path,
            is_normalized=True,
            source_id=item.image_id,
            image_labels=[
                ImageLabel(one.name, self.chosen.id_of(one.name, one.where), one.confidence)
                for one in labels
            ],
        )

    def _is_known(self, problems: Problems, row: BoxRow | LabelRow, what: str) -> bool:
        if self.chosen.label_map.find(row.name) is not None:
            return True
        problems.add(
            f"{what} that the label map lacks the class of, left out", f"{row.where}: {row.name}"
        )
        return False


def _image_ids(folder: str, problems: Problems) -> list[str]:
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
            problems.add(what, os.path.join(folder, name))
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

"""Open Images to shards, as create_oid_tf_record.py makes them.

Every image of the folder becomes a record, boxes are normalized in the CSV already, and the
shard follows from the image's id. Other than the script this also writes format, size and
SHA-256, ``image/class/confidence`` (without which a class that was verified to be absent reads as
present) and ``is_inside``. The CSVs, of millions of rows, are streamed where they are sorted
(source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats").
"""

from __future__ import annotations

import csv
import functools
import itertools
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from tfod.convert.documents import parse_number
from tfod.detection.detection import Detection, ImageLabel
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import shipped_label_map
from tfod.errors import TfodError
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, choose_label_map
from tfod.shards.create.objects import detection_of
from tfod.shards.create.output import Created, Options, Plan, PlannedSet, write_sets
from tfod.shards.create.problems import Problems, Refusal

NUM_SHARDS = 100
_EXTENSION = ".jpg"  # of every image of Open Images
_MAP = "open_images_v4"
_ABSENT = Refusal(
    "rows of images that are not in the folder",
    "put the images there, take their rows out, or leave them out with --skip_missing_images",
)
_NOT_SORTED = "CSVs that are not sorted by ImageID, held in memory; sort them to stream them"
_BOX_COLUMNS = ("LabelName", "XMin", "YMin", "XMax", "YMax")
_FLAGS = {
    "IsGroupOf": "group_of",
    "IsOccluded": "occluded",
    "IsTruncated": "truncated",
    "IsDepiction": "depiction",
    "IsInside": "is_inside",
}
_RowT = TypeVar("_RowT")
_Line: TypeAlias = "tuple[str, int, list[str]]"  # the image's id, the line's number, the fields


def create_open_images(
    images_directory: str,
    box_annotations_csv: str,
    output_path_prefix: str,
    options: Options | None = None,
    *,
    image_label_annotations_csv: str | None = None,
) -> Created:
    """Write ``<output_path_prefix>-00000-of-00100`` and so on, from images named by their ids.

    A CSV that is sorted by ImageID, as Open Images' own are, is streamed. Of another one the rows
    of the folder's images are held in memory, and a note says so. The names of the label map are
    Open Images' (``/m/01g317``); without one the one beside the shards is taken, else
    ``open_images_v4``. Annotations of classes that it lacks are left out, as by the script; they
    are counted. There are fewer shards than :data:`NUM_SHARDS`, or than were asked for, where one
    would be left without an image; the id (hexadecimal) modulo their number says which.

    Raises:
        TfodError: something is missing, odd or there already; with file and line.
    """
    options = options or Options()
    problems = Problems(options.policy)
    chosen = choose_label_map(
        options.label_map,
        output_path_prefix,
        lambda: ChosenLabelMap(shipped_label_map(_MAP), _MAP),
    )
    ids = _image_ids(images_directory, problems)
    count = _shards_with_images(ids, options.num_shards or NUM_SHARDS)
    planned = PlannedSet(
        output_path_prefix,
        count,
        box_annotations_csv,
        _items(box_annotations_csv, image_label_annotations_csv, ids, problems),
        functools.partial(_make, images_directory, chosen),
        lambda one: _shard_of(one.image_id, count),
        source_ids=ids,
    )
    sources = [path for path in (box_annotations_csv, image_label_annotations_csv) if path]
    return write_sets(Plan([planned], chosen, problems, options), sources=sources)


@dataclass(frozen=True)
class BoxRow:
    """One box: the class's name, normalized xmin, ymin, xmax, ymax, and -1, 0 or 1 by attribute."""

    where: str
    name: str
    corners: tuple[float, ...]
    flags: dict[str, int]


@dataclass(frozen=True)
class LabelRow:
    """One class of a whole image; confidence 1 is verified, 0 is verified to be absent."""

    where: str
    name: str
    confidence: float | None


class _Item(NamedTuple):
    """An image, and its rows in the CSVs."""

    image_id: str
    boxes: Sequence[BoxRow]
    labels: Sequence[LabelRow]


def _items(
    box_csv: str, label_csv: str | None, ids: Sequence[str], problems: Problems
) -> Iterator[_Item]:
    boxes = rows_by_image(box_csv, _BOX_COLUMNS, _box_row, ids, problems)
    labels: Iterator[Sequence[LabelRow]] = itertools.repeat(())
    if label_csv:
        labels = rows_by_image(label_csv, ("LabelName",), _label_row, ids, problems)
    return map(_Item, ids, boxes, labels)


def _make(folder: str, chosen: ChosenLabelMap, item: _Item, problems: Problems) -> Detection | None:
    filename = f"{item.image_id}{_EXTENSION}"
    path = os.path.join(folder, filename)
    image = read_image(path, folder, problems)
    if image is None:
        return None
    problems.annotated += len(item.boxes)

    def is_known(row: BoxRow | LabelRow, what: str) -> bool:
        known = chosen.label_map.find(row.name) is not None
        if not known:
            what = f"{what} that the label map lacks the class of, left out"
            problems.add(what, f"{row.where}: {row.name}")
        return known

    rows = [one for one in item.boxes if is_known(one, "boxes")]
    labels = [one for one in item.labels if is_known(one, "classes of images")]
    return detection_of(
        image,
        filename,
        chosen,
        problems,
        where=path,
        names=[one.name for one in rows],
        boxes=[one.corners for one in rows],
        places=[one.where for one in rows],
        # One CSV has the same columns in all its rows.
        attributes={
            name: [one.flags[name] for one in rows] for name in (rows[0].flags if rows else ())
        },
        is_normalized=True,
        source_id=item.image_id,
        image_labels=[
            ImageLabel(one.name, chosen.id_of(one.name, one.where), one.confidence)
            for one in labels
        ],
    )


def _image_ids(folder: str, problems: Problems) -> list[str]:
    """Ids of the images in a folder, in the order of the CSVs; others are counted."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise TfodError(f"{folder} cannot be read: {error.strerror}") from None
    ids = sorted(
        name[: -len(_EXTENSION)]
        for name in names
        if name.endswith(_EXTENSION) and not name.startswith(".")
    )
    if not ids:
        raise TfodError(f"{folder} holds no *{_EXTENSION}; name the folder of the images")
    for name in names:
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


# The CSVs


def _box_row(where: str, row: dict[str, str]) -> BoxRow:
    return BoxRow(
        where,
        row["LabelName"],
        tuple(parse_number(row[side], f"{where}:", finite=False) for side in _BOX_COLUMNS[1:]),
        {
            flag: int(parse_number(row[column], f"{where}:"))
            for column, flag in _FLAGS.items()
            if column in row
        },
    )


def _label_row(where: str, row: dict[str, str]) -> LabelRow:
    confidence = parse_number(row["Confidence"], f"{where}:") if "Confidence" in row else None
    return LabelRow(where, row["LabelName"], confidence)


def rows_by_image(
    path: str,
    columns: Sequence[str],
    make: Callable[[str, dict[str, str]], _RowT],
    image_ids: Sequence[str],
    problems: Problems,
) -> Iterator[Sequence[_RowT]]:
    """The rows of each image in turn, from a CSV of many more, which has to have these columns.

    Rows are made of their place and their fields by column. Those of other images are counted, not
    before the rows in front of them are read.

    Raises:
        TfodError: it cannot be read or lacks a column, or a field is no number; with the line.
    """
    is_sorted = all(one[0] <= other[0] for one, other in itertools.pairwise(_read(path)[1]))
    if not is_sorted:
        problems.add(_NOT_SORTED, path)
    header, lines = _read(path, columns)
    wanted = frozenset(image_ids)
    held: dict[str, list[_RowT]] = defaultdict(list)

    def take(line: _Line) -> None:
        image_id, number, fields = line
        where = f"{path}, line {number}"
        if image_id in wanted:
            held[image_id].append(make(where, dict(zip(header, fields, strict=True))))
        else:
            problems.add_missing(_ABSENT, f"{where}: {image_id}")

    def by_image() -> Iterator[Sequence[_RowT]]:
        if not is_sorted:
            for line in lines:
                take(line)
        following = next(lines, None)
        for image_id in image_ids:
            # Behind the last image's the rows are only counted.
            while following and (following[0] <= image_id or image_id == image_ids[-1]):
                take(following)
                following = next(lines, None)
            yield held.pop(image_id, ())

    return by_image()


def _read(path: str, columns: Sequence[str] = ()) -> tuple[list[str], Iterator[_Line]]:
    """The header, and the lines behind it."""
    rows = _rows(path)
    header = next(rows, (0, []))[1]
    for name in ("ImageID", *columns):
        if name not in header:
            raise TfodError(f"{path} is not a CSV of Open Images: its first line has no {name}")
    place, width = header.index("ImageID"), len(header)

    def lines() -> Iterator[_Line]:
        for line, fields in rows:
            if len(fields) == width:
                yield fields[place], line, fields
            elif fields:
                raise TfodError(
                    f"{path}, line {line}: {len(fields)} fields, the header has {width}"
                )

    return header, lines()


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for fields in reader:
                yield reader.line_num, fields
    except OSError as error:
        raise TfodError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not a CSV of Open Images: it is not UTF-8") from None
    except csv.Error as error:
        raise TfodError(f"{path}, line {reader.line_num}: not a CSV ({error})") from None

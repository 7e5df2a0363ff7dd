"""Open Images' CSVs: the rows of one image after the other, from files of millions of rows.

Source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats".
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tfod.errors import TfodError

_FLAGS = {
    "group_of": "IsGroupOf",
    "occluded": "IsOccluded",
    "truncated": "IsTruncated",
    "depiction": "IsDepiction",
    "is_inside": "IsInside",
}
_SIDES = ("XMin", "YMin", "XMax", "YMax")


@dataclass(frozen=True)
class BoxRow:
    """One box: the class's name, normalized xmin, ymin, xmax, ymax, and -1, 0 or 1 by attribute."""

    where: str
    name: str
    corners: tuple[float, ...]
    flags: Mapping[str, int]


@dataclass(frozen=True)
class LabelRow:
    """One class of a whole image; confidence 1 is verified, 0 is verified to be absent."""

    where: str
    name: str
    confidence: float | None


AbsentHandler = Callable[[str, int, str], None]
"""Called with the file, the line and the id of an image of a row that is not asked for."""

_Row = TypeVar("_Row")
_Line = tuple[str, int, list[str]]  # the image's id, the line's number, the fields


def is_sorted(path: str) -> bool:
    """Whether the rows of a CSV are in the order of their images' ids.

    Raises:
        TfodError: it cannot be read, or is not a CSV of Open Images.
    """
    previous = ""
    for image_id, _, _ in _read(path)[1]:
        if image_id < previous:
            return False
        previous = image_id
    return True


def box_rows(
    path: str, in_order: bool, image_ids: Sequence[str], absent: AbsentHandler
) -> Iterator[Sequence[BoxRow]]:
    """The boxes of images, from a CSV such as ``oidv6-train-annotations-bbox.csv``.

    Args:
        path: of the file.
        in_order: whether it is sorted, and can be streamed; else the rows are held in memory.
        image_ids: the images, in order.
        absent: called for each row of another image, not before the rows in front of it are read.

    Raises:
        TfodError: it cannot be read or lacks a column, or a field is no number; with the line.
    """
    header, lines = _read(path)
    name, *sides = (_column(path, header, column) for column in ("LabelName", *_SIDES))
    flags = {flag: header.index(column) for flag, column in _FLAGS.items() if column in header}

    def make(where: str, fields: list[str]) -> BoxRow:
        return BoxRow(
            where,
            fields[name],
            tuple(_number(fields[side], where, finite=False) for side in sides),
            {flag: int(_number(fields[column], where)) for flag, column in flags.items()},
        )

    return _by_image(path, lines, in_order, image_ids, make, absent)


def label_rows(
    path: str, in_order: bool, image_ids: Sequence[str], absent: AbsentHandler
) -> Iterator[Sequence[LabelRow]]:
    """The classes of images (``…-human-imagelabels.csv``), as :func:`box_rows` has boxes."""
    header, lines = _read(path)
    name = _column(path, header, "LabelName")
    confidence = header.index("Confidence") if "Confidence" in header else None

    def make(where: str, fields: list[str]) -> LabelRow:
        value = None if confidence is None else _number(fields[confidence], where)
        return LabelRow(where, fields[name], value)

    return _by_image(path, lines, in_order, image_ids, make, absent)


def _by_image(
    path: str,
    lines: Iterator[_Line],
    in_order: bool,
    image_ids: Sequence[str],
    make: Callable[[str, list[str]], _Row],
    absent: AbsentHandler,
) -> Iterator[Sequence[_Row]]:
    """The rows of each image."""
    if not in_order:
        held: dict[str, list[_Row]] = defaultdict(list)
        wanted = frozenset(image_ids)
        for own, line, fields in lines:
            if own in wanted:
                held[own].append(make(f"{path}, line {line}", fields))
            else:
                absent(path, line, own)
        yield from (held.pop(image_id, ()) for image_id in image_ids)
        return
    following = next(lines, None)
    for image_id in image_ids:
        found: list[_Row] = []
        # Behind the last image's the rows are only counted.
        while following and (following[0] <= image_id or image_id == image_ids[-1]):
            own, line, fields = following
            if own == image_id:
                found.append(make(f"{path}, line {line}", fields))
            else:
                absent(path, line, own)
            following = next(lines, None)
        yield found


def _read(path: str) -> tuple[list[str], Iterator[_Line]]:
    """The header, and the lines."""
    rows = _rows(path)
    header = next(rows, (0, []))[1]
    place = _column(path, header, "ImageID")

    def lines() -> Iterator[_Line]:
        for line, fields in rows:
            if len(fields) == len(header):
                yield fields[place], line, fields
            elif fields:
                width = len(header)
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


def _column(path: str, header: Sequence[str], name: str) -> int:
    if name not in header:
        raise TfodError(f"{path} is not a CSV of Open Images: its first line has no {name}")
    return header.index(name)


def _number(text: str, where: str, finite: bool = True) -> float:
    try:
        value = float(text)
        if not finite or math.isfinite(value):
            return value
    except ValueError:
        pass
    raise TfodError(f"{where}: {text[:40]!r} where a number is expected; correct it")

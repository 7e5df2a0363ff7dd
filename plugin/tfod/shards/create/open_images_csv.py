"""Open Images' CSVs: the rows of one image after the other, from files of millions of rows.

Source: storage.googleapis.com/openimages/web/download_v7.html, "Data Formats".
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tfod.errors import TfodError
from tfod.shards.create.policy import STRICT, Policy
from tfod.shards.create.tally import Refusal, Tally

_FLAGS = {
    "group_of": "IsGroupOf",
    "occluded": "IsOccluded",
    "truncated": "IsTruncated",
    "depiction": "IsDepiction",
    "is_inside": "IsInside",
}
_SIDES = ("XMin", "YMin", "XMax", "YMax")
_NOT_THERE = Refusal(
    "rows of images that are not in the folder",
    "put the images there, take their rows out, or leave them out with --skip_missing_images",
)
_NOT_SORTED = "CSVs that are not sorted by ImageID, held in memory; sort them to stream them"


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


Row_co = TypeVar("Row_co", covariant=True)
_Place = tuple[str, int]  # the file and the line
_Plain = tuple[str, int, list[str]]  # the image's id, the line, the fields


class ImageRows(Protocol, Generic[Row_co]):
    """Rows by image."""

    def take(self, image_id: str) -> Sequence[Row_co]:
        """The rows of an image, in the file's order; images are asked for in order, once."""
        ...


def box_rows(
    path: str, image_ids: Sequence[str], tally: Tally, policy: Policy = STRICT
) -> ImageRows[BoxRow]:
    """Open a CSV of boxes (``oidv6-train-annotations-bbox.csv``) for these images.

    Args:
        path: of the file.
        image_ids: the images, in order.
        tally: counts or refuses rows of other images.
        policy: whether these may be left out.

    Raises:
        TfodError: it cannot be read or lacks a column; so does ``take``, with the line.
    """
    return _open(path, image_ids, _Absent(path, policy, tally), _box_maker)


def label_rows(
    path: str, image_ids: Sequence[str], tally: Tally, policy: Policy = STRICT
) -> ImageRows[LabelRow]:
    """Open a CSV of images' classes (``…-human-imagelabels.csv``); as :func:`box_rows`."""
    return _open(path, image_ids, _Absent(path, policy, tally), _label_maker)


Row = TypeVar("Row")
_MakeRow = Callable[[_Place, list[str]], Row]
_Maker = Callable[[str, Sequence[str]], _MakeRow[Row]]


@dataclass(frozen=True)
class _Absent:
    """Says of rows of one file that their image is not in the folder."""

    path: str
    policy: Policy
    tally: Tally

    def add(self, line: int, image_id: str) -> None:
        where = f"{self.path}, line {line}: {image_id}"
        if self.policy.skip_missing_images:
            self.tally.add(f"{_NOT_THERE.what}, left out", where)
        else:
            self.tally.refuse(_NOT_THERE, where)


def _open(
    path: str, image_ids: Sequence[str], absent: _Absent, maker: _Maker[Row]
) -> ImageRows[Row]:
    header, rows = _read(path)
    make = maker(path, header)
    if _is_sorted(rows):
        return _Streamed(path, _read(path)[1], make, image_ids[-1], absent)
    absent.tally.add(_NOT_SORTED, path)
    return _Held(path, _read(path)[1], make, frozenset(image_ids), absent)


class _Streamed(ImageRows[Row]):
    """Rows in the order of the images: one is looked at after the other."""

    def __init__(
        self,
        path: str,
        rows: Iterator[_Plain],
        make: _MakeRow[Row],
        last_id: str,
        absent: _Absent,
    ) -> None:
        self._path = path
        self._rows = rows
        self._make = make
        self._last_id = last_id
        self._absent = absent
        self._next: _Plain | None = next(rows, None)

    def take(self, image_id: str) -> Sequence[Row]:
        found = []
        # Behind the last image's the rows are only counted.
        while self._next is not None and (self._next[0] <= image_id or image_id == self._last_id):
            own, line, fields = self._next
            if own == image_id:
                found.append(self._make((self._path, line), fields))
            else:
                self._absent.add(line, own)
            self._next = next(self._rows, None)
        return found


class _Held(ImageRows[Row]):
    """Rows in any order, those of the images in memory."""

    def __init__(
        self,
        path: str,
        rows: Iterator[_Plain],
        make: _MakeRow[Row],
        image_ids: frozenset[str],
        absent: _Absent,
    ) -> None:
        self._rows: dict[str, list[Row]] = defaultdict(list)
        for image_id, line, fields in rows:
            if image_id in image_ids:
                self._rows[image_id].append(make((path, line), fields))
            else:
                absent.add(line, image_id)

    def take(self, image_id: str) -> Sequence[Row]:
        return self._rows.pop(image_id, ())


def _read(path: str) -> tuple[list[str], Iterator[_Plain]]:
    """The header, and the rows."""
    rows = _lines(path)
    header = next(rows, (0, []))[1]
    if "ImageID" not in header:
        raise TfodError(f"{path} is not a CSV of Open Images: its first line has no ImageID")
    place = header.index("ImageID")
    return header, _plain(path, rows, place, len(header))


def _plain(
    path: str, rows: Iterator[tuple[int, list[str]]], place: int, width: int
) -> Iterator[_Plain]:
    for line, fields in rows:
        if len(fields) != width:
            if not fields:
                continue
            raise TfodError(f"{path}, line {line}: {len(fields)} fields, the header has {width}")
        yield fields[place], line, fields


def _lines(path: str) -> Iterator[tuple[int, list[str]]]:
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


def _is_sorted(rows: Iterator[_Plain]) -> bool:
    previous = ""
    for image_id, _, _ in rows:
        if image_id < previous:
            return False
        previous = image_id
    return True


def _box_maker(path: str, header: Sequence[str]) -> _MakeRow[BoxRow]:
    name, *sides = (_column(path, header, column) for column in ("LabelName", *_SIDES))
    flags = {flag: header.index(column) for flag, column in _FLAGS.items() if column in header}

    def make(place: _Place, fields: list[str]) -> BoxRow:
        return BoxRow(
            f"{place[0]}, line {place[1]}",
            fields[name],
            tuple(_number(fields[side], place, finite=False) for side in sides),
            {flag: int(_number(fields[column], place)) for flag, column in flags.items()},
        )

    return make


def _label_maker(path: str, header: Sequence[str]) -> _MakeRow[LabelRow]:
    name = _column(path, header, "LabelName")
    confidence = header.index("Confidence") if "Confidence" in header else None

    def make(place: _Place, fields: list[str]) -> LabelRow:
        return LabelRow(
            f"{place[0]}, line {place[1]}",
            fields[name],
            None if confidence is None else _number(fields[confidence], place),
        )

    return make


def _column(path: str, header: Sequence[str], name: str) -> int:
    if name not in header:
        raise TfodError(f"{path} is not a CSV of Open Images: its first line has no {name}")
    return header.index(name)


def _number(text: str, place: _Place, finite: bool = True) -> float:
    try:
        value = float(text)
        if not finite or math.isfinite(value):
            return value
    except ValueError:
        pass
    raise TfodError(
        f"{place[0]}, line {place[1]}: {text[:40]!r} where a number is expected; correct it"
    )

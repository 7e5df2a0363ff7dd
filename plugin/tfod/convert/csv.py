"""The TF Object Detection CSV: a row for each box, with its image's name and size, in pixels.

``filename,width,height,class,xmin,ymin,xmax,ymax``, as xml_to_csv.py writes it and
generate_tfrecord.py reads it (datitran/raccoon_dataset, and the many tutorials that follow it).
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tfod.detection.boxes import PixelBox
from tfod.errors import TfodError

COLUMNS = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_SIZE = ("width", "height")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_NEEDED = frozenset(COLUMNS) - frozenset(_SIZE)
_DELIMITERS = ",;\t"
_LONGEST_FIRST_LINE = 1 << 16
_LARGEST_SIDE = 2**31 - 1
_NAMES = {";": "semicolons", "\t": "tabs"}


class CsvError(TfodError):
    """A file is no detection CSV, or one of its rows makes no sense."""


@dataclass(frozen=True)
class CsvBox:
    """One row's box: its class, left, top, right, bottom in pixels, and which row it was."""

    class_name: str
    corners: PixelBox
    row: int = field(default=0, compare=False)


@dataclass(frozen=True)
class CsvImage:
    """An image with the boxes of all its rows; width and height are None where no row says them.

    A row without class and corners is an image without boxes.
    """

    filename: str
    width: int | None
    height: int | None
    boxes: tuple[CsvBox, ...] = ()


@dataclass(frozen=True)
class DetectionCsv:
    """What a CSV holds.

    Attributes:
        images: in the order in which their names first appear.
        other_columns: names of the columns that were not read.
        liberties: what was read although it is not as it should be, a sentence each.
    """

    images: tuple[CsvImage, ...]
    other_columns: tuple[str, ...] = ()
    liberties: tuple[str, ...] = ()


def read_detection_csv(path: str | os.PathLike[str]) -> DetectionCsv:
    """Read a detection CSV.

    Columns may be in any order, with others among them, and without width and height; fields may
    be separated by commas, semicolons or tabs; without a header there must be the eight columns
    in their usual order. Rows of one image need not follow one another. Boxes that are inverted or
    not finite are taken as they are, to be checked later.

    Args:
        path: the file, UTF-8 (with or without a mark) or UTF-16.

    Raises:
        CsvError: it is no such CSV, or a row makes no sense.
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        text = io.TextIOWrapper(file, _encoding(file), newline="")
        try:
            return _read(text, name)
        except UnicodeDecodeError:
            raise CsvError(f"{name}: is not UTF-8; save it as UTF-8") from None


@dataclass(frozen=True)
class _Dialect:
    """How fields are separated, and which column is where."""

    delimiter: str
    places: dict[str, int]
    width: int
    has_header: bool
    other_columns: tuple[str, ...] = ()


def _encoding(file: io.BufferedReader) -> str:
    head = file.peek(2)[:2]
    return "utf-16" if head in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _read(text: io.TextIOWrapper, name: str) -> DetectionCsv:
    first = text.readline(_LONGEST_FIRST_LINE)
    dialect = _find_dialect(first, name)
    images: dict[str, tuple[int, CsvImage]] = {}  # with the row that each was first in
    boxes: dict[str, list[CsvBox]] = {}
    largest = 0.0
    reader = csv.reader(itertools.chain([first], text), delimiter=dialect.delimiter, strict=True)
    number = 0
    try:
        for number, row in enumerate(reader, start=1):
            if not row or (number == 1 and dialect.has_header):
                continue
            try:
                filename, size, box = _parse(row, dialect, number)
                first_row, image = images.setdefault(filename, (number, CsvImage(filename, *size)))
                known = image.width, image.height
                if known != size:
                    raise ValueError(
                        f"says {_by(size)} pixels, and row {first_row} of the same image says "
                        f"{_by(known)}"
                    )
            except ValueError as error:
                raise CsvError(f"{name}, row {number}: {error}") from None
            if box is not None:
                boxes.setdefault(filename, []).append(box)
                largest = max([largest, *filter(math.isfinite, box.corners)])
    except csv.Error as error:
        raise CsvError(f"{name}, row {number + 1}: not a CSV ({error})") from None
    found = tuple(replace(one, boxes=tuple(boxes.get(key, ()))) for key, (_, one) in images.items())
    liberties = _liberties(name, dialect, 0 < largest <= 1)
    return DetectionCsv(found, dialect.other_columns, tuple(liberties))


def _find_dialect(first: str, name: str) -> _Dialect:
    """What separates the fields of a first line, and what its columns are.

    Raises:
        CsvError: it is neither a header nor a row of the eight columns.
    """
    for delimiter in _DELIMITERS:
        fields = _split(first, delimiter)
        names = [field.strip().lower() for field in fields]
        if set(names) >= _NEEDED:
            twice = [one for one in COLUMNS if names.count(one) > 1]
            if twice:
                raise CsvError(f"{name}: its header has the column {twice[0]} twice")
            places = {one: names.index(one) for one in COLUMNS if one in names}
            others = (one.strip() for one in fields if one.strip().lower() not in COLUMNS)
            return _Dialect(delimiter, places, len(names), True, tuple(others))
    for delimiter in _DELIMITERS:
        fields = _split(first, delimiter)
        plain = _Dialect(delimiter, {one: i for i, one in enumerate(COLUMNS)}, len(COLUMNS), False)
        with contextlib.suppress(ValueError):
            if len(fields) == len(COLUMNS) and _parse(fields, plain)[2] is not None:
                return plain
    headers = [{one.strip().lower() for one in _split(first, each)} for each in _DELIMITERS]
    lacking = min((_NEEDED - header for header in headers), key=len)
    what = f"its header lacks {', '.join(sorted(lacking))}; " if lacking < _NEEDED else ""
    raise CsvError(
        f"{name}: not a detection CSV; {what}its first line should be {','.join(COLUMNS)}"
    )


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _parse(
    row: Sequence[str], dialect: _Dialect, number: int = 0
) -> tuple[str, tuple[int | None, int | None], CsvBox | None]:
    """A row's file name, width and height, and box.

    Raises:
        ValueError: it makes no sense; the message says why.
    """
    if len(row) < dialect.width or any(row[dialect.width :]):
        raise ValueError(f"has {len(row)} fields, and should have {dialect.width}")
    field = {name: row[place].strip() for name, place in dialect.places.items()}
    filename = row[dialect.places["filename"]]
    if not filename:
        raise ValueError("has no filename")
    size = _pixels("width", field), _pixels("height", field)
    if not any(field[one] for one in ("class", *_SIDES)):
        return filename, size, None
    if not field["class"]:
        raise ValueError("has no class")
    left, top, right, bottom = (_coordinate(side, field) for side in _SIDES)
    class_name = row[dialect.places["class"]]
    return filename, size, CsvBox(class_name, (left, top, right, bottom), number)


def _coordinate(side: str, field: dict[str, str]) -> float:
    try:
        return float(field[side])
    except ValueError:
        raise ValueError(f"{side} is {field[side]!r}, and should be a number of pixels") from None


def _pixels(name: str, field: dict[str, str]) -> int | None:
    text = field.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (1 <= value <= _LARGEST_SIDE and value.is_integer()):
        raise ValueError(f"{name} is {text!r}, and should be a whole number of pixels")
    return int(value)


def _liberties(name: str, dialect: _Dialect, looks_normalized: bool) -> Iterator[str]:
    if dialect.delimiter != ",":
        yield f"{name}: its fields are separated by {_NAMES[dialect.delimiter]}, read so"
    if not dialect.has_header:
        yield f"{name}: has no header; its columns are taken for {','.join(COLUMNS)}"
    if looks_normalized:
        yield f"{name}: no coordinate is above 1, they look normalized; they are read as pixels"


def _by(size: tuple[int | None, int | None]) -> str:
    return " x ".join("?" if one is None else str(one) for one in size)

"""The TF Object Detection CSV: a row for each box, with its image's name and size, in pixels.

``filename,width,height,class,xmin,ymin,xmax,ymax``, as xml_to_csv.py writes it and
generate_tfrecord.py reads it (datitran/raccoon_dataset, and the many tutorials that follow it).
Boxes are divided by the size that the CSV gives, which they were drawn at; records come in the
order of their names. A row of a name alone is an image without boxes.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tfod.detection.boxes import PixelBox
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.dataset import Dataset, Images, KnownClasses, annotated, chosen
from tfod.formats.files import ImageFile, ImageFiles, read_image
from tfod.formats.numbers import digits
from tfod.formats.objects import AnnotatedSize, Objects, detection_of, frame_of
from tfod.formats.options import Options, Problems
from tfod.formats.writer import Writer
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.names import stem_of_subset, subset_of_stem
from tfod.tfrecord.shard_sets.search import files_below

COLUMNS = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_SIDES = COLUMNS[4:]
_NEEDED = frozenset(COLUMNS) - {"width", "height"}
_DELIMITERS = ",;\t"
_NAMES = {";": "semicolons", "\t": "tabs"}
_LABELS = "_labels"
_LONGEST_FIRST_LINE = 1 << 16
_LARGEST_SIDE = 2**31 - 1
_OTHER_TOOLS = {
    "filename": ("image", "image_name", "image_path", "image_id", "imageid", "path", "file", "img"),
    "class": ("label", "label_name", "labelname", "class_name", "name", "category", "object"),
    **{f"{axis}min": (f"{axis}1", f"{axis}_min", f"box_{axis}1") for axis in "xy"},
    **{f"{axis}max": (f"{axis}2", f"{axis}_max", f"box_{axis}2") for axis in "xy"},
}
"""What other tools (VoTT, fastai, VIA, Open Images) call the columns."""


class CsvError(TfodError):
    """A file is no detection CSV, or one of its rows makes no sense."""


class CsvBox(NamedTuple):
    """One row's box: its class, left, top, right, bottom in pixels, and which row it was."""

    class_name: str
    corners: PixelBox
    row: int


@dataclass
class CsvImage:
    """An image with the boxes of all its rows; its height and width are None where no row says."""

    filename: str
    size: AnnotatedSize
    row: int
    boxes: list[CsvBox] = field(default_factory=list)


@dataclass(frozen=True)
class DetectionCsv:
    """What a CSV holds.

    Attributes:
        path: of the file.
        images: in the order in which their names first appear.
        other_columns: names of the columns that were not read.
        liberties: what was read although it is not as it should be, a sentence each.
    """

    path: str
    images: Sequence[CsvImage]
    other_columns: Sequence[str] = ()
    liberties: Sequence[str] = ()


def csv_files(path: str) -> list[str]:
    """The CSVs at a path: it, or those of a folder that begin as a detection CSV does."""
    if os.path.isfile(path):
        return [path] if path.lower().endswith(".csv") else []
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    files = [os.path.join(path, name) for name in names if name.lower().endswith(".csv")]
    return list(filter(_has_header, files))


def _has_header(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        first = file.readline(_LONGEST_FIRST_LINE).lower()
        return all(name in first for name in _NEEDED)
    return False


def read(source: str, options: Options) -> Dataset:
    """Read the images that a CSV names, or the CSVs of a folder, each a subset.

    Images are in the folder that is named, or in ``images`` beside the CSV, or beside it; others
    that are there are counted. Without a label map one is made of the classes in all CSVs, in the
    order of their names.

    Raises:
        TfodError: something is missing or odd.
    """
    files = csv_files(source)
    if not files:
        raise TfodError(f"{source} holds no detection CSV; name one")
    stems = {os.path.splitext(os.path.basename(one))[0]: one for one in files}
    found = {_subset_of(stem, stems): read_detection_csv(one) for stem, one in stems.items()}
    found = chosen(found, options.subset, source)
    above = os.path.dirname(files[0])
    classes = KnownClasses.find(
        options.label_map,
        above,
        lambda: sorted(
            {
                box.class_name
                for one in found.values()
                for image in one.images
                for box in image.boxes
            }
        ),
        source,
    )
    problems = Problems(options)
    readers = {
        subset: _Reader(one, _folders(above, subset, options.images), classes, options, problems)
        for subset, one in found.items()
    }

    subsets = {subset: reader.detections() for subset, reader in readers.items()}

    def notes() -> Iterator[str]:
        for reader in readers.values():
            yield from reader.notes()

    return annotated(subsets, subsets.items(), classes, problems, files, notes)


def _subset_of(stem: str, stems: Collection[str]) -> str:
    """``train`` of ``train_labels``, as xml_to_csv.py calls it, where that is no file's name."""
    plain = stem.removesuffix("_labels")
    return subset_of_stem(stem if plain in stems else plain or stem)


def _folders(above: str, subset: str, named: str | None) -> list[str]:
    """Where the images of a subset are looked for, those first that are there."""
    if named is not None:
        return [named]
    inside = os.path.join(above, "images")
    known = [os.path.join(inside, subset), inside, os.path.join(above, subset), above]
    return [one for one in known if os.path.isdir(one)] or [above]


@dataclass(frozen=True)
class _Reader:
    """Makes the Detections of a CSV; ``names`` are those of the images that it found."""

    found: DetectionCsv
    folders: Sequence[str]
    classes: KnownClasses
    options: Options
    problems: Problems
    names: set[str] = field(default_factory=set)

    def detections(self) -> Iterator[Detection]:
        """In the order of their names."""
        images = ImageFiles(self.folders)
        for one in sorted(self.found.images, key=lambda one: one.filename):
            if (detection := self._detection(images, one)) is not None:
                yield detection

    def notes(self) -> Iterator[str]:
        """What of the CSV is not read, and which images it does not name."""
        yield from self.found.liberties
        if self.found.other_columns:
            columns = ", ".join(name or "(without a name)" for name in self.found.other_columns)
            yield f"{self.found.path}: columns that are not read: {columns}"
        folder = self.folders[0]
        names = (os.path.relpath(path, folder).replace(os.sep, "/") for path in files_below(folder))
        unlisted = [
            one
            for one in names
            if os.path.splitext(one)[1].lower() in FORMAT_OF_EXTENSION and one not in self.names
        ]
        if unlisted and not self.options.no_images:
            yield (
                f"{len(unlisted)} images of {folder} that no row names, left out (the first: "
                f"{unlisted[0]}); a row of the name alone writes one without objects"
            )

    def _detection(self, images: ImageFiles, one: CsvImage) -> Detection | None:
        path = self.found.path
        name, where = safe_relative_path(one.filename), f"{path}, {one.filename}"
        image: ImageFile | None = None
        is_needed = not self.options.no_images
        if is_needed or not all(one.size):
            found = read_image(images, [one.filename], where, self.problems, is_needed)
            if found is not None:
                name, image = found[0].name, found[1]
            elif is_needed:
                return None
        if name in self.names:
            self.problems.add(
                "images that several names in the CSV mean, a record for each name", where
            )
        self.names.add(name)
        objects = Objects(
            [box.class_name for box in one.boxes],
            [box.corners for box in one.boxes],
            [f"{path}, row {box.row}" for box in one.boxes],
        )
        frame = frame_of(image, one.size, objects.boxes, where, self.problems)
        common = (self.classes, self.options, self.problems)
        return detection_of(image, name, objects, frame, *common, where=where)


# What the file says


def read_detection_csv(path: str) -> DetectionCsv:
    """Read a detection CSV, UTF-8 (with or without a mark) or UTF-16.

    Columns may be in any order, with others among them, and without width and height; fields may
    be separated by commas, semicolons or tabs, with blanks around them; without a header there must
    be the eight columns in their usual order. Rows of one image need not follow one another. Boxes
    that are inverted or not finite are taken as they are, to be checked later.

    Raises:
        CsvError: it cannot be read, is no such CSV, or a row makes no sense.
    """
    try:
        with open(path, "rb") as file:
            is_utf_16 = file.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")
            text = io.TextIOWrapper(file, "utf-16" if is_utf_16 else "utf-8-sig", newline="")
            return _read(text, path)
    except OSError as error:
        raise CsvError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CsvError(f"{path}: is not UTF-8; save it as UTF-8") from None


@dataclass(frozen=True)
class _Dialect:
    """How fields are separated, which column is where, and which are not read."""

    delimiter: str
    places: Mapping[str, int]
    width: int
    has_header: bool
    other_columns: Sequence[str] = ()


def _read(text: io.TextIOWrapper, name: str) -> DetectionCsv:
    first = text.readline(_LONGEST_FIRST_LINE)
    dialect = _find_dialect(first, name)
    images: dict[str, CsvImage] = {}
    reader = _rows(itertools.chain([first], text), dialect.delimiter)
    number = 0
    try:
        for number, row in enumerate(reader, start=1):
            if not row or (number == 1 and dialect.has_header):
                continue
            try:
                filename, size, box = _parse(row, dialect, number)
                image = images.setdefault(filename, CsvImage(filename, size, number))
                if image.size != size:
                    raise ValueError(
                        f"says {_by(size)} pixels, and row {image.row} of the same image says "
                        f"{_by(image.size)}"
                    )
            except ValueError as error:
                raise CsvError(f"{name}, row {number}: {error}") from None
            if box is not None:
                image.boxes.append(box)
    except csv.Error as error:
        raise CsvError(f"{name}, row {number + 1}: not a CSV ({error})") from None
    liberties = []
    if dialect.delimiter != ",":
        separators = _NAMES[dialect.delimiter]
        liberties.append(f"{name}: its fields are separated by {separators}, read so")
    if not dialect.has_header:
        columns = ",".join(COLUMNS)
        liberties.append(f"{name}: has no header; its columns are taken for {columns}")
    return DetectionCsv(name, list(images.values()), dialect.other_columns, liberties)


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The rows of a CSV, with blanks in front of quoted fields and behind them left out."""
    behind = re.compile(rf'(?<!")" +(?=[{delimiter}\r\n]|\Z)')
    plain = (behind.sub('"', line) if '" ' in line else line for line in lines)
    return csv.reader(plain, delimiter=delimiter, strict=True, skipinitialspace=True)


def _find_dialect(first: str, name: str) -> _Dialect:
    """What separates the fields of a first line, and what its columns are.

    Raises:
        CsvError: it is neither a header nor a row of the eight columns.
    """
    lines = {one: _split(first, one) for one in _DELIMITERS}
    for delimiter, fields in lines.items():
        names = [one.lower() for one in fields]
        if set(names) >= _NEEDED:
            twice = [one for one in COLUMNS if names.count(one) > 1]
            if twice:
                raise CsvError(f"{name}: its header has the column {twice[0]} twice")
            places = {one: names.index(one) for one in COLUMNS if one in names}
            others = [one for one in fields if one.lower() not in COLUMNS]
            return _Dialect(delimiter, places, len(names), True, others)
    for delimiter, fields in lines.items():
        plain = _Dialect(delimiter, {one: i for i, one in enumerate(COLUMNS)}, len(COLUMNS), False)
        with contextlib.suppress(ValueError):
            if len(fields) == len(COLUMNS) and _parse(fields, plain)[2] is not None:
                return plain
    columns = {one.lower(): one for one in max(lines.values(), key=len)}
    lacking = sorted(_NEEDED - columns.keys())
    renamed = [
        f"{columns[other]} to {one}"
        for one in lacking
        for other in _OTHER_TOOLS.get(one, ())
        if other in columns
    ]
    what = f"its header lacks {', '.join(lacking)}; " if len(lacking) < len(_NEEDED) else ""
    if renamed:
        what = f"its header lacks {', '.join(lacking)}; rename {', '.join(renamed)}; "
    raise CsvError(
        f"{name}: not a detection CSV; {what}its first line should be {','.join(COLUMNS)}"
    )


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return [one.strip(' "') for one in next(_rows([line], delimiter), [])]
    except csv.Error:
        return []


def _parse(
    row: Sequence[str], dialect: _Dialect, number: int = 0
) -> tuple[str, AnnotatedSize, CsvBox | None]:
    """A row's file name, height and width, and box.

    Raises:
        ValueError: it makes no sense; the message says why.
    """
    if len(row) < dialect.width or any(map(str.strip, row[dialect.width :])):
        raise ValueError(f"has {len(row)} fields, and should have {dialect.width}")
    given = {name: row[place].strip() for name, place in dialect.places.items()}
    if not given["filename"]:
        raise ValueError("has no filename")
    size = _pixels("height", given), _pixels("width", given)
    if not any(given[one] for one in ("class", *_SIDES)):
        return given["filename"], size, None
    if not given["class"]:
        raise ValueError("has no class")
    left, top, right, bottom = (_coordinate(side, given) for side in _SIDES)
    return given["filename"], size, CsvBox(given["class"], (left, top, right, bottom), number)


def _coordinate(side: str, given: Mapping[str, str]) -> float:
    try:
        return float(given[side])
    except ValueError:
        raise ValueError(f"{side} is {given[side]!r}, and should be a number of pixels") from None


def _pixels(name: str, given: Mapping[str, str]) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (1 <= value <= _LARGEST_SIDE and value.is_integer()):
        raise ValueError(f"{name} is {text!r}, and should be a whole number of pixels")
    return int(value)


def _by(size: AnnotatedSize) -> str:
    return " x ".join("?" if one is None else str(one) for one in reversed(size))


# Writing


class CsvWriter(Writer):
    """A CSV for each subset; an image without boxes is a row of its name and size."""

    STRIPPED_IN = "a CSV"

    def begin(self, subset: str) -> None:
        path = os.path.join(self.folder, stem_of_subset(subset) + ".csv")
        self.documents.append(path)
        self._write(path, (",".join(COLUMNS) + "\n").encode())

    def add(self, subset: str, images: Images, label_map: LabelMap) -> None:
        names = self._image_names(images, subset)
        self._write_images(images, names, subset)
        self._count_losses(images)
        classes = {one.id: one.class_name.strip() for one in label_map.items}
        sides = (digits(side, 6).T.tolist() for side in images.in_pixels().T)
        corners = [[bytes(text).replace(b"\0", b"").decode() for text in side] for side in sides]
        path = os.path.join(self.folder, stem_of_subset(subset) + ".csv")
        with open(path, "a", encoding="utf-8", errors="replace", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for row, name in enumerate(names):
                height, width = images.sizes[row].tolist()
                start, end = images.splits[row : row + 2]
                if start == end:
                    rows.writerow([name, width or "", height or "", *[""] * 5])
                for at in range(start, end):
                    box = (side[at] for side in corners)
                    rows.writerow([name, width, height, classes[images.classes[at]], *box])

    def finish(self, label_map: LabelMap) -> None:
        self._classes_without_blanks(label_map)
        self._write_label_map(label_map)

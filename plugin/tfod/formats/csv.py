"""The TF Object Detection CSV: a row for each box, with its image's name and size, in pixels.

``filename,width,height,class,xmin,ymin,xmax,ymax``, as xml_to_csv.py writes it and
generate_tfrecord.py reads it (datitran/raccoon_dataset, and the many tutorials that follow it).
Boxes are divided by the size that the CSV gives, which they were drawn at; records come in the
order of their names. A row of a name alone is an image without boxes.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tfod.detection.detection import Detection
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.dataset import Dataset, Images, chosen
from tfod.formats.format_writer import FormatWriter
from tfod.formats.numbers import DECIMALS, digits
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import open_text, parse_number, reading
from tfod.formats.reading.files import AnnotatedSize, ImageFiles
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, SourceClasses
from tfod.sources.format_recognition import CSV_COLUMNS, SourceFiles, find_csv_files
from tfod.tfrecord.shard_sets.shard_names import to_stem, to_subset

COLUMNS = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_SIDES = COLUMNS[4:]
_DELIMITERS = ",;\t"
_NO_VALUE = "nan"  # of an empty cell, as pandas may write it
_LARGEST_SIDE = 2**31 - 1
_OTHER_TOOLS = {
    "filename": ("image", "image_name", "image_path", "image_id", "imageid", "path", "file", "img"),
    "class": ("label", "label_name", "labelname", "class_name", "name", "category", "object"),
    **{f"{axis}min": (f"{axis}1", f"{axis}_min", f"box_{axis}1") for axis in "xy"},
    **{f"{axis}max": (f"{axis}2", f"{axis}_max", f"box_{axis}2") for axis in "xy"},
}
"""What other tools (VoTT, fastai, VIA, Open Images) call the columns."""


# Reading


def read(source: str, options: Options) -> Dataset:
    """Read the images that a CSV names, or the CSVs of a folder, each a subset.

    Images are in the folder that is named, or in ``images`` beside the CSV, or beside it. Without a
    label map one is made of the classes in all CSVs, in the order of their names.

    Raises:
        TfodError: something is missing or odd.
    """
    found = SourceFiles.at(source)
    every = find_csv_files(found)
    if not every:
        raise TfodError(f"{source} holds no detection CSV; name one")
    problems, above = ConversionProblems(options), os.path.dirname(every[0])
    for other in sorted({*map(found.path, found.with_extensions(".csv"))}.difference(every)):
        problems.add("CSVs that are no detection CSV, passed over", other)
    stems = {os.path.splitext(os.path.basename(one))[0]: one for one in every}
    named = {}
    for stem, path in stems.items():
        # train_labels, as xml_to_csv.py calls it, is train, where that is no file's name.
        plain = stem.removesuffix("_labels")
        named[to_subset(stem if plain in stems else plain or stem)] = path
    files = chosen(named, options.subset, source)
    images = {subset: read_detection_csv(one, problems) for subset, one in files.items()}
    names = {
        each.name for found in images.values() for one in found.values() for each in one.objects
    }
    classes = SourceClasses.find(options, above, lambda: sorted(names), source)
    reading = DatasetBuilder(classes, options, problems)
    subsets = {
        subset: _detections(files[subset], found, _folders(above, subset, options.images), reading)
        for subset, found in images.items()
    }
    return reading.dataset(subsets.items(), subsets, every)


def _folders(above: str, subset: str, named: str | None) -> list[str]:
    """Where the images of a subset are looked for, those first that are there."""
    if named is not None:
        return [named]
    inside = os.path.join(above, "images")
    known = [os.path.join(inside, subset), inside, os.path.join(above, subset), above]
    return [one for one in known if os.path.isdir(one)] or [above]


class CsvImage(NamedTuple):
    """An image with the objects of all its rows; height and width are None where no row says."""

    size: AnnotatedSize
    row: int
    objects: list[AnnotatedObject]


def _detections(
    path: str, images: Mapping[str, CsvImage], folders: Sequence[str], reading: DatasetBuilder
) -> Iterator[Detection | None]:
    """The records of a CSV's images, in the order of their names."""
    finder = ImageFiles(folders, root=reading.options.unpacked)
    for filename, one in sorted(images.items()):
        where = f"{path}, {filename}"
        yield reading.detection(finder, [filename], one.size, one.objects, where)


def read_detection_csv(path: str, problems: ConversionProblems) -> dict[str, CsvImage]:
    """Read a detection CSV in UTF-8 or UTF-16: its images by name.

    Columns may be in any order, with others among them, and without width and height; fields may
    be separated by commas, semicolons or tabs, with blanks around them. Rows of one image need not
    follow one another. Boxes that are inverted or not finite are taken as they are, to be checked
    later.

    Raises:
        TfodError: it cannot be read, is no such CSV, or a row makes no sense.
    """
    images: dict[str, CsvImage] = {}
    columns: Sequence[str] = ()
    number = 0
    try:
        with reading(path), open_text(path, newline="") as text:
            for number, row in enumerate(_rows(text), start=1):
                if row and not columns:
                    columns = _columns(row, path, problems)
                elif row:
                    where = f"{path}, row {number}"
                    _add(images, row, columns, where, number)
                    if len(row) > (at := columns.index("class")):
                        problems.trim(row[at], where)
    except csv.Error as error:
        raise TfodError(f"{path}, row {number + 1}: not a CSV ({error})") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path}: is not UTF-8; save it as UTF-8") from None
    if not columns:  # the file is empty
        _columns(columns, path, problems)
    for image in images.values():
        for one in [one for one in image.objects if one.name.lower() == _NO_VALUE]:
            problems.add("rows whose class is nan, left out", one.place)
            image.objects.remove(one)
    return images


def _rows(lines: Iterator[str]) -> Iterator[list[str]]:
    """The rows of a CSV, with blanks in front of quoted fields and behind them left out."""
    first = next(lines, "")
    delimiter = max(_DELIMITERS, key=first.count)
    behind = re.compile(rf'(?<!")" +(?=[{delimiter}\r\n]|\Z)')
    every = itertools.chain([first], lines)
    plain = (behind.sub('"', line) if '" ' in line else line for line in every)
    return csv.reader(plain, delimiter=delimiter, strict=True, skipinitialspace=True)


def _columns(fields: Sequence[str], path: str, problems: ConversionProblems) -> Sequence[str]:
    """The names of a header; raises TfodError for another line."""
    given = [one.strip() for one in fields]
    names = [one.lower() for one in given]
    lacking = sorted(CSV_COLUMNS.difference(names))
    if lacking:
        renamed = [
            f"{given[names.index(other)]} to {one}"
            for one in lacking
            for other in _OTHER_TOOLS.get(one, ())
            if other in names
        ]
        is_near = renamed or len(lacking) < len(CSV_COLUMNS)
        what = f"its header lacks {', '.join(lacking)}; " if is_near else ""
        what += f"rename {', '.join(renamed)}; " if renamed else ""
        raise TfodError(
            f"{path}: not a detection CSV; {what}its first line should be {','.join(COLUMNS)}"
        )
    for one in COLUMNS:
        if names.count(one) > 1:
            raise TfodError(f"{path}: its header has the column {one} twice")
    for one, name in zip(given, names, strict=True):
        if name not in COLUMNS:
            problems.add("columns that are not read", f"{path}: {one or 'one without a name'}")
    return names


def _add(
    images: dict[str, CsvImage], row: Sequence[str], columns: Sequence[str], where: str, number: int
) -> None:
    """Add a row to its image; raises TfodError where it makes no sense."""
    if any(map(str.strip, row[len(columns) :])):
        raise TfodError(f"{where}: has {len(row)} fields, and should have {len(columns)}")
    given = dict.fromkeys(columns, "")
    given |= {name: text.strip() for name, text in zip(columns, row, strict=False)}
    name, class_name = given["filename"], given["class"]
    is_image_alone = not any(given[one] for one in ("class", *_SIDES))
    if len(row) < len(columns) and not is_image_alone:
        raise TfodError(f"{where}: has {len(row)} fields, and should have {len(columns)}")
    if not name:
        raise TfodError(f"{where}: has no filename")
    size = _pixels(given, "height", where), _pixels(given, "width", where)
    image = images.setdefault(name, CsvImage(size, number, []))
    if image.size != size:
        raise TfodError(
            f"{where}: gives another width or height than row {image.row} of the same image; "
            "correct one of them"
        )
    if is_image_alone:
        return
    if not class_name:
        raise TfodError(f"{where}: has no class")
    box = [parse_number(given[side], f"{where}: {side} has", finite=False) for side in _SIDES]
    image.objects.append(AnnotatedObject(class_name, box, where))


def _pixels(given: Mapping[str, str], name: str, where: str) -> int | None:
    text = given.get(name, "")
    if not text or text.lower() == _NO_VALUE:
        return None
    value = parse_number(text, f"{where}: {name} has")
    if not (1 <= value <= _LARGEST_SIDE and value.is_integer()):
        raise TfodError(f"{where}: {name} is {text!r:.81}, and should be a whole number of pixels")
    return int(value)


# Writing


class Writer(FormatWriter):
    """A CSV for each subset; an image without boxes is a row of its name and size."""

    LISTS_CLASSES = False

    def begin(self, subset: str) -> None:
        path = os.path.join(self.folder, to_stem(subset) + ".csv")
        self.documents.append(path)
        self._write(path, (",".join(COLUMNS) + "\n").encode())

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, images.subset)
        classes = label_map.class_names
        sides = (digits(side, DECIMALS).T.tolist() for side in images.in_pixels().T)
        corners = [[bytes(text).replace(b"\0", b"").decode() for text in side] for side in sides]
        path = os.path.join(self.folder, to_stem(images.subset) + ".csv")
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
        self._require_no_blanks(label_map)
        self._write_label_map(label_map)

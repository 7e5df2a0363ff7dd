"""The CSV of TF Object Detection tutorials: one row per box in pixels, with image name and size.

``filename,width,height,class,xmin,ymin,xmax,ymax``, as written by xml_to_csv.py and read by
generate_tfrecord.py (datitran/raccoon_dataset). Boxes are divided by the size in the CSV, at which
they were drawn; records are sorted by name. A row with only a name is an image without boxes.
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
from tfod.errors import TfodError, excerpt
from tfod.formats.dataset import Dataset, Images, select_subsets
from tfod.formats.format_writer import FormatWriter
from tfod.formats.numbers import DECIMALS, format_numbers
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import convert_os_errors, open_text, parse_number
from tfod.formats.reading.files import AnnotatedSize, ImageFiles
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, SourceClasses
from tfod.sources.format_recognition import CSV_COLUMNS, SourceFiles, find_csv_files
from tfod.tfrecord.shard_sets.shard_names import to_stem, to_subset

COLUMNS = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
_SIDES = COLUMNS[4:]
_DELIMITERS = ",;\t"
_EMPTY = "nan"  # pandas may write it for an empty cell
_MAX_SIDE = 2**31 - 1
_OTHER_TOOLS = {
    "filename": ("image", "image_name", "image_path", "image_id", "imageid", "path", "file", "img"),
    "class": ("label", "label_name", "labelname", "class_name", "name", "category", "object"),
    **{f"{axis}min": (f"{axis}1", f"{axis}_min", f"box_{axis}1") for axis in "xy"},
    **{f"{axis}max": (f"{axis}2", f"{axis}_max", f"box_{axis}2") for axis in "xy"},
}
"""Names of the columns in other tools (VoTT, fastai, VIA, Open Images)."""


# Reading


def read(source: str, options: Options) -> Dataset:
    """Read a CSV, or the CSVs in a folder, each as a subset; or raise TfodError.

    Images are looked up in the requested folder, or next to the CSV and in ``images`` there.
    A new label map has the classes of all CSVs in alphabetical order.
    """
    source_files = SourceFiles.at(source)
    csv_paths = find_csv_files(source_files)
    if not csv_paths:
        raise TfodError(f"{source} contains no detection CSV; pass the path of one")
    problems, folder = ConversionProblems(options), os.path.dirname(csv_paths[0])
    all_paths = {*map(source_files.path, source_files.with_extensions(".csv"))}
    for path in sorted(all_paths.difference(csv_paths)):
        problems.add("CSVs that are not detection CSVs, skipped", path)
    stems = {os.path.splitext(os.path.basename(path))[0]: path for path in csv_paths}
    subset_paths = {}
    for stem, path in stems.items():
        # xml_to_csv.py writes train_labels.csv for the subset train.
        short = stem.removesuffix("_labels")
        subset_paths[to_subset(stem if short in stems else short or stem)] = path
    files = select_subsets(subset_paths, options.subset, source)
    subset_images = {subset: read_detection_csv(path, problems) for subset, path in files.items()}
    all_images = [image for images in subset_images.values() for image in images.values()]
    names = {item.name for image in all_images for item in image.objects}
    classes = SourceClasses.find(options, folder, lambda: sorted(names), source)
    builder = DatasetBuilder(classes, options, problems)
    subsets = {}
    for subset, images in subset_images.items():
        folders = _list_folders(folder, subset, options.images)
        subsets[subset] = _build_detections(files[subset], images, folders, builder)
    return builder.build_dataset(subsets.items(), subsets, csv_paths)


def _list_folders(parent: str, subset: str, requested: str | None) -> list[str]:
    if requested is not None:
        return [requested]
    images = os.path.join(parent, "images")
    folders = [os.path.join(images, subset), images, os.path.join(parent, subset), parent]
    return [folder for folder in folders if os.path.isdir(folder)] or [parent]


class CsvImage(NamedTuple):
    """An image with its size, the number of its first row, and the objects of all its rows."""

    size: AnnotatedSize
    row: int
    objects: list[AnnotatedObject]


def _build_detections(
    path: str, images: Mapping[str, CsvImage], folders: Sequence[str], builder: DatasetBuilder
) -> Iterator[Detection | None]:
    image_files = ImageFiles(folders, root=builder.options.unpacked_folder)
    for name, image in sorted(images.items()):
        location = f"{path}, {name}"
        yield builder.build_detection(image_files, [name], image.size, image.objects, location)


def read_detection_csv(path: str, problems: ConversionProblems) -> dict[str, CsvImage]:
    """Read a detection CSV in UTF-8 or UTF-16; return its images by name, or raise TfodError.

    Columns may have any order, width and height may be missing, and other columns are ignored.
    Fields are separated by commas, semicolons or tabs, with optional spaces. Boxes may be invalid.
    """
    images: dict[str, CsvImage] = {}
    columns: Sequence[str] = ()
    number = 0
    try:
        with convert_os_errors(path), open_text(path, newline="") as text:
            for number, row in enumerate(_read_rows(text), start=1):
                if row and not columns:
                    columns = _read_header(row, path, problems)
                elif row:
                    location = f"{path}, row {number}"
                    _add_row(images, row, columns, location, number)
                    if len(row) > (index := columns.index("class")):
                        problems.trim(row[index], location)
    except csv.Error as error:
        raise TfodError(f"{path}, row {number + 1}: not a CSV ({error})") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not UTF-8; save it as UTF-8") from None
    if not columns:  # the file is empty
        _read_header(columns, path, problems)
    for image in images.values():
        for item in [item for item in image.objects if item.name.lower() == _EMPTY]:
            problems.add("rows whose class is nan, left out", item.location)
            image.objects.remove(item)
    return images


def _read_rows(lines: Iterator[str]) -> Iterator[list[str]]:
    """Parse the rows of a CSV, ignoring spaces around quoted fields."""
    first = next(lines, "")
    delimiter = max(_DELIMITERS, key=first.count)
    after_quote = re.compile(rf'(?<!")" +(?=[{delimiter}\r\n]|\Z)')
    trimmed = (
        after_quote.sub('"', line) if '" ' in line else line
        for line in itertools.chain([first], lines)
    )
    return csv.reader(trimmed, delimiter=delimiter, strict=True, skipinitialspace=True)


def _read_header(fields: Sequence[str], path: str, problems: ConversionProblems) -> Sequence[str]:
    """Return the lowercase names of the columns; raise TfodError if the line is not a header."""
    titles = [field.strip() for field in fields]
    names = [title.lower() for title in titles]
    missing = sorted(CSV_COLUMNS.difference(names))
    if missing:
        renames = [
            f"{titles[names.index(other)]} to {column}"
            for column in missing
            for other in _OTHER_TOOLS.get(column, ())
            if other in names
        ]
        is_similar = renames or len(missing) < len(CSV_COLUMNS)
        hint = f"its header lacks {', '.join(missing)}; " if is_similar else ""
        hint += f"rename {', '.join(renames)}; " if renames else ""
        expected = ",".join(COLUMNS)
        raise TfodError(f"{path}: not a detection CSV; {hint}its first line should be {expected}")
    for column in COLUMNS:
        if names.count(column) > 1:
            raise TfodError(f"{path}: its header has the column {column} twice")
    for title, name in zip(titles, names, strict=True):
        if name not in COLUMNS:
            problems.add("unknown columns, ignored", f"{path}: {title or 'without a name'}")
    return names


def _add_row(
    images: dict[str, CsvImage],
    row: Sequence[str],
    columns: Sequence[str],
    location: str,
    number: int,
) -> None:
    """Add a row to its image; raise TfodError if it is invalid."""
    if any(map(str.strip, row[len(columns) :])):
        raise TfodError(f"{location}: {len(row)} fields instead of {len(columns)}")
    values = dict.fromkeys(columns, "")
    values |= {name: text.strip() for name, text in zip(columns, row, strict=False)}
    name, class_name = values["filename"], values["class"]
    has_object = any(values[column] for column in ("class", *_SIDES))
    if len(row) < len(columns) and has_object:
        raise TfodError(f"{location}: {len(row)} fields instead of {len(columns)}")
    if not name:
        raise TfodError(f"{location}: the filename is missing")
    size = _read_side(values, "height", location), _read_side(values, "width", location)
    image = images.setdefault(name, CsvImage(size, number, []))
    if image.size != size:
        raise TfodError(
            f"{location}: the width or height differs from row {image.row} of the same image; "
            "correct one of them"
        )
    if not has_object:
        return
    if not class_name:
        raise TfodError(f"{location}: the class is missing")
    box = [parse_number(values[side], f"{location}: {side} is", finite=False) for side in _SIDES]
    image.objects.append(AnnotatedObject(class_name, box, location))


def _read_side(values: Mapping[str, str], name: str, location: str) -> int | None:
    text = values.get(name, "")
    if not text or text.lower() == _EMPTY:
        return None
    value = parse_number(text, f"{location}: {name} is")
    if not (1 <= value <= _MAX_SIDE and value.is_integer()):
        raise TfodError(
            f"{location}: {name} is {excerpt(text)} instead of a whole number of pixels"
        )
    return int(value)


# Writing


class Writer(FormatWriter):
    """Writes a CSV for each subset; an image without boxes is a row with its name and size."""

    LISTS_CLASSES = False

    def begin(self, subset: str) -> None:
        path = os.path.join(self.folder, to_stem(subset) + ".csv")
        self.documents.append(path)
        self._write(path, (",".join(COLUMNS) + "\n").encode())

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, images.subset)
        classes = label_map.class_names
        sides = (format_numbers(side, DECIMALS).T.tolist() for side in images.to_pixels().T)
        corners = [[bytes(text).replace(b"\0", b"").decode() for text in side] for side in sides]
        path = os.path.join(self.folder, to_stem(images.subset) + ".csv")
        with open(path, "a", encoding="utf-8", errors="replace", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            for row, name in enumerate(names):
                height, width = images.sizes[row].tolist()
                start, end = images.splits[row : row + 2]
                if start == end:
                    rows.writerow([name, width or "", height or "", *[""] * 5])
                for index in range(start, end):
                    box = (side[index] for side in corners)
                    rows.writerow([name, width, height, classes[images.classes[index]], *box])

    def finish(self, label_map: LabelMap) -> None:
        self._require_trimmed_names(label_map)
        self._write_label_map(label_map)

"""YOLO: Ultralytics' ``data.yaml``, Darknet's ``obj.names``, or labels beside images.

A line is a class, counted from 0, and centre, width and height of its box, divided by the size of
the image; behind them keypoints where the YAML has ``kpt_shape``, or in their place an outline.
Sources: ``check_det_dataset``, ``img2label_paths`` and ``verify_image_label`` in
ultralytics/data/utils.py; docs.ultralytics.com/datasets/detect and /pose; CVAT's "YOLO 1.1".
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection.box_geometry import enclose_points
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError, how_to_install
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, Images, chosen
from tfod.formats.format_writer import FormatWriter
from tfod.formats.numbers import digits, lines_of, multiply_as_typed
from tfod.formats.options import ConversionProblems, Options, Refusal
from tfod.formats.reading.documents import open_text, read_lines
from tfod.formats.reading.files import ImageFiles, files_below, is_image_file, may_read
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, SourceClasses
from tfod.sources.format_recognition import NAMES_FILES, YAML_FILES, SourceFiles, find_yolo_file
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.shard_names import to_stem

_LABELS = "labels"
_DATA = "obj.data"
_NO_SUBSETS = ("classes", "names", "backup", "")  # what else that has
_SUBSETS = ("train", "val", "validation", "test", "minival")
_OUTLINES = "outlines, read as the boxes around them"
_CONFIDENCES = "confidences behind boxes, left out"
_NAMESAKES = "classes of a name that another one has, made one class"
_UNLABELLED = "images without a file of labels, written without objects"
_NO_IMAGE = "files of labels without an image, left out"
_NO_LABELS = Refusal("datasets without any file of labels", "put it there, in the same case")
_ABSENT = "folders of images that are named and not there, passed over"
_NULLS = (None, "", "~", "null", "Null", "NULL")
_BOX = 5  # numbers of a line: class, centre, size
_LEAST_OUTLINE = 7
_LARGEST = float(np.finfo(np.float32).max)


# Reading


@dataclass(frozen=True)
class _Layout:
    """What names a dataset's classes and images.

    Attributes:
        file: that says it.
        names: of the classes by their numbers.
        subsets: what each names: folders or lists of images.
        points: how many keypoints an object has, and how many numbers each; 0, 0 for none.
    """

    file: str
    names: Mapping[int, str]
    subsets: Mapping[str, list[str]]
    points: tuple[int, int] = (0, 0)


def read(source: str, options: Options) -> Dataset:
    """Read a dataset, its subsets as the YAML or ``obj.data`` has them.

    Raises:
        TfodError: a file is missing or makes no sense, with the line.
    """
    file = find_yolo_file(SourceFiles.at(source))
    if options.images is not None:
        raise TfodError(
            f"--images {options.images}: YOLO's images are where its YAML says; leave it out"
        )
    if file is None:
        raise TfodError(
            f"{source} holds none of {', '.join((*YAML_FILES, *NAMES_FILES))}; name the YAML"
        )
    problems = ConversionProblems(options)
    read_layout = _read_yaml if file.lower().endswith(("yaml", "yml")) else _read_names
    layout = read_layout(file, problems)
    in_order = [name for _, name in sorted(layout.names.items())]
    classes = SourceClasses.find(options, os.path.dirname(file), lambda: in_order, file)
    first: dict[str, int] = {}
    for number, name in sorted(layout.names.items()):
        if first.setdefault(name, number) != number:
            problems.add(_NAMESAKES, f"{file}: {name!r:.81} is {first[name]} and {number}")
    reading = DatasetBuilder(classes, options, problems, is_normalized=True)
    subsets = chosen(layout.subsets, options.subset, file)
    for path in itertools.chain(*subsets.values()):
        if not may_read(path, options.unpacked):
            raise TfodError(f"{file} names {path}, which is not in the archive; correct it")
    return reading.dataset(_parts(layout, subsets, reading), subsets, [file])


def _read_yaml(file: str, problems: ConversionProblems) -> _Layout:
    found = _loaded(file)
    names = found.get("names") if isinstance(found, dict) else None
    given = dict(enumerate(names)) if isinstance(names, list) else names
    pairs = given.items() if isinstance(given, dict) else ()
    names = {int(one) if str(one).isdecimal() else one: name for one, name in pairs}
    if not names or not all(isinstance(one, int) for one in names):
        raise TfodError(f"{file} has no names of classes; write names: [cat, dog]")
    if not all(one and isinstance(one, str) for one in names.values()):
        raise TfodError(f"{file} has a class without a name; write names: [cat, dog]")
    below = os.path.dirname(file)
    path = found.get("path") or ""
    roots = [os.path.join(below, "" if path in _NULLS else str(path)), below]
    named = {
        str(key): value if isinstance(value, list) else [value]
        for key, value in found.items()
        if (key in _SUBSETS and value not in _NULLS) or _names_its_folder(roots, str(key), value)
    }
    for key, parts in named.items():
        if not all(isinstance(one, str) for one in parts):
            raise TfodError(f"{file}: {key} is {found[key]!r:.40}; write {key}: images/{key}")
    subsets = _existing(named, roots, file, problems)
    if not subsets:
        raise TfodError(f"{file} names no folder of images; write train: images/train")
    return _Layout(file, names, subsets, _kpt_shape(found.get("kpt_shape"), file))


def _loaded(file: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise TfodError(f"{file} needs PyYAML; {how_to_install('validator')}") from None
    try:
        with open_text(file) as stream:
            return yaml.load(stream, yaml.BaseLoader)  # texts as typed: NO, 001, 12:30
    except (yaml.YAMLError, UnicodeError, OSError, RecursionError, ValueError, TypeError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}:" if mark else ""
        fix = "save it as UTF-8" if isinstance(error, UnicodeError) else "correct it"
        raise TfodError(f"{file}{line} cannot be read: {reason}; {fix}") from None


def _existing(
    named: Mapping[str, Sequence[str]],
    roots: Sequence[str],
    file: str,
    problems: ConversionProblems,
) -> dict[str, list[str]]:
    """Return the existing paths that subsets name; count the others."""
    subsets: dict[str, list[str]] = {}
    absent = ""
    for subset, parts in named.items():
        for part in parts:
            # Roboflow writes ../train/images for what lies beside the YAML, Darknet data/ for it.
            plain = (part, part.removeprefix("../"), part.removeprefix("data/"))
            paths = (os.path.normpath(os.path.join(root, one)) for root in roots for one in plain)
            found = next(filter(os.path.exists, paths), None)
            if found is None:
                absent = absent or part
                problems.add(_ABSENT, f"{file}: {part}")
            else:
                subsets.setdefault(subset, []).append(found)
    if absent and not subsets:
        raise TfodError(f"{file}: {absent} is not there; correct it, or path")
    return subsets


def _kpt_shape(value: Any, file: str) -> tuple[int, int]:
    if value in _NULLS:
        return 0, 0
    if isinstance(value, list) and len(value) == 2 and all(str(x).isdecimal() for x in value):
        count, numbers = map(int, value)
        if count > 0 and numbers in (2, 3):
            return count, numbers
    raise TfodError(f"{file}: kpt_shape is {value!r:.40}, expected e.g. [17, 3]; correct it")


def _names_its_folder(roots: list[str], key: str, value: object) -> bool:
    """Whether a key is a subset that Ultralytics does not know, as in ``extra: images/extra``."""
    if key == "path" or not isinstance(value, str) or os.path.basename(value) != key:
        return False
    return any(os.path.isdir(os.path.join(root, value)) for root in roots)


def _read_names(file: str, problems: ConversionProblems) -> _Layout:
    below = os.path.dirname(file)
    names: dict[int, str] = {}
    for number, line in read_lines(file, "\r\n"):
        if number != len(names) + 1:
            raise TfodError(
                f"{file}, line {len(names) + 1}: empty, which is a class for Darknet and none for "
                "CVAT; write a name, or remove the line"
            )
        names[len(names)] = problems.trim(line, f"{file}, line {number}")
    data = os.path.join(below, _DATA)
    settings = read_lines(data) if os.path.isfile(data) else ()
    pairs = [line.partition("=")[::2] for _, line in settings]
    named = {key.strip(): [value.strip()] for key, value in pairs if key.strip() not in _NO_SUBSETS}
    subsets = _existing(named, [below], data, problems)
    if os.path.basename(os.path.abspath(below)) == _LABELS and not subsets:
        beside = os.path.normpath(os.path.join(below, os.pardir, "images"))
        below = beside if os.path.isdir(beside) else os.path.dirname(beside)
    return _Layout(file, names, subsets or {DEFAULT_SUBSET: [below or "."]})


def _images(places: list[str], root: str | None) -> Iterator[tuple[str, str, str]]:
    """The folder of each image, its name within that, and where it is named."""
    for place in places:
        if not os.path.isfile(place):
            for path in files_below(place, None):
                known = os.path.splitext(path)[1].lower() in FORMAT_OF_EXTENSION
                if known or (not path.endswith(".txt") and is_image_file(path)):
                    yield place, os.path.relpath(path, place).replace(os.sep, "/"), place
            continue
        below = os.path.dirname(place)  # of a list
        images = ImageFiles([below], root=root)
        for number, line in read_lines(place):
            found = images.find([line], "", ConversionProblems())
            path = found[0] if found else os.path.join(below, safe_relative_path(line))
            yield *os.path.split(path), f"{place}, line {number}"


def label_path(image: str) -> str:
    """Where Ultralytics looks for the objects of an image: the last ``images`` is ``labels``."""
    stem = f"{os.sep}{os.path.splitext(image)[0]}.txt"
    return f"{os.sep}{_LABELS}{os.sep}".join(stem.rsplit(f"{os.sep}images{os.sep}", 1))[1:]


def _label_file(image: str) -> tuple[str, bool]:
    """Where its objects are: where Ultralytics looks, beside it, or below; whether it is there."""
    beside = os.path.splitext(image)[0] + ".txt"
    above, name = os.path.split(beside)
    paths = label_path(image), beside, os.path.join(above, _LABELS, name)
    found = next(filter(os.path.isfile, paths), None)
    return found or paths[0], found is not None


def _unused_labels(place: str, used: Container[str]) -> Iterator[str]:
    """Files of labels of a folder of images that no image has."""
    beside = os.path.dirname(label_path(os.path.join(place, "x")))
    paths = dict.fromkeys(x for one in (beside, place) for x in files_below(one, (".txt",)))
    for path in (one for one in paths if one not in used):
        with contextlib.suppress(TfodError, ValueError):  # another text
            _, first = next(read_lines(path), (0, ""))
            if not first or len([float(one) for one in first.split()]) >= _BOX:
                yield path


def _parts(
    layout: _Layout, subsets: Mapping[str, list[str]], reading: DatasetBuilder
) -> Iterator[tuple[str, Iterator[Detection | None]]]:
    """The images of each subset; that no image has a file of labels is refused."""
    first: dict[bool, str] = {}  # the first files of labels that are there, and that are not
    used = set[str]()
    root = reading.options.unpacked

    def detections(places: list[str]) -> Iterator[Detection | None]:
        finders: dict[str, ImageFiles] = {}
        for folder, name, named in _images(places, root):
            file, is_there = _label_file(os.path.join(folder, name))
            first.setdefault(is_there, file)
            used.add(file)
            if not is_there:
                reading.problems.add(_UNLABELLED, file)
            lines = read_lines(file) if is_there else ()
            objects = [
                _object(line.split(), f"{file}, line {number}", layout, reading.problems)
                for number, line in lines
            ]
            images = finders.setdefault(folder, ImageFiles([folder], root=root))
            where = file if named in places else named
            yield reading.detection(
                images, [name], (None, None), objects, where, point_count=layout.points[0]
            )

    for subset, places in subsets.items():
        yield subset, detections(places)
    for place in filter(os.path.isdir, dict.fromkeys(itertools.chain(*subsets.values()))):
        for path in _unused_labels(place, used):
            used.add(path)
            reading.problems.add(_NO_IMAGE, path)
    if first.keys() == {False}:
        reading.problems.add(_NO_LABELS, first[False])


def _object(
    parts: list[str], where: str, layout: _Layout, problems: ConversionProblems
) -> AnnotatedObject:
    """The object of a line."""
    try:
        numbers = [float(one) for one in parts]
    except ValueError:
        numbers = []
    count, each = layout.points
    more = len(numbers) - _BOX
    is_outline = not count and len(numbers) >= _LEAST_OUTLINE and len(numbers) % 2
    if not is_outline and more not in (0, 1, *((count * each,) if count else ())):
        shape = f"kpt_shape [{count}, {each}]" if count else "four numbers, x y width height"
        raise TfodError(f"{where}: expected a class and {shape}; correct it")
    name = layout.names.get(int(numbers[0])) if numbers[0].is_integer() else None
    if name is None:
        raise TfodError(f"{where}: class {parts[0]} is not in the names of {layout.file}; add it")
    if is_outline:
        problems.add(_OUTLINES, where)
        return AnnotatedObject(name, enclose_points(numbers[1:]), where)
    if more == 1 and count * each != 1:
        problems.add(_CONFIDENCES, where)
    x, y, width, height = numbers[1:_BOX]
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    points = _points(numbers[_BOX:], layout.points, where) if more > 1 else None
    return AnnotatedObject(name, box, where, points=points)


def _points(numbers: list[float], shape: tuple[int, int], where: str) -> np.ndarray:
    """Keypoints; 0, 0 without a visibility is not labelled, as in Ultralytics."""
    if not all(abs(one) <= _LARGEST for one in numbers):
        raise TfodError(f"{where}: a keypoint has a number that is not finite; correct it")
    found = np.reshape(numbers, shape)
    xy = found[:, :2]
    shown = found[:, 2].clip(0, 2) if shape[1] == 3 else np.where(xy.any(axis=1), 2, 0)
    return np.column_stack([xy, shown.astype(np.int64)])


# Writing

_DECIMALS = 15  # a double has no more
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What YAML does not print, or has as the end of a line, and JSON leaves as it is."""
_REQUIRED = ("train", "val")
_OTHER_KEYS = (
    *("path", "names", "nc", "channels", "download", "yaml_file"),
    *("kpt_shape", "kpt_names", "flip_idx"),
)
_NO_SUBSET = "subsets that Ultralytics asks for in data.yaml and that are not there"


class Writer(FormatWriter):
    """Classes are numbered in the order of the label map; those that it lacks follow."""

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._places: dict[int, int] = {}
        self._numbered: LabelMap | None = None
        self._subsets: list[str] = []

    def require_name(self, subset: str) -> None:
        super().require_name(subset)
        if subset in _OTHER_KEYS:
            raise TfodError(f"the subset {subset!r} is another key of YOLO's data.yaml; rename it")

    def begin(self, subset: str) -> None:
        self._subsets.append(to_stem(subset))

    def add(self, images: Images, label_map: LabelMap) -> None:
        subset = to_stem(images.subset)
        names = self._write_images(images, subset)
        for item in label_map.items if label_map is not self._numbered else ():
            self._places.setdefault(item.id, len(self._places))
        self._numbered = label_map
        places = np.array([self._places[one] for one in images.classes], np.int64)
        left, top, right, bottom = multiply_as_typed(images.boxes, 1).T
        sides = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
        x, y, w, h = (digits(side, _DECIMALS) for side in sides)
        lines = lines_of(digits(places), b" ", x, b" ", y, b" ", w, b" ", h, b"\n").splitlines(True)
        for row, name in enumerate(names):
            path = label_path(os.path.join(self.folder, self.IMAGES, subset, name))
            start, end = images.splits[row : row + 2]
            try:
                self._write(path, b"".join(lines[start:end]))
            except (FileExistsError, NotADirectoryError):
                raise TfodError(
                    f"image {name!r:.81} cannot be written, since the labels of another one are "
                    "where YOLO has those of it; rename one in the records"
                ) from None

    def finish(self, label_map: LabelMap) -> None:
        names = {one.id: one.class_name for one in label_map.items}
        for item in label_map.items:
            self._places.setdefault(item.id, len(self._places))
        # No path: Ultralytics takes it from its own settings' folder, else from where the file is.
        parts = [f"{_quoted(one)}: {_quoted(f'images/{one}')}\n" for one in self._subsets]
        parts.append("names:\n")
        parts += (f"  {at}: {_quoted(names[one])}\n" for one, at in self._places.items())
        self._write(os.path.join(self.folder, "data.yaml"), "".join(parts).encode())
        self._write_label_map(label_map)
        for one in _REQUIRED:
            if one not in self._subsets:
                self.losses[_NO_SUBSET][one] += 1


def _quoted(text: str) -> str:
    # JSON's escapes of what is beyond U+FFFF are two, which YAML takes for two characters.
    found = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda one: f"\\u{ord(one[0]):04x}", found)

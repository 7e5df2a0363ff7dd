"""Reading of YOLO datasets.

A line has the number of a class, counted from 0, and the normalized centre, width and height of a
box; then keypoints if the YAML has ``kpt_shape``. An outline may replace the box. Sources:
ultralytics/data/utils.py; docs.ultralytics.com/datasets/detect and /pose; CVAT's "YOLO 1.1".
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfod.detection.box_geometry import enclose_points
from tfod.detection.detection import Detection, PngMask
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.detection.images.mask_images import fill_polygon
from tfod.errors import TfodError, excerpt, how_to_install
from tfod.formats.dataset import DEFAULT_SUBSET, Dataset, select_subsets
from tfod.formats.options import ConversionProblems, Options, Refusal
from tfod.formats.reading.documents import open_text, read_lines
from tfod.formats.reading.files import Frame, ImageFiles, Size, is_image_file, list_files, may_read
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, SourceClasses, draw_masks
from tfod.sources.format_recognition import NAMES_FILES, YAML_FILES, SourceFiles, find_yolo_file
from tfod.tfrecord.image_names import safe_relative_path
from tfod.tfrecord.shard_sets.search import ALL_LEVELS, walk_files

_LABELS = "labels"
_DATA = "obj.data"
_IGNORED = ("classes", "names", "backup", "")  # keys of obj.data that are not subsets
_SUBSETS = ("train", "val", "validation", "test", "minival")
_OUTLINES = "outlines, replaced by their enclosing boxes because --masks is not set"
_CONFIDENCES = "confidences after boxes, ignored"
_NAMESAKES = "classes with the name of another one, merged into one class"
_SAME_IMAGES = "subsets with the same images as another one, read once"
_UNLABELLED = "images without a label file, written without objects"
_NO_IMAGE = "label files without an image, left out"
_NO_LABELS = Refusal("datasets without any label file", "add it, with the same case in its name")
_MISSING_FOLDERS = "folders of images that do not exist, skipped"
_NULLS = (None, "", "~", "null", "Null", "NULL")
BOX_NUMBERS = 5
"""The numbers of a box in a line: class, centre, width and height."""
_MIN_OUTLINE_NUMBERS = 7
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class _Layout:
    """The classes and images of a dataset.

    Attributes:
        file: file with the class names.
        names: class names by number.
        subsets: folders or lists of images by subset.
        points: number of keypoints per object and of numbers per keypoint; 0, 0 for none.
        point_names: names of the keypoints; empty if unknown.
    """

    file: str
    names: Mapping[int, str]
    subsets: Mapping[str, list[str]]
    points: tuple[int, int] = (0, 0)
    point_names: Sequence[str] = ()


def read(source: str, options: Options) -> Dataset:
    """Read a dataset with the subsets of the YAML or ``obj.data``, or raise TfodError."""
    file = find_yolo_file(SourceFiles.at(source))
    if options.images is not None:
        raise TfodError(f"--images {options.images}: YOLO's YAML names the folders; remove it")
    if file is None:
        names = ", ".join((*YAML_FILES, *NAMES_FILES))
        raise TfodError(f"{source} contains none of {names}; pass the path of the YAML")
    problems = ConversionProblems(options)
    read_layout = _read_yaml if file.lower().endswith(("yaml", "yml")) else _read_names
    layout = read_layout(file, problems)
    class_names = [name for _, name in sorted(layout.names.items())]
    classes = SourceClasses.find(options, os.path.dirname(file), lambda: class_names, file)
    first: dict[str, int] = {}
    for number, name in sorted(layout.names.items()):
        if first.setdefault(name, number) != number:
            problems.add(_NAMESAKES, f"{file}: {excerpt(name)} is {first[name]} and {number}")
    draw = functools.partial(_draw_masks, problems) if options.masks else None
    builder = DatasetBuilder(classes, options, problems, is_normalized=True, draw=draw)
    subsets = select_subsets(layout.subsets, options.subset, file)
    for path in itertools.chain(*subsets.values()):
        if not may_read(path, options.unpacked_folder):
            raise TfodError(f"{file} names {path}, which is not in the archive; correct it")
    return builder.build_dataset(_build_parts(layout, subsets, builder), subsets, [file])


def _read_yaml(file: str, problems: ConversionProblems) -> _Layout:
    settings = _load_yaml(file)
    names = settings.get("names") if isinstance(settings, dict) else None
    numbered = dict(enumerate(names)) if isinstance(names, list) else names
    pairs = numbered.items() if isinstance(numbered, dict) else ()
    names = {int(key) if str(key).isdecimal() else key: name for key, name in pairs}
    if not names or not all(isinstance(number, int) for number in names):
        raise TfodError(f"{file} has no class names; add for example names: [cat, dog]")
    if not all(name and isinstance(name, str) for name in names.values()):
        raise TfodError(f"{file} has a class without a name; write for example names: [cat, dog]")
    folder = os.path.dirname(file)
    path = settings.get("path") or ""
    roots = [os.path.join(folder, "" if path in _NULLS else str(path)), folder]
    named = {
        str(key): value if isinstance(value, list) else [value]
        for key, value in settings.items()
        if (key in _SUBSETS and value not in _NULLS) or _is_subset(roots, str(key), value)
    }
    for key, paths in named.items():
        if not all(isinstance(path, str) for path in paths):
            raise TfodError(f"{file}: {key} is {excerpt(settings[key])}; write {key}: images/{key}")
    subsets = _find_existing(named, roots, file, problems)
    if not subsets:
        raise TfodError(f"{file} names no folder of images; add train: images/train")
    first: dict[str, str] = {}
    for subset, paths in list(subsets.items()):
        # Ultralytics requires val, which often names the images of train.
        if (other := first.setdefault(str(paths), subset)) != subset:
            problems.add(_SAME_IMAGES, f"{file}: {subset}, as {other}")
            del subsets[subset]
    points = _read_kpt_shape(settings.get("kpt_shape"), file)
    point_names = settings.get("kpt_names")
    if isinstance(point_names, dict):  # the names by class; all classes have the same keypoints
        point_names = next(iter(point_names.values()), None)
    if not isinstance(point_names, list) or len(point_names) != points[0]:
        point_names = ()
    return _Layout(file, names, subsets, points, list(map(str, point_names)))


def _load_yaml(file: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise TfodError(f"{file} needs PyYAML; {how_to_install('validator')}") from None
    try:
        with open_text(file) as stream:
            return yaml.load(stream, yaml.BaseLoader)  # keeps texts as typed: NO, 001, 12:30
    except (yaml.YAMLError, UnicodeError, OSError, RecursionError, ValueError, TypeError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}:" if mark else ""
        fix = "save it as UTF-8" if isinstance(error, UnicodeError) else "correct it"
        raise TfodError(f"{file}{line} cannot be read: {reason}; {fix}") from None


def _find_existing(
    named: Mapping[str, Sequence[str]],
    roots: Sequence[str],
    file: str,
    problems: ConversionProblems,
) -> dict[str, list[str]]:
    """Return the existing paths of each subset, and count those that are missing."""
    subsets: dict[str, list[str]] = {}
    missing = ""
    for subset, paths in named.items():
        for path in paths:
            # For a folder next to the YAML, Roboflow writes ../train/images, and Darknet data/.
            variants = (path, path.removeprefix("../"), path.removeprefix("data/"))
            candidates = (os.path.join(root, variant) for root in roots for variant in variants)
            existing = next(filter(os.path.exists, map(os.path.normpath, candidates)), None)
            if existing is None:
                missing = missing or path
                problems.add(_MISSING_FOLDERS, f"{file}: {path}")
            else:
                subsets.setdefault(subset, []).append(existing)
    if missing and not subsets:
        raise TfodError(f"{file}: {missing} does not exist; correct it or the value of path")
    return subsets


def _read_kpt_shape(value: Any, file: str) -> tuple[int, int]:
    if value in _NULLS:
        return 0, 0
    if isinstance(value, list) and len(value) == 2 and all(str(item).isdecimal() for item in value):
        count, numbers = map(int, value)
        if count > 0 and numbers in (2, 3):
            return count, numbers
    raise TfodError(
        f"{file}: kpt_shape is {excerpt(value)}, expected for example [17, 3]; correct it"
    )


def _is_subset(roots: list[str], key: str, value: object) -> bool:
    """Return whether an unknown key is a subset, as in ``extra: images/extra``."""
    if key == "path" or not isinstance(value, str) or os.path.basename(value) != key:
        return False
    return any(os.path.isdir(os.path.join(root, value)) for root in roots)


def _read_names(file: str, problems: ConversionProblems) -> _Layout:
    folder = os.path.dirname(file)
    names: dict[int, str] = {}
    for number, line in read_lines(file, "\r\n"):
        if number != len(names) + 1:
            raise TfodError(
                f"{file}, line {len(names) + 1}: empty line, which Darknet counts as a class and "
                "CVAT does not; add a name or remove the line"
            )
        names[len(names)] = problems.trim(line, f"{file}, line {number}")
    data = os.path.join(folder, _DATA)
    pairs = [line.partition("=") for _, line in (read_lines(data) if os.path.isfile(data) else ())]
    named = {key.strip(): [value.strip()] for key, _, value in pairs if key.strip() not in _IGNORED}
    subsets = _find_existing(named, [folder], data, problems)
    if os.path.basename(os.path.abspath(folder)) == _LABELS and not subsets:
        images = os.path.normpath(os.path.join(folder, os.pardir, "images"))
        folder = images if os.path.isdir(images) else os.path.dirname(images)
    return _Layout(file, names, subsets or {DEFAULT_SUBSET: [folder or "."]})


def _list_images(paths: list[str], root: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield folder, name and location of each image in folders and lists of images."""
    for path in paths:
        if not os.path.isfile(path):
            for file in walk_files(path, ALL_LEVELS):
                has_extension = os.path.splitext(file)[1].lower() in FORMAT_OF_EXTENSION
                if has_extension or (not file.endswith(".txt") and is_image_file(file)):
                    yield path, os.path.relpath(file, path).replace(os.sep, "/"), path
            continue
        folder = os.path.dirname(path)
        images = ImageFiles([folder], root=root)
        for number, line in read_lines(path):
            match = images.find([line], "", ConversionProblems())
            image = match[0] if match else os.path.join(folder, safe_relative_path(line))
            yield *os.path.split(image), f"{path}, line {number}"


def get_label_path(image: str) -> str:
    """Return the label file of an image in Ultralytics: in ``labels`` for the last ``images``."""
    path = f"{os.sep}{os.path.splitext(image)[0]}.txt"
    return f"{os.sep}{_LABELS}{os.sep}".join(path.rsplit(f"{os.sep}images{os.sep}", 1))[1:]


def _find_label_file(image: str) -> tuple[str, bool]:
    sibling = os.path.splitext(image)[0] + ".txt"
    folder, name = os.path.split(sibling)
    paths = get_label_path(image), sibling, os.path.join(folder, _LABELS, name)
    existing = next(filter(os.path.isfile, paths), None)
    return existing or paths[0], existing is not None


def _find_unused_labels(image_folder: str, used: Container[str]) -> Iterator[str]:
    """Yield the label files that belong to a folder of images, but to none of its images."""
    folders = os.path.dirname(get_label_path(os.path.join(image_folder, "x"))), image_folder
    paths = dict.fromkeys(path for folder in folders for path in list_files(folder, (".txt",)))
    for path in (path for path in paths if path not in used):
        with contextlib.suppress(TfodError, ValueError):  # not a label file
            _, line = next(read_lines(path), (0, ""))
            if not line or len(list(map(float, line.split()))) >= BOX_NUMBERS:
                yield path


def _build_parts(
    layout: _Layout, subsets: Mapping[str, list[str]], builder: DatasetBuilder
) -> Iterator[tuple[str, Iterator[Detection | None]]]:
    """Yield the records of each subset; refuse a dataset in which no image has a label file."""
    first_files: dict[bool, str] = {}  # the first label file that exists, and that is missing
    used = set[str]()
    problems, root = builder.problems, builder.options.unpacked_folder

    def build_detections(paths: list[str]) -> Iterator[Detection | None]:
        finders: dict[str, ImageFiles] = {}
        for folder, name, location in _list_images(paths, root):
            file, exists = _find_label_file(os.path.join(folder, name))
            first_files.setdefault(exists, file)
            used.add(file)
            if not exists:
                problems.add(_UNLABELLED, file)
            objects = [
                _read_object(line.split(), f"{file}, line {number}", layout, builder)
                for number, line in (read_lines(file) if exists else ())
            ]
            images = finders.setdefault(folder, ImageFiles([folder], root=root))
            location = file if location in paths else location
            yield builder.build_detection(
                images,
                [name],
                (None, None),
                objects,
                location,
                point_count=layout.points[0],
                point_names=layout.point_names,
            )

    for subset, paths in subsets.items():
        yield subset, build_detections(paths)
    for folder in filter(os.path.isdir, dict.fromkeys(itertools.chain(*subsets.values()))):
        for path in _find_unused_labels(folder, used):
            used.add(path)
            problems.add(_NO_IMAGE, path)
    if first_files.keys() == {False}:
        problems.add(_NO_LABELS, first_files[False])


def _read_object(
    parts: list[str], location: str, layout: _Layout, builder: DatasetBuilder
) -> AnnotatedObject:
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    count, size = layout.points
    extra = len(numbers) - BOX_NUMBERS
    is_outline = not count and len(numbers) >= _MIN_OUTLINE_NUMBERS and len(numbers) % 2
    if not is_outline and extra not in (0, 1, *((count * size,) if count else ())):
        shape = f"kpt_shape [{count}, {size}]" if count else "four numbers, x y width height"
        raise TfodError(f"{location}: expected a class and {shape}; correct it")
    name = layout.names.get(int(numbers[0])) if numbers[0].is_integer() else None
    if name is None:
        raise TfodError(f"{location}: class {parts[0]} is not named in {layout.file}; add it")
    if is_outline:
        if not builder.options.masks:
            builder.problems.add(_OUTLINES, location)
        return AnnotatedObject(name, enclose_points(numbers[1:]), location, outline=numbers[1:])
    if extra == 1 and count * size != 1:
        builder.problems.add(_CONFIDENCES, location)
    x, y, width, height = numbers[1:BOX_NUMBERS]
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    keypoints = numbers[BOX_NUMBERS:]
    points = _read_keypoints(keypoints, layout.points, location) if extra > 1 else None
    return AnnotatedObject(name, box, location, points=points)


def _read_keypoints(numbers: list[float], shape: tuple[int, int], location: str) -> np.ndarray:
    """Return x, y and visibility of each keypoint; 0, 0 without a visibility is unlabelled."""
    if not all(abs(number) <= _MAX_FLOAT32 for number in numbers):
        raise TfodError(f"{location}: a keypoint has a number that is not finite; correct it")
    rows = np.reshape(numbers, shape)
    xy = rows[:, :2]
    visibility = rows[:, 2].clip(0, 2) if shape[1] == 3 else np.where(xy.any(axis=1), 2, 0)
    return np.column_stack([xy, visibility.astype(np.int64)])


def _draw_masks(
    problems: ConversionProblems, objects: Sequence[AnnotatedObject], frame: Frame
) -> list[PngMask] | None:
    """Draw the mask of each object; return None if no object has an outline."""
    if all(item.outline is None for item in objects):
        return None
    sides = np.tile((frame.size or (0, 0))[::-1], 2)
    in_pixels = [item._replace(box=np.multiply(item.box, sides).tolist()) for item in objects]
    return draw_masks(_fill_outline, problems, in_pixels, frame)


def _fill_outline(outline: Sequence[float], size: Size, location: str) -> np.ndarray:
    return fill_polygon((np.reshape(outline, (-1, 2)) * size[::-1]).ravel().tolist(), size)

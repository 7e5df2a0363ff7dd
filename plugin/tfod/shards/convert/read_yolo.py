"""YOLO's folders: Ultralytics' ``data.yaml``, or Darknet's ``obj.names`` as CVAT writes it.

Source: ``check_det_dataset``, ``img2label_paths`` and ``verify_image_label`` in
ultralytics/data/utils.py; CVAT's "YOLO 1.1".
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfod.convert.dataset import Dataset
from tfod.convert.writers.yolo import label_path
from tfod.detection.boxes import PixelBox, enclosing_points
from tfod.detection.detection import Detection
from tfod.detection.images.image import FORMAT_OF_EXTENSION
from tfod.errors import TfodError, how_to_install
from tfod.shards.convert.formats import ReadOptions
from tfod.shards.convert.read_planned import dataset_of
from tfod.shards.create.image_files import read_image
from tfod.shards.create.label_maps import ChosenLabelMap, made_label_map, named_label_map
from tfod.shards.create.objects import detection_of
from tfod.shards.create.output import Plan, PlannedSet
from tfod.shards.create.problems import Problems

_YAML = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
_NAMES = ("obj.names", "classes.txt")
_DATA = "obj.data"
_SUBSETS = ("train", "val", "validation", "test", "minival")
_NOT_YAML = (ValueError, LookupError, AttributeError)
"""What PyYAML lets out where a value is not the number or the date that it looks like."""
_OUTLINES = "outlines, read as the boxes around them"
_NAMESAKES = "classes of a name that another one has, made one class"
_BOX = 5  # numbers of a line: class, centre, size
_LEAST_OUTLINE = 7


@dataclass(frozen=True)
class _Layout:
    """Names of the classes by their numbers, and what each subset names: folders or lists."""

    file: str
    names: Mapping[int, str]
    subsets: Mapping[str, list[str]]


def find_yolo(path: str) -> str | None:
    """The file of a dataset that names its classes; None where there is none."""
    if os.path.isfile(path):
        return path if path.lower().endswith((".yaml", ".yml", ".names")) else None
    candidates = (os.path.join(path, name) for name in (*_YAML, *_NAMES))
    return next(filter(os.path.isfile, candidates), None)


def read_yolo(path: str, options: ReadOptions) -> Dataset:
    """Read a dataset, its subsets as the YAML or ``obj.data`` has them.

    Raises:
        TfodError: a file is missing or makes no sense, with the line.
    """
    file = find_yolo(path)
    if options.images is not None:
        raise TfodError(
            f"--images {options.images}: YOLO's images are where its YAML says; leave it out"
        )
    if file is None:
        raise TfodError(f"{path} holds none of {', '.join((*_YAML, *_NAMES))}; name the YAML")
    layout = _read_yaml(file) if file.lower().endswith(("yaml", "yml")) else _read_names(file)
    chosen = (
        named_label_map(options.label_map)
        if options.label_map
        else made_label_map((name for _, name in sorted(layout.names.items())), f"made from {file}")
    )
    problems = Problems(options.policy)
    first: dict[str, int] = {}
    for number, name in sorted(layout.names.items()):
        if first.setdefault(name, number) != number:
            problems.add(_NAMESAKES, f"{file}: {name!r} is {first[name]} and {number}")
    make = functools.partial(_make, layout, chosen)
    return dataset_of(
        {
            subset: Plan([PlannedSet("", 1, file, list(_images(places)), make)], chosen, problems)
            for subset, places in layout.subsets.items()
        }
    )


def _read_yaml(file: str) -> _Layout:
    try:
        import yaml
    except ImportError:
        raise TfodError(f"{file} needs PyYAML; {how_to_install('validator')}") from None
    try:
        with open(file, encoding="utf-8-sig") as stream:
            found = yaml.safe_load(stream)
    except (OSError, RecursionError, *_NOT_YAML, yaml.YAMLError) as error:
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise TfodError(f"{file} cannot be read: {reason}") from None
    names = found.get("names") if isinstance(found, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not all(isinstance(one, int) for one in names):
        raise TfodError(f"{file} has no names of classes; write names: [cat, dog]")
    if any(isinstance(one, (list, dict)) for one in names.values()):
        raise TfodError(f"{file} has a list in place of a class's name; write names: [cat, dog]")
    below = os.path.dirname(os.path.abspath(file))
    roots = [os.path.join(below, str(found.get("path") or "")), below]
    subsets = {}
    for key, value in found.items():
        parts = value if isinstance(value, list) else [value]
        is_subset = key in _SUBSETS or _names_its_folder(roots, str(key), value)
        if is_subset and all(isinstance(one, str) for one in parts):
            subsets[str(key)] = [_existing(roots, one, file) for one in parts]
    if not subsets:
        raise TfodError(f"{file} names no folder of images; write train: images/train")
    return _Layout(file, {number: str(name) for number, name in names.items()}, subsets)


def _names_its_folder(roots: list[str], key: str, value: object) -> bool:
    """Whether a key is a subset that Ultralytics does not know, as in ``extra: images/extra``."""
    if key == "path" or not isinstance(value, str) or os.path.basename(value) != key:
        return False
    return any(os.path.isdir(os.path.join(root, value)) for root in roots)


def _existing(roots: list[str], folder: str, file: str) -> str:
    # Roboflow writes ../train/images for what lies beside the YAML.
    names = (folder, folder.removeprefix("../"))
    for path in (os.path.normpath(os.path.join(root, one)) for root in roots for one in names):
        if os.path.exists(path):
            return path
    raise TfodError(f"{file}: {folder} is not there; correct it, or path")


def _read_names(file: str) -> _Layout:
    below = os.path.dirname(file)
    names = _lines(file)
    while names and not names[-1]:
        del names[-1]
    if "" in names:
        raise TfodError(
            f"{file}, line {names.index('') + 1}: empty, which is a class for Darknet and none for "
            "CVAT; write a name, or remove the line"
        )
    data = os.path.join(below, _DATA)
    pairs = [line.partition("=")[::2] for line in _lines(data)] if os.path.isfile(data) else []
    subsets = {
        key.strip(): [_existing([below], value.strip().removeprefix("data/"), data)]
        for key, value in pairs
        if key.strip() not in ("classes", "names", "backup", "")
    }
    return _Layout(file, dict(enumerate(names)), subsets or {"default": [below or "."]})


def _lines(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8-sig") as stream:
            return [line.strip() for line in stream]
    except OSError as error:
        raise TfodError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TfodError(f"{file} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _images(places: list[str]) -> Iterator[tuple[str, str]]:
    """The path of each image, and its name within the folder of its subset."""
    for place in places:
        if os.path.isfile(place):  # a list
            below = os.path.dirname(place)
            for number, line in enumerate(_lines(place), 1):
                if not line:
                    continue
                if "\0" in line:
                    raise TfodError(f"{place}, line {number}: not the path of an image; correct it")
                yield os.path.join(below, line.removeprefix("data/")), os.path.basename(line)
            continue
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                if os.path.splitext(name)[1].lower() in FORMAT_OF_EXTENSION:
                    path = os.path.join(folder, name)
                    yield path, os.path.relpath(path, place).replace(os.sep, "/")


def _label_file(image: str) -> str:
    """Where its objects are: where Ultralytics looks for them, or beside it."""
    moved, beside = label_path(image), os.path.splitext(image)[0] + ".txt"
    return moved if os.path.isfile(moved) or not os.path.isfile(beside) else beside


def _make(
    layout: _Layout, chosen: ChosenLabelMap, item: tuple[str, str], problems: Problems
) -> Detection | None:
    path, name = item
    image = read_image(path, layout.file, problems)
    if image is None:
        return None
    file = _label_file(path)
    lines = enumerate(_lines(file) if os.path.isfile(file) else (), 1)
    places = {f"{file}, line {number}": line.split() for number, line in lines if line}
    objects = [_object(layout, where, parts, problems) for where, parts in places.items()]
    problems.annotated += len(objects)
    return detection_of(
        image,
        name,
        chosen,
        problems,
        where=file,
        names=[one for one, _ in objects],
        boxes=[box for _, box in objects],
        places=list(places),
        is_normalized=True,
    )


def _object(
    layout: _Layout, where: str, parts: list[str], problems: Problems
) -> tuple[str, PixelBox]:
    try:
        numbers = [float(one) for one in parts]
    except ValueError:
        numbers = []
    is_outline = len(numbers) >= _LEAST_OUTLINE and len(numbers) % 2
    if len(numbers) != _BOX and not is_outline:
        raise TfodError(f"{where}: expected a class and four numbers, x y width height; correct it")
    name = layout.names.get(int(numbers[0])) if numbers[0].is_integer() else None
    if name is None:
        raise TfodError(f"{where}: class {parts[0]} is not in the names of {layout.file}; add it")
    if is_outline:
        problems.add(_OUTLINES, where)
        return name, enclosing_points(numbers[1:])
    x, y, width, height = numbers[1:]
    return name, (x - width / 2, y - height / 2, x + width / 2, y + height / 2)

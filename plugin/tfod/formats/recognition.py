"""What lies at a path: how each format is recognized, before anything of it is loaded."""

from __future__ import annotations

import contextlib
import glob
import mmap
import os
import re
from collections.abc import Iterator

from tfod.errors import TfodError
from tfod.formats.reading.documents import MEMBER, begins_with, open_xml
from tfod.formats.reading.files import files_below
from tfod.tfrecord.shard_sets.search import find_all_shards, looks_like_shard
from tfod.tfrecord.storage.urls import is_zip

COCO_FILE = "_annotations.coco.json"  # Roboflow's, in each subset's folder, beside its images
_IMAGES = re.compile(rb'"images"\s*:')
CSV_COLUMNS = ("filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax")
CSV_NEEDED = frozenset(CSV_COLUMNS) - {"width", "height"}
_LONGEST_HEADER = 1 << 16
VOC_ROOT = "annotation"
VOC_ANNOTATIONS = ("Annotations", "annotations", "annots")  # of VOC, raccoon and kangaroo
VOC_YEARS = ("VOC2007", "VOC2012")
VOC_SPLITS = ("train", "valid", "val", "test")  # Roboflow's: XML files and images in each
YOLO_LABELS = "labels"
YOLO_YAML = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
YOLO_NAMES = ("obj.names", "classes.txt", os.path.join(YOLO_LABELS, "classes.txt"))  # labelImg's


def has_shards(path: str) -> bool:
    """Whether a path holds shards."""
    try:
        # Of a file that is named everybody else takes for granted that it is a shard.
        is_other = os.path.isfile(path) and not is_zip(path)
        return looks_like_shard(path) if is_other else bool(find_all_shards(path))
    except TfodError:
        return False


def coco_files(path: str) -> list[str]:
    """The JSONs of instances at a path: it, a folder's, or those in its ``annotations``."""
    if os.path.isfile(path):
        return [path] if path.lower().endswith(".json") and _has_images(path) else []
    roboflow = sorted(glob.glob(os.path.join(glob.escape(path), "*", COCO_FILE)))
    if roboflow:
        return roboflow
    inside = os.path.join(path, "annotations")
    folder = inside if os.path.isdir(inside) else path
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for name in names if name.lower().endswith(".json") and name[0] != "."]
    instances = [name for name in found if name.startswith("instances")]
    others = [name for name in found if not name.startswith(("captions", "panoptic", "stuff"))]
    paths = [os.path.join(folder, name) for name in instances or others]
    return [one for one in paths if os.path.isfile(one) and _has_images(one)]


def _has_images(path: str) -> bool:
    """Whether a JSON may be COCO's; one that names no ``images`` is not."""
    with (
        contextlib.suppress(OSError, ValueError),  # the latter of an empty file
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _IMAGES.search(content) is not None
    return False


def is_voc(path: str) -> bool:
    """Whether a folder is laid out as VOC's, or holds XML files of images."""
    names = os.listdir(path) if os.path.isdir(path) else []
    places = [os.path.join(path, one) for one in names]
    known = {*VOC_ANNOTATIONS, *VOC_YEARS, *VOC_SPLITS}
    below = [one for one in places if os.path.basename(one) in known]
    beside = (one for one in places if one.lower().endswith(".xml") and os.path.isfile(one))
    firsts = (next(some, None) for some in (beside, *map(xml_files, below)))
    for path in filter(None, firsts):
        with open(path, "rb") as file:
            if begins_with(file, VOC_ROOT):
                return True
    return False


def xml_files(folder: str) -> Iterator[str]:
    """The XML files in a folder and below it."""
    return files_below(folder, (".xml",))


def yolo_file(path: str) -> str | None:
    """The file of a YOLO dataset that names its classes; None where there is none."""
    if os.path.isfile(path):
        return path if path.lower().endswith((".yaml", ".yml", ".names")) else None
    candidates = (os.path.join(path, name) for name in (*YOLO_YAML, *YOLO_NAMES))
    return next(filter(os.path.isfile, candidates), None)


def detection_csvs(path: str) -> list[str]:
    """The CSVs at a path: it, or those of a folder that begin as a detection CSV does."""
    return all_csvs(path) if os.path.isfile(path) else list(filter(_has_header, all_csvs(path)))


def all_csvs(path: str) -> list[str]:
    """The CSVs at a path, whatever is in them: it, or those of a folder."""
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    paths = [os.path.join(path, name) for name in names] or [path]
    return [one for one in paths if one.lower().endswith(".csv") and os.path.isfile(one)]


def _has_header(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, encoding="utf-8-sig", errors="replace") as file:
        header = file.readline(_LONGEST_HEADER).lower()
        return all(name in header for name in CSV_NEEDED)
    return False


def is_cvat_xml(path: str) -> bool:
    """Whether a path is CVAT's XML, a zip that holds it, or its folder."""
    try:
        with open_xml(cvat_document(path)) as (stream, _):
            return begins_with(stream, "annotations")
    except TfodError:  # it is none
        return False


def cvat_document(path: str) -> str:
    """The XML file, or the zip, that a path of CVAT's XML is."""
    return os.path.join(path, MEMBER) if os.path.isdir(path) else path

"""CVAT's "CVAT for images 1.1": an XML file with its images, or the zip that CVAT gives."""

from __future__ import annotations

import functools
import os
import pickle
import tempfile
import zipfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from tfod.convert.cvat_xml.detections import DetectionBuilder
from tfod.convert.cvat_xml.reader import (
    CvatImage,
    CvatMeta,
    CvatTrack,
    FolderImages,
    ZipImages,
    read_cvat_xml,
)
from tfod.convert.cvat_xml.shapes import BOX
from tfod.convert.dataset import Dataset
from tfod.convert.documents import MEMBER, is_zip, root_tag
from tfod.detection.detection import Detection
from tfod.errors import TfodError
from tfod.shards.convert.formats import ReadOptions
from tfod.shards.convert.read_planned import dataset_of
from tfod.shards.create.image_files import MISSING
from tfod.shards.create.label_maps import made_label_map, named_label_map
from tfod.shards.create.output import Plan, PlannedSet
from tfod.shards.create.problems import OddBoxes, Problems

_DEFAULT = "default"


def is_cvat_xml(path: str) -> bool:
    """Whether a path is CVAT's XML, a zip that holds it, or its folder."""
    file = _document(path)
    try:
        return os.path.isfile(file) and root_tag(file) == "annotations"
    except TfodError:
        return False


def read_cvat(path: str, options: ReadOptions) -> Dataset:
    """Read the frames of a document, each subset of a project for itself.

    Raises:
        TfodError: it is something else, or a frame has no image.
    """
    file = _document(path)
    frames = tempfile.TemporaryFile()  # as long as the dataset
    meta, subsets, has_areas = _survey(file, frames)
    chosen = (
        named_label_map(options.label_map)
        if options.label_map
        else made_label_map(meta.labels, f"made from {file}")
    )
    clip = options.policy.odd_boxes is not OddBoxes.KEEP
    builder = DetectionBuilder(chosen.label_map, meta.input_types, has_areas, clip)
    problems = Problems(options.policy)
    if options.images is None and is_zip(file):
        images: FolderImages | ZipImages = ZipImages(zipfile.ZipFile(file))
    else:
        beside = os.path.join(os.path.dirname(file), "images")
        folder = beside if os.path.isdir(beside) else os.path.dirname(file)
        images = FolderImages(options.images or folder)
    make = functools.partial(_make, builder, images, file)
    plans = {
        subset: Plan([PlannedSet("", 1, file, _read_back(frames, starts), make)], chosen, problems)
        for subset, starts in subsets.items()
    }
    found = dataset_of(plans)

    def finish() -> list[str]:
        return [*found.finish(), *builder.left_out.sentences(), *builder.changed.sentences()]

    return replace(found, finish=finish)


def _read_back(frames: BinaryIO, starts: Iterable[int]) -> Iterator[CvatImage]:
    for start in starts:
        frames.seek(start)
        yield pickle.load(frames)


def _document(path: str) -> str:
    return os.path.join(path, MEMBER) if os.path.isdir(path) else path


def _survey(file: str, frames: BinaryIO) -> tuple[CvatMeta, dict[str, array[int]], bool]:
    """The head of a document, its subsets, and whether it has shapes other than boxes.

    A document has the frames of its subsets in any order, and is read once: they go into a
    temporary file. Of each subset it is said where its frames start there.
    """
    meta: CvatMeta | None = None
    subsets: dict[str, array[int]] = {}
    has_areas = False
    for part in read_cvat_xml(file):
        if isinstance(part, CvatMeta):
            meta = part
        elif isinstance(part, CvatTrack):
            raise TfodError(f"{file} has tracks; export the task as CVAT for images 1.1")
        elif meta is not None:
            subset = part.subset or meta.subset or _DEFAULT
            subsets.setdefault(subset, array("q")).append(frames.tell())
            pickle.dump(part, frames, pickle.HIGHEST_PROTOCOL)
            has_areas = has_areas or any(one.kind != BOX for one in part.shapes)
    if meta is None or not subsets:
        raise TfodError(f"{file} names no images; export the task as CVAT for images 1.1")
    return meta, subsets, has_areas


def _make(
    builder: DetectionBuilder,
    images: FolderImages | ZipImages,
    file: str,
    frame: CvatImage,
    problems: Problems,
) -> Detection | None:
    encoded = images.read(frame)
    if encoded is None:
        problems.add_missing(MISSING, f"{file}: {frame.name}")
        return None
    problems.annotated += len(frame.shapes)
    return builder.build(frame, builder.place(frame), encoded)

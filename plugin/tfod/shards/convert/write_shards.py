"""A dataset of any format as shards with the OD API's keys, and their label map."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from tfod.convert.dataset import Batch, Classes, Converted, Dataset, Images, size_of
from tfod.detection.detection import Detection
from tfod.detection.images.image import format_name
from tfod.errors import TfodError
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.output import Options, Plan, PlannedSet, verify, write_sets
from tfod.shards.create.problems import Problems
from tfod.tfrecord.shard_sets.names import SHARD_EXTENSIONS, parse_shard_name, stem_of_subset


def write_shards(
    read: Callable[[], Dataset], target: str, num_shards: int, leave_out_images: bool
) -> Converted:
    """Write shards, each subset as ``<subset>.tfrecord``, or the only one under its own name.

    ``read`` begins to read the dataset; twice where only its objects name the classes. ``target``
    is a folder, or a path that ends as a shard's.

    Raises:
        TfodError: as :func:`~tfod.shards.create.output.write_sets`, or the target is one shard and
            the dataset has several subsets.
    """
    dataset = read()
    classes = Classes(dataset.label_maps)
    if not dataset.label_maps:
        for batches in dataset.subsets.values():
            for batch in batches:
                Images.of(batch, classes)
        dataset = read()
    chosen = ChosenLabelMap(classes.label_map, "that of the source")
    is_shard = parse_shard_name(target) is not None
    if is_shard and len(dataset.subsets) > 1:
        names = ", ".join(dataset.subsets)
        raise TfodError(f"{target} is one shard, and there are the subsets {names}; name a folder")
    make = functools.partial(_make, leave_out_images)
    planned = [
        PlannedSet(
            target if is_shard else os.path.join(target, stem_of_subset(subset) + _ENDING),
            num_shards,
            subset,
            _rows(batches, classes),
            make,
        )
        for subset, batches in dataset.subsets.items()
    ]
    notes: list[str] = []
    planned[-1] = replace(planned[-1], items=_finished(planned[-1].items, dataset, notes))
    checked = Options(verify=None if leave_out_images else verify)
    created = write_sets(Plan(planned, chosen, Problems(), checked), sources=dataset.sources)
    pairs = list(zip(dataset.subsets, created.sets, strict=True))
    return Converted(
        {subset: one.images for subset, one in pairs},
        {subset: one.objects for subset, one in pairs},
        (*notes, *created.notes),
    )


_ENDING = SHARD_EXTENSIONS[0]


def _finished(items: Iterable[Any], dataset: Dataset, notes: list[str]) -> Iterator[Any]:
    """The items of the last subset; then all is read."""
    yield from items
    notes.extend(dataset.finish())


def _rows(batches: Iterable[Batch], classes: Classes) -> Iterator[Detection]:
    """Each image with its classes as the one label map has them."""
    for batch in batches:
        images = Images.of(batch, classes)
        names = {item.id: item.class_name for item in classes.label_map.items}
        for row, one in enumerate(images.detections):
            ids = images.classes[images.splits[row] : images.splits[row + 1]]
            texts = [names[each] for each in ids]
            yield replace(one, class_text=texts, class_label=ids)


def _make(leave_out_images: bool, one: Detection, problems: Problems) -> Detection:
    """What the source has not said of an image, as its file has it."""
    encoded = bytes(one.encoded or b"") if not leave_out_images else b""
    height, width = size_of(one)
    problems.annotated += len(one.boxes)
    return replace(
        one,
        height=height or None,
        width=width or None,
        format=format_name(encoded, one.filename or "") or one.format,
        sha256=hashlib.sha256(encoded).hexdigest() if encoded else one.sha256,
        encoded=encoded,
    )

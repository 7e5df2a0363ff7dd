"""COCO to shards, as the OD API's create_coco_tf_record.py makes them.

Boxes are x, y, width and height divided by the size that the JSON gives. Those that the script
leaves out without a word, of no area or past the right or the lower edge, are checked by the policy
of all formats. Other than the script this takes size and format from the image's own header, writes
``class/label`` and the keypoints' names from the file, and a label map with the categories' ids,
gaps and all.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import numpy as np

from tfod.convert.coco_masks import draw_segmentation
from tfod.detection.detection import Detection, PngMask
from tfod.detection.images.image import keypoints_turned_back, mask_turned_back
from tfod.detection.images.masks import encode_mask_png, fill_box
from tfod.errors import TfodError
from tfod.shards.create.coco.classes import choose_classes
from tfod.shards.create.coco.reader import (
    CocoImage,
    CocoObject,
    CocoReader,
    CocoSet,
    place_of,
)
from tfod.shards.create.image_files import Frame, by, frame_of, read_image
from tfod.shards.create.objects import normalized
from tfod.shards.create.output import Options, Plan, PlannedSet, creates
from tfod.shards.create.problems import Problems


def plan_coco(
    sets: Sequence[CocoSet],
    output_dir: str,
    options: Options | None = None,
    *,
    include_masks: bool | None = False,
) -> Plan:
    """Read the JSONs of sets, which are to be written into a folder, with one label map.

    The annotations of all sets are held in memory (about 1.5 GB for COCO 2017, 2 GB with
    outlines), images are not. Without a label map the classes keep the ids of their categories.
    With ``include_masks`` None there are masks if any annotation has an outline.

    Raises:
        TfodError: something is missing, odd or there already.
    """
    options = options or Options()
    problems = Problems(options.policy)
    outlines = include_masks is not False
    readers = [CocoReader(one, outlines, problems) for one in sets]
    if include_masks is None:
        include_masks = any(one.has_outlines for one in readers)
    chosen = choose_classes([one.categories for one in readers], options.label_map, problems)
    # Annotations are checked before the first image is read, which takes the time.
    items = [list(one.items(chosen)) for one in readers]
    problems.raise_refusals()
    planned = [
        PlannedSet(
            os.path.join(output_dir, one.file_name),
            options.num_shards or one.num_shards,
            one.annotations_file,
            some,
            functools.partial(_make, one, include_masks),
            source_ids=[item.image_id for item in some],
        )
        for one, some in zip(sets, items, strict=True)
    ]
    return Plan(planned, chosen, problems, options)


create_coco = creates(plan_coco)
"""Write what it plans."""


def _make(
    source: CocoSet, include_masks: bool, item: CocoImage, problems: Problems
) -> Detection | None:
    found = item.objects
    path = os.path.join(source.image_dir, item.filename)
    image = read_image(path, path, problems)
    if image is None:
        return None
    corners = [one.corners for one in found]
    where = f"{path}: {item.filename}"
    frame = frame_of(image, item.annotated, corners, where, problems)
    if frame.size != frame.own:
        where = f"{where} is {by(frame.size)}, the file {by(frame.own)}"
        if include_masks:
            raise TfodError(f"{where}; masks would not fit it, correct the size")
        problems.add(
            "images of another size than the JSON says; their boxes are divided by the JSON's",
            where,
        )
    masks = [_mask(source.annotations_file, one, frame, problems) for one in found if include_masks]
    # None where an object has no attribute of that name.
    names = dict.fromkeys(name for one in found for name in one.attributes)
    return Detection(
        **image.fields(item.filename, item.image_id),
        boxes=normalized(np.array(corners).reshape(-1, 4), frame.size, frame.orientation),
        class_text=[one.name for one in found],
        class_label=[one.label for one in found],
        masks=masks if include_masks else None,
        keypoints=keypoints_turned_back(item.keypoints, frame.orientation),
        attributes={
            **{name: [one.attributes.get(name) for one in found] for name in names},
            "is_crowd": [one.is_crowd for one in found],
            "area": [one.area for one in found],
        },
    )


def _mask(path: str, one: CocoObject, frame: Frame, problems: Problems) -> PngMask:
    where = place_of(path, one.id)
    mask = draw_segmentation(one.segmentation, frame.size, where)
    if mask is None:
        problems.add("annotations without segmentation, their mask is their box", where)
        mask = fill_box(one.corners, frame.size)
    return PngMask(encode_mask_png(mask_turned_back(mask, frame.orientation)))

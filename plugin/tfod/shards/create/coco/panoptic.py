"""COCO's panoptic segments as masks, in the numbers of Model Garden's create_coco_tf_record.py.

The PNG of an image holds a segment's id in each pixel (red + 256 green + 65536 blue), the JSON the
category of each segment. Written are, as PNGs of one channel, the semantic mask (1 for every thing,
the category less 90 for stuff) and, for the evaluator, the categories and the numbers of instances
(from 1, in the order of the segments; 0 for stuff). What no segment has is 0.

The script's arithmetic stops at NumPy 2 (``g * 256`` of eight bits) and with an older one writes a
number beyond eight bits as another one. Here that is an error, and so is stuff whose number would
be that of things or of nothing. Sources: official/vision/data/create_coco_tf_record.py,
``generate_coco_panoptics_masks``; cocodataset.org/#format-data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfod.convert.coco import quoted, read_coco, sound_coco, whole_number
from tfod.detection.detection import PngMask
from tfod.detection.images.image import mask_turned_back
from tfod.detection.images.masks import decode_pixels, encode_gray_png
from tfod.errors import TfodError
from tfod.shards.create.image_files import Frame, by
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.problems import Problems
from tfod.tfrecord.image_names import safe_relative_path

_THING = 1  # of all things in the semantic mask
_STUFF = 90  # what categories of stuff are more than their classes in the semantic mask
_LARGEST = 255
_VOID = 0  # of pixels of no segment in a PNG


@dataclass(frozen=True)
class PanopticFiles:
    """The JSON, ``panoptic_train2017.json``, the folder of its PNGs, and what of them is written.

    Categories and instances only ``with_instances``, beside the semantic mask.
    """

    annotations_file: str
    masks_dir: str
    with_instances: bool = False
    skip_crowd: bool = False


class _Numbers(NamedTuple):
    """What the masks say of a segment, by their names."""

    semantic: int
    panoptic_category: int
    panoptic_instance: int


@dataclass(frozen=True)
class Segments:
    """The PNG of an image, and the numbers of its segments by id, None for one left out."""

    path: str
    numbers: Mapping[int, _Numbers | None]
    with_instances: bool


@dataclass(frozen=True)
class Panoptic:
    """What the JSON says: names of things by id, and segments by the image's id."""

    path: str
    things: Mapping[int, str]
    images: dict[Any, Segments]

    def require_ids_of(self, chosen: ChosenLabelMap) -> None:
        """Raise TfodError where things have other ids than the same classes of boxes."""
        for number, name in self.things.items():
            item = chosen.label_map.find(name)
            if item is not None and item.id != number:
                raise TfodError(
                    f"{self.path}: category {number} ({name!r}) is {item.id} in the label map "
                    f"{chosen.name}; masks keep the ids of their categories, give boxes the same"
                )


def read_panoptic(files: PanopticFiles) -> Panoptic:
    """Read the JSON.

    Raises:
        TfodError: it cannot be read, or holds what the masks cannot.
    """
    path = files.annotations_file
    found = read_coco(path, ("file_name", "segments_info"), ("images",))
    names: dict[int, str] = {}
    things: dict[int, str] = {}
    for place, one in enumerate(found.categories, 1):
        with sound_coco(f"{path}, category {place} in the list"):
            number = whole_number(one, "id")
            names[number] = str(one["name"])
            if whole_number(one, "isthing"):
                things[number] = names[number]
    images: dict[Any, Segments] = {}
    for image_id, members in found.annotations.items():
        with sound_coco(f"{path}, image {quoted(image_id)}"):
            for one in members:
                if image_id in images:
                    raise ValueError("another annotation is of this image, too")
                numbers: dict[int, _Numbers | None] = {}
                for place, segment in enumerate(one["segments_info"], 1):
                    category = whole_number(segment, "category_id")
                    if category not in names:
                        raise ValueError(f"there is no category {category}")
                    number = whole_number(segment, "id")
                    if number in numbers:
                        raise ValueError(f"two segments have the id {number}")
                    is_left_out = files.skip_crowd and segment.get("iscrowd")
                    drawn = None if is_left_out else _numbers(category, category in things, place)
                    numbers[number] = drawn
                mask = os.path.join(files.masks_dir, safe_relative_path(str(one["file_name"])))
                images[image_id] = Segments(mask, numbers, files.with_instances)
    return Panoptic(path, things, images)


def _numbers(category: int, is_thing: bool, place: int) -> _Numbers:
    semantic = _THING if is_thing else category - _STUFF
    if not is_thing and semantic <= _THING:
        raise ValueError(
            f"category {category} is stuff, which Model Garden numbers from {_STUFF + _THING + 1}"
        )
    found = _Numbers(semantic, category, place if is_thing else 0)
    if not 0 < category <= _LARGEST or max(found) > _LARGEST:
        raise ValueError(f"segment {place} of category {category}: masks hold 1 to {_LARGEST}")
    return found


def draw_segments(segments: Segments, frame: Frame, problems: Problems) -> dict[str, PngMask]:
    """The masks of an image, by the names of :data:`tfod.detection.keys.IMAGE_MASKS`.

    Segments that only the PNG has are counted.

    Raises:
        TfodError: the PNG cannot be read, or is not of the image's size.
    """
    ids = _segment_ids(segments.path)
    if ids.shape != frame.size:
        size = by((ids.shape[0], ids.shape[1]))
        raise TfodError(f"{segments.path} is {size}, its image {by(frame.size)}; export it again")
    there, places = np.unique(ids, return_inverse=True)
    for number in sorted(set(there.tolist()).difference(segments.numbers, (_VOID,))):
        problems.add(
            "segments of a PNG that the JSON does not have, left out of the masks",
            f"{segments.path}: {number}",
        )
    nothing = _Numbers(0, 0, 0)
    known = [segments.numbers.get(one) or nothing for one in there.tolist()]
    numbers = np.array(known, np.uint8)
    drawn = numbers[places.reshape(ids.shape)]
    wanted = _Numbers._fields if segments.with_instances else _Numbers._fields[:1]
    return {
        name: PngMask(encode_gray_png(mask_turned_back(drawn[..., place], frame.orientation)))
        for place, name in enumerate(wanted)
    }


def _segment_ids(path: str) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            pixels = decode_pixels(file.read()).astype(np.int64)
    except OSError as error:
        raise TfodError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise TfodError(f"{path} is not a PNG of segments: {error}") from None
    if pixels.ndim != 3 or pixels.shape[2] < 3:
        raise TfodError(f"{path} is not a PNG of segments: it has no three channels")
    ids: np.ndarray = pixels[..., :3] @ np.array((1, 1 << 8, 1 << 16))
    return ids

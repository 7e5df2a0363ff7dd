"""Feature keys of the TF Object Detection API.

Source: data_decoders/tf_example_decoder.py, core/standard_fields.py and the writers in
dataset_tools/ of tensorflow/models (research/object_detection), and official/vision's decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tfod.example.wire import Kind

ENCODED: Final = "image/encoded"
FORMAT: Final = "image/format"
FILENAME: Final = "image/filename"
SOURCE_ID: Final = "image/source_id"
SHA256: Final = "image/key/sha256"
HEIGHT: Final = "image/height"
WIDTH: Final = "image/width"

XMIN: Final = "image/object/bbox/xmin"
YMIN: Final = "image/object/bbox/ymin"
XMAX: Final = "image/object/bbox/xmax"
YMAX: Final = "image/object/bbox/ymax"
BOX: Final = (XMIN, YMIN, XMAX, YMAX)
CLASS_TEXT: Final = "image/object/class/text"
CLASS_LABEL: Final = "image/object/class/label"
MASK: Final = "image/object/mask"
AREA: Final = "image/object/area"

KEYPOINT_X: Final = "image/object/keypoint/x"
KEYPOINT_Y: Final = "image/object/keypoint/y"
KEYPOINT_VISIBILITY: Final = "image/object/keypoint/visibility"
KEYPOINT_NUM: Final = "image/object/keypoint/num"
KEYPOINT_TEXT: Final = "image/object/keypoint/text"

CAPTION: Final = "image/caption"
"""Texts about the whole image. Source: official/vision/data/create_coco_tf_record.py."""

IMAGE_CLASS_TEXT: Final = "image/class/text"
IMAGE_CLASS_LABEL: Final = "image/class/label"
IMAGE_CLASS_CONFIDENCE: Final = "image/class/confidence"

IMAGE_MASKS: Final = {
    "semantic": "image/segmentation/class/encoded",
    "panoptic_category": "image/panoptic/category_mask",
    "panoptic_instance": "image/panoptic/instance_mask",
}
"""Masks of the whole image: one-channel PNGs whose pixels are numbers.

Semantic: class numbers, unrelated to the label map. Panoptic: class ids and instance numbers; 0 is
unlabelled. Source: official/projects/panoptic/dataloaders/panoptic_maskrcnn_input.py.
"""

OBJECT_PREFIX: Final = "image/object/"
"""The prefix of all keys of the OD API with values for each object."""
ATTRIBUTE_PREFIX: Final = "image/object/attribute/"
"""Model Garden's prefix for attributes without a key in the format, one value per object."""

EXTRA_ATTRIBUTES: Final = "tfod/attributes"
"""Key of tfod: a JSON text with all that other keys cannot express. Readers may ignore it.

``{"image": {name: value}, "objects": {number: {name: value}}, "absent": {number: [name]}, "names":
{name: other name}, "drawn": {number: {"box": [left, top, right, bottom], "rotation": degrees,
"z_order": layer, "group": number}}, "labels": {number: {name: value}}}``: ``drawn`` contains
:class:`~tfod.detection.detection.ShapeDetails`, ``labels`` the attributes of image classes.
"""


@dataclass(frozen=True)
class ObjectAttribute:
    """A key with one value per object, and the attribute that it stores.

    Attributes:
        name: name of the attribute in Datumaro and CVAT.
        kinds: kinds of list that writers use; the first is the one of TensorFlow's decoder.
        default: value of an object that lacks the attribute if other objects have it.
        other_names: further names in Datumaro, with the same key; an import restores the name.
    """

    name: str
    key: str
    kinds: tuple[Kind, ...]
    default: int | float | str
    other_names: tuple[str, ...] = ()


_FLAG = (Kind.INT64,)
_NUMBER = (Kind.FLOAT,)
OBJECT_ATTRIBUTES: Final = (
    ObjectAttribute("difficult", "image/object/difficult", _FLAG, 0),
    # create_kitti_tf_record writes the truncated fraction as a float.
    ObjectAttribute("truncated", "image/object/truncated", (Kind.INT64, Kind.FLOAT), 0),
    ObjectAttribute("occluded", "image/object/occluded", _FLAG, 0),
    ObjectAttribute("is_crowd", "image/object/is_crowd", _FLAG, 0),
    # Datumaro's importers of Open Images and Pascal VOC use the other names.
    ObjectAttribute("group_of", "image/object/group_of", _FLAG, 0, ("is_group_of",)),
    ObjectAttribute("depiction", "image/object/depiction", _FLAG, 0, ("is_depiction",)),
    ObjectAttribute("view", "image/object/view", (Kind.BYTES,), "", ("pose",)),
    ObjectAttribute("area", AREA, _NUMBER, 0.0),
    ObjectAttribute("weight", "image/object/weight", _NUMBER, 1.0),
    ObjectAttribute("mask_weight", "image/object/mask/weight", _NUMBER, 1.0),
    ObjectAttribute("track_id", "image/object/track/label", _FLAG, -1),
    ObjectAttribute("confidence", "image/object/bbox/confidence", _NUMBER, 1.0),
    ObjectAttribute("alpha", "image/object/alpha", _NUMBER, 0.0),
    *(
        ObjectAttribute(f"3d_bbox_{part}", f"image/object/3d_bbox/{part}", _NUMBER, 0.0)
        for part in ("height", "width", "length", "x", "y", "z", "rot_y")
    ),
)
FLAGS: Final = frozenset(
    name
    for attribute in OBJECT_ATTRIBUTES
    if attribute.kinds[0] is Kind.INT64 and attribute.default == 0
    for name in (attribute.name, *attribute.other_names)
)
"""Attributes that are 0 or 1 in a shard and booleans in Datumaro and CVAT."""

IMAGE_ATTRIBUTES: Final = {
    "neg_category_ids": "image/neg_category_ids",
    "not_exhaustive_category_ids": "image/not_exhaustive_category_ids",
}
"""LVIS: lists of class ids of the whole image, by attribute name."""

KNOWN_KEYS: Final = frozenset(
    [ENCODED, FORMAT, FILENAME, SOURCE_ID, SHA256, HEIGHT, WIDTH]
    + [*BOX, CLASS_TEXT, CLASS_LABEL, MASK]
    + [KEYPOINT_X, KEYPOINT_Y, KEYPOINT_VISIBILITY, KEYPOINT_NUM, KEYPOINT_TEXT]
    + [IMAGE_CLASS_TEXT, IMAGE_CLASS_LABEL, IMAGE_CLASS_CONFIDENCE, CAPTION]
    + [attribute.key for attribute in OBJECT_ATTRIBUTES]
    + [*IMAGE_ATTRIBUTES.values(), *IMAGE_MASKS.values(), EXTRA_ATTRIBUTES]
)

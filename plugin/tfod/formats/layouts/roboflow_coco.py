"""COCO as exported by Roboflow: ``train/ valid/ test/``, each with a JSON next to its images.

RF-DETR reads this layout: build_roboflow_from_coco in rfdetr/datasets/coco.py.
"""

from __future__ import annotations

import os
from typing import Any

from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.formats import coco
from tfod.formats.layouts.roboflow import get_subset_folder
from tfod.sources.format_recognition import COCO_ROBOFLOW_FILE

_REQUIRED = ("train", "valid")
_MISSING_SUBSETS = "subsets that RF-DETR requires and that do not exist"


class Writer(coco.Writer):
    """Writes a folder per subset, with the name that Roboflow gives it."""

    IMAGES = ""

    def finish(self, label_map: LabelMap) -> None:
        super().finish(label_map)
        for folder in {*_REQUIRED}.difference(map(self._get_image_folder, self._json_files)):
            self.losses[_MISSING_SUBSETS][folder] += 1

    def _get_json_name(self, subset: str) -> str:
        return os.path.join(get_subset_folder(subset, self._json_files), COCO_ROBOFLOW_FILE)

    def _get_image_folder(self, subset: str) -> str:
        return get_subset_folder(subset)

    def _make_category(self, item: LabelMapItem) -> dict[str, Any]:
        # RF-DETR 1.4 skips classes without a supercategory, and 1.11 those that are the
        # supercategory of another class.
        return {**super()._make_category(item), "supercategory": item.class_name}

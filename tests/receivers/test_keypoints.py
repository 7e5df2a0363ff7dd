"""COCO's keypoints in shards, as the OD API's decoder reads them: TF-Vision's reads none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tfod.cli.main import main

from tests.receivers.decoders import od_api

HEIGHT, WIDTH = 40, 80
CATEGORIES = [
    {"id": 1, "name": "person", "keypoints": ["nose", "eye", "ear"]},
    {"id": 3, "name": "hand", "keypoints": ["thumb", "palm"]},
    {"id": 7, "name": "dog"},
]
NOWHERE = (np.nan, np.nan)


def write_coco(folder: Path) -> Path:
    """An image with objects of three classes, two of them with points; the options naming it."""
    Image.new("RGB", (WIDTH, HEIGHT)).save(folder / "a.png")
    points = {
        1: [8, 4, 2, 16, 20, 1, 0, 0, 0],
        3: [40, 10, 1, 79, 39, 2],
        7: None,
        0: None,  # a person without any
    }
    annotations: list[dict[str, Any]] = []
    for category, values in points.items():
        one = {"id": len(annotations), "image_id": 5, "category_id": category or 1}
        one |= {"bbox": [2, 3, 30, 20], "area": 600, "iscrowd": 0}
        annotations.append(one | ({"keypoints": values} if values else {}))
    image = {"id": 5, "file_name": "a.png", "height": HEIGHT, "width": WIDTH}
    found = {"images": [image], "annotations": annotations, "categories": CATEGORIES}
    (folder / "a.json").write_text(json.dumps(found))
    return folder / "a.json"


@pytest.mark.parametrize("by_name", [False, True])
def test_the_od_api_reads_them(tmp_path: Path, by_name: bool) -> None:
    """Points of one class behind those of another; visibility 1 and 2 are labelled, 0 is not."""
    od_api()  # which adapts TF-Slim
    from object_detection.core.standard_fields import InputDataFields as fields
    from object_detection.data_decoders.tf_example_decoder import TfExampleDecoder

    out = tmp_path / "out"
    assert main(["convert", str(write_coco(tmp_path)), str(out)]) == 0

    decoder = TfExampleDecoder(
        num_keypoints=5,
        label_map_proto_file=str(out / "label_map.pbtxt"),
        use_keypoint_label_map=by_name,
    )
    (record,) = tf.data.TFRecordDataset(str(out / "a.tfrecord"))
    read = decoder.decode(record)
    labelled = [
        [True, True, False, False, False],
        [False, False, False, True, True],
        [False] * 5,
        [False] * 5,
    ]
    visible = read[fields.groundtruth_keypoint_visibilities].numpy()
    np.testing.assert_array_equal(visible, labelled)
    y_x = [
        [(4 / 40, 8 / 80), (20 / 40, 16 / 80), NOWHERE, NOWHERE, NOWHERE],
        [NOWHERE, NOWHERE, NOWHERE, (10 / 40, 40 / 80), (39 / 40, 79 / 80)],
        [NOWHERE] * 5,
        [NOWHERE] * 5,
    ]
    np.testing.assert_array_equal(read[fields.groundtruth_keypoints].numpy(), np.float32(y_x))
    assert read[fields.groundtruth_classes].numpy().tolist() == [1, 3, 7, 1]

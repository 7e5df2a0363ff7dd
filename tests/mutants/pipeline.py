"""Mutants of a trainer's configuration: CFG. Each is a folder that the trainer is started in."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.mutants import registry
from tests.mutants.registry import Inside, Mutant
from tests.mutants.sound import (
    CAT_BOX,
    DOG_BOX,
    LABEL_MAP,
    TF,
    features,
    jpeg,
    png,
    shard,
    with_boxes,
)
from tests.records import encode

OPTIONS = {**TF, "pipeline_config": Inside("pipeline.config")}
fail = partial(registry.fail, options=OPTIONS)
near = partial(registry.near, options=OPTIONS)
MASKS = "load_instance_masks: true"


def pipeline(
    classes: int = 2,
    *,
    side: int = 40,
    batch: int = 1,
    both: str = "",
    train: str = "train.tfrecord",
    evaluation: str = "",
    maps: str = "label_map.pbtxt",
) -> bytes:
    """A pipeline.config; ``both`` and ``evaluation`` are fields of the input readers."""
    reader = f'label_map_path: "{maps}"\n  {both}\n  tf_record_input_reader {{ input_path:'
    return f"""model {{
  ssd {{
    num_classes: {classes}
    image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
    feature_extractor {{ type: 'ssd_mobilenet_v2_keras' }}
  }}
}}
train_config: {{ batch_size: {batch} }}
train_input_reader: {{ {reader} "{train}" }} }}
eval_input_reader {{ {evaluation} {reader} "val.tfrecord" }} }}
""".encode()


def one(name: str, **changes: Any) -> bytes:
    """A record whose source id is a number, which TF-Vision needs."""
    number = {"train.jpg": "1", "val.png": "2"}[name]
    changes.setdefault("encoded", jpeg() if name.endswith("jpg") else png())
    return encode(features(name, **{"source_id": number, **changes}))


def files(config: bytes, train: bytes | None = None, val: bytes | None = None, **more: Any) -> Any:
    """The folder: a shard of one record for each reader, a label map and the configuration."""
    return {
        "train.tfrecord": shard(train or one("train.jpg")),
        "val.tfrecord": shard(val or one("val.png")),
        "label_map.pbtxt": LABEL_MAP,
        "pipeline.config": config,
        **more,
    }


def masks(name: str, *encoded: Any) -> bytes:
    """A record with these masks."""
    return one(name, **{"image/object/mask": list(encoded)})


def points(name: str, number: int) -> bytes:
    """A record of two objects with ``number`` keypoints each."""
    values = [0.5] * 2 * number
    sides = {f"image/object/keypoint/{side}": values for side in "xy"}
    visible = {"image/object/keypoint/visibility": [2] * 2 * number}
    return one(name, **(sides | visible if number else {}))


def mutants() -> list[Mutant]:
    mask = png()
    both = masks("train.jpg", mask, mask), masks("val.png", mask, mask)
    half = masks("train.jpg", mask, b""), both[1]
    with_masks = pipeline(both=f"{MASKS} mask_type: PNG_MASKS")
    with_points, three = pipeline(both="num_keypoints: 3"), points("val.png", 3)
    gap = LABEL_MAP.replace(b"\n", b" ") + b"item { id: 9 name: 'cow' }"
    cats = with_boxes([CAT_BOX], name="train.jpg", source_id="1")
    dogs = with_boxes([DOG_BOX], ["dog"], [2], name="val.png", encoded=png(), source_id="2")
    return [
        fail("CFG002-of-the-template", files(pipeline(maps="PATH_TO_BE_CONFIGURED/label_map.txt"))),
        fail("CFG002-empty", files(pipeline(train=""))),
        fail("CFG002-backslash", files(pipeline(train="data\\train.tfrecord"))),
        fail("CFG002-label-map", files(pipeline(maps="labels.pbtxt"))),
        fail("CFG002-folder", {**files(pipeline(train="t")), "t": {"a.txt": b""}}),
        near("CFG002-pattern", files(pipeline(train="trai?.tfreco[r]d*"))),
        fail("CFG003-one-of-two", files(pipeline(1))),
        near("CFG003-two-of-two", files(pipeline())),
        near("CFG003-ids-with-a-gap", {**files(pipeline(9)), "label_map.pbtxt": gap}, "LAB013"),
        fail("CFG005-no-masks", files(with_masks)),
        fail("CFG005-of-one-object", files(with_masks, *half), "BOX023"),
        fail("CFG005-png-read-as-numbers", files(pipeline(both=MASKS), *both), "BOX023"),
        near("CFG005-png", files(with_masks, *both), "BOX023"),
        near("CFG005-not-asked-for", files(pipeline(both="load_instance_masks: false"))),
        fail("CFG006-none", files(with_points)),
        fail("CFG006-two-of-three", files(with_points, points("train.jpg", 2), three)),
        near("CFG006-three", files(with_points, points("train.jpg", 3), three)),
        fail("CFG009-no-dog-is-trained", files(pipeline(), train=cats)),
        near("CFG009-no-cat-is-evaluated", files(pipeline(), val=dogs)),
    ]

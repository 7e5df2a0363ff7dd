"""Mutants of a trainer's configuration: CFG. Each is a folder that the trainer is started in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.mutants.registry import Inside, Mutant, fail, mutants_of, near
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

HOW = {"options": {**TF, "pipeline_config": Inside("pipeline.config")}}
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
    """A record whose source id is a number, as TF-Vision has it."""
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
    """A record of two objects with so many keypoints each."""
    values = [0.5] * 2 * number
    sides = {f"image/object/keypoint/{side}": values for side in "xy"}
    visible = {"image/object/keypoint/visibility": [2] * 2 * number}
    return one(name, **(sides | visible if number else {}))


@mutants_of("CFG002")
def leads_nowhere() -> Iterator[Mutant]:
    template = pipeline(maps="PATH_TO_BE_CONFIGURED/label_map.txt")
    yield fail("of-the-template", files(template), **HOW)
    yield fail("empty", files(pipeline(train="")), **HOW)
    yield fail("backslash", files(pipeline(train="data\\train.tfrecord")), **HOW)
    yield fail("label-map", files(pipeline(maps="labels.pbtxt")), **HOW)
    yield fail("folder", {**files(pipeline(train="t")), "t": {"a.txt": b""}}, **HOW)
    pattern = files(pipeline(train="trai?.tfreco[r]d*"))
    yield near("pattern", pattern, **HOW)


@mutants_of("CFG003")
def other_classes() -> Iterator[Mutant]:
    yield fail("one-of-two", files(pipeline(1)), **HOW)
    yield near("two-of-two", files(pipeline()), **HOW)
    gap = b"item { id: 1 name: 'cat' } item { id: 2 name: 'dog' } item { id: 9 name: 'cow' }"
    yield near("ids-with-a-gap", {**files(pipeline(9)), "label_map.pbtxt": gap}, "LAB013", **HOW)


@mutants_of("CFG005")
def masks_missing() -> Iterator[Mutant]:
    asked = pipeline(both=f"{MASKS} mask_type: PNG_MASKS")
    yield fail("no-masks", files(asked), **HOW)
    mask = png()
    both = masks("train.jpg", mask, mask), masks("val.png", mask, mask)
    half = masks("train.jpg", mask, b""), both[1]
    yield fail("of-one-object", files(asked, *half), "BOX023", **HOW)
    yield fail("png-read-as-numbers", files(pipeline(both=MASKS), *both), "BOX023", **HOW)
    yield near("png", files(asked, *both), "BOX023", **HOW)
    yield near("not-asked-for", files(pipeline(both="load_instance_masks: false")), **HOW)


@mutants_of("CFG006")
def other_keypoints() -> Iterator[Mutant]:
    asked = pipeline(both="num_keypoints: 3")
    yield fail("none", files(asked), **HOW)
    yield fail("two-of-three", files(asked, points("train.jpg", 2), points("val.png", 3)), **HOW)
    yield near("three", files(asked, points("train.jpg", 3), points("val.png", 3)), **HOW)


@mutants_of("CFG009")
def unseen_classes() -> Iterator[Mutant]:
    cats = with_boxes([CAT_BOX], name="train.jpg", source_id="1")
    yield fail("no-dog-is-trained", files(pipeline(), train=cats), **HOW)
    dogs = with_boxes([DOG_BOX], ["dog"], [2], name="val.png", encoded=png(), source_id="2")
    yield near("no-cat-is-evaluated", files(pipeline(), val=dogs), **HOW)

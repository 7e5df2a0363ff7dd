"""A valid record of every kind that can be imported, and changes of it by hypothesis.

Tests compare the verdict of a check with readers of the shard: some features get another dtype,
another number of values, unusual values or an unusual encoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from tfod.detection import keys
from tfod.detection.problems import READ_FEATURES
from tfod.example.example import encode_example, float_feature, int64_feature

from tests.mutants.sound import HEIGHT, WIDTH, encoded, entry, features, field, png, shard
from tests.records import image, objects

IMAGE = png()
CAT = [(0.25, 0.25, 0.5, 0.75)]
BOTH = [*CAT, (0.5, 0.1, 1.0, 0.9)]
_ANNOTATIONS = {**image("a.png", HEIGHT, WIDTH), "image/source_id": "1"}
_TRAINING = features("a.png")
_SIZE = {"height": HEIGHT, "width": WIDTH}
_TWO = {**_ANNOTATIONS, **objects(BOTH, ["cat", "dog"], [1, 2])}
_EXTRA = {"image": {"a": 1}, "objects": {"1": {"b": [2]}}, "absent": {"0": ["difficult"]}}

SOUND: Mapping[str, Mapping[str, Any]] = {
    "annotations": _TWO,
    "no-objects": _ANNOTATIONS,
    "texts-alone": {**_ANNOTATIONS, **objects(CAT, ["cat"])},
    "ids-alone": {**_ANNOTATIONS, **objects(CAT, None, [1])},
    "training": _TRAINING,
    "roboflow": {
        key: _TRAINING[key] for key in _TRAINING if key not in (keys.SOURCE_ID, keys.SHA256)
    },
    "open-images": {key: _TRAINING[key] for key in (keys.ENCODED, keys.FILENAME, keys.SOURCE_ID)}
    | objects(BOTH, ["cat", "dog"], [1, 2])
    | {"image/object/group_of": [0, 1], "image/object/occluded": [0, 0]}
    | {"image/object/truncated": [0, 1], "image/object/depiction": [0, 0]}
    | {keys.IMAGE_CLASS_TEXT: ["cat"], keys.IMAGE_CLASS_LABEL: [1]},
    "png-masks": {**_TRAINING, keys.MASK: [IMAGE, b""]},
    "masks-of-numbers": {**_TRAINING, keys.MASK: [0.0, 1.0] * HEIGHT * WIDTH},
    "keypoints": _TRAINING
    | {key: [0.1, 0.2, 0.3, 0.4] for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y)}
    | {keys.KEYPOINT_VISIBILITY: [2, 2, 1, 0], keys.KEYPOINT_NUM: [2, 2]}
    | {keys.KEYPOINT_TEXT: ["nose", "tail", "nose", "tail"]},
    "attributes": _TWO
    | {"image/object/difficult": [0, 1], "image/object/view": ["left", ""]}
    | {"image/object/weight": [1.0, 0.5], "image/object/attribute/count": [1, 2]}
    | {"image/object/attribute/colour": ["red", "blue"]},
    "extra": {**_TWO, "image/object/difficult": [0, 1], keys.EXTRA_ATTRIBUTES: json.dumps(_EXTRA)},
    "image-classes": _ANNOTATIONS
    | {keys.IMAGE_CLASS_TEXT: ["cat", "dog"], keys.IMAGE_CLASS_LABEL: [1, 2]}
    | {keys.IMAGE_CLASS_CONFIDENCE: [0.5, 1.0], "image/neg_category_ids": [3, 4]},
    # The order of the classes is not the order of their ids.
    "captions": _ANNOTATIONS
    | objects(BOTH, ["dog", "cat"], [2, 1])
    | {keys.CAPTION: ["a cat and a dog", "two animals"]},
    "keras-coco": {"image": IMAGE, "path": "a.png", "area": 2.0, "bbox": [0.5, 0.5, 2.0, 1.0]}
    | {"category_id": 1, "id": 7, "image_id": 3},
    "slim-classification": {
        **{key: _TRAINING[key] for key in (keys.ENCODED, keys.FORMAT, keys.HEIGHT, keys.WIDTH)},
        keys.IMAGE_CLASS_LABEL: 1,
    },
    "image-classification": {"image_raw": IMAGE, "depth": 3, "label": 1, **_SIZE},
    "image-label": {"image": IMAGE, "channels": 3, "label": 1, **_SIZE},
}
"""Valid records, by their distinctive feature."""

_READ = sorted({*READ_FEATURES, "image/object/difficult", "image/object/attribute/colour"})
_VALUES: Sequence[st.SearchStrategy[Any]] = (
    st.sampled_from(["", "cat", " ", b"\xe9", b"\xe2\x82", "{", "[]", '{"objects": {"2": {}}}',
                     '{"image": 1}', '{"absent": {"0": ["x"]}}', "raw", "a/../b.png", IMAGE,
                     IMAGE[:20], '{"names": {"difficult": "hard"}}']),
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.05, 1.5, 7.0, -0.25, 3e38, float("nan"), float("inf")]),
    st.sampled_from([0, 1, 2, 3, -1, 1 << 31, (1 << 63) - 1, -1 << 63]),
)  # fmt: skip
_LISTS = (b"\x0a\0", b"\x12\0", b"\x1a\0")  # of no values: bytes, floats, integers
_COUNTS = (0, 1, 2, 3, 4, 8)


@st.composite
def _odd_feature(draw: st.DrawFn, value: Any) -> bytes:
    """Draw a feature that replaces one with this value."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    count = len(values)
    kind = draw(st.sampled_from(_VALUES))
    ways: list[st.SearchStrategy[bytes]] = [
        st.lists(kind, min_size=count, max_size=count).map(encoded),
        st.sampled_from(_COUNTS[1:]).flatmap(
            lambda other: st.lists(kind, min_size=other, max_size=other).map(encoded)
        ),
        st.sampled_from([b"", *_LISTS]),
        kind.map(lambda new: encoded([*values[:-1], new] if type(new) is type(values[0]) else new)),
        # One value less, twice the values, or one value more.
        st.sampled_from([values[:-1] or values, values * 2, [*values, values[0]]]).map(encoded),
        # No encoder writes these: two lists, a list in two parts, integers that are not packed.
        st.just(float_feature([1.0]) + int64_feature([1])),
        st.just(encoded(values) * 2),
        st.just(b"\x1a\x02\x08\x01"),
        st.just(encoded(values) + b"\x22\x00"),
        st.just(encoded(values)[:-1]),
    ]
    return draw(st.one_of(ways))


@st.composite
def changed_records(draw: st.DrawFn, name: str, most: int = 2) -> bytes:
    """Draw a serialized record of a kind, with up to ``most`` changes."""
    sound = SOUND[name]
    named = {key: encoded(value) for key, value in sound.items()}
    more = b""
    for _ in range(draw(st.integers(1, most))):
        own = st.sampled_from(sorted(sound))
        key = draw(st.one_of(own, own, own, st.sampled_from(_READ)))
        change = draw(st.sampled_from([*["replace"] * 5, "remove", "repeat", "append"]))
        if change == "replace":
            named[key] = draw(_odd_feature(sound.get(key, 1)))
        elif change == "remove":
            named.pop(key, None)
        elif change == "repeat":
            more += field(1, entry(key, draw(_odd_feature(sound.get(key, 1)))))
        else:
            more += draw(st.sampled_from([b"\x78\x01", b"\x7b\x7c", b"\x0a", field(2, b""), b"x"]))
    return encode_example(named) + more


def sound_record(name: str) -> bytes:
    """Return the valid record of a kind, serialized."""
    return encode_example({key: encoded(value) for key, value in SOUND[name].items()})


@st.composite
def changed_shards(draw: st.DrawFn, name: str) -> bytes:
    """Draw a shard of a changed record, with or without the valid one of its kind."""
    record, sound = draw(changed_records(name)), sound_record(name)
    return shard(*draw(st.sampled_from([[record], [sound, record], [record, sound]])))

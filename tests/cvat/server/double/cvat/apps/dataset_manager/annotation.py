"""What is drawn on each frame: shapes as they are, tracks interpolated.

Facts: a track is drawn on every frame from its first key frame on; between two key frames a
rectangle moves linearly and turns by the shorter way; the last key frame lasts to the end of the
task; from an ``outside`` key frame to the next one there is nothing. Key frames on deleted frames
do not count.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any


def interpolate(
    track: Mapping[str, Any], end: int, deleted: Container[int]
) -> Iterator[dict[str, Any]]:
    """The shapes of a track that can be seen on the frames before ``end``."""
    keys = sorted((one for one in track["shapes"] if one["frame"] not in deleted), key=_frame)
    common = {name: track[name] for name in ("label", "group", "source")}
    for place, key in enumerate(keys):
        if key["outside"]:
            continue
        following = keys[place + 1] if place + 1 < len(keys) else None
        last = following["frame"] if following else end
        for frame in range(key["frame"], min(last, end)):
            attributes = {**track["attributes"], **key["attributes"]}
            shape = {**key, **common, "attributes": attributes, "frame": frame}
            shape["keyframe"] = frame == key["frame"]
            if following and not shape["keyframe"]:
                shape.update(_between(key, following, frame))
            yield shape


def _frame(shape: Mapping[str, Any]) -> int:
    return int(shape["frame"])


def _between(first: Mapping[str, Any], second: Mapping[str, Any], frame: int) -> dict[str, Any]:
    part = (frame - first["frame"]) / (second["frame"] - first["frame"])
    pairs = zip(first["points"], second["points"], strict=True)
    turn = (second["rotation"] - first["rotation"] + 180) % 360 - 180
    return {
        "points": [one + (other - one) * part for one, other in pairs],
        "rotation": (first["rotation"] + turn * part) % 360,
    }

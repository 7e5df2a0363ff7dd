"""Mutants of shards for a CVAT task: TSK. Each is a folder with the task's description."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.mutants import registry
from tests.mutants.registry import Inside, Mutant
from tests.mutants.sound import CAT_BOX, HEIGHT, LABEL_MAP, WIDTH, jpeg, shard
from tests.records import encode, objects

SHARD = "default.tfrecord"
AGAINST_XML = {"profile": "cvat", "cvat_xml": Inside("task.xml")}
AGAINST_IMAGES = {"profile": "cvat", "images": Inside("images")}
AGAINST_LABELS = {"profile": "cvat", "cvat_labels": Inside("labels.json")}
fail = partial(registry.fail, options=AGAINST_XML)
fail_in_record = partial(fail, at=SHARD, record=0)
near = partial(registry.near, options=AGAINST_XML)


def labelled(
    name: str, *, boxes: int = 1, text: str = "cat", width: int = WIDTH, tag: str = "", **more: Any
) -> bytes:
    """A record without an image."""
    size = {"image/height": HEIGHT, "image/width": width}
    rest = {"image/filename": name, "image/source_id": name, **size}
    existing = objects([CAT_BOX] * boxes, [text] * boxes, [1] * boxes) if boxes else {}
    whole = {"image/class/text": [tag]} if tag else {}
    return encode({**rest, **existing, **whole, **more})


def task_xml(
    *frames: str, mode: str = "annotation", labels: tuple[str, ...] = ("cat",), shape: str = ""
) -> bytes:
    """A task's export as CVAT for images 1.1, or for video; with a shape on each frame."""
    named = "".join(f"<label><name>{one}</name></label>" for one in labels)
    images = "".join(
        f'<image id="{number}" name="{name}" width="{WIDTH}" height="{HEIGHT}">{shape}</image>'
        for number, name in enumerate(frames)
    )
    size = f"<original_size><width>{WIDTH}</width><height>{HEIGHT}</height></original_size>"
    return (
        f"<annotations><meta><task><size>3</size><mode>{mode}</mode><start_frame>0</start_frame>"
        f"<stop_frame>2</stop_frame><frame_filter></frame_filter><labels>{named}</labels>{size}"
        f"</task></meta>{images}</annotations>"
    ).encode()


POLYLINE = '<polyline label="cat" occluded="0" points="1,1;2,2" z_order="0"></polyline>'
POLYGON = POLYLINE.replace("polyline", "polygon").replace("2,2", "2,2;1,2")
BOX = '<box label="cat" occluded="0" xtl="1" ytl="1" xbr="9" ybr="9" z_order="0"></box>'
ATTRIBUTE = "<attribute><name>difficult</name><input_type>checkbox</input_type></attribute>"


def files(*records: bytes | str, **more: Any) -> dict[str, Any]:
    """A folder with a shard and a label map of cats; the task has a.jpg unless ``xml`` is given."""
    xml = more.pop("xml", task_xml("a.jpg"))
    payloads = (labelled(one) if isinstance(one, str) else one for one in records)
    return {
        SHARD: shard(*payloads),
        "label_map.pbtxt": LABEL_MAP.splitlines()[0],
        "task.xml": xml,
        **more,
    }


def matched(name: str, *frames: str, **how: Any) -> dict[str, Any]:
    """A folder with a record of this name, and a task with these frames."""
    return files(name, xml=task_xml(*frames, **how))


def mutants() -> list[Mutant]:
    labels = json.dumps([{"name": "cats"}]).encode()
    known = matched("a.jpg", "a.jpg", labels=("cat", "dog"))
    frames, two, video = ("a.jpg", "b.jpg", "c.jpg"), ("a.jpg", "b.jpg"), {"mode": "interpolation"}
    wider, same = (files("a.jpg", images={"a.jpg": jpeg((WIDTH + n, HEIGHT))}) for n in (1, 0))
    without_boxes = labelled("b.jpg", boxes=0)
    boxes = task_xml(*two, shape=BOX)
    my_clip = matched("myclip1.jpg", **video)
    clip = files(*(f"frame_00000{n}.jpg" for n in range(3)), xml=task_xml(**video))
    difficult = labelled("a.jpg", **{"image/object/difficult": [0]})
    attributes = f"</name><attributes>{ATTRIBUTE}</attributes></label>".encode()
    has_difficult = task_xml("a.jpg").replace(b"</name></label>", attributes)
    return [
        fail("TSK001-capital-letter", matched("a.jpg", "a.jpg", labels=("Cat", "dog"))),
        near("TSK001-in-the-task", known),
        fail("TSK001-one-letter-more", {**known, "labels.json": labels}, options=AGAINST_LABELS),
        fail("TSK001-of-a-whole-image", files(labelled("a.jpg", tag="bird"))),
        fail_in_record("TSK002-one-letter", matched("a.jpg", "b.jpg"), "TSK005"),
        fail_in_record("TSK002-another-folder", matched("x/a.jpg", "y/a.jpg", "x/b.jpg"), "TSK005"),
        near("TSK002-folder-of-another-machine", matched("x/a.jpg", "a.jpg")),
        near("TSK002-another-extension", matched("a.jpg", "a.png")),
        near("TSK002-folder-that-all-lack", matched("a.jpg", "x/a.jpg")),
        fail_in_record("TSK003-number-of-a-frame", matched("2.jpg", *frames), "TSK005"),
        fail_in_record("TSK003-digits-behind-six-letters", my_clip, "TSK005"),
        near("TSK003-number-of-no-frame", matched("3.jpg", *frames), "TSK002", "TSK005"),
        near("TSK003-name-of-a-frame", matched("2.jpg", "0.jpg", "1.jpg", "2.jpg"), "TSK005"),
        fail_in_record("TSK004-one-pixel-wider", files(labelled("a.jpg", width=WIDTH + 1))),
        near("TSK004-same-size", files("a.jpg")),
        fail_in_record("TSK004-than-the-image-on-disk", wider, options=AGAINST_IMAGES),
        near("TSK004-as-on-disk", same, options=AGAINST_IMAGES),
        fail("TSK005-no-record", matched("a.jpg", *two)),
        fail("TSK005-no-boxes", files("a.jpg", without_boxes, xml=task_xml(*two))),
        near("TSK005-a-box-each", files(*two, xml=task_xml(*two))),
        fail_in_record("TSK006-another-extension", files("a.jpg", "a.png"), record=1),
        near("TSK006-a-frame-each", files("a.jpg", "b.png", xml=task_xml(*two))),
        fail("TSK007-no-image", matched("a.jpg")),
        near("TSK007-video", clip),
        fail("TSK008-polyline", matched("a.jpg", "a.jpg", shape=POLYLINE)),
        near("TSK008-box", matched("a.jpg", "a.jpg", shape=BOX)),
        fail("TSK009-no-record", files("a.jpg", xml=boxes), "TSK005"),
        near("TSK009-meant-to-be-empty", files("a.jpg", without_boxes, xml=boxes), "TSK005"),
        fail("TSK010-checkbox", files(difficult)),
        near("TSK010-of-the-label", files(difficult, xml=has_difficult)),
        fail("TSK011-polygon", matched("a.jpg", "a.jpg", shape=POLYGON)),
        near("TSK011-box", matched("a.jpg", "a.jpg", shape=BOX)),
    ]

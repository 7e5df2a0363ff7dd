"""Mutants of shards for a CVAT task: TSK. Each is a folder with the task's description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.mutants.registry import Inside, Mutant, fail, mutants_of, near
from tests.mutants.sound import CAT_BOX, HEIGHT, LABEL_MAP, WIDTH, jpeg, shard
from tests.records import encode, objects

SHARD = "default.tfrecord"
AGAINST_XML = {"profile": "cvat", "cvat_xml": Inside("task.xml")}
HOW = {"at": SHARD, "record": 0, "options": AGAINST_XML}


def labelled(
    name: str, *, boxes: int = 1, text: str = "cat", width: int = WIDTH, tag: str = "", **more: Any
) -> bytes:
    """A record of annotations alone."""
    size = {"image/height": HEIGHT, "image/width": width}
    rest = {"image/filename": name, "image/source_id": name, **size}
    there = objects([CAT_BOX] * boxes, [text] * boxes, [1] * boxes) if boxes else {}
    whole = {"image/class/text": [tag]} if tag else {}
    return encode({**rest, **there, **whole, **more})


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


def files(*records: bytes, **more: Any) -> dict[str, Any]:
    """A folder with a shard and a label map of cats; the task of a.jpg unless another is given."""
    xml = more.pop("xml", task_xml("a.jpg"))
    return {
        SHARD: shard(*records),
        "label_map.pbtxt": LABEL_MAP.splitlines()[0],
        "task.xml": xml,
        **more,
    }


@mutants_of("TSK001")
def unknown_label() -> Iterator[Mutant]:
    capital = files(labelled("a.jpg"), xml=task_xml("a.jpg", labels=("Cat", "dog")))
    yield fail("capital-letter", capital, options=AGAINST_XML)
    known = files(labelled("a.jpg"), xml=task_xml("a.jpg", labels=("cat", "dog")))
    yield near("in-the-task", known, options=AGAINST_XML)
    labels = {**known, "labels.json": json.dumps([{"name": "cats"}]).encode()}
    by_json = {"profile": "cvat", "cvat_labels": Inside("labels.json")}
    yield fail("one-letter-more", labels, options=by_json)
    yield fail("of-a-whole-image", files(labelled("a.jpg", tag="bird")), options=AGAINST_XML)


@mutants_of("TSK002")
def no_frame() -> Iterator[Mutant]:
    yield fail("one-letter", files(labelled("a.jpg"), xml=task_xml("b.jpg")), "TSK005", **HOW)
    folder = files(labelled("x/a.jpg"), xml=task_xml("y/a.jpg", "x/b.jpg"))
    yield fail("another-folder", folder, "TSK005", **HOW)
    elsewhere = files(labelled("x/a.jpg"), xml=task_xml("a.jpg"))
    yield near("folder-of-another-machine", elsewhere, options=AGAINST_XML)
    png = files(labelled("a.jpg"), xml=task_xml("a.png"))
    yield near("another-extension", png, options=AGAINST_XML)
    shorter = files(labelled("a.jpg"), xml=task_xml("x/a.jpg"))
    yield near("folder-that-all-lack", shorter, options=AGAINST_XML)


@mutants_of("TSK003")
def read_as_number() -> Iterator[Mutant]:
    frames = ("a.jpg", "b.jpg", "c.jpg")
    digits = files(labelled("2.jpg"), xml=task_xml(*frames))
    yield fail("number-of-a-frame", digits, "TSK005", **HOW)
    video = files(labelled("myclip1.jpg"), xml=task_xml(mode="interpolation"))
    yield fail("digits-behind-six-letters", video, "TSK005", **HOW)
    beyond = files(labelled("3.jpg"), xml=task_xml(*frames))
    yield near("number-of-no-frame", beyond, "TSK002", "TSK005", options=AGAINST_XML)
    named = files(labelled("2.jpg"), xml=task_xml("0.jpg", "1.jpg", "2.jpg"))
    yield near("name-of-a-frame", named, "TSK005", options=AGAINST_XML)


@mutants_of("TSK004")
def other_size() -> Iterator[Mutant]:
    yield fail("one-pixel-wider", files(labelled("a.jpg", width=WIDTH + 1)), **HOW)
    yield near("same-size", files(labelled("a.jpg")), options=AGAINST_XML)
    images = {"images": {"a.jpg": jpeg((WIDTH + 1, HEIGHT))}}
    by_images = {"profile": "cvat", "images": Inside("images")}
    yield fail("than-the-image-on-disk", files(labelled("a.jpg"), **images), at=SHARD, record=0,
               options=by_images)  # fmt: skip
    images = {"images": {"a.jpg": jpeg()}}
    yield near("as-on-disk", files(labelled("a.jpg"), **images), options=by_images)


@mutants_of("TSK005")
def bare_frames() -> Iterator[Mutant]:
    two = task_xml("a.jpg", "b.jpg")
    yield fail("no-record", files(labelled("a.jpg"), xml=two), options=AGAINST_XML)
    bare = files(labelled("a.jpg"), labelled("b.jpg", boxes=0), xml=two)
    yield fail("no-boxes", bare, options=AGAINST_XML)
    whole = files(labelled("a.jpg"), labelled("b.jpg"), xml=two)
    yield near("a-box-each", whole, options=AGAINST_XML)


@mutants_of("TSK006")
def shared_frame() -> Iterator[Mutant]:
    both = files(labelled("a.jpg"), labelled("a.png"))
    yield fail("another-extension", both, at=SHARD, record=1, options=AGAINST_XML)
    two = files(labelled("a.jpg"), labelled("b.png"), xml=task_xml("a.jpg", "b.jpg"))
    yield near("a-frame-each", two, options=AGAINST_XML)


@mutants_of("TSK007")
def nameless_frames() -> Iterator[Mutant]:
    yield fail("no-image", files(labelled("a.jpg"), xml=task_xml()), options=AGAINST_XML)
    video = files(*(labelled(f"frame_00000{n}.jpg") for n in range(3)),
                  xml=task_xml(mode="interpolation"))  # fmt: skip
    yield near("video", video, options=AGAINST_XML)


POLYLINE = '<polyline label="cat" occluded="0" points="1,1;2,2" z_order="0"></polyline>'
BOX = '<box label="cat" occluded="0" xtl="1" ytl="1" xbr="9" ybr="9" z_order="0"></box>'


@mutants_of("TSK008")
def deleted_shapes() -> Iterator[Mutant]:
    lost = files(labelled("a.jpg"), xml=task_xml("a.jpg", shape=POLYLINE))
    yield fail("polyline", lost, options=AGAINST_XML)
    yield near("box", files(labelled("a.jpg"), xml=task_xml("a.jpg", shape=BOX)),
               options=AGAINST_XML)  # fmt: skip


@mutants_of("TSK009")
def emptied_frames() -> Iterator[Mutant]:
    two = task_xml("a.jpg", "b.jpg", shape=BOX)
    yield fail("no-record", files(labelled("a.jpg"), xml=two), "TSK005", options=AGAINST_XML)
    bare = files(labelled("a.jpg"), labelled("b.jpg", boxes=0), xml=two)
    yield near("meant-to-be-empty", bare, "TSK005", options=AGAINST_XML)


ATTRIBUTE = "<attribute><name>difficult</name><input_type>checkbox</input_type></attribute>"


@mutants_of("TSK010")
def unknown_attributes() -> Iterator[Mutant]:
    difficult = labelled("a.jpg", **{"image/object/difficult": [0]})
    yield fail("checkbox", files(difficult), options=AGAINST_XML)
    known = task_xml("a.jpg").replace(
        b"</name></label>", f"</name><attributes>{ATTRIBUTE}</attributes></label>".encode()
    )
    yield near("of-the-label", files(difficult, xml=known), options=AGAINST_XML)


@mutants_of("TSK011")
def replaced_annotations() -> Iterator[Mutant]:
    polygon = POLYLINE.replace("polyline", "polygon").replace("2,2", "2,2;1,2")
    drawn = files(labelled("a.jpg"), xml=task_xml("a.jpg", shape=polygon))
    yield fail("polygon", drawn, options=AGAINST_XML)
    yield near("box", files(labelled("a.jpg"), xml=task_xml("a.jpg", shape=BOX)),
               options=AGAINST_XML)  # fmt: skip

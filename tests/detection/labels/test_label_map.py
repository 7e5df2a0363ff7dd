"""Label maps: every legal spelling, a few illegal ones, other files, and classes of objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection.labels.classes import ClassTable
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import (
    Keypoint,
    LabelMap,
    LabelMapItem,
    decode_label_map,
    load_label_map,
    packaged_label_maps,
    parse_label_map,
    read_label_map,
)
from tfod.errors import LabelMapError

CAR, BUS = LabelMapItem(3, "car"), LabelMapItem(7, "bus")


def items(text: str) -> tuple[LabelMapItem, ...]:
    label_map, deviations = parse_label_map(text)
    assert deviations == []
    return label_map.items


SPELLINGS = {
    "CVAT": "item {\n\tid: 3\n\tname: 'car'\n}\n\nitem {\n\tid: 7\n\tname: 'bus'\n}\n",
    "Roboflow": 'item {\n    name: "car",\n    id: 3,\n}\nitem {\n    name: "bus",\n    id: 7\n}',
    "semicolons": "item { id: 3; name: 'car'; } item { id: 7 name: 'bus' }",
    "angles": "item < id: 3 name: 'car' > item: { id: 7 name: 'bus' }",
    "comments": "# all\nitem { # first\n id: 3 # its id\n name: 'car' } item{id:7 name:\"bus\"}",
    "escapes": "item { id: 3 name: 'c' \"ar\" } item { id: 0x7 name: 'b\\165s' }",
    "CRLF": "item { id: 3\r\n name: 'car'\r\n}\r\nitem { id: 7\r\n name: 'bus'\r\n}\r\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_legal_spellings(spelling: str) -> None:
    assert items(SPELLINGS[spelling]) == (CAR, BUS)


def test_every_field() -> None:
    text = """item { id: 1 name: '/m/01g317' display_name: 'Person' frequency: COMMON
              keypoints { id: 0 label: 'nose' } keypoints { id: 1 label: 'eye' }
              ancestor_ids: 4 ancestor_ids: 5 descendant_ids: 6 instance_count: 9 }"""
    (item,) = items(text)
    assert item == LabelMapItem(
        1, "/m/01g317", "Person", (Keypoint(0, "nose"), Keypoint(1, "eye")), 2, 9, (4, 5), (6,)
    )
    assert items(LabelMap((item,)).to_text()) == (item,)


def test_names_and_ids_by_default() -> None:
    assert items(r"item { id: 1 name: 'caf\303\251' }")[0].name == "café"
    assert items("item { id: 4 display_name: 'dog' }")[0].class_name == "dog"
    assert items("item { id: 4 }")[0].class_name == "4"
    assert items("item { name: 'background' }")[0].id == 0
    assert items("") == ()


@pytest.mark.parametrize(
    ("data", "names", "deviations"),
    [
        # protobuf's text format refuses it: "Expected identifier or number, got \\ufeff".
        *(
            ("item { id: 3 name: 'car' }".encode(encoding), ["car"], ["byte order mark"])
            for encoding in ("utf-8-sig", "utf-16")
        ),
        (b"item {\n  id : 1\n  name : RBC\n}\n", ["RBC"], ["without quotes"]),
        (
            "item { id: 1, name: stop sign, }\r\nitem { name:кошка # no dog\n id: 2 }".encode(),
            ["stop sign", "кошка"],
            ["without quotes"],
        ),
        (
            "item { id: 3 name: “car” } { id: 7 name: ‘bus’ }".encode(),
            ["car", "bus"],
            ["curly quotes", "without the word 'item'"],
        ),
        (
            b"item { id: 3 name: 'car' colour: 'red' } item { id: 7 name: 'bus' }",
            ["car", "bus"],
            ["colour"],
        ),
    ],
)
def test_deviations_are_read_and_named(
    data: bytes, names: list[str], deviations: list[str]
) -> None:
    label_map, messages = decode_label_map(data, "m")
    assert [item.name for item in label_map.items] == names
    for message, deviation in zip(messages, deviations, strict=True):
        assert message.startswith("m: ") and deviation in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("node { name: 'x' op: 'Const' }", "expected entries such as"),
        ("items { id: 1 name: 'x' }", "expected entries such as"),
        ("item { id: 1 naem: 'x' }", "naem"),
        ("<!DOCTYPE html>\n<html><body>item { id: 1 }</body></html>", "an HTML page"),
        ("\n\n<html>", "an HTML page"),
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ('{"item": [{"id": 1}]}', "expected entries such as"),
        ("item { id: one }", "1:12"),
        ("item { id: 1", "expected entries such as"),
        ("person\ncar\n", "expected entries such as"),
        (f"item {{ id: 1 name: '{'c' * 999}", "1:20"),
        (f"{'c' * 999}: 1", "1:1"),
        (f"<{'c' * 999}", "1:1"),
    ],
)
def test_files_of_other_kinds(text: str, what: str) -> None:
    with pytest.raises(LabelMapError) as caught:
        parse_label_map(text, "label_map.pbtxt")
    assert str(caught.value).startswith("label_map.pbtxt is not a label map")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value) and "c" * 81 not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.pbtxt"
    path.write_bytes("item { id: 1 name: 'кошка' }".encode("utf-16"))
    assert read_label_map(path)[0].items[0].name == "кошка"
    for data, message in (
        (b"\xff\xd8\xff\xe0 photo", "a JPEG image"),
        (b"item { id: 1 name: 'caf\xe9' }", "byte 23 is not UTF-8"),
    ):
        path.write_bytes(data)
        with pytest.raises(LabelMapError, match=message):
            read_label_map(path)
    with pytest.raises(LabelMapError, match="cannot be read"):
        read_label_map(tmp_path)


NAMES = st.one_of(
    st.from_regex(r"[\w .-]{1,20}", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
)


@given(
    st.lists(
        st.builds(
            LabelMapItem,
            st.integers(-(2**31), 2**31 - 1),
            NAMES,
            st.one_of(st.just(""), NAMES),
            st.lists(st.builds(Keypoint, st.integers(0, 99), NAMES), max_size=2).map(tuple),
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read(written: list[LabelMapItem]) -> None:
    text = LabelMap(tuple(written)).to_text()
    assert items(text) == tuple(written)
    assert items(f"{text}# a comment, which only protobuf reads") == tuple(written)


def test_layout_is_the_documented_one() -> None:
    text = LabelMap((LabelMapItem(1, "it's"),)).to_text()
    assert text == "item {\n\tid: 1\n\tname: 'it\\'s'\n}\n\n"


def test_look_ups() -> None:
    first, second = LabelMapItem(1, "a", "x"), LabelMapItem(1, "x", "b")
    label_map = LabelMap((first, second))
    assert label_map.find("x") is second  # a name before a display name
    assert label_map.find("b") is second
    assert label_map.find_id(1) is first  # the first of several, as in the OD API
    assert label_map.find("?") is None and label_map.find_id(2) is None
    assert LabelMap.from_names(["a", "b"]).items == (LabelMapItem(1, "a"), LabelMapItem(2, "b"))


def test_packaged_label_maps() -> None:
    assert packaged_label_maps() == ["coco", "oxford_pets", "voc2007"]
    for name, count, highest in (("coco", 80, 90), ("oxford_pets", 37, 37), ("voc2007", 20, 20)):
        label_map, deviations = load_label_map(name)
        ids = {item.id for item in label_map.items}
        assert deviations == []
        assert len(ids) == len(label_map.items) == count and (min(ids), max(ids)) == (1, highest)
        assert len({item.class_name for item in label_map.items}) == count
    assert load_label_map("coco")[0].find_id(90).name == "toothbrush"
    with pytest.raises(LabelMapError, match="one of these names: coco, oxford_pets"):
        load_label_map("nope")


# Classes of objects, and the ids that classes keep

PEOPLE = LabelMap((LabelMapItem(3, "/m/1", "person"), LabelMapItem(1, "/m/2", "dog")))


def resolve(label_map: LabelMap | None, *objects: tuple[str | None, int | None]) -> Any:
    """The names of the objects' classes, and the ids of all classes by name."""
    table = ClassTable()
    scope = table.add_label_map(label_map)
    numbers = [table.resolve(scope, *one) for one in objects]
    items, names, place = table.finish()
    ids = dict(zip(names, (item.id for item in items.items), strict=True))
    return [None if n is None else names[place[n]] for n in numbers], ids


def test_names_and_display_names() -> None:
    assert resolve(PEOPLE, ("/m/1", 3)) == (["/m/1"], {"/m/2": 1, "/m/1": 3})
    assert resolve(PEOPLE, ("person", None)) == (["person"], {"dog": 1, "person": 3})
    # Both in one dataset are one class; it keeps its name.
    assert resolve(PEOPLE, ("person", None), ("/m/1", None))[0] == ["/m/1", "/m/1"]


def test_duplicate_names_ids_and_displays() -> None:
    pairs = [(1, "a", "same"), (2, "b", "same"), (2, "c"), (5, "a")]
    odd = LabelMap(tuple(LabelMapItem(*one) for one in pairs))
    names, ids = resolve(odd, ("a", 1), ("b", 2), ("c", 2), (None, 5), ("same", None))
    assert names == ["a", "b", "c", "a", "a"]
    assert len(set(ids.values())) == len(ids) == 3
    # With display names, two classes would have the same name.
    names, _ = resolve(odd, ("same", None), (None, 2))
    assert names == ["same", "b"]


@given(st.lists(st.tuples(*[st.sampled_from("abc")] * 2), min_size=1, max_size=4), st.data())
def test_crossed_names_mean_the_same_to_import_and_conversion(names, data) -> None:
    """A text is a name first, whatever display names other classes have."""
    items = [LabelMapItem(number, *pair) for number, pair in enumerate(names, 1)]
    text = data.draw(st.sampled_from([name for name, _ in names]))
    label_map = LabelMap(tuple(items))
    classes = Classes({"map": label_map})
    (number,) = classes.ids(label_map, [text], [None])
    assert classes.label_map.class_names[number] == text
    assert resolve(label_map, (text, None))[0] == [text]


texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "c", "dog", "person", "/m/1", "7"]))
ids = st.one_of(st.none(), st.integers(-2, 9))


@given(st.sampled_from([None, PEOPLE]), st.lists(st.tuples(texts, ids), max_size=12))
def test_a_text_always_decides_and_ids_are_unique(label_map, objects) -> None:
    names, found = resolve(label_map, *objects)
    assert len(set(found.values())) == len(found)
    by_text: dict[str, str | None] = {}
    for (text, _), name in zip(objects, names, strict=True):
        if text:
            assert name is not None
            assert by_text.setdefault(text, name) == name
        assert name is None or name in found

"""Label maps: every legal spelling, a few illegal ones, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


@pytest.mark.parametrize(
    "text",
    [
        "item {\n\tid: 3\n\tname: 'car'\n}\n\nitem {\n\tid: 7\n\tname: 'bus'\n}\n",  # CVAT
        # Roboflow
        'item {\n    name: "car",\n    id: 3,\n}\nitem {\n    name: "bus",\n    id: 7\n}',
        "item { id: 3; name: 'car'; } item { id: 7 name: 'bus' }",
        "item < id: 3 name: 'car' > item: { id: 7 name: 'bus' }",
        "# all of them\nitem { # first\n id: 3 # its id\n name: 'car' } item{id:7 name:\"bus\"}",
        "item { id: 3 name: 'c' \"ar\" } item { id: 0x7 name: 'b\\165s' }",
        "item { id: 3\r\n name: 'car'\r\n}\r\nitem { id: 7\r\n name: 'bus'\r\n}\r\n",
    ],
    ids=["cvat", "commas", "semicolons", "angles", "comments", "escapes", "crlf"],
)
def test_legal_spellings(text: str) -> None:
    assert items(text) == (CAR, BUS)


def test_every_field() -> None:
    text = """item { id: 1 name: '/m/01g317' display_name: 'Person' frequency: COMMON
              keypoints { id: 0 label: 'nose' } keypoints { id: 1 label: 'eye' }
              ancestor_ids: 4 ancestor_ids: 5 descendant_ids: 6 instance_count: 9 }"""
    (item,) = items(text)
    assert item == LabelMapItem(
        1, "/m/01g317", "Person", (Keypoint(0, "nose"), Keypoint(1, "eye")), 2, 9, (4, 5), (6,)
    )
    assert items(LabelMap((item,)).to_text()) == (item,)


def test_octal_escapes_are_utf8() -> None:
    assert items(r"item { id: 1 name: 'caf\303\251' }")[0].name == "café"


def test_no_name_no_id() -> None:
    assert items("item { id: 4 display_name: 'dog' }")[0].class_name == "dog"
    assert items("item { id: 4 }")[0].class_name == "4"
    assert items("item { name: 'background' }")[0].id == 0
    assert items("") == ()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_a_liberty(encoding: str) -> None:
    """protobuf's text format refuses it: "Expected identifier or number, got \\ufeff"."""
    text = "item { id: 3 name: 'car' }"
    label_map, deviations = decode_label_map(text.encode(encoding), "m")
    assert label_map.items == (CAR,)
    assert deviations == ["m: a byte order mark was ignored; save the file as UTF-8 without one"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("item {\n  id : 1\n  name : RBC\n}\n", ["RBC"]),
        (
            "item { id: 1, name: stop sign, }\r\nitem { name:кошка # no dog\n id: 2 }",
            ["stop sign", "кошка"],
        ),
    ],
)
def test_names_without_quotes_are_read_and_named(text: str, names: list[str]) -> None:
    label_map, deviations = parse_label_map(text, "m")
    assert [one.name for one in label_map.items] == names
    assert deviations == ["m: names without quotes are read as names"]


def test_liberties_are_named() -> None:
    label_map, deviations = parse_label_map("item { id: 3 name: “car” } { id: 7 name: ‘bus’ }", "m")
    assert label_map.items == (CAR, BUS)
    assert deviations == [
        "m: curly quotes are read as straight quotes",
        "m: items without the word 'item' are read as items",
    ]


def test_fields_of_ones_own_are_told() -> None:
    text = "item { id: 3 name: 'car' colour: 'red' } item { id: 7 name: 'bus' }"
    label_map, (liberty,) = parse_label_map(text, "m")
    assert label_map.items == (CAR, BUS)
    assert "unknown fields are ignored" in liberty and "colour" in liberty


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
def test_what_is_no_label_map(text: str, what: str) -> None:
    with pytest.raises(LabelMapError) as caught:
        parse_label_map(text, "label_map.pbtxt")
    assert str(caught.value).startswith("label_map.pbtxt is not a label map")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value) and "c" * 81 not in str(caught.value)


def test_a_file_of_another_kind_is_named() -> None:
    with pytest.raises(LabelMapError, match="not a label map but a JPEG image"):
        decode_label_map(b"\xff\xd8\xff\xe0 photo", "a.jpg")
    with pytest.raises(LabelMapError, match="byte 23 is not UTF-8"):
        decode_label_map("item { id: 1 name: 'caf\xe9' }".encode("latin-1"), "a.pbtxt")


names = st.one_of(
    st.from_regex(r"[\w .-]{1,20}", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
)


@given(
    st.lists(
        st.builds(
            LabelMapItem,
            st.integers(-(2**31), 2**31 - 1),
            names,
            st.one_of(st.just(""), names),
            st.lists(st.builds(Keypoint, st.integers(0, 99), names), max_size=2).map(tuple),
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read(written: list[LabelMapItem]) -> None:
    text = LabelMap(tuple(written)).to_text()
    assert items(text) == tuple(written)
    assert items(f"{text}# a comment, which only protobuf reads") == tuple(written)


def test_layout_is_the_documented_one() -> None:
    assert LabelMap((LabelMapItem(1, "it's"),)).to_text() == (
        "item {\n\tid: 1\n\tname: 'it\\'s'\n}\n\n"
    )


def test_look_ups() -> None:
    first, second = LabelMapItem(1, "a", "x"), LabelMapItem(1, "x", "b")
    label_map = LabelMap((first, second))
    assert label_map.find("x") is second  # a name before a display name
    assert label_map.find("b") is second
    assert label_map.find_id(1) is first  # the first of several, as in the OD API
    assert label_map.find("?") is None and label_map.find_id(2) is None
    assert LabelMap.from_names(["a", "b"]).items == (LabelMapItem(1, "a"), LabelMapItem(2, "b"))


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.pbtxt"
    path.write_bytes("item { id: 1 name: 'кошка' }".encode("utf-16"))
    assert read_label_map(path)[0].items[0].name == "кошка"
    path.write_bytes(b"item { id: 1 name: '\xe9' }")
    with pytest.raises(LabelMapError, match="byte 20 is not UTF-8"):
        read_label_map(path)
    with pytest.raises(LabelMapError, match="cannot be read"):
        read_label_map(tmp_path)


@pytest.mark.parametrize(
    ("name", "count", "highest"), [("coco", 80, 90), ("oxford_pets", 37, 37), ("voc2007", 20, 20)]
)
def test_packaged_label_maps(name: str, count: int, highest: int) -> None:
    label_map, deviations = load_label_map(name)
    ids = [item.id for item in label_map.items]
    assert deviations == []
    assert len(ids) == len(set(ids)) == count and max(ids) == highest and min(ids) == 1
    assert len({item.class_name for item in label_map.items}) == count


def test_packaged_label_maps_have_names() -> None:
    assert packaged_label_maps() == ["coco", "oxford_pets", "voc2007"]
    assert load_label_map("coco")[0].find_id(90).name == "toothbrush"
    with pytest.raises(LabelMapError, match="one of these names: coco, oxford_pets"):
        load_label_map("nope")

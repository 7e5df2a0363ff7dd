"""Inputs that ask for more work than they are long, each in any size, and a count of that work.

A family takes a size in bytes and gives files by name. What is done with them is counted in steps
of Python and in bytes that were handed to what loops in C, so that no clock is asked.
"""

from __future__ import annotations

import functools
import gzip
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tfod.kernel import find_records
from tfod.kernel.return_types import FoundRecords, WalkEnd
from tfod.tfrecord.framing import masked_crc32c
from tfod.tfrecord.walk import ReadBuffer

from tests.mutants.sound import entry, features, field, frame, jpeg, png, record, with_boxes
from tests.records import encode, objects
from tests.zip_forge import Item, forge

Files: TypeAlias = "Mapping[str, bytes]"
Family: TypeAlias = "Callable[[int], Files]"
FAMILIES: dict[str, Family] = {}
"""Shards, with label maps, and zips of them."""
_BYTES_A_STEP = 16


def _family(make: Family) -> Family:
    FAMILIES[make.__name__] = make
    return make


def write_family(folder: Path, family: Family, size: int) -> Path:
    """Write a family's files; gives the path that is to be read."""
    folder.mkdir()
    files = family(size)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files)) if len(files) == 1 else folder


def growths(do: Callable[[Path], object], folder: Path, family: Family, size: int) -> list[int]:
    """By how many steps an input costs more when it grows, twice, by as much as it was before.

    What costs something once falls out; of linear work the second is the double of the first.
    """
    do(write_family(folder / "first", family, size))  # what is loaded and remembered only once
    steps = []
    for number in (1, 2, 4):
        path = write_family(folder / str(number), family, number * size)
        with _counted() as count:
            do(path)
        steps.append(count[0])
    return [steps[1] - steps[0], steps[2] - steps[1]]


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Counts the lines of Python that run in this thread, and bytes that C loops over."""
    count = [0]

    def trace(*_: object) -> Any:
        count[0] += 1
        return trace

    before = sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("tfod.tfrecord.framing.find_headers", "zlib.crc32"):
            patch.setattr(name, _weighed(_found(name), count))
        patch.setattr("tfod.tfrecord.reader.find_records", _weighed_walk(count))
        patch.setattr(ReadBuffer, "refill", _weighed_refill(count))
        sys.settrace(trace)
        try:
            yield count
        finally:
            sys.settrace(before)


def _found(name: str) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")
    found: Callable[..., Any] = getattr(sys.modules[module], attribute)
    return found


def _weighed(function: Callable[..., Any], count: list[int]) -> Callable[..., Any]:
    @functools.wraps(function)
    def weighed(data: Any, *others: Any) -> Any:
        count[0] += len(data) // _BYTES_A_STEP
        return function(data, *others)

    return weighed


def _weighed_walk(count: list[int]) -> Callable[..., FoundRecords]:
    """What the kernel looks at, which stops at the first record that is not whole and sound."""

    def weighed(buffer: Any, **options: Any) -> FoundRecords:
        found = find_records(buffer, **options)
        looked_at = found.position
        if found.end is WalkEnd.DATA_CHECKSUM:
            looked_at += int.from_bytes(bytes(buffer[looked_at : looked_at + 8]), "little")
        count[0] += looked_at // _BYTES_A_STEP + 1
        return found

    return weighed


def _weighed_refill(count: list[int]) -> Callable[..., bool]:
    refill = ReadBuffer.refill

    def weighed(buffer: ReadBuffer, position: int, wanted: int = 0) -> bool:
        count[0] += (buffer.have - position) // _BYTES_A_STEP
        return refill(buffer, position, wanted)

    return weighed


def _many(make: Callable[[int], bytes], size: int) -> bytes:
    """So many pieces that they have this size."""
    found = bytearray()
    number = 0
    while len(found) < size:
        found += make(number)
        number += 1
    return bytes(found)


def _plain(number: int) -> bytes:
    return frame(encode({"image/filename": f"{number}.jpg", "image/height": 4, "image/width": 4}))


def _header(length: int) -> bytes:
    raw = length.to_bytes(8, "little")
    return raw + masked_crc32c(raw).to_bytes(4, "little")


# Framing and records

_NAME = entry("image/filename", field(1, field(1, b"a.jpg")))
_PIECES: dict[str, Callable[[int], bytes]] = {
    "headers_of_a_file": lambda _: _header(200_000_000),
    "junk_between_records": lambda number: b"\xff" + _plain(number),
    "junk_between_empty_records": lambda _: b"\xff" + frame(b""),
    "zeros_between_records": lambda number: bytes(13) + _plain(number),
    "wrong_checksums": lambda _: _header(1) + b"\xff" * 5,
    "records_of_no_bytes": lambda _: frame(b""),
    "groups_in_records": lambda _: frame(field(1, _NAME) + b"\x2b" * 50 + b"\x2c" * 50),
    "keys_of_records": lambda number: frame(encode({f"k{number}": 1})),
    "equal_names": lambda _: _plain(0),
    "segments_of_jpegs": lambda _: frame(record(encoded=jpeg()[:2] + b"\xff\xe0\0\0" * 4095)),
    "chunks_of_pngs": lambda _: frame(
        record("b.png", encoded=png()[:33] + b"\0\0\0\0eXIf\0\0\0\0" * 4095)
    ),
}
"""A sound record, and many of these."""
_PACKED: dict[str, Callable[[int], bytes]] = {
    # The end is known to nobody, and each header claims what is there and more.
    "headers_in_gzip": lambda _: _header(200_000_000),
    "headers_between_records": lambda number: _header(200_000_000 + number) + frame(b"\n\0"),
}
"""Many of these, as gzip."""
_VALUES: dict[str, tuple[str, int, bytes]] = {
    "unpacked_integers": ("class/label", 3, b"\x08\x01"),
    "integers_packed_one_by_one": ("class/label", 3, b"\x0a\x01\x01"),
    "unpacked_floats": ("bbox/xmin", 2, b"\x0d\0\0\0\0"),
    "empty_texts": ("class/text", 1, b"\x0a\0"),
}
"""Key and kind of a feature, and many of these in its list."""
_RECORDS: dict[str, Callable[[int], bytes]] = {
    "nested_groups": lambda size: field(1, _NAME) + b"\x2b" * (size // 2) + b"\x2c" * (size // 2),
    "unknown_fields": lambda size: field(1, _NAME) + b"\x28\x01" * (size // 2),
    "features_one_by_one": lambda size: _many(lambda _: field(1, _NAME), size),
    "keys_of_a_record": lambda size: encode({f"k{number}": 1 for number in range(size // 18)}),
    "equal_boxes": lambda size: with_boxes([(0.1, 0.1, 0.5, 0.5)] * (size // 25), encoded=None),
}
"""One record."""


def _of_pieces(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord": _plain(0) + _many(make, size)}


def _packed(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord.gz": gzip.compress(_many(make, size))}


def _of_values(key: str, kind: int, value: bytes, size: int) -> Files:
    return _feature(key, field(kind, value * (size // len(value))))


def _of_record(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord": frame(make(size))}


def _feature(key: str, value: bytes) -> Files:
    return {"a.tfrecord": frame(field(1, _NAME + entry(f"image/object/{key}", value)))}


for _name, _make in _PIECES.items():
    FAMILIES[_name] = functools.partial(_of_pieces, _make)
for _name, _make in _PACKED.items():
    FAMILIES[_name] = functools.partial(_packed, _make)
for _name, _value in _VALUES.items():
    FAMILIES[_name] = functools.partial(_of_values, *_value)
for _name, _make in _RECORDS.items():
    FAMILIES[_name] = functools.partial(_of_record, _make)


@_family
def members_of_gzip(size: int) -> Files:
    member = gzip.compress(b"", mtime=0)
    return {"a.tfrecord.gz": gzip.compress(_plain(0)) + _many(lambda _: member, size)}


@_family
def lists_of_two_kinds(size: int) -> Files:
    lists = field(1, field(1, b"cat")) + field(3, field(1, b"\1"))
    return _feature("class/text", _many(lambda _: lists, size))


@_family
def long_names(size: int) -> Files:
    names = ["a/" * (size // 6), "a." * (size // 6), "../" * (size // 9), " " * (size // 3) + "/"]
    return {"a.tfrecord": b"".join(frame(encode({"image/filename": one})) for one in names)}


@_family
def masks_of_one_object(size: int) -> Files:
    count = size // 120
    boxes = objects([(0.1, 0.1, 0.5, 0.5)] * count, ["cat"] * count, [1] * count)
    same = {"image/object/mask": [png((4, 4))] * count, "image/object/id": [1] * count}
    return {"a.tfrecord": frame(encode({**features(encoded=None), **boxes, **same}))}


# Label maps


def _classes(texts: list[str], labels: list[int]) -> bytes:
    found = b""
    for start in range(0, len(texts), 50):
        some, numbers = texts[start : start + 50], labels[start : start + 50]
        boxes = [(0.1, 0.1, 0.5, 0.5)] * len(some)
        found += frame(with_boxes(boxes, some, numbers, encoded=None))
    return found


def _items(count: int, name: str = "class{}", display: str = "", number: int = 0) -> bytes:
    shown = f" display_name: '{display}'" if display else ""
    return "".join(
        f"item {{ id: {number or one + 1} name: '{name.format(one)}'{shown.format(one)} }}\n"
        for one in range(count)
    ).encode()


_USES: dict[str, Callable[[int], tuple[str, int]]] = {
    "items_against_texts": lambda number: (f"other{number}", 1),
    "items_against_spellings": lambda number: (f"Class {number}", 1),
    "items_against_ids": lambda number: ("", 10**6 + number),
    "items_with_other_ids": lambda number: (f"class{number}", number + 2),
}
"""Text and id of each object, against as many items."""


def _of_uses(use: Callable[[int], tuple[str, int]], size: int) -> Files:
    count = size // 100
    texts, labels = zip(*map(use, range(count)), strict=True)
    return {"a.tfrecord": _classes([*texts], [*labels]), "label_map.pbtxt": _items(count)}


for _name, _use in _USES.items():
    FAMILIES[_name] = functools.partial(_of_uses, _use)


@_family
def items_against_long_texts(size: int) -> Files:
    count = size // 400
    texts = ["ab" * 100 + f"{number:x}" + "ba" * 50 for number in range(count)]
    few = _items(50, "ba" * 100 + "{}" + "ab" * 50)
    return {"a.tfrecord": _classes(texts, [1] * count), "label_map.pbtxt": few}


@_family
def items_of_one_id(size: int) -> Files:
    pairs = (_items(2, f"{pair}_{{}}", number=pair + 1) for pair in range(size // 70))
    return {"a.tfrecord": _plain(0), "label_map.pbtxt": b"".join(pairs)}


@_family
def items_of_one_name(size: int) -> Files:
    pairs = (_items(2, f"class{pair}") for pair in range(size // 70))
    return {"a.tfrecord": _plain(0), "label_map.pbtxt": b"".join(pairs)}


@_family
def items_of_one_display_name(size: int) -> Files:
    count = size // 120
    items = _items(count, "name{}", "class{}") + _items(count, "class{}", "class0", number=1)
    return {"a.tfrecord": _classes(["class1"], [1]), "label_map.pbtxt": items}


@_family
def unknown_fields_of_items(size: int) -> Files:
    text = b"item { id: 1 name: 'cat' }\n" + b"x {}\n" * (size // 5)
    return {"a.tfrecord": _plain(0), "label_map.pbtxt": text}


# Zips

_ENTRIES: dict[str, Sequence[Callable[[int], Item]]] = {
    "shards_of_a_zip": [lambda number: Item(f"{number}.tfrecord", _plain(number))],
    "entries_of_a_zip": [lambda number: Item(f"{number}.txt")],
    "folders_of_a_zip": [lambda number: Item(f"d{number}/e/f/a.tfrecord", _plain(number))],
    "label_maps_of_a_zip": [
        lambda number: Item(f"{number}.tfrecord", _plain(number)),
        lambda number: Item(f"label_map{number}.pbtxt", b"item { id: 1 name: 'cat' }"),
    ],
    "incomplete_sets_of_a_zip": [lambda number: Item(f"a{number}-00000-of-99999", _plain(number))],
    "incomplete_sets_in_folders": [
        lambda number: Item(f"d{number}/a-00000-of-99999", _plain(number))
    ],
    "entries_of_one_name": [lambda _: Item("a.tfrecord", _plain(0))],
}


def _zip(items: Sequence[Callable[[int], Item]], size: int) -> Files:
    count = size // (160 * len(items))
    return {"a.zip": forge(*(make(number) for make in items for number in range(count)))}


for _name, _entries in _ENTRIES.items():
    FAMILIES[_name] = functools.partial(_zip, _entries)


@_family
def deep_folders_of_a_zip(size: int) -> Files:
    return {"a.zip": forge(Item("d/" * (size // 4) + "a.tfrecord", _plain(0)))}


@_family
def entries_at_one_place(size: int) -> Files:
    one = Item("a.tfrecord", _plain(0), start=0)
    return {"a.zip": forge(Item("a.tfrecord", _plain(0)), *[one] * (size // 60))}


# CVAT's XML


def _xml(*parts: str) -> Files:
    head = "<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>"
    return {"a.xml": f"{head}{''.join(parts)}</annotations>".encode()}


def _image(name: object = "a.jpg", inside: str = "", subset: object = "") -> str:
    head = f'<image id="0" name="{name}" subset="{subset}" width="4" height="4">'
    return f"{head}{inside}</image>"


_BOX = '<box label="cat" xtl="0" ytl="0" xbr="3" ybr="3"/>'


XML_FAMILIES: dict[str, Family] = {
    "elements_of_the_root": lambda size: _xml(_image(), "<a/>" * (size // 4)),
    "elements_of_an_image": lambda size: _xml(_image(inside="<a/>" * (size // 4))),
    "boxes_of_an_image": lambda size: _xml(_image(inside=_BOX * (size // len(_BOX)))),
    "images_of_a_document": lambda size: _xml(*map(_image, range(size // 60))),
    "subsets_of_a_document": lambda size: _xml(
        *(_image(subset=f"s{number}") for number in range(size // 70))
    ),
    "images_of_one_name": lambda size: _xml(_image() * (size // 60)),
}
"""Annotations of CVAT."""

"""Inputs that may need more work than their length, each in any size, and a count of that work.

A family takes a size in bytes and returns files by name. The work is counted in steps of Python and
in bytes for loops in C; no time is measured.
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
_BYTES_PER_STEP = 16


def write_family(folder: Path, family: Family, size: int) -> Path:
    """Write a family's files, and return the path to read."""
    folder.mkdir()
    files = family(size)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files)) if len(files) == 1 else folder


def growths(do: Callable[[Path], object], folder: Path, family: Family, size: int) -> list[int]:
    """Return the additional steps for an input of the double size, and of the double size again.

    The second number is twice the first one if the work is linear; constant work does not count.
    """
    do(write_family(folder / "first", family, size))  # fills caches
    steps = []
    for number in (1, 2, 4):
        path = write_family(folder / str(number), family, number * size)
        with _counted() as count:
            do(path)
        steps.append(count[0])
    return [steps[1] - steps[0], steps[2] - steps[1]]


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Count the lines of Python that run in this thread, and the bytes of loops in C."""
    count = [0]
    refill = ReadBuffer.refill

    def trace(*_: object) -> Any:
        count[0] += 1
        return trace

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(data: Any, *others: Any) -> Any:
            count[0] += len(data) // _BYTES_PER_STEP
            return function(data, *others)

        return counted

    def counted_walk(buffer: Any, **options: Any) -> FoundRecords:
        # The kernel stops at the first incomplete or damaged record.
        found = find_records(buffer, **options)
        end = found.position
        if found.end is WalkEnd.DATA_CHECKSUM:
            end += int.from_bytes(bytes(buffer[end : end + 8]), "little")
        count[0] += end // _BYTES_PER_STEP + 1
        return found

    def counted_refill(buffer: ReadBuffer, position: int, wanted: int = 0) -> bool:
        count[0] += (buffer.have - position) // _BYTES_PER_STEP
        return refill(buffer, position, wanted)

    before = sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (("tfod.tfrecord.framing", "find_headers"), ("zlib", "crc32")):
            patch.setattr(f"{module}.{name}", counting(getattr(sys.modules[module], name)))
        patch.setattr("tfod.tfrecord.reader.find_records", counted_walk)
        patch.setattr(ReadBuffer, "refill", counted_refill)
        sys.settrace(trace)
        try:
            yield count
        finally:
            sys.settrace(before)


def _many(make: Callable[[int], bytes], size: int) -> bytes:
    """Return pieces with this size in total."""
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
_CAT = b"item { id: 1 name: 'cat' }"
_BOX = (0.1, 0.1, 0.5, 0.5)
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
"""Pieces after a valid record."""
_PACKED: dict[str, Callable[[int], bytes]] = {
    # The size is unknown, and each header promises more bytes than follow.
    "headers_in_gzip": lambda _: _header(200_000_000),
    "headers_between_records": lambda number: _header(200_000_000 + number) + frame(b"\n\0"),
}
"""Pieces of a gzip."""
_VALUES: dict[str, tuple[str, int, bytes]] = {
    "unpacked_integers": ("class/label", 3, b"\x08\x01"),
    "integers_packed_one_by_one": ("class/label", 3, b"\x0a\x01\x01"),
    "unpacked_floats": ("bbox/xmin", 2, b"\x0d\0\0\0\0"),
    "empty_texts": ("class/text", 1, b"\x0a\0"),
}
"""The key and kind of a feature, and a value that is repeated in its list."""
_RECORDS: dict[str, Callable[[int], bytes]] = {
    "nested_groups": lambda size: field(1, _NAME) + b"\x2b" * (size // 2) + b"\x2c" * (size // 2),
    "unknown_fields": lambda size: field(1, _NAME) + b"\x28\x01" * (size // 2),
    "features_one_by_one": lambda size: _many(lambda _: field(1, _NAME), size),
    "keys_of_a_record": lambda size: encode({f"k{number}": 1 for number in range(size // 18)}),
    "equal_boxes": lambda size: with_boxes([_BOX] * (size // 25), encoded=None),
    "masks_of_one_object": lambda size: encode(
        features(encoded=None)
        | objects([_BOX] * (size // 120), ["cat"] * (size // 120), [1] * (size // 120))
        | {"image/object/mask": [png((4, 4))] * (size // 120)}
        | {"image/object/id": [1] * (size // 120)}
    ),
}
_USES: dict[str, Callable[[int], tuple[str, int]]] = {
    "items_against_texts": lambda number: (f"other{number}", 1),
    "items_against_spellings": lambda number: (f"Class {number}", 1),
    "items_against_ids": lambda number: ("", 10**6 + number),
    "items_with_other_ids": lambda number: (f"class{number}", number + 2),
}
"""The text and id of each object, for a label map of as many items."""
_ENTRIES: dict[str, Sequence[Callable[[int], Item]]] = {
    "shards_of_a_zip": [lambda number: Item(f"{number}.tfrecord", _plain(number))],
    "entries_of_a_zip": [lambda number: Item(f"{number}.txt")],
    "folders_of_a_zip": [lambda number: Item(f"d{number}/e/f/a.tfrecord", _plain(number))],
    "label_maps_of_a_zip": [
        lambda number: Item(f"{number}.tfrecord", _plain(number)),
        lambda number: Item(f"label_map{number}.pbtxt", _CAT),
    ],
    "incomplete_sets_of_a_zip": [lambda number: Item(f"a{number}-00000-of-99999", _plain(number))],
    "incomplete_sets_in_folders": [
        lambda number: Item(f"d{number}/a-00000-of-99999", _plain(number))
    ],
    "entries_of_one_name": [lambda _: Item("a.tfrecord", _plain(0))],
}


def _of_pieces(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord": _plain(0) + _many(make, size)}


def _of_packed(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord.gz": gzip.compress(_many(make, size))}


def _of_values(value: tuple[str, int, bytes], size: int) -> Files:
    key, kind, data = value
    return _feature(key, field(kind, data * (size // len(data))))


def _of_record(make: Callable[[int], bytes], size: int) -> Files:
    return {"a.tfrecord": frame(make(size))}


def _feature(key: str, value: bytes) -> Files:
    return {"a.tfrecord": frame(field(1, _NAME + entry(f"image/object/{key}", value)))}


def _classes(texts: Sequence[str], labels: Sequence[int]) -> bytes:
    found = b""
    for start in range(0, len(texts), 50):
        batch = texts[start : start + 50], labels[start : start + 50]
        found += frame(with_boxes([_BOX] * len(batch[0]), *batch, encoded=None))
    return found


def _items(count: int, name: str = "class{}", display: str = "", number: int = 0) -> bytes:
    shown = f" display_name: '{display}'" if display else ""
    return "".join(
        f"item {{ id: {number or place + 1} name: '{name.format(place)}'{shown.format(place)} }}\n"
        for place in range(count)
    ).encode()


def _of_uses(use: Callable[[int], tuple[str, int]], size: int) -> Files:
    count = size // 100
    texts, labels = zip(*map(use, range(count)), strict=True)
    return {"a.tfrecord": _classes(texts, labels), "label_map.pbtxt": _items(count)}


def _of_entries(makers: Sequence[Callable[[int], Item]], size: int) -> Files:
    count = size // (160 * len(makers))
    return {"a.zip": forge(*(make(number) for make in makers for number in range(count)))}


def _long_names(size: int) -> Files:
    names = ["a/" * (size // 6), "a." * (size // 6), "../" * (size // 9), " " * (size // 3) + "/"]
    return {"a.tfrecord": b"".join(frame(encode({"image/filename": name})) for name in names)}


def _long_texts(size: int) -> Files:
    texts = ["ab" * 100 + f"{number:x}" + "ba" * 50 for number in range(size // 400)]
    items = _items(50, "ba" * 100 + "{}" + "ab" * 50)
    return {"a.tfrecord": _classes(texts, [1] * len(texts)), "label_map.pbtxt": items}


def _label_map(items: bytes, shard: bytes = b"") -> Files:
    return {"a.tfrecord": shard or _plain(0), "label_map.pbtxt": items}


def _pairs(make: Callable[[int], bytes], size: int) -> Files:
    return _label_map(b"".join(make(pair) for pair in range(size // 70)))


def _display_names(size: int) -> Files:
    count = size // 120
    items = _items(count, "name{}", "class{}") + _items(count, "class{}", "class0", number=1)
    return _label_map(items, _classes(["class1"], [1]))


FAMILIES: dict[str, Family] = {
    name: functools.partial(make_files, value)
    for values, make_files in (
        (_PIECES, _of_pieces),
        (_PACKED, _of_packed),
        (_VALUES, _of_values),
        (_RECORDS, _of_record),
        (_USES, _of_uses),
        (_ENTRIES, _of_entries),
    )
    for name, value in values.items()  # type: ignore[attr-defined]
} | {
    "members_of_gzip": lambda size: {
        "a.tfrecord.gz": gzip.compress(_plain(0))
        + _many(lambda _: gzip.compress(b"", mtime=0), size)
    },
    "lists_of_two_kinds": lambda size: _feature(
        "class/text", _many(lambda _: field(1, field(1, b"cat")) + field(3, field(1, b"\1")), size)
    ),
    "long_names": _long_names,
    "items_against_long_texts": _long_texts,
    "items_of_one_id": functools.partial(
        _pairs, lambda pair: _items(2, f"{pair}_{{}}", number=pair + 1)
    ),
    "items_of_one_name": functools.partial(_pairs, lambda pair: _items(2, f"class{pair}")),
    "items_of_one_display_name": _display_names,
    "unknown_fields_of_items": lambda size: _label_map(_CAT + b"\n" + b"x {}\n" * (size // 5)),
    "deep_folders_of_a_zip": lambda size: {
        "a.zip": forge(Item("d/" * (size // 4) + "a.tfrecord", _plain(0)))
    },
    "entries_at_one_place": lambda size: {
        "a.zip": forge(
            Item("a.tfrecord", _plain(0)), *[Item("a.tfrecord", _plain(0), start=0)] * (size // 60)
        )
    },
}
"""Shards, with label maps, and zips of them."""


def _xml(*parts: str) -> Files:
    head = "<annotations><meta><task><labels><label><name>cat</name></label></labels></task></meta>"
    return {"a.xml": f"{head}{''.join(parts)}</annotations>".encode()}


def _image(name: object = "a.jpg", inside: str = "", subset: object = "") -> str:
    head = f'<image id="0" name="{name}" subset="{subset}" width="4" height="4">'
    return f"{head}{inside}</image>"


_XML_BOX = '<box label="cat" xtl="0" ytl="0" xbr="3" ybr="3"/>'
XML_FAMILIES: dict[str, Family] = {
    "elements_of_the_root": lambda size: _xml(_image(), "<a/>" * (size // 4)),
    "elements_of_an_image": lambda size: _xml(_image(inside="<a/>" * (size // 4))),
    "boxes_of_an_image": lambda size: _xml(_image(inside=_XML_BOX * (size // len(_XML_BOX)))),
    "images_of_a_document": lambda size: _xml(*map(_image, range(size // 60))),
    "subsets_of_a_document": lambda size: _xml(
        *(_image(subset=f"s{number}") for number in range(size // 70))
    ),
    "images_of_one_name": lambda size: _xml(_image() * (size // 60)),
}
"""Annotations of CVAT."""

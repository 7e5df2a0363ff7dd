"""Mutants of classes and label maps: LAB. Each is a folder, with or without a label map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import LABEL_MAP, TF, folder, other, record, shard
from tests.zip_forge import Item, forge

SHARD, MAP = "default.tfrecord", "label_map.pbtxt"
IN_MAP = {"at": MAP, "options": TF}
IN_RECORD = {"at": SHARD, "record": 0, "options": TF}


def mapped(text: str | bytes) -> dict[str, bytes]:
    """The sound shard with another label map."""
    data = text if isinstance(text, bytes) else text.encode()
    return folder(record(), other(), label_map=data)


def used(text: list[str] | None, label: list[int] | None, label_map: bytes = LABEL_MAP) -> dict:
    """A record with other classes of its two boxes, and a sound record."""
    return folder(record(text=text, label=label), other(), label_map=label_map)


def numbered(label: list[int], label_map: bytes = LABEL_MAP) -> dict:
    """All records with ids only; these are the first one's."""
    rest = record("b.png", text=None)
    return folder(record(text=None, label=label), rest, label_map=label_map)


@mutants_of("LAB001")
def no_label_map() -> Iterator[Mutant]:
    alone = folder(record(), other(), label_map=None)
    yield fail("nothing-beside", alone, at=SHARD, options=TF)
    candidates = {"cats_label_map.pbtxt": LABEL_MAP, "dogs_label_map.pbtxt": LABEL_MAP}
    yield fail("two-that-fit-equally", {**alone, **candidates}, at=SHARD, options=TF)
    yield near("one-of-any-name", {**alone, "objects.pbtxt": LABEL_MAP}, options=TF)
    below = {"data": alone, "label_map.pbtxt": LABEL_MAP}
    yield near("one-folder-up", below, options=TF)
    empty = dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label"))
    bare = folder(record(**empty), label_map=None)
    yield near("nothing-to-map", bare, options=TF)


@mutants_of("LAB002")
def unreadable_map() -> Iterator[Mutant]:
    yield fail("quote-left-open", mapped("item { id: 1 name: 'cat }"), **IN_MAP)
    yield fail("html-page", mapped("<!DOCTYPE html><html></html>"), **IN_MAP)
    odd = "# classes\nitem < id: 1, name: \"c\" 'at' >; item: { name: 'dog'; id: 0x2 }\n"
    yield near("odd-but-legal", mapped(odd), options=TF)


@mutants_of("LAB003")
def duplicate_ids() -> Iterator[Mutant]:
    twice = LABEL_MAP + b"item { id: 2 name: 'hound' }"
    yield fail("one-id-for-two", mapped(twice), "LAB013", **IN_MAP)
    yield near("next-id", mapped(twice.replace(b"2 name: 'h", b"3 name: 'h")), "LAB013", options=TF)


@mutants_of("LAB004")
def duplicate_names() -> Iterator[Mutant]:
    twice = LABEL_MAP + b"item { id: 3 name: 'dog' }"
    yield fail("one-name-for-two", mapped(twice), **IN_MAP)
    yield near("but-for-case", mapped(twice.replace(b"3 name: 'd", b"3 name: 'D")), "LAB013",
               "LAB016", options=TF)  # fmt: skip


@mutants_of("LAB005")
def id_zero() -> Iterator[Mutant]:
    yield fail("none-is-0", mapped(b"item { id: 0 name: 'none' }" + LABEL_MAP), **IN_MAP)
    yield fail("no-id", mapped(b"item { name: 'none' }" + LABEL_MAP), **IN_MAP)
    from_0 = LABEL_MAP.replace(b"1", b"0").replace(b"2", b"1")
    yield fail("counts-from-0", used(["cat", "dog"], [0, 1], from_0), "LAB008", **IN_MAP)
    yield near("background-is-0", mapped(b"item { id: 0 name: 'background' }" + LABEL_MAP),
               options=TF)  # fmt: skip


@mutants_of("LAB006")
def unknown_text() -> Iterator[Mutant]:
    yield fail("another-animal", used(["cat", "bird"], [1, 2]), **IN_RECORD)
    boats = record(text=["ship", "ferry"])
    zipped = forge(Item(SHARD, shard(record(text=["cat", "bird"]))), Item(MAP, LABEL_MAP))
    yield fail("in-a-zip", {"anno.zip": zipped}, "LAB013", at=f"anno.zip:{SHARD}", options=TF)
    foreign = folder(boats, record("b.png", text=["ship", "ferry"]))
    yield fail("map-of-another-dataset", foreign, "LAB013", **IN_RECORD)
    display = LABEL_MAP.replace(b"'dog'", b"'/m/0bt9lr' display_name: 'dog'")
    yield near("display-name", used(["cat", "dog"], [1, 2], display), options=TF)


@mutants_of("LAB007")
def unknown_id() -> Iterator[Mutant]:
    yield fail("next-id", numbered([1, 3]), **IN_RECORD)
    yield near("last-id", numbered([1, 2]), options=TF)
    yield near("beside-a-text", used(["cat", "dog"], [1, 3]), "LAB008", options=TF)


@mutants_of("LAB008")
def text_and_id_disagree() -> Iterator[Mutant]:
    yield fail("dog-is-1", used(["cat", "dog"], [1, 1]), **IN_RECORD)
    two = LABEL_MAP + b"item { id: 3 name: 'hound' display_name: 'dog' }"
    yield near("either-of-two", used(["cat", "dog"], [1, 3], two), options=TF)


@mutants_of("LAB009")
def not_positive() -> Iterator[Mutant]:
    yield fail("minus-1", numbered([1, -1]), **IN_RECORD)
    yield near("zero-beside-a-text", used(["cat", "dog"], [1, 0]), "LAB008", options=TF)
    background = b"item { id: 0 name: 'background' }" + LABEL_MAP
    yield near("background", numbered([1, 0], background), "LAB017", options=TF)


@mutants_of("LAB010")
def empty_text() -> Iterator[Mutant]:
    yield fail("no-letters", used(["cat", ""], [1, 2]), **IN_RECORD)
    yield fail("a-blank", used(["cat", " "], [1, 2]), "LAB006", **IN_RECORD)
    yield near("no-texts", used(None, [1, 2]), options=TF)
    dot = b"item { id: 3 name: '.' }"
    yield near("a-dot", used(["cat", "."], [1, 3], LABEL_MAP + dot), options=TF)


@mutants_of("LAB011")
def nearly_in_map() -> Iterator[Mutant]:
    both = record("b.png", text=["cat", "Dog"])
    upper = folder(record(text=["cat", "Dog"]), both)
    yield fail("capital-letter", upper, "LAB013", **IN_RECORD)
    spaced = folder(record(text=["cat", "dog "]), record("b.png", text=["cat", "dog "]))
    yield fail("space-behind", spaced, "LAB013", **IN_RECORD)
    display = LABEL_MAP.replace(b"'dog'", b"'dog' display_name: 'Dog'")
    yield near("capital-in-the-map", {**upper, MAP: display}, options=TF)


@mutants_of("LAB012")
def counts_from_zero() -> Iterator[Mutant]:
    zero = folder(record(text=None, label=[0, 1]), record("b.png", text=None, label=[0, 1]))
    yield fail("0-and-1", zero, "LAB009", "LAB013", at=SHARD, options=TF)
    gap = folder(record(text=None, label=[0, 2]), record("b.png", text=None, label=[0, 2]))
    yield near("0-and-2", gap, "LAB009", "LAB013", options=TF)
    texts = folder(record(label=[0, 1]), record("b.png", label=[0, 1]))
    yield near("beside-texts", texts, "LAB008", options=TF)


@mutants_of("LAB013")
def unused_class() -> Iterator[Mutant]:
    yield fail("third-class", mapped(LABEL_MAP + b"item { id: 3 name: 'owl' }"), **IN_MAP)
    owl = record("b.png", text=["cat", "owl"], label=[1, 3])
    files = folder(record(), owl, label_map=LABEL_MAP + b"item { id: 3 name: 'owl' }")
    yield near("used-once", files, options=TF)


@mutants_of("LAB014")
def no_class() -> Iterator[Mutant]:
    yield fail("neither-text-nor-id", used(None, None), **IN_RECORD)
    yield fail("empty-texts", used(["cat", ""], None), "LAB010", "LAB020", **IN_RECORD)
    yield near("text-alone", used(["cat", "dog"], None), "LAB020", options=TF)
    yield near("id-alone", used(None, [1, 2]), options=TF)


@mutants_of("LAB015")
def deviations() -> Iterator[Mutant]:
    curly = LABEL_MAP.decode().replace("'cat'", "\u201ccat\u201d")
    yield fail("curly-quotes", mapped(curly), **IN_MAP)
    yield fail("no-quotes", mapped(LABEL_MAP.replace(b"'", b"")), **IN_MAP)
    yield fail("no-item", mapped(LABEL_MAP.replace(b"item {", b"{")), **IN_MAP)
    yield fail("byte-order-mark", mapped(b"\xef\xbb\xbf" + LABEL_MAP), **IN_MAP)
    yield fail("own-field", mapped(LABEL_MAP.replace(b"name:", b"colour: 'red' name:")), **IN_MAP)
    yield near("straight-quotes", mapped(LABEL_MAP.replace(b"'", b'"')), options=TF)
    within = LABEL_MAP.decode() + "item { id: 3 name: 'a \u201csign\u201d' }"
    yield near("curly-quotes-in-a-name", mapped(within), "LAB013", options=TF)


@mutants_of("LAB016")
def nearly_equal_texts() -> Iterator[Mutant]:
    pair = record(text=["traffic light", "traffic_light"], label=None)
    yield fail(
        "space-and-underscore",
        folder(pair, label_map=None),
        "LAB001",
        "LAB020",
        at=SHARD,
        options=TF,
    )
    both = b"item { id: 1 name: 'traffic light' } item { id: 2 name: 'traffic_light' }"
    yield fail("both-in-the-map", folder(pair, label_map=both), "LAB020", at=SHARD, options=TF)
    spaced = LABEL_MAP + b"item { id: 3 name: 'Cat' } item { id: 4 name: 'c at' }"
    yield fail("two-more-in-the-map", mapped(spaced), "LAB013", at=SHARD, options=TF)
    one = b"item { id: 1 name: 'traffic_light' display_name: 'traffic light' }"
    yield near("names-of-one-class", folder(pair, label_map=one), "LAB020", options=TF)
    letters = b"item { id: 1 name: 'a' } item { id: 2 name: 'A' }"
    cases = record(text=["a", "A"], label=None)
    yield near("letters-in-both-cases", folder(cases, label_map=letters), "LAB020", options=TF)
    signs = b"item { id: 1 name: 'R1-1' } item { id: 2 name: 'R11' }"
    numbers = record(text=["R1-1", "R11"], label=None)
    yield near("hyphen-between-digits", folder(numbers, label_map=signs), "LAB020", options=TF)
    plural = record(text=["traffic light", "traffic lights"], label=None)
    yield near("plural", folder(plural, label_map=None), "LAB001", "LAB020", options=TF)


@mutants_of("LAB017")
def not_positive_beside_a_text() -> Iterator[Mutant]:
    zero = folder(record(label=[0, 1]), label_map=None)
    yield fail("zero", zero, "LAB001", at=SHARD, record=0, options=TF)
    minus = used(["cat", "bird"], [1, -1])
    yield fail("minus-1-of-an-unknown-text", minus, "LAB006", **IN_RECORD)
    background = b"item { id: 0 name: 'background' }" + LABEL_MAP
    yield fail("background", used(["cat", "background"], None, background), "LAB020", **IN_RECORD)
    yield near("one", folder(record(label=[1, 2]), label_map=None), "LAB001", options=TF)
    yield near("text-of-the-map", used(["cat", "dog"], [1, 0]), "LAB008", options=TF)


@mutants_of("LAB018")
def unexplained_id() -> Iterator[Mutant]:
    ids = folder(record(text=None), record("b.png", text=None), label_map=None)
    yield fail("no-map", ids, "LAB001", **IN_RECORD)
    yield near("map-beside", {**ids, MAP: LABEL_MAP}, options=TF)
    texts = folder(record(label=None), record("b.png", label=None), label_map=None)
    yield near("texts", texts, "LAB001", "LAB020", options=TF)


@mutants_of("LAB019")
def uneven_image_classes() -> Iterator[Mutant]:
    def classes(texts: int, labels: int) -> bytes:
        named = {"image/class/text": ["cat"] * texts, "image/class/label": [1] * labels}
        return folder(record(**named), label_map=LABEL_MAP)

    def sure(**more: Any) -> bytes:
        return folder(record(**{"image/class/confidence": [0.5]}, **more))

    yield fail("one-label-less", classes(2, 1), at=SHARD, record=0, options=TF)
    yield fail("sure-of-no-class", sure(), at=SHARD, record=0, options=TF)
    yield near("as-many", classes(2, 2), options=TF)
    yield near("no-labels", classes(2, 0), options=TF)
    yield near("sure-of-one", sure(**{"image/class/label": [1]}), options=TF)


@mutants_of("LAB020")
def text_alone() -> Iterator[Mutant]:
    yield fail("no-ids", folder(record(label=None)), **IN_RECORD)
    yield near("one-id-less", folder(record(label=[1])), "BOX001", options=TF)
    yield near("ids", folder(record()), options=TF)

"""Mutants of classes and label maps: LAB. Each is a folder, with or without a label map."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.mutants import registry
from tests.mutants.registry import Mutant
from tests.mutants.sound import LABEL_MAP, TF, folder, other, record, shard
from tests.zip_forge import Item, forge

SHARD, MAP = "default.tfrecord", "label_map.pbtxt"
fail_in_map = partial(registry.fail, at=MAP, options=TF)
fail = partial(registry.fail, at=SHARD, record=0, options=TF)
fail_in_shard = partial(registry.fail, at=SHARD, options=TF)
near = partial(registry.near, options=TF)
OWL = b"item { id: 3 name: 'owl' }"
BACKGROUND = b"item { id: 0 name: 'background' }"
NO_OBJECTS = dict.fromkeys(("xmin", "ymin", "xmax", "ymax", "text", "label"))
SIGNS = b"item { id: 1 name: 'R1-1' } item { id: 2 name: 'R11' }"
LIGHTS = ("traffic light", "traffic_light")
LIGHT_MAP = b"item { id: 1 name: 'traffic light' } item { id: 2 name: 'traffic_light' }"
ONE_LIGHT = b"item { id: 1 name: 'traffic_light' display_name: 'traffic light' }"


def mapped(text: str | bytes) -> dict[str, bytes]:
    """The valid shard with another label map."""
    data = text if isinstance(text, bytes) else text.encode()
    return folder(record(), other(), label_map=data)


def used(text: list[str] | None, label: list[int] | None, label_map: bytes = LABEL_MAP) -> dict:
    """A record with other classes of its two boxes, and a valid record."""
    return folder(record(text=text, label=label), other(), label_map=label_map)


def both(*classes: Any, label_map: bytes | None = LABEL_MAP) -> dict:
    """Two records with the same classes, which are ids or texts."""
    changes = {"label": classes, "text": None} if 0 in classes else {"text": classes}
    return folder(record(**changes), record("b.png", **changes), label_map=label_map)


def numbered(label: list[int], label_map: bytes = LABEL_MAP) -> dict:
    """Two records with only ids; these are the first one's."""
    rest = record("b.png", text=None)
    return folder(record(text=None, label=label), rest, label_map=label_map)


def texts(*text: str, label_map: bytes | None = None) -> dict:
    """A record with these class texts."""
    return folder(record(text=list(text), label=None), label_map=label_map)


def whole(**classes: Any) -> dict:
    """A record with these classes of the whole image."""
    return folder(record(**{f"image/class/{key}": value for key, value in classes.items()}))


def mutants() -> list[Mutant]:
    lone = folder(record(), other(), label_map=None)
    two_maps = {"cats_label_map.pbtxt": LABEL_MAP, "dogs_label_map.pbtxt": LABEL_MAP}
    odd = "# classes\nitem < id: 1, name: \"c\" 'at' >; item: { name: 'dog'; id: 0x2 }\n"
    curly = LABEL_MAP.decode().replace("'cat'", "\u201ccat\u201d")
    curly_within = LABEL_MAP.decode() + "item { id: 3 name: 'a \u201csign\u201d' }"
    upper, with_0 = LABEL_MAP + OWL.replace(b"owl", b"Dog"), BACKGROUND + LABEL_MAP
    none_0 = BACKGROUND.replace(b"background", b"none")
    from_0 = LABEL_MAP.replace(b"1", b"0").replace(b"2", b"1")
    bird = forge(Item(SHARD, shard(record(text=["cat", "bird"]))), Item(MAP, LABEL_MAP))
    displayed = LABEL_MAP.replace(b"'dog'", b"'/m/0bt9lr' display_name: 'dog'")
    capital = LABEL_MAP.replace(b"'dog'", b"'dog' display_name: 'Dog'")
    hound = LABEL_MAP + b"item { id: 3 name: 'hound' display_name: 'dog' }"
    own_field = LABEL_MAP.replace(b"name:", b"colour: 'red' name:")
    cats = LABEL_MAP + b"item { id: 3 name: 'Cat' } item { id: 4 name: 'c at' }"
    letters = b"item { id: 1 name: 'a' } item { id: 2 name: 'A' }"
    owl = folder(record(), record("b.png", text=["cat", "owl"], label=[1, 3]))
    ids = folder(record(text=None), record("b.png", text=None), label_map=None)
    no_ids = folder(record(label=None), record("b.png", label=None), label_map=None)
    beside_texts = folder(record(label=[0, 1]), record("b.png", label=[0, 1]))
    return [
        fail_in_shard("LAB001-nothing-beside", lone),
        fail_in_shard("LAB001-two-that-fit-equally", {**lone, **two_maps}),
        near("LAB001-one-of-any-name", {**lone, "objects.pbtxt": LABEL_MAP}),
        near("LAB001-one-folder-up", {"data": lone, MAP: LABEL_MAP}),
        near("LAB001-nothing-to-map", folder(record(**NO_OBJECTS), label_map=None)),
        fail_in_map("LAB002-quote-left-open", mapped("item { id: 1 name: 'cat }")),
        fail_in_map("LAB002-html-page", mapped("<!DOCTYPE html><html></html>")),
        near("LAB002-odd-but-legal", mapped(odd)),
        fail_in_map("LAB003-one-id-for-two", mapped(LABEL_MAP + OWL.replace(b"3", b"2")), "LAB013"),
        near("LAB003-next-id", mapped(LABEL_MAP + OWL), "LAB013"),
        fail_in_map("LAB004-one-name-for-two", mapped(LABEL_MAP + OWL.replace(b"owl", b"dog"))),
        near("LAB004-but-for-case", mapped(upper), "LAB013", "LAB016"),
        fail_in_map("LAB005-none-is-0", mapped(none_0 + LABEL_MAP)),
        fail_in_map("LAB005-no-id", mapped(b"item { name: 'none' }" + LABEL_MAP)),
        fail_in_map("LAB005-counts-from-0", used(["cat", "dog"], [0, 1], from_0), "LAB008"),
        near("LAB005-background-is-0", mapped(with_0)),
        fail("LAB006-another-animal", used(["cat", "bird"], [1, 2])),
        fail_in_shard("LAB006-in-a-zip", {"anno.zip": bird}, "LAB013", at=f"anno.zip:{SHARD}"),
        fail("LAB006-map-of-another-dataset", both("ship", "ferry"), "LAB013"),
        near("LAB006-display-name", used(["cat", "dog"], [1, 2], displayed)),
        fail("LAB007-next-id", numbered([1, 3])),
        near("LAB007-last-id", numbered([1, 2])),
        near("LAB007-beside-a-text", used(["cat", "dog"], [1, 3]), "LAB008"),
        fail("LAB008-dog-is-1", used(["cat", "dog"], [1, 1])),
        near("LAB008-either-of-two", used(["cat", "dog"], [1, 3], hound)),
        fail("LAB009-minus-1", numbered([1, -1])),
        near("LAB009-zero-beside-a-text", used(["cat", "dog"], [1, 0]), "LAB008"),
        near("LAB009-background", numbered([1, 0], with_0), "LAB017"),
        fail("LAB010-no-letters", used(["cat", ""], [1, 2])),
        fail("LAB010-a-blank", used(["cat", " "], [1, 2]), "LAB006"),
        near("LAB010-no-texts", used(None, [1, 2])),
        near("LAB010-a-dot", used(["cat", "."], [1, 3], LABEL_MAP + OWL.replace(b"owl", b"."))),
        fail("LAB011-capital-letter", both("cat", "Dog"), "LAB013"),
        fail("LAB011-space-behind", both("cat", "dog "), "LAB013"),
        near("LAB011-capital-in-the-map", both("cat", "Dog", label_map=capital)),
        fail_in_shard("LAB012-0-and-1", both(0, 1), "LAB009", "LAB013"),
        near("LAB012-0-and-2", both(0, 2), "LAB009", "LAB013"),
        near("LAB012-beside-texts", beside_texts, "LAB008"),
        fail_in_map("LAB013-third-class", mapped(LABEL_MAP + OWL)),
        near("LAB013-used-once", {**owl, MAP: LABEL_MAP + OWL}),
        fail("LAB014-neither-text-nor-id", used(None, None)),
        fail("LAB014-empty-texts", used(["cat", ""], None), "LAB010", "LAB020"),
        near("LAB014-text-alone", used(["cat", "dog"], None), "LAB020"),
        near("LAB014-id-alone", used(None, [1, 2])),
        fail_in_map("LAB015-curly-quotes", mapped(curly)),
        fail_in_map("LAB015-no-quotes", mapped(LABEL_MAP.replace(b"'", b""))),
        fail_in_map("LAB015-no-item", mapped(LABEL_MAP.replace(b"item {", b"{"))),
        fail_in_map("LAB015-byte-order-mark", mapped(b"\xef\xbb\xbf" + LABEL_MAP)),
        fail_in_map("LAB015-own-field", mapped(own_field)),
        near("LAB015-straight-quotes", mapped(LABEL_MAP.replace(b"'", b'"'))),
        near("LAB015-curly-quotes-in-a-name", mapped(curly_within), "LAB013"),
        fail_in_shard("LAB016-space-and-underscore", texts(*LIGHTS), "LAB001", "LAB020"),
        fail_in_shard("LAB016-both-in-the-map", texts(*LIGHTS, label_map=LIGHT_MAP), "LAB020"),
        fail_in_shard("LAB016-two-more-in-the-map", mapped(cats), "LAB013"),
        near("LAB016-names-of-one-class", texts(*LIGHTS, label_map=ONE_LIGHT), "LAB020"),
        near("LAB016-letters-in-both-cases", texts("a", "A", label_map=letters), "LAB020"),
        near("LAB016-hyphen-between-digits", texts("R1-1", "R11", label_map=SIGNS), "LAB020"),
        near("LAB016-plural", texts("traffic light", "traffic lights"), "LAB001", "LAB020"),
        fail("LAB017-zero", folder(record(label=[0, 1]), label_map=None), "LAB001"),
        fail("LAB017-minus-1-of-an-unknown-text", used(["cat", "bird"], [1, -1]), "LAB006"),
        fail("LAB017-background", used(["cat", "background"], None, with_0), "LAB020"),
        near("LAB017-one", folder(record(label=[1, 2]), label_map=None), "LAB001"),
        near("LAB017-text-of-the-map", used(["cat", "dog"], [1, 0]), "LAB008"),
        fail("LAB018-no-map", ids, "LAB001"),
        near("LAB018-map-beside", {**ids, MAP: LABEL_MAP}),
        near("LAB018-texts", no_ids, "LAB001", "LAB020"),
        fail("LAB019-one-label-less", whole(text=["cat"] * 2, label=[1])),
        fail("LAB019-sure-of-no-class", whole(confidence=[0.5])),
        near("LAB019-as-many", whole(text=["cat"] * 2, label=[1] * 2)),
        near("LAB019-no-labels", whole(text=["cat"] * 2, label=[])),
        near("LAB019-sure-of-one", whole(confidence=[0.5], label=[1])),
        fail("LAB020-no-ids", folder(record(label=None))),
        near("LAB020-one-id-less", folder(record(label=[1])), "BOX001"),
        near("LAB020-ids", folder(record())),
    ]

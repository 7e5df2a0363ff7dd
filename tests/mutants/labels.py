"""Mutants of classes and label maps: LAB. Each is a folder, with or without a label map."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.mutants import registry
from tests.mutants.registry import Table
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


def mutants() -> Table:
    """Return the mutants of each rule."""
    lone = folder(record(), other(), label_map=None)
    two_maps = {"cats_label_map.pbtxt": LABEL_MAP, "dogs_label_map.pbtxt": LABEL_MAP}
    odd = "# classes\nitem < id: 1, name: \"c\" 'at' >; item: { name: 'dog'; id: 0x2 }\n"
    curly = LABEL_MAP.decode().replace("'cat'", "\u201ccat\u201d")
    curly_within = LABEL_MAP.decode() + "item { id: 3 name: 'a \u201csign\u201d' }"
    upper, with_0 = LABEL_MAP + OWL.replace(b"owl", b"Dog"), BACKGROUND + LABEL_MAP
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
    return {
        "LAB001": [  # no label map
            fail_in_shard("nothing-beside", lone),
            fail_in_shard("two-that-fit-equally", {**lone, **two_maps}),
            near("one-of-any-name", {**lone, "objects.pbtxt": LABEL_MAP}),
            near("one-folder-up", {"data": lone, MAP: LABEL_MAP}),
            near("nothing-to-map", folder(record(**NO_OBJECTS), label_map=None)),
        ],
        "LAB002": [  # unreadable map
            fail_in_map("quote-left-open", mapped("item { id: 1 name: 'cat }")),
            fail_in_map("html-page", mapped("<!DOCTYPE html><html></html>")),
            near("odd-but-legal", mapped(odd)),
        ],
        "LAB003": [  # duplicate ids
            fail_in_map("one-id-for-two", mapped(LABEL_MAP + OWL.replace(b"3", b"2")), "LAB013"),
            near("next-id", mapped(LABEL_MAP + OWL), "LAB013"),
        ],
        "LAB004": [  # duplicate names
            fail_in_map("one-name-for-two", mapped(LABEL_MAP + OWL.replace(b"owl", b"dog"))),
            near("but-for-case", mapped(upper), "LAB013", "LAB016"),
        ],
        "LAB005": [  # id zero
            fail_in_map(
                "none-is-0", mapped(BACKGROUND.replace(b"background", b"none") + LABEL_MAP)
            ),
            fail_in_map("no-id", mapped(b"item { name: 'none' }" + LABEL_MAP)),
            fail_in_map("counts-from-0", used(["cat", "dog"], [0, 1], from_0), "LAB008"),
            near("background-is-0", mapped(with_0)),
        ],
        "LAB006": [  # unknown text
            fail("another-animal", used(["cat", "bird"], [1, 2])),
            fail_in_shard("in-a-zip", {"anno.zip": bird}, "LAB013", at=f"anno.zip:{SHARD}"),
            fail("map-of-another-dataset", both("ship", "ferry"), "LAB013"),
            near("display-name", used(["cat", "dog"], [1, 2], displayed)),
        ],
        "LAB007": [  # unknown id
            fail("next-id", numbered([1, 3])),
            near("last-id", numbered([1, 2])),
            near("beside-a-text", used(["cat", "dog"], [1, 3]), "LAB008"),
        ],
        "LAB008": [  # text and id disagree
            fail("dog-is-1", used(["cat", "dog"], [1, 1])),
            near("either-of-two", used(["cat", "dog"], [1, 3], hound)),
        ],
        "LAB009": [  # not positive
            fail("minus-1", numbered([1, -1])),
            near("zero-beside-a-text", used(["cat", "dog"], [1, 0]), "LAB008"),
            near("background", numbered([1, 0], with_0), "LAB017"),
        ],
        "LAB010": [  # empty text
            fail("no-letters", used(["cat", ""], [1, 2])),
            fail("a-blank", used(["cat", " "], [1, 2]), "LAB006"),
            near("no-texts", used(None, [1, 2])),
            near("a-dot", used(["cat", "."], [1, 3], LABEL_MAP + OWL.replace(b"owl", b"."))),
        ],
        "LAB011": [  # nearly in the map
            fail("capital-letter", both("cat", "Dog"), "LAB013"),
            fail("space-behind", both("cat", "dog "), "LAB013"),
            near("capital-in-the-map", both("cat", "Dog", label_map=capital)),
        ],
        "LAB012": [  # counts from zero
            fail_in_shard("0-and-1", both(0, 1), "LAB009", "LAB013"),
            near("0-and-2", both(0, 2), "LAB009", "LAB013"),
            near("beside-texts", beside_texts, "LAB008"),
        ],
        "LAB013": [  # unused class
            fail_in_map("third-class", mapped(LABEL_MAP + OWL)),
            near("used-once", {**owl, MAP: LABEL_MAP + OWL}),
        ],
        "LAB014": [  # no class
            fail("neither-text-nor-id", used(None, None)),
            fail("empty-texts", used(["cat", ""], None), "LAB010", "LAB020"),
            near("text-alone", used(["cat", "dog"], None), "LAB020"),
            near("id-alone", used(None, [1, 2])),
        ],
        "LAB015": [  # deviations
            fail_in_map("curly-quotes", mapped(curly)),
            fail_in_map("no-quotes", mapped(LABEL_MAP.replace(b"'", b""))),
            fail_in_map("no-item", mapped(LABEL_MAP.replace(b"item {", b"{"))),
            fail_in_map("byte-order-mark", mapped(b"\xef\xbb\xbf" + LABEL_MAP)),
            fail_in_map("own-field", mapped(own_field)),
            near("straight-quotes", mapped(LABEL_MAP.replace(b"'", b'"'))),
            near("curly-quotes-in-a-name", mapped(curly_within), "LAB013"),
        ],
        "LAB016": [  # nearly equal texts
            fail_in_shard("space-and-underscore", texts(*LIGHTS), "LAB001", "LAB020"),
            fail_in_shard("both-in-the-map", texts(*LIGHTS, label_map=LIGHT_MAP), "LAB020"),
            fail_in_shard("two-more-in-the-map", mapped(cats), "LAB013"),
            near("names-of-one-class", texts(*LIGHTS, label_map=ONE_LIGHT), "LAB020"),
            near("letters-in-both-cases", texts("a", "A", label_map=letters), "LAB020"),
            near("hyphen-between-digits", texts("R1-1", "R11", label_map=SIGNS), "LAB020"),
            near("plural", texts("traffic light", "traffic lights"), "LAB001", "LAB020"),
        ],
        "LAB017": [  # not positive next to a text
            fail("zero", folder(record(label=[0, 1]), label_map=None), "LAB001"),
            fail("minus-1-of-an-unknown-text", used(["cat", "bird"], [1, -1]), "LAB006"),
            fail("background", used(["cat", "background"], None, BACKGROUND + LABEL_MAP), "LAB020"),
            near("one", folder(record(label=[1, 2]), label_map=None), "LAB001"),
            near("text-of-the-map", used(["cat", "dog"], [1, 0]), "LAB008"),
        ],
        "LAB018": [  # unexplained id
            fail("no-map", ids, "LAB001"),
            near("map-beside", {**ids, MAP: LABEL_MAP}),
            near("texts", no_ids, "LAB001", "LAB020"),
        ],
        "LAB019": [  # uneven classes of the image
            fail("one-label-less", whole(text=["cat"] * 2, label=[1])),
            fail("sure-of-no-class", whole(confidence=[0.5])),
            near("as-many", whole(text=["cat"] * 2, label=[1] * 2)),
            near("no-labels", whole(text=["cat"] * 2, label=[])),
            near("sure-of-one", whole(confidence=[0.5], label=[1])),
        ],
        "LAB020": [  # only text
            fail("no-ids", folder(record(label=None))),
            near("one-id-less", folder(record(label=[1])), "BOX001"),
            near("ids", folder(record())),
        ],
    }

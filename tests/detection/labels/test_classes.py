"""Classes of objects, and the ids that classes keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tfod.detection.labels.classes import ClassTable
from tfod.detection.labels.dataset_classes import Classes
from tfod.detection.labels.label_map import LabelMap, LabelMapItem

PEOPLE = LabelMap((LabelMapItem(3, "/m/1", "person"), LabelMapItem(1, "/m/2", "dog")))


def resolve(label_map: LabelMap | None, *objects: tuple[str | None, int | None]):
    """Names of the objects' classes, and the table's ids by name."""
    table = ClassTable()
    scope = table.add_label_map(label_map)
    numbers = [table.resolve(scope, *one) for one in objects]
    items, names, place = table.finish()
    ids = dict(zip(names, (item.id for item in items.items), strict=True))
    return [None if n is None else names[place[n]] for n in numbers], ids, table


def test_names_and_display_names() -> None:
    assert resolve(PEOPLE, ("/m/1", 3))[:2] == (["/m/1"], {"/m/2": 1, "/m/1": 3})
    assert resolve(PEOPLE, ("person", None))[:2] == (["person"], {"dog": 1, "person": 3})
    # Both in one dataset are one class; it keeps its name.
    assert resolve(PEOPLE, ("person", None), ("/m/1", None))[0] == ["/m/1", "/m/1"]


def test_duplicate_names_ids_and_displays() -> None:
    odd = LabelMap(
        (
            LabelMapItem(1, "a", "same"),
            LabelMapItem(2, "b", "same"),
            LabelMapItem(2, "c"),
            LabelMapItem(5, "a"),
        )
    )
    names, ids, _ = resolve(odd, ("a", 1), ("b", 2), ("c", 2), (None, 5), ("same", None))
    assert names == ["a", "b", "c", "a", "a"]
    assert len(set(ids.values())) == len(ids) == 3
    # With display names, two classes would have the same name.
    names, _, _ = resolve(odd, ("same", None), (None, 2))
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
    names, found, _ = resolve(label_map, *objects)
    assert len(set(found.values())) == len(found)
    by_text: dict[str, str | None] = {}
    for (text, _), name in zip(objects, names, strict=True):
        if text:
            assert name is not None
            assert by_text.setdefault(text, name) == name
        assert name is None or name in found

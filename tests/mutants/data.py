"""Mutants of what the data are like: DAT. They are checked with ``--hints``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tests.mutants.registry import Content, Mutant, fail, mutants_of, near
from tests.mutants.sound import shard
from tests.records import encode, image, objects, source_id_of

HINTS = {"profile": "cvat", "hints": True}
_IDS = {"cat": 1, "dog": 2}
Box: TypeAlias = "tuple[float, float, float, float]"
Objects: TypeAlias = "Sequence[tuple[str, Box]]"
"""Class and box of each object of an image."""

CAT, DOG = ("cat", (0.25, 0.25, 0.5, 0.75)), ("dog", (0.5, 0.1, 1.0, 0.9))
SMALL = ("cat", (0.4, 0.4, 0.45, 0.45))


def subsets(height: int = 100, **images: Sequence[Objects]) -> Content:
    """A shard of annotations for each subset; of ``val`` the images have that height."""
    used = {name for shown in images.values() for one in shown for name, _ in one}
    items = [f"item {{ id: {_IDS[name]} name: '{name}' }}" for name in sorted(used)]
    files: dict[str, Content] = {"label_map.pbtxt": "\n".join(items).encode()}
    for subset, shown in images.items():
        records = []
        for number, one in enumerate(shown):
            boxes, names = [box for _, box in one], [name for name, _ in one]
            lists = objects(boxes, names, [_IDS[name] for name in names]) if one else {}
            name = f"{subset}{number}.jpg"
            size = image(name, height if subset == "val" else 100)
            named = {"image/source_id": source_id_of(name), "image/format": "jpeg"}
            records.append(encode({**size, **named, **lists}))
        files[f"{subset}.tfrecord"] = shard(*records)
    return files


def fails(case: str, content: Content, *also: str) -> Mutant:
    """A mutant of which the rule must fire."""
    return fail(case, content, *also, options=HINTS)


def passes(case: str, content: Content, *also: str) -> Mutant:
    """A near miss."""
    return near(case, content, *also, options=HINTS)


BOTH = [[CAT, DOG]] * 4


@mutants_of("DAT001")
def class_missing() -> Iterator[Mutant]:
    yield fails("no-dog-in-val", subsets(train=BOTH, val=[[CAT]] * 4))
    yield passes("both-in-val", subsets(train=BOTH, val=BOTH))
    yield passes("no-box-in-val", subsets(train=BOTH, val=[[]]))


@mutants_of("DAT002")
def class_without_training() -> Iterator[Mutant]:
    yield fails("no-dog-in-train", subsets(train=[[CAT]] * 4, val=BOTH))
    yield passes("both-in-train", subsets(train=BOTH, val=BOTH))


def _mixed(cats: int, dogs: int) -> list[Objects]:
    # Both are of one size, so that nothing but the class differs.
    return [[CAT]] * cats + [[("dog", CAT[1])]] * dogs


@mutants_of("DAT003")
def classes_apart() -> Iterator[Mutant]:
    yield fails("cats-for-dogs", subsets(train=_mixed(80, 20), val=_mixed(20, 80)))
    yield passes("few-more-dogs", subsets(train=_mixed(80, 20), val=_mixed(70, 30)))
    yield passes("too-few-to-say", subsets(train=_mixed(4, 1), val=_mixed(1, 4)))


@mutants_of("DAT004")
def box_sizes_apart() -> Iterator[Mutant]:
    yield fails("small-in-val", subsets(train=[[CAT]] * 40, val=[[SMALL]] * 40))
    some = [[CAT]] * 35 + [[SMALL]] * 5
    yield passes("some-small-in-val", subsets(train=[[CAT]] * 40, val=some))


@mutants_of("DAT005")
def objects_apart() -> Iterator[Mutant]:
    two = [[CAT, ("cat", (0.6, 0.25, 0.85, 0.75))]]
    yield fails("two-in-val", subsets(train=[[CAT]] * 40, val=two * 40))
    yield passes("two-in-some-of-val", subsets(train=[[CAT]] * 40, val=[[CAT]] * 36 + two * 4))


@mutants_of("DAT006")
def image_sizes_apart() -> Iterator[Mutant]:
    same = [[CAT]] * 40
    yield fails("twice-as-high-in-val", subsets(200, train=same, val=same))
    yield passes("two-pixels-higher-in-val", subsets(102, train=same, val=same))


@mutants_of("DAT007")
def few_images() -> Iterator[Mutant]:
    yield fails("dogs-in-two", subsets(train=_mixed(4, 2)))
    yield passes("dogs-in-three", subsets(train=_mixed(4, 3)))


@mutants_of("DAT008")
def one_image() -> Iterator[Mutant]:
    yield fails("dogs-in-one", subsets(train=_mixed(4, 1)))
    yield passes("one-image-in-all", subsets(train=[[CAT, DOG]]))


@mutants_of("DAT009")
def unbalanced() -> Iterator[Mutant]:
    yield fails("sixty-times-the-cats", subsets(train=_mixed(180, 3)))
    yield passes("forty-times-the-cats", subsets(train=_mixed(120, 3)))


def _but_for(odd: Box) -> Content:
    boxes = [(0.2, 0.2, 0.4 + 0.002 * number, 0.6) for number in range(100)]
    return subsets(train=[[("cat", box)] for box in [*boxes, odd]])


@mutants_of("DAT010")
def odd_size() -> Iterator[Mutant]:
    yield fails("one-tiny", _but_for((0.2, 0.2, 0.21, 0.22)))
    yield passes("one-half-as-large", _but_for((0.2, 0.2, 0.36, 0.5)))


@mutants_of("DAT011")
def odd_ratio() -> Iterator[Mutant]:
    yield fails("one-flat", _but_for((0.1, 0.2, 0.9, 0.3)))
    yield passes("one-square", _but_for((0.2, 0.2, 0.4, 0.6)))


@mutants_of("DAT012")
def two_classes() -> Iterator[Mutant]:
    near_cat = (0.25, 0.25, 0.51, 0.75)
    yield fails("a-dog-on-a-cat", subsets(train=[[CAT, ("dog", near_cat)]]))
    yield passes("a-dog-beside", subsets(train=[[CAT, ("dog", (0.25, 0.25, 0.55, 0.75))]]))


@mutants_of("DAT013")
def nearly_twice() -> Iterator[Mutant]:
    near_cat = (0.25, 0.25, 0.51, 0.75)
    yield fails("a-cat-on-a-cat", subsets(train=[[CAT, ("cat", near_cat)]]))
    yield passes("equal", subsets(train=[[CAT, CAT]]), "BOX009")
    yield passes("another-image", subsets(train=[[CAT], [("cat", near_cat)]]))

"""Mutants of shards as a set: SET."""

from __future__ import annotations

from functools import partial

from tests.mutants import registry
from tests.mutants.framing import zipped
from tests.mutants.registry import Mutant
from tests.mutants.sound import LABEL_MAP, TF, jpeg, record, shard

fail = partial(registry.fail, options=TF)
near = partial(registry.near, options=TF)
OWL = LABEL_MAP + b"item { id: 3 name: 'owl' }\n"


def part(number: int, **changes: object) -> bytes:
    """A shard of one record, each with another image."""
    return shard(record(f"{number}.jpg", encoded=jpeg(quality=50 + number), **changes))


def together(files: dict[str, bytes]) -> dict[str, bytes]:
    """A folder with a label map."""
    return {**files, "label_map.pbtxt": LABEL_MAP}


def named(*names: str) -> dict[str, bytes]:
    """A folder with shards of these names."""
    return together({name: part(number) for number, name in enumerate(names)})


def numbered(*numbers: int, count: int) -> dict[str, bytes]:
    """A folder with these shards of a numbered set."""
    return named(*(f"train-{number:05d}-of-{count:05d}" for number in numbers))


def splits(other: bytes) -> dict[str, dict[str, bytes]]:
    """Two folders whose shards have label maps; the second one differs."""
    return {
        "train": {"a.tfrecord": part(0), "a_label_map.pbtxt": LABEL_MAP},
        "valid": {"a.tfrecord": part(1), "a_label_map.pbtxt": other},
    }


def mutants() -> list[Mutant]:
    two, three = numbered(0, 1, count=2), numbered(0, 1, 2, count=3)
    _, second, third = list(three)[:3]
    swapped = b"item { id: 2 name: 'cat' }\nitem { id: 1 name: 'dog' }\n"
    reordered = b"item { id: 2 name: 'dog' }\nitem { id: 1 name: 'cat' }\n"
    names = list(two)[:2]
    half_empty, empty = {**two, names[1]: b""}, {**two, **dict.fromkeys(names, b"")}
    gz = together({"train.record": part(0), "val.record.gz": zipped(b"")})
    lone = together({"train-00000-of-00001": b"", "val.tfrecord": part(0)})
    three_subsets = named(*names, "val-00000-of-00001")
    mixed = named(*names, "train-00002-of-00003")
    lacking = {**three, second: part(1, sha256=None)}
    more = {**three, third: part(2, **{"image/class/label": [3]})}
    return [
        fail("SET001-second-of-three", numbered(0, 2, count=3)),
        fail("SET001-last-of-two", named("train.record-00000-of-00002")),
        fail("SET001-second-of-three-that-count-from-1", numbered(1, 3, count=3)),
        near("SET001-count-from-1", numbered(1, 2, count=2)),
        near("SET001-all-three", three),
        fail("SET002-two-and-three", mixed),
        near("SET002-two-subsets", three_subsets),
        fail("SET003-one-lacks-a-feature", lacking, at=second),
        near("SET003-one-has-a-class-more", more),
        near("SET003-all-alike", three),
        fail("SET004-ids-exchanged", splits(swapped), "LAB008", at="valid/a_label_map.pbtxt"),
        near("SET004-one-class-more", splits(OWL), "LAB013"),
        near("SET004-another-order", splits(reordered)),
        fail("SET005-no-bytes-in-a-set", half_empty, at=names[1]),
        fail("SET005-gzip-of-nothing", gz, "TFR014", at="val.record.gz"),
        near("SET005-one-record-each", two),
        fail("SET006-all-of-no-bytes", empty, "SET005", at=names[0]),
        fail("SET006-the-only-one", lone, "SET005", at="train-00000-of-00001"),
        near("SET006-one-has-a-record", {**empty, names[1]: part(0)}, "SET005"),
    ]

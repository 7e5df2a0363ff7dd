"""Mutants of shards as a set: SET."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.framing import zipped
from tests.mutants.registry import Mutant, fail, mutants_of, near
from tests.mutants.sound import LABEL_MAP, TF, jpeg, record, shard


def part(number: int, **changes: object) -> bytes:
    """A shard of one record, each with another image."""
    return shard(record(f"{number}.jpg", encoded=jpeg(quality=50 + number), **changes))


def together(files: dict[str, bytes]) -> dict[str, bytes]:
    """A folder with a label map."""
    return {**files, "label_map.pbtxt": LABEL_MAP}


def numbered(*names: str) -> dict[str, bytes]:
    """Shards of these names."""
    return together({name: part(number) for number, name in enumerate(names)})


@mutants_of("SET001")
def missing_shards() -> Iterator[Mutant]:
    lacking = numbered("train-00000-of-00003", "train-00002-of-00003")
    yield fail("second-of-three", lacking, options=TF)
    yield fail("last-of-two", numbered("train.record-00000-of-00002"), options=TF)
    from_one = numbered("train-00001-of-00003", "train-00003-of-00003")
    yield fail("second-of-three-that-count-from-1", from_one, options=TF)
    yield near("count-from-1", numbered("train-00001-of-00002", "train-00002-of-00002"), options=TF)
    whole = ("train-00000-of-00003", "train-00001-of-00003", "train-00002-of-00003")
    yield near("all-three", numbered(*whole), options=TF)


@mutants_of("SET002")
def mixed_sets() -> Iterator[Mutant]:
    old = ("train-00000-of-00002", "train-00001-of-00002", "train-00002-of-00003")
    yield fail("two-and-three", numbered(*old), options=TF)
    two = ("train-00000-of-00002", "train-00001-of-00002", "val-00000-of-00001")
    yield near("two-subsets", numbered(*two), options=TF)


@mutants_of("SET003")
def different_keys() -> Iterator[Mutant]:
    names = [f"train-0000{number}-of-00003" for number in range(3)]
    same = numbered(*names)
    lacking = {**same, names[1]: part(1, sha256=None)}
    yield fail("one-lacks-a-feature", lacking, at=names[1], options=TF)
    more = {**same, names[2]: part(2, **{"image/class/label": [3]})}
    yield near("one-has-a-class-more", more, options=TF)
    yield near("all-alike", same, options=TF)


@mutants_of("SET004")
def different_label_maps() -> Iterator[Mutant]:
    def splits(other: bytes) -> dict[str, dict[str, bytes]]:
        return {
            "train": {"a.tfrecord": part(0), "a_label_map.pbtxt": LABEL_MAP},
            "valid": {"a.tfrecord": part(1), "a_label_map.pbtxt": other},
        }

    swapped = b"item { id: 2 name: 'cat' }\nitem { id: 1 name: 'dog' }\n"
    at = "valid/a_label_map.pbtxt"
    yield fail("ids-exchanged", splits(swapped), "LAB008", at=at, options=TF)
    longer = LABEL_MAP + b"item { id: 3 name: 'owl' }\n"
    yield near("one-class-more", splits(longer), "LAB013", options=TF)
    reordered = b"item { id: 2 name: 'dog' }\nitem { id: 1 name: 'cat' }\n"
    yield near("another-order", splits(reordered), options=TF)


@mutants_of("SET005")
def empty_shard() -> Iterator[Mutant]:
    names = ("train-00000-of-00002", "train-00001-of-00002")
    hollow = {**numbered(*names), names[1]: b""}
    yield fail("no-bytes-in-a-set", hollow, at=names[1], options=TF)
    nothing = together({"train.record": part(0), "val.record.gz": zipped(b"")})
    yield fail("gzip-of-nothing", nothing, "TFR014", at="val.record.gz", options=TF)
    yield near("one-record-each", numbered(*names), options=TF)


@mutants_of("SET006")
def empty_set() -> Iterator[Mutant]:
    names = ("train-00000-of-00002", "train-00001-of-00002")
    hollow = {**numbered(*names), **dict.fromkeys(names, b"")}
    yield fail("all-of-no-bytes", hollow, "SET005", at=names[0], options=TF)
    alone = together({"train-00000-of-00001": b"", "val.tfrecord": part(0)})
    yield fail("the-only-one", alone, "SET005", at="train-00000-of-00001", options=TF)
    yield near("one-has-a-record", {**hollow, names[1]: part(0)}, "SET005", options=TF)

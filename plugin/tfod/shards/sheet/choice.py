"""Which records a sheet shows."""

from __future__ import annotations

import difflib
import functools
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfod.check.dataset import Found, Shard
from tfod.check.profiles.choice import profile_of
from tfod.check.profiles.profile import Profile
from tfod.detection.detections import Detections
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.shards.sheet.tile import Tile, make_tile
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.reader import read_record_batch_stream
from tfod.tfrecord.storage.zip_entry import ZipEntryError

_LARGEST_RECORD = 256 << 20
_MOST_NAMES = 8
_MOST_CLASSES = 10_000


@dataclass(frozen=True)
class Choice:
    """Which records to show: the first, or by their numbers in the only shard, or at random.

    ``class_name`` leaves only records with an object, or a label, of this class.
    """

    first: int = 24
    records: frozenset[int] | None = None
    random: int | None = None
    class_name: str | None = None


@dataclass
class Seen:
    """What was read until the last chosen record: shards, damaged parts, names of classes."""

    shards: int = 0
    unreadable: int = 0
    damage: Damage | None = None
    classes: set[str] = field(default_factory=set)


def chosen_tiles(
    found: Found,
    choice: Choice,
    seen: Seen | None = None,
    profile: Profile | None = None,
) -> Iterator[Tile]:
    """Read the chosen records, in the order of the shards, and what is to be seen of each.

    A profile is for all of them; else the one that fits best. ``seen`` takes the figures of what
    was passed on the way.

    Raises:
        TfodError: the shards hold nothing that can be shown, or nothing of that class.
    """
    seen = Seen() if seen is None else seen
    profile, _, unknown = profile_of(profile, found.shards, _LARGEST_RECORD)
    if unknown is not None:
        features = ", ".join(unknown.keys[:_MOST_NAMES]) or "none"
        raise TfodError(
            f"{unknown.shard}: there are no images or boxes to show, its features are {features};"
            " tfod describe says more"
        )
    walk = functools.partial(_tiles, found, profile, choice.class_name)
    if choice.records is not None:
        if len(found.files) > 1:
            raise TfodError("--records are numbers within a shard; name one shard, not several")
        yield from _numbered(walk(seen), choice.records, seen, choice.class_name is not None)
    elif choice.random is not None:
        places = _drawn(walk(seen), choice.random)
        tiles = itertools.islice(walk(Seen()), max(places, default=-1) + 1)
        yield from (tile for place, tile in enumerate(tiles) if place in places)
    else:
        yield from itertools.islice(walk(seen), choice.first)
    if choice.class_name is not None and choice.class_name not in seen.classes:
        raise TfodError(_no_such_class(choice.class_name, seen.classes))


def _no_such_class(name: str, classes: set[str]) -> str:
    near = difflib.get_close_matches(name, classes, n=3)
    some = ", ".join(repr(one) for one in near or sorted(classes)[:_MOST_NAMES]) or "none"
    return f"no object is of the class {name!r}; there are {some}"


def _numbered(
    tiles: Iterator[Tile], numbers: frozenset[int], seen: Seen, some_are_left_out: bool
) -> Iterator[Tile]:
    """The records of these numbers, of the only shard."""
    last = -1
    for tile in tiles:
        if seen.shards > 1:
            raise TfodError("--records are numbers within a shard; the zip holds several")
        last = tile.sample.record
        if last in numbers:
            yield tile
        if last >= max(numbers):
            return
    if not some_are_left_out and max(numbers) > last:
        raise TfodError(f"--records {max(numbers)}: the last record is {last}")


def _drawn(tiles: Iterator[Tile], count: int) -> set[int]:
    """Which of the tiles are drawn, so many, each as likely as any other."""
    chance = random.Random(0)  # the same ones in every run
    kept: list[int] = []
    for place, _ in enumerate(tiles):
        if len(kept) < count:
            kept.append(place)
        elif (at := chance.randrange(place + 1)) < count:
            kept[at] = place
    return set(kept)


def _tiles(
    found: Found,
    profile: Profile,
    class_name: str | None,
    seen: Seen,
) -> Iterator[Tile]:
    for dataset, shard in ((one, shard) for one in found.datasets for shard in one.shards):
        seen.shards += 1
        for detections, row in _rows(shard, profile, seen):
            tile = make_tile(detections, row, dataset.label_map_of(shard))
            names = set() if class_name is None else {*tile.sample.classes, *tile.labels}
            if len(seen.classes) < _MOST_CLASSES or class_name in names:
                seen.classes |= names
            if class_name is None or class_name in names:
                yield tile


def _rows(shard: Shard, profile: Profile, seen: Seen) -> Iterator[tuple[Detections, int]]:
    def damaged(damage: Damage) -> None:
        seen.unreadable += 1
        seen.damage = seen.damage or damage

    with shard.open() as stream:
        batches = read_record_batch_stream(
            stream, shard.name, shard.size, on_damage=damaged, max_record_bytes=_LARGEST_RECORD
        )
        try:
            for records in batches:
                detections = Detections(ExampleBatch.of(records), profile.field_mapping)
                for row in range(len(records)):
                    if row in detections.examples.refused:
                        seen.unreadable += 1
                    else:
                        yield detections, row
        except ZipEntryError:
            seen.unreadable += 1

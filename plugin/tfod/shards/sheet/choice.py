"""Which records a sheet shows."""

from __future__ import annotations

import difflib
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tfod.check.profiles.profile import Profile
from tfod.check.profiles.sampling import profile_of
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.search import Inventory
from tfod.check.sources.shard_walk import WalkedShard, walk_shards
from tfod.detection.detections import Detections
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.shards.sheet.tile import Tile, make_tile
from tfod.tfrecord.reader import read_record_batch_stream

_LARGEST_RECORD = 256 << 20
_MOST_NAMES = 8
_MOST_CLASSES = 10_000


@dataclass(frozen=True)
class Choice:
    """Which records to show.

    Attributes:
        first: the first ones, so many.
        records: these, by their numbers in the only shard, from 0; stronger than ``first``.
        random: so many, chosen by the seed; stronger than ``first``.
        seed: of the random choice.
        class_name: only records with an object, or a label, of this class.
    """

    first: int = 24
    records: frozenset[int] | None = None
    random: int | None = None
    seed: int = 0
    class_name: str | None = None


@dataclass
class Seen:
    """What was read until the last chosen record.

    Attributes:
        shards: how many shards were opened.
        records: how many records were looked at.
        unreadable: damaged parts, and records that are not Examples.
        classes: the names of classes that were found, where one is asked for.
    """

    shards: int = 0
    records: int = 0
    unreadable: int = 0
    classes: set[str] = field(default_factory=set)


def chosen_tiles(
    inventory: Inventory,
    choice: Choice,
    label_map: str | None = None,
    seen: Seen | None = None,
    profile: Profile | None = None,
) -> Iterator[Tile]:
    """Read the chosen records, in the order of the shards, and what is to be seen of each.

    Args:
        inventory: the shards.
        choice: which of their records.
        label_map: file or name of a label map for all of them; those beside them otherwise.
        seen: takes the figures of what was passed on the way.
        profile: which of their keys means what; None to choose the one that fits best.

    Raises:
        TfodError: the shards hold nothing that can be shown, or nothing of that class.
    """
    seen = Seen() if seen is None else seen
    with Archives() as zips:
        profile, _, unknown = profile_of(profile, inventory, zips, _LARGEST_RECORD)
    if unknown is not None:
        found = ", ".join(unknown[0].features[:_MOST_NAMES]) or "none"
        raise TfodError(
            f"{unknown[1].shard}: there are no images or boxes to show, its features are {found};"
            " tfod describe says more"
        )
    walk = _Walk(inventory, profile, label_map, choice.class_name)
    if choice.records is not None:
        yield from walk.numbered(choice.records, seen)
    elif choice.random is not None:
        yield from walk.drawn(choice.random, choice.seed, seen)
    else:
        yield from itertools.islice(walk.tiles(seen), choice.first)
    if choice.class_name is not None and choice.class_name not in seen.classes:
        raise TfodError(_no_such_class(choice.class_name, seen.classes))


def _no_such_class(name: str, classes: set[str]) -> str:
    near = difflib.get_close_matches(name, classes, n=3)
    some = ", ".join(repr(one) for one in near or sorted(classes)[:_MOST_NAMES]) or "none"
    return f"no object is of the class {name!r}; there are {some}"


@dataclass(frozen=True)
class _Walk:
    """Walks through the records that may be shown; again, when that is asked for."""

    inventory: Inventory
    profile: Profile
    label_map: str | None
    class_name: str | None

    def tiles(self, seen: Seen) -> Iterator[Tile]:
        """Every record that has the class."""
        for shard in walk_shards(self.inventory, self.label_map):
            seen.shards += 1
            for detections, row in self._rows(shard, seen):
                tile = make_tile(detections, row, shard.label_map)
                if self._fits(tile, seen):
                    yield tile

    def numbered(self, numbers: frozenset[int], seen: Seen) -> Iterator[Tile]:
        """The records of these numbers, of the only shard."""
        if len(self.inventory.shards) + len(self.inventory.archives) > 1:
            raise TfodError("--records are numbers within a shard; name one shard, not several")
        last = -1
        for tile in self.tiles(seen):
            if seen.shards > 1:
                raise TfodError("--records are numbers within a shard; the zip holds several")
            last = tile.sample.place.record or 0
            if last in numbers:
                yield tile
            if last >= max(numbers):
                return
        if self.class_name is None and max(numbers) > last:
            raise TfodError(f"--records {max(numbers)}: the last record is {last}")

    def drawn(self, count: int, seed: int, seen: Seen) -> Iterator[Tile]:
        """So many records, each as likely as any other; found in one pass, and read in another."""
        chance = random.Random(seed)
        kept: list[int] = []
        for place, _ in enumerate(self.tiles(seen)):
            if len(kept) < count:
                kept.append(place)
            elif (at := chance.randrange(place + 1)) < count:
                kept[at] = place
        wanted = set(kept)
        for place, tile in enumerate(self.tiles(Seen()) if wanted else ()):
            if place in wanted:
                yield tile
            if place == max(wanted):
                return

    def _fits(self, tile: Tile, seen: Seen) -> bool:
        if self.class_name is None:
            return True
        names = {*tile.sample.classes, *tile.labels}
        if len(seen.classes) < _MOST_CLASSES or self.class_name in names:
            seen.classes |= names
        return self.class_name in names

    def _rows(self, shard: WalkedShard, seen: Seen) -> Iterator[tuple[Detections, int]]:
        """The records of a shard that can be read."""

        def damaged(_: object) -> None:
            seen.unreadable += 1

        with shard.open() as stream:
            batches = read_record_batch_stream(
                stream, shard.name, shard.size, on_damage=damaged, max_record_bytes=_LARGEST_RECORD
            )
            try:
                for records in batches:
                    detections = Detections(ExampleBatch.of(records), self.profile.field_mapping)
                    for row in range(len(records)):
                        seen.records += 1
                        if row in detections.examples.refused:
                            seen.unreadable += 1
                        else:
                            yield detections, row
            except ArchiveDamageError:
                seen.unreadable += 1

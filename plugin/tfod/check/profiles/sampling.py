"""The profile of a check: what was asked for, or what the first records fit best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfod.check.finding import Place
from tfod.check.profiles.choice import Sample, choose_profile, samples_of
from tfod.check.profiles.profile import OFF, Profile
from tfod.check.report import ChosenProfile
from tfod.check.rules.example import NoProfile
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.search import Inventory
from tfod.detection import keys
from tfod.detection.field_mapping import FieldMapping
from tfod.example.columns import ExampleBatch
from tfod.tfrecord.compression import ReadableStream
from tfod.tfrecord.reader import read_record_batch_stream

_SAMPLES = 64
_SAMPLES_OF_A_SHARD = 32
_MOST_TRIED = 10_000
"""Records of a shard that are looked at for want of one that can be a sample."""
_LARGEST_SAMPLE = 64 << 20
_MOST_UNREACHABLE = 2  # remote shards: each of a dead server takes a whole timeout
_NOTHING_TO_JUDGE = ("BOX", "LAB", "IMG", "NAM", "TSK", "FID", "SET003", "EXA008")
_NO_PROFILE = Profile(
    "none", "no expectation at all", {}, FieldMapping.only(), dict.fromkeys(_NOTHING_TO_JUDGE, OFF)
)


def profile_of(
    asked: Profile | None,
    inventory: Inventory,
    archives: Archives,
    max_record_bytes: int,
    implied: Profile | None = None,
) -> tuple[Profile, ChosenProfile, tuple[NoProfile, Place] | None]:
    """The profile, why it is this one, and what is to be said when none fits.

    Args:
        asked: the one that the user named.
        inventory: where samples come from.
        archives: opens its zips.
        max_record_bytes: larger records are not read.
        implied: that of the receiver, in place of the one that fits best. Records of another kind
            do not fit it, however little it requires.
    """
    if asked is not None:
        return asked, ChosenProfile(asked.name, "asked for"), None
    samples: list[Sample] = []
    first = ""
    for name, found in _samples(inventory, archives, min(_LARGEST_SAMPLE, max_record_bytes)):
        first = first or name
        samples += found
        if len(samples) >= _SAMPLES:
            break
    chosen = choose_profile(samples)
    if implied is not None and (not samples or (chosen is not None and _are_annotated(samples))):
        return implied, ChosenProfile(implied.name, "the receiver's"), None
    if implied is None and chosen is not None:
        return chosen[0], ChosenProfile(chosen[0].name, chosen[1]), None
    if not first:
        return _NO_PROFILE, ChosenProfile(_NO_PROFILE.name, "no record could be read"), None
    found_keys = tuple(dict.fromkeys(key for sample in samples for key in sample))
    why = ChosenProfile(_NO_PROFILE.name, "no profile fits; pass --profile")
    return _NO_PROFILE, why, (NoProfile(found_keys), Place(first))


def _are_annotated(samples: Sequence[Sample]) -> bool:
    """Whether at least half of the records have a name or boxes where the OD API has them."""
    known = (keys.FILENAME, *keys.BOX)
    return 2 * sum(not one.keys().isdisjoint(known) for one in samples) >= len(samples)


def _samples(
    inventory: Inventory, archives: Archives, limit: int
) -> Iterator[tuple[str, list[Sample]]]:
    """Of each shard that has records some samples, if there are any."""
    unreachable = 0
    for shard in inventory.shards:
        if shard.location.remote and unreachable == _MOST_UNREACHABLE:
            continue
        try:
            with shard.location.open(read_ahead=False) as stream:
                yield from _read_samples(stream, shard.location.name, limit)
        except OSError:
            unreachable += shard.location.remote
    for location in inventory.archives:
        try:
            for one, unpacked in archives.open(location.path, location.name).opened():
                yield from _read_samples(unpacked, one.name, limit)
        except (OSError, ArchiveDamageError):
            continue


def _read_samples(
    stream: ReadableStream, name: str, limit: int
) -> Iterator[tuple[str, list[Sample]]]:
    found: list[Sample] = []
    tried = 0
    batches = read_record_batch_stream(
        stream, name, on_damage=lambda _: None, max_record_bytes=limit
    )
    try:
        for records in batches:
            samples = samples_of(ExampleBatch.of(records))[: _MOST_TRIED - tried]
            tried += len(samples)
            # What has no features at all says nothing about the others.
            found += filter(None, samples)
            if len(found) >= _SAMPLES_OF_A_SHARD or tried == _MOST_TRIED:
                break
    except (OSError, ArchiveDamageError):
        pass  # found again, and told, when the records are examined
    if tried:
        yield name, found[:_SAMPLES_OF_A_SHARD]

"""Every mutant repaired: what is repairable is gone, and nothing is changed that is not told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check_sources
from tfod.checker.finding import Finding
from tfod.checker.profiles.file import load_profile
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.errors import ShardError
from tfod.example.example import Example
from tfod.shards.fixes import ALWAYS_FIXED, FIXES
from tfod.shards.repair import Options, Outcome, repair
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.shard_sets.search import find_shards

from tests.files import files_in, readable_records
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of

# Of these nothing is repaired, and their mutants need more than a shard; or the repair stops.
_LEFT_OUT = ("ZIP", "TSK", "CFG", "DAT", "BOX019", "TFR012", "TFR013", "BOX013", "SET006")
MUTANTS = [one for one in all_mutants() if not one.code.startswith(_LEFT_OUT)]
REPAIRED = {code for code, one in all_rules().items() if one.repair}
WHOLLY = {*ALWAYS_FIXED, "TFR009", "EXA001", "IMG004", "IMG014"}
"""What nothing is left of; of the others that is repaired which is certain."""
UNCERTAIN = {"EXA003-no-image-fail-a.tfrecord"}
"""The mutants of rules that are repaired where it is certain, and where it is not."""


def make_options(mutant: Mutant) -> Options:
    """The profile of a mutant, as an option of a repair."""
    profile = mutant.options.get("profile")
    return Options(
        profile=load_profile(str(profile)) if profile else None,
        receiver="efficientdet" if mutant.code in ("NAM010", "NAM011") else None,
    )


def repaired(mutant: Mutant, source: str, output: Path) -> tuple[Outcome, list[Finding]]:
    """The outcome of a repair, and all changes."""
    changes: list[Finding] = []
    outcome = repair(source, str(output), make_options(mutant), changes.append)
    return outcome, changes


def checked(path: Path, mutant: Mutant) -> Counter[str]:
    """What a check says of a folder."""
    report = check_sources(
        [str(path)], CheckOptions(profile=make_options(mutant).profile, decode=0)
    )
    return Counter(report.counts.by_code)


def not_repaired(mutant: Mutant) -> bool:
    """Of rules that nothing is repaired of, it is enough that a family's mutants are kept."""
    return mutant.code not in REPAIRED


# Each reports what is uncertain.
@pytest.mark.parametrize(
    "mutant",
    [
        *parameters_of((one for one in MUTANTS if one.name not in UNCERTAIN), not_repaired),
        *(pytest.param(one, id=one.name) for one in MUTANTS if one.name in UNCERTAIN),
    ],
)
def test_repaired(mutant: Mutant, mutants: Path, tmp_path: Path) -> None:
    source = Path(mutant.path(mutants))
    before = files_in(source)
    output = tmp_path / "out"
    outcome, changes = repaired(mutant, str(source), output)
    assert files_in(source) == before
    assert output.exists() is not outcome.is_useless
    left = checked(source if outcome.is_useless else output, mutant)
    assert Counter(outcome.remaining.counts.by_code) == left
    assert not left.keys() & WHOLLY
    if mutant.code in REPAIRED - WHOLLY and mutant.fires:
        assert (mutant.code in left) == (mutant.name in UNCERTAIN)
        assert (mutant.code in outcome.by_code) != (mutant.name in UNCERTAIN)
    # Repair does not decode.
    if mutant.fires and mutant.code not in (*REPAIRED, "IMG003", "IMG017"):
        assert mutant.code in left
    assert Counter(one.code for one in changes) == outcome.by_code
    if outcome.is_useless:
        assert not changes
        return
    the_rest_is_as_it_was(source, output, changes, outcome)
    again, _ = repaired(mutant, str(output), tmp_path / "again")
    assert not again.by_code
    assert again.is_useless or files_in(tmp_path / "again") == files_in(output)


def the_rest_is_as_it_was(
    source: Path, output: Path, changes: list[Finding], outcome: Outcome
) -> None:
    """Records are the same, and in the same order, but for what was told."""
    reported: dict[tuple[str, int | None], list[Finding]] = {}
    for one in changes:
        reported.setdefault((one.shard, one.record), []).append(one)
    read = dropped = 0
    for old, new in zip(shards_of(source), shards_of(output), strict=True):
        written = sound_records(new)
        for number, payload in sound_records(old):
            read += 1
            message = reported.get((old, number), [])
            if any(one.value["record_dropped"] for one in message):
                dropped += 1
                continue
            _, result = next(written)
            if not message:
                assert result == payload
            else:
                differ_only_where_told(payload, result, message)
        assert next(written, None) is None
    assert read == outcome.records and read - dropped == outcome.written


def shards_of(path: Path) -> list[str]:
    """The shards of a folder, or the file itself."""
    return [one for found in find_shards(path) for one in found.paths]


def sound_records(shard: str) -> Iterator[tuple[int, bytes]]:
    """The records of a shard that can be read, with their numbers."""
    for record in readable_records(shard):
        yield record.number, bytes(record.payload)


def differ_only_where_told(before: bytes, after: bytes, message: list[Finding]) -> None:
    """Features that no change names are the same, byte for byte."""
    old, new = Example.from_bytes(before), Example.from_bytes(after)
    named = {one.feature for one in message}
    if BOX_KEY in named:
        named |= set(keys.BOX)
    for key in {*old, *new} - named:
        assert values(old, key) == values(new, key)


def values(example: Example, key: str) -> list[Any]:
    """The values of a feature of any kind; of one that is damaged, that it is."""
    found: list[Any] = []
    for read in (lambda: example.floats(key).tobytes(), lambda: example.ints(key),
                 lambda: example.byte_strings(key)):  # fmt: skip
        try:
            found.append(read())
        except (ShardError, ValueError):
            found.append("damaged")
    return found


def test_what_the_table_says_is_repaired_has_somebody_who_does_it() -> None:
    elsewhere = {*ALWAYS_FIXED, "TFR009", "EXA001"}
    assert {code for code, _ in FIXES} | elsewhere == REPAIRED

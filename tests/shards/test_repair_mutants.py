"""Repairs of every mutant, of real shards and of random damage: every change is reported."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check_sources
from tfod.checker.finding import Finding
from tfod.checker.profiles.file import load_profile
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.errors import ShardError
from tfod.example.example import Example
from tfod.shards.fixes import ALWAYS_FIXED, FIXES
from tfod.shards.repair import Options, Outcome, repair
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.search import find_shards

from tests.conftest import CORPUS, examples
from tests.files import files_in, readable_records
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of
from tests.mutants.sound import LABEL_MAP, flip, jpeg, other, record, shard

# No rule of these families repairs, or the mutants need more than a shard; or the repair stops.
_LEFT_OUT = ("ZIP", "TSK", "CFG", "DAT", "BOX019", "TFR012", "TFR013", "BOX013", "SET006")
MUTANTS = [one for one in all_mutants() if not one.code.startswith(_LEFT_OUT)]
REPAIRED = {code for code, one in all_rules().items() if one.repair}
WHOLLY = {*ALWAYS_FIXED, "TFR009", "EXA001", "IMG004", "IMG014"}
"""Rules without findings after a repair; findings of other rules may be uncertain."""
UNCERTAIN = {"EXA003-no-image-fail-a.tfrecord"}
"""Mutants of rules that repair, whose findings are uncertain."""


def make_options(mutant: Mutant) -> Options:
    """The profile of a mutant, as an option of a repair."""
    profile = mutant.options.get("profile")
    return Options(
        profile=load_profile(str(profile)) if profile else None,
        receiver="efficientdet" if mutant.code in ("NAM010", "NAM011") else None,
    )


def repaired(mutant: Mutant, source: Path, output: Path) -> tuple[Outcome, list[Finding]]:
    """The outcome of a repair, and all changes."""
    changes: list[Finding] = []
    outcome = repair(str(source), str(output), make_options(mutant), changes.append)
    return outcome, changes


# One mutant per family suffices for rules that do not repair.
@pytest.mark.parametrize(
    "mutant",
    [
        *parameters_of(
            (one for one in MUTANTS if one.name not in UNCERTAIN),
            lambda mutant: mutant.code not in REPAIRED,
        ),
        *(pytest.param(one, id=one.name) for one in MUTANTS if one.name in UNCERTAIN),
    ],
)
def test_repaired(mutant: Mutant, mutants: Path, tmp_path: Path) -> None:
    source, output = Path(mutant.path(mutants)), tmp_path / "out"
    before = files_in(source)
    outcome, changes = repaired(mutant, source, output)
    assert files_in(source) == before
    assert output.exists() is not outcome.is_useless
    options = CheckOptions(profile=make_options(mutant).profile, decode=0)
    left = check_sources([str(source if outcome.is_useless else output)], options).counts.by_code
    assert Counter(outcome.remaining.counts.by_code) == Counter(left)
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
    assert_only_reported_changes(source, output, changes, outcome)
    again, _ = repaired(mutant, output, tmp_path / "again")
    assert not again.by_code
    assert again.is_useless or files_in(tmp_path / "again") == files_in(output)


def assert_only_reported_changes(
    source: Path, output: Path, changes: list[Finding], outcome: Outcome
) -> None:
    """Assert that the other records are the same, and in the same order."""
    reported: dict[tuple[str, int | None], list[Finding]] = {}
    for one in changes:
        reported.setdefault((one.shard, one.record), []).append(one)
    read = dropped = 0
    for old, new in zip(shards_of(source), shards_of(output), strict=True):
        written = readable_records(new)
        for before in readable_records(old):
            read += 1
            findings = reported.get((old, before.number), [])
            if any(one.value["record_dropped"] for one in findings):
                dropped += 1
                continue
            payload, result = bytes(before.payload), bytes(next(written).payload)
            if not findings:
                assert result == payload
            else:
                assert_other_features_equal(payload, result, {one.feature for one in findings})
        assert next(written, None) is None
    assert read == outcome.records and read - dropped == outcome.written


def shards_of(path: Path) -> list[str]:
    return [one for found in find_shards(path) for one in found.paths]


def assert_other_features_equal(before: bytes, after: bytes, named: set[str | None]) -> None:
    """Assert that features are the same, byte for byte, if no change names them."""
    old, new = Example.from_bytes(before), Example.from_bytes(after)
    if BOX_KEY in named:
        named |= set(keys.BOX)
    for key in {*old, *new} - named:
        assert values(old, key) == values(new, key)


def values(example: Example, key: str) -> list[object]:
    """The values of a feature by each dtype, or "damaged"."""
    found: list[object] = []
    for read in (lambda: example.floats(key).tobytes(), lambda: example.ints(key),
                 lambda: example.byte_strings(key)):  # fmt: skip
        try:
            found.append(read())
        except (ShardError, ValueError):
            found.append("damaged")
    return found


def test_every_rule_that_repairs_has_a_function() -> None:
    elsewhere = {*ALWAYS_FIXED, "TFR009", "EXA001"}
    assert {code for code, _ in FIXES} | elsewhere == REPAIRED


VALID = record(), other(), record("c.jpg", encoded=jpeg(quality=50)), record("d.jpg", format="png")
RESULT = (*VALID[:3], record("d.jpg"))
PLAIN = shard(*VALID)
PACKED = gzip.compress(PLAIN, mtime=0)
TF = Options(READY["tf_detection_api"])


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(1, 255)), max_size=4),
    st.integers(0, len(PLAIN)),
    st.booleans(),
)
def test_the_result_of_any_damage_is_valid(
    changes: list[tuple[int, int]], length: int, packed: bool
) -> None:
    data = bytearray(PACKED if packed else PLAIN)
    for place, value in changes:
        data[place] ^= value
    with tempfile.TemporaryDirectory() as name:
        source, once, twice = (Path(name, part) for part in ("in", "once", "twice"))
        source.mkdir()
        (source / "a.tfrecord").write_bytes(data[: max(length, 12)] if length % 3 else data)
        (source / "label_map.pbtxt").write_bytes(LABEL_MAP)
        outcome = repair(str(source), str(once), TF)
        left = outcome.remaining.counts.by_code
        if outcome.is_useless:  # no shard at all
            assert not once.exists()
            return
        assert not WHOLLY & left.keys()
        if "TFR002" not in left:
            # Every record is one of the source, or a repaired one.
            for one in read_records(once / "a.tfrecord"):
                assert bytes(one.payload) in RESULT
        assert not repair(str(once), str(twice), TF).by_code


def test_all_records_before_a_damaged_checksum_of_gzip_are_kept(tmp_path: Path) -> None:
    for place in (-8, -1):  # the checksum and the length of gzip
        source = tmp_path / f"in{place}.tfrecord.gz"
        source.write_bytes(flip(PACKED, place))
        outcome = repair(str(source), str(tmp_path / f"out{place}"), TF)
        assert outcome.by_code["TFR011"] == 1
        assert outcome.records == outcome.written == len(VALID)


@pytest.mark.parametrize("name", sorted(one.name for one in CORPUS.iterdir() if one.is_dir()))
def test_nothing_is_changed_in_real_shards(name: str, tmp_path: Path) -> None:
    outcome = repair(str(CORPUS / name), str(tmp_path))
    assert not outcome.by_code
    if outcome.is_useless:
        assert not any(tmp_path.iterdir())
        return
    for path in (CORPUS / name).rglob("*"):
        if path.suffix in (".record", ".tfrecord", ".pbtxt"):
            assert (tmp_path / path.relative_to(CORPUS / name)).read_bytes() == path.read_bytes()


def test_tensorflow_reads_the_result(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    broken = flip(PLAIN, len(shard(VALID[0])) + 100)
    (tmp_path / "a.tfrecord").write_bytes(broken + bytes(40))
    shutil.copy(tmp_path / "a.tfrecord", tmp_path / "b.tfrecord")
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord")))
    repair(str(tmp_path / "a.tfrecord"), str(tmp_path / "out"), TF)
    found = [one.numpy() for one in tf.data.TFRecordDataset(str(tmp_path / "out" / "a.tfrecord"))]
    assert found == [RESULT[0], *RESULT[2:]]

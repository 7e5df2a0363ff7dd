"""The result as others see it: TensorFlow, real shards, and shards damaged at random."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.profiles.profile import READY
from tfod.shards.repair import Options, repair
from tfod.tfrecord.reader import read_records

from tests.conftest import CORPUS, examples
from tests.mutants.sound import LABEL_MAP, flip, jpeg, other, record, shard
from tests.shards.test_repair_mutants import WHOLLY

SOUND = record(), other(), record("c.jpg", encoded=jpeg(quality=50)), record("d.jpg", format="png")
RESULT = (*SOUND[:3], record("d.jpg"))
PLAIN = shard(*SOUND)
PACKED = gzip.compress(PLAIN, mtime=0)
TF = Options(READY["tf_detection_api"])


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(1, 255)), max_size=4),
    st.integers(0, len(PLAIN)),
    st.booleans(),
)
def test_whatever_the_damage_the_result_is_sound(
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
            # Nothing of the result was made up: every record is one of the source, or mended.
            for one in read_records(once / "a.tfrecord"):
                assert bytes(one.payload) in RESULT
        assert not repair(str(once), str(twice), TF).by_code


def test_all_records_before_a_damaged_checksum_of_gzip_are_kept(tmp_path: Path) -> None:
    for place in (-8, -1):  # its checksum, its length
        source = tmp_path / f"in{place}.tfrecord.gz"
        source.write_bytes(flip(PACKED, place))
        outcome = repair(str(source), str(tmp_path / f"out{place}"), TF)
        assert outcome.by_code["TFR011"] == 1
        assert outcome.records == outcome.written == len(SOUND)


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
    broken = flip(PLAIN, len(shard(SOUND[0])) + 100)
    (tmp_path / "a.tfrecord").write_bytes(broken + bytes(40))
    shutil.copy(tmp_path / "a.tfrecord", tmp_path / "b.tfrecord")
    with pytest.raises(tf.errors.DataLossError):
        list(tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord")))
    repair(str(tmp_path / "a.tfrecord"), str(tmp_path / "out"), TF)
    found = [one.numpy() for one in tf.data.TFRecordDataset(str(tmp_path / "out" / "a.tfrecord"))]
    assert found == [RESULT[0], *RESULT[2:]]

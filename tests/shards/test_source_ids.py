"""Source ids as numbers: unique and stable, with the former texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tfod.detection.detection import Detection
from tfod.detection.images.source_ids import (
    LARGEST_FLOAT32,
    LARGEST_INT64,
    SourceIdNumbers,
    find_last_number,
    find_unusual_source_ids,
    parse_source_id,
)
from tfod.errors import TfodError

from tests.commands import Run
from tests.formats.conftest import by_filename
from tests.records import encode, image, objects, write_shard

RECEIVERS = ("tf-vision", "model-maker", "efficientdet")


def record(name: str, source_id: str | None) -> bytes:
    found = image(name, 20, 40) | objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [1])
    return encode(found if source_id is None else found | {"image/source_id": source_id})


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two subsets with numbers, names, other texts, and an image without a source id."""
    folder = tmp_path / "in"
    write_shard(folder, "train", record("a.jpg", "a.jpg"), record("b.jpg", "7"))
    write_shard(folder, "val", record("c.jpg", "0f3c"), record("d.jpg", None), record("e.jpg", ""))
    return folder


def source_ids(folder: Path) -> dict[str, str | None]:
    return {name: one.source_id for name, one in by_filename(folder).items()}


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("more", [(), ("--shuffle", "1", "--num-shards", "2")])
def test_reshard_and_repair(
    run: Run, shards: Path, tmp_path: Path, receiver: str, more: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    assert run("reshard", shards, out, "--for", receiver, *more)[0] == 0
    found = source_ids(out)
    assert found["b.jpg"] == "7"
    assert sorted(found.values()) == ["10", "11", "7", "8", "9"]
    kept = {name: dict(one.image_extra) for name, one in by_filename(out).items()}
    assert kept.pop("c.jpg") == {"former_source_id": "0f3c"} and not any(kept.values())
    # Numbers are kept.
    assert run("reshard", out, tmp_path / "again", "--for", receiver)[0] == 0
    assert source_ids(tmp_path / "again") == found
    # A repair makes the same numbers.
    run("repair", shards, tmp_path / "repaired", "--select", "NAM", "--for", receiver)
    assert sorted(source_ids(tmp_path / "repaired").values()) == ["10", "11", "7", "8", "9"]
    c = by_filename(tmp_path / "repaired")["c.jpg"]
    assert c.image_extra == {"former_source_id": "0f3c"}


@pytest.mark.parametrize("command", ["reshard", "repair"])
def test_numbers_that_no_float32_holds(run: Run, tmp_path: Path, command: str) -> None:
    """Larger numbers are replaced, unless all numbers up to the limit are used."""
    folder = tmp_path / "in"
    ids = ["2", "4", "16777217", "x"]
    write_shard(folder, "train", *(record(f"{one}.jpg", one) for one in ids))
    assert run(command, folder, tmp_path / "out", "--for", "efficientdet").code in (0, 1)
    assert list(source_ids(tmp_path / "out").values()) == ["2", "4", "5", "6"]
    write_shard(folder, "train", *(record(f"{one}.jpg", one) for one in ["16777216", *ids]))
    done = run(command, folder, tmp_path / "more", "--for", "efficientdet")
    assert done.code == 2 and "renumber the images" in done.err


def test_without_a_receiver(run: Run, shards: Path, tmp_path: Path) -> None:
    assert run("reshard", shards, tmp_path / "same")[0] == 0
    for name in ("train.tfrecord", "val.tfrecord"):
        assert (tmp_path / "same" / name).read_bytes() == (shards / name).read_bytes()
    # A repair adds only missing numbers.
    run("repair", shards, tmp_path / "out", "--select", "NAM")
    expected = {"a.jpg": "a.jpg", "b.jpg": "7", "c.jpg": "0f3c", "d.jpg": "8", "e.jpg": "9"}
    assert source_ids(tmp_path / "out") == expected


NUMBERS = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.integers(LARGEST_FLOAT32 - 2, LARGEST_FLOAT32 + 2).map(str),
    st.text("0123456789 +-.ax\n\0０", max_size=24),
)


@given(st.lists(NUMBERS))
def test_unusual_ids_are_those_that_do_not_parse(texts: list[str]) -> None:
    numbers = [parse_source_id(one) for one in texts]
    others = [i for i, one in enumerate(texts) if one and numbers[i] is None]
    large = [i for i, one in enumerate(numbers) if one is not None and abs(one) > LARGEST_FLOAT32]
    found = find_unusual_source_ids(texts)
    assert found == (next(iter(others), None), next(iter(large), None))


def test_all_numbers_are_used() -> None:
    numbers = SourceIdNumbers(4, lambda: find_last_number(["1", "2", "3", "4", "a.jpg"], 4))
    with pytest.raises(TfodError, match="all source ids up to 4"):
        numbers.number(Detection(source_id="a.jpg"))


@given(st.lists(NUMBERS, unique=True), st.sampled_from([LARGEST_FLOAT32, LARGEST_INT64, None]))
def test_numbers_are_unique(texts: list[str], largest: int | None) -> None:
    last = find_last_number(texts, largest)
    assume(largest is None or last + len(texts) <= largest)
    numbers = SourceIdNumbers(largest, lambda: last)
    found = [numbers.number(Detection(source_id=one)) for one in texts]
    kept = [one.source_id for one in found if not one.image_extra]
    given_ = {one.source_id for one in found if one.image_extra}
    assert len(given_) == sum(bool(one.image_extra) for one in found)
    assert given_.isdisjoint(kept)
    for text, one in zip(texts, found, strict=True):
        assert one.image_extra.get("former_source_id", text) == text

"""Resharding: every record is written once, unchanged, and files have the expected names."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.shards.reshard import reshard
from tfod.sources.reading import find_label_map
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.shard_sets.search import find_shards
from tfod.tfrecord.shard_sets.shard_names import similar_file_names, stated_name
from tfod.tfrecord.writer import OptionError, ShardLayout, write_records

from tests.commands import TIMEOUT, Run, run_python
from tests.conftest import CORPUS, examples
from tests.files import files_in, payloads, subsets_of, write_files
from tests.mutants.sound import flip
from tests.records import encode, frame, image, objects, write_shard
from tests.zip_forge import real_zip

LABEL_MAP = b"item { id: 1 name: 'a' }"


@pytest.mark.parametrize("name", sorted(one.name for one in CORPUS.iterdir() if one.is_dir()))
@pytest.mark.parametrize(
    ("layout", "shuffle"),
    [
        (ShardLayout(num_shards=3), None), (ShardLayout(shard_size=50_000), 5),
        (ShardLayout(compression=Compression.GZIP), None),
        (ShardLayout(num_shards=2, compression=Compression.ZLIB), 7),
    ],
)  # fmt: skip
def test_real_shards_keep_every_record(
    corpus: Path, tmp_path: Path, name: str, layout: ShardLayout, shuffle: int | None
) -> None:
    before = subsets_of(corpus / name)
    done = reshard(corpus / name, tmp_path, layout, shuffle=shuffle)
    assert subsets_of(tmp_path) == before
    assert done.records == {subset: found.total() for subset, found in before.items()}
    for source in find_shards(corpus / name):
        (made,) = (one for one in find_shards(tmp_path) if one.subset == source.subset)
        old, new = (find_label_map(one.paths[0])[0] for one in (source, made))
        assert (new and Path(new).read_bytes()) == (old and Path(old).read_bytes())


@examples(40)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=25),
    *[st.integers(1, 6)] * 2,
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)
def test_any_records_over_any_numbers_of_shards(
    records: list[bytes], before: int, after: int, seed: int | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_records(folder / "in", "s", records, num_shards=before)
        done = reshard(folder / "in", folder / "out", ShardLayout(num_shards=after), shuffle=seed)
        assert len(done.paths) == min(after, len(records))
        shards = [payloads(path) for path in done.paths]
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
        dealt = [shards[n % len(shards)][n // len(shards)] for n in range(len(records))]
        source = payloads(*paths)
        if seed is not None:
            order = np.random.RandomState(seed).permutation(len(source))
            source = [source[place] for place in order]
        assert dealt == source


@examples(40)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 900))
def test_shards_of_a_size_are_full_and_in_order(sizes: list[int], most: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = [bytes([number]) * size for number, size in enumerate(sizes)]
        write_records(folder / "in", "s", records)
        copied = reshard(folder / "in", folder / "out", ShardLayout(shard_size=most)).paths
        written = write_records(folder / "expected", "s", records, shard_size=most)
        assert [payloads(path) for path in copied] == [payloads(path) for path in written]


def test_a_seed_is_always_the_same_order(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [bytes([n]) for n in range(10)])
    (path,) = reshard(tmp_path / "in", tmp_path / "out", shuffle=42).paths
    assert list(b"".join(payloads(path))) == [8, 1, 5, 0, 7, 2, 9, 4, 3, 6]
    for seed in (-1, 1 << 32):
        with pytest.raises(OptionError):
            reshard(tmp_path / "in", tmp_path / "out", shuffle=seed, overwrite=True)


def test_the_layout_is_kept_without_options(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", [b"1", b"2", b"3"], num_shards=3, compression="gzip")
    done = reshard(tmp_path / "in", tmp_path / "out")
    assert [path.endswith("-of-00003.tfrecord.gz") for path in done.paths] == [True] * 3
    assert all(Path(path).read_bytes().startswith(b"\x1f\x8b") for path in done.paths)
    plain = reshard(tmp_path / "in", tmp_path / "p", ShardLayout(compression=Compression.NONE))
    assert Path(plain.paths[0]).stat().st_size == 17


@pytest.mark.parametrize(
    ("name", "one", "first_of_two"),
    [
        ("a.tfrecord", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a.tfrec", "a.tfrec", "a-00000-of-00002.tfrec"),
        ("a.tfrecord.gz", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a-00003-of-00010.tfrecord", "a.tfrecord", "a-00000-of-00002.tfrecord"),
        ("a.record", "a.record", "a.record-00000-of-00002"),
        ("a.record-00003-of-00010", "a.record", "a.record-00000-of-00002"),
        ("a.tfrecord-00003-of-00010.gz", "a.tfrecord", "a.tfrecord-00000-of-00002"),
        ("a-00003-of-00010", "a-00000-of-00001", "a-00000-of-00002"),
        ("v1.2-00003-of-00010.tfrecord", "v1.2.tfrecord", "v1.2-00000-of-00002.tfrecord"),
    ],
)
def test_names_are_similar_to_the_source(name: str, one: str, first_of_two: str) -> None:
    stem = stated_name(name).stem
    assert similar_file_names(name, stem, 1) == [one]
    assert similar_file_names(name, stem, 2)[0] == first_of_two
    assert stated_name(first_of_two).stem == stated_name(one).stem == stem


def test_folders_and_label_maps_are_kept(tmp_path: Path) -> None:
    for label, split in enumerate(("train", "valid"), 1):
        write_records(tmp_path / "in" / split, "Shapes", [split.encode()] * 3)
        label_map = tmp_path / "in" / split / "Shapes_label_map.pbtxt"
        label_map.write_text(f"item {{ id: {label} name: 'a' }}")
    done = reshard(tmp_path / "in", tmp_path / "out", ShardLayout(num_shards=2))
    endings = ("-00000-of-00002.tfrecord", "-00001-of-00002.tfrecord", "_label_map.pbtxt")
    written = [f"{split}/Shapes{ending}" for split in ("train", "valid") for ending in endings]
    assert sorted(files_in(tmp_path / "out")) == written
    assert subsets_of(tmp_path / "out") == subsets_of(tmp_path / "in")
    assert done.label_maps == ("train/Shapes_label_map.pbtxt", "valid/Shapes_label_map.pbtxt")
    # A label map in the folder above the shards.
    write_files(tmp_path / "b", {"train/x.tfrecord": frame(b"1"), "label_map.pbtxt": LABEL_MAP})
    reshard(tmp_path / "b", tmp_path / "c")
    assert sorted(files_in(tmp_path / "c")) == ["label_map.pbtxt", "train/x.tfrecord"]
    # A zip.
    files = [("train.tfrecord", frame(*[b"\n\0"] * 5)), ("label_map.pbtxt", LABEL_MAP)]
    (tmp_path / "a.zip").write_bytes(real_zip(files))
    reshard(tmp_path / "a.zip", tmp_path / "unzipped", shuffle=0)
    assert files_in(tmp_path / "unzipped") == dict(files)


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_damaged_shard_is_refused_and_leaves_nothing(
    tmp_path: Path, shuffle: int | None, compress: Callable[[bytes], bytes]
) -> None:
    paths = write_records(tmp_path / "in", "s", [b"x" * 99] * 6, num_shards=2)
    Path(paths[1]).write_bytes(compress(flip(Path(paths[1]).read_bytes(), 50)))
    with pytest.raises(ShardError, match=r"00001-of-00002.*record 0, byte 0.*tfod repair"):
        reshard(tmp_path / "in", tmp_path / "out", shuffle=shuffle)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_error_names_repair_if_records_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "s.tfrecord"
    cut = gzip.compress(frame(b"x" * 99), mtime=0)[:-3]
    for content, named in ((cut, True), (b"", False), (b"<html><head><title>404</title>", False)):
        path.write_bytes(content)
        with pytest.raises(ShardError) as refusal:
            reshard(path, tmp_path / "out")
        assert ("tfod repair" in str(refusal.value)) is named
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["vott", "train/night", "a-00000-of-00002", "über 1", ".."])
@pytest.mark.parametrize("label_maps", [["label_map.pbtxt"] * 2, ["x_label_map.pbtxt", "y.pbtxt"]])
def test_all_shards_become_one_subset(tmp_path: Path, name: str, label_maps: list[str]) -> None:
    """VoTT writes a shard per image, with gaps in the numbers."""
    for folder, label_map in zip("ab", label_maps, strict=True):
        for number in (1, 5, 9):
            write_records(tmp_path / "in" / folder, f"thumb{number}{folder}", [b"\n\0"])
        (tmp_path / "in" / folder / label_map).write_bytes(LABEL_MAP)
    kept = reshard(tmp_path / "in", tmp_path / "kept")
    assert len(kept.records) == 6 and any("--join NAME" in note for note in kept.notes)
    done = reshard(tmp_path / "in", tmp_path / "out", ShardLayout(num_shards=1), join=name)
    assert done.records == {name: 6} and len(done.paths) == 1 and not done.notes
    (found,) = find_shards(tmp_path / "out")
    assert len(payloads(*found.paths)) == 6 and found.subset in (name, "%2E.")
    assert find_label_map(done.paths[0])[0] is not None


# The command

BOX = objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])


def fill(folder: Path, name: str, label_map: str) -> Path:
    """Write four records with a class of id 1, and a label map."""
    box = objects([(0.1, 0.2, 0.3, 0.4)], [name], [1])
    records = (encode(image(f"{name}{n}.jpg") | box) for n in range(4))
    return Path(write_shard(folder, "train", *records, label_map=label_map)).parent


def test_output(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    a, b = (fill(tmp_path / n, n, f"item {{ id: 1 name: '{n}' }}") for n in ("cat", "dog"))
    output = f"train: 4 records\n2 shards in {out}\nlabel map copied: label_map.pbtxt\n"
    assert run("reshard", a, out, "--num-shards", "2") == (0, output, "")
    refused = run("reshard", a, out, "--shard-size", "1KB").refused()
    existing = f"{out}/train-00000-of-00002.tfrecord (and 1 more)"
    assert refused.startswith(f"tfod: {existing} already exists; ") and "--overwrite" in refused
    output = f"train: 8 records\n2 shards in {tmp_path}/b\nlabel map merged: label_map.pbtxt\n"
    note = f"tfod: {b}/label_map.pbtxt: the id of 'dog' changed from 1 to 2\n"
    assert run("reshard", a, b, tmp_path / "b") == (0, output, note)


def test_one_missing_shard(run: Run, tmp_path: Path) -> None:
    first, *_ = write_records(tmp_path / "in", "a", [encode(image() | BOX)] * 2, num_shards=2)
    os.unlink(first)
    done = run("reshard", tmp_path / "in", tmp_path / "out")
    missing = "a-00000-of-00002.tfrecord is missing; the new shards are renumbered"
    assert done.succeeded() == f"tfod: a: {missing}\n"
    assert done.out.startswith("a: 1 record\n1 shard in")


def test_ids_of_several_classes(run: Run, tmp_path: Path) -> None:
    items = (f"item {{ id: {n // 2} name: 'c{n}' }}\n" for n in range(2, 8))
    folder = fill(tmp_path / "in", "c2", "".join(items))
    note = "label_map.pbtxt: id 1 is shared by 'c2' and 'c3'; 2 more ids are shared by several "
    done = run("convert", "--to", "coco", folder, tmp_path / "coco")
    assert f"tfod: {folder}/{note}" in done.err


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard of random bytes, which takes half a second to compress."""
    folder = tmp_path_factory.mktemp("large") / "in"
    random = np.random.default_rng(0)
    images = (image(f"{n}.jpg") | {"image/encoded": random.bytes(100_000)} for n in range(150))
    write_records(folder, "s", (encode(one | BOX) for one in images))
    return folder


def restore_signals() -> None:
    """Restore Ctrl-C, which the children of a shell in the background ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


OPTIONS = (["--num-shards", "3"], ["--shuffle", "1"])


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [*((one, signal.SIGINT, 130) for one in OPTIONS), (OPTIONS[0], signal.SIGTERM, 143)],
)
def test_a_stopped_command_changes_nothing(
    large: Path, tmp_path: Path, arguments: list[str], number: int, code: int
) -> None:
    write_records(tmp_path, "s", [b"\n\0"])
    before = files_in(tmp_path)
    options = [str(tmp_path), "--overwrite", "--compression", "gzip"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfod.cli.main", "reshard", str(large), *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,
    )
    while process.poll() is None:
        if any(one.stat().st_size for one in tmp_path.glob(".*.tmp/*")):
            break
        time.sleep(0.002)
    process.send_signal(number)
    _, error = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code, error
    assert error == ("tfod: interrupted\n" if number == signal.SIGINT else "")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("arguments", OPTIONS)
def test_a_full_disk_changes_nothing(large: Path, tmp_path: Path, arguments: list[str]) -> None:
    write_records(tmp_path / "out", "s", [b"\n\0"])
    before = files_in(tmp_path)
    command = ("-m", "tfod.cli.main", "reshard", large, *arguments, tmp_path / "out", "--overwrite")
    line = run_python(*command, largest_file=1 << 20).refused()
    assert line.startswith(f"tfod: {tmp_path / 'out'}/") and "cannot be written" in line
    assert files_in(tmp_path) == before


def test_memory_is_limited(large: Path, tmp_path: Path) -> None:
    """The process needs a few buffers for 15 MB of records."""
    code = (
        "import resource, sys; from tfod.cli.main import main\n"
        "from tfod.shards.reshard import reshard\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"main(['reshard', {str(large)!r}, {str(tmp_path)!r}, *sys.argv[1:]])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    for options in (["--num-shards", "4"], ["--shuffle", "1"]):
        done = run_python("-c", code, *options, "--overwrite")
        assert int(done.out.split()[-1]) < 8 << 10  # KiB
    assert len(payloads(*tmp_path.glob("*.tfrecord"))) == 150

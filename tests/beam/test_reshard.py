"""``tfod reshard --runner``: the files of ``tfod reshard``, to the byte, and nothing besides."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tfod.beam import Runner
from tfod.beam.errors import errors_in_utf8, require_here, require_shared
from tfod.beam.record_table import cuts
from tfod.cli.main import main
from tfod.errors import ShardError, TfodError
from tfod.shards.reshard import reshard
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.output_folder import OutputExistsError
from tfod.tfrecord.writer import ShardLayout, write_records

from tests.beam.clusters import children_of, command_of
from tests.beam.conftest import direct
from tests.commands import wait_until
from tests.files import files_in

# Its process is another than the pipeline's.
ONE_WORKER = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]


def some_payloads(count: int, largest: int = 300) -> Iterator[bytes]:
    chance = random.Random(count)
    return (chance.randbytes(chance.randrange(largest)) for _ in range(count))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two subsets, one of them compressed, with a label map."""
    folder = tmp_path_factory.mktemp("source")
    write_records(folder, "train", some_payloads(90), num_shards=3)
    write_records(folder, "val", some_payloads(40), num_shards=2, compression=Compression.GZIP)
    (folder / "label_map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    return folder


# DirectRunner in processes: the dead worker's test. The others: test_run.py and test_create.py.
@pytest.mark.slow
@pytest.mark.parametrize("runner", ["portable", "dask"], indirect=True)
def test_every_runner_writes_the_same(source: Path, runner: Runner, tmp_path: Path) -> None:
    layout = ShardLayout(num_shards=4)
    local = reshard(source, tmp_path / "local", layout, shuffle=5)
    there = reshard(source, tmp_path / "there", layout, shuffle=5, runner=runner)
    assert there.records == local.records
    assert [Path(one).name for one in there.paths] == [Path(one).name for one in local.paths]
    assert (there.label_maps, there.notes) == (local.label_maps, local.notes)
    assert files_in(tmp_path / "there") == files_in(tmp_path / "local")


@pytest.mark.parametrize(
    ("layout", "shuffle"),
    [
        (ShardLayout(num_shards=7, compression=Compression.ZLIB), 7),
        (ShardLayout(num_shards=100), None),
        (ShardLayout(shard_size=2000), None),
        (ShardLayout(shard_size=2000), 7),
        (ShardLayout(shard_size=5, compression=Compression.NONE), None),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_every_layout_is_the_same(
    source: Path, tmp_path: Path, layout: ShardLayout, shuffle: int | None
) -> None:
    reshard(source, tmp_path / "local", layout, shuffle=shuffle)
    reshard(source, tmp_path / "there", layout, shuffle=shuffle, runner=direct(1))
    assert files_in(tmp_path / "there") == files_in(tmp_path / "local")


@pytest.mark.parametrize("kind", ["zip", "url", "folders"])
@pytest.mark.usefixtures("in_this_process")
def test_every_source_is_the_same(source: Path, tmp_path: Path, kind: str) -> None:
    given = str(source)
    if kind == "zip":
        given = str(tmp_path / "a.zip")
        with zipfile.ZipFile(given, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in source.iterdir():
                archive.write(path, path.name)
    elif kind == "url":
        given = source.as_uri()
    else:
        given = str(tmp_path / "in")
        for subset in ("train", "valid"):
            write_records(tmp_path / "in" / subset, "x", some_payloads(9))
    layout = ShardLayout(num_shards=3)
    reshard(given, tmp_path / "local", layout)
    reshard(given, tmp_path / "there", layout, runner=direct(1))
    assert files_in(tmp_path / "there") == files_in(tmp_path / "local")


def test_shards_of_a_size_are_cut_as_by_the_writer(tmp_path: Path) -> None:
    for seed in range(50):
        chance = random.Random(seed)
        sizes = [chance.randrange(60) for _ in range(chance.randrange(1, 40))]
        layout = ShardLayout(shard_size=chance.randrange(1, 200))
        paths = write_records(
            tmp_path / str(seed), "s", map(bytes, sizes), shard_size=layout.shard_size
        )
        half = chance.randrange(len(sizes))
        blocks = [np.array(some, np.int64) + 16 for some in (sizes[:half], [], sizes[half:])]
        found = cuts(layout, len(sizes), blocks)
        assert [os.path.getsize(path) for path in paths] == [
            sum(size + 16 for size in sizes[cut.start : cut.stop]) for cut in found
        ]


def spoil(source: Path, to: Path, name: str, place: int | None) -> Path:
    """A copy of the shards with one byte changed, or with one of them empty."""
    to.mkdir()
    for path, content in files_in(source).items():
        (to / path).write_bytes(content)
    data = bytearray((to / name).read_bytes())
    if place is None:
        data.clear()
    else:
        data[place] ^= 1
    (to / name).write_bytes(data)
    return to


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("train-00001-of-00003.tfrecord", 20),  # data
        ("val-00001-of-00002.tfrecord", 200),  # compressed data
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_damage_is_the_same_line(
    source: Path, tmp_path: Path, name: str, place: int | None
) -> None:
    broken = spoil(source, tmp_path / "in", name, place)
    with pytest.raises(ShardError) as local:
        reshard(broken, tmp_path / "local")
    with pytest.raises(TfodError) as there:
        reshard(broken, tmp_path / "there", runner=direct(1))
    assert str(there.value) == str(local.value)
    assert sorted(os.listdir(tmp_path)) == ["in"]


@pytest.mark.usefixtures("in_this_process")
def test_an_empty_file_of_a_set_has_no_records(source: Path, tmp_path: Path) -> None:
    hollow = spoil(source, tmp_path / "in", "train-00001-of-00003.tfrecord", None)
    local = reshard(hollow, tmp_path / "local")
    there = reshard(hollow, tmp_path / "there", runner=direct(1))
    assert there.records == local.records and local.records["train"] > 0
    assert files_in(tmp_path / "there") == files_in(tmp_path / "local")


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.usefixtures("in_this_process")
def test_an_empty_file_is_the_same_line(tmp_path: Path, shuffle: int | None) -> None:
    write_records(tmp_path / "in", "train", [b"1"], num_shards=1)
    (tmp_path / "in" / "val.tfrecord").touch()
    output = []
    for runner in (None, direct(1)):
        with pytest.raises(ShardError if runner is None else TfodError) as caught:
            reshard(tmp_path / "in", tmp_path / "out", shuffle=shuffle, runner=runner)
        output.append(str(caught.value))
    assert output[0] == output[1]
    assert "val.tfrecord: is empty (0 bytes); delete it" in output[0]


@pytest.mark.usefixtures("in_this_process")
def test_names_need_be_no_utf8(tmp_path: Path) -> None:
    path = write_records(tmp_path / "in", "train", some_payloads(9), num_shards=1)[0]
    odd = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"in", b"\xfftrain.tfrecord"))
    os.rename(path, odd)
    reshard(tmp_path / "in", tmp_path / "local")
    reshard(tmp_path / "in", tmp_path / "there", runner=direct(1))
    assert files_in(tmp_path / "there") == files_in(tmp_path / "local")


def test_errors_can_be_sent() -> None:
    with pytest.raises(TfodError, match=r"^\\udcff.record: is damaged$"), errors_in_utf8():
        raise ShardError("is damaged", shard="\udcff.record")
    with pytest.raises(ShardError, match=r"^ä.record: is damaged$"), errors_in_utf8():
        raise ShardError("is damaged", shard="ä.record")


@pytest.mark.usefixtures("in_this_process")
def test_what_is_there_stays_or_goes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_records(out, "train", [b"old"] * 4, num_shards=4)
    before = files_in(out)
    with pytest.raises(OutputExistsError, match=r"\(and 3 more\) is there already"):
        reshard(source, out, runner=direct(1))
    assert files_in(out) == before
    reshard(source, out, overwrite=True, runner=direct(1))
    reshard(source, tmp_path / "local")
    assert files_in(out) == files_in(tmp_path / "local")


def test_nothing_is_written_onto_what_is_read(source: Path) -> None:
    before = files_in(source)
    with pytest.raises(OutputExistsError, match="is read"):
        reshard(source, source, overwrite=True, runner=direct(1))
    assert files_in(source) == before


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tfod.cli.main", "reshard", *map(str, arguments)]


def as_in_a_terminal() -> None:
    """A shell in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    return [one for one in children_of(process.pid) if "-m apache_beam" in command_of(one)]


def test_a_dead_worker_is_said_and_nothing_is_lost(source: Path, tmp_path: Path) -> None:
    reshard(source, tmp_path / "local", ShardLayout(4))
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(source, "-o", out, "--num-shards=4", "--runner=direct", "--", *ONE_WORKER),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.kill(wait_until(lambda: workers_of(process))[0], signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode == 0
    assert output.splitlines()[:2] == ["train: 90 records", "val: 40 records"]
    assert errors == (
        "tfod: DirectRunner: a worker process died; all its work is done again (attempt 2 of 3)\n"
    )
    assert files_in(out) == files_in(tmp_path / "local")
    assert os.listdir(out) == [one for one in os.listdir(out) if not one.startswith(".")]


def test_nothing_is_left_after_ctrl_c(source: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(source, "-o", tmp_path / "deep" / "out", "--runner=direct", "--", *ONE_WORKER),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_in_a_terminal,
    )
    wait_until(lambda: workers_of(process))
    started = children_of(process.pid)
    assert len(os.listdir(tmp_path / "deep" / "out")) == 1
    process.send_signal(signal.SIGINT)
    assert (process.communicate()[1], process.returncode) == ("tfod: interrupted\n", 130)
    wait_until(lambda: not any(map(command_of, started)))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    write_records(tmp_path / "in", "s", some_payloads(100, 30_000))
    process = subprocess.run(
        command(tmp_path / "in", "-o", tmp_path / "out", "--runner=direct"),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert process.returncode == 2
    assert process.stderr.startswith(f"tfod: {tmp_path}/out/.tfod.")
    assert process.stderr.endswith(
        ": cannot be written (File too large); what was there before is unchanged\n"
    )
    assert os.listdir(tmp_path) == ["in"]


def test_without_beam_the_line_says_what_to_install(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "import sys; sys.modules['apache_beam'] = None",
        "from tfod.cli.main import main; sys.exit(main())",
    )
    arguments = command(source, "-o", tmp_path / "out", "--runner=direct")[3:]
    process = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *arguments],
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stderr) == (
        2,
        "tfod: --runner needs Apache Beam; pip install '.[beam]' in a clone of tfod\n",
    )


@pytest.mark.usefixtures("in_this_process")
def test_options_of_beam_need_a_runner(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["reshard", str(source), "-o", str(tmp_path), "--", "--direct_num_workers=2"])
    arguments = ["reshard", str(source), "-o", str(tmp_path / "out"), "--num-shards=4"]
    assert main([*arguments, "--runner", "direct", "--", "--direct_num_workers=1"]) == 0
    assert len(files_in(tmp_path / "out")) == 9


def test_folders_that_are_not_shared_are_named(tmp_path: Path) -> None:
    with pytest.raises(TfodError, match=r"nowhere: a worker does not see it; write to a folder"):
        require_shared(str(tmp_path / "nowhere"))
    (tmp_path / "short").write_bytes(b"1")
    require_here(str(tmp_path / "short"), 1)
    for name, size in (("none", None), ("short", 2)):
        with pytest.raises(TfodError, match="and it is not here"):
            require_here(str(tmp_path / name), size)

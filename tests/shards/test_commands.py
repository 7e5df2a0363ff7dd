"""The commands as a user meets them: what they say, and what is left when they do not end well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tfod.tfrecord.writer import write_records

from tests.commands import TIMEOUT, Run, run_python
from tests.files import files_in, payloads
from tests.records import encode, image, objects

BOX = (0.1, 0.2, 0.3, 0.4)


def fill(folder: Path, name: str = "cat", label: int = 1, count: int = 4) -> Path:
    box = objects([BOX], [name], [label])
    images = (image(f"{name}{n}.jpg") | {"image/encoded": f"{n}"} for n in range(count))
    write_records(folder, "train", [encode(one | box) for one in images])
    (folder / "label_map.pbtxt").write_text(f"item {{ id: {label} name: '{name}' }}")
    return folder


def test_reshard_says_what_it_did(run: Run, tmp_path: Path) -> None:
    source, out = fill(tmp_path / "in"), tmp_path / "out"
    said = f"train: 4 records\n2 shards in {out}\nlabel map copied: label_map.pbtxt\n"
    assert run("reshard", source, out, "--num-shards", "2") == (0, said, "")
    refused = run("reshard", source, out, "--shard-size", "1KB").refused()
    existing = f"{out}/train-00000-of-00002.tfrecord (and 1 more)"
    assert refused.startswith(f"tfod: {existing} already exists; ") and "--overwrite" in refused


def test_an_id_of_two_classes_is_told(run: Run, tmp_path: Path) -> None:
    folder = fill(tmp_path / "in")
    label_map = folder / "label_map.pbtxt"
    label_map.write_text("".join(f"item {{ id: {n // 2} name: 'c{n}' }}\n" for n in range(2, 8)))
    note = f"tfod: {label_map}: id 1 is shared by 'c2' and 'c3'; 2 more ids are shared by several "
    assert note in run("convert", "--to", "coco", folder, tmp_path / "coco").err


def test_reshard_says_what_it_did_of_several(run: Run, tmp_path: Path) -> None:
    a, b, out = fill(tmp_path / "a"), fill(tmp_path / "b", "dog"), tmp_path / "out"
    done = run("reshard", a, b, out)
    said = f"train: 8 records\n2 shards in {out}\nlabel map merged: label_map.pbtxt\n"
    assert done == (0, said, f"tfod: {b}/label_map.pbtxt: the id of 'dog' changed from 1 to 2\n")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard that takes half a second to compress: no two bytes of it are alike."""
    folder = tmp_path_factory.mktemp("large") / "in"
    random = np.random.default_rng(0)
    box = objects([BOX], ["cat"], [1])
    images = (image(f"{n}.jpg") | {"image/encoded": random.bytes(100_000)} for n in range(150))
    write_records(folder, "s", (encode(one | box) for one in images))
    return folder


def restore_signals() -> None:
    """A shell in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


COMMANDS = (["reshard", "IN", "--num-shards", "3"], ["reshard", "IN", "--shuffle", "1"])


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [*((one, signal.SIGINT, 130) for one in COMMANDS), (COMMANDS[0], signal.SIGTERM, 143)],
)
def test_stopped_in_the_middle_it_leaves_what_was_there(
    large: Path, tmp_path: Path, arguments: list[str], number: int, code: int
) -> None:
    write_records(tmp_path, "s", [b"\n\0"])
    before = files_in(tmp_path)
    options = [str(tmp_path), "--overwrite", "--compression", "gzip"]
    arguments = [str(large) if one == "IN" else one for one in arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfod.cli.main", *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,
    )
    while process.poll() is None and not _written_aside(tmp_path):
        time.sleep(0.002)
    process.send_signal(number)
    _, error = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code, error
    assert error == ("tfod: interrupted\n" if number == signal.SIGINT else "")
    assert files_in(tmp_path) == before


def _written_aside(folder: Path) -> bool:
    return any(one.stat().st_size for one in folder.glob(".*.tmp/*"))


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_is_one_line_and_leaves_what_was_there(
    large: Path, tmp_path: Path, arguments: list[str]
) -> None:
    write_records(tmp_path / "out", "s", [b"\n\0"])
    before = files_in(tmp_path)
    arguments = [str(large) if one == "IN" else one for one in arguments]
    command = ("-m", "tfod.cli.main", *arguments, tmp_path / "out", "--overwrite")
    line = run_python(*command, largest_file=1 << 20).refused()
    assert line.startswith(f"tfod: {tmp_path / 'out'}/") and "cannot be written" in line
    assert files_in(tmp_path) == before


def test_memory_is_flat(large: Path, tmp_path: Path) -> None:
    """15 MB of records; what the process takes besides its modules is a few buffers."""
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


def test_what_there_is_one_of(run: Run, tmp_path: Path) -> None:
    """One missing shard is named as one."""
    cat = encode(image("a.jpg") | objects([BOX], ["cat"]))
    first, *_ = write_records(tmp_path / "in", "a", [cat, cat], num_shards=2)
    os.unlink(first)
    done = run("reshard", tmp_path / "in", tmp_path / "out")
    missing = "a-00000-of-00002.tfrecord is missing; the new shards are renumbered"
    assert done.succeeded() == f"tfod: a: {missing}\n"
    assert done.out.startswith("a: 1 record\n1 shard in")

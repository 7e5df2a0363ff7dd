"""``tfod describe``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tfod import kernel
from tfod.version import __version__

from tests.commands import Run, run_python
from tests.records import image, objects


def test_text(make_shard, run: Run) -> None:
    shard = make_shard(
        "s",
        image("a.jpg") | objects([[0, 0, 1, 1]] * 2, ["cat", "кошка"], [1, 2]),
        image("b.jpg") | {"image/format": "jpg", "odd": []},
    )
    output = run("describe", shard).out
    head, keys, _, _, end = re.split(r"\n\n(?=key |class |  +min|import )", output)
    assert head == (
        f"1 shard, 2 records (1 without boxes), 2 boxes; {os.path.getsize(shard)} B, "
        "largest record 322 B\nlayout: cvat; label map: none"
    )
    assert [" ".join(line.split()) for line in keys.splitlines()] == [
        "key kind records values",
        "image/filename bytes_list 2 1",
        "image/format bytes_list 1 1",
        "image/height int64_list 2 1",
        *(f"image/object/bbox/{side} float_list 1 2" for side in ("xmax", "xmin", "ymax", "ymin")),
        "image/object/class/label int64_list 1 2",
        "image/object/class/text bytes_list 1 2",
        "image/width int64_list 2 1",
        "odd int64_list 1 0",
    ]
    assert [line.split("tf.io.")[-1] for line in end.splitlines()[3:-1]] == [
        "FixedLenFeature((), tf.string),",
        "FixedLenFeature((), tf.string, default_value=b''),",
        "FixedLenFeature((), tf.int64),",
        *["VarLenFeature(tf.float32),"] * 4,
        "VarLenFeature(tf.int64),",
        "VarLenFeature(tf.string),",
        "FixedLenFeature((), tf.int64),",
        "VarLenFeature(tf.int64),",
    ]


def test_json_has_the_numbers_of_the_text(make_shard, run: Run) -> None:
    hostile = "\x1b[2J\u202egnp"
    shard = make_shard(
        "s",
        image("a.jpg", width=100, height=50)
        | objects([[0, 0, 1, 1], [0, 0, 0.5, 1]], ["cat", hostile], [1, 2]),
        image("b.jpg", width=100, height=50) | {"odd": []},
    )
    output = run("describe", shard, "--format", "JSON").out
    assert not {"\x1b", "\u202e"} & set(output)
    document = json.loads(output)
    numbers = {key: value for key, value in document.items() if isinstance(value, int)}
    assert numbers.pop("largest_record") < numbers["bytes"] == os.path.getsize(shard)
    counts = {"records": 2, "records_without_boxes": 1, "damaged_records": 0, "boxes": 2}
    assert numbers == {"tfod_describe": 1, "shards": 1, "bytes": numbers["bytes"], **counts}
    key = {"kinds": ["int64_list"], "records": 1, "min_values": 0, "max_values": 0}
    assert document["keys"]["odd"] == key
    assert document["classes"] == [
        {"name": name, "id": number, "boxes": 1, "images": 1, "boxes_by_subset": {"s": 1}}
        for name, number in sorted({"cat": 1, hostile: 2}.items())
    ]
    assert document["numbers"]["box width, pixels"]["min"] == 50
    assert document["sources"] == [shard] and document["layouts"] == ["cvat"]
    with pytest.raises(SystemExit, match="2"):
        run("describe", shard, "--format", "json", "--as-profile")


def test_keys_do_not_steer_the_terminal(make_shard, run: Run) -> None:
    shard = make_shard("s", image("a.jpg") | {"a\x1b[2Jb\nc\u202ed": [1], "größe": [1]})
    output = run("describe", shard).out
    assert "\na\\x1b[2Jb\\nc\\u202ed  int64_list        1  1\n" in output
    assert "\ngröße" in output and not {"\x1b", "\u202e"} & set(output)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PermissionError(13, "Permission denied", "s.record"), 2, "s.record: Permission denied"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_while_it_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("tfod.shards.describe.describe", fail)
    assert run("describe", "s.record") == (code, "", f"tfod: {message}\n")


@pytest.mark.parametrize(
    ("command", "lines", "codes"),
    [("describe", 1, {0}), ("check", 1, {0, 1}), ("check --help", 0, {0})],
)
def test_a_reader_that_goes_away(make_shard, command: str, lines: int, codes: set[int]) -> None:
    shard = make_shard("s", {f"key {n}": n for n in range(3000)})
    typed = f"{sys.executable} -m tfod.cli.main {command} {shard} | head -n {lines}"
    script = f"{typed}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout.count("\n")) == ("", lines) and done.returncode in codes


@pytest.mark.parametrize("chosen", ["", "0"])
def test_version_says_which_kernel(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("TFOD_KERNEL", chosen)
    why = "(Python kernel, slower: not compiled when tfod was installed)"
    if chosen == "0":
        why = "(Python kernel, slower: TFOD_KERNEL=0)"
    elif any(Path(kernel.__file__).parent.glob("*tfod_kernel.*")):
        why = "(compiled kernel)"
    assert run_python("-m", "tfod.cli.main", "--version").out == f"tfod {__version__} {why}\n"

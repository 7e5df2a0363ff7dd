"""The output of commands is the same with the compiled kernel and with Python's."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tfod.cli.main import main
from tfod.kernel import WHY_NOT_COMPILED

from tests.conftest import CORPUS
from tests.image_kinds import plain_image
from tests.mutants.make import all_mutants

SHARDS = sorted(path for path in CORPUS.rglob("*record") if path.is_file())
_DURATION = re.compile(r'(?<="duration": )[\d.]+|[\d.]+ s(?=, report version)')
_IMAGE = re.compile(r"data:image/\w+;base64,[\w+/=]+")
# One failing mutant of each other family is enough: test_kernel.py parses all of them.
_FAMILIES = {one.code[:3]: one for one in reversed(all_mutants()) if one.fires}
_MUTANTS = [
    one
    for one in all_mutants()
    if one.code[:3] in ("TFR", "EXA") or one is _FAMILIES[one.code[:3]]
    if one.case != "input-output-error"  # a file that depends on the process
]


def commands(mutants: str) -> Iterator[list[str]]:
    """Eight commands; their output folders have no other files."""
    yield ["check", mutants, str(CORPUS), "--format", "json"]
    first = str(SHARDS[0])
    for shard in map(str, SHARDS):
        yield ["describe", shard, "--as-profile"]
        yield ["convert", shard, "coco", "--to", "coco"]
        yield ["show", shard, "-o", "page.html"]
        yield ["diff", shard, first, "--format", "text"]
        yield ["diff", shard, first, "--format", "json"]
        yield ["reshard", shard, first, "joined"]
        yield ["check", shard, "--decode", "all", "--for", "od-api", "--format", "html"]
    yield ["convert", "../boxes.csv", "made.record", "--images", ".."]
    yield ["rules"]
    for one in _MUTANTS:
        path = one.path(mutants)
        yield ["describe", path]
        yield ["reshard", path, "resharded"]
        if one.fires:
            yield ["repair", path, "repaired"]


def folder_to_run_in(parent: Path, name: str) -> Path:
    """Create a folder with the sources of the commands."""
    folder = parent / name
    folder.mkdir()
    (folder / "a.jpg").write_bytes(plain_image((40, 20)))
    (folder / "boxes.csv").write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,40,20,cat,1,2,30,15\n"
    )
    return folder


def run_all(mutants: str, *, with_images: bool = True) -> None:
    """Run the commands in this folder, and print a line with the output of each.

    Without the images in pages, if they are compressed by another version of Pillow.
    """
    for number, command in enumerate(commands(mutants)):
        Path(str(number)).mkdir()
        os.chdir(str(number))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(command)
        paths = sorted(path for path in Path().rglob("*") if path.is_file())
        files = {str(path): _hash_file(path, with_images) for path in paths}
        os.chdir("..")
        texts = [_DURATION.sub("", one.getvalue()) for one in (out, err)]
        if not with_images:
            texts = [_IMAGE.sub("", text) for text in texts]
        print(json.dumps([command, code, *texts, files]))


def _hash_file(path: Path, with_images: bool) -> str:
    content = path.read_bytes()
    if path.suffix == ".html" and not with_images:
        content = _IMAGE.sub("", content.decode()).encode()
    return hashlib.sha256(content).hexdigest()


def test_the_same_with_each_kernel(mutants: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="show and reports in HTML need the extra validator")
    if WHY_NOT_COMPILED:
        pytest.skip(f"there is no compiled kernel to compare with: {WHY_NOT_COMPILED}")
    program = "import sys; from tests.kernel.test_outputs import run_all; run_all(sys.argv[1])"
    running = []
    for kernel in ("0", ""):
        folder = folder_to_run_in(tmp_path, f"kernel{kernel}")
        environment = {"TFOD_KERNEL": kernel, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(mutants)],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
    python, compiled = (process.communicate()[0].splitlines() for process in running)
    assert [process.returncode for process in running] == [0, 0]
    done = set()
    for one, other in zip(map(json.loads, compiled), map(json.loads, python), strict=True):
        assert one == other
        command, code, *_ = one
        if code in (0, 1):
            done.add(command[0])
    assert len(done) == 8, done

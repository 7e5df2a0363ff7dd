"""tfod where Python has no fork, pread, fcntl, resource…: all but the service works.

The processes of these tests have what ``simulated/sitecustomize.py`` leaves of this system.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.commands import run_python
from tests.files import files_in, write_files
from tests.mutants.sound import LABEL_MAP, png, record, shard

ROOT = Path(__file__).parents[3]
SECOND = record("b.png", encoded=png(), text=["кот", "dog"])
SIMULATED = Path(__file__).parent / "simulated"
PATHS = os.pathsep.join(filter(None, (str(SIMULATED), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {
    "PYTHONPATH": PATHS,
    "PYTHONWARNDEFAULTENCODING": "1",
    "PYTHONIOENCODING": "cp1252",
    "PYTHONUTF8": "0",
    "COVERAGE_PROCESS_START": "",
}
"""The locale's encoding is not UTF-8."""


def tfod(*arguments: object, cwd: Path, code: int = 0) -> str:
    """Run a command and return its output."""
    done = run_python("-m", "tfod.cli.main", *arguments, folder=cwd, **ENVIRONMENT)
    assert done.code == code, done.out + done.err
    assert "Traceback" not in done.err
    return done.out + done.err


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards with a class that cp1252 cannot spell, and their label map."""
    records = (record(text=["кот", "dog"]), SECOND)
    files = {f"train-{n:05d}-of-00002.tfrecord": shard(one) for n, one in enumerate(records)}
    label_map = LABEL_MAP.replace(b"cat", "кот".encode())
    return write_files(tmp_path / "in", {**files, "label_map.pbtxt": label_map})


def test_the_simulation_lacks_what_windows_lacks(tmp_path: Path) -> None:
    """Otherwise the tests below would show nothing."""
    (tmp_path / "tfod_probe.py").write_text(
        "import os, signal, multiprocessing\n"
        "__name__ = 'tfod.probe'\n"
        "assert not hasattr(os, 'pread') and not hasattr(os, 'fork')\n"
        "assert not hasattr(signal, 'SIGKILL') and hasattr(signal, 'SIGTERM')\n"
        "for name in ('fcntl', 'resource'):\n"
        "    try: __import__(name)\n"
        "    except ImportError: continue\n"
        "    raise SystemExit(name)\n"
        "assert multiprocessing.get_start_method() == 'spawn'\n"
        "with open('a', 'w', encoding='utf-8') as file:\n"
        "    for change in (lambda: os.replace('a', 'b'), lambda: os.unlink('a')):\n"
        "        try: change()\n"
        "        except PermissionError: continue\n"
        "        raise SystemExit('open files are replaced')\n"
        "try: open('a')\n"
        "except EncodingWarning: print('all as on Windows')\n"
    )
    done = run_python("tfod_probe.py", folder=tmp_path, **ENVIRONMENT)
    assert done.out == "all as on Windows\n", done.err


@pytest.mark.parametrize("jobs", [1, 2])
def test_check(shards: Path, jobs: int, tmp_path: Path) -> None:
    output = tfod("check", shards, "--jobs", jobs, cwd=tmp_path)
    assert output.startswith("VALID") and "2 shards, 2 records" in output
    mistyped = record("b.png", encoded=png(), text=["крот", "dog"])
    (shards / "train-00001-of-00002.tfrecord").write_bytes(shard(mistyped))
    output = tfod("check", shards, "--jobs", jobs, cwd=tmp_path, code=1)
    assert "LAB006 error" in output and "class 'крот' is not in the label map" in output
    report = tmp_path / "report.html"
    tfod("check", shards, "--format", "html", "--output", report, cwd=tmp_path, code=1)
    assert "крот" in report.read_text(encoding="utf-8")


def test_other_commands(shards: Path, tmp_path: Path) -> None:
    tfod("reshard", shards, "one", "--num-shards", 1, "--shuffle", 3, cwd=tmp_path)
    tfod("reshard", shards, "one", "--num-shards", 1, "--overwrite", cwd=tmp_path)
    assert "кот" in tfod("describe", "one", cwd=tmp_path)
    tfod("repair", shards, "repaired", cwd=tmp_path)
    tfod("show", "one", "-o", "sheet.html", cwd=tmp_path)
    shutil.make_archive(str(tmp_path / "in"), "zip", shards)
    assert "2 shards, 2 records" in tfod("check", "in.zip", cwd=tmp_path)
    tfod("reshard", "in.zip", "out", "--shuffle", 1, cwd=tmp_path)
    maps = {f"{name}/label_map.pbtxt" for name in ("one", "repaired", "out")}
    numbered = {f"{folder}/train-0000{n}-of-00002.tfrecord"
                for folder in ("repaired", "out") for n in (0, 1)}  # fmt: skip
    files = {name for name in files_in(tmp_path) if not name.startswith("in")}
    assert files == {"one/train.tfrecord", "sheet.html", *maps, *numbered}


def test_convert(tmp_path: Path) -> None:
    voc = ROOT / "examples" / "shapes_voc"
    for _ in range(2):
        output = tfod("convert", voc, "out/p.record", "--set", "train", "--overwrite", cwd=tmp_path)
        assert "p.record: train: 8 " in output
    tfod("check", "out", cwd=tmp_path, code=0)


LIBRARY = """
import pathlib, sys
import tfod
first, second = [one.filename for one in tfod.read_detections("in")]
index = tfod.RecordIndex("in/train-00000-of-00002.tfrecord")
assert len(index[0]) > 100
tfod.write_records("out", "s", [index[0]] * 5, num_shards=2)
tfod.write_records("out", "s", [index[0]] * 4, num_shards=2)
kept = tfod.RecordIndex("out/s-00000-of-00002.tfrecord")  # which keeps its file open
tfod.write_records("out", "s", [index[0]] * 4, num_shards=2)
print(first, second, len(list(tfod.read_records("out/s-00000-of-00002.tfrecord"))))
"""


def test_the_library(shards: Path, tmp_path: Path) -> None:
    done = run_python("-c", LIBRARY, folder=tmp_path, **ENVIRONMENT)
    assert done.out == "a.jpg b.png 2\n", done.err


DATUMARO = """
from datumaro.components.dataset import Dataset
data = Dataset.import_from("in", "tf_detection_api")
data.export("out", "tf_detection_api", save_media=True)
data = Dataset.import_from("out", "tf_detection_api")
assert [len(item.media.data) for item in data]
data.remove("b", "train")
data.save(save_media=True)
data = Dataset.import_from("out", "tf_detection_api")
print(*(item.id for item in data))
"""


def test_datumaro(shards: Path, tmp_path: Path) -> None:
    """Saving replaces a shard that is open, since its images are in use."""
    pytest.importorskip("datumaro")
    done = run_python("-c", DATUMARO, folder=tmp_path, **ENVIRONMENT)
    assert done.out == "a\n", done.err


def test_the_service_and_beam_need_another_system(shards: Path, tmp_path: Path) -> None:
    output = tfod("serve", cwd=tmp_path, code=2)
    assert output.startswith("tfod: tfod serve needs") and output.count("\n") == 1
    output = tfod("check", shards, "--runner", "DirectRunner", cwd=tmp_path, code=2)
    assert output == "tfod: --runner needs Linux or macOS; omit it\n"

"""Mistyped arguments, full disks and signals: one line says what to do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest
from tfod.cli.arguments import COMMANDS, split_arguments
from tfod.cli.main import main

from tests.commands import Run, run_python
from tests.files import write_file
from tests.records import encode, frame, image, objects

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shard, Pascal VOC, and a file where a folder is expected."""
    record = encode({**image(), **objects([(0.1, 0.2, 0.3, 0.4)], ["cat"], [1])})
    write_file(tmp_path / "a.record", frame(record))
    write_file(tmp_path / "label_map.pbtxt", "item { id: 1 name: 'cat' }")
    write_file(tmp_path / "file", b"")
    write_file(tmp_path / "cut.record", b"PK\x03\x04" + bytes(50))
    write_file(tmp_path / "profile.yaml", b"name: own\n")
    write_file(tmp_path / "yolo" / "data.yaml", b"names: [cat]\ntrain: .\n")
    for name in ("csv", "voc"):
        shutil.copytree(EXAMPLES / f"shapes_{name}", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("check /dev/null", "/dev/null: is neither a file nor a folder"),
        ("describe -", "-: only tfod check and tfod show read standard input; pass a file"),
        ("convert https://localhost:9/x out", "other formats cannot be read from a URL"),
        ("reshard voc out", "contains Pascal VOC annotations, no shards; to convert them"),
        ("check csv", "type: tfod convert csv shards"),
        ("reshard a.record file", "file: cannot write there (it is not a folder)"),
        ("repair a.record file", "file: cannot write there (it is not a folder)"),
        ("convert a.record file/a.json", "file: cannot write there (it is not a folder)"),
        ("convert yolo out --images yolo", "--images yolo: YOLO's YAML names"),
        ("convert yolo out --images nope", "--images nope: no such folder"),
        ("check a.record --profile profile.yaml", "profile.yaml: 'features' is a required proper"),
        ("check absent.record", "absent.record: no such file or folder"),
        ("describe absent.record", "absent.record: no such file or folder"),
        ("describe file", "file: is empty (0 bytes)"),
        ("describe cut.record", "cut.record: is not a readable zip: it is a truncated zip"),
        ("check nosuch://bucket/x.tfrecord", "nosuch"),
        ("check a.record --profile nothing", "nothing"),
        ("check a.record --label-map absent.pbtxt", "absent.pbtxt: no such label map"),
        ("check a.record --severity BOX06=off", "did you mean BOX016 or BOX006"),
        ("check a.record --severity BOX006=bad", "choose from error, warning, info, off"),
        ("check a.record --cvat-xml absent.xml", "absent.xml"),
        ("check a.record --cvat-labels absent.json", "absent.json"),
        ("check a.record --images absent", "absent"),
        ("check a.record --runner direct --jobs 2", "--direct_num_workers 2"),
    ],
)
def test_what_cannot_be_read_or_written(run: Run, folder: Path, command: str, message: str) -> None:
    before = sorted(folder.iterdir())
    done = run(*command.split())
    assert message in done.refused() and not done.out
    assert sorted(folder.iterdir()) == before


EMPTY = "is empty; is a shell variable not set?"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *((f"{name} ''", EMPTY) for name in ("check", "describe", "show", "repair", "convert")),
        ("diff ''", EMPTY),
        ("check a.record --baseline=", EMPTY),
        ("check a.record --config=", EMPTY),
        ("check a.record --select=,", "',' contains no rule"),
        ("reshard a.record", "name the sources and, last, the folder to write"),
        ("check a.record --jobs 99999999999999999999", "… is too large; the limit is 9,223,"),
        ("check a.record --jobs -3", "'-3' is not a whole number"),
        ("check a.record --max-findings -3", "'-3' is not a whole number"),
        ("reshard a.record out --num-shards 0", "'0' is not a whole number from 1 to 99,999"),
        ("convert a.record out --num-shards x", "'x' is not a whole number from 1 to 99,999"),
        ("reshard a.record out --shuffle -1", "--shuffle"),
        ("reshard a.record out --shuffle 4294967296", "from 0 to 4,294,967,295"),
        ("reshard a.record out --num-shards 2 --shard-size 1MB", "not allowed with argument"),
        ("reshard a.record out --compression rar", "invalid choice: 'rar'"),
        ("check a.record --format sarif", "invalid choice: 'sarif'"),
        ("diff a b --tolerance nan", "'nan' is not a number of pixels"),
        ("show a.record --records 1-3", "'1-3' is not a whole number of 0 or more"),
        ("chekc a.record", "'chekc' is not a command; did you mean check?"),
        ("foo", "'foo' is not a command; see tfod --help"),
        ("a.record", "to check it: tfod check a.record"),
        ("'my file.zip'", "to check it: tfod check 'my file.zip'"),
        ("--verison", "--verison; did you mean --version?"),
        ("--for cvat a.record", "--for; write options after the command"),
        ("check a.record --formt json", "--formt; did you mean --format?"),
        ("check a.record --formt=json", "--formt; did you mean --format?"),
        *(
            (
                f"{name} --xyz",
                f"tfod {name.partition(' a.')[0]}: unrecognized arguments: --xyz; see",
            )
            for name in ("check a.record", "describe a.record", "repair a.record a")
        ),
        ("cvat import task 1 a.zip --xyz", "unrecognized arguments: --xyz; see tfod cvat import -"),
        ("check a --runner direct --workers 2", "--workers 2; put the options of Beam after --; "),
        ("convert a b --sett x", "--sett; did you mean --set?"),
        ("check a.record --for cvta", "--for: invalid choice: 'cvta'; did you mean cvat?"),
        ("check a.record --for CVTA", "'CVTA'; did you mean cvat?"),
        ("check a.record --for xyz", "'xyz'; choose from "),
        ("cvat imprt task 1 a.zip", "'imprt'; did you mean import?"),
        ("convert csv out --from cvs", "'cvs'; did you mean csv?"),
    ],
)
def test_typed_wrong(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(shlex.split(command))
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "ours", "beams"),
    [
        ("check a --runner direct -- --x 1", "check a --runner direct", "--x 1"),
        ("check a --runner=direct -- --x=1", "check a --runner=direct", "--x=1"),
        ("check --ru direct a -- --x -- b", "check --ru direct a", "--x -- b"),
        ("check --runner direct a", "check --runner direct a", ""),
        ("check -- -odd-name", "check -- -odd-name", ""),
        ("check --max-findings 3 -- --runner", "check --max-findings 3 -- --runner", ""),
    ],
)
def test_options_of_beam(typed: str, ours: str, beams: str) -> None:
    assert split_arguments(typed.split()) == (ours.split(), beams.split())


@pytest.mark.parametrize("command", ["", "cvat"])
def test_without_a_command_the_commands_are_listed(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main([*command.split(), "--help"])
    assert not out and err == capsys.readouterr().out
    rows = [line for line in err.partition("COMMAND\n")[2].splitlines() if line]
    assert [line.split()[0] for line in rows] == (["export", "import"] if command else [*COMMANDS])


@pytest.mark.parametrize(
    "options",
    ["--for CVAT", "--format GITHUB", "--profile CVAT", "--decode ALL", "--severity box006=INFO"],
)
def test_names_are_not_case_sensitive(run: Run, options: str) -> None:
    done = [run("check", "a.record", *text.split()) for text in (options, options.lower())]
    assert done[0] == done[1] and done[0].code in (0, 1)


@pytest.mark.parametrize(
    ("name", "content", "shown", "command"),
    [
        ("shapes_voc/Annotations/shapes_08.xml", b"", "a single file of Pascal VOC", "shapes_voc"),
        ("shapes_coco/annotations/instances_val.json", b"", "COCO annotations", ""),
        ("shapes_csv/val_labels.csv", b"", "CSV annotations", ""),
        ("data.yaml", b"names: [cat, dog]\ntrain: images\n", "YOLO annotations", ""),
        ("other.yaml", b"batch_size: 3\nepochs: 20\n", "YAML without the class names", None),
        ("other.csv", b"path,label\na.jpg,cat\n", "CSV without the columns filename", None),
        ("other.json", b'{"a": [1, 2, 3, 4, 5]}', "JSON in another format than COCO", None),
        ("other.xml", b"<?xml version='1.0'?><x/>", "XML of neither Pascal VOC nor CVAT", None),
        ("shapes_voc/JPEGImages/shapes_08.jpg", b"", "a JPEG image", None),
        ("a.bmp", b"BM" + bytes(range(1, 99)), "an image", None),
        ("a.txt", b"an ordinary text of some words\n", "its first 12 bytes", None),
    ],
)
def test_other_files_are_named_with_the_command_that_reads_them(
    run: Run, tmp_path: Path, name: str, content: bytes, shown: str, command: str | None
) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    if content:
        (tmp_path / name).write_bytes(content)
    done = run("check", tmp_path / name)
    assert done.code == 1 and shown in " ".join(done.out.split())
    if command is None:
        assert "tfod convert " not in done.out.replace("with tfod convert", "")
        return
    (line,) = re.findall("^ +tfod (convert .+)$", done.out, re.MULTILINE)
    _, source, target = shlex.split(line)
    assert os.path.samefile(source, tmp_path / (command or name)) and target == "shards"
    assert content or run("convert", source, tmp_path / target).code == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize(
    "command",
    ["check a.record -o", "diff a.record a.record -o", "repair a.record out --overwrite -o"],
)
def test_a_full_disk_has_a_name(run: Run, folder: Path, command: str) -> None:
    before = sorted(folder.iterdir())
    message = run(*command.split(), "/dev/full").refused()
    assert message == "tfod: /dev/full: No space left on device\n"
    assert sorted(folder.iterdir()) == before


def test_signals_are_as_they_were(run: Run) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run("describe", "a.record").succeeded()
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_while_the_command_is_loaded_is_one_line() -> None:
    code = (
        "import sys, tfod.cli.main as cli\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'tfod.cli.arguments':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.exit(cli.main(['--version']))\n"
    )
    assert run_python("-c", code) == (130, "", "tfod: interrupted\n")

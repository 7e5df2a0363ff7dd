"""``tfod check --pipeline-config``: trainers' configurations compared with the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import google.protobuf
import pytest
from tfod.checker.references.pipeline_config import TrainingConfig
from tfod.errors import TfodError

from tests.checker import FILES
from tests.commands import Result, Run
from tests.files import write_files
from tests.mutants.pipeline import files, masks, pipeline
from tests.mutants.sound import CAT_BOX, png, shard, with_boxes

HAS_LISTS = int(google.protobuf.__version__.partition(".")[0]) >= 4
# Like a file of tensorflow/models, with other syntax that their parsers allow.
OF_MODELS = (FILES / "pipeline.config").read_text()
Check = Callable[..., Result]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Check:
    """Check the configuration of a folder, in this folder."""

    def checked(files: Mapping[str, bytes], *arguments: str) -> Result:
        write_files(tmp_path, files)
        monkeypatch.chdir(tmp_path)
        return run("check", "--pipeline-config", "pipeline.config", *arguments)

    return checked


def words_of(done: Result) -> str:
    return " ".join(done.out.split())


def findings_of(done: Result) -> list[dict[str, Any]]:
    return json.loads(done.out)["findings"]


def test_lists_of_other_values(check: Check) -> None:
    """protobuf before 4.21 cannot skip them; TensorFlow 2.11 needs an older protobuf."""
    lists = OF_MODELS.replace("aspect_ratios: 1.0", "aspect_ratios: [1.0, 2.0, .5] scales: []")
    done = check(files(lists.encode()))
    if HAS_LISTS:
        assert (done.code, done.err) == (0, "")
    else:
        assert "lists in brackets need protobuf 4.21" in done.refused()


def test_its_shards_are_checked(check: Check) -> None:
    done = check({**files(OF_MODELS.encode()), "other.tfrecord": b"not checked"})
    assert (done.code, done.err) == (0, "") and "CFG" not in done.out
    assert done.out.startswith("VALID") and "Checked: 2 shards, 2 records" in done.out
    (classes,) = TrainingConfig("pipeline.config").num_classes
    assert (classes.path, classes.value) == ("model.ssd.num_classes", 2)


def test_fixes_quote_the_file(check: Check) -> None:
    done = check(files(pipeline(90, both="num_keypoints: 2")), "--format", "json")
    found = {one["code"]: one for one in findings_of(done)}
    assert done.code == 1
    message = "`model.ssd.num_classes: 90`, but the largest id is 2 ('dog')"
    assert (found["CFG003"]["severity"], found["CFG003"]["message"]) == ("warning", message)
    assert found["CFG003"]["fix"] == "In pipeline.config, set `model.ssd.num_classes: 2`."
    assert found["CFG006"]["fix"] == "In pipeline.config, set `eval_input_reader.num_keypoints: 0`."
    assert {one["shard"] for one in found.values()} == {"pipeline.config"}


def test_defaults(check: Check) -> None:
    mask = png()
    both = masks("train.jpg", mask, mask), masks("val.png", mask, mask)
    config = pipeline(both="load_instance_masks: true").replace(b"    num_classes: 2\n", b"")
    words = words_of(check(files(config, *both)))
    assert "`train_input_reader.mask_type: DEFAULT`, but masks are stored as PNG" in words
    assert "`model.ssd.num_classes: 0`, but the largest id is 2" in words


def test_all_files_are_missing(check: Check, tmp_path: Path) -> None:
    config = {"pipeline.config": pipeline(maps="a\\0*/b")}
    done = check(config)
    assert done.code == 1 and "Checked: 0 shards" in done.out
    assert "CFG002 error: path matches no file (4 in 1 file)" in words_of(done)
    assert f": no file exists at {tmp_path}/train.tfrecord" in words_of(done)
    for kind in ("html", "junit"):
        printed = check(config, "--format", kind)
        assert "CFG002" in printed.out and not printed.err


def test_shards_of_the_command_line_replace_others(check: Check) -> None:
    """The configuration is from another machine, so missing files are warnings."""
    elsewhere = pipeline(1, train="/data/t-?.tfrecord", maps="/data/map.pbtxt")
    cats = with_boxes([CAT_BOX], name="train.jpg", source_id="1")
    content = {**files(elsewhere), "t-1.tfrecord": shard(cats)}
    done = check(content, "t-1.tfrecord", "val.tfrecord")
    assert done.code == 1
    assert "CFG002 warning" in words_of(done) and "CFG003 error" in words_of(done)
    assert "training data does not have: 'dog'" in words_of(done)


@pytest.mark.parametrize(
    ("path", "severity", "message"),
    [
        (r"data\train.record", "error", r'"data\train.record"`: `\t` is a tab; write / instead'),
        (r"a\new.record", "error", r"`\n` is a line break; write / instead"),
        (r"a\record", "error", r"`\r` is a carriage return; write / instead"),
        (r"a\very.record", "error", "a backslash and a letter are a control character; write / i"),
        (r"data\\train.record", "warning", "no file exists there; write / instead of th"),
        (r"data\quiet.record", "warning", "no file exists there; write / instead of th"),
    ],
)
def test_backslashes_of_windows(check: Check, path: str, severity: str, message: str) -> None:
    """A path with a tab is wrong on each machine; other paths may exist on another one."""
    config = pipeline(train=path).replace(b'"val.tfrecord"', b'"/data/val.tfrecord"')
    done = check(files(config), "val.tfrecord", "--format", "json")
    (first, *_) = (one for one in findings_of(done) if one["code"] == "CFG002")
    assert first["severity"] == severity and message in first["message"]
    assert done.code == (severity == "error")


_BACKSLASH = "a path has a backslash; write / instead"
_SYNTAX = {
    "model { ssd { num_classes: 3 }": "1:30|Expected",
    "model { ssd { num_classes 3 } }": '1:27|Expected ":"',
    "model {\n ssd { num_classes: three } }": "2:21|Couldn't",
    "model { ssd { num_classes: 9999999999 } }": "1:28|Value out",
    "model { ssd { num_classes: 3 num_classes: 4 } }": "1:43|Mess",
    "model: 3": "1:8|Expected",
    "\xef\xbb\xbfmodel { }": "1:1|a byte order mark; save the file as UTF",
    'train_input_reader {\n label_map_path: "C:\\Users" }': f"2:18|{_BACKSLASH}",
    'train_input_reader { label_map_path: "d\\x" }': f"1:38|{_BACKSLASH}",
    "[" * 1000: "1:2|Expected",
}
_OTHER = {
    "model { a: 'b }": ": not protobuf's text format: ",
    "": " is not a pipeline.config: it has no model",
    "item { id: 1 }": " is not a pipeline.config: it has no model",
    "a {" * 20_000: " is not a pipeline.config: maximum recursion",
    "a: '" + "\\" * 50_000: " is too long for a pipeline.config",
    "x" * 300_000: " is too long for a pipeline.config",
    "\xff": " is not a pipeline.config: 'utf-8' codec can't decode byte 0xff",
    "model { num_classes: 3 }": " names no shards; pass them on the command line",
}
_SYNTAX = {
    text: ":{}: not protobuf's text format: {}".format(*reason.split("|"))
    for text, reason in _SYNTAX.items()
}


@pytest.mark.parametrize(("text", "reason"), (_SYNTAX | _OTHER).items(), ids=lambda text: text[:20])
def test_invalid_files(check: Check, text: str, reason: str) -> None:
    done = check({"pipeline.config": text.encode("latin-1")})
    assert done.refused().startswith(f"tfod: pipeline.config{reason}") and not done.out


def test_without_a_configuration(run: Run) -> None:
    with pytest.raises(TfodError, match=r"^no\.config cannot be read: No such file or directory$"):
        TrainingConfig("no.config")
    assert "nothing to check; pass shards" in run("check").refused()

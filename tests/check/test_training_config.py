"""``tfod check --pipeline-config``: what the trainers' files say, against the data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfod.check.references.pipeline.training_config import load_training_config
from tfod.cli.main import main
from tfod.errors import TfodError

from tests.commands import Run
from tests.mutants.pipeline import files, one, pipeline, vision
from tests.mutants.sound import CAT_BOX, png, shard, with_boxes

# As those of tensorflow/models are written, with what their parsers let pass.
OF_MODELS = """\
# SSD with Mobilenet v2
# Trained on COCO17
model {
  ssd {
    inplace_batchnorm_update: true;
    num_classes: 0x2,
    box_coder { faster_rcnn_box_coder { y_scale: 10.0 x_scale: -1e1f } }
    anchor_generator { ssd_anchor_generator { aspect_ratios: [1.0, 2.0, .5] scales: [] } }
    image_resizer < keep_aspect_ratio_resizer < min_dimension: 20 max_dimension: 40
      pad_to_max_dimension: True > >
    feature_extractor { type: 'ssd_mobilenet' "_v2_keras" }
  }
}
train_config: {
  fine_tune_checkpoint: "with \\"quotes\\" and # no comment"
  batch_size: 1
  data_augmentation_options { random_horizontal_flip { } }
}
train_input_reader: {
  label_map_path: "label_map.pbtxt"
  tf_record_input_reader { input_path: ["train.tfrecord"] }
}
eval_config: { metrics_set: "coco_detection_metrics" batch_size: 1; }
eval_input_reader: {
  label_map_path: "label_map.pbtxt"
  shuffle: false
  tf_record_input_reader { input_path: "val.tfrecord" }
}
[object_detection.protos.more] { anything: 1 }
"""
OF_VISION = """\
# --experiment_type=retinanet_mobile_coco
runtime:
  mixed_precision_dtype: 'bfloat16'
task:
  init_checkpoint: null
  annotation_file: null
  model: &model
    num_classes: 3
    input_size: [40, 40, 3]
    backbone: {type: 'mobilenet', mobilenet: {model_id: MobileNetV2}}
  train_data: &data
    input_path: {first: 'train.tfrecord'}
    global_batch_size: 1
    parser: {aug_scale_max: 2.0, max_num_instances: 2}
  validation_data:
    <<: *data
    input_path: [val.tfrecord]
    drop_remainder: false
trainer:
  optimizer_config: {learning_rate: {stepwise: {boundaries: [1, 2], values: [0.3, 3.0e-05]}}}
"""


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a folder's files, and start the trainer, or the check, in it."""

    def write(content: dict[str, bytes]) -> Path:
        for name, data in content.items():
            Path(tmp_path, name).write_bytes(data)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return write


def test_the_shards_are_those_that_it_names(started: Any, run: Run) -> None:
    folder = started({**files(OF_MODELS.encode()), "other.tfrecord": b"not looked at"})
    output = run("check", "--pipeline-config", "pipeline.config")
    assert (output.code, output.err) == (0, "")
    assert output.out.startswith("VALID") and "Checked: 2 shards, 2 records" in output.out
    assert "CFG" not in output.out
    config = load_training_config(str(folder / "pipeline.config"))
    assert (config.num_classes.value, config.num_classes.line) == (2, 6)
    assert config.resizer.scales(40, 20) == (1, 1)


def test_an_experiment_of_tf_vision(started: Any, run: Run) -> None:
    started({**files(vision()), "experiment.yaml": OF_VISION.encode()})
    output = run("check", "--pipeline-config", "experiment.yaml")
    assert (output.code, output.err) == (0, ""), output.out
    assert "Checked: 2 shards, 2 records" in output.out and "CFG" not in output.out
    config = load_training_config("experiment.yaml")
    assert [each.most_objects.value for each in config.readers] == [2, 2]


def test_findings_have_line_and_fix_in_the_words_of_the_file(started: Any, run: Run) -> None:
    started(files(pipeline(90, batch=32)))
    output = run("check", "--pipeline-config", "pipeline.config", "--format", "json")
    found = {one["code"]: one for one in json.loads(output.out)["findings"]}
    assert output.code == 0
    assert found["CFG004"]["message"] == (
        "`model.ssd.num_classes: 90` (line 3), but the ids go to 2 ('dog')"
    )
    assert found["CFG004"]["fix"] == "Set `model.ssd.num_classes: 2` in line 3."
    assert found["CFG010"]["fix"] == "Set `train_config.batch_size: 1` in line 8."
    assert {one["shard"] for one in found.values()} == {"pipeline.config"}


def test_what_is_not_set_has_its_default(started: Any, run: Run) -> None:
    boxes = with_boxes([CAT_BOX] * 101, name="train.jpg", source_id="1")
    started(files(pipeline().replace(b"    num_classes: 2\n", b""), boxes))
    output = " ".join(run("check", "--pipeline-config", "pipeline.config").out.split())
    assert "`train_input_reader.max_number_of_boxes: 100` (the default)" in output
    assert "Set `train_input_reader.max_number_of_boxes: 101`." in output
    assert "`model.ssd.num_classes: 0` (the default), but the ids go to 2" in output


def test_nothing_that_it_names_is_there(started: Any, run: Run) -> None:
    folder = started({"pipeline.config": pipeline(maps="a\\0*/b")})
    output = run("check", "--pipeline-config", "pipeline.config")
    assert output.code == 1 and "Checked: 0 shards" in output.out
    words = " ".join(output.out.split())
    assert "CFG002 error: path leads to no file (4 in 1 file)" in words
    assert f"(line 11): no file is at {folder}/train.tfrecord" in words
    for kind in ("html", "junit"):
        printed = run("check", "--pipeline-config", "pipeline.config", "--format", kind)
        assert "CFG002" in printed.out and not printed.err


@pytest.mark.parametrize("pattern", ["/**/*", "/*", "/[a-z]*/x.tfrecord"])
def test_the_whole_disk_is_not_searched(started: Any, run: Run, pattern: str) -> None:
    started(files(pipeline(train=pattern)))
    output = run("check", "--pipeline-config", "pipeline.config", "val.tfrecord")
    words = " ".join(output.out.split())
    assert f"{pattern}" in words and "it would search the whole disk; name the folder" in words


def test_shards_of_the_command_line_stand_in_for_others(started: Any, run: Run) -> None:
    """The configuration is of another machine: files that it lacks here stop nothing."""
    elsewhere = pipeline(1, train="/data/t-?.tfrecord", maps="/data/map.pbtxt")
    cats = with_boxes([CAT_BOX], name="train.jpg", source_id="1")
    started({**files(elsewhere), "t-1.tfrecord": shard(cats)})
    output = run("check", "--pipeline-config", "pipeline.config", "t-1.tfrecord", "val.tfrecord")
    assert output.code == 1
    words = " ".join(output.out.split())
    assert "CFG002 warning" in words and "CFG003 error" in words
    assert "no object for training has the class 'dog'" in words


def test_label_maps_of_two_readers(started: Any, run: Run) -> None:
    maps = pipeline().replace(b'label_map.pbtxt"', b'other.pbtxt"', 1)
    turned = b"item { id: 1 name: 'dog' } item { id: 2 name: 'cat' }"
    started({**files(maps), "other.pbtxt": turned})
    output = run("check", "--pipeline-config", "pipeline.config")
    assert output.code == 1 and "SET004" in output.out


def test_classes_by_the_rows_of_a_label_map_decoder(started: Any, run: Run) -> None:
    decoder = "decoder: {type: label_map_decoder, label_map_decoder: {label_map: map.csv}}"
    texts = f"    {decoder}\n  validation_data:\n    {decoder}".encode()
    config = vision(8).replace(b"  validation_data:", texts)
    started({**files(config), "map.csv": b"7,dog\n5,cat\n"})
    output = run("check", "--pipeline-config", "experiment.yaml")
    assert "CFG" not in output.out
    started({**files(config), "map.csv": b"8,dog\n5,cat\n"})
    output = run("check", "--pipeline-config", "experiment.yaml")
    assert "the ids go to 8 ('dog')" in output.out


def test_two_processes_find_the_same(started: Any, run: Run) -> None:
    many = shard(*[one("val.png", encoded=png((40, 20))) for _ in range(3)])
    points = shard(with_boxes([CAT_BOX], name="train.jpg", source_id="1"))
    config = pipeline(9, both="num_keypoints: 2 load_instance_masks: true", batch=7)
    started({**files(config), "val.tfrecord": many, "train.tfrecord": points})
    found = []
    for jobs in ("1", "2"):
        arguments = ("--pipeline-config", "pipeline.config", "--format", "json", "--jobs", jobs)
        found.append(json.loads(run("check", *arguments).out)["findings"])
    assert found[0] == found[1]
    assert {"CFG004", "CFG005", "CFG006", "CFG009", "CFG010"} <= {each["code"] for each in found[0]}


REFUSED = {
    "a.config": [
        ("model { ssd { num_classes: 3 }", ":1:31: not protobuf's text format: Expected iden"),
        ("model { ssd { num_classes 3 } }", ':1:27: not protobuf\'s text format: Expected ":"'),
        ("model {\n ssd { num_classes: three } }", ":2: model.ssd.num_classes: expected a whole "
         'number, not "three"'),
        ("model { ssd { num_classes: 9999999999 } }", ":1: model.ssd.num_classes: expected a "),
        ("model { ssd { num_classes: 3 num_classes: 4 } }", ":1: model.ssd.num_classes is given 2 "
         "times; the trainer takes it once"),
        ("model: 3", ":1: model: expected fields, not 3"),
        ("model { a: 'b }", ":1:12: not protobuf's text format: String missing ending quote"),
        ("", ": is not a pipeline.config, which has model, train_config"),
        ("item { id: 1 }", ": is not a pipeline.config"),
        ("a {" * 20_000, ": is nested too deeply for a configuration"),
        ("a: '" + "\\" * 100_000, ": has more than 200 backslashes in a row"),
        ("a: 1 " * 50_000, ": has a line of more than 65536 characters"),
        ("x" * 300_000, ": is larger than 256 KiB"),
        ("\xff", ": byte 0 is not UTF-8"),
        ("[" * 1000, ':1:1001: not protobuf\'s text format: Expected "]"'),
    ],
    "a.yaml": [
        ("task: [", ":1: not a valid YAML file: "),
        ("task:\n  model: {num_classes: three}\n", ":2: task.model.num_classes: expected a whole"),
        ("task:\n  model:\n    input_size: [320 320, 3]\n", ':3: task.model.input_size: expected a '
         'whole number, not "320 320"'),
        ("- 1\n- 2\n", ": expected fields such as task:"),
        ("", ": expected fields such as task:"),
        ("model: {}\n", ": is not an experiment of TF-Vision, which begins with task:"),
        ("task:\n  model: {num_classes: !!int three}\n", ":2: task.model.num_classes: expected"),
        ("task:\n  model: {num_classes: 0b_}\n", ":2: task.model.num_classes: expected a whole"),
        ("a: &a [*a]\n", ": is nested too deeply for a configuration"),
        ("[" * 20_000, ": is nested too deeply for a configuration"),
        ("task: &a [1,1,1,1,1,1,1,1]\n" + "".join(
            f"x{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)),
         ": has more than 65536 values"),
        ("task: {model: {num_classes: !!python/object:os.system 3}}", ":1: task.model.num_classes: "
         "expected a whole number"),
        ("task:\n  validation_data: {global_batch_size: 1}\n", " names no shards; name them on the "
         "command line, too"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "reason"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_refused_in_one_line(
    started: Any, capsys: pytest.CaptureFixture[str], name: str, text: str, reason: str
) -> None:
    started({name: text.encode("latin-1")})
    began = time.monotonic()
    assert main(["check", "--pipeline-config", name]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"tfod: {name}{reason}") and printed.err.count("\n") == 1
    assert not printed.out and time.monotonic() - began < 10


def test_there_is_no_such_file() -> None:
    with pytest.raises(TfodError, match=r"^no\.config: No such file or directory$"):
        load_training_config("no.config")


def test_neither_shards_nor_a_configuration(run: Run) -> None:
    output = run("check")
    assert (output.code, output.err) == (
        2, "tfod: name what is to be checked: shards, a folder or a zip\n",
    )  # fmt: skip

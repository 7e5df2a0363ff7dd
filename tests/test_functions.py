"""tfod.check, convert, describe and diff have the options and results of the commands."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tfod
from tfod.cli.arguments import parse_arguments

from tests.commands import Run

EXAMPLES = Path(__file__).parents[1] / "examples"
GOOD, BROKEN = EXAMPLES / "shapes_good.zip", EXAMPLES / "shapes_broken.zip"
VOC = EXAMPLES / "shapes_voc"
FUNCTIONS: dict[Callable[..., Any], str] = {
    tfod.check: "cvat runner output format quiet",
    tfod.convert: "",
    tfod.describe: "as_profile format",
    tfod.diff: "output format",
}
"""The functions, and the options that only their commands have: servers, Beam and the report."""


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function.__name__))
def test_parameters_are_the_options_with_their_defaults(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    paths = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
    words = ["a", "b"] if len(paths) == 2 else ["a"]
    options = vars(parse_arguments([function.__name__, *words]))
    only_of_the_command = f"{FUNCTIONS[function]} run parser version runner_arguments".split()
    assert {*parameters} == {*options} - {*only_of_the_command}
    assert [options[name] for name in paths] in (words, [words])
    for name, parameter in parameters.items():
        assert f"\n        {name}: " in (function.__doc__ or "")
        # The default of jobs differs: a script that starts processes must be importable.
        if name not in (*paths, "jobs"):
            default = options[name]
            assert parameter.default == (() if default == [] else default), name


NONE, BAD = "absent", {"receiver": "od-ap", "profile": "absent.yaml", "label_map": "absent.pbtxt"}
_FILES = dict.fromkeys(
    ("config", "cvat_labels", "cvat_xml", "images", "pipeline_config", "baseline"), NONE
)
INVALID: dict[Callable[[Any], Any], dict[str, Any]] = {
    lambda options: tfod.check(GOOD, **options): BAD
    | _FILES
    | {"select": ["BOX0"], "ignore": "BOX0", "severity": {"BOX003": "bad"}, "fail_on": "info"}
    | {"decode": "some", "jobs": 0, "max_findings": 0},
    lambda options: tfod.convert(GOOD, "out", **{"target_format": "voc"} | options): BAD
    | {"source_format": "vok", "target_format": "vok", "subset": NONE, "num_shards": 0}
    | {"ignore_difficult": True, "boxes": "pixel", "odd_boxes": "keep", "odd_masks": "clip"}
    | {"exif": "rotate"},
    lambda options: tfod.describe(GOOD, **options): {"profile": NONE},
    lambda options: tfod.diff(GOOD, GOOD, **options): {"from_a": "vok", "from_b": "vok"}
    | {"label_map": NONE, "profile": NONE, "subset": NONE}
    | {"tolerance": float("nan"), "max_differences": -1},
}
"""Invalid values of the options."""


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call, values in INVALID.items() for name in values]
)
def test_an_invalid_value_is_a_tfod_error(
    call: Callable[[Any], Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tfod.TfodError):
        call({name: INVALID[call][name]})
    assert not [*tmp_path.iterdir()]


def test_missing_sources_are_tfod_errors() -> None:
    for function in FUNCTIONS:
        with pytest.raises(tfod.TfodError, match=NONE):
            function(*[NONE, "out"][: 1 if function in (tfod.check, tfod.describe) else 2])
    functions: tuple[Callable[..., Any], ...] = (tfod.check, tfod.describe, tfod.read_detections)
    for function in functions:
        with pytest.raises(tfod.TfodError, match="pass shards"):
            list(function([]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""),
        ({"receiver": "CVAT", "decode": "none"}, "--for cvat --decode none"),
        ({"select": "box", "ignore": ["BOX006"]}, "--select BOX --ignore BOX006"),
        ({"severity": {"BOX": "off"}, "max_findings": 2}, "--severity BOX=off --max-findings 2"),
    ],
)
@pytest.mark.parametrize("source", [GOOD, BROKEN])
def test_check(run: Run, source: Path, options: dict[str, Any], words: str) -> None:
    report = tfod.check(source, **options)
    done = run("check", str(source), "--format", "json", *words.split())
    assert report.to_json() | {"duration": 0} == json.loads(done.out) | {"duration": 0}
    assert report.valid is (done.code == 0)
    assert all(isinstance(finding, tfod.Finding) for finding in report.findings)
    if not options:
        assert ("BOX003", "shapes_02.jpg") in report.flatten("code", "item") or report.valid


def test_a_check_takes_several_paths_and_reads_tfod_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not tfod.check([GOOD, str(BROKEN)]).valid
    (tmp_path / "tfod.toml").write_text('select = ["LAB001"]\nexclude = ["x"]\n')
    report = tfod.check((GOOD, BROKEN))
    assert report.valid and str(report.configuration) == "tfod.toml"
    assert len(report.sources) == 2
    with pytest.raises(tfod.TfodError, match="nothing to check"):
        tfod.check()


def test_convert_returns_the_written_and_lost_objects(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = tfod.convert(VOC, "shards", num_shards=2)
    assert (written.images, written.objects) == ({"train": 8, "val": 4}, {"train": 20, "val": 14})
    shards = [f"{name}-{n:05}-of-00002.tfrecord" for name in ("train", "val") for n in range(2)]
    assert written.paths == [f"shards/{name}" for name in (*shards, "label_map.pbtxt")]
    assert not written.lost and not written.notes
    lost = tfod.convert(tmp_path / "shards", "yolo", target_format="yolo", subset="val")
    assert lost.images == {"val": 4} and all(Path(path).is_file() for path in lost.paths)
    assert len(lost.paths) == len([path for path in Path("yolo").rglob("*") if path.is_file()])
    assert {loss.kind: loss.count for loss in lost.lost}["source_id"] == 4
    assert "cannot store" in lost.lost[0].reason
    done = run("convert", "shards", "again", "--to", "yolo", "--set", "val")
    assert lost.notes[0] in done.succeeded() and "val: 4 images, 14 objects" in done.out
    with pytest.raises(tfod.TfodError, match="exists"):
        tfod.convert(VOC, "shards")


def test_convert_counts_dropped_boxes(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\n"
        "a.jpg,200,100,cat,10,10,50,50\na.jpg,200,100,cat,150,10,250,50\n"
    )
    options = {"no_images": True, "odd_boxes": "drop"}
    done = tfod.convert(tmp_path / "x.csv", tmp_path / "shards", **options)
    assert done.objects == {"x": 1} and [loss.count for loss in done.lost] == [1]
    assert done.lost[0].reason in done.notes[0]


def test_describe_and_diff(run: Run) -> None:
    description = tfod.describe([GOOD])
    assert description.records == 12 and description.to_text(GOOD) == run("describe", GOOD).out
    for without in ([], ["images", "difficult"]):
        result = tfod.diff(VOC, EXAMPLES / "shapes_coco", without=without)
        words = [word for name in without for word in ("--without", name)]
        done = json.loads(run("diff", VOC, result.b.path, "--format", "json", *words).out)
        assert result.is_equal is done["equal"] is False
        assert {k: v for k, v in done["counts"].items() if v} == result.counts
    assert tfod.diff(GOOD, str(GOOD)).is_equal

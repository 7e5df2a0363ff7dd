"""PRD: what a detector predicts, compared with what is annotated."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.check import Options, check_sources
from tfod.check.findings.report import Report
from tfod.check.references.predictions.comparison import TYPES, compare
from tfod.check.references.predictions.predictions import Predictions, load_predictions
from tfod.check.rules.references.predictions import Swapped
from tfod.cli.main import main
from tfod.errors import TfodError

from tests.mutants.fidelity import BOTH, CAT, SHARD, labelled
from tests.mutants.predictions import GRID, detections, files
from tests.mutants.sound import LABEL_MAP, shard

Write = Callable[[str, "str | bytes"], str]
ONE: dict[str, Any] = {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "score": 0.5}


def load(folder: Path, content: object) -> Predictions:
    path = folder / "detections.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_predictions(str(path))


def check_files(folder: Path, content: dict[str, bytes], **how: Any) -> Report:
    for name, one in content.items():
        (folder / name).write_bytes(one)
    predictions = load_predictions(str(folder / "detections.json"))
    return check_sources([str(folder)], Options(predictions=predictions, **how))


def prd(report: Report, *fields: str) -> list[tuple[Any, ...]]:
    return [one[1:] for one in report.flatten("code", *fields) if one[0].startswith("PRD")]


# Reading


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[{", "is not valid JSON"),
        ("[]", "is not a list of detections"),
        ("{}", "is not a list of detections"),
        ([1], "is not a list of detections"),
        ([ONE, {"score": 1}], "is not a list of detections"),
        ([ONE, {"image_id": 1}], "detection 1: 'category_id' is missing"),
        ([{**ONE, "bbox": [1, 2, 3]}], "bbox, score is [1, 2, 3, 0.5], expected 5 numbers"),
        ([{**ONE, "bbox": None}], "another type"),
        ([{**ONE, "score": 7}], "score is 7.0, expected a probability from 0 to 1"),
        ([{**ONE, "score": "high"}], 'bbox, score is [1, 2, 3, 4, "high"], expected 5 numbers'),
        ([{**ONE, "category_id": "cat"}], 'category_id is "cat", expected a whole number'),
        ([{**ONE, "category_id": 1 << 70}], "another type"),
        ([{**ONE, "image_id": [1]}], "image_id is [1], expected a number"),
        ({"annotations": [ONE], "images": [{"id": 1}]}, "'file_name' is missing"),
        ({"annotations": [ONE], "categories": [{"id": 1}]}, "'name' is missing"),
        ({"annotations": [ONE], "images": 1}, "another type"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(TfodError) as error:
        load(tmp_path, content)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert "detections.json" in str(error.value)


def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: Any) -> None:
    assert main(["check", str(tmp_path), "--predictions", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read" in capsys.readouterr().err


def test_detections_are_grouped_and_sorted(tmp_path: Path) -> None:
    scores = [0.2, 0.05, 0.9, 0.5]
    found = load(
        tmp_path,
        [{**ONE, "image_id": place % 2, "score": one} for place, one in enumerate(scores)],
    )
    assert found.ids == ("0", "1") and found.counts.tolist() == [2, 2]
    assert found.row_splits.tolist() == [0, 2, 3] and found.scores.tolist() == [0.9, 0.2, 0.5]
    assert found.boxes[0].tolist() == [1, 2, 4, 6]


@pytest.mark.parametrize(
    ("image_id", "source_id", "filename"),
    [
        (397133, "397133", "x.jpg"),
        (397133.0, "000000397133", "x.jpg"),
        ("397133", None, "000000397133.jpg"),
        (397133, "x", "val2017/000000397133.jpg"),
        ("street_1", "7", "a\\street_1.png"),
        ("a/street_1.png", "7", "a/street_1.png"),
    ],
)
def test_an_image_is_found(
    tmp_path: Path, image_id: object, source_id: str | None, filename: str
) -> None:
    found = load(tmp_path, [{**ONE, "image_id": "other"}, {**ONE, "image_id": image_id}])
    assert found.find(source_id, filename) == 1
    assert found.find("1", "b.jpg") is None and found.find(None, None) is None


def test_file_names_that_are_listed_decide_over_numbers(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "b.jpg"}, {"id": 2, "file_name": "a.jpg"}]
    categories = [{"id": 2, "name": "dog"}]
    found = load(tmp_path, {"annotations": [ONE], "images": images, "categories": categories})
    assert found.find("1", "a.jpg") == 1 and found.find("1", "c.jpg") == 0
    assert found.names == {2: "dog"}


# Comparing


@st.composite
def images_of_boxes(draw: st.DrawFn) -> list[list[tuple[int, tuple[float, ...]]]]:
    """Of each image classes and boxes, normalized, on a grid and of some width and height."""
    side = st.integers(0, 12)
    box = st.tuples(st.integers(1, 3), side, side, st.integers(1, 4), st.integers(1, 4))
    found = draw(st.lists(st.lists(box, max_size=8), min_size=1, max_size=4))
    return [
        [(kind, (x / 16, y / 16, (x + w) / 16, (y + h) / 16)) for kind, x, y, w, h in one]
        for one in found
    ]


def compared(images: Sequence[Sequence[tuple[int, tuple[float, ...]]]], predicted: Any) -> Any:
    """What is suspicious in images of 64 x 32 pixels, by type, box and prediction."""
    counts, boxes = _flat(images)
    others, found = _flat(predicted)
    scale = np.array([64, 32, 64, 32])
    predictions = Predictions(
        source="",
        ids=tuple(map(str, range(len(images)))),
        images=(),
        sizes=np.full((len(images), 2), np.nan),
        row_splits=np.concatenate(([0], np.cumsum(others))),
        boxes=found[:, 1:] * scale,
        categories=found[:, 0].astype(int),
        scores=np.ones(len(found)),
        names={},
        unusable=0,
        counts=others,
    )
    places = np.arange(len(images))
    sizes = np.tile([32.0, 64.0], (len(images), 1))
    parts = compare(predictions, places, sizes, counts, boxes[:, 1:], boxes[:, 0].astype(int))
    candidates = np.concatenate([part for part, _, _ in parts])
    wanted = candidates[["type", "row", "box", "predicted"]].tolist()
    return [(TYPES[kind], *rest) for kind, *rest in wanted]


def _flat(images: Any) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array([len(one) for one in images])
    rows = [(kind, *box) for one in images for kind, box in one]
    return counts, np.array(rows, float).reshape(-1, 5)


@given(images_of_boxes(), st.randoms())
def test_annotations_as_predictions_are_no_finding(images: Any, random: Random) -> None:
    predicted = [random.sample(one, len(one)) for one in images]
    assert compared(images, predicted) == []


@given(images_of_boxes(), st.randoms())
def test_a_swapped_class_is_this_finding(images: Any, random: Random) -> None:
    row = random.randrange(len(images))
    images[row].append((1, (0.9, 0.9, 1.0, 1.0)))  # apart from all others
    swapped = [*images[row][:-1], (2, images[row][-1][1])]
    before = sum(map(len, images[:row]))
    last = before + len(swapped) - 1
    assert compared([*images[:row], swapped, *images[row + 1 :]], images) == [
        (Swapped, row, last, last)
    ]


def test_boxes_that_are_no_boxes_are_left_alone() -> None:
    nan, far = float("nan"), float("inf")
    odd = [(1, (nan, 0, 1, 1)), (1, (0, 0, far, far)), (1, (0.5, 0.5, 0.5, 0.5))]
    inverted = [(1, (0.9, 0.9, 0.1, 0.1))]
    assert compared([odd, inverted], [[(2, (0, 0, 0.5, 0.5))], []])


# The whole check


def test_ranked_worst_first_with_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = detections(GRID[:1], "b", 0.75)
    for one, score in zip(GRID[3:9], (0.6, 0.9, 0.7, 0.8, 0.5, 0.55), strict=True):
        found += detections([one], score=score)
    content = files([], found)
    content[SHARD] = shard(labelled("a.jpg", *GRID[:3]), labelled("b.jpg"))
    report = check_files(tmp_path, content)
    scores = [one.score for one in report.findings if one.code == "PRD001"]
    assert scores == [0.9, 0.8, 0.75, 0.7, 0.6, 0.55, 0.5]
    assert report.valid
    path = str(tmp_path / "detections.json")
    assert main(["check", str(tmp_path), "--predictions", path, "--max-findings", "5"]) == 0
    text = capsys.readouterr().out
    assert "PRD001 warning: object is perhaps not annotated (7 in 1 shard)" in text
    assert text.index("score 0.90") < text.index("score 0.80") and "score 0.70" not in text


def test_the_value_has_score_object_and_prediction(tmp_path: Path) -> None:
    report = check_files(tmp_path, files([("dog", CAT), BOTH[1]], detections(BOTH)))
    assert prd(report, "item", "value") == [
        (
            "a.jpg",
            {
                "score": 0.9,
                "object": 0,
                "predicted": {"class": "cat", "score": 0.9, "box": [0.1, 0.1, 0.3, 0.4]},
            },
        )
    ]


def test_predictions_of_a_larger_image_and_by_class_names(tmp_path: Path) -> None:
    annotations = detections(BOTH)
    for one in annotations:
        one["bbox"] = [2 * side for side in one["bbox"]]
        one["category_id"] += 40
    found = {
        "images": [{"id": "a", "file_name": "a.jpg", "height": 400, "width": 800}],
        "categories": [{"id": 41, "name": "cat"}, {"id": 42, "name": "dog"}],
        "annotations": annotations,
    }
    assert prd(check_files(tmp_path, files(BOTH, found)), "code") == []


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        (-1, "category ids are shifted: 0 of 12 boxes in the place of a prediction"),
        (2, "classes are predicted as others: 'cat' as '#3' (12 of 12)"),
    ],
)
def test_classes_that_disagree_throughout_are_one_finding(
    tmp_path: Path, shift: int, words: str
) -> None:
    found = [{**one, "category_id": 1 + shift} for one in detections(GRID)]
    report = check_files(tmp_path, files(GRID, found))
    assert "PRD002" not in report.counts.by_code and report.counts.by_code["PRD006"] == 1
    assert words in next(one.message for one in report.findings if one.code == "PRD006")


def test_processes_and_beam_say_the_same(tmp_path: Path) -> None:
    random = Random(0)
    found: list[dict[str, Any]] = []
    for number in range(6):
        names = [f"{number}_{place}.jpg" for place in range(40)]
        payloads = []
        for name in names:
            boxes = random.sample(GRID, 5)
            payloads.append(labelled(name, *boxes))
            for one in random.sample(GRID, 5):
                found += detections([one], name.partition(".")[0], round(random.random(), 2))
        (tmp_path / f"train-{number:05}-of-00006").write_bytes(shard(*payloads))
    (tmp_path / "label_map.pbtxt").write_bytes(LABEL_MAP)
    predictions = load(tmp_path, found)
    assert pickle.loads(pickle.dumps(predictions)).ids == predictions.ids
    how: dict[str, Any] = {"predictions": predictions, "max_findings": 3, "part_bytes": 4096}
    one: dict[str, Any] = check_sources([str(tmp_path)], Options(**how)).to_json()
    others = [Options(**how, jobs=2)]
    if find_spec("apache_beam"):
        from tfod.beam import Runner

        others.append(Options(**how, runner=Runner("DirectRunner")))
    assert one["counts"]["by_code"]["PRD001"] > 100
    for options in others:
        other = check_sources([str(tmp_path)], options).to_json()
        assert {**other, "duration": 0} == {**one, "duration": 0}


def test_many_boxes_and_detections_take_linear_time(tmp_path: Path) -> None:
    """A record with boxes by the ten thousand is compared with 300 detections at most."""
    boxes = [("cat", (place / 100, 0, place / 100 + 1, 1)) for place in range(20_000)]
    found = detections(boxes[::2])
    report = check_files(tmp_path, files(boxes, found), max_findings=10)
    assert report.counts.by_code["PRD004"] > 10


def test_predictions_are_drawn_dashed_worst_first(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("PIL")
    found = [*detections(BOTH, score=0.8), *detections(GRID[-1:], "b"), *detections(BOTH[1:], "c")]
    content = files([], found)
    records = (labelled("a.jpg", ("dog", CAT), BOTH[1]), labelled("b.jpg"), labelled("c.jpg"))
    content[SHARD] = shard(*records)
    for name, one in content.items():
        (tmp_path / name).write_bytes(one)
    page = tmp_path / "report.html"
    predictions = str(tmp_path / "detections.json")
    command = ["check", str(tmp_path), "--predictions", predictions, "--format", f"html={page}"]
    assert main([*command, "--profile", "cvat"]) == 0
    text = page.read_text()
    first, second, third = text.split('<figure class="card')[1:]
    assert [one.count('<g class="dashed">') for one in (first, second, third)] == [1, 1, 1]
    assert "b.jpg" in first and "c.jpg" in second and "a.jpg" in third
    assert '<g class="bad"><title>object 0: dog</title>' in third
    assert "<title>predicted: cat 0.80</title>" in third and "Dashed: 1 prediction<" in third
    assert "Look at the 3 likely label errors, worst first." in text
    assert '<li class="dashed">prediction, with its score</li>' in text


def test_a_baseline_knows_them_whatever_their_scores_are(tmp_path: Path, capsys: Any) -> None:
    content = files([("dog", CAT), *GRID[6:]], detections(BOTH))
    for name, one in content.items():
        (tmp_path / name).write_bytes(one)
    command = ["check", str(tmp_path / SHARD), "--profile", "cvat", "--max-findings", "1"]
    command += ["--baseline", str(tmp_path / "baseline.json")]
    command += ["--predictions", str(tmp_path / "detections.json")]
    assert main([*command, "--update-baseline"]) == 0
    (tmp_path / "detections.json").write_text(json.dumps(detections(BOTH, score=0.8)))
    capsys.readouterr()
    assert main([*command, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []

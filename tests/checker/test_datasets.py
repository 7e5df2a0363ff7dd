"""``tfod check`` of datasets: images in several splits, several datasets, label maps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checker.conftest import ReportOf
from tests.checker.test_check import training
from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.image_kinds import plain_image
from tests.records import encode, image, objects, write_shard
from tests.zip_forge import real_zip

LABEL_MAP, DOGS = "item { id: 1 name: 'cat' }\n", "item { id: 1 name: 'dog' }\n"


def numbered(number: int, **more: Any) -> bytes:
    """A valid record with one cat; each number has another image."""
    return training(f"{number:03}.jpeg", **more)


def names_of(report: dict[str, Any]) -> list[str]:
    return [Path(one["name"]).name for one in report["datasets"]]


def test_all_images_of_val_are_in_train(tmp_path: Path, report_of: ReportOf) -> None:
    write_shard(tmp_path, "train", *map(numbered, range(8)))
    write_shard(tmp_path, "val", *map(numbered, range(3)), numbered(0))
    (listed,) = report_of(tmp_path, "--max-findings", 1)[1]["findings"]
    assert listed["code"] == "IMG011"
    _, report = report_of(tmp_path)
    assert report["counts"]["by_code"] == {"IMG010": 1, "IMG011": 3, "NAM002": 1, "NAM008": 1}
    messages = {one["code"]: one["message"] for one in reversed(report["findings"])}
    assert messages["IMG010"].endswith(f"record 0 of {tmp_path}/val.tfrecord (000.jpeg)")
    assert f"record 0 of {tmp_path}/train.tfrecord (000.jpeg)" in messages["IMG011"]
    assert messages["IMG011"].endswith("all 3 images of val are in other subsets")
    assert report_of(tmp_path, "--severity", "IMG011=info")[1]["severities"]["IMG011"] == "info"


@pytest.mark.parametrize(
    "named", [("",), ("train", "valid"), ("train/People.tfrecord", "valid/People.tfrecord")]
)
def test_subsets_by_folder(tmp_path: Path, report_of: ReportOf, named: tuple[str, ...]) -> None:
    """In Roboflow's exports, the shards of all folders have the same name."""
    for folder in ("train", "valid"):
        write_shard(tmp_path / folder, "People", *map(numbered, range(3)))
    code, report = report_of(*(tmp_path / one for one in named))
    assert report["counts"]["by_code"] == {"IMG011": 3} and code == 1
    assert report["findings"][0]["message"].startswith("the image is in valid, and also in train: ")


@pytest.mark.parametrize(
    ("train", "val", "name"),
    [("train_data", "val_data", "*_data"), ("training_set", "validation_set", "*_set")],
)
def test_split_folders(
    tmp_path: Path, report_of: ReportOf, train: str, val: str, name: str
) -> None:
    for folder in (train, val):
        write_shard(tmp_path / folder, "a", *map(numbered, range(3)))
    write_shard(tmp_path / "other", "a", numbered(7))
    code, report = report_of(tmp_path)
    assert report["counts"]["by_code"] == {"IMG011": 3} and code == 1
    assert sorted(names_of(report)) == [name, "other"]


@pytest.mark.parametrize(
    ("subsets", "is_leak"),
    [
        ({"train": range(8), "val": range(3)}, True),
        ({"dev": range(3), "train": range(8)}, True),
        ({"train": range(8), "train_small": range(3)}, False),
        # In Pascal VOC, trainval is train and val.
        ({"trainval": range(9), "val": range(3)}, True),
        ({"train": range(6), "val": range(6, 9), "trainval": range(9)}, False),
        ({"train": range(6), "val": range(5, 9), "trainval": range(9)}, False),
        ({"train": range(6), "val": range(3), "trainval": range(6)}, True),
        ({"train": range(6), "val": range(6, 9), "trainval": range(9), "test": range(3)}, True),
    ],
)
def test_subsets_of_training_images(
    tmp_path: Path, report_of: ReportOf, subsets: Any, is_leak: bool
) -> None:
    for name, numbers in subsets.items():
        write_shard(tmp_path, name, *map(numbered, numbers))
    code, report = report_of(tmp_path)
    assert report["severities"]["IMG011"] == ("error" if is_leak else "warning")
    assert code == is_leak


def test_similar_classes_that_convert_writes(tmp_path: Path, run: Run, report_of: ReportOf) -> None:
    rows = [("Cat", 5), ("cat", 3), ("c at", 2), ("dog", 1)]
    lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for number, (name, boxes) in enumerate(rows):
        write_file(tmp_path / "images" / f"{number}.jpg", plain_image((120, 80), 50 * number))
        size = f"{number}.jpg,120,80"
        lines += [f"{size},{name},{10 + box},10,{50 + box},60" for box in range(boxes)]
    table = write_file(tmp_path / "labels.csv", "\n".join(lines))
    shard = tmp_path / "shards" / "train.record"
    run("convert", table, shard).succeeded()
    code, report = report_of(shard)
    (finding,) = [one for one in report["findings"] if one["code"] == "LAB016"]
    assert finding["message"].startswith("'Cat' (5 objects) and 'c at' (2 objects) and 'cat'")
    assert "are 3 classes" in finding["message"] and code == 0


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A dataset of cats with splits, and one of dogs, with the same id for another class."""
    root = tmp_path / "root"
    write_shard(root / "cats", "train", numbered(0), numbered(1))
    write_shard(root / "cats", "val", numbered(2))
    dog = {"image/object/class/text": ["dog"], "image/object/bbox/xmax": [0.0]}
    write_shard(root / "dogs", "train", numbered(2, **dog), label_map=DOGS)
    return root


def test_each_dataset_has_its_verdict(two: Path, report_of: ReportOf, check: Run) -> None:
    code, report = report_of(two)
    assert code == 1 and report["valid"] is False
    found = [
        (one["name"], one["valid"], one["label_maps"], one["counts"]["records"])
        for one in report["datasets"]
    ]
    assert found == [
        (f"{two}/cats", True, [f"{two}/cats/label_map.pbtxt"], 3),
        (f"{two}/dogs", False, [f"{two}/dogs/label_map.pbtxt"], 1),
    ]
    # Shared ids and images of different datasets are not defects.
    assert report["counts"]["by_code"] == {"BOX006": 1}
    errors = [one["counts"]["by_severity"]["error"] for one in report["datasets"]]
    assert errors == [0, 1] and report["counts"]["records"] == 4
    text, html, junit = (check(two, "--format", form).out for form in ("text", "html", "junit"))
    lines = " ".join(text.split())
    assert lines.startswith("INVALID: 1 of 2 datasets valid, 1 error, ")
    assert f"VALID {two}/cats: 0 errors, " in lines
    assert f"INVALID {two}/dogs: 1 error, " in lines
    assert f"<strong>Invalid</strong> <bdi>{two}/dogs</bdi>: 1 error, " in html
    for name, count in (("cats", 2), ("dogs", 1)):
        assert junit.count(f'<property name="dataset" value="{two}/{name}" />') == count


def test_each_dataset_has_its_severities(tmp_path: Path, report_of: ReportOf) -> None:
    """Within a dataset, the worst case of a rule determines its severity."""
    box = [0.1, 0.1, 0.3, 0.3]
    for name, count in (("a", 100), ("b", 101)):
        boxes = [[x + n / 1000 for x in box] for n in range(count)]
        many = image(f"{name}.jpg") | objects(boxes, ["cat"] * count, [1] * count)
        write_shard(tmp_path / name, "train", encode(many))
    _, report = report_of(tmp_path)
    levels = [one["counts"]["by_severity"] for one in report["datasets"]]
    whole = report["counts"]["by_severity"]
    assert whole == {one: sum(each[one] for each in levels) for one in whole}
    assert levels[0]["info"] == levels[1]["info"] + 1


def test_each_dataset_has_its_profile(two: Path, corpus: Path, report_of: ReportOf) -> None:
    write_shard(two / "table", "train", encode({"age": 3, "fare": 1.5}), label_map=None)
    report = report_of(two)[1]
    profiles = [one["profile"]["name"] for one in report["datasets"]]
    assert profiles == ["tf_detection_api", "tf_detection_api", "none"]
    assert report["profile"]["name"] == "tf_detection_api, none"
    assert report["counts"]["by_code"] == {"BOX006": 1, "EXA010": 1}
    report = report_of(corpus)[1]
    verdicts = {Path(one["name"]).name: one["valid"] for one in report["datasets"]}
    assert verdicts["hyphal-tips"] is True and verdicts["titanic-table"] is False
    assert "SET004" not in report["counts"]["by_code"]


def test_folders_of_one_dataset(tmp_path: Path, report_of: ReportOf) -> None:
    splits, roboflow = tmp_path / "splits", tmp_path / "roboflow"
    write_shard(splits / "train", "cats", numbered(0))
    write_shard(splits / "valid", "cats", numbered(1), label_map=DOGS)
    for sources in ([splits], [splits / "train", splits / "valid"]):
        report = report_of(*sources)[1]
        assert [one["name"] for one in report["datasets"]] == [str(splits)]
        assert report["counts"]["by_code"]["SET004"] == 1
    for name in ("train", "mine"):
        write_shard(roboflow / name, "cats", numbered(len(name)))
    assert len(report_of(roboflow)[1]["datasets"]) == 2
    (roboflow / "README.roboflow.txt").write_text("Roboflow\n")
    assert len(report_of(roboflow)[1]["datasets"]) == 1


def test_other_sources(two: Path, tmp_path: Path, report_of: ReportOf, check: Run) -> None:
    labels = write_file(tmp_path / "labels.json", json.dumps([{"name": "cat"}, {"name": "dog"}]))
    report = report_of(two, "--cvat-labels", labels)[1]
    assert [one["name"] for one in report["datasets"]] == [f"{two}/cats, {two}/dogs"]
    (two / "more.zip").write_bytes(real_zip(files_in(two / "dogs").items()))
    (two / "images.zip").write_bytes(real_zip([("a.jpg", plain_image((40, 20)))]))
    report = report_of(two)[1]
    assert names_of(report) == ["cats", "dogs", "more.zip"]
    assert report["counts"]["by_code"] == {"BOX006": 2}
    (two / "empty").mkdir()
    refused = check(two / "cats", two / "empty").refused()
    assert refused.startswith(f"tfod: {two}/empty: is empty")


def test_named_label_maps(tmp_path: Path, report_of: ReportOf) -> None:
    """They take precedence, and as the only source, they select the shards next to them."""
    shard = write_shard(tmp_path / "good", "train", numbered(0))
    other = write_file(tmp_path / "other.pbtxt", DOGS)
    report = report_of(tmp_path / "good", other)[1]
    assert report["datasets"][0]["label_maps"] == [str(other)]
    assert "LAB006" in report["counts"]["by_code"]
    for named in ([], [shard]):
        code, report = report_of(*named, tmp_path / "good" / "label_map.pbtxt")
        assert code == 0 and [one["name"] for one in report["sources"]] == [shard]


def test_label_maps_without_shards(tmp_path: Path, report_of: ReportOf, check: Run) -> None:
    files = {"a_label_map.pbtxt": LABEL_MAP, "label_map.pbtxt": LABEL_MAP + DOGS}
    write_files(tmp_path, files)
    code, report = report_of(*(tmp_path / name for name in files))
    assert code == 1 and report["counts"]["by_code"] == {"LAB003": 1}
    for name in ("graph.pbtxt", "absent_label_map.pbtxt"):
        check(tmp_path / name).refused()


def test_label_map_of_each_shard(tmp_path: Path, report_of: ReportOf, monkeypatch: Any) -> None:
    """pre-commit passes any mix of files in any order."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("cat", LABEL_MAP), ("dog", DOGS)):
        for number, shard in enumerate("ab"):
            record = numbered(number, **{"image/object/class/text": [name]})
            write_shard(tmp_path / name, shard, record, label_map=text)
    names = ["cat/a.tfrecord", "cat/label_map.pbtxt", "dog/b.tfrecord", "dog/label_map.pbtxt"]
    for mix in (names, names[::-1], names[:2], names[:3], names[1:3], names[2:], names[1::2]):
        code, report = report_of(*mix)
        assert (code, report["counts"]["by_code"]) == (0, {}), mix
    (tmp_path / "cat" / "label_map.pbtxt").write_text("item { id: 0 name: 'cat' }")
    assert report_of(*names[1:3])[1]["counts"]["by_code"] == {"LAB005": 1, "LAB008": 2}
    (tmp_path / "cat" / "label_map.pbtxt").write_text("item { id: 1 name: 'katze' }")
    codes = report_of(*names[1:3])[1]["counts"]["by_code"]
    assert codes["LAB006"] == 2, "both shards next to it are checked, too"


def test_relative_names(tmp_path: Path, report_of: ReportOf, monkeypatch: Any) -> None:
    write_shard(tmp_path / "good", "a", numbered(0), label_map="item { id: 0 name: 'cat' }")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for source in ("../good", "../good/a.tfrecord"):
        report = report_of(source)[1]
        (dataset,) = report["datasets"]
        assert (dataset["name"], dataset["label_maps"]) == ("../good", ["../good/label_map.pbtxt"])
        (found,) = (one for one in report["findings"] if one["code"] == "LAB005")
        assert found["shard"] == "../good/label_map.pbtxt"
    (dataset,) = report_of(tmp_path / "good")[1]["datasets"]
    assert dataset["label_maps"] == [str(tmp_path / "good/label_map.pbtxt")]


def test_a_part_of_a_numbered_set(tmp_path: Path, report_of: ReportOf) -> None:
    shards = [tmp_path / f"x-{number:05d}-of-00004.record" for number in range(4)]
    for number, shard in enumerate(shards):
        Path(write_shard(tmp_path, "x", numbered(number))).rename(shard)
    for some in (shards[:2], [tmp_path / "x-0000[01]-*"]):
        assert report_of(*some)[1]["counts"]["by_code"] == {}, "the others exist"
    shards[3].unlink()
    (finding,) = report_of(*shards[:2])[1]["findings"]
    assert finding["message"] == "1 shard is missing: x-00003-of-00004.record"
    assert report_of(shards[0])[1]["counts"]["by_code"] == {}, "a single shard may be enough"

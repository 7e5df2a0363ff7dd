"""``tfod check`` of whole datasets: what is in several splits, and several datasets at once."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.checker.conftest import ReportOf
from tests.commands import Run
from tests.files import files_in, write_file
from tests.records import encode, image, objects, write_shard
from tests.zip_forge import real_zip

LABEL_MAP = "item { id: 1 name: 'cat' }\n"


def noisy_image(number: int, form: str = "JPEG") -> bytes:
    """Noise, so that the files are 20 to 40 kB and of any length."""
    pixels = random.Random(number).randbytes(3 * 120 * (80 + number))
    stream = io.BytesIO()
    Image.frombytes("RGB", (120, 80 + number), pixels).save(stream, form)
    return stream.getvalue()


def noisy_record(number: int, form: str = "JPEG", **more: Any) -> bytes:
    """A sound record with one cat; each number has another image."""
    features = {
        **image(f"{number:03}.{form.lower()}", 80 + number, 120),
        "image/encoded": noisy_image(number, form),
        "image/format": form.lower(),
        "image/source_id": f"{number:03}",
        **objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [1]),
        **more,
    }
    return encode(features)


class TestLeaks:
    @pytest.mark.parametrize("form", ["JPEG", "PNG"])
    def test_every_image_that_two_subsets_have_is_found(
        self, tmp_path: Path, report_of: ReportOf, form: str
    ) -> None:
        ours = [noisy_record(number, form) for number in range(32)]
        assert len({len(noisy_image(number, form)) % 16 for number in range(32)}) > 8
        write_shard(tmp_path, "train", *ours, noisy_record(40, form))
        write_shard(tmp_path, "val", *ours, noisy_record(41, form))
        code, report = report_of(tmp_path)
        assert report["counts"]["by_code"] == {"IMG011": 32} and code == 0
        assert report["severities"] == {"IMG011": "warning"}

    def test_all_of_val_in_train_is_said(self, tmp_path: Path, report_of: ReportOf) -> None:
        write_shard(tmp_path, "train", *map(noisy_record, range(8)))
        write_shard(tmp_path, "val", *map(noisy_record, range(3)), noisy_record(0))
        (listed,) = report_of(tmp_path, "--max-findings", 1)[1]["findings"]
        assert listed["code"] == "IMG011"
        _, report = report_of(tmp_path)
        assert report["counts"]["by_code"] == {"IMG010": 1, "IMG011": 3, "NAM002": 1, "NAM008": 1}
        said = {one["code"]: one["message"] for one in reversed(report["findings"])}
        assert said["IMG010"].endswith(f"record 0 of {tmp_path}/val.tfrecord (000.jpeg)")
        assert f"record 0 of {tmp_path}/train.tfrecord (000.jpeg)" in said["IMG011"]
        assert said["IMG011"].endswith("all 3 images of val are in other subsets")
        assert report_of(tmp_path, "--severity", "IMG011=info")[1]["severities"]["IMG011"] == "info"

    @pytest.mark.parametrize(
        "named", [("",), ("train", "valid"), ("train/People.tfrecord", "valid/People.tfrecord")]
    )
    def test_one_name_in_both_folders_however_they_are_named(
        self, tmp_path: Path, report_of: ReportOf, named: tuple[str, ...]
    ) -> None:
        """As in Roboflow's exports: the subset is the folder's name, not the file's."""
        for folder in ("train", "valid"):
            write_shard(tmp_path / folder, "People", *map(noisy_record, range(3)))
        code, report = report_of(*(tmp_path / one for one in named))
        assert report["counts"]["by_code"] == {"IMG011": 3} and code == 1
        assert report["findings"][0]["message"].startswith(
            "the image is in valid, and also in train: "
        )

    @pytest.mark.parametrize(
        ("train", "val"), [("train_data", "val_data"), ("training_set", "validation_set")]
    )
    def test_folders_that_differ_by_the_word_of_the_split(
        self, tmp_path: Path, report_of: ReportOf, train: str, val: str
    ) -> None:
        for folder in (train, val):
            write_shard(tmp_path / folder, "a", *map(noisy_record, range(3)))
        write_shard(tmp_path / "other", "a", noisy_record(7))
        code, report = report_of(tmp_path)
        assert report["counts"]["by_code"] == {"IMG011": 3} and code == 1
        assert sorted(Path(one["name"]).name for one in report["datasets"]) == [
            train.replace("training", "*").replace("train", "*"),
            "other",
        ]

    @pytest.mark.parametrize(
        ("subsets", "is_leak"),
        [
            ({"train": range(8), "val": range(3)}, True),
            ({"dev": range(3), "train": range(8)}, True),  # whichever is read first
            ({"train": range(8), "train_small": range(3)}, False),
            # As in Pascal VOC trainval is train and val.
            ({"trainval": range(9), "val": range(3)}, True),
            ({"train": range(6), "val": range(6, 9), "trainval": range(9)}, False),
            ({"train": range(6), "val": range(5, 9), "trainval": range(9)}, False),
            ({"train": range(6), "val": range(3), "trainval": range(6)}, True),
            ({"train": range(6), "val": range(6, 9), "trainval": range(9), "test": range(3)}, True),
        ],
    )
    def test_a_subset_that_is_all_in_training_is_an_error(
        self, tmp_path: Path, report_of: ReportOf, subsets: dict[str, range], is_leak: bool
    ) -> None:
        for name, numbers in subsets.items():
            write_shard(tmp_path, name, *map(noisy_record, numbers))
        code, report = report_of(tmp_path)
        assert report["severities"]["IMG011"] == ("error" if is_leak else "warning")
        assert code == is_leak


def test_spellings_of_one_class_that_convert_has_put_into_the_label_map(
    tmp_path: Path, run: Run, report_of: ReportOf
) -> None:
    rows = [("Cat", 5), ("cat", 3), ("c at", 2), ("dog", 1)]
    lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for number, (name, boxes) in enumerate(rows):
        write_file(tmp_path / "images" / f"{number}.jpg", noisy_image(number))
        size = f"{number}.jpg,120,{80 + number}"
        lines += [f"{size},{name},{10 + box},10,{50 + box},60" for box in range(boxes)]
    write_file(tmp_path / "labels.csv", "\n".join(lines))
    shard = tmp_path / "shards" / "train.record"
    run("convert", tmp_path / "labels.csv", shard).succeeded()
    code, report = report_of(shard)
    (finding,) = [one for one in report["findings"] if one["code"] == "LAB016"]
    assert finding["message"].startswith("'Cat' (5 objects) and 'c at' (2 objects) and 'cat'")
    assert "are 3 classes" in finding["message"] and code == 0


class TestSeveral:
    """Folders with several datasets."""

    @pytest.fixture
    def two(self, tmp_path: Path) -> Path:
        """A dataset of cats with splits, and one of dogs, with the same id for another class."""
        root = tmp_path / "root"
        write_shard(root / "cats", "train", noisy_record(0), noisy_record(1))
        write_shard(root / "cats", "val", noisy_record(2))
        dog = {"image/object/class/text": ["dog"], "image/object/bbox/xmax": [0.0]}
        dogs = "item { id: 1 name: 'dog' }\n"
        write_shard(root / "dogs", "train", noisy_record(2, **dog), label_map=dogs)
        return root

    def test_each_has_its_verdict(self, two: Path, report_of: ReportOf) -> None:
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
        # Neither the ids nor the image that both have are a defect: they are strangers.
        assert report["counts"]["by_code"] == {"BOX006": 1}
        errors = [one["counts"]["by_severity"]["error"] for one in report["datasets"]]
        assert errors == [0, 1] and report["counts"]["records"] == 4

    def test_a_rule_is_as_severe_as_each_of_them_makes_it(
        self, tmp_path: Path, report_of: ReportOf
    ) -> None:
        """Of a data set the worst case counts for all, and not for those of another."""
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

    def test_text_html_and_junit_say_so(self, two: Path, check: Run) -> None:
        output = {form: check(two, "--format", form).out for form in ("text", "html", "junit")}
        lines = " ".join(output["text"].split())
        assert lines.startswith("INVALID: 1 of 2 datasets valid, 1 error, ")
        assert f"VALID {two}/cats: 0 errors, " in lines
        assert f"INVALID {two}/dogs: 1 error, " in lines
        assert f"<strong>Invalid</strong> <bdi>{two}/dogs</bdi>: 1 error, " in output["html"]
        assert output["junit"].count(f'<property name="dataset" value="{two}/cats" />') == 2
        assert output["junit"].count(f'<property name="dataset" value="{two}/dogs" />') == 1

    def test_each_has_its_profile(self, two: Path, report_of: ReportOf) -> None:
        numbers = encode({"age": 3, "fare": 1.5})
        write_shard(two / "table", "train", numbers, label_map=None)
        report = report_of(two)[1]
        profiles = [one["profile"]["name"] for one in report["datasets"]]
        assert profiles == ["tf_detection_api", "tf_detection_api", "none"]
        assert report["profile"]["name"] == "tf_detection_api, none"
        assert report["counts"]["by_code"] == {"BOX006": 1, "EXA010": 1}

    def test_the_real_ones(self, corpus: Path, report_of: ReportOf) -> None:
        report = report_of(corpus)[1]
        verdicts = {Path(one["name"]).name: one["valid"] for one in report["datasets"]}
        assert verdicts["hyphal-tips"] is True and verdicts["titanic-table"] is False
        assert "SET004" not in report["counts"]["by_code"]

    def test_folders_of_splits_are_one(self, tmp_path: Path, report_of: ReportOf) -> None:
        write_shard(tmp_path / "train", "cats", noisy_record(0))
        dogs = "item { id: 1 name: 'dog' }\n"
        write_shard(tmp_path / "valid", "cats", noisy_record(1), label_map=dogs)
        for sources in ([tmp_path], [tmp_path / "train", tmp_path / "valid"]):
            report = report_of(*sources)[1]
            assert [one["name"] for one in report["datasets"]] == [str(tmp_path)]
            assert report["counts"]["by_code"]["SET004"] == 1

    def test_folders_of_roboflow_are_one(self, tmp_path: Path, report_of: ReportOf) -> None:
        for name in ("train", "mine"):
            write_shard(tmp_path / name, "cats", noisy_record(len(name)))
        assert len(report_of(tmp_path)[1]["datasets"]) == 2
        (tmp_path / "README.roboflow.txt").write_text("Roboflow\n")
        assert len(report_of(tmp_path)[1]["datasets"]) == 1

    def test_zips_beside_shards_are_checked(
        self, two: Path, tmp_path: Path, report_of: ReportOf
    ) -> None:
        dogs = [(name, content) for name, content in files_in(two / "dogs").items()]
        (two / "more.zip").write_bytes(real_zip(dogs))
        (two / "images.zip").write_bytes(real_zip([("a.jpg", noisy_image(0))]))
        report = report_of(two)[1]
        names = [Path(one["name"]).name for one in report["datasets"]]
        assert names == ["cats", "dogs", "more.zip"]
        assert report["counts"]["by_code"] == {"BOX006": 2}

    def test_a_task_is_of_all_that_is_named(
        self, two: Path, tmp_path: Path, report_of: ReportOf
    ) -> None:
        labels = tmp_path / "labels.json"
        labels.write_text(json.dumps([{"name": name, "attributes": []} for name in ("cat", "dog")]))
        report = report_of(two, "--cvat-labels", labels)[1]
        assert [one["name"] for one in report["datasets"]] == [f"{two}/cats, {two}/dogs"]

    def test_a_folder_without_shards_hides_nothing(self, two: Path, check: Run) -> None:
        (two / "empty").mkdir()
        refused = check(two / "cats", two / "empty").refused()
        assert refused.startswith(f"tfod: {two}/empty: is empty")


class TestLabelMaps:
    def test_a_named_one_is_stronger_than_one_beside(
        self, tmp_path: Path, report_of: ReportOf
    ) -> None:
        write_shard(tmp_path / "good", "train", noisy_record(0))
        other = tmp_path / "other.pbtxt"
        other.write_text("item { id: 1 name: 'dog' }\n")
        report = report_of(tmp_path / "good", other)[1]
        assert report["datasets"][0]["label_maps"] == [str(other)]
        assert "LAB006" in report["counts"]["by_code"]

    def test_it_stands_for_the_shards_beside_it(self, tmp_path: Path, report_of: ReportOf) -> None:
        shard = write_shard(tmp_path, "train", noisy_record(0))
        for named in ([], [shard]):
            code, report = report_of(*named, tmp_path / "label_map.pbtxt")
            assert code == 0 and [one["name"] for one in report["sources"]] == [shard]

    def test_alone_without_shards(self, tmp_path: Path, report_of: ReportOf, check: Run) -> None:
        names = [tmp_path / "a_label_map.pbtxt", tmp_path / "label_map.pbtxt"]
        names[0].write_text(LABEL_MAP)
        names[1].write_text("item { id: 1 name: 'cat' } item { id: 1 name: 'dog' }")
        code, report = report_of(*names)
        assert code == 1 and report["counts"]["by_code"] == {"LAB003": 1}
        for name in ("graph.pbtxt", "absent_label_map.pbtxt"):
            check(tmp_path / name).refused()

    def test_any_mix_in_any_order_as_pre_commit_has_it(
        self, tmp_path: Path, report_of: ReportOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each shard has its own label map, whatever else is named in the same run."""
        monkeypatch.chdir(tmp_path)
        for name in ("cat", "dog"):
            folder, more = tmp_path / name, {"image/object/class/text": [name]}
            text = f"item {{ id: 1 name: '{name}' }}"
            write_shard(folder, "a", noisy_record(0, **more), label_map=text)
            write_shard(folder, "b", noisy_record(1, **more), label_map=text)
        names = ["cat/a.tfrecord", "cat/label_map.pbtxt", "dog/b.tfrecord", "dog/label_map.pbtxt"]
        for mix in (names, names[::-1], names[:2], names[:3], names[1:3], names[2:], names[1::2]):
            code, report = report_of(*mix)
            assert (code, report["counts"]["by_code"]) == (0, {}), mix
        (tmp_path / "cat" / "label_map.pbtxt").write_text("item { id: 0 name: 'cat' }")
        assert report_of(*names[1:3])[1]["counts"]["by_code"] == {"LAB005": 1, "LAB008": 2}
        (tmp_path / "cat" / "label_map.pbtxt").write_text("item { id: 1 name: 'katze' }")
        codes = report_of(*names[1:3])[1]["counts"]["by_code"]
        assert codes["LAB006"] == 2, "both shards beside it are checked, too"

    def test_names_are_relative_where_the_shards_are(
        self, tmp_path: Path, report_of: ReportOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "item { id: 0 name: 'cat' }"
        write_shard(tmp_path / "good", "train", noisy_record(0), label_map=text)
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        for source in ("../good", "../good/train.tfrecord"):
            report = report_of(source)[1]
            assert report["datasets"][0]["name"] == "../good"
            assert report["datasets"][0]["label_maps"] == ["../good/label_map.pbtxt"]
            places = {one["code"]: one["shard"] for one in report["findings"]}
            assert places["LAB005"] == "../good/label_map.pbtxt"
        absolute = report_of(tmp_path / "good")[1]
        assert absolute["datasets"][0]["label_maps"] == [str(tmp_path / "good/label_map.pbtxt")]


def test_a_part_of_a_numbered_set(tmp_path: Path, report_of: ReportOf) -> None:
    shards = [tmp_path / f"x-{number:05d}-of-00004.record" for number in range(4)]
    for number, shard in enumerate(shards):
        Path(write_shard(tmp_path, "x", noisy_record(number))).rename(shard)
    for some in (shards[:2], [tmp_path / "x-0000[01]-*"]):
        assert report_of(*some)[1]["counts"]["by_code"] == {}, "the others are there, too"
    shards[3].unlink()
    (finding,) = report_of(*shards[:2])[1]["findings"]
    assert finding["message"] == "1 shard is missing: x-00003-of-00004.record"
    assert report_of(shards[0])[1]["counts"]["by_code"] == {}, "one alone promises nothing"

"""``tfod create kitti``. What is expected was written by create_kitti_tf_record.py itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tfod.check.check import check_sources
from tfod.detection.labels.label_map import read_label_map

from tests.commands import Run
from tests.shards.create.conftest import KITTI, by_filename, float32

SHAPES = ("--classes_to_use", "square,étoile,triangle,dontcare")
FIRST_BOXES = [
    [0.0006874999962747097, 0.0, 0.23046875, 0.2631775736808777],
    [0.238218754529953, 0.41719627380371094, 0.45603126287460327, 0.7428972125053406],
    [0.40931248664855957, 0.5076168179512024, 0.5902812480926514, 0.7782710194587708],
    [0.4182812571525574, 0.687009334564209, 0.6636250019073486, 1.0],
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KITTI, tmp_path / "kitti"))


def created(run: Run, data: Path, out: Path, *options: object) -> str:
    return run("kitti", "--data_dir", data, "--output_path", out, *options).succeeded()


def refused(run: Run, data: Path, *options: object) -> str:
    line = run("kitti", "--data_dir", data, "--output_path", data / "out" / "k", *options).refused()
    assert not (data / "out").exists()
    return line


def test_records_are_the_scripts(run: Run, tmp_path: Path) -> None:
    created(run, KITTI, tmp_path / "k", *SHAPES, "--validation_set_size", 1)
    (one,) = by_filename(tmp_path / "k_val.tfrecord").values()
    assert one.boxes.tolist() == FIRST_BOXES
    assert one.class_text == ["square", "square", "square", "étoile"]
    assert one.class_label == [1, 1, 1, 2]
    assert one.attributes == {
        "difficult": [0, 0, 0, 0],
        "truncated": float32([0.23, 0, 0, 0.13]),
        "alpha": float32([0.24, 0.2, 0.1, -0.07]),
        "3d_bbox_height": float32([1.41, 1.74, 1.45, 1.67]),
        "3d_bbox_width": float32([1.84, 1.74, 1.45, 1.96]),
        "3d_bbox_length": [0.5] * 4,
        "3d_bbox_x": float32([0.01, 1.91, 3.27, 3.35]),
        "3d_bbox_y": float32([1.65] * 4),
        "3d_bbox_z": [12.5] * 4,
        "3d_bbox_rot_y": float32([0.24, 0.2, 0.1, -0.07]),
        "occluded": [0, 1, 1, 0],  # not by the script
    }
    assert (one.filename, one.source_id, one.format) == ("000000.png", "2", "png")
    (other,) = by_filename(tmp_path / "k_train.tfrecord").values()
    assert other.boxes.tolist() == float32(
        [[0.11887499690055847, 0.023250000551342964, 0.38359373807907104, 0.3943333327770233]]
    )
    assert other.class_text == ["triangle"]


def test_what_is_left_out_is_counted(run: Run, tmp_path: Path) -> None:
    output = created(run, KITTI, tmp_path / "k", *SHAPES, "--validation-set-size=0")
    assert "1 objects that overlap a dontcare region, left out (the first: " in output
    assert "000001.txt, line 1" in output and "other classes" not in output
    assert len(by_filename(tmp_path / "k_train.tfrecord")) == 2
    output = created(run, KITTI, tmp_path / "n", "--classes_to_use", "étoile", "--overwrite")
    found = by_filename(tmp_path / "n_val.tfrecord")
    assert [len(one.boxes) for one in found.values()] == [1, 1]
    assert "4 objects of other classes, left out" in output
    assert "n_train.tfrecord holds no image" in output


def test_an_object_beside_a_dontcare_region_is_kept(run: Run, data: Path) -> None:
    """They touch along an edge, and have no pixel in common."""
    numbers = "1 1 1 1 1 1 1"
    (data / "training" / "label_2" / "000000.txt").write_text(
        f"Square 0 0 0 10 10 20 20 {numbers}\nDontCare 0 0 0 20 10 30 20 {numbers}\n"
        f"DontCare 0 0 0 10 20 20 30 {numbers}\n"
    )
    created(run, data, data / "k", *SHAPES)
    assert len(by_filename(data / "k_val.tfrecord")["000000.png"].boxes) == 1


def test_label_maps(run: Run, data: Path, tmp_path: Path) -> None:
    """KITTI's own for its own classes, else made; with an id for none of dontcare."""
    labels = data / "training" / "label_2" / "000000.txt"
    labels.write_text(labels.read_text().replace("Square", "Car"))
    created(run, data, tmp_path / "own" / "k")
    names = [one.name for one in read_label_map(tmp_path / "own" / "label_map.pbtxt")[0].items]
    assert names == ["car", "pedestrian"]
    created(run, KITTI, tmp_path / "made" / "k", *SHAPES)
    names = [one.name for one in read_label_map(tmp_path / "made" / "label_map.pbtxt")[0].items]
    assert names == ["square", "étoile", "triangle"]


def test_classes_of_no_object(run: Run, data: Path) -> None:
    output = refused(run, data)
    assert "none of 6 annotated objects is left; 6 objects of other classes, left out" in output


def test_classes_may_be_spelt_as_in_the_files(run: Run, tmp_path: Path) -> None:
    created(run, KITTI, tmp_path / "k", "--classes_to_use", "Square, Étoile")
    names = [one.name for one in read_label_map(tmp_path / "label_map.pbtxt")[0].items]
    assert names == ["square", "étoile"]
    found = by_filename(tmp_path / "k_val.tfrecord")
    assert [len(one.boxes) for one in found.values()] == [4, 1]


def test_the_scripts_folders(run: Run, data: Path) -> None:
    (data / "data_object_image_2" / "training").mkdir(parents=True)
    (data / "training" / "image_2").rename(data / "data_object_image_2" / "training" / "image_2")
    created(run, data, data / "k", *SHAPES)
    assert len(by_filename(data / "k_val.tfrecord")) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Car 0 0 0 1 2 3", "6 numbers behind the class, expected 14"),
        ("Car 0 0 0 1 2 3 x 1 1 1 1 1 1 1", "line 2: 'x' where a number is expected"),
        ("Car 0 0 nan 1 2 3 4 1 1 1 1 1 1 1", "expected 14 finite ones"),
        ("Square 0 0 0 1 2 3 4 1 1 1 1 1 1 1", "class 'square' is not in the label map"),
    ],
)
def test_lines_that_are_none(run: Run, data: Path, line: str, says: str) -> None:
    (data / "training" / "label_2" / "000000.txt").write_text(f"\n{line}\n")
    output = refused(run, data, "--classes_to_use=square,car", "--label-map=kitti")
    assert "000000.txt" in output and says in output


def test_label_files_without_a_image_are_counted(run: Run, data: Path) -> None:
    labels = data / "training" / "label_2"
    shutil.copy(labels / "000000.txt", labels / "000777.txt")
    image = data / "training" / "image_2" / "000001.png"
    image.rename(image.with_suffix(".ppm"))
    output = created(run, data, data / "k", *SHAPES)
    assert "2 label files of images that are not there, left out (the first: " in output
    assert "000001.txt)" in output


def test_files_that_are_missing(run: Run, data: Path) -> None:
    (data / "training" / "label_2" / "000001.txt").unlink()
    assert "000001.txt cannot be read (No such file" in refused(run, data)
    (data / "training" / "image_2" / "000001.png").rename(data / "training" / "image_2" / "b.png")
    assert "b.png: KITTI's images are named by number" in refused(run, data)
    shutil.rmtree(data / "training" / "image_2")
    assert "holds neither" in refused(run, data)


def test_the_checker_agrees(run: Run, tmp_path: Path) -> None:
    created(run, KITTI, tmp_path / "k", *SHAPES, "--validation_set_size", 1)
    report = check_sources([str(tmp_path)])
    assert report.valid and not report.flatten("code")


def test_what_lies_there_under_the_name_of_the_shipped_label_map_is_not_read(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KITTI's folder is called kitti, as its label map is; such a folder is not a label map."""
    monkeypatch.chdir(data.parent)
    for path in data.rglob("*.txt"):
        path.write_text(path.read_text().replace("Square", "Car").replace("square", "car"))
    for folder, options in (("auto", ()), ("named", ("--label_map_path", "kitti"))):
        created(run, Path("kitti"), Path(folder, "k"), "--classes_to_use=car,pedestrian", *options)
    data.rename("data")
    Path("kitti").write_text("item { id: 7 name: 'car' } item { id: 8 name: 'pedestrian' }")
    created(run, Path("data"), Path("file", "k"), "--classes_to_use=car,pedestrian")
    for folder in ("auto", "named", "file"):
        label_map, _ = read_label_map(Path(folder, "label_map.pbtxt"))
        assert [(one.id, one.name) for one in label_map.items] == [(1, "car"), (2, "pedestrian")]

"""``tfod create … --runner``: files and words of ``tfod create``, to the byte."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfod.beam import Runner
from tfod.cli.main import main
from tfod.errors import TfodError
from tfod.shards.create.coco.create import create_coco
from tfod.shards.create.coco.reader import CocoSet
from tfod.shards.create.csv import create_from_csv
from tfod.shards.create.kitti import create_kitti
from tfod.shards.create.open_images import create_open_images
from tfod.shards.create.output import Created, Options
from tfod.shards.create.pascal import create_pascal
from tfod.shards.create.problems import OddBoxes, Policy, Problems

from tests.beam.conftest import direct
from tests.files import files_in
from tests.shards.create.conftest import COCO, EXAMPLES, IMAGES, KITTI, OPEN_IMAGES, VOC

Create = Callable[[Path, "Runner | None"], Created]


@pytest.fixture(scope="module")
def odd_voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with something odd in every second annotation."""
    voc = Path(shutil.copytree(VOC, tmp_path_factory.mktemp("odd") / "voc"))
    for number, path in enumerate(sorted((voc / "Annotations").iterdir())):
        text = path.read_text()
        if number % 2:
            text = text.replace("<bndbox>", "<cube>", 1).replace("</bndbox>", "</cube>", 1)
        if number % 3:
            text = text.replace("<difficult>0<", "<difficult>1<", 1)
        path.write_text(text)
    return voc


@pytest.fixture(scope="module")
def odd_coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with annotations of every kind that is left out or filled in."""
    found: dict[str, Any] = json.loads((COCO / "instances_train.json").read_text())
    annotations = found["annotations"]
    for number, one in enumerate(annotations):
        if number % 4 == 1:
            one["bbox"][2] = 0
        elif number % 4 == 2:
            del one["area"], one["segmentation"]
        elif number % 8 == 3:
            one["bbox"][0] = 10_000
    annotations.append({**annotations[0], "id": 999, "image_id": 999})
    for one in found["images"][::3]:
        del one["width"]
    path = tmp_path_factory.mktemp("odd") / "coco.json"
    path.write_text(json.dumps(found))
    path.with_name("one.pbtxt").write_text("item { id: 1 name: '/m/01vkl' }")
    # The images of Open Images, and others whose numbers are not those of their shards.
    images = Path(shutil.copytree(OPEN_IMAGES / "images" / "train", path.with_name("images")))
    for number in range(1, 30, 5):
        shutil.copy(min(images.iterdir()), images / f"{number:016x}.jpg")
    # People, to be kept alone.
    found["categories"][0]["name"] = "person"
    path.with_name("people.json").write_text(json.dumps(found))
    return path


@pytest.fixture
def creates(odd_voc: Path, odd_coco: Path) -> dict[str, Create]:
    """What ``tfod create`` can do, each into a folder."""
    boxes = OPEN_IMAGES / "annotations" / "oidv6-train-annotations-bbox.csv"
    labels = OPEN_IMAGES / "annotations" / "oidv6-train-annotations-human-imagelabels.csv"
    sets = [CocoSet("coco_train.record", [str(IMAGES)], str(odd_coco))]
    sets.append(CocoSet("coco_val.record", [str(IMAGES)], str(COCO / "instances_val.json")))
    return {
        "pascal": lambda out, runner: create_pascal(
            str(odd_voc),
            str(out / "p.record"),
            Options(num_shards=3, runner=runner),
            ignore_difficult_instances=True,
        ),
        "coco": lambda out, runner: create_coco(
            sets,
            str(out),
            Options(num_shards=3, runner=runner, policy=Policy(odd_boxes=OddBoxes.DROP)),
            include_masks=True,
        ),
        "persons": lambda out, runner: create_coco(
            [CocoSet("coco_train.record", [str(IMAGES)], str(odd_coco.with_name("people.json")))],
            str(out),
            Options(num_shards=2, runner=runner, policy=Policy(odd_boxes=OddBoxes.DROP)),
            remove_non_person_annotations=True,
            remove_non_person_images=True,
        ),
        "kitti": lambda out, runner: create_kitti(
            str(KITTI),
            str(out / "k"),
            Options(num_shards=50, runner=runner),
            classes_to_use=["square", "dontcare"],
            validation_set_size=3,
        ),
        "no validation set": lambda out, runner: create_kitti(
            str(KITTI),
            str(out / "k"),
            Options(runner=runner),
            classes_to_use=["square"],
            validation_set_size=0,
        ),
        "open_images": lambda out, runner: create_open_images(
            str(odd_coco.with_name("images")),
            str(boxes),
            str(out / "oid.tfrecord"),
            Options(str(odd_coco.with_name("one.pbtxt")), num_shards=4, runner=runner),
            image_label_annotations_csv=str(labels),
        ),
        "csv": lambda out, runner: create_from_csv(
            str(next((EXAMPLES / "shapes_csv").glob("*.csv"))),
            str(IMAGES),
            str(out / "c.record"),
            Options(num_shards=3, runner=runner),
        ),
    }  # fmt: skip


TWO_THREADS = Runner(
    "DirectRunner", ("--direct_running_mode=multi_threading", "--direct_num_workers=2")
)
KINDS = ["pascal", "coco", "persons", "kitti", "no validation set", "open_images", "csv"]


def compare(create: Create, folder: Path, runner: Runner) -> Created:
    """Both ways into the same place, one after the other, since notes name the place."""
    out = folder / "out"
    local, files = create(out, None), files_in(out)
    shutil.rmtree(out)
    there = create(out, runner)
    assert there == local
    assert files_in(out) == files
    assert [one for one in os.listdir(out) if one.startswith(".")] == []
    return local


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("in_this_process")
def test_every_format_is_the_same(creates: dict[str, Create], kind: str, tmp_path: Path) -> None:
    created = compare(creates[kind], tmp_path, direct(1))
    assert kind == "csv" or created.notes  # what is odd was counted


@pytest.mark.usefixtures("in_this_process")
def test_two_workers_make_the_same(creates: dict[str, Create], tmp_path: Path) -> None:
    assert len(compare(creates["coco"], tmp_path, TWO_THREADS).notes) >= 4


# test_workers_elsewhere_find_the_images_and_make_the_same has another process, and
# test_reshard.py processes of DirectRunner.
@pytest.mark.slow
def test_two_processes_make_the_same(creates: dict[str, Create], tmp_path: Path) -> None:
    assert len(compare(creates["coco"], tmp_path, direct(2)).notes) >= 4


@pytest.mark.usefixtures("in_this_process")
def test_items_that_do_not_fit_into_memory_at_once(
    creates: dict[str, Create], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfod.beam.create._AT_ONCE", 2)
    compare(creates["coco"], tmp_path, direct(1))


@pytest.mark.usefixtures("in_this_process")
def test_what_is_wrong_is_the_same_line_and_leaves_nothing(odd_voc: Path, tmp_path: Path) -> None:
    voc = Path(shutil.copytree(odd_voc, tmp_path / "voc"))
    image = sorted((voc / "JPEGImages").iterdir())[1]
    image.write_bytes(b"no image")
    lines = []
    for runner in (None, direct(1)):
        with pytest.raises(TfodError) as caught:
            create_pascal(
                str(voc),
                str(tmp_path / "out" / "p"),
                Options(num_shards=3, runner=runner),
            )
        lines.append(str(caught.value))
    assert lines[0] == lines[1]
    assert str(image) in lines[0]
    assert os.listdir(tmp_path) == ["voc"]


@pytest.mark.usefixtures("in_this_process")
def test_what_is_refused_is_the_same_line_and_leaves_nothing(odd_voc: Path, tmp_path: Path) -> None:
    """Images are missing that several workers look for."""
    voc = Path(shutil.copytree(odd_voc, tmp_path / "voc"))
    images = sorted((voc / "JPEGImages").iterdir())[:5]
    for one in images:
        one.unlink()
    lines = []
    for runner in (None, TWO_THREADS):
        with pytest.raises(TfodError) as caught:
            create_pascal(
                str(voc),
                str(tmp_path / "out" / "p"),
                Options(num_shards=3, runner=runner),
            )
        lines.append(str(caught.value))
    assert lines[0] == lines[1]
    assert f"images that are missing: 5 ({'; '.join(map(str, images))}); put" in lines[0]
    assert os.listdir(tmp_path) == ["voc"]


def test_workers_elsewhere_find_the_images_and_make_the_same(
    portable: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(VOC.parent)
    out = tmp_path / "there" / "p.record"
    arguments = ["create", "pascal", "--data_dir", VOC.name, "--output_path"]
    assert main([*arguments, str(out), "--runner=portable", "--", *portable.arguments]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 8 images, ")
    assert main([*arguments, str(tmp_path / "here" / "p.record")]) == 0
    assert files_in(tmp_path / "there") == files_in(tmp_path / "here")


def test_what_workers_have_counted_adds_up() -> None:
    alone, ours = Problems(), Problems()
    theirs = [Problems(), Problems()]
    for item in range(9):
        ours.begin(item)
        theirs[item % 2].begin(item, is_made=True)
        for what, counts in (("read", ours), ("made", theirs[item % 2]), ("late", ours)):
            if item >= {"read": 3, "made": 3, "late": 5}[what]:
                alone.add(what, f"{what} {item}")
                counts.add(what, f"{what} {item}")
    for one in reversed(theirs):
        ours.merge(one)
    assert ours.sentences() == alone.sentences()
    assert ours.sentences()[0] == "6 read (the first: read 3)"

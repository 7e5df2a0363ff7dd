"""``tfod create coco`` with the options of Model Garden's script (TF-Vision), and panoptic masks.

That the records are the script's own: tests/receivers/test_create_coco.py.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tfod.detection.detection import Detection

from tests.commands import Run
from tests.shards.create.conftest import by_filename, edited_json
from tests.shards.create.panoptic_coco import SIZE, write_panoptic_coco

Options = dict[str, list[str]]


@pytest.fixture
def given(tmp_path: Path) -> Options:
    return write_panoptic_coco(tmp_path / "coco")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def create(run: Run, out: Path, *options: str) -> Any:
    return run("coco", *options, f"--output_file_prefix={out / 'train'}")


def pixels(detection: Detection) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(Image.open(io.BytesIO(mask.data)))
        for name, mask in detection.image_masks.items()
    }


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_its_files_have_its_names(run: Run, given: Options, out: Path) -> None:
    """Never an empty one: of images for all there are 32. A single one has a number, too."""
    ran = create(run, out, *given["images"], *given["objects"])
    assert ran.code == 0 and "3 images, 5 objects, 3 files" in ran.out, ran.err
    assert {f"train-0000{n}-of-00003.tfrecord" for n in range(3)} < names(out)
    again = create(run, out, *given["images"], *given["objects"], "--num_shards=1")
    assert again.code == 2 and "train-00000-of-00003.tfrecord (and 2 more) is there" in again.err
    replaced = ("--num_shards=1", "--overwrite")
    assert create(run, out, *given["images"], *given["objects"], *replaced).code == 0
    assert names(out) == {"train-00000-of-00001.tfrecord", "label_map.pbtxt"}


def test_masks_of_the_image(run: Run, given: Options, out: Path) -> None:
    options = (*given["images"], *given["objects"], *given["captions"], *given["panoptic"])
    assert create(run, out, *options, "--include_panoptic_masks", "--num_shards=1").code == 0
    found = by_filename(out)
    one = pixels(found["a.jpg"])
    assert {mask.shape for mask in one.values()} == {SIZE}
    person, dog, flower, crowd, nothing = (5, 5), (6, 15), (20, 30), (22, 1), (0, 0)
    for name, values in {
        "semantic": [1, 1, 29, 1, 0],
        "panoptic_category": [1, 18, 119, 18, 0],
        "panoptic_instance": [1, 2, 0, 4, 0],
    }.items():
        assert [one[name][at] for at in (person, dog, flower, crowd, nothing)] == values
    assert not any(mask.any() for mask in pixels(found["empty.jpg"]).values())
    assert found["a.jpg"].captions == ["Ein Mensch, größer als ein Hund."]
    assert found["b.jpg"].source_id == "402" and not len(found["empty.jpg"].boxes)
    options += ("--panoptic_skip_crowd", "--overwrite", "--num_shards=1")
    assert create(run, out, *options).code == 0
    (semantic,) = pixels(by_filename(out)["a.jpg"]).values()
    assert semantic[crowd] == 0 and semantic[dog] == 1


def test_images_are_those_of_the_information_file(run: Run, given: Options, out: Path) -> None:
    """A part of the instances is enough; captions list images where nothing else does."""
    info = Path(given["info"][0].partition("=")[2])

    def cut(found: Any) -> None:
        del found["images"][1:]

    edited_json(info, cut, info.with_name("info.json"))
    options = (f"--image_info_file={info.with_name('info.json')}", "--num_shards=1")
    ran = create(run, out, *given["images"], *given["objects"], *options)
    assert ran.code == 0 and "2 annotations of images that are not listed, left out" in ran.err
    assert list(by_filename(out)) == ["a.jpg"] and len(by_filename(out)["a.jpg"].boxes) == 3
    ran = create(run, out / "captions", *given["images"], *given["captions"])
    assert ran.code == 0 and "3 images, 0 objects" in ran.out


def test_masks_survive_reshard_repair_and_merge(
    run: Run, given: Options, out: Path, tmp_path: Path
) -> None:
    from tfod.cli.main import main

    options = (*given["images"], *given["objects"], *given["panoptic"], "--include_panoptic_masks")
    assert create(run, out, *options).code == 0
    expected = {name: pixels(one) for name, one in by_filename(out).items()}
    shards = str(out)
    for command in (
        ["reshard", shards, "-o", "reshard"],
        ["repair", shards, "-o", "repair"],
        ["merge", shards, "-o", "merge"],
    ):
        to = tmp_path / command[-1]
        assert main([*command[:-1], str(to)]) == 0
        found = {name: pixels(one) for name, one in by_filename(to).items()}
        np.testing.assert_equal(found, expected)
    assert main(["check", shards, "--fail-on", "warning"]) == 0
    other = tmp_path / "other.pbtxt"
    other.write_text("item { id: 1 name: 'dog' } item { id: 2 name: 'person' }")
    assert main(["merge", shards, "-o", str(tmp_path / "m"), "--label-map", str(other)]) == 2


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda found: found["categories"][2].update(id=91), "there is no category 119"),
        (lambda found: found["categories"][0].update(isthing=0), "category 1 is stuff, which"),
        (lambda found: found["categories"][1].update(name="person"), "category 18 ('person') is 1"),
        (lambda found: found["categories"][0].pop("isthing"), "'isthing' is missing"),
        (lambda found: found["annotations"][0].pop("file_name"), "'file_name' is missing"),
        (lambda found: found["annotations"][0].update(file_name="x.png"), "x.png cannot be read"),
        (lambda found: found["annotations"][0].update(file_name="../left/a.jpg"), "a.jpg cannot"),
        (
            lambda found: found["annotations"][0].update(
                segments_info=[{"id": n, "category_id": 18} for n in range(256)]
            ),
            "segment 256 of category 18: masks hold 1 to 255",
        ),
        (
            lambda found: found["annotations"][0]["segments_info"][1].update(id=7),
            "two segments have the id 7",
        ),
        (
            lambda found: found["annotations"].append(found["annotations"][0]),
            "image 401: another annotation is of this image",
        ),
    ],
)
def test_what_the_masks_cannot_hold(
    run: Run, given: Options, out: Path, edit: Callable[[Any], object], says: str
) -> None:
    file = Path(given["panoptic"][0].partition("=")[2])
    found = json.loads(file.read_text())
    edit(found)
    file.write_text(json.dumps(found))
    ran = create(run, out, *given["images"], *given["objects"], *given["panoptic"])
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
    assert not out.exists()


def test_a_png_of_another_size_or_of_one_channel(run: Run, given: Options, out: Path) -> None:
    folder = Path(given["panoptic"][1].partition("=")[2])
    for mode, size, says in (
        ("RGB", (9, 8), "a.png is 9x8, its image 32x24"),
        ("L", SIZE[::-1], "a.png is not a PNG of segments: it has no three channels"),
    ):
        Image.new(mode, size).save(folder / "a.png")
        ran = create(run, out, *given["images"], *given["objects"], *given["panoptic"])
        assert ran.code == 2 and says in ran.err


def test_an_image_in_two_folders(run: Run, given: Options, out: Path, tmp_path: Path) -> None:
    (tmp_path / "coco" / "right" / "a.jpg").write_bytes(b"")
    ran = create(run, out, *given["images"], *given["objects"])
    assert ran.code == 2 and "a.jpg have one name; leave one of the folders out" in ran.err


def test_options_of_two_scripts(run: Run, given: Options, out: Path, tmp_path: Path) -> None:
    for options, says in (
        (given["images"], "give the options of one of the two scripts"),
        ([*given["images"], f"--output_dir={out}"], "give the options of one of the two scripts"),
        ([f"--output_file_prefix={out}", "--output_dir=x"], "one of the two scripts"),
        ([f"--output_file_prefix={out}"], "--image_dir is missing"),
        ([f"--output_file_prefix={out}", *given["images"]], "no file lists the images"),
        (
            [f"--output_file_prefix={out}", *given["images"], given["panoptic"][0]],
            "--panoptic_masks_dir is missing",
        ),
    ):
        ran = run("coco", *options)
        assert ran.code == 2 and says in ran.err


def test_segments_that_only_a_png_has(run: Run, given: Options, out: Path) -> None:
    """One that is skipped as a crowd is known to the JSON."""
    file = Path(given["panoptic"][0].partition("=")[2])
    found = json.loads(file.read_text())
    del found["annotations"][0]["segments_info"][1]
    file.write_text(json.dumps(found))
    options = (*given["images"], *given["objects"], *given["panoptic"], "--panoptic_skip_crowd")
    says = create(run, out, *options).succeeded()
    assert says.count("segments of a PNG") == 1
    assert "1 segments of a PNG that the JSON does not have, left out of the masks" in says
    assert "a.png: 300)" in says


def test_panoptic_segments_in_place_of_objects(run: Run, given: Options, out: Path) -> None:
    file = Path(given["panoptic"][0].partition("=")[2])
    says = create(run, out, *given["images"], f"--object_annotations_file={file}").refused()
    assert "panoptic.json holds panoptic segments, not objects" in says


def test_segments_of_an_image_without_objects_are_turned(
    run: Run, given: Options, out: Path, tmp_path: Path
) -> None:
    """The JSON has the size of the image as its EXIF orientation shows it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", SIZE).save(tmp_path / "coco" / "left" / "a.jpg", exif=exif)
    options = (*given["images"], *given["info"], *given["panoptic"], "--num_shards=1")
    assert "1 images annotated as their EXIF" in create(run, out, *options).succeeded()
    shown = np.rot90(pixels(by_filename(out)["a.jpg"])["semantic"], -1)
    assert shown.shape == SIZE and shown[3:20, 2:10].all() and (shown[14:24, 21:32] == 29).all()

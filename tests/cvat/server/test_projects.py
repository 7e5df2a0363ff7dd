"""Projects: their export, subset by subset, and the import of a dataset that makes tasks.

Shown: names, subsets and frame numbers of an export; that an import makes tasks of the very bytes
of the shards, whatever their names are, and puts nothing outside of the temporary folder; that
labels, masks and attributes arrive; what is refused, in one line, without a task left behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvat
import pytest
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.dataset_manager.project import import_dataset_as_project
from cvat.apps.engine.models import Annotations, Project

from tests.cvat.server.tasks import (
    BOXES,
    FULL,
    HEIGHT,
    IN_PIXELS,
    LABEL_MAP,
    MASKS,
    WIDTH,
    box,
    export,
    image_bytes,
    import_into,
    labels,
    make_task,
    shape,
    stored,
    tag,
    track,
    upload,
)
from tests.image_kinds import saved
from tests.records import encode, image, objects
from tests.records import frame as shard


def project_of(*subsets: str, **more: Any) -> Project:
    """A project with a task of two frames for each subset; a cat on the second."""
    project = Project(labels("bird", "cat"))
    for number, subset in enumerate(subsets):
        frames = [f"t{number}/a.jpg", f"t{number}/b.jpg"]
        project.add(make_task(box(1, "cat"), frames=frames, subset=subset, **more))
    return project


def with_image(name: str, *classes: str, data: bytes | None = None, **more: Any) -> bytes:
    data = image_bytes(name) if data is None else data
    own = objects([FULL] * len(classes), list(classes)) if classes else {}
    kept = {"image/encoded": data, "image/format": "jpeg"} if data else {}
    return encode(image(name, HEIGHT, WIDTH) | own | kept | more)


def load(
    folder: Path, files: dict[str, bytes], project: Project | None = None, **more: Any
) -> Project:
    project = project or Project(labels("bird", "cat"))
    root = folder / "server" / "tmp"
    root.mkdir(parents=True, exist_ok=True)
    path = upload(folder, files)
    before = sorted(folder.rglob("*"))
    import_dataset_as_project(path, project, BOXES, temp_root=str(root), **more)
    assert sorted(folder.rglob("*")) == before
    return project


def refused(folder: Path, files: dict[str, bytes], project: Project | None = None) -> str:
    """What the user reads; no task may have been made."""
    project = project or project_of("train")
    before = repr(project)
    with pytest.raises(Exception) as caught:
        load(folder, files, project)
    assert type(caught.value) is CvatImportError, repr(caught.value)
    assert repr(project) == before
    assert sorted((folder / "server" / "tmp").iterdir()) == []
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) not in text
    return text


ON_DISK = "cannot be saved under its name"


def test_a_subset_is_a_shard(tmp_path: Path) -> None:
    found = export(project_of("train", "val", "train"), tmp_path)
    assert sorted(found.files) == ["label_map.pbtxt", "train.tfrecord", "val.tfrecord"]
    assert found.names("train") == ["t0/a.jpg", "t0/b.jpg", "t2/a.jpg", "t2/b.jpg"]
    assert found.names("val") == ["t1/a.jpg", "t1/b.jpg"]
    assert [len(one.boxes) for one in found.subsets["train"]] == [0, 1, 0, 1]


def test_tracks_of_different_tasks_have_different_numbers(tmp_path: Path) -> None:
    """Each task counts its own from 0."""
    project = project_of("train", "train")
    for task in project.tasks:
        task.annotations = Annotations([], [track("cat", box(0, "cat"))], [])
    found = export(project, tmp_path)
    numbers = [one.attributes["track_id"] for one in found.records]
    assert numbers == [[0], [0], [1], [1]]
    notes = found.files["EXPORT_NOTES.txt"].decode()
    assert "- tracks split into single shapes, one per frame: 2\n" in notes


def test_subsets_with_names_that_are_no_file_names(tmp_path: Path) -> None:
    """A subset is any text; what is exported must not leave the folder of the export."""
    try:
        found = export(project_of("../up", "a/b"), tmp_path)
    except Exception as error:
        assert "\n" not in str(error)  # Datumaro 1.13 refuses such an item by itself
        assert "up" in str(error)
    else:
        assert all(".." not in name for name in found.files)
        assert len(found.subsets) == 2
    assert not (tmp_path / "up.tfrecord").exists()


def test_a_subset_without_a_frame_has_no_shard(tmp_path: Path) -> None:
    """An empty one would be refused when it comes back; the notes count the deleted frames."""
    project = project_of("train", "val")
    project.tasks[1].deleted_frames = [0, 1]
    found = export(project, tmp_path, save_images=True)
    assert sorted(found.files) == ["EXPORT_NOTES.txt", "label_map.pbtxt", "train.tfrecord"]
    assert [one.name for one in load(tmp_path, found.files).tasks] == ["train"]


def test_a_project_without_a_task(tmp_path: Path) -> None:
    found = export(Project(labels("cat")), tmp_path)
    assert sum(len(records) for records in found.subsets.values()) == 0
    assert "label_map.pbtxt" in found.files


def test_a_dataset_becomes_tasks(tmp_path: Path) -> None:
    files = {
        "train.tfrecord": shard(with_image("a.jpg", "cat"), with_image("x/b.jpg")),
        "val.tfrecord": shard(with_image("a.jpg", "bird", data=image_bytes("other"))),
        "label_map.pbtxt": LABEL_MAP,
    }
    project = load(tmp_path, files)
    train, val = sorted(project.tasks, key=lambda task: task.name)
    assert [task.subset for task in (train, val)] == ["train", "val"]
    assert [(one.name, one.read()) for one in train.frames] == [
        ("a.jpg", image_bytes("a.jpg")),
        ("x/b.jpg", image_bytes("x/b.jpg")),
    ]
    assert [one.read() for one in val.frames] == [image_bytes("other")]
    assert [row[:4] for row in stored(train)] == [("a.jpg", "rectangle", "cat", IN_PIXELS)]
    assert [row[:4] for row in stored(val)] == [("a.jpg", "rectangle", "bird", IN_PIXELS)]


def test_a_project_s_own_export_makes_the_same_tasks(tmp_path: Path) -> None:
    first = project_of("train", "val")
    first.tasks[0].annotations.tags.append(tag(0, "bird"))
    path = export(first, tmp_path, save_images=True).path
    second = Project(labels("bird", "cat"))
    import_dataset_as_project(path, second, BOXES)
    for old, new in zip(first.tasks, second.tasks, strict=True):
        assert new.subset == old.subset
        assert [one.read() for one in new.frames] == [one.read() for one in old.frames]
        assert [row[1:4] for row in stored(new)] == [row[1:4] for row in stored(old)]
    assert len(second.tasks[0].annotations.tags) == 1


def test_a_task_of_the_dataset_takes_the_zip_again(tmp_path: Path) -> None:
    files = {"train.tfrecord": shard(with_image("a.jpg", "cat"), with_image("x/b.jpg", "cat"))}
    (task,) = load(tmp_path, files).tasks
    before = stored(task)
    task.annotations = Annotations()
    assert import_into(task, upload(tmp_path, files)) == before


NAMES = {
    "../../x.jpg": "a parent",
    "/etc/x.jpg": "absolute",
    "C:\\data\\x.jpg": "of Windows",
    "..\\..\\x.jpg": "a parent, of Windows",
    "a/../../x.jpg": "a parent in between",
    "кадр 1.jpg": "letters",
    "x" * 200 + ".jpg": "long",
    "x.tar.gz.jpg": "dots",
    "con.jpg": "a device of Windows",
    "a b/c d.jpg": "spaces",
    "x.JPG": "capitals",
    "noextension": "no extension",
    "": "no name",
    "%2e%2e%2fx.jpg": "percents",
    "~/x.jpg": "a tilde",
    ".hidden.jpg": "a dot in front",
    "000001.jpg": "a number",
}


@pytest.mark.parametrize("name", NAMES, ids=list(NAMES.values()))
def test_names_stay_inside_of_the_folder(tmp_path: Path, name: str) -> None:
    data = shard(with_image(name, "cat"), with_image("b.jpg"))
    (task,) = load(tmp_path, {"train.tfrecord": data}).tasks
    assert {one.read() for one in task.frames} == {image_bytes(name), image_bytes("b.jpg")}
    for one in task.frames:
        assert not one.name.startswith(("/", "~/..", ".."))
        assert ".." not in Path(one.name).parts
    drawn = [task.frames[one["frame"]].read() for one in task.annotations.shapes]
    assert drawn == [image_bytes(name)], "the box is on another image"
    assert not Path("/etc/x.jpg").exists()


def test_extensions_keep_their_case(tmp_path: Path) -> None:
    """Datumaro's images have lost it since 2.73."""
    data = shard(with_image("c.JPG", "cat"), with_image("x/d.Jpeg"))
    (task,) = load(tmp_path, {"train.tfrecord": data}).tasks
    assert [one.name for one in task.frames] == ["c.JPG", "x/d.Jpeg"]


@pytest.mark.parametrize("name", ["g.jpg", "jpg.jpg", "P.PNG"])
def test_names_that_are_in_their_extension(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CVAT looks for the item's id from the end of the path, and made no task of such images."""
    (task,) = load(tmp_path, {"train.tfrecord": shard(with_image(name, "cat"))}).tasks
    assert [one.name.lower() for one in task.frames] == [name.lower()]
    assert f"1 image renamed: {name} → {task.frames[0].name}" in caplog.text
    assert len(task.annotations.shapes) == 1


@pytest.mark.parametrize("subset", ["default", "a", "tfrecord", "a.b", "пример"])
def test_names_of_subsets(tmp_path: Path, subset: str) -> None:
    """CVAT cuts an image's path at the item's id, which may also be in the folder's name."""
    records = [with_image(name, "cat") for name in ("a.jpg", "b/a.jpg", "default.jpg")]
    (task,) = load(tmp_path, {f"{subset}.tfrecord": shard(*records)}).tasks
    assert task.subset == subset
    assert sorted(one.name for one in task.frames) == ["a.jpg", "b/a.jpg", "default.jpg"]
    assert len(task.annotations.shapes) == 3


def test_the_same_name_twice(tmp_path: Path) -> None:
    """Two records of one name: either both arrive, each with its box, or the user is told."""
    data = shard(
        with_image("a.jpg", "cat", data=image_bytes("1")),
        with_image("a.jpg", "bird", data=image_bytes("2")),
    )
    try:
        (task,) = load(tmp_path, {"train.tfrecord": data}).tasks
    except CvatImportError as error:
        assert "a.jpg" in str(error)
    else:
        drawn = {one["label"]: task.frames[one["frame"]].read() for one in task.annotations.shapes}
        assert drawn == {"cat": image_bytes("1"), "bird": image_bytes("2")}


@pytest.mark.parametrize(
    ("kind", "extension"), [("PNG", "png"), ("BMP", "bmp"), ("GIF", "gif"), ("WEBP", "webp")]
)
def test_images_of_other_kinds_are_not_encoded_again(
    tmp_path: Path, kind: str, extension: str
) -> None:
    data = saved("RGB", kind, (WIDTH, HEIGHT))
    payload = with_image(f"a.{extension}", "cat", data=data, **{"image/format": extension})
    (task,) = load(tmp_path, {"train.tfrecord": shard(payload)}).tasks
    assert [(one.name, one.read()) for one in task.frames] == [(f"a.{extension}", data)]


def test_a_image_whose_name_lies_about_its_kind(tmp_path: Path) -> None:
    data = saved("RGB", "PNG", (WIDTH, HEIGHT))
    payload = with_image("a.jpg", "cat", data=data)
    (task,) = load(tmp_path, {"train.tfrecord": shard(payload)}).tasks
    assert [one.read() for one in task.frames] == [data]


def test_labels_are_made_where_the_project_has_none(tmp_path: Path) -> None:
    files = {"t.tfrecord": shard(with_image("a.jpg", "dog")), "label_map.pbtxt": LABEL_MAP}
    project = load(tmp_path, files, Project([]))
    assert "dog" in [label.name for label in project.labels]
    assert [row[2] for row in stored(project.tasks[0])] == ["dog"]


@pytest.mark.parametrize(
    ("subset", "name", "fix"),
    [("x" * 65, "cat", "Rename its shard"), ("train", "y" * 65, "Give it another name")],
)
def test_names_that_cvat_would_cut_off(tmp_path: Path, subset: str, name: str, fix: str) -> None:
    files = {f"{subset}.tfrecord": shard(with_image("a.jpg", name))}
    text = refused(tmp_path, files, Project([]))
    longest = max(subset, name, key=len)
    ending = f"(65 characters, CVAT allows 64). Nothing was changed. {longest!r}. {fix}."
    assert text.endswith(ending)


def test_attributes_are_made_in_a_project(tmp_path: Path) -> None:
    payload = with_image("a.jpg", "cat", **{"image/object/truncated": [1]})
    project = load(tmp_path, {"t.tfrecord": shard(payload)}, Project([]))
    ((*_, attributes),) = stored(project.tasks[0])
    assert dict(attributes)["truncated"] in ("1", "true", "True")


def test_attributes_that_are_cvat_s_own_turn_and_hide_nothing(tmp_path: Path) -> None:
    """A project takes any attribute; these would be taken for the fields of a shape."""
    own = {"rotation": [30], "outside": [1], "track_id": [5], "keyframe": [1], "source": ["auto"]}
    values = {f"image/object/attribute/{name}": one for name, one in own.items()}
    payload = with_image("a.jpg", "cat", **values, **{"image/object/attribute/mood": ["fine"]})
    project = load(tmp_path, {"train.tfrecord": shard(payload)})
    (task,) = project.tasks
    (found,) = task.annotations.shapes
    assert (found["rotation"], found["outside"], found["source"]) == (
        0,
        False,
        "file" if cvat.IS_NEW else "manual",
    )
    assert found["attributes"]["mood"] == "fine"
    names = {spec.name for label in project.labels for spec in label.attributes}
    assert not names & own.keys()


@pytest.mark.parametrize(("as_polygons", "kind"), [(True, "polygon"), (False, "mask")])
def test_masks_of_a_dataset(tmp_path: Path, as_polygons: bool, kind: str) -> None:
    project = Project(labels("bird", "cat"))
    polygon = shape("polygon", 0, "cat", (10, 10, 30, 10, 30, 26, 20, 18, 10, 26))
    project.add(make_task(polygon, frames=["a.jpg"], subset="train"))
    path = export(project, tmp_path, MASKS, save_images=True).path
    second = Project(labels("bird", "cat"))
    import_dataset_as_project(path, second, MASKS, as_polygons)
    assert [row[1] for row in stored(second.tasks[0])] == [kind]


@pytest.mark.parametrize(
    ("records", "texts"),
    [
        (
            [with_image("a.jpg", "cat", data=b"")],
            [
                "the encoded image is missing or empty (t.tfrecord, record 0). Nothing was "
                "changed. t.tfrecord, record 0 (the first), byte 0, image/encoded (a.jpg). "
                "Export again with images (CVAT: Save images; Datumaro: --save-images or "
                "--save-media), or write the encoded image in the script that wrote the record of "
                "a.jpg."
            ],
        ),
        (
            [with_image("a.jpg", "cat"), with_image("b.jpg", "cat", data=b"")],
            ["the encoded image is missing or empty (t.tfrecord, record 1). ", "(b.jpg)"],
        ),
        ([with_image("a.jpg", "cat", data=b"junk" * 50)], ["a.jpg"]),
        (
            [with_image("a.jpg", "dog")],
            [
                "class 'dog' is not among the labels. Nothing was changed. "
                "Labels of the project: bird, cat."
            ],
        ),
        ([with_image("a.jpg", "cat"), with_image("a.jpg/b.jpg", "cat")], [ON_DISK]),
        ([with_image("n" * 300 + ".jpg", "cat")], [ON_DISK]),
    ],
    ids=[
        "no-image",
        "one-without-image",
        "no-image-at-all",
        "no-label",
        "folder-and-file",
        "long-name",
    ],
)
def test_refusals(tmp_path: Path, records: list[bytes], texts: list[str]) -> None:
    """A text that ends in a full stop is the whole message."""
    text = refused(tmp_path, {"t.tfrecord": shard(*records)})
    assert text == texts[0] or not texts[0].endswith(".")
    assert all(one in text for one in texts)
    assert "administrator" not in text


def test_a_label_that_only_the_label_map_has(tmp_path: Path) -> None:
    """CVAT refuses a dataset for a label that no box has; a box decides, not the label map."""
    files = {
        "t.tfrecord": shard(with_image("a.jpg", "cat")),
        "label_map.pbtxt": LABEL_MAP + b"item { id: 9 name: 'zebra' }",
    }
    project = load(tmp_path, files)
    assert [label.name for label in project.labels] == ["bird", "cat"]
    assert len(stored(project.tasks[0])) == 1


def test_empty_masks_and_frames_of_other_tasks_do_not_matter(tmp_path: Path) -> None:
    """The frames that the project has already are not those of the new task."""
    project = project_of("train")
    load(tmp_path, {"train.tfrecord": shard(with_image("t0/a.jpg", "cat"))}, project)
    old, new = project.tasks
    assert [row[0] for row in stored(old)] == ["t0/b.jpg"]
    assert [row[2] for row in stored(new)] == ["cat"]


def test_images_get_a_images_extension(tmp_path: Path) -> None:
    """CVAT goes by extensions: manifest.jsonl is something else to it, whatever it holds."""
    names = ("manifest.jsonl", "a.zip", "b.mp4")
    project = load(tmp_path, {"t.tfrecord": shard(*(with_image(name) for name in names))})
    found = sorted(one.name for one in project.tasks[0].frames)
    assert all(name.endswith(".jpg") for name in found) and len(found) == 3


def test_a_damaged_dataset(tmp_path: Path) -> None:
    data = bytearray(shard(with_image("a.jpg", "cat")))
    data[40] ^= 1
    text = refused(tmp_path, {"t.tfrecord": bytes(data)})
    assert "record 0" in text
    assert "t.tfrecord" in text

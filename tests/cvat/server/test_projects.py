"""Projects: an export with subsets, and the import of a dataset, which creates tasks.

Shown: names, subsets and frame numbers; new tasks have the bytes of the images in the shards, under
any name, and no file is written outside the temporary folder; labels, masks and attributes. An
error is one line, and no task remains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvat
import pytest
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.dataset_manager.project import import_dataset_as_project
from cvat.apps.engine.models import Annotations, Project, Task

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


def project_of(*subsets: str) -> Project:
    """Return a project with a task of two frames for each subset, and a cat on the second."""
    project = empty_project()
    for number, subset in enumerate(subsets):
        frames = [f"t{number}/a.jpg", f"t{number}/b.jpg"]
        project.add(make_task(box(1, "cat"), frames=frames, subset=subset))
    return project


def empty_project() -> Project:
    return Project(labels("bird", "cat"))


def with_image(name: str, *classes: str, data: bytes | None = None, **more: Any) -> bytes:
    data = image_bytes(name) if data is None else data
    own = objects([FULL] * len(classes), list(classes)) if classes else {}
    kept = {"image/encoded": data, "image/format": "jpeg"} if data else {}
    return encode(image(name, HEIGHT, WIDTH) | own | kept | more)


def load(folder: Path, files: dict[str, bytes], project: Project | None = None) -> Project:
    """Import a zip of these files."""
    project = project or empty_project()
    root = folder / "server" / "tmp"
    root.mkdir(parents=True, exist_ok=True)
    path = upload(folder, files)
    before = sorted(folder.rglob("*"))
    import_dataset_as_project(path, project, BOXES, temp_root=str(root))
    assert sorted(folder.rglob("*")) == before
    return project


def load_task(folder: Path, *records: bytes, subset: str = "train") -> Task:
    """Import records, which become one task."""
    (task,) = load(folder, {f"{subset}.tfrecord": shard(*records)}).tasks
    return task


def refused(folder: Path, files: dict[str, bytes], project: Project | None = None) -> str:
    """Return the error message of an import, which creates no task."""
    project = project or project_of("train")
    before = repr(project)
    with pytest.raises(Exception) as caught:
        load(folder, files, project)
    assert type(caught.value) is CvatImportError, repr(caught.value)
    assert repr(project) == before
    assert sorted((folder / "server" / "tmp").iterdir()) == []
    text = str(caught.value)
    assert "\n" not in text and str(folder) not in text
    return text


def test_a_subset_is_a_shard(tmp_path: Path) -> None:
    """A subset without a frame has none, since an import would refuse it."""
    project = project_of("train", "val", "train", "test")
    project.tasks[3].deleted_frames = [0, 1]
    found = export(project, tmp_path, save_images=True)
    assert sorted(found.files) == [
        "EXPORT_NOTES.txt",
        "label_map.pbtxt",
        "train.tfrecord",
        "val.tfrecord",
    ]
    assert found.names("train") == ["t0/a.jpg", "t0/b.jpg", "t2/a.jpg", "t2/b.jpg"]
    assert found.names("val") == ["t1/a.jpg", "t1/b.jpg"]
    assert [len(one.boxes) for one in found.subsets["train"]] == [0, 1, 0, 1]
    assert [one.name for one in load(tmp_path, found.files).tasks] == ["train", "val"]


def test_tracks_of_different_tasks_have_different_numbers(tmp_path: Path) -> None:
    project = project_of("train", "train")
    for task in project.tasks:
        task.annotations = Annotations([], [track("cat", box(0, "cat"))], [])
    found = export(project, tmp_path)
    assert [one.attributes["track_id"] for one in found.records] == [[0], [0], [1], [1]]
    assert "- tracks split into single shapes, one per frame: 2\n" in found.notes


def test_subsets_that_are_not_file_names(tmp_path: Path) -> None:
    """A subset is any text, but the export must not leave its folder."""
    try:
        found = export(project_of("../up", "a/b"), tmp_path)
    except Exception as error:  # Datumaro 1.13 refuses such an item
        assert "\n" not in str(error) and "up" in str(error)
    else:
        assert all(".." not in name for name in found.files)
        assert len(found.subsets) == 2
    assert not (tmp_path / "up.tfrecord").exists()


def test_a_project_without_a_task(tmp_path: Path) -> None:
    found = export(Project(labels("cat")), tmp_path)
    assert sum(len(records) for records in found.subsets.values()) == 0
    assert "label_map.pbtxt" in found.files


def test_a_dataset_becomes_tasks(tmp_path: Path) -> None:
    """CVAT refuses labels that the project does not have, even if no box has them."""
    files = {
        "train.tfrecord": shard(with_image("a.jpg", "cat"), with_image("x/b.jpg")),
        "val.tfrecord": shard(with_image("a.jpg", "bird", data=image_bytes("other"))),
        "label_map.pbtxt": LABEL_MAP + b"item { id: 9 name: 'zebra' }",
    }
    project = load(tmp_path, files)
    assert [label.name for label in project.labels] == ["bird", "cat"]
    train, val = sorted(project.tasks, key=lambda task: task.name)
    assert [task.subset for task in (train, val)] == ["train", "val"]
    assert [(one.name, one.read()) for one in train.frames] == [
        (name, image_bytes(name)) for name in ("a.jpg", "x/b.jpg")
    ]
    assert [one.read() for one in val.frames] == [image_bytes("other")]
    before = stored(train)
    assert [row[:4] for row in before] == [("a.jpg", "rectangle", "cat", IN_PIXELS)]
    assert [row[:4] for row in stored(val)] == [("a.jpg", "rectangle", "bird", IN_PIXELS)]
    # The new task imports its shard again.
    train.annotations = Annotations()
    again = {"train.tfrecord": files["train.tfrecord"]}
    assert import_into(train, upload(tmp_path, again)) == before


def test_the_tasks_of_an_export(tmp_path: Path) -> None:
    first, second = project_of(*"abcdef"), empty_project()
    first.tasks[0].annotations.tags.append(tag(0, "bird"))
    import_dataset_as_project(export(first, tmp_path, save_images=True).path, second, BOXES)
    for old, new in zip(first.tasks, second.tasks, strict=True):
        assert new.subset == old.subset
        assert [one.read() for one in new.frames] == [one.read() for one in old.frames]
        assert [row[1:4] for row in stored(new)] == [row[1:4] for row in stored(old)]
    assert len(second.tasks[0].annotations.tags) == 1


def test_frames_of_existing_tasks_do_not_matter(tmp_path: Path) -> None:
    project = project_of("train")
    load(tmp_path, {"train.tfrecord": shard(with_image("t0/a.jpg", "cat"))}, project)
    old, new = project.tasks
    assert [row[0] for row in stored(old)] == ["t0/b.jpg"]
    assert [row[2] for row in stored(new)] == ["cat"]


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
    "noextension": "no extension",
    "": "no name",
    "%2e%2e%2fx.jpg": "percents",
    "~/x.jpg": "a tilde",
    ".hidden.jpg": "a dot at the start",
    "000001.jpg": "a number",
}


@pytest.mark.parametrize("name", NAMES, ids=list(NAMES.values()))
def test_files_are_inside_the_folder(tmp_path: Path, name: str) -> None:
    task = load_task(tmp_path, with_image(name, "cat"), with_image("b.jpg"))
    assert {one.read() for one in task.frames} == {image_bytes(name), image_bytes("b.jpg")}
    for one in task.frames:
        assert not one.name.startswith(("/", "~/..", "..")) and ".." not in Path(one.name).parts
    drawn = [task.frames[one["frame"]].read() for one in task.annotations.shapes]
    assert drawn == [image_bytes(name)], "the box is on another image"
    assert not Path("/etc/x.jpg").exists()


@pytest.mark.parametrize(
    ("names", "subset", "expected"),
    [
        # The images of Datumaro have extensions in lower case since 2.73.
        (["c.JPG", "x/d.Jpeg"], "train", None),
        # CVAT searches the path for the item's id, and the folder can have the same name.
        *((["a.jpg", "b/a.jpg", "default.jpg"], subset, None) for subset in ("default", "a")),
        *((["a.jpg", "b/a.jpg"], subset, None) for subset in ("tfrecord", "a.b", "пример")),
        # The name is part of the extension.
        (["g.jpg"], "train", ["g.JPG"]),
        (["jpg.jpg"], "train", ["jpg.JPG"]),
        (["P.PNG"], "train", ["P.png"]),
        # CVAT decides by the extension what a file contains.
        (["a.zip", "b.mp4"], "train", ["a.jpg", "b.jpg"]),
        (["manifest.jsonl"], "train", ["manifest.jpg"]),
    ],
)
def test_names_of_frames(
    tmp_path: Path, names: Any, subset: str, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    task = load_task(tmp_path, *(with_image(name, "cat") for name in names), subset=subset)
    found = sorted(one.name for one in task.frames)
    assert task.subset == subset and len(task.annotations.shapes) == len(names)
    assert found == (expected or names)
    if expected:
        assert f" renamed: {names[0]} → {found[0]}" in caplog.text


def test_equal_names(tmp_path: Path) -> None:
    """Either both images arrive with their boxes, or the message names them."""
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
    ("kind", "name"), [("PNG", "a.png"), ("BMP", "a.bmp"), ("GIF", "a.gif"), ("WEBP", "a.webp")]
)
def test_images_are_not_encoded_again(tmp_path: Path, kind: str, name: str) -> None:
    data = saved("RGB", kind, (WIDTH, HEIGHT))
    more = {"image/format": kind.lower()}
    task = load_task(tmp_path, with_image(name, "cat", data=data, **more))
    assert [(one.name, one.read()) for one in task.frames] == [(name, data)]
    # Even if the name has another extension.
    task = load_task(tmp_path, with_image("a.jpg", "cat", data=data))
    assert [one.read() for one in task.frames] == [data]


def test_labels_and_attributes_are_created(tmp_path: Path) -> None:
    """A project without labels gets them. Each project gets the attributes."""
    payload = with_image("a.jpg", "dog", **{"image/object/truncated": [1]})
    files = {"t.tfrecord": shard(payload), "label_map.pbtxt": LABEL_MAP}
    project = load(tmp_path, files, Project([]))
    assert "dog" in [label.name for label in project.labels]
    ((_, _, label, *_, attributes),) = stored(project.tasks[0])
    assert (label, dict(attributes)["truncated"]) == ("dog", "true")


def test_attributes_with_names_of_cvat(tmp_path: Path) -> None:
    """CVAT would take them for fields of the shape."""
    own = {"rotation": [30], "outside": [1], "track_id": [5], "keyframe": [1], "source": ["auto"]}
    values = {f"image/object/attribute/{name}": one for name, one in own.items()}
    payload = with_image("a.jpg", "cat", **values, **{"image/object/attribute/mood": ["fine"]})
    project = load(tmp_path, {"train.tfrecord": shard(payload)})
    (found,) = project.tasks[0].annotations.shapes
    assert (found["rotation"], found["outside"]) == (0, False)
    assert found["source"] == ("file" if cvat.IS_NEW else "manual")
    assert found["attributes"]["mood"] == "fine"
    names = {spec.name for label in project.labels for spec in label.attributes}
    assert not names & own.keys()


@pytest.mark.parametrize(("as_polygons", "kind"), [(True, "polygon"), (False, "mask")])
def test_masks(tmp_path: Path, as_polygons: bool, kind: str) -> None:
    project, second = empty_project(), empty_project()
    polygon = shape("polygon", 0, "cat", (10, 10, 30, 10, 30, 26, 20, 18, 10, 26))
    project.add(make_task(polygon, frames=["a.jpg"], subset="train"))
    path = export(project, tmp_path, MASKS, save_images=True).path
    import_dataset_as_project(path, second, MASKS, as_polygons)
    assert [row[1] for row in stored(second.tasks[0])] == [kind]


ON_DISK = "cannot be saved under its name"
DAMAGED = bytearray(shard(with_image("a.jpg", "cat")))
DAMAGED[40] ^= 1
NO_IMAGE = "the encoded image is missing or empty (t.tfrecord, record {}). Nothing was changed. "


@pytest.mark.parametrize(
    ("records", "texts"),
    [
        (
            [with_image("a.jpg", "cat", data=b"")],
            [NO_IMAGE.format(0), "Export again with images (CVAT: Save images; "],
        ),
        (
            [with_image("a.jpg", "cat"), with_image("b.jpg", "cat", data=b"")],
            [NO_IMAGE.format(1), "(b.jpg)"],
        ),
        ([with_image("a.jpg", "cat", data=b"junk" * 50)], ["a.jpg"]),
        (
            [with_image("a.jpg", "dog")],
            ["class 'dog' is not among the labels. ", "Labels of the project: bird, cat."],
        ),
        ([with_image("a.jpg", "cat"), with_image("a.jpg/b.jpg", "cat")], [ON_DISK]),
        ([with_image("n" * 300 + ".jpg", "cat")], [ON_DISK]),
        ([], ["record 0", "t.tfrecord"]),
    ],
    ids=[
        "no image",
        "one without image",
        "not an image",
        "label",
        "folder",
        "long name",
        "damaged",
    ],
)
def test_refusals(tmp_path: Path, records: list[bytes], texts: list[str]) -> None:
    text = refused(tmp_path, {"t.tfrecord": shard(*records) or bytes(DAMAGED)})
    assert all(one in text for one in texts), text
    assert "administrator" not in text


@pytest.mark.parametrize(
    ("subset", "name", "fix"),
    [("x" * 65, "cat", "Rename its shard"), ("train", "y" * 65, "Give it another name")],
)
def test_names_that_are_too_long_for_cvat(tmp_path: Path, subset: str, name: str, fix: str) -> None:
    files = {f"{subset}.tfrecord": shard(with_image("a.jpg", name))}
    text = refused(tmp_path, files, Project([]))
    longest = max(subset, name, key=len)
    ending = f"(65 characters, CVAT allows 64). Nothing was changed. {longest!r}. {fix}."
    assert text.endswith(ending)

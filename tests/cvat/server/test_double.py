"""The double itself: that it does what CVAT does where these tests lean on it."""

from __future__ import annotations

from pathlib import Path

import cvat
import datumaro as dm
import pytest
from cvat.apps.dataset_manager import bindings
from cvat.apps.dataset_manager import task as server
from cvat.apps.dataset_manager.formats import registry
from cvat.apps.dataset_manager.formats.transformations import MaskConverter
from cvat.apps.engine.models import Annotations, Job, Project

from tests.cvat.server import tasks


def items_of(instance: object, **options: object) -> list[object]:
    with bindings.GetCVATDataExtractor(instance, **options) as extractor:
        return list(extractor)


def test_items_have_names_numbers_and_sizes() -> None:
    task = tasks.make_task(tasks.box(1, "cat"), start_frame=10, step=5, frames=["x/A.JPG", "b.png"])
    first, second = items_of(bindings.TaskData(task.annotations, task))
    assert (first.id, first.attributes["frame"]) == ("x/A", 10)
    assert (second.id, second.attributes["frame"]) == ("b", 15)
    assert tuple(second.media.size) == (tasks.HEIGHT, tasks.WIDTH)
    assert first.media.ext == (".JPG" if hasattr(dm, "ByteImage") else ".jpg")
    (found,) = second.annotations
    assert isinstance(found, dm.Bbox)
    assert found.attributes["rotation"] == 0
    assert found.attributes["count"] == 1.0
    assert found.attributes["difficult"] is False


def test_annotations_are_computed_when_new_servers_are_asked() -> None:
    task = tasks.make_task(tasks.box(0, "cat", attributes={"count": "many"}))
    data = bindings.TaskData(task.annotations, task)
    if not cvat.IS_NEW:
        with pytest.raises(Exception, match="Failed to convert attribute 'count'='many'"):
            items_of(data)
        return
    item = items_of(data)[0]
    with pytest.raises(bindings.CvatExportError, match="Failed to convert attribute 'count'"):
        _ = item.annotations


def test_new_servers_count_deleted_frames_and_name_subsets() -> None:
    task = tasks.make_task(deleted_frames=[1], subset="train")
    with bindings.GetCVATDataExtractor(bindings.TaskData(task.annotations, task)) as extractor:
        found = list(extractor)
    assert [item.id for item in found] == ["a", "c"]
    assert len(extractor) == (3 if cvat.IS_NEW else 2)
    assert {item.subset for item in found} == {"train" if cvat.IS_NEW else "default"}


def test_tracks_are_interpolated_until_they_are_outside() -> None:
    moving = tasks.track(
        "cat",
        tasks.box(0, "cat", 0, 0, 10, 10),
        tasks.box(2, "cat", 20, 10, 30, 20),
        tasks.box(3, "cat", 20, 10, 30, 20, outside=True),
    )
    task = tasks.make_task(frames=[f"{name}.jpg" for name in "abcde"], tracks=[moving])
    found = items_of(bindings.TaskData(task.annotations, task))
    points = [[one.points for one in item.annotations] for item in found]
    assert points == [[[0, 0, 10, 10]], [[10, 5, 20, 15]], [[20, 10, 30, 20]], [], []]


def test_a_project_numbers_names_that_come_again() -> None:
    project = Project(tasks.labels("cat"))
    for subset in ("train", "train", ""):
        project.add(tasks.make_task(frames=["a.jpg"], subset=subset))
    found = items_of(bindings.ProjectData(project))
    assert sorted((one.subset, one.id, one.attributes["frame"]) for one in found) == [
        ("default", "a", 0),
        ("train", "a", 0),
        ("train", "a_1", 1),
    ]


def test_masks_survive_both_ways() -> None:
    points = [0, 3, 2, 1, 4, 3, 6, 4]
    mask = MaskConverter.cvat_rle_to_dm_rle(points, 10, 12)
    assert mask.image.sum() == 4
    assert MaskConverter.dm_mask_to_cvat_rle(mask) == points


def test_the_same_name_twice_is_an_error() -> None:
    with pytest.raises(AssertionError, match="already registered"):
        registry.exporter(name="COCO", ext="ZIP", version="1.0")(lambda: None)


@pytest.mark.parametrize("error", [ValueError, bindings.CvatDatasetNotFoundError])
def test_what_old_servers_answer_with_a_traceback(error: type[Exception]) -> None:
    task = tasks.make_task(tasks.box(0, "cat"))
    with pytest.raises(server.ServerError), server.transaction(task):
        task.annotations = Annotations()
        raise error("no")
    assert tasks.stored(task)


def test_a_job_knows_its_own_frames() -> None:
    task = tasks.make_task(start_frame=4, step=2)
    data = bindings.JobData(Annotations(), Job(task, 1, 2))
    assert sorted(data.frame_info) == [1, 2]
    assert data.match_frame("b.jpg") == 1
    assert data.match_frame("a.jpg") is None
    assert data.abs_frame_id(2) == 8


def test_importing_matches_as_cvat_does(tmp_path: Path) -> None:
    """An image that is named by a number goes to the frame of that number."""
    task = tasks.make_task()
    data = bindings.TaskData(Annotations(), task)

    def import_item(name: str) -> None:
        cat = dm.Bbox(1, 2, 3, 4, label=0, attributes={"occluded": True, "difficult": True})
        item = dm.DatasetItem(name, annotations=[cat], media=None)
        classes = {dm.AnnotationType.label: dm.LabelCategories.from_iterable(["cat"])}
        dataset = dm.Dataset.from_iterable([item], categories=classes)
        bindings.import_dm_annotations(dataset, data)

    import_item("b")
    import_item("000002")
    assert [one["frame"] for one in data.data.shapes] == [1, 2]
    assert data.data.shapes[0]["occluded"] is True
    assert data.data.shapes[0]["attributes"] == {"difficult": "true"}
    with pytest.raises(bindings.CvatImportError, match="Could not match item id: 'z' with any"):
        import_item("z")

"""Export, forget, import: what a server wrote comes back equal.

Shown on every kind of task and of names, with shapes, tags, tracks, masks, attributes and jobs;
and for any boxes at all, to a hundredth of a pixel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvat
import pytest
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.engine.models import Annotations, Job, Task

from tests.cvat.server.tasks import (
    BOXES,
    HEIGHT,
    MASKS,
    WIDTH,
    box,
    export,
    import_into,
    make_task,
    shape,
    stored,
    track,
)

DEFAULTS = (("count", "1"), ("difficult", "false"))


def again(
    task: Task, folder: Path, name: str = BOXES, instance: Task | Job | None = None, **more: Any
) -> list[tuple[Any, ...]]:
    """Export, forget, import."""
    path = export(instance or task, folder, name).path
    task.annotations = Annotations()
    return import_into(instance or task, path, name, **more)


ROUND_TRIPS = {
    "flat": {},
    "in folders": {"frames": ["one/a.jpg", "one/b.jpg", "two/a.jpg"]},
    "deep, with one frame above": {"frames": ["top.jpg", "x/y/a.jpg", "x/y/b.jpg"]},
    "of one folder": {"frames": ["set/a.jpg", "set/b.jpg", "set/c.jpg"]},
    "names of numbers": {"frames": ["000001.jpg", "000000.jpg", "000002.jpg"]},
    "dots, spaces, capitals": {"frames": ["A.v2.JPG", "b c.PNG", "кадр.jpeg"]},
    "of Windows": {"frames": ["day\\a.jpg", "a.jpg", "day/b.jpg"]},
    "extensions that differ": {"frames": ["a.jpg", "b.png", "c.bmp"]},
    "a video": {"is_video": True},
    "a video with start and step": {"is_video": True, "start_frame": 10, "step": 5},
    "images with start and step": {"start_frame": 4, "step": 3},
    "of a subset": {"subset": "val"},
    "with a deleted frame": {"deleted_frames": [2]},
}


@pytest.mark.parametrize("save_images", [False, True], ids=["annotations", "with images"])
@pytest.mark.parametrize("kind", ROUND_TRIPS)
def test_its_own_export_comes_back(tmp_path: Path, kind: str, save_images: bool) -> None:
    shapes = [
        box(0, "cat", 1.5, 2.25, 30, 40, occluded=True, attributes=dict(DEFAULTS)),
        box(1, "bird", 0, 0, WIDTH, HEIGHT, attributes=dict(DEFAULTS)),
        box(1, "cat", 5, 5, 6, 6, attributes=dict(DEFAULTS)),
    ]
    task = make_task(*shapes, **ROUND_TRIPS[kind])
    before = [row[:5] for row in stored(task)]
    path = export(task, tmp_path, save_images=save_images).path
    task.annotations = Annotations()
    assert [row[:5] for row in import_into(task, path)] == before


@pytest.mark.parametrize(
    "frames",
    [
        # CVAT takes frame 0 for no match where a folder is to be put in front of the name.
        ["set/a.jpg", "set/b.jpg", "set/c.jpg"],
        ["a.png", "b.PNG", "c.bmp"],
    ],
    ids=["all in a folder", "other extensions"],
)
def test_into_a_task_whose_frames_are_called_otherwise(tmp_path: Path, frames: list[str]) -> None:
    path = export(make_task(*(box(number, "cat") for number in range(3))), tmp_path).path
    assert [row[0] for row in import_into(make_task(frames=frames), path)] == frames


@pytest.mark.skipif(not cvat.IS_NEW, reason="old servers have no placeholders")
def test_a_task_with_placeholders(tmp_path: Path) -> None:
    """Frames that stand for a validation frame have its name; boxes belong to that one."""
    task = make_task(
        box(1, "cat"), box(2, "bird"), frames=["a.jpg", "b.jpg", "a.jpg"], placeholders=[0]
    )
    again(task, tmp_path)
    assert [(one["frame"], one["label"]) for one in task.annotations.shapes] == [
        (1, "cat"),
        (2, "bird"),
    ]


def test_tracks_come_back_as_boxes(tmp_path: Path) -> None:
    moving = track("cat", box(0, "cat", 0, 0, 10, 10), box(2, "cat", 20, 10, 30, 20))
    task = make_task(tracks=[moving])
    found = again(task, tmp_path)
    assert [row[3] for row in found] == [(0, 0, 10, 10), (10, 5, 20, 15), (20, 10, 30, 20)]
    assert not task.annotations.tracks


def test_an_empty_task_comes_back_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(make_task(), tmp_path) == []
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "drop")
    # Without a record it would only delete what is there.
    with pytest.raises(
        CvatImportError, match=r"^default.tfrecord is empty \(0 bytes\)\. Nothing was changed\. "
    ):
        again(make_task(), tmp_path)


MASK = (0, 2, 1, 3, 2, 1, 3, 3, 11, 20, 15, 22)
POLYGON = (10, 10, 30, 10, 30, 26, 20, 18, 10, 26)


def test_masks_come_back_as_polygons(tmp_path: Path) -> None:
    task = make_task(shape("polygon", 1, "bird", POLYGON))
    ((_, kind, label, corners, *_),) = again(task, tmp_path, MASKS, conv_mask_to_poly=True)
    assert (kind, label) == ("polygon", "bird")
    assert min(corners[::2]) == pytest.approx(10, abs=1.01)
    assert max(corners[::2]) == pytest.approx(30, abs=1.01)
    assert max(corners[1::2]) == pytest.approx(26, abs=1.01)


@pytest.mark.parametrize("as_polygons", [True, False])
def test_rectangles_come_back_as_rectangles_from_their_masks(
    tmp_path: Path, as_polygons: bool
) -> None:
    task = make_task(box(1, "bird", 10.3, 4.8, 31.5, 26.2))
    (found,) = again(task, tmp_path, MASKS, conv_mask_to_poly=as_polygons)
    assert (found[1], found[3]) == ("rectangle", (10.3, 4.8, 31.5, 26.2))


def test_either_format_reads_what_the_other_wrote(tmp_path: Path) -> None:
    task = make_task(shape("mask", 1, "bird", MASK))
    path = export(task, tmp_path, MASKS).path
    found = import_into(task, path, BOXES, conv_mask_to_poly=False)
    assert [(row[1], row[3]) for row in found] == [("mask", MASK)]
    path = export(make_task(box(0, "cat")), tmp_path).path
    assert [row[1] for row in import_into(task, path, MASKS)] == ["rectangle"]

"""A stub server with a task of images, a video and a project; the command against it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tfod.cli.main import main
from tfod.cvat.client import connection
from tfod.detection.detection import Detection
from tfod.sources.reading import read_detections

from tests.commands import Result, Run
from tests.cvat.client.stub_server import PASSWORD, USER, StubServer
from tests.cvat.client.stub_state import StubTask
from tests.image_kinds import plain_image

CAR = {
    "id": 11,
    "name": "car",
    "parent_id": None,
    "attributes": [
        {"id": 1, "name": "truncated", "input_type": "checkbox"},
        {"id": 2, "name": "colour", "input_type": "select"},
        {"id": 3, "name": "age", "input_type": "number"},
    ],
}
CAT = {"id": 12, "name": "cat", "parent_id": None, "attributes": []}
PART = {"id": 13, "name": "1", "parent_id": 12, "attributes": []}


def jpeg(width: int, height: int, shade: int) -> bytes:
    return plain_image((width, height), (shade, 80, 120))


def shape(frame: int, points: list[float], kind: str = "rectangle", **more: Any) -> dict[str, Any]:
    named = {"label_id": 11, "occluded": False, "rotation": 0.0, "group": 0, "attributes": []}
    named["z_order"] = 0
    return {"type": kind, "frame": frame, "points": points, **named, **more}


def flat_task(number: int = 1, **more: Any) -> StubTask:
    frames = [("a.jpg", 200, 100), ("day/b.jpg", 200, 100), ("c.jpg", 64, 48)]
    return StubTask(
        number,
        "streets & <cats>",
        [CAR, CAT, PART],
        frames,
        segments={10 * number: (0, 1), 10 * number + 1: (2, 2), 10 * number + 2: (0, 2)},
        shapes=[
            shape(
                0,
                [10.5, 20.25, 60.0, 70.0],
                occluded=True,
                group=3,
                attributes=[("truncated", "true"), ("colour", "blue"), ("age", "7")],
            ),
            shape(1, [5.0, 6.0, 7.0, 8.0], label_id=12),
        ],
        tags=[{"frame": 2, "label_id": 12}],
        images={name: jpeg(w, h, i * 40) for i, (name, w, h) in enumerate(frames)},
        **more,
    )


def video_task(number: int = 2) -> StubTask:
    def key(frame: int, left: float, outside: bool = False) -> dict[str, Any]:
        return {
            "type": "rectangle",
            "frame": frame,
            "points": [left, 10.0, left + 20, 30.0],
            "outside": outside,
            "occluded": False,
            "rotation": 0.0,
        }

    return StubTask(
        number,
        "film",
        [CAR],
        [("film.mp4", 160, 120)],
        mode="interpolation",
        size=6,
        start=4,
        step=2,
        segments={20: (0, 2), 21: (3, 5), 22: (0, 5)},
        tracks=[{"frame": 1, "label_id": 11, "shapes": [key(1, 0), key(3, 20), key(4, 20, True)]}],
        images={"frame_000006": jpeg(160, 120, 9)},
    )


def add_objects(one: StubServer) -> StubServer:
    one.tasks = {1: flat_task(), 2: video_task(), 3: flat_task(3, project=5, subset="Train")}
    one.projects = {5: [CAR, CAT], 6: []}
    return one


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with add_objects(StubServer()) as started:
        yield started


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stub: StubServer
) -> Run:
    """The command in this process, as a user of the stub server."""
    for name in ("CVAT_ACCESS_TOKEN", "CVAT_ORGANIZATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("urllib3.util.Retry.sleep", lambda *_: None)
    monkeypatch.setattr(connection, "_PAUSE", 0.001)

    def running(*arguments: object, at: StubServer = stub, password: str = PASSWORD) -> Result:
        for name, value in (("CVAT_HOST", at.url), ("CVAT_USER", USER), ("PASS", password)):
            monkeypatch.setenv(name, value)
        return Result(main([str(one) for one in arguments]), *capsys.readouterr())

    return running


def detections(path: Path) -> list[Detection]:
    """What is in a zip of shards, read from a folder beside it."""
    folder = path.with_suffix("")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return list(read_detections(folder))

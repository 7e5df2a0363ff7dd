"""A stub server with a task of images, a video and a project; the command against it."""

from __future__ import annotations

import copy
import io
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
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
from tests.records import encode, image
from tests.records import frame as shard
from tests.zip_forge import real_zip

TYPES = ("truncated", "checkbox"), ("colour", "select"), ("age", "number")
CAR, CAT, PART = (
    {"id": number, "name": name, "parent_id": parent, "attributes": []}
    for number, name, parent in ((11, "car", None), (12, "cat", None), (13, "1", 12))
)
CAR["attributes"] = [{"name": name, "input_type": kind} for name, kind in TYPES]
SIZES = {"a.jpg": (100, 200), "day/b.jpg": (100, 200), "c.jpg": (48, 64)}
"""Height and width of the frames of task 1."""


def jpeg(width: int, height: int, shade: int) -> bytes:
    return plain_image((width, height), (shade, 80, 120))


def shape(frame: int, points: list[float], kind: str = "rectangle", **more: Any) -> dict[str, Any]:
    named = {"label_id": 11, "occluded": False, "rotation": 0.0, "group": 0, "attributes": []}
    return {"type": kind, "frame": frame, "points": points, **named, "z_order": 0, **more}


def flat_task(number: int = 1, **more: Any) -> StubTask:
    frames = [(name, width, height) for name, (height, width) in SIZES.items()]
    attributes = [("truncated", "true"), ("colour", "blue"), ("age", "7")]
    marks = {"occluded": True, "group": 3, "attributes": attributes}
    return StubTask(
        number,
        "streets & <cats>",
        [CAR, CAT, PART],
        frames,
        segments={10 * number: (0, 1), 10 * number + 1: (2, 2), 10 * number + 2: (0, 2)},
        shapes=[
            shape(0, [10.5, 20.25, 60.0, 70.0], **marks),
            shape(1, [5.0, 6.0, 7.0, 8.0], label_id=12),
        ],
        tags=[{"frame": 2, "label_id": 12}],
        images={name: jpeg(w, h, i * 40) for i, (name, w, h) in enumerate(frames)},
        **more,
    )


def video_task() -> StubTask:
    keyframes = [
        shape(frame, [left, 10.0, left + 20.0, 30.0], outside=frame == 4)
        for frame, left in ((1, 0.0), (3, 20.0), (4, 20.0))
    ]
    return StubTask(
        2,
        "film",
        [CAR],
        [("film.mp4", 160, 120)],
        mode="interpolation",
        size=6,
        start=4,
        step=2,
        segments={20: (0, 2), 21: (3, 5), 22: (0, 5)},
        tracks=[{"frame": 1, "label_id": 11, "shapes": keyframes}],
        images={"frame_000006": jpeg(160, 120, 9)},
    )


def add_objects(stub: StubServer) -> StubServer:
    stub.tasks = {1: flat_task(), 2: video_task(), 3: flat_task(3, project=5, subset="Train")}
    stub.projects = {5: [CAR, CAT], 6: []}
    return stub


@dataclass
class Bridge:
    """The command in this process, with the stub server and a folder for zips."""

    stub: StubServer
    run: Run
    folder: Path

    @property
    def out(self) -> Path:
        """The path of the last export."""
        return self.folder / "out.zip"

    def export(self, *options: object, of: str = "task 1") -> Result:
        self.out.unlink(missing_ok=True)
        return self.run("cvat", "export", *of.split(), self.out, *options)

    def exported(self, *options: object, of: str = "task 1") -> list[Detection]:
        """Export, and return the records."""
        self.export(*options, of=of).succeeded()
        return self.records()

    def records(self) -> list[Detection]:
        """Return the records of the last export."""
        shutil.rmtree(self.folder / "unpacked", ignore_errors=True)
        with zipfile.ZipFile(self.out) as archive:
            archive.extractall(self.folder / "unpacked")
        return list(read_detections(self.folder / "unpacked"))

    def load(self, path: Path, *options: object, to: str = "task 1") -> Result:
        """Import a zip."""
        return self.run("cvat", "import", *to.split(), path, *options)

    def refuse(self, path: Path, *options: object, to: str = "task 1") -> Result:
        """Import a zip, which must fail before an upload."""
        before, uploads = self.state(), "^(POST|PATCH|PUT) .*(annotations|dataset)"
        count = self.stub.asked(uploads)
        ran = self.load(path, *options, to=to)
        assert ran.code in (1, 2), ran
        assert self.state() == before and self.stub.datasets == []
        assert self.stub.asked(uploads) == count
        return ran

    def zip(
        self,
        *records: dict[str, Any],
        label_map: str = "item { id: 1 name: 'car' } item { id: 2 name: 'cat' }",
        subset: str = "default",
        alone: bool = False,
    ) -> Path:
        """Make a zip with these records, and with all other frames of task 1 unless ``alone``."""
        names = {str(one.get("image/filename")) for one in records}
        if names.intersection(SIZES) and not alone:
            records += tuple(image(name, *SIZES[name]) for name in SIZES if name not in names)
        files = {f"{subset}.tfrecord": shard(*map(encode, records))}
        files |= {"label_map.pbtxt": label_map.encode()} if label_map else {}
        path = self.folder / "anno.zip"
        path.write_bytes(real_zip(files.items()))
        return path

    def state(self) -> Any:
        task = self.stub.tasks[1]
        return copy.deepcopy((task.shapes, task.tags, task.tracks))

    def frames(self, number: int = 1) -> list[int]:
        """Return the frame of each shape of a task."""
        return [one["frame"] for one in self.stub.tasks[number].shapes]

    def dataset(self) -> zipfile.ZipFile:
        """Return the zip that the project received."""
        ((_, found),) = self.stub.datasets
        return zipfile.ZipFile(io.BytesIO(found))


@pytest.fixture
def bridge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Bridge]:
    for name in ("CVAT_ACCESS_TOKEN", "CVAT_ORGANIZATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("urllib3.util.Retry.sleep", lambda *_: None)
    monkeypatch.setattr(connection, "_PAUSE", 0.001)
    with add_objects(StubServer()) as stub:

        def run(*arguments: object, at: StubServer = stub, password: str = PASSWORD) -> Result:
            for name, value in (("CVAT_HOST", at.url), ("CVAT_USER", USER), ("PASS", password)):
                monkeypatch.setenv(name, value)
            return Result(main([str(one) for one in arguments]), *capsys.readouterr())

        yield Bridge(stub, run, tmp_path)

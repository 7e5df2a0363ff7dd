"""``tfod cvat import`` against the stub server, and ``tfod check`` with a live task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.commands import TIMEOUT, run_python
from tests.cvat.client.conftest import SIZES, Bridge, jpeg, shape
from tests.cvat.client.stub_server import LOGIN, Fault
from tests.records import image, objects

pytest.importorskip("cvat_sdk")

TEXT, ENCODED = "image/object/class/text", "image/encoded"


def car(name: str = "a.jpg", box: tuple[float, ...] = (0.1, 0.1, 0.5, 0.5), **more: Any) -> Any:
    return image(name, *SIZES.get(name, (100, 200))) | objects([box], ["car"], [1]) | more


def video_frame(number: int) -> Any:
    name = f"frame_{number:06d}.jpg"
    return image(name, 120, 160) | objects([(0, 0, 1, 1)], ["car"], [1])


def test_round_trip(bridge: Bridge) -> None:
    task = bridge.stub.tasks[1]
    task.shapes[0]["group"] = 0  # a group of one shape does not return
    task.shapes[1]["z_order"] = 2
    task.shapes += [
        shape(2, [0, 2, 1, 1, 2, 1, 1, 10, 20, 13, 21], "mask"),
        shape(2, [0, 4, 30, 30, 31, 31], "mask"),  # fills its box
        shape(2, [0.5, 0.5, 30.0, 47.49], label_id=12),
        shape(2, [20, 10, 50, 20], rotation=30.25, z_order=-1, group=3),
        shape(2, [60, 40, 70, 44], rotation=45.0, group=3),  # partly outside
    ]
    task.tags.append({"frame": 2, "label_id": 11, "attributes": [("colour", "rain & <sun>")]})
    before = bridge.state()
    bridge.export("--save-masks").succeeded()
    ran = bridge.load(bridge.out)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "class              now  in the file  added  removed",
        "car (box)            1            1      0        0",
        "car (mask)           2            2      0        0",
        "car (rotated box)    2            2      0        0",
        "car (tag)            1            1      0        0",
        "cat (box)            2            2      0        0",
        "cat (tag)            1            1      0        0",
        f"replacing all annotations of task 1 on {bridge.stub.url}",
        f"{bridge.stub.url} has imported {bridge.out} into task 1",
    ]
    for now, then in zip(bridge.state(), before, strict=True):
        assert sorted(map(_plain, now), key=repr) == sorted(map(_plain, then), key=repr)


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    points = [round(float(value), 2) for value in one.get("points", ())]
    more = {"points": points, "attributes": sorted(one.get("attributes", ()))}
    return dict(sorted({**one, **more}.items()))


def test_video_round_trip(bridge: Bridge) -> None:
    bridge.export(of="task 2")
    _, boxes, tracks, *_ = bridge.load(bridge.out, to="task 2").out.splitlines()
    assert boxes == "car (box)    0            2      2        0"
    assert tracks == "tracks that become single shapes, one per frame: 1"
    task = bridge.stub.tasks[2]
    assert [(one["frame"], one["points"][0]) for one in task.shapes] == [(1, 0), (3, 20)]
    assert task.tracks == []


TABLE = [
    "class      now  in the file  added  removed",
    "car (box)    1            2      1        0",
    "cat (box)    1            0      0        1",
    "cat (tag)    1            0      0        1",
    "also removed: 1 polyline",
    "dry run: the server was not changed",
]


def test_changes_and_dry_run(bridge: Bridge) -> None:
    bridge.stub.tasks[1].shapes.append(shape(0, [1.0, 1.0, 9.0, 9.0], "polyline"))
    before = bridge.state()
    path = bridge.zip(car(box=(0.0525, 0.2025, 0.3, 0.7)), car("c.jpg"), alone=True)
    for options in (["--dry-run"], []):
        ran = bridge.refuse(path, *options)
        assert ran.code == 1 and ran.err.startswith("tfod: import deletes 1 polyline, ")
        assert "the annotations of 1 frame without a record. day/b.jpg." in ran.err
        assert "TSK008 error" in ran.out and "TSK009 error" in ran.out
        assert (ran.out.splitlines()[-6:] == TABLE) is bool(options)
    ran = bridge.run("check", path, "--cvat", "task", 1)
    assert (ran.code, "TSK008 error" in ran.out, "TSK009 error" in ran.out) == (1, True, True)
    ran = bridge.load(path, "--dry-run", "--force")
    assert (ran.code, ran.err, ran.out.splitlines()) == (0, "", TABLE)
    assert bridge.state() == before
    assert not bridge.stub.asked("^(POST|PATCH|PUT) .*annotations")
    assert bridge.load(path, "--mode", "append").code == 0
    assert len(bridge.frames()) == len(before[0]) + 2
    assert bridge.load(path, "--force").code == 0
    assert bridge.frames() == [0, 2]


def test_zip_of_a_job(bridge: Bridge) -> None:
    """Into the task, it would delete the annotations of the other jobs."""
    before = bridge.state()
    bridge.export(of="job 10").succeeded()
    ran = bridge.refuse(bridge.out)
    assert ran.code == 1 and "1 frame without a record. Nothing was changed. c.jpg" in ran.err
    assert bridge.load(bridge.out, to="job 10").code == 0
    assert [len(part) for part in bridge.state()] == [len(part) for part in before]


def test_append(bridge: Bridge) -> None:
    """An old server would replace the annotations."""
    before, path = bridge.state(), bridge.zip(car())
    current = bridge.stub.version
    for bridge.stub.version in ("2.64.2", "", "dev"):
        assert "cannot append" in bridge.refuse(path, "--mode", "append").refused()
    bridge.stub.version = current
    ran = bridge.load(path, "--mode", "append")
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "car (box)    1            1      1        0"
    shapes, tags, _ = bridge.state()
    assert (len(shapes), shapes[:2], tags) == (3, before[0], before[1])


@pytest.mark.parametrize(
    ("target", "records", "options", "code", "text"),
    [
        ("task 1", [car(**{TEXT: ["dog"]})], [], 1, "TSK001"),
        ("task 1", [car(**{TEXT: ["1"]})], [], 1, "TSK001"),  # a part of a skeleton
        ("task 1", [car("x.jpg")], [], 1, "TSK002"),
        ("task 1", [image("a.jpg", 50, 50)], [], 1, "TSK004"),
        ("job 11", [car("z.jpg"), car("c.jpg")], [], 1, "TSK002"),
        ("job 11", [car("a.jpg")], [], 2, "the image is not a frame of job 11"),
        ("project 5", [car()], [], 1, "tfod cvat import task ID"),
        ("project 5", [car()], ["--mode", "append"], 2, "omit --mode"),
        ("project 5", [car(**{TEXT: ["dog"], ENCODED: jpeg(200, 100, 1)})], [], 1, "TSK001"),
    ],
)
def test_errors_of_the_check(
    bridge: Bridge, target: str, records: Any, options: Any, code: int, text: str
) -> None:
    ran = bridge.refuse(bridge.zip(*records, alone=True), *options, to=target)
    assert (ran.code, text in ran.out + ran.err) == (code, True)
    assert ran.err.count("\n") == 1 + ("task ID" in text)
    assert ran.out.startswith("INVALID for CVAT:") is (code == 1)
    assert ("Nothing was changed." in ran.err) is (code == 1)  # like on the server


def test_a_job_takes_only_its_frames(bridge: Bridge) -> None:
    before = [one for one in bridge.stub.tasks[1].shapes if one["frame"] != 2]
    path = bridge.zip(car("a.jpg"), car("c.jpg"))
    skipped = bridge.load(path, to="job 11").succeeded()
    assert skipped == "tfod: 2 images skipped: no frame of job 11 matches\n"
    assert [one for one in bridge.stub.tasks[1].shapes if one["frame"] != 2] == before
    assert bridge.frames().count(2) == 1
    bridge.stub.faults = [Fault("GET", "/api/tasks/1/data/meta", 403, times=99)]
    ran = bridge.load(path, to="job 11")
    assert (ran.code, "TSK002" in ran.out) == (1, True)
    # A job of a video has the frame numbers of the task.
    bridge.stub.tasks[2].shapes = [shape(4, [0, 0, 160, 120])]
    ran = bridge.load(bridge.zip(video_frame(12)), to="job 21")
    assert ran.out.splitlines()[1] == "car (box)    1            1      0        0"
    assert bridge.frames(2) == [4]


def test_job_of_ground_truth(bridge: Bridge) -> None:
    """The server lists placeholders for the frames that were not selected."""
    bridge.stub.tasks[1].included = [0, 2]
    other = bridge.zip(car("day/b.jpg"), alone=True)
    assert "is not a frame of job 12" in bridge.refuse(other, to="job 12").refused()
    assert bridge.load(bridge.zip(car("a.jpg"), car("c.jpg")), to="job 12").code == 0
    assert bridge.frames() == [0, 2]
    bridge.stub.tasks[2].included = [1, 3]
    assert bridge.load(bridge.zip(video_frame(10)), "--force", to="job 22").code == 0
    assert bridge.frames(2) == [3]


def test_deleted_frames(bridge: Bridge) -> None:
    """They need no record, and the loss of their annotations is reported."""
    bridge.stub.tasks[1].deleted = [1]
    ran = bridge.load(bridge.zip(car(), car("c.jpg"), alone=True), "--dry-run")
    assert (ran.code, "annotations on hidden frames: 1 deleted" in ran.err) == (0, True)
    assert bridge.load(bridge.zip(car("day/b.jpg"))).code == 0
    assert bridge.frames() == [1]


def test_placeholders_are_copies(bridge: Bridge) -> None:
    """The annotations on a copy of a validation frame are not counted as removed."""
    task = bridge.stub.tasks[1]
    task.frames[2] = task.frames[0]
    task.shapes, task.tags = [shape(frame, [20.0, 10.0, 100.0, 50.0]) for frame in (0, 2)], []
    ran = bridge.load(bridge.zip(car("a.jpg"), alone=True), "--dry-run")
    assert ran.out.splitlines()[1].split() == ["car", "(box)", "1", "1", "0", "0"]


def test_frames_that_differ_in_their_extension(bridge: Bridge) -> None:
    """CVAT's import of XML takes the last of them for both."""
    frames = bridge.stub.tasks[1].frames
    frames[2] = ("a.png", *frames[0][1:])
    ran = bridge.refuse(bridge.zip(car("a.jpg"), alone=True), "--force")
    assert ran.code == 2 and "differs from 'a.jpg' only in its extension" in ran.err
    assert bridge.load(bridge.zip(car("a.png"), alone=True), "--force").code == 0
    assert bridge.frames() == [2]


def test_check_with_a_live_task(bridge: Bridge) -> None:
    path = bridge.zip(car("x.jpg"))
    for options in (("task", 1), ("job", 10)):
        ran = bridge.run("check", path, "--cvat", *options)
        assert (ran.code, "TSK002" in ran.out) == (1, True)
        assert ran.out.startswith("INVALID for CVAT:")
    # An import into a project makes tasks with new frames.
    ran = bridge.run("check", path, "--cvat", "project", 5)
    assert (ran.code, "TSK002" in ran.out, "IMG001 error" in ran.out) == (1, False, True)
    assert "TSK002" not in bridge.run("check", bridge.zip(car()), "--cvat", "task", 1).out
    refused = bridge.run("check", path, "--cvat", "frame", 1).refused()
    assert "pass task, job, project, then its number" in refused
    ran = bridge.run("check", path, "--cvat", "task", 1, "--images", bridge.folder)
    assert "--cvat excludes" in ran.refused()


def test_not_a_zip(bridge: Bridge) -> None:
    path = bridge.folder / "a.bin"
    for content in (b"", b"PK\5\6", b"text"):
        path.write_bytes(content)
        bridge.refuse(path)


@pytest.mark.parametrize(("field", "value", "data"), [("dimension", "3d", "3d"), ("size", 0, "no")])
def test_tasks_without_images(bridge: Bridge, field: str, value: Any, data: str) -> None:
    setattr(bridge.stub.tasks[1], field, value)
    for ran in (bridge.load(bridge.zip(car())), bridge.export()):
        assert f"task 1 has {data} data" in ran.refused()


def test_images_of_other_tasks(bridge: Bridge) -> None:
    """They are refused, or skipped with any labels and names."""
    path = bridge.zip(car(), car("2.jpg"), car("z.jpg", **{TEXT: ["dog"]}))
    assert bridge.refuse(path).code == 1
    skipped = bridge.load(path, "--other-frames", "skip").succeeded()
    assert skipped == "tfod: 2 images skipped: no frame of task 1 matches\n"
    assert bridge.frames() == [0]


def test_attributes(bridge: Bridge) -> None:
    attributes = {
        **{f"image/object/{name}": [1] for name in ("truncated", "occluded", "difficult")},
        "image/object/attribute/colour": ["rosé & <b>"],
        "image/object/attribute/age": [2.5],
    }
    path = bridge.zip(car(**attributes))
    warning = bridge.load(path).succeeded()
    assert warning.endswith(": 1 difficult\n") and warning.count("\n") == 1
    ran = bridge.run("check", path, "--cvat", "task", 1)
    assert (ran.code, "values are lost: 1 difficult" in ran.out) == (0, True)
    (stored,) = bridge.stub.tasks[1].shapes
    expected = [("age", "2.5"), ("colour", "rosé & <b>"), ("truncated", "true")]
    assert (sorted(stored["attributes"]), stored["occluded"]) == (expected, True)


def test_label_map_of_the_user(bridge: Bridge) -> None:
    path = bridge.zip(image() | objects([(0.1, 0.1, 0.2, 0.2)], None, [7]), label_map="")
    own = bridge.folder / "own.pbtxt"
    own.write_text("item { id: 7 name: 'cat' }")
    bridge.refuse(path)
    assert bridge.load(path, "--label-map", own).code == 0
    assert [one["label_id"] for one in bridge.stub.tasks[1].shapes] == [12]


class TestProject:
    def test_new_tasks(self, bridge: Bridge) -> None:
        data = jpeg(200, 100, 3)
        # A text, which CVAT would otherwise store as "True".
        first = car("day/a.jpg", **{ENCODED: data, "image/object/attribute/colour": ["true"]})
        path = bridge.zip(first, image("b") | {ENCODED: data}, subset="val")
        ran = bridge.load(path, "--dry-run", to="project 5")
        assert ran.out.startswith("new task 'val': 2 images, 1 objects\ndry run: ")
        assert bridge.stub.datasets == []
        assert bridge.load(path, to="project 5").code == 0
        assert bridge.stub.datasets[0][0] == 5
        with bridge.dataset() as archive:
            assert archive.read("images/val/day/a.jpg") == data
            assert archive.read("images/val/b.jpg") == data
            dataset = json.loads(archive.read("annotations/val.json"))
        one, other = dataset["items"]
        names = [label["name"] for label in dataset["categories"]["label"]["labels"]]
        assert names == ["car", "cat"]
        assert (one["id"], one["image"]) == ("day/a", {"path": "day/a.jpg", "size": [100, 200]})
        assert one["annotations"][0]["bbox"] == [20, 10, 80, 40]
        assert one["annotations"][0]["attributes"] == {"colour": "true"}
        assert other["annotations"] == []

    def test_a_project_without_labels(self, bridge: Bridge) -> None:
        """Like on the server, its labels and all attributes are created."""
        more = {ENCODED: jpeg(200, 100, 3), TEXT: ["dog"], "image/object/difficult": [1]}
        renamed = bridge.load(bridge.zip(car("g.jpg", **more), alone=True), to="project 6")
        assert renamed.succeeded() == "tfod: 1 image renamed: g.jpg → g.JPG\n"
        with bridge.dataset() as archive:
            dataset = json.loads(archive.read("annotations/default.json"))
        labels = [one["name"] for one in dataset["categories"]["label"]["labels"]]
        (drawn,) = dataset["items"][0]["annotations"]
        assert (labels, drawn["label_id"]) == (["car", "cat", "dog"], 2)
        assert drawn["attributes"] == {"difficult": "true"}


AGAIN = "may still be importing it; check task 1 before you try again"


class TestInterrupted:
    """The task does not change before the last step of the server."""

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            (Fault("PATCH", "annotations", 502, times=2), ""),
            (Fault("PATCH", "annotations", cut_before=True, times=2), ""),
            (Fault("PATCH", "annotations", cut=True, times=1), ""),
            (Fault("GET", "/api/requests/", 503, times=3), ""),
            (Fault("GET", "/api/requests/", cut=True, times=3), ""),
            (Fault("PATCH", "annotations", cut_before=True, times=99), "Too many upload errors"),
            (Fault("PATCH", "annotations", 502, times=99), "Too many upload errors"),
            (Fault("POST", "Upload-Start", 403, b'{"detail": "no"}'), "permission denied"),
            (Fault("POST", "Upload-Finish", 400, b'["bad"]'), "(400): bad"),
            (Fault("POST", "Upload-Length", 413, b'"too large"'), "too large"),
            # The end of the upload is sent once, and the server may have received it.
            (Fault("POST", "Upload-Finish", cut=True, times=99), AGAIN),
            (Fault("POST", "Upload-Finish", cut_before=True, times=99), AGAIN),
            (Fault("POST", "Upload-Finish", 504, times=99), AGAIN),
            (Fault("GET", "/api/requests/", 404, b'{"detail": "Not found."}', times=99), AGAIN),
        ],
    )
    def test_failures(self, bridge: Bridge, fault: Fault, message: str) -> None:
        before = bridge.state()
        fault = replace(fault)  # it counts its requests
        bridge.stub.faults = [fault]
        ran = bridge.load(bridge.zip(car()))
        if message:
            assert message in ran.refused() and AGAIN in ran.err
            assert bridge.state() == before  # the stub imports when its status is requested
            assert bridge.stub.asked("Upload-Finish") <= 1
        else:
            assert (ran.succeeded(), fault.times, len(bridge.frames())) == ("", 0, 1)
            assert bridge.stub.asked("Upload-Finish") == 1

    @pytest.mark.parametrize("body", [b"[]", b"{}", b"7", b'{"results": 1}', b"null"])
    @pytest.mark.parametrize(
        "path",
        [
            "server/about",
            "auth/login",
            "annotation/formats",
            r"tasks/1\Z",
            "data/meta",
            "labels",
            r"annotations\Z",
            "/api/requests/",
            "Upload-Finish",
        ],
    )
    def test_other_answers(self, bridge: Bridge, path: str, body: bytes) -> None:
        before = bridge.state()
        method = "POST" if path in ("auth/login", "Upload-Finish") else "GET"
        bridge.stub.faults = [Fault(method, path, 200, body, times=99)]
        ran = bridge.load(bridge.zip(car()))
        if ran.code:
            assert ran.err.count("\n") == 1 or (path, ran.code) == ("labels", 1)
            assert bridge.state() == before
        else:
            assert path == "server/about"

    def test_failed_request(self, bridge: Bridge) -> None:
        before = bridge.state()
        bridge.stub.import_error = (
            "cvat.apps.dataset_manager.bindings.CvatImportError: Could not match\n 'x'"
        )
        error = bridge.load(bridge.zip(car())).refused()
        assert error == f"tfod: {bridge.stub.url} reported an error: Could not match 'x'\n"
        assert bridge.state() == before

    def test_format_is_missing(self, bridge: Bridge) -> None:
        bridge.stub.formats = ["COCO 1.0"]
        assert "does not import 'CVAT 1.1'" in bridge.refuse(bridge.zip(car())).refused()

    @pytest.mark.skipif(sys.platform == "win32", reason="signals")
    @pytest.mark.parametrize(
        ("method", "pattern"), [("PATCH", "annotations"), ("GET", "/api/requests/")]
    )
    def test_ctrl_c(self, bridge: Bridge, method: str, pattern: str) -> None:
        before = bridge.state()
        processes: list[subprocess.Popen[str]] = []

        def interrupt() -> None:
            processes[0].send_signal(signal.SIGINT)
            processes[0].wait(TIMEOUT)  # or the answer could arrive before the signal

        bridge.stub.faults = [Fault(method, pattern, cut_before=True, call=interrupt)]
        command = [
            "cvat",
            "import",
            "task",
            "1",
            str(bridge.zip(car())),
            "--server",
            bridge.stub.url,
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "tfod.cli.main", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "127.0.0.1", **LOGIN},
            # It is ignored if the tests run in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        processes.append(process)
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 130
        assert AGAIN in err and "Traceback" not in err
        assert bridge.state() == before


def test_absent_sdk(bridge: Bridge) -> None:
    script = (
        "import sys; sys.modules['cvat_sdk'] = None\n"
        "from tfod.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = ("cvat", "import", "task", 1, bridge.zip(car()), "--server", bridge.stub.url)
    assert "cvat-sdk; pip install '.[cvat]'" in run_python("-c", script, *command).refused()

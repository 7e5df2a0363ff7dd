"""``tfod cvat import`` against the stub server, and ``tfod check`` with a live task."""

from __future__ import annotations

import copy
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tfod.tfrecord.writer import write_records

from tests.commands import TIMEOUT, Run, run_python
from tests.cvat.client.conftest import jpeg, shape
from tests.cvat.client.stub_server import LOGIN, Fault, StubServer
from tests.records import encode, image, objects

pytest.importorskip("cvat_sdk")

MakeZip = Callable[..., Path]
LABEL_MAP = "item { id: 1 name: 'car' } item { id: 2 name: 'cat' }"

SIZES = {"a.jpg": (100, 200), "day/b.jpg": (100, 200), "c.jpg": (48, 64)}
"""Height and width of the frames of task 1."""


@pytest.fixture
def make_zip(tmp_path: Path) -> MakeZip:
    """A zip of one shard from dicts of plain values, and of all other frames unless alone."""

    def make(
        *records: dict[str, Any],
        label_map: str = LABEL_MAP,
        subset: str = "default",
        alone: bool = False,
    ) -> Path:
        names = {str(one.get("image/filename")) for one in records}
        if names.intersection(SIZES) and not alone:  # the other frames are to be empty
            rest = [name for name in SIZES if name not in names]
            records += tuple(image(name, *SIZES[name]) for name in rest)
        (shard,) = write_records(tmp_path / "shards", subset, [encode(one) for one in records])
        path = tmp_path / "anno.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(shard, os.path.basename(shard))
            if label_map:
                archive.writestr("label_map.pbtxt", label_map)
        return path

    return make


def car(name: str = "a.jpg", box: tuple[float, ...] = (0.1, 0.1, 0.5, 0.5), **more: Any) -> Any:
    size = {} if name != "c.jpg" else {"height": 48, "width": 64}
    return image(name, **size) | objects([box], ["car"], [1]) | more


def state(stub: StubServer, number: int = 1) -> Any:
    task = stub.tasks[number]
    return copy.deepcopy((task.shapes, task.tags, task.tracks))


def test_round_trip(run: Run, stub: StubServer, tmp_path: Path) -> None:
    task = stub.tasks[1]
    task.shapes.append(shape(2, [0, 2, 1, 1, 2, 1, 1, 10, 20, 13, 21], "mask"))
    task.shapes.append(shape(2, [0, 4, 30, 30, 31, 31], "mask"))  # which fills its box
    task.shapes.append(shape(2, [0.5, 0.5, 30.0, 47.49], label_id=12))
    task.shapes.append(shape(2, [20, 10, 50, 20], rotation=30.25, z_order=-1, group=3))
    task.shapes[0]["group"] = 0  # one of one is none
    task.shapes[1]["z_order"] = 2
    task.shapes.append(shape(2, [60, 40, 70, 44], rotation=45.0, group=3))  # partly outside
    task.tags.append({"frame": 2, "label_id": 11, "attributes": [("colour", "rain & <sun>")]})
    before = state(stub)
    out = tmp_path / "anno.zip"
    assert run("cvat", "export", "task", 1, out, "--save-masks").code == 0
    ran = run("cvat", "import", "task", 1, out)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "class              now  in the file  added  removed",
        "car (box)            1            1      0        0",
        "car (mask)           2            2      0        0",
        "car (rotated box)    2            2      0        0",
        "car (tag)            1            1      0        0",
        "cat (box)            2            2      0        0",
        "cat (tag)            1            1      0        0",
        f"replacing all annotations of task 1 on {stub.url}",
        f"{stub.url} has imported {out} into task 1",
    ]
    key = repr
    for now, then in zip(state(stub), before, strict=True):
        assert sorted(map(_plain, now), key=key) == sorted(map(_plain, then), key=key)


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    points = [round(float(value), 2) for value in one.get("points", ())]
    more = {"points": points, "attributes": sorted(one.get("attributes", ()))}
    return dict(sorted({**one, **more}.items()))


def test_video_round_trip(run: Run, stub: StubServer, tmp_path: Path) -> None:
    out = tmp_path / "anno.zip"
    run("cvat", "export", "task", 2, out)
    ran = run("cvat", "import", "task", 2, out)
    assert ran.code == 0
    assert ran.out.splitlines()[1:3] == [
        "car (box)    0            2      2        0",
        "tracks that become single shapes, one per frame: 1",
    ]
    assert [(one["frame"], one["points"][0]) for one in stub.tasks[2].shapes] == [(1, 0), (3, 20)]
    assert stub.tasks[2].tracks == []


def test_changes_and_dry_run(run: Run, stub: StubServer, make_zip: MakeZip) -> None:
    stub.tasks[1].shapes.append(shape(0, [1.0, 1.0, 9.0, 9.0], "polyline"))
    before = state(stub)
    path = make_zip(car(box=(0.0525, 0.2025, 0.3, 0.7)), car("c.jpg"), alone=True)
    ran = run("cvat", "import", "task", 1, path, "--dry-run")
    refused = "import deletes 1 polyline, which shards cannot store. Nothing was changed. "
    assert (ran.code, ran.err.startswith(f"tfod: {refused}")) == (1, True)
    assert "the annotations of 1 frame without a record. day/b.jpg." in ran.err
    assert "TSK008 error" in ran.out and "TSK009 error" in ran.out
    assert ran.out.splitlines()[-6:] == TABLE
    ran = run("cvat", "import", "task", 1, path)
    assert (ran.code, ran.err.startswith(f"tfod: {refused}")) == (1, True)
    assert state(stub) == before
    ran = run("check", path, "--cvat", "task", 1)
    assert (ran.code, "TSK008 error" in ran.out, "TSK009 error" in ran.out) == (1, True, True)
    ran = run("cvat", "import", "task", 1, path, "--dry-run", "--force")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == TABLE
    assert state(stub) == before
    assert not stub.asked("^(POST|PATCH|PUT) .*annotations")
    assert run("cvat", "import", "task", 1, path, "--mode", "append").code == 0
    assert len(state(stub)[0]) == len(before[0]) + 2
    assert run("cvat", "import", "task", 1, path, "--force").code == 0
    assert [one["frame"] for one in state(stub)[0]] == [0, 2]


TABLE = [
    "class      now  in the file  added  removed",
    "car (box)    1            2      1        0",
    "cat (box)    1            0      0        1",
    "cat (tag)    1            0      0        1",
    "also removed: 1 polyline",
    "dry run: the server was not changed",
]


def test_a_job_s_zip(run: Run, stub: StubServer, tmp_path: Path) -> None:
    """It goes into its job, and not into the whole task, whose other jobs it would empty."""
    before, path = state(stub), tmp_path / "job.zip"
    assert run("cvat", "export", "job", 10, path).code == 0
    ran = run("cvat", "import", "task", 1, path)
    assert (ran.code, "1 frame without a record. Nothing was changed. c.jpg" in ran.err) == (
        1,
        True,
    )
    assert state(stub) == before
    assert run("cvat", "import", "job", 10, path).code == 0
    assert [len(part) for part in state(stub)] == [len(part) for part in before]


def test_append(run: Run, stub: StubServer, make_zip: MakeZip) -> None:
    before = state(stub)
    ran = run("cvat", "import", "task", 1, make_zip(car()), "--mode", "append")
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "car (box)    1            1      1        0"
    shapes, tags, _ = state(stub)
    assert (len(shapes), shapes[:2], tags) == (3, before[0], before[1])


def test_append_on_a_server_that_would_replace(
    run: Run, stub: StubServer, make_zip: MakeZip
) -> None:
    before = state(stub)
    path = make_zip(car())
    for version in ("2.64.2", "", "dev"):
        stub.version = version
        ran = run("cvat", "import", "task", 1, path, "--mode", "append")
        assert (ran.code, "cannot append" in ran.err) == (2, True)
    assert state(stub) == before
    assert not stub.asked("^POST .*annotations")


def test_job_has_only_its_frames(run: Run, stub: StubServer, make_zip: MakeZip) -> None:
    """Of a zip of its task; a name that the task lacks is refused."""
    ran = run("cvat", "import", "job", 11, make_zip(car("z.jpg"), car("c.jpg")))
    assert (ran.code, "TSK002" in ran.out) == (1, True)
    ran = run("cvat", "import", "job", 11, make_zip(car("a.jpg"), alone=True))
    assert (ran.code, "the image is not a frame of job 11" in ran.err) == (2, True)
    before = [one for one in stub.tasks[1].shapes if one["frame"] != 2]
    ran = run("cvat", "import", "job", 11, make_zip(car("a.jpg"), car("c.jpg")))
    skipped = "tfod: 2 images skipped: no frame of job 11 matches\n"
    assert (ran.code, ran.err) == (0, skipped)
    assert [one for one in stub.tasks[1].shapes if one["frame"] != 2] == before
    assert [one["frame"] for one in stub.tasks[1].shapes].count(2) == 1
    stub.faults = [Fault("GET", "/api/tasks/1/data/meta", 403, times=99)]
    ran = run("cvat", "import", "job", 11, make_zip(car("a.jpg"), car("c.jpg")))
    assert (ran.code, "TSK002" in ran.out) == (1, True)


def test_video_job_counts_from_the_task(run: Run, stub: StubServer, make_zip: MakeZip) -> None:
    name = image("frame_000012.jpg", 120, 160)
    path = make_zip(name | objects([(0, 0, 1, 1)], ["car"], [1]))
    stub.tasks[2].shapes = [shape(4, [0, 0, 160, 120])]
    ran = run("cvat", "import", "job", 21, path)
    assert ran.out.splitlines()[1] == "car (box)    1            1      0        0"
    assert [one["frame"] for one in stub.tasks[2].shapes] == [4]


def test_job_of_chosen_frames(run: Run, stub: StubServer, make_zip: MakeZip) -> None:
    # As servers tell of ground truth: the other frames are there as placeholders.
    stub.tasks[1].included = [0, 2]
    ran = run("cvat", "import", "job", 12, make_zip(car("day/b.jpg"), alone=True))
    assert (ran.code, "the image is not a frame of job 12" in ran.err) == (2, True)
    ran = run("cvat", "import", "job", 12, make_zip(car("a.jpg"), car("c.jpg")))
    assert ran.code == 0
    assert [one["frame"] for one in stub.tasks[1].shapes] == [0, 2]
    stub.tasks[2].included = [1, 3]
    name = image("frame_000010.jpg", 120, 160)
    path = make_zip(name | objects([(0, 0, 1, 1)], ["car"], [1]))
    assert run("cvat", "import", "job", 22, path, "--force").code == 0
    assert [one["frame"] for one in stub.tasks[2].shapes] == [3]


class TestTheCheckComesFirst:
    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            (car() | {"image/object/class/text": ["dog"]}, "TSK001"),
            (car("x.jpg"), "TSK002"),
            (image("a.jpg", 50, 50) | objects([(0, 0, 1, 1)], ["car"], [1]), "TSK004"),
        ],
    )
    def test_errors(
        self, run: Run, stub: StubServer, make_zip: MakeZip, bad: Any, code: str
    ) -> None:
        before = state(stub)
        ran = run("cvat", "import", "task", 1, make_zip(bad))
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "Nothing was changed." in ran.err  # as on the server
        assert code in ran.out
        assert state(stub) == before
        assert not stub.asked("^(POST|PATCH|PUT) .*annotations")

    def test_part_of_a_skeleton_is_no_label(
        self, run: Run, stub: StubServer, make_zip: MakeZip
    ) -> None:
        bad = car() | {"image/object/class/text": ["1"]}
        assert "TSK001" in run("cvat", "import", "task", 1, make_zip(bad)).out

    def test_deleted_frames(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        """As on the server: their annotations are not missing, and the loss is said."""
        stub.tasks[1].deleted = [1]
        path = make_zip(car(), car("c.jpg"), alone=True)
        ran = run("cvat", "import", "task", 1, path, "--dry-run")
        assert (ran.code, "annotations on hidden frames: 1 deleted" in ran.err) == (0, True)
        assert run("cvat", "import", "task", 1, make_zip(car("day/b.jpg"))).code == 0
        assert {one["frame"] for one in state(stub)[0]} == {1}

    def test_placeholders_are_copies(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        """Of a validation frame, under its name: what is on them is not counted as removed."""
        task = stub.tasks[1]
        task.frames[2] = task.frames[0]
        box = [20.0, 10.0, 100.0, 50.0]
        task.shapes, task.tags = [shape(0, box), shape(2, box)], []
        ran = run("cvat", "import", "task", 1, make_zip(car("a.jpg"), alone=True), "--dry-run")
        assert ran.out.splitlines()[1].split() == ["car", "(box)", "1", "1", "0", "0"]

    def test_frames_that_differ_in_their_extension(
        self, run: Run, stub: StubServer, make_zip: MakeZip
    ) -> None:
        """CVAT's import of XML takes the last of them for both."""
        frames = stub.tasks[1].frames
        frames[2] = ("a.png", *frames[0][1:])
        before = state(stub)
        ran = run("cvat", "import", "task", 1, make_zip(car("a.jpg"), alone=True), "--force")
        assert ran.code == 2
        assert "another frame of the task differs from 'a.jpg' only in its extension" in ran.err
        assert state(stub) == before
        path = make_zip(car("a.png"), alone=True)
        assert run("cvat", "import", "task", 1, path, "--force").code == 0
        assert {one["frame"] for one in state(stub)[0]} == {2}

    def test_check_command(
        self, run: Run, stub: StubServer, make_zip: MakeZip, tmp_path: Path
    ) -> None:
        path = make_zip(car("x.jpg"))
        for options in (("--cvat", "task", 1), ("--cvat", "job", 10)):
            ran = run("check", path, *options)
            assert (ran.code, "TSK002" in ran.out) == (1, True)
            assert ran.out.startswith("INVALID for CVAT:")
        # An import into a project makes new tasks, with frames of their own.
        ran = run("check", path, "--cvat", "project", 5)
        assert (ran.code, "TSK002" in ran.out) == (1, False)
        assert "IMG001 error" in ran.out
        assert "TSK002" not in run("check", make_zip(car()), "--cvat", "task", 1).out
        ran = run("check", path, "--cvat", "frame", 1)
        assert (ran.code, "pass task, job, project, then its number" in ran.err) == (2, True)
        ran = run("check", path, "--cvat", "task", 1, "--images", tmp_path)
        assert (ran.code, "--cvat excludes" in ran.err) == (2, True)

    @pytest.mark.parametrize("content", [b"", b"PK\5\6", b"text"])
    def test_no_zip(self, run: Run, stub: StubServer, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "a.bin"
        path.write_bytes(content)
        ran = run("cvat", "import", "task", 1, path)
        assert ran.code in (1, 2)
        assert not stub.asked("^POST .*annotations")

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [("dimension", "3d", "task 1 has 3d data"), ("size", 0, "task 1 has no data")],
    )
    def test_data_that_is_none(
        self, run: Run, stub: StubServer, make_zip: MakeZip, field: str, value: Any, says: str
    ) -> None:
        path = make_zip(car())
        setattr(stub.tasks[1], field, value)
        for name in ("import", "export"):
            ran = run("cvat", name, "task", 1, path, *["--overwrite"] * (name == "export"))
            assert (ran.code, says in ran.err) == (2, True)

    def test_images_of_other_tasks(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        """Refused, or skipped with whatever labels and names."""
        path = make_zip(car(), car("2.jpg"), car("z.jpg") | {"image/object/class/text": ["dog"]})
        command = ("cvat", "import", "task", 1, path)
        assert (run(*command).code, stub.asked("Upload-Start")) == (1, 0)
        ran = run(*command, "--other-frames", "skip")
        assert (ran.code, ran.err) == (
            0, "tfod: 2 images skipped: no frame of task 1 matches\n")  # fmt: skip
        assert [one["frame"] for one in stub.tasks[1].shapes] == [0]


class TestWhatComes:
    def test_attributes(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        attributes = {
            "image/object/truncated": [1],
            "image/object/occluded": [1],
            "image/object/difficult": [1],
            "image/object/attribute/colour": ["rosé & <b>"],
            "image/object/attribute/age": [2.5],
        }
        ran = run("cvat", "import", "task", 1, make_zip(car(**attributes)))
        assert ran.err == (
            "tfod: not imported: attributes that the labels do not have, or values that they do "
            "not allow: 1 difficult\n"
        )
        ran = run("check", make_zip(car(**attributes)), "--cvat", "task", 1)
        assert (ran.code, "values are lost: 1 difficult" in ran.out) == (0, True)
        (one,) = stub.tasks[1].shapes
        assert sorted(one["attributes"]) == [
            ("age", "2.5"),
            ("colour", "rosé & <b>"),
            ("truncated", "true"),
        ]
        assert one["occluded"]

    def test_label_map_of_the_user(
        self, run: Run, stub: StubServer, make_zip: MakeZip, tmp_path: Path
    ) -> None:
        path = make_zip(image() | objects([(0.1, 0.1, 0.2, 0.2)], None, [7]), label_map="")
        own = tmp_path / "own.pbtxt"
        own.write_text("item { id: 7 name: 'cat' }")
        assert run("cvat", "import", "task", 1, path).code in (1, 2)
        assert run("cvat", "import", "task", 1, path, "--label-map", own).code == 0
        assert [one["label_id"] for one in stub.tasks[1].shapes] == [12]


class TestProject:
    def test_new_tasks(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        data = jpeg(200, 100, 3)
        path = make_zip(
            car("day/a.jpg") | {"image/encoded": data, "image/object/attribute/colour": ["true"]},
            image("b") | {"image/encoded": data},
            subset="val",
        )
        ran = run("cvat", "import", "project", 5, path, "--dry-run")
        assert ran.out == (
            "new task 'val': 2 images, 1 objects\ndry run: the server was not changed\n"
        )
        assert stub.datasets == []
        assert run("cvat", "import", "project", 5, path).code == 0
        ((number, found),) = stub.datasets
        assert number == 5
        with zipfile.ZipFile(io.BytesIO(found)) as archive:
            assert archive.read("images/val/day/a.jpg") == data
            assert archive.read("images/val/b.jpg") == data
            dataset = json.loads(archive.read("annotations/val.json"))
        first, second = dataset["items"]
        assert [one["name"] for one in dataset["categories"]["label"]["labels"]] == ["car", "cat"]
        assert (first["id"], first["image"]) == ("day/a", {"path": "day/a.jpg", "size": [100, 200]})
        assert first["annotations"][0]["bbox"] == [20, 10, 80, 40]
        # A text, which CVAT would otherwise store as "True".
        assert first["annotations"][0]["attributes"] == {"colour": "true"}
        assert second["annotations"] == []

    def test_what_the_project_lacks(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        """As on the server: labels of a project without any, and all attributes, are made."""
        picture = {"image/encoded": jpeg(200, 100, 3), "image/object/class/text": ["dog"]}
        path = make_zip(car("g.jpg") | picture | {"image/object/difficult": [1]}, alone=True)
        ran = run("cvat", "import", "project", 6, path)
        assert (ran.code, ran.err) == (0, "tfod: 1 image renamed: g.jpg → g.JPG\n")
        ((_, found),) = stub.datasets
        with zipfile.ZipFile(io.BytesIO(found)) as archive:
            dataset = json.loads(archive.read("annotations/default.json"))
        labels = [one["name"] for one in dataset["categories"]["label"]["labels"]]
        (drawn,) = dataset["items"][0]["annotations"]
        assert (labels, drawn["label_id"]) == (["car", "cat", "dog"], 2)
        assert drawn["attributes"] == {"difficult": "true"}

    def test_without_images(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        ran = run("cvat", "import", "project", 5, make_zip(car(), alone=True))
        assert (ran.code, "tfod cvat import task ID" in ran.err) == (1, True)
        assert ran.out.startswith("INVALID for CVAT: 1 error,")
        assert not stub.asked("^POST .*dataset")

    def test_append(self, run: Run, make_zip: MakeZip) -> None:
        ran = run("cvat", "import", "project", 5, make_zip(car()), "--mode", "append")
        assert (ran.code, "omit --mode" in ran.err) == (2, True)

    def test_unknown_class(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        bad = car() | {"image/object/class/text": ["dog"], "image/encoded": jpeg(200, 100, 1)}
        assert "TSK001" in run("cvat", "import", "project", 5, make_zip(bad)).out
        assert stub.datasets == []


AGAIN = "may still be importing it; check task 1 before you try again"


class TestInterrupted:
    """Whatever goes wrong before the server's own work is done leaves the task as it was."""

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("PATCH", "annotations", 502, times=2),
            Fault("PATCH", "annotations", cut_before=True, times=2),
            Fault("PATCH", "annotations", cut=True, times=1),
            Fault("GET", "/api/requests/", 503, times=3),
            Fault("GET", "/api/requests/", cut=True, times=3),
        ],
        ids=lambda f: f"{f.method}{f.pattern}{f.status or 'cut'}{f.times}",
    )
    def test_passing(self, run: Run, stub: StubServer, make_zip: MakeZip, fault: Fault) -> None:
        stub.faults = [fault]
        ran = run("cvat", "import", "task", 1, make_zip(car()))
        assert (ran.code, ran.err, fault.times) == (0, "", 0)
        assert len(stub.tasks[1].shapes) == 1
        assert stub.asked("Upload-Finish") == 1

    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            (Fault("PATCH", "annotations", cut_before=True, times=99), "Too many upload errors"),
            (Fault("PATCH", "annotations", 502, times=99), "Too many upload errors"),
            (Fault("POST", "Upload-Start", 403, b'{"detail": "no"}'), "permission denied"),
            (Fault("POST", "Upload-Finish", 400, b'["bad"]'), "(400): bad"),
            (Fault("POST", "Upload-Length", 413, b'"too large"'), "too large"),
            # The end of the upload is sent once: whether the server has it is not known.
            (Fault("POST", "Upload-Finish", cut=True, times=99), AGAIN),
            (Fault("POST", "Upload-Finish", cut_before=True, times=99), AGAIN),
            (Fault("POST", "Upload-Finish", 504, times=99), AGAIN),
            (Fault("GET", "/api/requests/", 404, b'{"detail": "Not found."}', times=99), AGAIN),
        ],
    )
    def test_lasting(
        self, run: Run, stub: StubServer, make_zip: MakeZip, fault: Fault, says: str
    ) -> None:
        before = state(stub)
        stub.faults = [fault]
        ran = run("cvat", "import", "task", 1, make_zip(car()))
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert says in ran.err and AGAIN in ran.err
        assert state(stub) == before  # work that was not asked about has not run
        assert stub.asked("Upload-Finish") <= 1

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
    def test_other_answers(
        self, run: Run, stub: StubServer, make_zip: MakeZip, path: str, body: bytes
    ) -> None:
        before = state(stub)
        method = "POST" if path in ("auth/login", "Upload-Finish") else "GET"
        stub.faults = [Fault(method, path, 200, body, times=99)]
        ran = run("cvat", "import", "task", 1, make_zip(car()))
        if ran.code:
            assert ran.err.count("\n") == 1 or (path, ran.code) == ("labels", 1)
            assert state(stub) == before
        else:
            assert path == "server/about"

    def test_failed_work(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        before = state(stub)
        stub.import_error = (
            "cvat.apps.dataset_manager.bindings.CvatImportError: Could not match\n 'x'"
        )
        ran = run("cvat", "import", "task", 1, make_zip(car()))
        assert ran.err == f"tfod: {stub.url} reported an error: Could not match 'x'\n"
        assert (ran.code, state(stub)) == (2, before)

    def test_format_is_missing(self, run: Run, stub: StubServer, make_zip: MakeZip) -> None:
        stub.formats = ["COCO 1.0"]
        ran = run("cvat", "import", "task", 1, make_zip(car()))
        assert (ran.code, "does not import 'CVAT 1.1'" in ran.err) == (2, True)
        assert not stub.asked("Upload-Start")

    @pytest.mark.skipif(sys.platform == "win32", reason="signals")
    @pytest.mark.parametrize(
        ("method", "pattern"), [("PATCH", "annotations"), ("GET", "/api/requests/")]
    )
    def test_ctrl_c(self, stub: StubServer, make_zip: MakeZip, method: str, pattern: str) -> None:
        before = state(stub)
        processes: list[subprocess.Popen[str]] = []

        def interrupt() -> None:
            processes[0].send_signal(signal.SIGINT)
            # Its answer would otherwise be there before the signal.
            processes[0].wait(TIMEOUT)

        stub.faults = [Fault(method, pattern, cut_before=True, call=interrupt)]
        command = ["cvat", "import", "task", "1", str(make_zip(car()))]
        options = ["--server", stub.url]
        process = subprocess.Popen(
            [sys.executable, "-m", "tfod.cli.main", *command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "127.0.0.1", **LOGIN},
            # Whoever started the tests in the background has it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        processes.append(process)
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 130
        assert AGAIN in err
        assert "Traceback" not in err
        assert state(stub) == before


def test_absent_sdk(make_zip: MakeZip, stub: StubServer) -> None:
    script = (
        "import sys; sys.modules['cvat_sdk'] = None\n"
        "from tfod.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = ("cvat", "import", "task", 1, make_zip(car()), "--server", stub.url)
    assert run_python("-c", script, *command).refused() == (
        "tfod: access to CVAT needs cvat-sdk; pip install '.[cvat]' in a clone of tfod\n"
    )

"""TSK: the CVAT task that a shard is for."""

from __future__ import annotations

import pickle
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfod.checker.analysis.batch import ImageRow
from tfod.checker.analysis.result import DatasetResult, ShardResult
from tfod.checker.finding import Findings, Location
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY
from tfod.checker.references.cvat_task import Frame, Task, load_task
from tfod.checker.rules.registry import run_rules
from tfod.detection.labels.fuzzy_names import index_labels
from tfod.errors import TfodError
from tfod.formats.cvat.document import read_cvat_xml
from tfod.sources.resolved import Dataset

from tests.checker import FILES
from tests.checker.conftest import ReportOf
from tests.commands import run_python
from tests.hostile import growths
from tests.image_kinds import plain_image
from tests.records import encode, image, write_shard
from tests.zip_forge import Item, forge, real_zip

# CVAT 2.15 writes these in dataset_manager/formats/cvat.py and bindings.py.
IMAGES_XML, VIDEO_XML = ((FILES / f"{name}.xml").read_text() for name in ("images", "video"))
Write = Callable[[str, "str | bytes"], str]
XML = "annotations.xml"


def video(**changes: object) -> str:
    defaults = {"kind": "task", "mode": "interpolation", "start": 0, "stop": 4}
    return VIDEO_XML.format(**(defaults | {"filter": "", "segment": 0} | changes))


def task_of(*names: str) -> Task:
    return Task(frames=tuple(Frame(name, number, 100, 200) for number, name in enumerate(names)))


def row_of(name: str, number: int = 0, size: Any = (100, 200), boxes: int = 1) -> ImageRow:
    return ImageRow(Location("train.record", number, 0, name), name, *size, boxes)


def checked(
    task: Task, rows: Sequence[ImageRow] = (), classes: dict[str, int] | None = None
) -> list[str]:
    """The findings, each with its code."""
    levels = {name: one for name, one in resolve_levels().items() if name[:3] == "TSK"}
    uses = Counter({(text, None): count for text, count in (classes or {}).items()})
    result = DatasetResult(Dataset(""), READY["cvat"], Findings(1000, levels), task=task)
    result.add(ShardResult("train.record", "train", rows=list(rows), uses=uses))
    run_rules(result, result.findings, of_dataset=True)
    listed = result.findings.listed
    return [f"{code} {one.message}" for code in sorted(listed) for one in listed[code]]


def messages(task: Task, rows: Sequence[ImageRow]) -> list[str]:
    """The findings except for coverage, which has its own tests."""
    return [one for one in checked(task, rows) if not one.startswith("TSK005")]


def codes_of(task: Task, *names: str) -> list[str]:
    rows = [row_of(name, number) for number, name in enumerate(names)]
    return [message[:6] for message in messages(task, rows)]


def test_images(write: Write) -> None:
    task = load_task(cvat_xml=write("annotations.xml", IMAGES_XML))
    frames = tuple(task_of("day/a.jpg", "day/b.jpg", "day/c.v1.jpg").frames or ())
    assert (task.labels, task.frames, task.video) == ({"car", "s1"}, frames, False)
    assert pickle.loads(pickle.dumps(task)) == task


def test_videos_and_jobs(write: Write) -> None:
    task = load_task(cvat_xml=write("a.xml", video(start=10, stop=30, filter="step=10")))
    frames = tuple(Frame(f"frame_0000{n + 1}0", n, 480, 640) for n in range(3))
    assert task.video and task.frames == frames
    job = load_task(cvat_xml=write("a.xml", video(kind="job", start=5, stop=9, segment=5)))
    assert [frame.number for frame in job.frames or ()] == [5, 6, 7, 8, 9]


def test_images_as_video_have_no_names(write: Write, tmp_path: Path) -> None:
    path = write("a.xml", video(mode="annotation"))
    task = load_task(cvat_xml=path)
    assert task.frames is None
    (message,) = checked(task, [row_of("a.jpg")], {"person": 1})
    assert message.startswith(f"TSK007 {path} has no frame names")
    write("x/a.jpg", plain_image((20, 10)))
    assert load_task(cvat_xml=path, images=str(tmp_path)).without_frames is None


def test_project(write: Write) -> None:
    head, _, images = IMAGES_XML.partition("<task>")
    body, _, rest = images.partition("</task>")
    text = (
        f"{head}<project><tasks><task>{body}</task><task>{body}</task></tasks>"
        f"<labels><label><name>bus</name></label></labels></project>{rest}"
    ).replace('name="day/b.jpg"', 'name="day/a.jpg" subset="val" task_id="5"')
    task = load_task(cvat_xml=write("a.xml", text))
    assert task.project and "bus" in (task.labels or ())
    assert codes_of(task, "day/a.jpg", "day/a.jpg", "day/c.v1.jpg") == []
    assert codes_of(task, "day/a.jpg", "day/a.jpg", "day/a.jpg") == ["TSK006"]
    assert codes_of(task, "1.jpg") == ["TSK002"]  # numbers identify no frame of several tasks


@pytest.mark.parametrize("wrap", ["{}", '{{"labels": {}}}', '{{"count": 1, "results": {}}}'])
def test_labels(write: Write, wrap: str) -> None:
    """The raw editor, a task's description and the server's API."""
    labels = '[{"name": "кот", "id": 1, "type": "skeleton", "sublabels": [{"name": "1"}]}]'
    path = write("labels.json", wrap.format(labels))
    assert load_task(cvat_labels=path) == Task(frozenset({"кот"}), {"кот": set()})


def test_images_on_disk(write: Write, tmp_path: Path) -> None:
    write("in/b.JPG", plain_image((20, 10)))
    write("in/sub/a.jpg", plain_image((40, 30)))
    write("in/broken.png", b"no image")
    for name in ("empty.png", "notes.txt"):
        write(f"in/{name}", b"")
    assert load_task(images=str(tmp_path / "in")).frames == (
        Frame("b.JPG", 0, 10, 20),
        Frame("broken.png", 1, None, None),
        Frame("empty.png", 2, None, None),
        Frame("sub/a.jpg", 3, 30, 40),
    )


ENTITIES = zip("abcdefghij", "bcdefghijk", strict=True)
LAUGHS = "".join(f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in ENTITIES)
LAUGHS = f'<!DOCTYPE x [<!ENTITY a "haha">{LAUGHS}]>'
PASSWD = '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><annotations><meta>&f;</meta>'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS + "<annotations><meta>&k;</meta></annotations>", "a.xml"),
        (LAUGHS + '<annotations><meta a="&k;"/></annotations>', "a.xml"),
        (PASSWD + "</annotations>", "document type"),
        ('<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><annotations/>', "document type"),
        ("<annotations>\n<meta>\n</annotations>", "line 3"),
        ("", "not well-formed XML"),
        ("no XML", "not well-formed XML"),
        ("<annotation/>", "<annotation>"),
        ("<annotations/>", "no <meta>"),
        ("<annotations><image id='0' name='a'/></annotations>", "no <meta> before"),
        (video(stop=10**12), "has more than 1,000,000 frames; export the task in parts"),
        (video(filter="step=many"), "'many'"),
        (IMAGES_XML.replace('width="200"', 'width="wide"'), "line 11"),
        ("\n<annotations>" + "<a>" * 300 + "</a>" * 300 + "</annotations>", "epth"),
        (
            f"<annotations><meta>{'a' * 11_000_000}</meta>",
            "not well-formed XML .*(huge|long|limit)",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_xml(write: Write, text: str, reason: str) -> None:
    path = write("a.xml", text)
    with pytest.raises(TfodError, match=reason) as caught:
        load_task(cvat_xml=path)
    message = str(caught.value)
    assert "\n" not in message and path in message and "root:" not in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[\n{"name": "cat",}]', "line 2"),
        ('{"name": "cat"}', "not a list of labels"),
        ('["cat"]', "not a list of labels"),
        ("[]", "lists no labels"),
        ("[" * 100_000, "labels.json"),
        (b'["\xff"]', "UTF-8"),
        ("[" + "1" * 5000 + "]", "labels.json"),
    ],
)
def test_invalid_labels(write: Write, text: str | bytes, reason: str) -> None:
    with pytest.raises(TfodError, match=reason) as caught:
        load_task(cvat_labels=write("labels.json", text))
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    for option in ("cvat_xml", "cvat_labels", "images"):
        with pytest.raises(TfodError, match="nowhere"):
            load_task(**{option: nowhere})
    with pytest.raises(TfodError, match="contains no images"):
        load_task(images=str(tmp_path))
    with pytest.raises(TfodError, match="cannot be read"):
        load_task(cvat_xml=str(tmp_path))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (real_zip([("a.txt", b"")]), r"no annotations\.xml"),
        (real_zip([(f"{one}/{XML}", b"") for one in "ab"]), r"several annotations\.xml"),
        (real_zip([(XML, b"<annotations/>")])[:-30], "not a readable zip"),
        (forge(Item(XML, b"<annotations/>", crc=1)), "is damaged: its CRC-32"),
        (forge(Item(XML, b"<annotations/>", flags=1)), "is encrypted"),
    ],
)
def test_invalid_zips(write: Write, data: bytes, reason: str) -> None:
    with pytest.raises(TfodError, match=reason):
        load_task(cvat_xml=write("export.zip", data))


@pytest.mark.parametrize("inside", ["", "<image>", "<image><points>", "<meta>", "<track>"])
def test_a_bomb_is_refused(tmp_path: Path, inside: str) -> None:
    path = write_bomb(tmp_path / "bomb.zip", inside, b"<a b='%s'/>" % (b"x" * 990), 21)
    assert path.stat().st_size < 100_000
    with pytest.raises(TfodError, match="the maximum is"):
        load_task(cvat_xml=str(path))


@pytest.mark.parametrize("inside", ["<image>", "<image><points>", "<track>"])
def test_elements_in_memory_are_limited(write: Write, monkeypatch: Any, inside: str) -> None:
    monkeypatch.setattr("tfod.formats.reading.documents._MAX_CHILD_SIZE", 300)
    head = "<annotations>\n" + "<image id='0' name='a.jpg'><points/></image>\n" * 3
    path = write("a.xml", head.replace("\n", "\n<meta/>", 1) + inside + "<box a=''/>" * 200)
    kind = inside[1:].partition(">")[0]
    with pytest.raises(TfodError, match=rf"<{kind}> in line 5 contains more than 300 elements"):
        list(read_cvat_xml(path))


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux")
@pytest.mark.parametrize(("inside", "most"), [("", 60_000), ("<image>", 450_000)])
def test_a_bomb_takes_little_memory(tmp_path: Path, inside: str, most: int) -> None:
    path = write_bomb(tmp_path / "bomb.zip", inside, b"<a/>", 40)
    script = (
        "import resource, sys, lxml.etree\n"
        "from tfod.checker.references.cvat_task import load_task\n"
        "from tfod.errors import TfodError\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "try: load_task(cvat_xml=sys.argv[1])\n"
        "except TfodError: print(used() - before)"
    )
    # The whole file would take 1.3 GB.
    assert int(run_python("-c", script, path).out) < most


def write_bomb(path: Path, inside: str, element: bytes, megabytes: int) -> Path:
    """A zip with a very long ``annotations.xml``."""
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("annotations.xml", "w") as file:
        file.write(f"<annotations><meta/>{inside}".encode())
        for _ in range(megabytes):
            file.write(element * (1_000_000 // len(element)))
    return path


TASK = ("day/a.jpg", "day/b.jpg", "night/c.v1.jpg")
MATCHED = {
    "extensions do not count": (TASK, ["day/a.jpg", "day/b.png", "night/c.v1"], []),
    "backslashes": (TASK, ["day\\a.jpg"], []),
    "no common folder": (["set/day/a.jpg", "set/day/b.jpg"], ["day/a.jpg", "day/b.jpg"], []),
    "any order": (["day/a.jpg", "day/b.jpg"], ["b.jpg", "a.jpg"], []),
    "no folders": (TASK, ["a.jpg", "c.v1.jpg"], []),
    # The last part decides if it is unique, for example for paths of another machine.
    **{
        f"another folder: {name}": (["a.jpg", "day/b.jpg"], [name, "day/b.jpg"], [])
        for name in ("JPEGImages/a.jpg", "/data/JPEGImages/a.jpg", "C:\\data\\a.png")
    },
    **{
        f"two candidates: {name}": (["a.jpg", "day/b.jpg", "night/b.jpg"], [name], ["TSK002"])
        for name in ("JPEGImages/b.jpg", "/data/JPEGImages/b.jpg", "night/a.jpg")
    },
    "two folders of one frame": (["a.jpg", "b.jpg"], ["one/a.jpg", "two/a.jpg"], ["TSK006"]),
    "no name": (TASK, [""], ["TSK002"]),
    "a number": (TASK, ["000001.jpg"], ["TSK003"]),
    "numbers as names": (["000001.jpg", "000000.jpg"], ["000000.jpg", "000001.jpg"], []),
    "a number without a frame": (TASK, ["000003.jpg"], ["TSK002"]),
    "a long number": (TASK, ["9" * 5000], ["TSK002"]),
    "digits without a video": (TASK, ["frame_000001"], ["TSK002"]),
    # The whole name decides; CVAT's own lookup knows only the latter of the two.
    "extensions differ": (["a.jpg", "a.png"], ["a.jpg", "a.png"], []),
    "a third extension": (["a.jpg", "a.png"], ["a.png", "a.gif"], ["TSK006"]),
}
"""Names of the task's frames, names of records, and the codes of the findings."""


@pytest.mark.parametrize("case", MATCHED)
def test_the_frame_of_a_record(case: str) -> None:
    frames, names, codes = MATCHED[case]
    assert codes_of(task_of(*frames), *names) == codes


NO_FRAME = "TSK002 image {!r} matches no frame of the task"
NEAREST = NO_FRAME + "; the nearest is 'day/a.jpg'"
BY_NUMBER = "TSK003 no frame has the name of image {!r}, which is attached to frame 1, {!r}"
VIDEO = Task(frames=tuple(Frame(f"frame_{10 * n:06d}", n, 100, 200) for n in range(3)), video=True)


@pytest.mark.parametrize(
    ("task", "rows", "expected"),
    [
        *(
            (task_of(*TASK), [row_of(name)], [text.format(name)])
            for text, names in (
                (NO_FRAME, ("images/Day-A.jpg", "day/zzz.jpg", "x")),
                (NEAREST, ("images/A.jpg", "a .jpg", "night/a.jpeg")),
            )
            for name in names
        ),
        (task_of(*TASK), [row_of("1.jpg")], [BY_NUMBER.format("1.jpg", "day/b.jpg")]),
        (VIDEO, [row_of("frame_000000.jpg"), row_of("frame_000020.PNG")], []),
        (
            VIDEO,
            [row_of("frame_000001.jpg"), row_of("frame_000003")],
            [NO_FRAME.format("frame_000003"), BY_NUMBER.format("frame_000001.jpg", "frame_000010")
             + " because of the digits after its sixth letter"],
        ),
        (
            task_of(*TASK),
            [row_of("day/a.jpg", size=(50, 200)), row_of("day/b.jpg", 1, (200, 100))],
            ["TSK004 image is 200x50, frame 'day/a.jpg' is 200x100",
             "TSK004 image is 100x200, frame 'day/b.jpg' is 200x100: one of them is rotated, as by "
             "an EXIF orientation"],
        ),
        # Sizes are unknown.
        (task_of(*TASK), [row_of("day/a.jpg", size=(None, None))], []),
        (Task(frames=(Frame("a.jpg", 0, None, None),)), [row_of("a.jpg")], []),
        (
            task_of("a.jpg"),
            [row_of("a.jpg", 3), row_of("a.png", 4)],
            ["TSK006 image 'a.png' matches frame 'a.jpg', as does 'a.jpg' "
             "(train.record, record 3)"],
        ),
    ],
)  # fmt: skip
def test_messages(task: Task, rows: Sequence[ImageRow], expected: Sequence[str]) -> None:
    assert messages(task, rows) == expected


def test_frames_without_annotations() -> None:
    (message,) = checked(task_of(*TASK), [row_of("day/a.jpg"), row_of("day/b.jpg", 1, boxes=0)])
    assert message.startswith("TSK005 2 of the task's 3 frames get no annotations: ")
    assert (
        "1 without a record (night/c.v1.jpg), 1 with a record without boxes (day/b.jpg)" in message
    )
    (message,) = checked(task_of(*(f"{number}.jpg" for number in range(100))))
    assert message.endswith("(0.jpg, 1.jpg, 2.jpg, 3.jpg, 4.jpg and 95 more)")


@pytest.mark.parametrize(
    ("frames", "annotated", "job", "names", "codes"),
    [
        (TASK, {0, 1}, None, ["day/a.jpg"], ["TSK009"]),
        (TASK, {0, 1}, None, ["day/a.jpg", "day/b.jpg"], []),
        (TASK, {0, 1}, None, ["night/c.v1.jpg"], ["TSK009"]),
        # A frame that stands for another one has its name, and is written with it.
        (["a.jpg", "b.jpg", "a.jpg"], {0, 1, 2}, None, ["a.jpg", "b.jpg"], []),
        # Frames of another job have another finding.
        (TASK, {1}, {1, 2}, ["day/a.jpg"], []),
        (TASK, {1}, {1, 2}, ["day/a.jpg", "night/c.v1.jpg"], ["TSK009"]),
    ],
)
def test_deleted_annotations(frames: Any, annotated: Any, job: Any, names: Any, codes: Any) -> None:
    how = {"annotated": frozenset(annotated)} | ({"job_frames": frozenset(job)} if job else {})
    assert codes_of(replace(task_of(*frames), **how), *names) == codes


def test_a_class_without_a_label() -> None:
    task = Task(labels=frozenset({"traffic light", "car"}))
    (message,) = checked(task, classes={"Traffic_Light": 3, "car": 9})
    assert message.startswith("TSK001 class 'Traffic_Light' of 3 boxes is not a label of the task")
    assert message.endswith("did you mean 'traffic light'?")
    labels = index_labels(frozenset({"cat", "dog"}))
    for text, nearest in (("Cat", "cat"), (" cat ", "cat"), ("catt", "cat"), ("zebra", None)):
        assert labels.find_nearest(text) == nearest


@pytest.mark.parametrize("name", ["e/x{:06d}.jpg", "d/{:06d}.jpg"], ids=["none", "all"])
def test_twice_the_frames_are_twice_the_work(tmp_path: Path, name: str) -> None:
    def check(path: Path) -> None:
        count = int(path.read_bytes())
        rows = [row_of(name.format(number), number) for number in range(count)]
        checked(task_of(*(f"d/{number:06d}.jpg" for number in range(count))), rows)

    first, second = growths(check, tmp_path, lambda count: {"count": b"%d" % count}, 200)
    assert second <= 2.6 * first  # like in test_linear.py


def test_images_of_another_dataset(report_of: ReportOf, tmp_path: Path) -> None:
    """If no image matches, the dataset is wrong, not the names."""
    shards = tmp_path / "s"
    write_shard(shards, "train", *(encode(image(name)) for name in ("a.jpg", "b.jpg")))
    for names, is_other in ((("x.jpg", "y.jpg"), True), (("a.jpg", "y.jpg"), False)):
        images = tmp_path / names[0]
        images.mkdir()
        for name in names:
            Image.new("RGB", (200, 100)).save(images / name)
        findings = report_of(shards, "--images", images)[1]["findings"]
        fixes = [found["fix"] for found in findings if found["code"] == "TSK002"]
        assert len(fixes) == (2 if is_other else 1)
        assert all(("this dataset" in fix) is is_other for fix in fixes)

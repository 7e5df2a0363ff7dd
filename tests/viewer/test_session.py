"""A session of the viewer: index, filters, findings as they arrive, and cards."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tfod.checker.check import Options, check
from tfod.errors import TfodError
from tfod.sources.resolver import resolve
from tfod.tfrecord.writer import write_records
from tfod.viewer.session import Session

from tests.files import write_files
from tests.mutants.sound import LABEL_MAP, flip, frame, jpeg, other, record, shard, with_boxes
from tests.records import encode
from tests.zip_forge import real_zip

BOX = (0.25, 0.25, 0.5, 0.75)
OUTSIDE = (0.5, 0.25, 1.6, 0.75)
PICTURE = "data:image/jpeg"


@contextmanager
def session_of(*sources: Path, **options: Any) -> Iterator[Session]:
    """A session in which no step was taken."""
    with ExitStack() as stack:
        resolved = stack.enter_context(resolve(list(map(str, sources))))
        session = Session(resolved, Options(**options))
        stack.callback(session.close)
        yield session


def finish(session: Session) -> Session:
    list(session.steps())
    return session


def write(folder: Path, **shards: Sequence[bytes]) -> Path:
    """Write shards with a label map of cat and dog."""
    files = {f"{name}.tfrecord": shard(*payloads) for name, payloads in shards.items()}
    return write_files(folder, {**files, "label_map.pbtxt": LABEL_MAP})


def numbers(session: Session, **choice: Any) -> list[tuple[int, int]]:
    rows = session.select(**choice)["rows"]
    return [(row["shard"], row["number"]) for row in rows]


def named(count: int, dogs: Sequence[int] = ()) -> list[bytes]:
    return [
        with_boxes(
            [BOX], ["dog" if n in dogs else "cat"], [2 if n in dogs else 1], filename=f"{n}.jpg"
        )
        for n in range(count)
    ]


def test_filters_and_positions(tmp_path: Path) -> None:
    """A class of any shard; rows in parts; the position of a record or of the next match."""
    write(
        tmp_path, train=named(60, dogs=(3, 55)), val=[*named(4, dogs=(1,)), with_boxes([OUTSIDE])]
    )
    with session_of(tmp_path) as session:
        finish(session)
        overview = session.overview()
        assert (overview["records"], overview["shards"], overview["complete"]) == (65, 2, True)
        assert {x["name"]: x["records"] for x in overview["classes"]} == {"cat": 62, "dog": 3}
        assert {x["name"]: x["records"] for x in overview["subsets"]} == {"train": 60, "val": 5}
        assert numbers(session, class_name="dog") == [(0, 3), (0, 55), (1, 1)]
        assert numbers(session, class_name="dog", subset="val") == [(1, 1)]
        assert numbers(session, rule="BOX003") == [(1, 4)]
        assert numbers(session, rule="BOX003", class_name="dog") == []
        assert numbers(session, rule="BOX003", class_name="cat") == [(1, 4)]
        (rule,) = (x for x in overview["rules"] if x["code"] == "BOX003")
        assert (rule["severity"], rule["records"]) == ("error", 1)
        part = session.select(count=50, shard=1, number=2)
        assert (part["total"], part["start"], part["position"]) == (65, 50, 62)
        assert part["is_match"] and len(part["rows"]) == 15
        assert part["rows"][10]["name"] == "0.jpg"
        assert part["rows"][-1]["severity"] == "error"
        assert numbers(session, start=59, count=3) == [(0, 59), (1, 0), (1, 1)]
        part = session.select(class_name="dog", shard=0, number=4)
        assert (part["position"], part["is_match"]) == (1, False)
        assert session.select(class_name="dog", shard=1, number=2)["position"] == 3


def test_findings_arrive_and_the_report_completes_them(tmp_path: Path) -> None:
    """Duplicates are found when all is read; the report is that of a check."""
    records = [with_boxes([BOX, OUTSIDE]), other(), other()]
    with session_of(write(tmp_path, a=records) / "a.tfrecord") as session:
        versions = [session.overview()["version"]]
        for read, count in session.steps():
            versions.append(session.overview()["version"])
            assert read and count == 3 and not session.overview()["complete"]
        assert {x["code"] for x in session.overview()["rules"]} >= {"BOX003"}
        versions.append(session.overview()["version"])
        assert versions[0] < versions[-2] < versions[-1]
        with resolve([str(tmp_path / "a.tfrecord")]) as sources:
            report = check(sources)
        assert session.report is not None
        assert session.report.findings == report.findings
        found = {finding.code for finding in report.findings if finding.record is not None}
        assert {x["code"] for x in session.overview()["rules"]} == found
        card = session.record(number=0)
        assert card["findings"] == session.overview(number=0)["findings"] >= 1
        assert card["html"].count('class="box bad"') == 1
        assert "BOX003" in card["html"] and "Fix:" in card["html"]
        assert not re.findall('(?:href|src|id)="(?!data:)', card["html"])  # links of a report


def test_the_most_severe_rules_come_first_and_fixes_name_the_cause(tmp_path: Path) -> None:
    swapped = [with_boxes([(0.7, 0.2, 0.2, 0.7)])] * 4
    wrong = with_boxes([BOX], ["bird"], [9])
    with session_of(write(tmp_path, a=[*swapped, wrong, other()])) as session:
        finish(session)
        rules = [(x["code"], x["severity"]) for x in session.overview()["rules"]]
        errors = [code for code, severity in rules if severity == "error"]
        assert "LAB006" in errors and errors == sorted(errors)
        assert [code for code, _ in rules[: len(errors)]] == errors
        assert {"IMG010"} < {code for code, _ in rules[len(errors) :]}
        assert "See BOX013" in session.record(number=0)["html"]


def test_the_most_severe_finding_of_a_card_comes_first(tmp_path: Path) -> None:
    wrong = with_boxes([BOX], ["cat"], [2], encoded=b"none", sha256=None)
    with session_of(write(tmp_path, a=[wrong, other()])) as session:
        html = finish(session).record(number=0)["html"]
        assert re.findall(r'class="key code">(\w+)<', html) == ["IMG002", "LAB008"]


def test_the_end_of_a_check_changes_the_version(tmp_path: Path) -> None:
    """The page reads the cards again, whose fixes may be different."""
    with session_of(write(tmp_path, a=named(1))) as session:
        version = session.overview()["version"]
        assert finish(session).overview()["version"] > version
        assert session.overview()["rules"] == []


def test_only_the_first_findings_are_listed(tmp_path: Path) -> None:
    with session_of(write(tmp_path, a=[with_boxes([OUTSIDE])] * 5), max_findings=3) as session:
        finish(session)
        rules = {x["code"]: (x["records"], x["has_more"]) for x in session.overview()["rules"]}
        assert rules["BOX003"] == (3, True)
        assert numbers(session, rule="BOX003") == [(0, 0), (0, 1), (0, 2)]
        assert numbers(session, rule="any") == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_records_are_reached_before_the_check_reads_them(tmp_path: Path) -> None:
    write(tmp_path, a=named(9), b=named(5))
    with session_of(tmp_path) as session:
        assert PICTURE in session.record(0, 0)["html"]
        assert session.select()["total"] == 2  # the next one is known
        assert session.record(0, 8)["name"] == "8.jpg"
        assert session.select()["total"] == 10  # and the first one of the next shard
        assert session.record(1, 4)["name"] == "4.jpg"
        with pytest.raises(TfodError, match=r"record 9: "):
            session.record(0, 9)
        finish(session)
        assert session.select()["total"] == 14
        with pytest.raises(TfodError, match="the last record is 8"):
            session.record(0, 9)
        for wrong in ((2, 0), (0, -1), (-1, 0)):
            with pytest.raises(TfodError):
                session.record(*wrong)


@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_compressed_shards_are_read_forward_and_backward(kind: str, tmp_path: Path) -> None:
    path, data = tmp_path / f"a.{kind}", shard(*named(300, dogs=(299,)))
    names = [("a.tfrecord", data), ("label_map.pbtxt", LABEL_MAP)]
    path.write_bytes(gzip.compress(data) if kind == "gzip" else real_zip(names))
    with session_of(path) as session:
        with pytest.raises(TfodError, match="not reached"):
            session.record(0, 7)
        finish(session)
        for number in (7, 299, 298, 0):
            assert session.record(0, number)["name"] == f"{number}.jpg"
        assert numbers(session, class_name="dog") == [(0, 299)]


def test_damaged_records_have_a_card(tmp_path: Path) -> None:
    """Numbers are those of the report, also after damage, in the middle and at the end."""
    data = shard(*named(3))
    size = len(frame(named(1)[0]))
    data = flip(flip(data, size + 50), len(data) - 1)
    write_files(tmp_path, {"a.tfrecord": data, "label_map.pbtxt": LABEL_MAP})
    with session_of(tmp_path / "a.tfrecord") as session:
        assert "cannot be read" in session.record(0, 1)["html"]
        finish(session)
        assert numbers(session, rule="TFR004") == [(0, 1), (0, 2)]
        assert "TFR004" in session.record(0, 1)["html"]
        assert numbers(session, class_name="cat") == [(0, 0)]
        assert [row["name"] for row in session.select()["rows"]] == ["0.jpg", "", ""]


def test_a_damaged_header_ends_the_walk_but_not_the_check(tmp_path: Path) -> None:
    data = shard(*named(4))
    data = flip(data, len(frame(named(1)[0])) + 2)
    write_files(tmp_path, {"a.tfrecord": data, "label_map.pbtxt": LABEL_MAP})
    with session_of(tmp_path / "a.tfrecord") as session:
        with pytest.raises(TfodError, match="not reached"):
            session.record(0, 3)
        finish(session)
        last = session.select()["total"] - 1
        assert session.record(0, last)["name"] == "3.jpg"


def test_records_without_images_and_image_labels(tmp_path: Path) -> None:
    labels = {"image/class/label": [2], "image/class/text": ["dog"]}
    records = [record(encoded=None), record("b.jpg", **labels), record(text=None, label=[1, 9])]
    with session_of(write(tmp_path, a=records)) as session:
        finish(session)
        assert PICTURE not in session.record(0, 0)["html"]
        assert numbers(session, class_name="#9") == [(0, 2)]
        assert numbers(session, class_name="cat") == [(0, 0), (0, 1), (0, 2)]
        assert numbers(session, class_name="dog") == [(0, 0), (0, 1)]


def test_texts_of_records_are_not_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    write_records(tmp_path, "a", [with_boxes([OUTSIDE], [evil], [1], filename=evil)])
    with session_of(tmp_path) as session:
        html = finish(session).record(0, 0)["html"]
        assert evil not in html and html.count("&lt;script&gt;") >= 2


def test_names_with_control_characters(tmp_path: Path) -> None:
    names = ["a\0b", "c\x1bd", "e"]
    write(tmp_path, a=[with_boxes([BOX], filename=name) for name in names])
    with session_of(tmp_path) as session:
        rows = finish(session).select()["rows"]
        assert [row["name"] for row in rows] == ["a b", "c\\x1bd", "e"]


def test_the_viewer_and_the_check_have_the_same_limit(tmp_path: Path) -> None:
    small, large = named(1)[0], with_boxes([BOX], encoded=jpeg() + bytes(9999))
    write(tmp_path, a=[small, large])
    with session_of(tmp_path, max_record_bytes=len(large) - 1) as session:
        assert PICTURE in session.record(number=0)["html"]
        assert PICTURE not in session.record(number=1)["html"]
        (rule,) = (x for x in finish(session).overview()["rules"] if x["code"][:3] == "TFR")
        assert rule["records"] == 1


def test_a_shard_that_was_removed(tmp_path: Path) -> None:
    write(tmp_path, a=named(2), b=named(1))
    with session_of(tmp_path) as session:
        assert PICTURE in finish(session).record(0, 0)["html"]
        (tmp_path / "b.tfrecord").unlink()
        assert "cannot be read" in session.record(1, 0)["html"]


def test_answers(tmp_path: Path) -> None:
    """Requests come from a page that may be of another version."""
    with session_of(write(tmp_path, a1=named(2), a2=named(1))) as session:
        finish(session)
        assert session.answer("overview", {}) == session.overview()
        assert session.answer("shards", {})["names"] == ["a1.tfrecord", "a2.tfrecord"]
        assert (
            session.answer("select", {"rule": None, "start": 1})["rows"]
            == session.select()["rows"][1:]
        )
        narrow, wide = (session.answer("record", {"width": width}) for width in (20, 60))
        assert narrow["html"] != wide["html"]
        for width, limit in ((-1, 16), (10**9, 80)):
            assert session.record(width=width)["html"] == session.record(width=limit)["html"]
        for method, arguments in (
            ("close", {}),
            ("record", {"number": "0"}),
            ("record", {"number": True}),
            ("select", {"self": 1}),
            ("select", {"rule": 3}),
        ):
            with pytest.raises(TfodError):
                session.answer(method, arguments)


def test_a_check_that_cannot_run(tmp_path: Path) -> None:
    """Masks of whole images are not checked; the page says so."""
    mask = {"image/segmentation/class/encoded": b"x", "image/encoded": b"y"}
    write_records(tmp_path, "a", [encode(mask)])
    with session_of(tmp_path) as session:
        with pytest.raises(TfodError):
            finish(session)
        overview = session.overview()
        assert overview["complete"] and "DeepLab" in overview["problem"]


def test_an_unexpected_end_of_the_check(tmp_path: Path) -> None:
    """The page is told, instead of waiting forever."""

    class Runner:
        def examine(self, *_: object) -> NoReturn:
            raise MemoryError

    write(tmp_path, a=named(1))
    with session_of(tmp_path, runner=Runner()) as session:
        with pytest.raises(MemoryError):
            finish(session)
        overview = session.overview()
        assert (overview["complete"], overview["problem"]) == (True, "MemoryError")
        assert session.record()["name"] == "0.jpg"


def test_a_file_that_is_not_a_shard_shows_why(tmp_path: Path) -> None:
    """It has one row, with the finding of the file; the other shard is as usual."""
    write(tmp_path, b=named(2))
    (tmp_path / "a.tfrecord").write_text("This is a text, and not a TFRecord file.")
    with session_of(tmp_path) as session:
        finish(session)
        assert numbers(session, rule="TFR001") == [(0, 0)]
        card = session.record(shard=0, number=0)
        assert card["findings"] == 1 and "not a TFRecord file" in card["html"]
        assert "Fix" in card["html"]
        assert numbers(session) == [(0, 0), (1, 0), (1, 1)]


def test_findings_that_are_not_about_a_record_are_counted(tmp_path: Path) -> None:
    write(tmp_path, a=named(2))
    (tmp_path / "label_map.pbtxt").unlink()
    with session_of(tmp_path) as session:
        assert session.overview()["others"] == 0
        finish(session)
        assert session.report is not None
        without = [finding for finding in session.report.findings if finding.record is None]
        assert "LAB001" in {finding.code for finding in without}
        assert session.overview()["others"] == len(without)
        assert [x["name"] for x in session.overview()["subsets"]] == ["a"]

"""``tfod check --since REPORT``: what has not changed counts, and is not read again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.check import check
from tfod.check.sources.inventory import Location
from tfod.check.sources.search import take_inventory

from tests.commands import Run
from tests.conftest import examples
from tests.mutants.sound import shard
from tests.records import encode, image, objects, write_shard

EXAMPLE = Path(__file__).parents[2] / "examples" / "shapes_good.zip"
SOUND, INVERTED = (0.1, 0.2, 0.3, 0.4), (0.5, 0.2, 0.3, 0.4)
_FIGURES = ("shards", "records", "images", "decoded", "boxes", "findings", "by_code", "by_severity")


def records_of(name: str, bad: int, text: str = "cat") -> list[bytes]:
    return [
        encode(
            {
                **image(f"{name}-{number}.jpg"),
                **objects([INVERTED if number < bad else SOUND], [text], [1]),
                "image/source_id": f"{name}{number}",
            }
        )
        for number in range(3)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, bad in (("a", 0), ("b", 2), ("c", 0)):
        write_shard(tmp_path / "data", name, *records_of(name, bad))
    return tmp_path / "data"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are opened to be read."""
    names: list[str] = []
    open_it = Location.open

    def note(location: Location, *how: Any, **more: Any) -> Any:
        names.append(os.path.basename(location.name))
        return open_it(location, *how, **more)

    monkeypatch.setattr(Location, "open", note)
    return names


def report_of(run: Run, folder: Path, *more: object) -> dict[str, Any]:
    result = run("check", folder, "--format", "json", "--jobs=1", *more)
    report: dict[str, Any] = json.loads(result.out)
    assert result.code == (0 if report["valid"] else 1)
    return report


def kept(run: Run, folder: Path, *more: object) -> Path:
    path = folder.parent / "report.json"
    path.write_text(json.dumps(report_of(run, folder, *more)))
    return path


def alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same verdict, figures and findings."""
    assert found["valid"] == expected["valid"]
    for name in _FIGURES:
        assert found["counts"][name] == expected["counts"][name], name
    assert found["counts"]["by_shard"] == expected["counts"]["by_shard"]
    assert found["findings"] == expected["findings"]
    assert found["sources"] == expected["sources"]
    assert found["shards"] == expected["shards"]


def test_nothing_has_changed(run: Run, folder: Path, opened: list[str]) -> None:
    report = kept(run, folder)
    before = json.loads(report.read_text())
    assert before["counts"]["by_code"]["BOX006"] == 2
    opened.clear()
    for _ in range(3):  # the new report is the next one's
        after = report_of(run, folder, "--since", report)
        assert opened == []
        alike(after, before)
        assert (after["since"]["unchanged"], after["since"]["checked"]) == (3, 0)
        report.write_text(json.dumps(after))
    said = run("check", folder, "--since", report).out
    assert f"Since: 3 files as in {report}, 0 checked again" in said.replace("\n  ", " ")


@pytest.mark.parametrize("is_known", [True, False])
def test_files_of_tfds_are_compared_with_all_shards(run: Run, folder: Path, is_known: bool) -> None:
    data = folder.parent / "tfds"
    assert run("convert", EXAMPLE, data, "--to", "tfds").code == 0
    if not is_known:
        features = data / "features.json"
        features.write_text(features.read_text().replace('"image/filename"', '"image/other"'))
    report = kept(run, data, "--for", "tfds")
    before = json.loads(report.read_text())
    assert before["counts"]["by_code"].get("SET008", 0) == (0 if is_known else 1)
    alike(report_of(run, data, "--for", "tfds", "--since", report), before)


def test_what_has_changed_is_read_and_nothing_else(
    run: Run, folder: Path, opened: list[str]
) -> None:
    report = kept(run, folder)
    write_shard(folder, "c", *records_of("c", 1))
    write_shard(folder, "d", *records_of("d", 3))
    opened.clear()
    after = report_of(run, folder, "--since", report)
    assert set(opened) == {"c.tfrecord", "d.tfrecord"}
    alike(after, report_of(run, folder))
    said = run("check", folder, "--since", report).out.replace("\n  ", " ")
    assert "2 files as in" in said and "2 checked again" in said
    assert "duplicates and classes of several files were looked for among these alone" in said
    (folder / "b.tfrecord").unlink()
    report.write_text(json.dumps(after))
    after = report_of(run, folder, "--since", report)
    alike(after, report_of(run, folder))
    assert after["counts"]["by_code"]["BOX006"] == 4


def test_what_two_files_share_goes_with_either(run: Run, folder: Path, opened: list[str]) -> None:
    """A file that is as it was has a finding about another one, which has changed."""

    def write(number: int, name: str) -> None:
        path = Path(write_shard(folder, "x", *records_of(name, 0)))
        path.replace(folder / f"x.tfrecord-0000{number}-of-00002")

    write(0, "x")
    write(1, "x")
    report = kept(run, folder)
    assert json.loads(report.read_text())["counts"]["by_code"]["NAM002"]
    write_shard(folder, "d", *records_of("d", 0))
    opened.clear()
    report_of(run, folder, "--since", report)
    assert set(opened) == {"d.tfrecord"}
    write(0, "y")
    after = report_of(run, folder, "--since", report)
    alike(after, report_of(run, folder))
    assert after["since"]["unchanged"] == 0 and "NAM002" not in after["counts"]["by_code"]


def write_classes(folder: Path, name: str, *classes: int | str) -> None:
    """A shard with an object of each class, which has an id or a text; an empty one without."""
    named = [{"text": [one]} if isinstance(one, str) else {"label": [one]} for one in classes]
    records = [
        encode({**image(f"{name}-{number}.jpg"), **objects([SOUND], **one)})
        for number, one in enumerate(named)
    ]
    (folder / name).write_bytes(shard(*records))


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        # No longer so, and at a shard that has not changed.
        ("LAB012", {"a.record": (0, 1), "b.record": (0,)}, {"b.record": (0, 5)}),
        ("LAB016", {"a.record": ("cat",), "b.record": ("Cat",)}, {"b.record": ("cat",)}),
        (
            "SET006",
            {"a-00000-of-00002": (), "a-00001-of-00002": (), "b.record": (1,)},
            {"a-00001-of-00002": (1,)},
        ),
        # No longer so with one more.
        ("LAB012", {"a.record": (0, 1)}, {"b.record": (5,)}),
        ("SET006", {"a-00000-of-00002": (), "b.record": (1,)}, {"a-00001-of-00002": (1,)}),
        # Still so, at a shard that has changed.
        ("LAB012", {"a.record": (0, 1), "b.record": (0,)}, {"a.record": (1,)}),
        ("LAB016", {"a.record": ("cat",), "b.record": ("Cat",)}, {"a.record": ("cat", "dog")}),
        # New, with one that has not changed.
        ("SET006", {"a-00000-of-00002": (), "a-00001-of-00002": (1,)}, {"a-00001-of-00002": ()}),
    ],
)
def test_what_all_shards_show_together(
    run: Run,
    tmp_path: Path,
    code: str,
    before: dict[str, tuple[int | str, ...]],
    after: dict[str, tuple[int | str, ...]],
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, classes in before.items():
        write_classes(folder, name, *classes)
    report = kept(run, folder)
    for name, classes in after.items():
        write_classes(folder, name, *classes)
    found = [json.loads(report.read_text()), report_of(run, folder)]
    assert any(code in one["counts"]["by_code"] for one in found)
    alike(report_of(run, folder, "--since", report), found[1])


@examples(15)
@given(
    changes=st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 3)), max_size=4)
)
def test_the_report_is_that_of_a_whole_check(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int | None]]
) -> None:
    from tfod.check.check import Options, check_sources
    from tfod.check.engine.earlier_report import read_earlier_report

    folder = tmp_path_factory.mktemp("data")
    for name, bad in (("a", 0), ("b", 2), ("c", 0), ("e", 1)):
        write_shard(folder, name, *records_of(name, bad))
    report = folder / "report.json"
    report.write_text(json.dumps(check_sources([str(folder)]).to_json()))
    for name, bad in changes:
        path = folder / f"{name}.tfrecord"
        if bad is not None:
            write_shard(folder, name, *records_of(name, bad))
        elif path.exists():
            path.unlink()
    since = Options(since=read_earlier_report(str(report)))
    alike(check_sources([str(folder)], since).to_json(), check_sources([str(folder)]).to_json())


def test_copied_files_are_known_by_their_hash(run: Run, folder: Path, opened: list[str]) -> None:
    report = kept(run, folder)
    for one in folder.glob("*.tfrecord"):
        os.utime(one, ns=(1, 1_700_000_000_123_456_789))
    assert report_of(run, folder, "--since", report)["since"]["unchanged"] == 3
    # The same size and time, and another byte: of a time in whole seconds nothing is believed.
    os.utime(folder / "a.tfrecord", ns=(1, 1_700_000_000_000_000_000))
    report = kept(run, folder)
    data = bytearray((folder / "a.tfrecord").read_bytes())
    data[-10] ^= 1
    (folder / "a.tfrecord").write_bytes(data)
    os.utime(folder / "a.tfrecord", ns=(1, 1_700_000_000_000_000_000))
    after = report_of(run, folder, "--since", report)
    assert after["since"]["checked"] == 1
    assert any(code.startswith("TFR") for code in after["counts"]["by_code"])


def settings(folder: Path) -> Iterator[tuple[list[str], str]]:
    yield ["--severity", "BOX006=warning"], "severities"
    yield ["--for", "od-api"], "receiver"
    yield ["--profile", "tf_vision"], "profile"
    yield ["--decode", "all"], "limits"
    (folder.parent / "known.json").write_text('{"version": 1, "findings": []}')
    yield ["--baseline", str(folder.parent / "known.json")], "needed for a baseline"


def test_when_everything_is_checked_again(run: Run, folder: Path) -> None:
    report = kept(run, folder)
    for more, why in settings(folder):
        after = report_of(run, folder, "--since", report, *more)
        assert after["since"]["unchanged"] == 0 and why in after["since"]["reason"], more
        alike(after, report_of(run, folder, *more))
    (folder / "label_map.pbtxt").write_text("item { id: 1 name: 'dog' }")
    after = report_of(run, folder, "--since", report)
    assert "label maps" in after["since"]["reason"]
    said = run("check", folder, "--since", report).out.replace("\n  ", " ")
    assert "none is as in" in said and "changed since: label maps" in said


def test_a_report_with_a_baseline_lacks_what_is_known(run: Run, folder: Path) -> None:
    known = folder.parent / "known.json"
    run("check", folder, "--baseline", known, "--update-baseline")
    report = kept(run, folder, "--baseline", known)
    after = report_of(run, folder, "--since", report)
    assert "a baseline" in after["since"]["reason"] and not after["valid"]
    alike(after, report_of(run, folder))


def test_the_same_label_maps_beside_other_shards(run: Run, tmp_path: Path) -> None:
    data, texts = tmp_path / "data", [f"item {{ id: 1 name: '{one}' }}" for one in ("cat", "dog")]
    for subset, text in zip(("train", "val"), texts, strict=True):
        write_shard(data / subset, subset, *records_of(subset, 0), label_map=text)
    report = kept(run, data)
    for subset, text in zip(("val", "train"), texts, strict=True):
        (data / subset / "label_map.pbtxt").write_text(text)
    alike(report_of(run, data, "--since", report), report_of(run, data))


def test_no_report_goes_where_the_baseline_does(run: Run, folder: Path) -> None:
    path = folder.parent / "known.json"
    found = run("check", folder, "--baseline", path, "--update-baseline", f"--format=json={path}")
    assert found.code == 2 and "is the baseline" in found.err and not path.exists()


def test_another_version_of_tfod(run: Run, folder: Path) -> None:
    report = kept(run, folder)
    document = json.loads(report.read_text())
    document["datasets"][0]["settings"]["version of tfod"] = "0.0.1"
    report.write_text(json.dumps(document))
    assert "version of tfod" in report_of(run, folder, "--since", report)["since"]["reason"]


def test_classes_that_others_use_are_not_unused(run: Run, folder: Path) -> None:
    (folder / "label_map.pbtxt").write_text(
        "item { id: 1 name: 'cat' } item { id: 2 name: 'dog' } item { id: 3 name: 'cow' }"
    )
    report = kept(run, folder)
    assert json.loads(report.read_text())["counts"]["by_code"]["LAB013"] == 2
    dog = encode({**image("dog.jpg"), **objects([SOUND], ["dog"], [2])})
    write_shard(folder, "d", dog, label_map=None)
    after = report_of(run, folder, "--since", report)
    assert [one["value"] for one in after["findings"] if one["code"] == "LAB013"] == ["cow"]
    assert after["counts"]["by_code"]["LAB013"] == 1


def test_without_a_report_yet(run: Run, folder: Path) -> None:
    after = report_of(run, folder, "--since", folder / "none.json")
    assert after["since"]["reason"] == "there is no such report yet"
    assert after["since"]["checked"] == 3


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"report_version": 1}', b"\xff", b"[" * 99]
)
def test_what_is_no_report_is_one_line(
    run: Run, folder: Path, write: Callable[[str, str | bytes], str], content: bytes
) -> None:
    path = write("r.json", content)
    assert (
        "is not a report that --since can read" in run("check", folder, "--since", path).refused()
    )


def test_zips_and_processes(run: Run, folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.make_archive(str(tmp_path / "both" / "anno"), "zip", folder)
    report = kept(run, tmp_path / "both")
    before = json.loads(report.read_text())
    after = report_of(run, tmp_path / "both", "--since", report)
    alike(after, before)
    assert after["counts"]["shards"] == 3 and after["since"]["unchanged"] == 1


def test_what_is_read_is_told_to_who_watches(folder: Path, run: Run) -> None:
    """By the bytes that the progress bar gets."""
    from tfod.check.check import Options
    from tfod.check.engine.earlier_report import read_earlier_report

    report = kept(run, folder)
    write_shard(folder, "c", *records_of("c", 1))
    steps: list[tuple[int, int]] = []
    with take_inventory([str(folder)]) as inventory:
        options = Options(since=read_earlier_report(str(report)))
        check(inventory, options, lambda *one: steps.append(one))
    assert sum(records for _, records in steps) == 3
    assert sum(read for read, _ in steps) == (folder / "c.tfrecord").stat().st_size

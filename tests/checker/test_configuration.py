"""The configuration: its location, its values, and a check with it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.configuration import load_configuration
from tfod.checker.finding import Severity
from tfod.checker.profiles.policy import combine_severities
from tfod.checker.profiles.profile import OFF
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError

from tests.checker.conftest import ReportOf
from tests.commands import Run
from tests.conftest import examples
from tests.files import write_file, write_files
from tests.records import encode, image, objects, write_shard

if sys.version_info < (3, 11):
    pytest.importorskip("tomli")

KEYS = ["for", "profile", "label_map", "select", "ignore", "severity", "fail_on", "exclude"]
INVERTED = encode({**image(), **objects([(0.9, 0.1, 0.2, 0.9)], ["cat"], [1])})
Write = Callable[[str, "str | bytes"], str]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with an inverted box in data/train/ and one in data/val/."""
    for name in ("train", "val"):
        write_shard(tmp_path / "data" / name, name, INVERTED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def report(report_of: ReportOf) -> Callable[..., dict[str, Any]]:
    """Check data/ with options."""
    return lambda *options: report_of("data", *options)[1]


def box_levels(report: dict[str, Any]) -> dict[str, str]:
    """The severity of BOX006 by folder."""
    found = [one for one in report["findings"] if one["code"] == "BOX006"]
    return {Path(one["shard"]).parts[-2]: one["severity"] for one in found}


def test_the_nearest_file_is_used(report_of: ReportOf, check: Run, data: Path, report: Any) -> None:
    assert report()["configuration"] is None
    write_file(data / "tfod.toml", 'select = ["TFR"]')
    assert report()["configuration"] == "tfod.toml"
    os.chdir(data / "data" / "val")
    code, out, _ = check(".")
    assert code == 0 and "\nConfiguration: ../../tfod.toml\n" in out
    for name, text, expected in (
        ("pyproject.toml", "[tool.ruff]\n[project]\nname = 'tfod'", "../../tfod.toml"),
        ("pyproject.toml", "[tool.tfod]", "../pyproject.toml"),
        ("tfod.toml", "", "../tfod.toml"),
    ):
        write_file(data / "data" / name, text)
        assert report_of(".")[1]["configuration"] == expected


@pytest.mark.parametrize("text", ["tool.tfod.for = 'cvat'", "[tool]\ntfod = {for = 'cvat'}"])
def test_in_a_project(report: Any, write: Write, text: str) -> None:
    write("pyproject.toml", text)
    assert report()["receiver"] == "cvat"


def test_a_named_file(check: Run, report: Any, write: Write) -> None:
    write("tfod.toml", "for = 'cvat'")
    write("other/my.toml", "for = 'od-api'")
    assert report("--config", "other/my.toml")["receiver"] == "od-api"
    assert report("--config", os.devnull)["receiver"] == "any"
    assert "No such file" in check("data", "--config", "absent.toml").refused()
    write("pyproject.toml", "")
    assert "has no [tool.tfod]" in check("data", "--config", "pyproject.toml").refused()


def test_without_a_reader_of_toml(check: Run, report: Any, write: Write, monkeypatch: Any) -> None:
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    assert report()["configuration"] is None
    write("tfod.toml", "")
    refused = check("data").refused()
    assert refused.startswith("tfod: tfod.toml: Python 3.10 needs tomli to read it: pip ")


def test_paths_are_relative_to_the_file(report_of: ReportOf, report: Any, write: Write) -> None:
    write("maps/cats.pbtxt", "item {\n  id: 1\n  name: 'cat'\n}\n")
    write("tfod.toml", 'label_map = "maps/cats.pbtxt"\nprofile = "cvat"')
    assert report()["datasets"][0]["label_maps"] == ["maps/cats.pbtxt"]
    os.chdir("data")
    (dataset,) = report_of("val")[1]["datasets"]
    assert dataset["label_maps"] == ["../maps/cats.pbtxt"] and dataset["profile"]["name"] == "cvat"


def test_names_are_not_paths(report_of: ReportOf, data: Path) -> None:
    files = {"voc2007/a.jpg": "", "cvat/a.jpg": ""}
    write_files(data, {**files, "tfod.toml": 'label_map = "voc2007"\nprofile = "cvat"'})
    os.chdir("data")
    (dataset,) = report_of("val")[1]["datasets"]
    assert dataset["label_maps"] == ["voc2007"] and dataset["profile"]["name"] == "cvat"


def test_the_command_line_takes_precedence(report: Any, write: Write) -> None:
    text = 'for = "cvat"\nfail_on = "warning"\nselect = ["BOX"]\n[severity]\nBOX006 = "warning"'
    write("tfod.toml", text)
    typed = ("--for", "any", "--fail-on", "error", "--severity", "BOX=error")
    for options, expected in (((), ("cvat", "warning")), (typed, ("any", "error"))):
        found = report(*options)
        assert (found["receiver"], found["fail_on"]) == expected
        assert set(box_levels(found).values()) == {expected[1]}
    assert box_levels(report("--select", "IMG")) == box_levels(report("--ignore", "BOX")) == {}


@pytest.mark.parametrize(
    ("pattern", "remaining"),
    [
        *((one, ["train"]) for one in ("data/val", "./data/val/", "data/va[a-z]/*", "*/val")),
        *((one, ["train", "val"]) for one in ("val", "Data/val")),
    ],
)
def test_exclude(report_of: ReportOf, write: Write, pattern: str, remaining: list[str]) -> None:
    """Patterns are paths below the file, in any working folder."""
    write("tfod.toml", f"exclude = ['{pattern}']")
    assert sorted(box_levels(report_of("data")[1])) == remaining
    os.chdir("data")
    assert sorted(box_levels(report_of("train", "val")[1])) == remaining


def test_excluded_files_are_reported(check: Run, write: Write) -> None:
    write("tfod.toml", "exclude = ['data/val', 'anno.zip']")
    assert check("data").err == "tfod: 1 file not checked: tfod.toml excludes it\n"
    assert check("data", "--quiet").err == ""
    assert "tfod.toml excludes all files" in check("data/val").refused()
    assert check("data", "--label-map", "data/val").refused().startswith("tfod: data/val ")


NONE, ALL = frozenset[str](), frozenset(all_rules())
BOXES = {code for code in ALL if code.startswith("BOX")}
ERROR = Severity.ERROR


@pytest.mark.parametrize(
    ("select", "ignore", "configured", "typed", "on"),
    [
        (None, [], {}, {}, ALL),
        (["BOX"], ["BOX003"], {}, {}, BOXES - {"BOX003"}),
        (["BOX003"], ["BOX"], {}, {}, {"BOX003"}),
        (["BOX003"], ["BOX003"], {}, {}, NONE),
        (None, ["BOX"], {}, {}, ALL - BOXES),
        (["BOX"], [], {"BOX006": OFF}, {}, BOXES - {"BOX006"}),
        (["BOX"], ["BOX003"], {"BOX003": ERROR}, {}, BOXES - {"BOX003"}),
        (["BOX"], ["BOX003"], {}, {"BOX003": ERROR, "BOX006": OFF}, BOXES - {"BOX006"}),
        (None, [], {"BOX": OFF}, {"BOX003": Severity.INFO}, ALL - BOXES | {"BOX003"}),
    ],
)
def test_selection(select: Any, ignore: Any, configured: Any, typed: Any, on: set[str]) -> None:
    """``--severity`` takes precedence, and turns on rules that are not selected."""
    found = combine_severities(select, ignore, configured, typed)
    assert {code for code in ALL if found.get(code, 1) is not OFF} == on


def load(folder: Path, data: bytes, name: str = "tfod.toml") -> None:
    write_file(folder / name, data)
    load_configuration(str(folder / name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", f"x: there is no such key; the keys are {', '.join(KEYS)}$"),
        ("for = 'cvta'", "for: expected one of cvat, .*, any, not 'cvta'$"),
        ("select = 'BOX'", "select: expected .* such as .*, not 'BOX'$"),
        ("select = [\n'BOX',\n'BOX99',\n]", "select: .*'BOX99'; did you mean BOX"),
        ("select = []", "select: expected a list of rules and families"),
        ("ignore = [3]", "ignore: expected a list of rules and families"),
        ("[severity]\nBOXX = 'off'", "severity: there is no rule or family 'BOXX'"),
        ("severity = {BOX = 'no'}", "severity: expected a table .* error, warning, info, off$"),
        ("fail_on = true", "fail_on: expected error or warning, not True$"),
        ("fail_on = 'info'", "fail_on: expected error or warning, not 'info'$"),
        ("for.a.b = 1", "for: expected"),
        ("profile = ''", "profile: expected"),
        ("exclude = 'a'", "exclude: expected a list of paths and patterns"),
        ("label_map = 1979-05-27", "label_map: expected .*, not datetime"),
        ("[a\n", "is not valid TOML: "),
        ("a = 1\na = 2\nb = 3", "is not valid TOML: .*line 2"),
        ("a = " + "9" * 5000, "is not valid TOML: "),
        ("a = " + "[" * 100_000, "is not valid TOML: "),
        ("for" + ".a" * 10_000 + " = 1", "(is not valid TOML|for: expected)"),
        (b"\xff", "is not valid TOML: 'utf-8' codec"),
        ("#" * (300 << 10), "is larger than 256 KiB"),
        ('profile = "\\u0000"', "profile: expected"),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_values(tmp_path: Path, text: str | bytes, message: str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(TfodError, match=f"^{tmp_path}/tfod.toml: {message}") as caught:
        load(tmp_path, data)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_invalid_projects(check: Run, report: Any, write: Write, tmp_path: Path) -> None:
    for text in ("tool.tfod = 3", "[[tool.tfod]]"):
        with pytest.raises(TfodError, match="expected a table of keys"):
            load(tmp_path, text.encode(), "pyproject.toml")
    write("pyproject.toml", "[tool.ruff")  # the file of another tool
    assert report()["configuration"] is None
    write("pyproject.toml", "[tool.tfod]\nfor = ")
    assert check("data").refused().startswith("tfod: pyproject.toml: is not valid TOML: ")


def test_names_are_not_case_sensitive(check: Run, write: Write) -> None:
    for names in ("for = 'cvat'\nprofile = 'cvat'", "for = 'CVAT'\nprofile = 'Cvat'"):
        write("conf/tfod.toml", names)
        out = check("data", "--config", "conf/tfod.toml").out
        assert "for CVAT" in out and "Profile: cvat (requested)" in out


def test_unknown_names(check: Run, write: Write) -> None:
    for name in ("x" * 5000, "\u202e\U0001f600", "."):
        write("tfod.toml", f"profile = '{name}'")
        check("data").refused()
    for text, problem in (
        ("fro = 'cvat'", "fro: there is no such key; "),
        ("profile = 'absent.yaml'", "profile: absent.yaml: No such file or directory\n"),
        ("profile = 'cvta'", "profile: cvta: there is no such profile; did you mean cvat? "),
        ("label_map = 'absent'", "label_map: absent: no such label map; pass a file, or "),
    ):
        write("tfod.toml", text)
        assert check("data").refused().startswith(f"tfod: tfod.toml: {problem}")
    refused = check("data", "--config", os.devnull, "--select", "BOX,BOX99").refused()
    assert refused.startswith("tfod: --select: there is no rule or family 'BOX99'; did you ")


TEXTS = st.sampled_from(["BOX", "BOX003", "cvat", "error", "off", "x", "", "\0"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats() | st.booleans() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def toml_of(value: Any) -> str:
    """A value of TOML; tables are inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps(value) if isinstance(value, (str, bool)) else str(value)


TABLES = st.dictionaries(st.sampled_from([*KEYS, "x"]), VALUES, max_size=3).map(
    lambda values: "".join(f"{key} = {toml_of(value)}\n" for key, value in values.items())
)


@examples(200)
@given(st.binary(max_size=40) | (st.text(max_size=40) | TABLES).map(str.encode))
def test_any_toml(data: bytes) -> None:
    try:
        with tempfile.TemporaryDirectory() as folder:
            load(Path(folder), data)
    except TfodError as error:
        assert "\n" not in str(error)

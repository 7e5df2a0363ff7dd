"""The configuration: where it is found, what it says, and what a check makes of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.configuration import load_configuration
from tfod.checker.finding import Severity
from tfod.checker.profiles.policy import combine_severities
from tfod.checker.profiles.profile import OFF, Severities
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError

from tests.commands import Run
from tests.files import write_file
from tests.records import encode, image, objects, write_shard

if sys.version_info < (3, 11):
    pytest.importorskip("tomli")

KEYS = ["for", "profile", "label_map", "select", "ignore", "severity", "fail_on", "exclude"]
BAD = encode({**image(), **objects([(0.9, 0.1, 0.2, 0.9)], ["cat"], [1])})
"""An inverted box."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with an inverted box in train/ and one in val/."""
    for name in ("train", "val"):
        write_shard(tmp_path / "data" / name, name, BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report_of(check: Run, *arguments: object) -> dict[str, Any]:
    """The report of a check of data/; only boxes matter."""
    code, out, err = check("data", *arguments, "--format", "json")
    assert code in (0, 1), err
    found = json.loads(out)
    assert found["valid"] == (code == 0)
    return found


def resolve_levels(report: dict[str, Any]) -> dict[str, str]:
    """Severity of BOX006 by folder."""
    return {
        Path(one["shard"]).parts[-2]: one["severity"]
        for one in report["findings"]
        if one["code"] == "BOX006"
    }


class TestWhereItIsFound:
    def test_in_a_folder_above(self, check: Run, data: Path, monkeypatch: Any) -> None:
        write_file(data / "tfod.toml", 'select = ["TFR"]')
        assert report_of(check)["configuration"] == "tfod.toml"
        monkeypatch.chdir(data / "data" / "train")
        code, out, _ = check(".")
        assert code == 0 and "\nConfiguration: ../../tfod.toml\n" in out

    def test_nearest_first(self, check: Run, data: Path, monkeypatch: Any) -> None:
        def file() -> str:
            return str(json.loads(check(".", "--format", "json").out)["configuration"])

        write_file(data / "tfod.toml", "")
        write_file(data / "data" / "pyproject.toml", "[tool.ruff]\n[project]\nname = 'tfod'")
        monkeypatch.chdir(data / "data" / "val")
        assert file() == "../../tfod.toml"
        write_file(data / "data" / "pyproject.toml", "[tool.tfod]")
        assert file() == "../pyproject.toml"
        write_file(data / "data" / "tfod.toml", "")
        assert file() == "../tfod.toml"

    @pytest.mark.parametrize("text", ["tool.tfod.for = 'cvat'", "[tool]\ntfod = {for = 'cvat'}"])
    def test_in_a_project(self, check: Run, data: Path, text: str) -> None:
        write_file(data / "pyproject.toml", text)
        assert report_of(check)["receiver"] == "cvat"

    def test_none(self, check: Run, data: Path) -> None:
        assert report_of(check)["configuration"] is None

    def test_named(self, check: Run, data: Path) -> None:
        write_file(data / "tfod.toml", "for = 'cvat'")
        write_file(data / "other" / "my.toml", "for = 'od-api'")
        assert report_of(check, "--config", "other/my.toml")["receiver"] == "od-api"
        assert report_of(check, "--config", os.devnull)["receiver"] == "any"
        assert "No such file" in check("data", "--config", "absent.toml").refused()
        write_file(data / "pyproject.toml", "")
        assert "has no [tool.tfod]" in check("data", "--config", "pyproject.toml").refused()

    def test_without_a_reader_of_toml(self, check: Run, data: Path, monkeypatch: Any) -> None:
        for name in ("tomllib", "tomli"):
            monkeypatch.setitem(sys.modules, name, None)
        assert report_of(check)["configuration"] is None
        write_file(data / "tfod.toml", "")
        refused = check("data").refused()
        assert refused.startswith("tfod: tfod.toml: Python 3.10 needs tomli to read it: pip ")


class TestWhatItSays:
    def test_paths_are_relative_to_it(self, check: Run, data: Path, monkeypatch: Any) -> None:
        label_map = "item {\n  id: 1\n  name: 'cat'\n}\n"
        write_file(data / "maps" / "cats.pbtxt", label_map)
        write_file(data / "tfod.toml", 'label_map = "maps/cats.pbtxt"\nprofile = "cvat"')
        assert report_of(check)["datasets"][0]["label_maps"] == ["maps/cats.pbtxt"]
        monkeypatch.chdir(data / "data")
        out = check("val", "--format", "json").out
        (dataset,) = json.loads(out)["datasets"]
        assert dataset["label_maps"] == ["../maps/cats.pbtxt"]
        assert dataset["profile"]["name"] == "cvat"

    def test_names_are_no_paths(self, check: Run, data: Path, monkeypatch: Any) -> None:
        write_file(data / "tfod.toml", 'label_map = "voc2007"\nprofile = "cvat"')
        write_file(data / "voc2007" / "a.jpg", "")
        write_file(data / "cvat" / "a.jpg", "")
        monkeypatch.chdir(data / "data")
        (dataset,) = json.loads(check("val", "--format", "json").out)["datasets"]
        assert dataset["label_maps"] == ["voc2007"] and dataset["profile"]["name"] == "cvat"

    def test_what_is_typed_is_stronger(self, check: Run, data: Path) -> None:
        text = 'for = "cvat"\nfail_on = "warning"\nselect = ["BOX"]\n[severity]\nBOX006 = "warning"'
        write_file(data / "tfod.toml", text)
        found = report_of(check)
        assert (found["receiver"], found["fail_on"]) == ("cvat", "warning")
        assert set(resolve_levels(found).values()) == {"warning"}
        found = report_of(check, "--for", "any", "--fail-on", "error", "--severity", "BOX=error")
        assert (found["receiver"], found["fail_on"]) == ("any", "error")
        assert set(resolve_levels(found).values()) == {"error"}
        assert resolve_levels(report_of(check, "--select", "IMG")) == {}
        assert resolve_levels(report_of(check, "--ignore", "BOX")) == {}

    @pytest.mark.parametrize(
        ("pattern", "left"),
        [
            ("data/val", ["train"]),
            ("./data/val/", ["train"]),
            ("data/va[a-z]/*", ["train"]),
            ("*/val", ["train"]),
            ("val", ["train", "val"]),
            ("Data/val", ["train", "val"]),
        ],
    )
    def test_exclude(
        self, check: Run, data: Path, monkeypatch: Any, pattern: str, left: list[str]
    ) -> None:
        """Patterns are of paths below the file, wherever the check is started."""
        write_file(data / "tfod.toml", f"exclude = ['{pattern}']")
        assert sorted(resolve_levels(report_of(check))) == left
        monkeypatch.chdir(data / "data")
        found = json.loads(check("train", "val", "--format", "json").out)
        assert sorted(resolve_levels(found)) == left

    def test_a_label_map_that_is_a_folder(self, check: Run, data: Path) -> None:
        assert check("data", "--label-map", "data/val").refused().startswith("tfod: data/val ")

    def test_exclude_is_said(self, check: Run, data: Path) -> None:
        write_file(data / "tfod.toml", "exclude = ['data/val', 'anno.zip']")
        assert check("data").err == "tfod: 1 file not checked: tfod.toml excludes it\n"
        assert check("data", "--quiet").err == ""
        code, out, err = check("data/val")
        assert (code, out) == (2, "")
        assert err == "tfod: tfod.toml excludes all files; name others, or change its exclude\n"


NONE, ALL = frozenset[str](), frozenset(all_rules())
BOXES = {code for code in ALL if code.startswith("BOX")}


@pytest.mark.parametrize(
    ("select", "ignore", "configured", "typed", "on"),
    [
        (None, [], {}, {}, ALL),
        (["BOX"], ["BOX003"], {}, {}, BOXES - {"BOX003"}),
        (["BOX003"], ["BOX"], {}, {}, {"BOX003"}),
        (["BOX003"], ["BOX003"], {}, {}, NONE),
        (None, ["BOX"], {}, {}, ALL - BOXES),
        (["BOX"], [], {"BOX006": OFF}, {}, BOXES - {"BOX006"}),
        (["BOX"], ["BOX003"], {"BOX003": Severity.ERROR}, {}, BOXES - {"BOX003"}),
        (["BOX"], ["BOX003"], {}, {"BOX003": Severity.ERROR, "BOX006": OFF}, BOXES - {"BOX006"}),
        (None, [], {"BOX": OFF}, {"BOX003": Severity.INFO}, ALL - BOXES | {"BOX003"}),
    ],
)
def test_selection(
    select: list[str] | None,
    ignore: list[str],
    configured: Severities,
    typed: Severities,
    on: set[str],
) -> None:
    """``--severity`` is the strongest, and turns on what is not selected."""
    found = combine_severities(select, ignore, configured, typed)
    assert {code for code in ALL if found.get(code, 1) is not OFF} == on


def load(folder: Path, data: bytes, name: str = "tfod.toml") -> None:
    write_file(folder / name, data)
    load_configuration(str(folder / name))


class TestWrongInput:
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
    )
    def test_is_one_line(self, tmp_path: Path, text: str | bytes, message: str) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        with pytest.raises(TfodError, match=f"^{tmp_path}/tfod.toml: {message}") as caught:
            load(tmp_path, data)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500

    @pytest.mark.parametrize("text", ["tool.tfod = 3", "[[tool.tfod]]"])
    def test_of_a_project(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(TfodError, match="expected a table of keys"):
            load(tmp_path, text.encode(), "pyproject.toml")

    def test_a_project_that_is_not_toml(self, check: Run, data: Path) -> None:
        """Others' files are not ours to judge."""
        write_file(data / "pyproject.toml", "[tool.ruff")  # not TOML
        assert report_of(check)["configuration"] is None
        write_file(data / "pyproject.toml", "[tool.tfod]\nfor = ")
        assert check("data").refused().startswith("tfod: pyproject.toml: is not valid TOML: ")

    def test_names_are_not_case_sensitive(self, check: Run, data: Path) -> None:
        for names in ("for = 'cvat'\nprofile = 'cvat'", "for = 'CVAT'\nprofile = 'Cvat'"):
            write_file(data / "conf" / "tfod.toml", names)
            out = check("data", "--config", "conf/tfod.toml").out
            assert "for CVAT" in out and "Profile: cvat (requested)" in out

    def test_ends_the_check(self, check: Run, data: Path) -> None:
        write_file(data / "tfod.toml", "fro = 'cvat'")
        assert check("data").refused().startswith("tfod: tfod.toml: fro: there is no such key; ")
        for name in ("x" * 5000, "\u202e\U0001f600", "."):
            write_file(data / "tfod.toml", f"profile = '{name}'")
            check("data").refused()
        for text, problem in (
            ("profile = 'absent.yaml'", "profile: absent.yaml: No such file or directory\n"),
            ("profile = 'cvta'", "profile: cvta: there is no such profile; did you mean cvat? "),
            ("label_map = 'absent'", "label_map: absent: no such label map; pass a file, or one "),
        ):
            write_file(data / "tfod.toml", text)
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


class TestAnyToml:
    @given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
    def test_any_bytes(self, data: bytes) -> None:
        self.is_taken_or_refused(data)

    @given(st.dictionaries(st.sampled_from([*KEYS, "x"]), VALUES, max_size=3))
    def test_any_values(self, values: dict[str, Any]) -> None:
        text = "".join(f"{key} = {toml_of(value)}\n" for key, value in values.items())
        self.is_taken_or_refused(text.encode())

    def is_taken_or_refused(self, data: bytes) -> None:
        try:
            with tempfile.TemporaryDirectory() as folder:
                load(Path(folder), data)
        except TfodError as error:
            assert "\n" not in str(error)

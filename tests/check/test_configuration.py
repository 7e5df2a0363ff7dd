"""The configuration: where it is found, what it says, and what a check makes of it."""

from __future__ import annotations

import json
import ntpath
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from tfod.check.configuration import read_configuration, schema, to_toml
from tfod.check.findings.finding import Severity
from tfod.check.profiles.policy import Policy, Selection, Selections, relative_path
from tfod.check.profiles.profile import OFF, READY
from tfod.check.receivers import RECEIVERS
from tfod.check.records.instructions import Instructions
from tfod.check.rules.registry import all_rules
from tfod.errors import TfodError

from tests.commands import Run
from tests.files import write_file
from tests.records import encode, image, objects, write_shard

try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
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


def severities_of(report: dict[str, Any]) -> dict[str, str]:
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

    def test_nearest_first(self, run: Run, data: Path, monkeypatch: Any) -> None:
        write_file(data / "tfod.toml", "")
        write_file(data / "data" / "pyproject.toml", "[tool.ruff]\n[project]\nname = 'tfod'")
        monkeypatch.chdir(data / "data" / "val")
        assert run("config").out == "../../tfod.toml\n"
        write_file(data / "data" / "pyproject.toml", "[tool.tfod]")
        assert run("config").out == "../pyproject.toml\n"
        write_file(data / "data" / "tfod.toml", "")
        assert run("config").out == "../tfod.toml\n"

    @pytest.mark.parametrize("text", ["tool.tfod.for = 'cvat'", "[tool]\ntfod = {for = 'cvat'}"])
    def test_in_a_project(self, check: Run, data: Path, text: str) -> None:
        write_file(data / "pyproject.toml", text)
        assert report_of(check)["receiver"] == "cvat"

    def test_none(self, check: Run, run: Run, data: Path) -> None:
        assert "no configuration" in run("config").out
        assert report_of(check)["configuration"] is None

    def test_named(self, check: Run, data: Path) -> None:
        write_file(data / "tfod.toml", "for = 'cvat'")
        write_file(data / "other" / "my.toml", "for = 'efficientdet'")
        assert report_of(check, "--config", "other/my.toml")["receiver"] == "efficientdet"
        assert report_of(check, "--no-config")["receiver"] == "any"
        assert "No such file" in check("data", "--config", "absent.toml").refused()
        write_file(data / "pyproject.toml", "")
        assert "has no [tool.tfod]" in check("data", "--config", "pyproject.toml").refused()


class TestWhatItSays:
    def test_paths_are_relative_to_it(self, check: Run, data: Path, monkeypatch: Any) -> None:
        label_map = "item {\n  id: 1\n  name: 'cat'\n}\n"
        write_file(data / "maps" / "cats.pbtxt", label_map)
        write_file(data / "tfod.toml", 'label-map = "maps/cats.pbtxt"\nprofile = "cvat"')
        assert report_of(check)["datasets"][0]["label_maps"] == ["maps/cats.pbtxt"]
        monkeypatch.chdir(data / "data")
        out = check("val", "--format", "json").out
        (dataset,) = json.loads(out)["datasets"]
        assert dataset["label_maps"] == ["../maps/cats.pbtxt"]
        assert dataset["profile"]["name"] == "cvat"

    def test_names_are_no_paths(self, check: Run, data: Path, monkeypatch: Any) -> None:
        write_file(data / "tfod.toml", 'label-map = "voc2007"\nprofile = "cvat"')
        write_file(data / "voc2007" / "a.jpg", "")
        write_file(data / "cvat" / "a.jpg", "")
        monkeypatch.chdir(data / "data")
        (dataset,) = json.loads(check("val", "--format", "json").out)["datasets"]
        assert dataset["label_maps"] == ["voc2007"] and dataset["profile"]["name"] == "cvat"

    def test_what_is_typed_is_stronger(self, check: Run, data: Path) -> None:
        text = 'for = "cvat"\nfail-on = "warning"\n[severities]\nBOX006 = "warning"'
        write_file(data / "tfod.toml", text)
        found = report_of(check)
        assert (found["receiver"], found["fail_on"]) == ("cvat", "warning")
        assert set(severities_of(found).values()) == {"warning"}
        found = report_of(check, "--for", "any", "--fail-on", "error", "--severity", "BOX=error")
        assert (found["receiver"], found["fail_on"]) == ("any", "error")
        assert set(severities_of(found).values()) == {"error"}

    def test_by_path(self, check: Run, data: Path) -> None:
        text = """
            for = "od-api"
            select = ["BOX"]
            [per-path."data/val/*".severities]
            BOX006 = "warning"
        """
        write_file(data / "tfod.toml", text)
        found = report_of(check)
        assert severities_of(found) == {"train": "error", "val": "warning"}
        assert found["counts"]["by_severity"] == {"info": 0, "warning": 1, "error": 1}
        assert found["severities"] == {"BOX006": "error"}
        junit = check("data", "--format", "junit").out
        assert junit.count('failures="1"') == 2  # of train/, and of all
        write_file(data / "tfod.toml", 'for = "od-api"\n[per-path."data/train"]\nignore = ["BOX"]')
        found = report_of(check)
        assert severities_of(found) == {"val": "error"}
        assert found["counts"]["by_code"]["BOX006"] == 1

    def test_receivers_by_path(self, check: Run, data: Path) -> None:
        text = """
            select = ["BOX"]
            [per-path."data/train"]
            ignore = ["BOX006"]
            [per-path."data/val".severities]
            BOX006 = "warning"
        """
        write_file(data / "tfod.toml", text)
        found = {one["name"]: one for one in report_of(check)["receivers"]}["cvat"]
        assert found["verdict"] == "takes it with losses"
        assert found["reasons"] == ["BOX006 box is inverted"]

    def test_by_path_elsewhere(self) -> None:
        """What other processes are told is the same there, and one object for like shards."""
        selections = Selections(by_path={"val/*": Selection(None, ["BOX"])})
        policy = Policy(by_path=selections)
        policy.of("val/a")
        instructions = pickle.loads(pickle.dumps(Instructions(READY["cvat"], policy)))
        assert instructions.of("val/a") is instructions.of("val/b")
        assert instructions.of("val/a").policy.severity(all_rules()["BOX006"]) is OFF
        assert instructions.of("a").policy.severity(all_rules()["BOX006"]) is Severity.ERROR
        alike = Instructions(READY["cvat"], Policy())
        assert alike.of("val/a") is alike

    def test_by_path_in_a_zip(self, check: Run, data: Path) -> None:
        import shutil

        shutil.make_archive("anno", "zip", data / "data")
        write_file(data / "tfod.toml", '[per-path."val/*"]\nignore = ["BOX"]')
        code, out, _ = check("anno.zip", "--select", "BOX", "--format", "json")
        assert code == 1 and list(severities_of(json.loads(out))) == ["anno.zip:train"]


NONE, ALL = frozenset[str](), frozenset(all_rules())
BOXES = {code for code in ALL if code.startswith("BOX")}


@pytest.mark.parametrize(
    ("selections", "on"),
    [
        (Selections(), ALL),
        (Selections(Selection(["BOX"], ["BOX003"])), BOXES - {"BOX003"}),
        (Selections(Selection(["BOX003"], ["BOX"])), {"BOX003"}),
        (Selections(Selection(["BOX003"], ["BOX003"])), NONE),
        (Selections(Selection(None, ["BOX"])), ALL - BOXES),
        (Selections(Selection(["BOX"]), typed=Selection(None, ["BOX003"])), BOXES - {"BOX003"}),
        (Selections(Selection(None, ["BOX003"]), typed=Selection(["BOX"])), BOXES),
        (Selections(Selection(severities={"BOX": OFF}), typed=Selection(["BOX003"])), {"BOX003"}),
        (
            Selections(
                typed=Selection(["BOX"], ["BOX003"], {"BOX003": Severity.ERROR, "BOX006": OFF})
            ),
            BOXES - {"BOX006"},
        ),
    ],
)
def test_selection(selections: Selections, on: set[str]) -> None:
    """As in ruff; ``--severity`` is the strongest."""
    assert {code for code in ALL if selections.severities().get(code, 1) is not OFF} == on


@pytest.mark.parametrize(
    ("typed", "on"),
    [
        (Selection(), {"IMG001", "IMG002"}),
        (Selection(["BOX", "IMG001"]), BOXES | {"IMG001"} - {"IMG003"}),
        (Selection(None, ["IMG002"]), {"IMG001"}),
        (Selection(None, [], {"BOX003": Severity.ERROR}), {"IMG001", "IMG002", "BOX003"}),
    ],
)
def test_selection_of_a_path(typed: Selection, on: set[str]) -> None:
    """What is typed is stronger; ``--select`` leaves what is ignored for a path."""
    by_path = {"val/*": Selection(["IMG001", "IMG002"], ["IMG003"])}
    found = Selections(Selection(["TFR"]), by_path, typed).severities(("val/*",))
    assert {code for code in ALL if found.get(code, 1) is not OFF} == on


@pytest.mark.parametrize(
    ("pattern", "shard", "matches"),
    [
        ("val/*", "val/a.tfrecord", True),
        ("val/*", "val/2024/a.tfrecord", True),
        ("val", "val/2024/a.tfrecord", True),
        ("./val/", "val/a.tfrecord", True),
        ("val/*", "data/val/a.tfrecord", False),
        ("*/val/*", "data/val/a.tfrecord", True),
        ("**/val/*", "val/a.tfrecord", True),
        ("data/**/val-*", "data/val-1", True),
        ("*.record", "val/a.record", True),
        ("a-[0-9]*", "val/a-0001", True),
        ("val/*", "x/anno.zip:val/a.tfrecord", True),
        ("x/anno.zip:val/*", "x/anno.zip:val/a.tfrecord", True),
        ("s3://b/val/*", "s3://b/val/a.tfrecord", True),
        ("Val/*", "val/a.tfrecord", False),
    ],
)
def test_patterns(pattern: str, shard: str, matches: bool) -> None:
    assert bool(Selections(by_path={pattern: Selection()}).patterns_of(shard)) == matches


def test_paths_of_windows() -> None:
    folder = "C:\\data"
    assert relative_path("val\\a.tfrecord", "C:\\data", folder, ntpath) == "val/a.tfrecord"
    assert relative_path("..\\a.tfrecord", "C:\\data\\sub", folder, ntpath) == "a.tfrecord"
    assert relative_path("c:\\DATA\\val\\a", "C:\\", folder, ntpath) == "val/a"
    assert relative_path("D:\\val\\a", "C:\\", folder, ntpath) == "D:/val/a"
    assert relative_path("s3://b/a", "C:\\", folder, ntpath) == "s3://b/a"


class TestWrongInput:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("\nselct = []", "2: selct: there is no such key; did you mean select?"),
            ("x = 1", "1: x: there is no such key; the keys are for, profile"),
            ("for = 'cvta'", '1: for: expected who reads the shards next, .* or any, not "cvta"'),
            ("select = 'BOX'", '1: select: expected .* such as .*, not "BOX"'),
            ("select = [\n'BOX',\n'BOX99',\n]", "1: select: .*'BOX99'; did you mean BOX"),
            ("select = []", "1: select: expected .*, not \\[\\]"),
            ("ignore = [3]", "1: ignore: expected .*, not 3"),
            ("[severities]\nBOXX = 'off'", "2: severities.BOXX: there is no rule or family 'BOXX'"),
            ("severities = {BOX = 'no'}", "1: severities.BOX: expected error, warning, info or "),
            ("fail-on = true", "1: fail-on: expected .* error or warning, not true"),
            ("for.a.b = 1", "1: for: expected"),
            ("per-path = 1979-05-27", '1: per-path: expected .*, not "1979-05-27"'),
            (
                '[per-path."val/*"]\n\n[per-path."train/*"]\nselekt = 1',
                '4: per-path."train/\\*".selekt: there is no such key; did you mean select?',
            ),
            ("[a\n", "1: is not valid TOML: "),
            ("a = 1\na = 2\nb = 3", "2: is not valid TOML: "),
            ("a = 1e", "1: is not valid TOML: "),
            ('a = "b\n', "1: is not valid TOML: .*; is a quotation mark missing[?]"),
            ("a = " + "9" * 5000, " is not valid TOML: "),
            ("a = " + "[" * 100_000, " is nested too deeply"),
            ("for" + ".a" * 100_000 + " = 1", " (is nested too deeply|1: for: expected)"),
            (b"\xff", " is not valid TOML: 'utf-8' codec"),
            ("#" * (300 << 10), " is larger than 256 KiB"),
            ("profile = '\\u0000'".replace("'", '"'), "1: profile: expected"),
        ],
    )
    def test_is_one_line(self, text: str | bytes, message: str) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        with pytest.raises(TfodError, match=f"^tfod.toml:{message}") as caught:
            read_configuration(data, "tfod.toml")
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500

    def test_of_many_names(self) -> None:
        """Of many names each is looked up, and only that of an error is searched for."""
        text = "select = [\n" + "'BOX003',\n" * 20_000 + "'BOXX']"
        with pytest.raises(TfodError, match="did you mean BOX"):
            read_configuration(text.encode(), "tfod.toml")

    def test_of_a_project(self) -> None:
        """The line is that of its own table, and not of another tool's."""
        text = b"[tool.ruff.lint]\nselect = 3\n[tool.tfod]\nselect = 3\n"
        with pytest.raises(TfodError, match=r"^pyproject\.toml:4: select: expected"):
            read_configuration(text, "pyproject.toml")

    def test_ends_the_check(self, check: Run, data: Path) -> None:
        write_file(data / "tfod.toml", "fro = 'cvat'")
        assert check("data").refused() == (
            "tfod: tfod.toml:1: fro: there is no such key; did you mean for?\n"
        )
        for name in ("x" * 5000, "\u202e\U0001f600", "."):
            write_file(data / "tfod.toml", f"profile = '{name}'")
            check("data").refused()
        write_file(data / "tfod.toml", "profile = 'absent.yaml'")
        assert check("data").refused() == "tfod: absent.yaml: No such file or directory\n"
        refused = check("data", "--no-config", "--select", "BOX,BOX99").refused()
        assert refused.startswith("tfod: --select: there is no rule or family 'BOX99'; did you ")


TEXTS = st.sampled_from(["BOX", "BOX003", "cvat", "error", "off", "x", "", "\0"])
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats() | st.booleans() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


DEFAULTS = {key: one["default"] for key, one in schema()["properties"].items() if "default" in one}


def toml_of(value: Any) -> str:
    """A value of TOML; tables are inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps(value) if isinstance(value, (str, bool)) else str(value)


def is_taken(data: bytes) -> bool:
    try:
        read_configuration(data, "tfod.toml")
    except TfodError as error:
        assert "\n" not in str(error)
        return False
    return True


class TestAnyToml:
    @given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
    def test_any_bytes(self, data: bytes) -> None:
        is_taken(data)

    @given(st.dictionaries(st.sampled_from([*schema()["properties"], "x"]), VALUES, max_size=3))
    def test_takes_what_the_schema_describes(self, values: dict[str, Any]) -> None:
        text = "".join(f"{key} = {toml_of(value)}\n" for key, value in values.items())
        document = tomllib.loads(text)
        fits = not list(Draft7Validator(schema()).iter_errors(document))
        assert is_taken(text.encode()) == fits
        if fits:
            found = read_configuration(text.encode(), "tfod.toml")
            assert found is not None and tomllib.loads(to_toml(found)) == {**DEFAULTS, **document}


class TestSchema:
    def test_is_one(self) -> None:
        Draft7Validator.check_schema(schema())

    def test_names_what_the_code_takes(self) -> None:
        properties = schema()["properties"]
        assert properties["for"]["enum"] == list(RECEIVERS)
        for name in RECEIVERS:
            assert name in properties["for"]["description"]
        assert all(is_taken(f"profile = '{name}'".encode()) for name in READY)
        assert all(is_taken(f"select = ['{code}', '{code[:3]}']".encode()) for code in ALL)

    def test_describes_what_the_page_has(self) -> None:
        text = PAGE.read_text(encoding="utf-8")
        short, own, project = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
        files = (("tfod.toml", short), ("tfod.toml", own), ("pyproject.toml", project))
        for name, example in files:
            found = read_configuration(example.encode(), name)
            assert found is not None
            Draft7Validator(schema()).validate(found.values)
        assert set(tomllib.loads(own)) == set(schema()["properties"])
        rows = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
        assert rows == list(schema()["properties"])


class TestCommand:
    def test_shows_what_can_be_saved(self, run: Run, data: Path) -> None:
        text = 'ignore = ["BOX"]\n[per-path."val/*"]\nseverities.BOX = "off"\n'
        write_file(data / "tfod.toml", text)
        shown = run("config", "--show").out
        assert shown.endswith('\n[per-path."val/*".severities]\nBOX = "off"  # tfod.toml\n')
        assert 'fail-on = "error"  # default\n' in shown and "# for is not set\n" in shown
        write_file(data / "tfod.toml", shown)
        assert run("config", "--show").out.replace("# default", "# tfod.toml") == shown.replace(
            "# default", "# tfod.toml"
        )

    def test_prints_the_schema(self, run: Run) -> None:
        assert json.loads(run("config", "--schema").out) == schema()

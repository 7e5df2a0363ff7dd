"""Profiles from files."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tfod.checker.finding import FAMILIES, Severity
from tfod.checker.profiles.file import load_profile, profile_to_yaml, schema
from tfod.checker.profiles.profile import OFF, READY, Profile, features_to_profile
from tfod.checker.rules.registry import all_rules
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import PROFILES, FeatureSpec, to_source
from tfod.errors import TfodError
from tfod.example.wire import Kind

from tests.commands import Run
from tests.conftest import examples
from tests.files import write_file
from tests.records import image, objects

VARIABLE = {"kind": "VarLenFeature", "dtype": "int64"}
FIXED = {"kind": "FixedLenFeature", "dtype": "int64"}
OTHER_KIND = {"kind": "x", "dtype": "int64"}
MANY = f"S = '{'x' * 99_000}'\nf = {{'k': FixedLenFeature([9999], tf.string, [{'S,' * 9999}])}}"


def feature(spec: dict[str, Any], **change: Any) -> dict[str, Any]:
    """A changed feature in a document."""
    return {"features": {"a": spec | change}}


def write_profile(folder: Path, name: str, content: str | bytes | dict[str, Any]) -> str:
    text = json.dumps(content) if isinstance(content, dict) else content
    return str(write_file(folder / name, text))


def refusal(path: str) -> str:
    """The line that a file is refused with, without the folder."""
    with pytest.raises(TfodError) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(Path(path).parent) + "/", "")


def test_names(tmp_path: Path) -> None:
    assert all(load_profile(name) is profile for name, profile in READY.items())
    assert "cvta: there is no such profile; did you mean cvat? pass cvat," in refusal("cvta")
    assert refusal(str(tmp_path / "p.yaml")) == "p.yaml: No such file or directory"
    Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", ["p.yaml", "p.yml", "p.json", "P.JSON"])
def test_all_fields(tmp_path: Path, name: str) -> None:
    document = {
        "$schema": "profile.schema.json",
        "name": "ours",
        "title": "our cameras",
        "features": {
            "image/encoded": {"kind": "FixedLenFeature", "dtype": "string"},
            "camera": {"kind": "VarLenFeature", "dtype": "int64", "required": True},
            "pose": {"kind": "FixedLenFeature", "dtype": "float32", "shape": [2, 1]}
            | {"default": [0, -1.5], "meaning": "radians"},
            "raw": FIXED | {"dtype": "string", "shape": [], "default": {"base64": "/w=="}},
        },
        "field_mapping": {"source_id": "camera", "box": ["pose"]},
        "rules": {"TFR": "warning", "TFR003": "off", "BOX001": "info"},
        "speaks_against": ["z"],  # of older versions; it is ignored
        "images": True,
    }
    assert load_profile(write_profile(tmp_path, name, document)) == Profile(
        "ours",
        "our cameras",
        {
            "image/encoded": FeatureSpec(Kind.BYTES, ()),
            "camera": FeatureSpec(Kind.INT64, is_mandatory=True),
            "pose": FeatureSpec(Kind.FLOAT, (2, 1), (0.0, -1.5), "radians"),
            "raw": FeatureSpec(Kind.BYTES, (), b"\xff"),
        },
        # Standard keys are used only if they are features.
        FieldMapping.only(encoded="image/encoded", source_id="camera", box=("pose",)),
        {"TFR": Severity.WARNING, "TFR003": OFF, "BOX001": Severity.INFO},
    )


def test_off_without_quotes_in_yaml(tmp_path: Path) -> None:
    text = "features: {a: {kind: VarLenFeature, dtype: int64}}\nrules: {BOX001: off}\n"
    profile = load_profile(write_profile(tmp_path, "mine.v2.yaml", text))
    assert profile.severities == {"BOX001": OFF} and profile.name == "mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titel": "x"}, ".*'titel' was unexpected.*; expected a profile: .* title, "),
        ({"features": []}, r"features: \[\] is not of type 'object'; expected at least one"),
        ({"features": {"a": {"kind": "VarLenFeature"}}}, "features.a: 'dtype' is a required "),
        # The path has another form with older jsonschema.
        ({"features": {"b/a": OTHER_KIND}}, r"features(\['b/a'\]|\.b/a).kind: 'x' is not "),
        (feature(VARIABLE, dtype="uint8"), "features.a.dtype: 'uint8' is not one of "),
        (feature(VARIABLE, shape=[1]), "features.a.shape: .*; expected nothing, because a V"),
        (feature(FIXED, shape=[0]), r"features.a.shape\[0\]: 0 is less .*; expected a size, "),
        (feature(FIXED, default=None), "features.a.default: .*; expected an integer of 64 bit"),
        (feature(FIXED, default="1"), "features.a.default: '1' .*; expected an integer of 64 "),
        (feature(FIXED, dtype="string", default=1), ".default: .*; expected a text, bytes as "),
        (feature(FIXED, dtype="string", default={"base64": "é"}), "a'.: .* not valid base64"),
        (feature(FIXED, shape=[3], default=1), "the shape has 3 values and the default 1"),
        (feature(FIXED, required=False), "features.a: 'default' is a required property"),
        ({"rules": {"BOX001": "fatal"}}, "rules.BOX001: 'fatal' is not one of .*; expected er"),
        ({"rules": {"TFR01": "off"}}, "rules: there is no rule or family 'TFR01'; did you"),
        ({"rules": {"box001": "off"}}, "no rule or family 'box001'; did you mean BOX001"),
        ({"rules": {"?": "off"}}, r"no rule or family '\?'; tfod rules lists them all"),
        ({"field_mapping": {"box": ["a", "b"]}}, "field_mapping.box: .*; expected a list of f"),
        ({"field_mapping": {"mask": "a"}}, "field_mapping: .*'mask' was .*; expected a key fo"),
        ({"field_mapping": {"height": 1}}, "field_mapping.height: 1 is .*; expected a key, or"),
        ({"rules": {1: "off"}}, "there is no rule or family '1'"),
        ({"title": ["x" * 9999]}, "title: .{60}….{90}; expected a text"),
    ],
)
def test_invalid_values(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    for name in ("p.json", "p.yaml"):
        line = refusal(write_profile(tmp_path, name, feature(VARIABLE) | change))
        assert line.startswith(f"{name}: ") and re.search(message, line)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.yaml", "features: [", "p.yaml:1: not a valid YAML file: "),
        ("p.yaml", "", "p.yaml: None is not of type 'object'; expected a profile: an "),
        ("p.yaml", b"\xff\xfe", "p.yaml: not a valid YAML file: 'utf-8' codec"),
        ("p.yaml", "a: !!python/object/apply:os.getcwd []", "could not determine a construct"),
        ("p.yaml", "name: x\nname: y", "p.yaml:2: not a valid YAML file: duplicate key 'name'"),
        ("p.yaml", "a: &a [1]\nb: *a", "p.yaml:2: not a valid YAML file: aliases (*) are not"),
        ("p.yaml", "--- a\n--- b", "p.yaml:2: not a valid YAML file: but found another docum"),
        ("p.yaml", 'title: "\\ud800"', "p.yaml: has a value that cannot be written as JSON"),
        ("p.json", '{"\\ud800": 1}', "p.json: has a value that cannot be written as JSON"),
        ("p.yaml", "? [a]\n: b", "not a valid YAML file: found unhashable key"),
        ("p.yaml", "a: " + "9" * 5000, "p.yaml:1: not a valid YAML file: a number has 5,000"),
        ("p.yaml", bytes(2 << 20), "is larger than 256 KiB"),
        ("p.yaml", "[" * 5000 + "]" * 5000, "p.yaml: is nested too deeply for a profile"),
        ("p.json", "[" * 100_000, "p.json: is nested too deeply for a profile"),
        ("p.json", "{", "p.json:1: not a valid JSON file: Expecting property name"),
        ("p.json", b"\xff", "p.json: not a valid JSON file: 'utf-8' codec"),
        ("p.json", '{"a": 1, "a": 2}', "p.json: not a valid JSON file: duplicate key 'a'"),
        ("p.json", json.dumps(dict.fromkeys(range(18_000)))[:-1] + ',"7":1}', "duplicate key"),
        ("p.py", "x = 1", "p.py: has no dict of tf.io calls, such as feature_description = {"),
        ("p.py", "print 'x'", "p.py:1: is not Python 3: "),
        ("p.py", b"\x00", "p.py:1: is not Python 3: "),
        ("p.py", b"# coding: nothing\n", "is not Python 3: unknown encoding: nothing"),
        ("p.py", "x = " + "(" * 5000, "is not Python 3: "),
        ("p.py", "from keys import A\nf = {\n  A: VarLenFeature(tf.int64)}", "p.py:3: A is not a "),
        ("p.py", "A = 'a'\nA = 'b'\nf = {A: VarLenFeature(tf.int64)}", "p.py:3: A is not a lite"),
        ("p.py", "n = 3\ndef f(n):\n  return {'k': FixedLenFeature([n], tf.int64)}", ":3: n is "),
        ("p.py", "f = {1: VarLenFeature(tf.int64)}", "p.py:1: the key 1 is not text"),
        ("p.py", "f = {'\\ud800': VarLenFeature(tf.int64)}", "cannot be written as JSON"),
        ("p.py", "f = {'k': FixedLenFeature([], tf.string, '\\ud800')}", "cannot be written as "),
        ("p.py", "f = {'k': VarLenFeature(tf.int64),\n'x': make()}", "p.py:2: 'x' is make(); use "),
        ("p.py", "f = {**other(), 'k': VarLenFeature(tf.int64)}", "p.py:1: another dict is inclu"),
        ("p.py", "f = {'k': VarLenFeature(tf.int64)}\nif x:\n  f.update(g)", "p.py:3: f is chang"),
        ("p.py", "a = {'k': VarLenFeature(float)}\n\nb = {'x': VarLenFeature(float)}", ":3: a sec"),
        ("p.py", "f = {'k': SparseFeature('i', 'v', tf.float32, 9)}", "has no dict of tf.io call"),
        ("p.py", "f = {'k': FixedLenSequenceFeature([], tf.int64)}", "p.py:1: 'k' is for Sequen"),
        ("p.py", "f = {'k': RaggedFeature(tf.int64, partitions=[])}", "keyword argument 'partit"),
        ("p.py", "f = {'k': VarLenFeature(tf.int32)}", "p.py:1: 'k': dtype tf.int32 is invalid i"),
        ("p.py", "f = {'k': VarLenFeature()}", "'k': VarLenFeature: missing a required argument"),
        ("p.py", "f = {'k': VarLenFeature(tf.int64, 1)}", "VarLenFeature: too many positional a"),
        ("p.py", "f = {'k': FixedLenFeature(None, tf.int64)}", "features.k.shape: None is not of"),
        ("p.py", "f = {'k': FixedLenFeature([None], tf.int64)}", "features.k.shape[0]: None is n"),
        ("p.py", "f = {'k': FixedLenFeature([3], tf.int64, 0)}", "3 values and the default 1"),
        ("p.py", "f = {'k': FixedLenFeature([], tf.int64, 1.5)}", "an integer of 64 bits"),
        ("p.py", f"f = {{'k': FixedLenFeature([], tf.int64, {1 << 63})}}", "an integer of 64 bit"),
        ("p.py", f"f = {{'k': FixedLenFeature([], tf.float32, 0x{'f' * 5000})}}", "cannot be wri"),
        ("p.py", "f = {'k': FixedLenFeature([], tf.string, 'a' * 10**9)}", "'a' * 10 ** 9 is not"),
        ("p.py", MANY, "p.py:2: S is not a literal"),
        (
            "p.py",
            "S = [2147483647, 2147483647]\nf = {'k': FixedLenFeature(S, tf.string)}",
            "more t",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    assert message in refusal(write_profile(tmp_path, name, content))


@pytest.mark.parametrize(("module", "name"), [("yaml", "PyYAML"), ("jsonschema", "jsonschema")])
def test_without_the_extra(tmp_path: Path, monkeypatch: Any, module: str, name: str) -> None:
    path = write_profile(tmp_path, "p.yaml", "features: {}")
    monkeypatch.setitem(sys.modules, module, None)
    assert f"need {name}; pip install '.[validator]'" in refusal(path)


K = "{'k': tf.io.FixedLenFeature([], tf.int64)}"


@pytest.mark.parametrize(
    "source",
    [
        f"import tensorflow as tf\nf = {K}",
        "import tensorflow\nf = {'k': tensorflow.io.FixedLenFeature([], tensorflow.int64)}",
        "import tensorflow.io\nf = {'k': tensorflow.io.FixedLenFeature([], 'int64')}",
        "from tensorflow import io, int64\nf = {'k': io.FixedLenFeature((), dtype=int64)}",
        "from tensorflow.io import *\nf = {'k': FixedLenFeature([], int64)}",
        "import tensorflow as t\nv1 = t.compat.v1\nf = {'k': v1.FixedLenFeature((), 'int64')}",
        "import numpy as np\nf = {'k': tf.io.FixedLenFeature([], np.int64)}",
        "K = 'k'\nS = ()\nf: dict = {K: tf.io.FixedLenFeature(S, tf.int64)}",
        f"def parse(x):\n    return tf.io.parse_example(x, {K})",
        f"class Decoder:\n    def __init__(self):\n        self.keys = {K}",
        f"base = {K}\nf = dict(base) | {{}}",
        f"a = {{'x': tf.io.VarLenFeature(tf.int64)}}\nfeature_description = {K}",
        f"features = {K}\nfeatures = tf.io.parse_single_example(x, features)\nfeatures['k'] += 1",
        f"def a():\n  f = {K}\ndef b():\n  f = {K}",
        f"import tfx\ns = '\\d'\nf = {K}",
    ],
)
def test_python_sources_of_one_description(tmp_path: Path, source: str) -> None:
    profile = load_profile(write_profile(tmp_path, "p.py", source))
    assert profile.features == {"k": FeatureSpec(Kind.INT64, ())}


def test_python_sources_of_ready_profiles(tmp_path: Path) -> None:
    for name, ready in READY.items():
        path = write_profile(tmp_path, "train.v2.py", to_source(PROFILES[name]))
        profile = load_profile(path)
        keys = profile.field_mapping.all_keys
        assert keys == ready.field_mapping.all_keys & ready.features.keys()
        if name not in ("roboflow", "open_images"):  # the same keys as tf_detection_api's
            assert profile.severities == ready.severities
        assert (profile.name, profile.title) == ("train", "feature_description of train.v2.py")
        if name == "tf_detection_api":
            assert profile.features["image/width"].meaning == "pixels"
            assert profile.field_mapping == FieldMapping() and profile.severities == {}


def test_python_is_not_run(tmp_path: Path) -> None:
    source = f"open({str(tmp_path / 'trace')!r}, 'w')\nf = {{'k': tf.io.VarLenFeature(float)}}"
    assert load_profile(write_profile(tmp_path, "p.py", source)).features
    assert not (tmp_path / "trace").exists()


@examples(60)
@given(st.binary(max_size=60))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    for name in ("p.py", "p.yaml", "p.json"):
        refusal(write_profile(tmp_path, name, data))


keys = st.text(max_size=12)
values = {
    Kind.BYTES: st.binary(max_size=8) | st.text(max_size=8).map(str.encode),
    Kind.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    Kind.FLOAT: st.floats(allow_nan=False),
}


@st.composite
def specs(draw: st.DrawFn) -> FeatureSpec:
    kind = draw(st.sampled_from(Kind))
    meaning, demanded = draw(st.text(max_size=90)), draw(st.booleans())
    if draw(st.booleans()):
        return FeatureSpec(kind, None, None, meaning, demanded)
    shape = draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    spec = FeatureSpec(kind, shape, None, meaning, demanded)
    length = spec.length or 0
    if draw(st.booleans()):
        return spec
    default = draw(st.lists(values[kind], min_size=length, max_size=length).map(tuple))
    return FeatureSpec(kind, shape, default if length > 1 else default[0], meaning, demanded)


BOX = st.sampled_from([(), ("bbox",), FieldMapping().box]) | st.tuples(keys, keys, keys, keys)
STANDARD = st.sampled_from(sorted(FieldMapping().all_keys))
CODES = st.sampled_from([*FAMILIES, *all_rules()])
profiles = st.builds(
    Profile,
    name=st.text(min_size=1, max_size=12),
    title=st.text(max_size=90),
    features=st.dictionaries(keys | STANDARD, specs(), min_size=1),
    field_mapping=st.builds(FieldMapping, *[st.none() | keys] * 9, box=BOX),
    severities=st.dictionaries(CODES, st.none() | st.sampled_from(Severity)),
)


@examples(60)
@given(profile=profiles | st.sampled_from(list(READY.values())))
def test_written_profiles_read_back_equal(tmp_path: Path, profile: Profile) -> None:
    text = profile_to_yaml(profile)
    assert load_profile(write_profile(tmp_path, "p.yaml", text)) == profile
    document = json.dumps(yaml.safe_load(text))
    assert load_profile(write_profile(tmp_path, "p.json", document)) == profile


def test_describe_as_profile(make_shard: Any, tmp_path: Path, run: Run) -> None:
    shard = make_shard(
        "s",
        image("a.jpg") | objects([[0, 0, 1, 1]], ["cat"], [1]) | {"камера": [1, 2]},
        image("b.jpg") | {"image/encoded": b"x", "image/object/view": ["left"]},
    )
    text = run("describe", "--as-profile", shard).out
    assert text.startswith("name: s\ntitle: like s.tfrecord\nfeatures:\n  image/encoded:\n")
    assert "meaning: view of each object" in text and "камера" in text
    profile = load_profile(write_profile(tmp_path, "p.yaml", text))
    assert profile.features["image/encoded"].default == b""
    assert profile.features["image/filename"].required
    assert profile.field_mapping.format is None and profile.field_mapping.box == FieldMapping().box
    shard = make_shard("s", {})
    refused = run("describe", "--as-profile", shard).refused()
    assert refused == f"tfod: {shard}: the records have no features\n"


def test_features_of_no_known_format() -> None:
    profile = features_to_profile("table", "", {"fare": FeatureSpec(Kind.FLOAT, ())})
    assert not profile.field_mapping.all_keys and profile.severities["BOX"] is OFF

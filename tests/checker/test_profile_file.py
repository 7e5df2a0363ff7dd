"""Profiles from files."""

from __future__ import annotations

import json
import re
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

from tests.commands import Run, run_python
from tests.conftest import examples
from tests.files import write_file
from tests.records import image, objects

VARIABLE = {"kind": "VarLenFeature", "dtype": "int64"}
FIXED = {"kind": "FixedLenFeature", "dtype": "int64"}


def feature(spec: dict[str, Any], **change: Any) -> dict[str, Any]:
    """The features of a document: one, changed."""
    return {"features": {"a": spec | change}}


def write_profile(folder: Path, name: str, content: str | bytes | dict[str, Any]) -> str:
    text = json.dumps(content) if isinstance(content, dict) else content
    return str(write_file(folder / name, text))


def refusal(path: str) -> str:
    """The one line that a file is refused with, without the folder."""
    with pytest.raises(TfodError) as caught:
        load_profile(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(Path(path).parent) + "/", "")


class TestNames:
    @pytest.mark.parametrize("name", READY)
    def test_ready(self, name: str) -> None:
        assert load_profile(name) is READY[name]

    def test_names_of_no_profile(self, tmp_path: Path) -> None:
        assert "cvta: there is no such profile; did you mean cvat? pass cvat," in refusal("cvta")
        assert refusal(str(tmp_path / "p.yaml")) == "p.yaml: No such file or directory"


class TestDocuments:
    def test_the_schema_is_one(self) -> None:
        Draft202012Validator.check_schema(schema())

    @pytest.mark.parametrize("name", ["p.yaml", "p.yml", "p.json", "P.JSON"])
    def test_all_fields(self, tmp_path: Path, name: str) -> None:
        document = {
            "$schema": "profile.schema.json",
            "name": "ours",
            "title": "our cameras",
            "features": {
                "image/encoded": {"kind": "FixedLenFeature", "dtype": "string"},
                "camera": {"kind": "VarLenFeature", "dtype": "int64", "required": True},
                "pose": FIXED
                | {"dtype": "float32", "shape": [2, 1], "default": [0, -1.5]}
                | {"meaning": "radians"},
                "raw": FIXED | {"dtype": "string", "shape": [], "default": {"base64": "/w=="}},
            },
            "field_mapping": {"source_id": "camera", "box": ["pose"]},
            "rules": {"TFR": "warning", "TFR003": "off", "BOX001": "info"},
            "speaks_against": ["z"],  # not read any more, and no reason to refuse the file
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
            # Standard keys are taken for granted where they are features, no others.
            FieldMapping.only(encoded="image/encoded", source_id="camera", box=("pose",)),
            {"TFR": Severity.WARNING, "TFR003": OFF, "BOX001": Severity.INFO},
        )

    def test_a_bare_off_in_yaml(self, tmp_path: Path) -> None:
        text = "features: {a: {kind: VarLenFeature, dtype: int64}}\nrules: {BOX001: off}\n"
        profile = load_profile(write_profile(tmp_path, "mine.v2.yaml", text))
        assert profile.severities == {"BOX001": OFF} and profile.name == "mine"

    @pytest.mark.parametrize(
        ("change", "output"),
        [
            ({"titel": "x"}, ".*'titel' was unexpected.*; expected a profile: .* title, "),
            ({"features": []}, r"features: \[\] is not of type 'object'; expected at least one"),
            ({"features": {"a": {"kind": "VarLenFeature"}}}, "features.a: 'dtype' is a required "),
            (
                {"features": {"b/a": VARIABLE | {"kind": "x"}}},
                r"features(\['b/a'\]|\.b/a).kind: 'x' is not ",  # as older jsonschema
            ),
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
    def test_refused(self, tmp_path: Path, change: dict[str, Any], output: str) -> None:
        document = feature(VARIABLE) | change
        for name in ("p.json", "p.yaml"):
            line = refusal(write_profile(tmp_path, name, document))
            assert line.startswith(f"{name}: ") and re.search(output, line)

    @pytest.mark.parametrize(
        ("name", "content", "output"),
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
        ],
    )
    def test_no_document(
        self, tmp_path: Path, name: str, content: str | bytes, output: str
    ) -> None:
        assert output in refusal(write_profile(tmp_path, name, content))

    @pytest.mark.parametrize("module", ["yaml", "jsonschema"])
    def test_without_the_extra(self, tmp_path: Path, module: str) -> None:
        path = write_profile(tmp_path, "p.yaml", "features: {}")
        code = (
            f"import sys; sys.modules[{module!r}] = None\n"
            "from tfod.checker.profiles.file import load_profile\n"
            f"load_profile({path!r})"
        )
        name = {"yaml": "PyYAML"}.get(module, module)
        assert f"need {name}; pip install '.[validator]'" in run_python("-c", code).err


class TestPython:
    @pytest.mark.parametrize(
        "source",
        [
            "import tensorflow as tf\nf = {'k': tf.io.FixedLenFeature([], tf.int64)}",
            "import tensorflow\nf = {'k': tensorflow.io.FixedLenFeature([], tensorflow.int64)}",
            "import tensorflow.io\nf = {'k': tensorflow.io.FixedLenFeature([], 'int64')}",
            "from tensorflow import io, int64\nf = {'k': io.FixedLenFeature((), dtype=int64)}",
            "from tensorflow.io import *\nf = {'k': FixedLenFeature([], int64)}",
            "import tensorflow as t\nv1 = t.compat.v1\nf = {'k': v1.FixedLenFeature((), 'int64')}",
            "import numpy as np\nf = {'k': tf.io.FixedLenFeature([], np.int64)}",
            "K = 'k'\nS = ()\nf: dict = {K: tf.io.FixedLenFeature(S, tf.int64)}",
            "def parse(x):\n    return tf.io.parse_example(x, "
            "{'k': tf.io.FixedLenFeature([], tf.int64)})",
            "class Decoder:\n    def __init__(self):\n        self.keys = "
            "{'k': tf.io.FixedLenFeature([], tf.int64)}",
            "base = {'k': tf.io.FixedLenFeature([], tf.int64)}\nf = dict(base) | {}",
            "a = {'x': tf.io.VarLenFeature(tf.int64)}\n"
            "feature_description = {'k': tf.io.FixedLenFeature([], tf.int64)}",
            "features = {'k': tf.io.FixedLenFeature([], tf.int64)}\n"
            "features = tf.io.parse_single_example(x, features)\nfeatures['k'] += 1",
            "def a():\n  f = {'k': tf.io.FixedLenFeature([], tf.int64)}\n"
            "def b():\n  f = {'k': tf.io.FixedLenFeature([], tf.int64)}",
            "import tfx\ns = '\\d'\nf = {'k': tf.io.FixedLenFeature([], tf.int64)}",
        ],
    )
    def test_spellings_of_one_description(self, tmp_path: Path, source: str) -> None:
        profile = load_profile(write_profile(tmp_path, "p.py", source))
        assert profile.features == {"k": FeatureSpec(Kind.INT64, ())}

    def test_name_title_meanings_and_field_mapping(self, tmp_path: Path) -> None:
        source = to_source(PROFILES["tf_detection_api"])
        profile = load_profile(write_profile(tmp_path, "train.v2.py", source))
        assert (profile.name, profile.title) == ("train", "feature_description of train.v2.py")
        assert profile.features["image/width"].meaning == "pixels"
        assert profile.field_mapping == FieldMapping()
        assert profile.severities == {}

    @pytest.mark.parametrize("name", READY)
    def test_field_mapping_of_ready_descriptions(self, tmp_path: Path, name: str) -> None:
        profile = load_profile(write_profile(tmp_path, "p.py", to_source(PROFILES[name])))
        ready = READY[name]
        assert (
            profile.field_mapping.all_keys == ready.field_mapping.all_keys & ready.features.keys()
        )
        if name not in ("roboflow", "open_images"):  # the same keys as tf_detection_api's
            assert profile.severities == ready.severities

    @pytest.mark.parametrize(
        ("source", "output"),
        [
            ("x = 1", "p.py: has no dict of tf.io calls, such as feature_description = {"),
            ("print 'x'", "p.py:1: is not Python 3: "),
            (b"\x00", "p.py:1: is not Python 3: "),
            (b"# coding: nothing\n", "is not Python 3: unknown encoding: nothing"),
            ("x = " + "(" * 5000, "is not Python 3: "),
            ("from keys import A\nf = {\n  A: VarLenFeature(tf.int64)}", "p.py:3: A is not a lit"),
            ("A = 'a'\nA = 'b'\nf = {A: VarLenFeature(tf.int64)}", "p.py:3: A is not a literal"),
            ("n = 3\ndef f(n):\n  return {'k': FixedLenFeature([n], tf.int64)}", ":3: n is not a"),
            ("f = {1: VarLenFeature(tf.int64)}", "p.py:1: the key 1 is not text"),
            ("f = {'\\ud800': VarLenFeature(tf.int64)}", "cannot be written as JSON"),
            ("f = {'k': FixedLenFeature([], tf.string, '\\ud800')}", "cannot be written as JSON"),
            ("f = {'k': VarLenFeature(tf.int64),\n'x': make()}", "p.py:2: 'x' is make(); use Fixe"),
            ("f = {**other(), 'k': VarLenFeature(tf.int64)}", "p.py:1: another dict is included"),
            ("f = {'k': VarLenFeature(tf.int64)}\nif x:\n  f.update(g)", "p.py:3: f is changed"),
            (
                "a = {'k': VarLenFeature(float)}\n\nb = {'x': VarLenFeature(float)}",
                ":3: a second feature",
            ),
            ("f = {'k': SparseFeature('i', 'v', tf.float32, 9)}", "has no dict of tf.io calls"),
            ("f = {'k': FixedLenSequenceFeature([], tf.int64)}", "p.py:1: 'k' is for SequenceExam"),
            ("f = {'k': RaggedFeature(tf.int64, partitions=[])}", "keyword argument 'partitions'"),
            ("f = {'k': VarLenFeature(tf.int32)}", "p.py:1: 'k': dtype tf.int32 is invalid in an"),
            ("f = {'k': VarLenFeature()}", "'k': VarLenFeature: missing a required argument: 'dty"),
            ("f = {'k': VarLenFeature(tf.int64, 1)}", "VarLenFeature: too many positional arg"),
            (
                "f = {'k': FixedLenFeature(None, tf.int64)}",
                "p.py: features.k.shape: None is not of",
            ),
            ("f = {'k': FixedLenFeature([None], tf.int64)}", "features.k.shape[0]: None is not of"),
            (
                "f = {'k': FixedLenFeature([3], tf.int64, 0)}",
                "shape has 3 values and the default 1",
            ),
            ("f = {'k': FixedLenFeature([], tf.int64, 1.5)}", "an integer of 64 bits"),
            (f"f = {{'k': FixedLenFeature([], tf.int64, {1 << 63})}}", "an integer of 64 bits"),
            (f"f = {{'k': FixedLenFeature([], tf.float32, 0x{'f' * 5000})}}", "cannot be written"),
            ("f = {'k': FixedLenFeature([], tf.string, 'a' * 10**9)}", "'a' * 10 ** 9 is not a"),
            (
                f"S = '{'x' * 99_000}'\n"
                f"f = {{'k': FixedLenFeature([9999], tf.string, [{'S,' * 9999}])}}",
                "p.py:2: S is not a literal",
            ),
            ("S = [2147483647, 2147483647]\nf = {'k': FixedLenFeature(S, tf.string)}", "more than"),
        ],
    )
    def test_refused(self, tmp_path: Path, source: str | bytes, output: str) -> None:
        assert output in refusal(write_profile(tmp_path, "p.py", source))

    def test_nothing_is_run(self, tmp_path: Path) -> None:
        source = f"open({str(tmp_path / 'trace')!r}, 'w')\nf = {{'k': tf.io.VarLenFeature(float)}}"
        assert load_profile(write_profile(tmp_path, "p.py", source)).features
        assert not (tmp_path / "trace").exists()

    @examples(60)
    @given(st.binary(max_size=60))
    def test_any_bytes(self, tmp_path: Path, data: bytes) -> None:
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


role = st.none() | keys
profiles = st.builds(
    Profile,
    name=st.text(min_size=1, max_size=12),
    title=st.text(max_size=90),
    features=st.dictionaries(
        keys | st.sampled_from(sorted(FieldMapping().all_keys)), specs(), min_size=1
    ),
    field_mapping=st.builds(
        FieldMapping,
        *[role] * 9,
        box=st.sampled_from([(), ("bbox",), FieldMapping().box])
        | st.tuples(keys, keys, keys, keys),
    ),
    severities=st.dictionaries(
        st.sampled_from([*FAMILIES, *all_rules()]), st.none() | st.sampled_from(Severity)
    ),
)


class TestWriting:
    @examples(60)
    @given(profile=profiles | st.sampled_from(list(READY.values())))
    def test_written_profiles_read_back_equal(self, tmp_path: Path, profile: Profile) -> None:
        text = profile_to_yaml(profile)
        assert load_profile(write_profile(tmp_path, "p.yaml", text)) == profile
        # The document is plain JSON as well.
        document = json.dumps(yaml.safe_load(text))
        assert load_profile(write_profile(tmp_path, "p.json", document)) == profile


class TestDescribe:
    def test_a_shard_as_profile(self, make_shard: Any, tmp_path: Path, run: Run) -> None:
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
        mapping = profile.field_mapping
        assert mapping.format is None and mapping.box == FieldMapping().box

    def test_nothing_to_expect(self, make_shard: Any, run: Run) -> None:
        shard = make_shard("s", {})
        refused = run("describe", "--as-profile", shard).refused()
        assert refused == f"tfod: {shard}: the records have no features\n"


def test_features_of_no_known_format_play_no_part() -> None:
    profile = features_to_profile("table", "", {"fare": FeatureSpec(Kind.FLOAT, ())})
    assert not profile.field_mapping.all_keys and profile.severities["BOX"] is OFF

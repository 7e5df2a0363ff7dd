"""Every command and reader takes files, label maps and layouts of a source as the resolver does."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tfod
from datumaro.components.dataset import Dataset
from tfod.cli.arguments import COMMANDS
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.labels.label_map import LabelMap
from tfod.example.example_batch import ExampleBatch
from tfod.sources.layouts import LAYOUTS, find_layout
from tfod.sources.reading import find_label_map, find_readable
from tfod.sources.resolver import resolve
from tfod.tfrecord.reader import read_record_batches

from tests.commands import Run
from tests.files import files_in, write_file, write_files
from tests.image_kinds import HEIGHT, WIDTH, saved
from tests.records import encode, frame, image, objects
from tests.zip_forge import real_zip

PNG = saved("RGB", "PNG")
BOXES = [[0.25, 0.2, 0.5, 0.6], [0.1, 0.1, 0.9, 0.8]]
MAP = LabelMap.from_names(["cat", "dog"]).to_text()
OTHER = LabelMap.from_names(["horse"]).to_text()
FLAGS = {f"image/object/{name}": [0, 1] for name in ("group_of", "occluded", "truncated")}
_IDS, _TEXTS = objects(BOXES, None, [1, 2]), objects(BOXES, ["cat", "dog"], [1, 2])
_NAMED = image("a.png", HEIGHT, WIDTH)
_IMAGE = _NAMED | {keys.ENCODED: PNG, keys.FORMAT: "png"}
_SIZE = {"height": HEIGHT, "width": WIDTH}
RECORDS: Mapping[str, list[dict[str, Any]]] = {
    "cvat": [_NAMED | {keys.SOURCE_ID: "1"} | _TEXTS],
    "tf_detection_api": [_IMAGE | {keys.SOURCE_ID: "1", keys.SHA256: ""} | _IDS],
    "roboflow": [_IMAGE | _TEXTS],
    "open_images": [
        {keys.ENCODED: PNG, keys.FILENAME: "a.png", keys.SOURCE_ID: "a", **_TEXTS, **FLAGS}
        | {"image/object/depiction": [0, 1], "image/class/label": [1], "image/class/text": ["cat"]}
    ],
    "keras_coco": [
        {"image": PNG, "path": "a.png", "area": 8.0, "bbox": [1.0, 2.0, 10.0, 8.0]}
        | {"category_id": number, "id": number, "image_id": 7}
        for number in (1, 2)
    ],
    "slim_classification": [
        {keys.ENCODED: PNG, keys.FORMAT: "png", keys.IMAGE_CLASS_LABEL: 2}
        | {keys.HEIGHT: HEIGHT, keys.WIDTH: WIDTH, keys.FILENAME: "a.png"}
    ],
    "image_classification": [{"image_raw": PNG, "label": 1, "depth": 3, **_SIZE}],
    "image_label": [{"image": PNG, "label": 1, "channels": 3, **_SIZE}],
    "image_label with a text": [{"img": PNG, "class": "dog", "file_name": "a.png"}],
    "image_label of few keys": [{"image_bytes": PNG, "label": 1}],
}
"""Records of each layout that keys can tell, and of its variants."""


def shard_of(layout: str) -> bytes:
    return frame(*map(encode, RECORDS[layout]))


IDS, TEXTS, LABELLED = map(shard_of, ("tf_detection_api", "roboflow", "image_label"))
SPLITS = {"train/a.tfrecord": IDS, "valid/a.tfrecord": IDS, "label_map.pbtxt": MAP.encode()}
ZIP = real_zip(SPLITS.items())
FILES: Mapping[str, Mapping[str, bytes | str]] = {
    **{name: {"a.tfrecord": shard_of(name), "label_map.pbtxt": MAP} for name in RECORDS},
    "labels.txt": {"a.tfrecord": LABELLED, "labels.txt": "cat\ndog\n"},
    "labels.txt above": {"day/a.tfrecord": LABELLED, "labels.txt": "cat\ndog\n"},
    "a zip with labels.txt": {
        "a.zip": real_zip(
            {"x/a.tfrecord": shard_of("image_label"), "labels.txt": b"cat\ndog\n"}.items()
        ),
        "labels.txt": "horse\n",
    },
    "labels.txt next to boxes": {"a.tfrecord": TEXTS, "labels.txt": "horse\n"},
    "no label map": {"a.tfrecord": TEXTS},
    "a numbered set": {f"a-0000{n}-of-00002": IDS for n in (0, 1)} | {"label_map.pbtxt": MAP},
    "two subsets": {"train.record": IDS, "val.record": IDS, "labelmap.pbtxt": MAP},
    "a label map of the shard": {"a.record": IDS, "a_label_map.pbtxt": MAP, "b.pbtxt": OTHER},
    "any name": {"a.record": IDS, "object-detection.pbtxt": MAP, "pipeline.pbtxt": "model {}"},
    "folders of splits": SPLITS,
    "a label map above": {"day/a.tfrecord": IDS, "label_map.pbtxt": MAP},
    "a label map of others above": {"day/a.tfrecord": TEXTS, "label_map.pbtxt": OTHER},
    "a zip": {"a.zip": ZIP},
    "a zip in a zip's folder": {"a.zip": real_zip((f"x/{k}", v) for k, v in SPLITS.items())},
    "a zip next to shards": {"a.tfrecord": IDS, "label_map.pbtxt": MAP, "b.zip": ZIP},
}


@dataclass
class Answer:
    """The contents of a source: records, classes of objects and images, layouts, label maps."""

    records: int = 0
    boxes: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    layouts: set[str] = field(default_factory=set)
    label_maps: set[str] = field(default_factory=set)
    label_map: LabelMap | None = None


def name_of(text: str | None, label: int | None, label_map: LabelMap | None) -> str:
    item = label_map.find_id(label) if label_map and label is not None else None
    return text or (item.class_name if item else str(label))


def classes_of(one: Detection, label_map: LabelMap | None) -> list[str]:
    nothing = [None] * len(one.boxes)
    pairs = zip(one.class_text or nothing, one.class_label or nothing, strict=True)
    labels = ((each.text, each.label) for each in one.image_labels)
    return [name_of(*pair, label_map) for pair in (*pairs, *labels)]


def resolved(source: Path, is_checked: bool = False) -> Answer:
    """The answer of the resolver, from records read with its layouts and label maps."""
    answer = Answer()
    with resolve([str(source)], is_checked=is_checked) as sources:
        for dataset, shard in ((one, shard) for one in sources.datasets for shard in one.shards):
            layout, file = find_layout(dataset.shards), dataset.get_label_map(shard)
            answer.layouts.add(layout.name)
            answer.label_maps.update([base_name(file.name)] if file else [])
            answer.label_map = file.label_map if file else None
            for records in read_record_batches(shard.path):
                for row in Detections(ExampleBatch.of(records), layout.field_mapping):
                    answer.classes.update(classes_of(row, answer.label_map))
                    answer.boxes += len(row.boxes)
                    answer.records += 1
    return answer


def base_name(path: str) -> str:
    """The name of a file, which may be in a zip."""
    return re.split("[:/]", path)[-1]


# The answers of commands and readers, with the facts that they show


def check(run: Run, source: Path, out: Path) -> dict[str, Any]:
    run("check", source, "--for", "any", "--decode", "none", "--format", "json", "-o", out)
    report = json.loads(out.read_text())
    datasets = report["datasets"]
    return {
        **{name: report["counts"][name] for name in ("records", "boxes")},
        "layouts": {one["profile"]["name"] for one in datasets},
        "label_maps": {base_name(name) for one in datasets for name in one["label_maps"]},
    }


def show(run: Run, source: Path, out: Path) -> dict[str, Any]:
    page = out.with_suffix(".html")
    counts = re.findall(r"(\d+) (record|box)", run("show", source, "-o", page).out)
    (_, records), (_, boxes) = ((name, int(count)) for count, name in counts)
    return {"records": records, "boxes": boxes}


def describe(run: Run, source: Path, out: Path) -> dict[str, Any]:
    output = run("describe", source).out
    layouts, label_maps = re.findall("^layout: (.*); label map: (.*)$", output, re.MULTILINE)[0]
    return {
        "records": int(re.findall(r"(\d+) records?", output)[0]),
        "boxes": int(re.findall(r"(\d+) box", output)[0]),
        "layouts": set(layouts.split(", ")),
        "label_maps": {base_name(one) for one in label_maps.split(", ")} - {"none"},
    }


def convert(run: Run, source: Path, out: Path) -> dict[str, Any]:
    done = run("convert", source, out, "--to", "cvat_xml", "--no-images")
    used = [name for line in re.findall("^label map: (.*)$", done.out, re.MULTILINE)
            for name in line.split(", ")]  # fmt: skip
    boxes, tags = (list(ElementTree.parse(out / "annotations.xml").iter(x)) for x in ("box", "tag"))
    return {
        "boxes": len(boxes),
        "classes": Counter(one.attrib["label"] for one in (*boxes, *tags)),
        "label_maps": {base_name(name) for name in used},
    }


def diff(run: Run, source: Path, out: Path) -> dict[str, Any]:
    report = json.loads(run("diff", source, source, "--format", "json").out)
    return {"boxes": report["a"]["boxes"]}


def rewrite(run: Run, source: Path, out: Path, command: str) -> dict[str, Any]:
    ran = run(command, source, out)
    if ran.code == 1 and not out.exists():  # repair writes nothing if it cannot repair the errors
        return {}
    return vars(resolved(out)) | {"label_map": resolved(source).label_map}


def datumaro(run: Run, source: Path, out: Path) -> dict[str, Any]:
    dataset = Dataset.import_from(str(source), "tf_detection_api")
    names = [one.name for one in next(iter(dataset.categories().values()))]
    annotations = [one for item in dataset for one in item.annotations]
    boxes = sum(one.type.name == "bbox" for one in annotations)
    return {"boxes": boxes, "classes": Counter(names[one.label] for one in annotations)}


def train(run: Run, source: Path, out: Path, module: str) -> dict[str, Any]:
    """Read images, but none from zips with TensorFlow; the label map has the names."""
    pytest.importorskip(module)
    label_map = resolved(source).label_map
    paths = find_readable(source, finds_label_maps=False).paths
    if (source.suffix == ".zip" and module == "tensorflow") or "cvat" in source.parts:
        return {}
    if module == "torch":
        targets = [target for _, target in importlib.import_module("tfod.torch").Detections(paths)]
        ids = [(one["labels"].tolist(), one.get("image_labels", [])) for one in targets]
    else:
        rows = importlib.import_module("tfod.tensorflow").dataset(paths).as_numpy_iterator()
        names = "groundtruth_classes", "groundtruth_image_classes"
        ids = [tuple(one.get(name, []) for name in names) for one in rows]
    found = [name_of(None, int(x), label_map) for row in ids for some in row for x in some]
    answer: dict[str, Any] = {"records": len(ids), "boxes": sum(len(labels) for labels, _ in ids)}
    has_names = label_map is not None and "open_images" not in source.parts  # images have both
    return answer | {"classes": Counter(found)} if has_names else answer


def read(run: Run, source: Path, out: Path, rows: Callable[[Path], Any]) -> dict[str, Any]:
    found = list(rows(source))
    return {"records": len(found), "boxes": sum(len(one.boxes) for one in found)}


ANSWERS: Mapping[str, Callable[[Run, Path, Path], dict[str, Any]]] = {
    **{one.__name__: one for one in (check, show, describe, convert, diff, datumaro)},
    **{name: partial(rewrite, command=name) for name in ("repair", "reshard")},
    **{name: partial(train, module=name) for name in ("torch", "tensorflow")},
    "read_detections": partial(read, rows=tfod.read_detections),
    "decode_detection": partial(
        read, rows=lambda path: map(tfod.decode_detection, tfod.read_examples(path))
    ),
    "read_batches": lambda run, path, out: {"records": sum(map(len, tfod.read_batches(path)))},
}
NOT_OF_SHARDS = {"cvat", "rules", "serve"}


def test_every_command_is_here() -> None:
    assert {*COMMANDS} - NOT_OF_SHARDS <= ANSWERS.keys()
    assert {name.partition(" ")[0] for name in RECORDS} == LAYOUTS.keys() - {"tf_vision"}


@pytest.mark.parametrize("command", ANSWERS)
@pytest.mark.parametrize("name", FILES)
def test_one_answer(run: Run, tmp_path: Path, name: str, command: str) -> None:
    source = write_files(tmp_path / name, FILES[name])
    is_zip = name.startswith("a zip") and "a.zip" in FILES[name]
    source = source / "a.zip" if is_zip else source
    expected = resolved(source, is_checked=command in ("check", "show"))
    assert expected.records and expected.classes
    assert name not in RECORDS or expected.layouts == {name.partition(" ")[0]}
    if command == "repair" and name == "a zip next to shards":
        assert "name one" in run(command, source, tmp_path / "out").refused()
        return
    found = ANSWERS[command](run, source, tmp_path / "out")
    assert {name: getattr(expected, name) for name in found} == found


# A label map one folder up is used only if it has the classes of the shard

ABOVE = {
    "one text of several": (["horse", "dog"], [7, 8], True),
    "the text, whatever the id": (["cat"], [2], True),
    "no text of the map": (["horse"], [1], False),
    "all ids, without texts": (None, [1, 2], True),
    "an id too many, without texts": (None, [1, 3], False),
    "ids from 0, without texts": (None, [0, 1], False),
    "no objects": ([], [], True),
}  # fmt: skip


def write_below(folder: Path, texts: Sequence[str] | None, ids: Sequence[int]) -> Path:
    """Write a shard into a folder below a label map; its first record has no object."""
    features = image("b.jpg") | (objects(BOXES[:1] * len(ids), texts, ids) if ids else {})
    shard = frame(encode(image("a.jpg")), encode(features))
    return write_files(folder, {"label_map.pbtxt": MAP, "day/a.tfrecord": shard}) / "day/a.tfrecord"


@pytest.mark.parametrize("case", ABOVE)
@pytest.mark.parametrize("is_zipped", [False, True])
def test_a_label_map_above_is_used_or_named(tmp_path: Path, case: str, is_zipped: bool) -> None:
    texts, ids, is_taken = ABOVE[case]
    source = shard = write_below(tmp_path, texts, ids)
    if is_zipped:
        source = write_file(tmp_path / "a.zip", real_zip(files_in(tmp_path).items()))
    shards = find_readable(source)
    (file,) = shards.label_maps.values()
    assert (file is not None) is is_taken
    assert (find_label_map(str(shard))[0] is not None) is is_taken
    assert ["label_map.pbtxt" in note for note in shards.notes] == [True] * (not is_taken)


def test_a_label_map_next_to_the_shard_is_always_used(tmp_path: Path, run: Run) -> None:
    shard = write_below(tmp_path, ["horse"], [1])
    (shard.parent / "label_map.pbtxt").write_text(MAP)
    assert find_label_map(str(shard))[0] == str(shard.parent / "label_map.pbtxt")
    assert "LAB006" in run("check", shard).out  # the text is not in the label map

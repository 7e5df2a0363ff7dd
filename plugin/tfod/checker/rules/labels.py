"""LAB rules: classes of objects, and the label map that defines their ids.

Each pair of class text and id is checked once. The OD API's decoder (``BackupHandler``), CVAT and
Datumaro ignore the id of an object whose text is in the label map, so it is never an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TypeAlias

from tfod.checker.analysis.batch import ClassUse
from tfod.checker.analysis.result import DatasetResult
from tfod.checker.finding import Finding, JsonValue, join_names, plural
from tfod.checker.rules.registry import (
    dataset_rule,
    detection_rule,
    each_class,
    each_label_map,
    rule,
)
from tfod.detection import keys
from tfod.detection.labels.fuzzy_names import fold_name
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import excerpt
from tfod.sources.resolved import LabelMapFile

_UTIL = "tensorflow/models: utils/label_map_util.py"
_DECODER = "tensorflow/models: data_decoders/tf_example_decoder.py"
_MAX_CANDIDATES_SHOWN, _MAX_CLASSES_SHOWN = 8, 6
Uses: TypeAlias = "Mapping[tuple[str | None, int | None], int]"
"""The number of objects per class text and id, for the shards of one label map."""


@dataset_rule(
    "LAB001 warning: no label map",
    why="Without it, the ids mean nothing to a trainer, and class names were not checked.",
    fix="Put label_map.pbtxt next to the shard or pass it with --label-map, or write a copy with a "
    "label map of its classes: tfod convert SOURCE labelled --to shards",
    source=_UTIL,
    on_page="Choose the right label map (label_map.pbtxt) together with the shards.",
)
def _check_label_map(result: DatasetResult) -> Iterator[Finding]:
    """Report shards with boxes that have no label map, and shards with several candidates."""
    for shard in result.shards:
        if shard.label_map is not None:
            continue
        if shard.candidates:
            names = join_names(shard.candidates, _MAX_CANDIDATES_SHOWN)
            message = f"several label maps could belong to this shard: {names}"
            fix = f"Pass the right one: tfod check SOURCE --label-map {quote(shard.candidates[0])}"
            fix = "Remove the others from the zip." if result.dataset.zips else fix
            yield Finding(message, shard=shard.name, fix=fix)
        elif shard.boxes:
            yield Finding("no label map next to the shard or one folder up", shard=shard.name)


@dataset_rule(
    "LAB002 error: label map cannot be read",
    why="The trainer fails to read it, or uses only the last of several classes in one item. "
    "Datumaro silently ignores the file.",
    fix="In {file}, write entries such as: item { id: 1 name: 'cat' }.",
    source="tensorflow/models: protos/string_int_label_map.proto; tensorflow/models#8575",
    on_page="Choose the right label map (label_map.pbtxt) together with the shards.",
)
@each_label_map
def _check_readable(file: LabelMapFile) -> Iterator[Finding]:
    if file.label_map is None:  # entries belong into text, never into an image or a shard
        is_text = file.name.lower().endswith((".pbtxt", ".prototxt"))
        yield Finding(file.error, fix="" if is_text else "Pass the right one with --label-map.")


@dataset_rule(
    "LAB003 error: duplicate id in the label map",
    why="The trainer keeps only the first class of an id in its list of categories.",
    fix="In {file}, give every class a unique id.",
    source=_UTIL,
)
@each_label_map
def _check_duplicate_ids(file: LabelMapFile) -> Iterator[Finding]:
    shared = file.label_map.names_of_shared_ids if file.label_map else {}
    for number, names in shared.items():
        listed = ", ".join(map(repr, names))
        yield Finding(f"id {number} has several classes: {listed}", value=number)


@dataset_rule(
    "LAB004 error: duplicate name in the label map",
    why="The trainer uses only the last entry, so the other id is never trained.",
    fix="In {file}, write each class name once.",
    source=_UTIL,
)
@each_label_map
def _check_duplicate_names(file: LabelMapFile) -> Iterator[Finding]:
    ids_by_name: dict[str, list[str]] = {}
    for item in _get_items(file):
        ids_by_name.setdefault(item.name, []).append(str(item.id))
    for name, ids in ids_by_name.items():
        if name and len(ids) > 1:
            yield Finding(f"class {excerpt(name)} has several ids: {', '.join(ids)}", value=name)


@dataset_rule(
    "LAB005 error: id 0 is not the background",
    why="label_map_util stops with 'Label map id 0 is reserved for the background label'.",
    fix="In {file}, name id 0 'background' or remove it, if it is not a class. Otherwise number "
    "the classes from 1, also in the records: tfod convert SOURCE renumbered --to shards",
    source=_UTIL,
)
@each_label_map
def _check_id_zero(file: LabelMapFile) -> Iterator[Finding]:
    """Report classes with the id 0, which items without an id have too, or a negative id."""
    for item in _get_items(file):
        name = excerpt(item.class_name)
        if item.id < 0:
            yield Finding(f"{name} has the negative id {item.id}", value=item.id)
        elif item.id == 0 and not _is_background(item):
            yield Finding(f"{name} has the id 0", value=0)


@rule(
    "LAB006 error: class is not in the label map",
    why="The decoder does not find the class, so the trainer silently drops the object.",
    fix="In {script}, correct the text, or add the class to a copy of the label map: tfod convert "
    "SOURCE labelled --to shards",
    on_page="Add the class to the label map, or choose the right label map with the shards.",
    source=f"{_DECODER}, _ClassTensorHandler; inputs.py, filter_unrecognized_classes",
    explains="LAB013",
)
@each_class
def _check_known_text(use: ClassUse) -> Iterator[Finding]:
    if not use.text or not use.label_map or use.label_map.find(use.text):
        return
    fuzzy_names = use.label_map.fuzzy_names
    if not fuzzy_names.find_same(use.text):
        nearest = fuzzy_names.find_nearest(use.text)
        hint = f", did you mean {excerpt(nearest)}" if nearest else ""
        items = use.label_map.items  # there may be a million
        names = [item.class_name for item in items[:_MAX_CLASSES_SHOWN]]
        listed = join_names(names, _MAX_CLASSES_SHOWN, len(items))
        message = f"class {excerpt(use.text)} is not in the label map{hint} (it has {listed})"
        better = f"In {{script}}, write {excerpt(nearest)} instead of {excerpt(use.text)}."
        yield Finding(message, keys.CLASS_TEXT, use.text, better if nearest else "")


@rule(
    "LAB007 error: id is not in the label map",
    why="An id beyond the label map has no entry in the one-hot encoding: the object is trained "
    "without a class, and the evaluation fails.",
    fix="In {script}, correct the id, or add it to the label map.",
    source=f"{_DECODER}; inputs.py, tf.one_hot",
)
@each_class
def _check_known_id(use: ClassUse) -> Iterator[Finding]:
    label, label_map = use.label, use.label_map
    if use.text or label is None or label <= 0 or not label_map or label_map.find_id(label):
        return
    ids = "its ids are {} to {}".format(*label_map.id_range) if label_map.items else "it is empty"
    yield Finding(f"id {label} is not in the label map; {ids}", keys.CLASS_LABEL, label)


@rule(
    "LAB008 warning: class text and id do not match",
    why="The OD API, CVAT and Datumaro use the text; Model Garden and EfficientDet use the id. "
    "They would train different classes on the same dataset.",
    fix="In {script}, write the id that the label map has for the text.",
    source=f"{_DECODER}, BackupHandler; official/vision/dataloaders/tf_example_decoder.py",
    repair="The id is replaced with the one that the label map has for the text. No id is changed "
    "if the label map lacks a class of its shards, because it may belong to another dataset.",
)
@each_class
def _check_text_matches_id(use: ClassUse) -> Iterator[Finding]:
    if not use.text or use.label is None or not use.label_map:
        return
    item = use.label_map.find(use.text)
    # Several items may share a name; the id must belong to one of them.
    if item is None or use.label in use.label_map.find_ids(use.text):
        return
    other = use.label_map.find_id(use.label)
    other_class = f", which is {excerpt(other.class_name)}" if other else ""
    message = f"class {excerpt(use.text)} has id {item.id} in the label map, but {use.label}"
    yield Finding(f"{message}{other_class} in the record", keys.CLASS_LABEL, use.label)


@rule(
    "LAB009 error: class id is 0 or negative",
    why="Id 0 is reserved for the background: the object is ignored, or trained without a class.",
    fix="In {script}, number the classes from 1.",
    source=f"{_UTIL}; inputs.py, tf.one_hot(classes - 1); tensorflow/models#1765",
)
@each_class
def _check_positive_id(use: ClassUse) -> Iterator[Finding]:
    if not use.text and use.label is not None and _is_not_positive(use.label, use.label_map):
        yield Finding(f"id {use.label} is not a class", keys.CLASS_LABEL, use.label)


def _is_not_positive(label: int, label_map: LabelMap | None) -> bool:
    item = label_map.find_id(0) if label_map and label == 0 else None
    return label < 0 or (label == 0 and not (item and _is_background(item)))


def _is_background(item: LabelMapItem) -> bool:
    return "background" in (item.name, item.display_name)


@rule(
    "LAB010 error: class text is empty",
    why="The OD API finds the last class without a display name when it looks up the empty text, "
    "so the object is trained as that class. Datumaro writes an empty text for non-ASCII names.",
    fix="In {tool}, choose a label for the objects without one in {image}.",
    source=f"{_DECODER}; {_UTIL}",
)
@each_class
def _check_empty_text(use: ClassUse) -> Iterator[Finding]:
    if use.text is not None and not use.text.strip():
        yield Finding("an object has an empty class text", keys.CLASS_TEXT, use.text)


@rule(
    "LAB011 error: class differs from the label map by case or spaces",
    why="Class names must match exactly: the class is not found, and the object is dropped.",
    fix="In {script}, write the class exactly as in the label map.",
    source=f"{_DECODER}, _ClassTensorHandler; inputs.py, filter_unrecognized_classes",
)
@each_class
def _check_spelling(use: ClassUse) -> Iterator[Finding]:
    if not use.text or not use.label_map or use.label_map.find(use.text):
        return
    if name := use.label_map.fuzzy_names.find_same(use.text):
        message = f"class {excerpt(use.text)} is {excerpt(name)} in the label map"
        yield Finding(message, keys.CLASS_TEXT, use.text)


@dataset_rule(
    "LAB012 error: ids count from 0",
    why="Class 0 is treated as the background, and all other ids are shifted by one.",
    fix="In {script}, add 1 to every id, and number the classes of the label map from 1.",
    source="tensorflow/models#1765; tensorflow/models#1906; FiftyOne: utils/tf.py writes from 0",
    explains="LAB005 LAB007 LAB008 LAB009 LAB013 LAB017",
)
def _check_first_id(result: DatasetResult) -> Iterator[Finding]:
    """Report ids 0, 1, 2, … without a gap, among objects without a class text."""
    for used in result.class_usage:
        ids = sorted({label for text, label in used.uses if label is not None and text is None})
        if len(ids) > 1 and ids == list(range(len(ids))) and _is_not_positive(0, used.label_map):
            message = f"the ids of the objects are 0 to {ids[-1]}"
            key = result.profile.key_for(keys.CLASS_LABEL)
            shards = [shard for shard in result.shards if (shard.label_map or "") == used.map_name]
            covers = [*filter(None, (used.map_name,)), *(shard.name for shard in shards)]
            yield Finding(message, key, ids[-1], shard=used.shard, covers=covers)


@dataset_rule(
    "LAB013 info: class of the label map is not used",
    why="A model cannot learn it from these shards.",
    fix="You can ignore this if other shards use the class.",
    source=_UTIL,
)
def _check_used(result: DatasetResult) -> Iterator[Finding]:
    for used in result.class_usage:
        texts = {text for text, _ in used.uses if text}
        ids = {label for text, label in used.uses if not text}
        for item in used.label_map.items if used.label_map and used.uses else ():
            is_used = item.id in ids or not texts.isdisjoint((item.name, item.display_name))
            if not is_used and item.id != 0:
                message = f"class {excerpt(item.class_name)} (id {item.id}) has no object"
                yield Finding(message=message, shard=used.map_name, value=item.class_name)


@rule(
    "LAB014 error: object without a class",
    why="The trainer fills missing classes with zeros, and CVAT rejects the annotation.",
    fix="In {script}, write image/object/class/text, or class/label and a label map.",
    source="tensorflow/models: inputs.py, pad_input_data_to_static_shapes; cvat-ai/cvat: "
    "apps/dataset_manager/bindings.py",
)
@each_class
def _check_class(use: ClassUse) -> Iterator[Finding]:
    if not use.text and use.label is None:
        yield Finding("an object has neither a class text nor an id", keys.CLASS_TEXT, None)


@dataset_rule(
    "LAB015 error: label map is not in protobuf's text format",
    why="The trainer fails with a ParseError. tfod and CVAT's importer can read the file anyway.",
    fix="In {file}, put each name in straight quotes, 'item {' before each class, nothing else.",
    source=f"{_UTIL}, load_labelmap; protobuf.dev/reference/protobuf/textformat-spec",
)
@each_label_map
def _check_text_format(file: LabelMapFile) -> Iterator[Finding]:
    for deviation in file.deviations:
        reason = deviation.partition(": ")[2] or deviation
        yield Finding(f"{reason}; protobuf's parser, and therefore the trainer, rejects the file")


@dataset_rule(
    "LAB016 warning: classes differ only by case or spaces",
    why="Each spelling is trained as a separate class, with only a part of the objects.",
    fix="In {script}, choose one spelling, for the label map and for all records.",
    source="tensorflow/models#1881",
)
def _check_similar_names(result: DatasetResult) -> Iterator[Finding]:
    for used in result.class_usage:
        key = result.profile.key_for(keys.CLASS_TEXT)
        for message, texts in _find_similar_names(used.uses, used.label_map or LabelMap()):
            yield Finding(message=message, shard=used.shard, feature=key, value=texts)


def _find_similar_names(uses: Uses, label_map: LabelMap) -> Iterator[tuple[str, JsonValue]]:
    objects: Counter[str] = Counter()
    for (text, label), count in uses.items():
        item = label_map.find_id(label) if label and not text else None
        objects[text or (item.class_name if item else "")] += count
    names = {fold_name(name) for item in label_map.items for name in (item.name, item.display_name)}
    spellings: dict[str, dict[object, str]] = {}
    for text in sorted({*objects, *(item.class_name for item in label_map.items)} - {""}):
        item, spelling = label_map.find(text), fold_name(text)
        if item is None and spelling in names:
            continue  # LAB011 reports this
        if item is None or len(spelling) > 1:
            # The name and the display name of an item are one class.
            spellings.setdefault(spelling, {}).setdefault(item.id if item else text, text)
    for texts in spellings.values():
        if len(texts) > 1:
            used = texts.values()
            shown = [f"{excerpt(text)} ({plural(objects[text], 'object')})" for text in used]
            message = f"{' and '.join(shown)} are {len(texts)} classes, but differ only in case, "
            yield f"{message}spaces, hyphens or underscores", [*used]


@rule(
    "LAB017 warning: class id is 0 or negative, although there is a class text",
    why="The OD API, CVAT and Datumaro use the text. Readers that use the id, such as Model Garden "
    "and EfficientDet, treat 0 as the background.",
    fix="In {script}, number the classes from 1, and write a label map that contains the texts, or "
    "write a copy with both: tfod convert SOURCE renumbered --to shards",
    source=f"{_DECODER}, BackupHandler; FiftyOne: utils/tf.py writes from 0",
)
@each_class
def _check_positive_id_of_text(use: ClassUse) -> Iterator[Finding]:
    """Report the ids that LAB009 tolerates: next to a text, or id 0 as a class of the map."""
    text, label, label_map = use
    item = None
    if label_map and (text or label == 0):
        item = label_map.find(text) if text else label_map.find_id(0)
    # LAB008 reports texts that are in the label map.
    if item is None and text and label is not None and _is_not_positive(label, label_map):
        yield Finding(f"class {excerpt(text)} has the id {label}", keys.CLASS_LABEL, label)
    elif item and item.id == 0 and _is_background(item):
        fix = "In {script}, omit the background, or give its class an id above 0."
        message = f"an object has the class {excerpt(item.class_name)}"
        yield Finding(message, keys.CLASS_LABEL, 0, fix)


@rule(
    "LAB018 info: id without a label map",
    why="CVAT's labels are names, so it rejects an object if no label map defines its id.",
    fix="Put label_map.pbtxt next to {file}, or write image/object/class/text.",
    source="cvat-ai/cvat: apps/dataset_manager/bindings.py; cvat-ai/cvat#6304",
)
@each_class
def _check_defined_id(use: ClassUse) -> Iterator[Finding]:
    if not use.text and use.label is not None and use.label_map is None:
        message = f"an object has only the id {use.label}, and no label map defines it"
        yield Finding(message, keys.CLASS_LABEL, use.label)


@rule(
    "LAB020 info: class text without an id",
    why="TF-Vision, MediaPipe Model Maker and EfficientDet only read ids. The first two stop at an "
    "object without an id: 'indices[0] = 0 is not in [0, 0)'; EfficientDet ignores all objects of "
    "the record. The OD API's trainer and CVAT use the text.",
    fix="In {script}, write image/object/class/label for TF-Vision, Model Maker or EfficientDet, "
    "or write a copy with ids and a label map: tfod convert SOURCE labelled --to shards",
    source="official/vision/dataloaders: tf_example_decoder.py, _decode_classes, and "
    "retinanet_input.py, tf.gather(classes, indices); google/automl: efficientdet/dataloader.py",
    repair="If all objects have a class text, ids are added from the label map. No id is added if "
    "the label map lacks a class of its shards.",
    once=True,
)
@each_class
def _check_id(use: ClassUse) -> Iterator[Finding]:
    if use.text and use.label is None:
        message = f"class {excerpt(use.text)} has no id"
        is_repairable = use.label_map is not None and use.label_map.find(use.text) is not None
        yield Finding(message, keys.CLASS_LABEL, use.text, is_repairable=is_repairable)


def _get_items(file: LabelMapFile) -> Sequence[LabelMapItem]:
    return file.label_map.items if file.label_map else ()


detection_rule(
    "LAB019 error: lists of image classes differ in length",
    why="It is unclear which id or confidence belongs to which class, so an import stops.",
    fix="In {script}, write one text, one id and one confidence for each class, or omit a list.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, image/class/text and label",
)

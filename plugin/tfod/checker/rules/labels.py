"""LAB: classes of objects, and the label map that gives them their ids.

A pair of class text and id is checked once, however many objects have it. The text decides, for the
OD API's decoder (``BackupHandler``: ids are looked at only in records without a text), for CVAT and
for Datumaro: an id beside a text that the label map has is never an error to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from tfod.sources.resolved import LabelMapFile

_UTIL = "tensorflow/models: utils/label_map_util.py"
_DECODER = "tensorflow/models: data_decoders/tf_example_decoder.py"
_BACKGROUND = "background"
_MOST_CANDIDATES, _MOST_CLASSES = 8, 6
Uses: TypeAlias = "Mapping[tuple[str | None, int | None], int]"
"""How often the shards of one label map use a text with an id."""


@dataset_rule(
    "LAB001 warning: no label map",
    why="Without it the ids mean nothing to a trainer, and names were not checked.",
    fix="Put label_map.pbtxt beside the shard, or pass --label-map.",
    source=_UTIL,
)
def no_label_map(result: DatasetResult) -> Iterator[Finding]:
    """A shard with boxes has no label map beside it, or several candidates that fit equally."""
    for shard in result.shards:
        if shard.label_map is not None:
            continue
        if shard.candidates:
            names = join_names(shard.candidates, _MOST_CANDIDATES)
            message = f"several label maps fit equally well: {names}"
            fix = "Pass the right one with --label-map."
            yield Finding(message=message, shard=shard.name, fix=fix)
        elif shard.boxes:
            message = "no label map lies beside this shard or one folder up"
            yield Finding(message=message, shard=shard.name)


@dataset_rule(
    "LAB002 error: label map cannot be read",
    why="The trainer stops at it, or takes the last of several classes in one item for the only "
    "one; Datumaro ignores it without a word.",
    fix="Write entries such as: item { id: 1 name: 'cat' }.",
    source="tensorflow/models: protos/string_int_label_map.proto; tensorflow/models#8575",
)
@each_label_map
def unreadable_map(file: LabelMapFile) -> Iterator[Finding]:
    """The file is no StringIntLabelMap in protobuf's text format."""
    if file.label_map is None:
        yield Finding(file.error)


@dataset_rule(
    "LAB003 error: id twice in the label map",
    why="Only the first class of an id is kept in the list of categories.",
    fix="Give every class an id of its own.",
    source=_UTIL,
)
@each_label_map
def duplicate_ids(file: LabelMapFile) -> Iterator[Finding]:
    """Two classes have one id."""
    shared = file.label_map.names_of_shared_ids if file.label_map else {}
    for number, names in shared.items():
        yield Finding(f"id {number} is given to {', '.join(map(repr, names))}", value=number)


@dataset_rule(
    "LAB004 error: name twice in the label map",
    why="The last one wins in the table of names, so the other id is never trained.",
    fix="Name every class once.",
    source=_UTIL,
)
@each_label_map
def duplicate_names(file: LabelMapFile) -> Iterator[Finding]:
    """Two classes have one name."""
    ids_of: dict[str, list[str]] = {}
    for item in _items(file):
        ids_of.setdefault(item.name, []).append(str(item.id))
    for name, ids in ids_of.items():
        if name and len(ids) > 1:
            yield Finding(f"{name!r:.81} is named for the ids {', '.join(ids)}", value=name)


@dataset_rule(
    "LAB005 error: id 0 is not the background",
    why="label_map_util stops with 'Label map id 0 is reserved for the background label'.",
    fix="Count classes from 1, in the label map and in image/object/class/label; if 0 is no class, "
    "call it background or leave it out.",
    source=_UTIL,
)
@each_label_map
def id_zero(file: LabelMapFile) -> Iterator[Finding]:
    """Id 0, also that of an item without an id, is a class; or an id is negative."""
    for item in _items(file):
        if item.id < 0:
            yield Finding(f"{item.class_name!r:.81} has the negative id {item.id}", value=item.id)
        elif item.id == 0 and not _is_background(item):
            yield Finding(f"{item.class_name!r:.81} has the id 0", value=0)


@rule(
    "LAB006 error: class is not in the label map",
    why="The decoder looks the text up and gets -1; the trainer drops the object without a word.",
    fix="Add the class to the label map, or correct the text in the records.",
    source=f"{_DECODER}, _ClassTensorHandler; inputs.py, filter_unrecognized_classes",
)
@each_class
def unknown_text(use: ClassUse) -> Iterator[Finding]:
    """A class text is neither a name nor a display name of the map."""
    if not use.text or not use.label_map or use.label_map.find(use.text):
        return
    known = use.label_map.fuzzy_names
    if not known.find_same(use.text):
        near = known.find_nearest(use.text)
        hint = f", did you mean {near!r:.81}" if near else ""
        items = use.label_map.items  # maybe a million, looked up as often
        has = join_names(
            [one.class_name for one in items[:_MOST_CLASSES]], _MOST_CLASSES, len(items)
        )
        message = f"class {use.text!r:.81} is not in the label map{hint} (it has {has})"
        yield Finding(message, keys.CLASS_TEXT, use.text)


@rule(
    "LAB007 error: id is not in the label map",
    why="A class beyond the map has no place in the one-hot encoding: the object is trained as "
    "nothing, and the evaluation stops at it.",
    fix="Add the id to the label map, or correct the ids in the records.",
    source=f"{_DECODER}; inputs.py, tf.one_hot",
)
@each_class
def unknown_id(use: ClassUse) -> Iterator[Finding]:
    """An id above 0 that the map has not, and no text that would decide in its place."""
    label, label_map = use.label, use.label_map
    if use.text or label is None or label <= 0 or not label_map or label_map.find_id(label):
        return
    low, high = label_map.id_range
    has = f"the map has {low} to {high}" if label_map.items else "the map is empty"
    yield Finding(f"id {label} is not in the label map; {has}", keys.CLASS_LABEL, label)


@rule(
    "LAB008 warning: text and id disagree",
    why="The OD API, CVAT and Datumaro go by the text, Model Garden and EfficientDet by the id: "
    "two models of one dataset.",
    fix="Write the id that the label map gives to the text.",
    source=f"{_DECODER}, BackupHandler; official/vision/dataloaders/tf_example_decoder.py",
    repair="The id becomes the one that the label map gives to the text. All ids stay "
    "where the map misses a class of its shards: it may be that of another data "
    "set.",
)
@each_class
def text_and_id_disagree(use: ClassUse) -> Iterator[Finding]:
    """The map gives the text another id."""
    if not use.text or use.label is None or not use.label_map:
        return
    item = use.label_map.find(use.text)
    # Several items may share a name; the id must belong to one of them.
    if item is None or use.label in use.label_map.find_ids(use.text):
        return
    other = use.label_map.find_id(use.label)
    is_other = f", which is {other.class_name!r:.81}" if other else ""
    message = f"text {use.text!r:.81} has id {item.id} in the label map, "
    message += f"the record says {use.label}{is_other}"
    yield Finding(message, keys.CLASS_LABEL, use.label)


@rule(
    "LAB009 error: id is 0 or negative",
    why="0 is the background: the object is not trained, or is trained as nothing.",
    fix="Count classes from 1.",
    source=f"{_UTIL}; inputs.py, tf.one_hot(classes - 1); tensorflow/models#1765",
)
@each_class
def not_positive(use: ClassUse) -> Iterator[Finding]:
    """An object has an id below 1, and no text that would decide in its place."""
    if not use.text and use.label is not None and _is_not_positive(use.label, use.label_map):
        yield Finding(f"id {use.label} is not a class", keys.CLASS_LABEL, use.label)


def _is_not_positive(label: int, label_map: LabelMap | None) -> bool:
    item = label_map.find_id(0) if label_map and label == 0 else None
    return label < 0 or (label == 0 and not (item and _is_background(item)))


def _is_background(item: LabelMapItem) -> bool:
    return _BACKGROUND in (item.name, item.display_name)


@rule(
    "LAB010 error: class text is empty",
    why="The OD API's table holds '' for the last class without a display name: the object trains "
    "as the last class of the map.",
    fix="Write the class's name; Datumaro's own exporter empties names outside ASCII.",
    source=f"{_DECODER}; {_UTIL}",
)
@each_class
def empty_text(use: ClassUse) -> Iterator[Finding]:
    """An object's class text has no letters."""
    if use.text is not None and not use.text.strip():
        yield Finding("an object's class text is empty", keys.CLASS_TEXT, use.text)


@rule(
    "LAB011 error: class differs from the label map by case or spaces",
    why="Texts are compared letter by letter: the object gets the class -1 and is dropped.",
    fix="Write the class exactly as in the label map.",
    source=f"{_DECODER}, _ClassTensorHandler; inputs.py, filter_unrecognized_classes",
)
@each_class
def nearly_in_map(use: ClassUse) -> Iterator[Finding]:
    """A text is in the map but for upper and lower case, spaces, hyphens and underscores."""
    if not use.text or not use.label_map or use.label_map.find(use.text):
        return
    meant = use.label_map.fuzzy_names.find_same(use.text)
    if meant:
        message = f"class {use.text!r:.81} is {meant!r:.81} in the label map"
        yield Finding(message, keys.CLASS_TEXT, use.text)


@dataset_rule(
    "LAB012 error: ids count from 0",
    why="Class 0 is taken for the background, and every other class for its neighbour.",
    fix="Add 1 to every id, and count the label map from 1.",
    source="tensorflow/models#1765; tensorflow/models#1906; FiftyOne: utils/tf.py writes from 0",
)
def counts_from_zero(result: DatasetResult) -> Iterator[Finding]:
    """Id 0 is in use, the ids are 0, 1, 2, … without a gap, and no texts decide in their place."""
    for used in result.class_usage:
        ids = sorted({label for text, label in used.uses if label is not None and text is None})
        if len(ids) > 1 and ids == list(range(len(ids))) and _is_not_positive(0, used.label_map):
            message = f"the ids of the objects are 0 to {ids[-1]}"
            key = result.profile.key_for(keys.CLASS_LABEL)
            yield Finding(message, key, ids[-1], shard=used.shard)


@dataset_rule(
    "LAB013 info: class of the label map is not used",
    why="It cannot be learnt from these shards.",
    fix="Nothing, if other shards use it.",
    source=_UTIL,
)
def unused_class(result: DatasetResult) -> Iterator[Finding]:
    """A class of the map has no object."""
    for used in result.class_usage:
        texts = {text for text, _ in used.uses if text}
        ids = {label for text, label in used.uses if not text}
        for item in used.label_map.items if used.label_map and used.uses else ():
            is_used = item.id in ids or not texts.isdisjoint((item.name, item.display_name))
            if not is_used and item.id != 0:
                message = f"class {item.class_name!r:.81} (id {item.id}) has no object"
                yield Finding(message=message, shard=used.map_name, value=item.class_name)


@rule(
    "LAB014 error: object without a class",
    why="The trainer pads the missing classes with zeros, which is not a class, and CVAT "
    "refuses the annotation.",
    fix="Write image/object/class/text, or class/label and a label map.",
    source="tensorflow/models: inputs.py, pad_input_data_to_static_shapes; cvat-ai/cvat: "
    "apps/dataset_manager/bindings.py",
)
@each_class
def no_class(use: ClassUse) -> Iterator[Finding]:
    """An object has no text, or an empty one, and no id."""
    if not use.text and use.label is None:
        yield Finding(
            "a record has no class: objects with neither text nor id", keys.CLASS_TEXT, None
        )


@dataset_rule(
    "LAB015 error: label map is not in protobuf's text format",
    why="The trainer stops at it with a ParseError; tfod and CVAT's importer read it all the same.",
    fix="Put each name in straight quotes, 'item {' before each class, and use no other fields.",
    source=f"{_UTIL}, load_labelmap; protobuf.dev/reference/protobuf/textformat-spec",
)
@each_label_map
def deviations(file: LabelMapFile) -> Iterator[Finding]:
    """What is meant is plain, but it is not what protobuf reads."""
    for liberty in file.deviations:
        what = liberty.partition(": ")[2] or liberty
        yield Finding(f"{what} here; protobuf's parser, and so the trainer, refuses the file")


@dataset_rule(
    "LAB016 warning: classes differ only by case or spaces",
    why="Each spelling is trained as a class of its own, with a part of the objects.",
    fix="Choose one spelling, for the label map and for all records.",
    source="tensorflow/models#1881",
)
def nearly_equal_texts(result: DatasetResult) -> Iterator[Finding]:
    """Two classes have the same text but for case, spaces, hyphens and underscores.

    Classes are the texts that the records use, and those of the label map. Single letters that
    are all in the map are different classes, as in a dataset of handwriting.
    """
    for used in result.class_usage:
        key = result.profile.key_for(keys.CLASS_TEXT)
        for message, texts in _nearly_equal(used.uses, used.label_map or LabelMap()):
            yield Finding(message=message, shard=used.shard, feature=key, value=texts)


def _nearly_equal(uses: Uses, label_map: LabelMap) -> Iterator[tuple[str, JsonValue]]:
    objects: Counter[str] = Counter()
    for (text, label), count in uses.items():
        item = label_map.find_id(label) if label and not text else None
        objects[text or (item.class_name if item else "")] += count
    in_map = {
        fold_name(name) for item in label_map.items for name in (item.name, item.display_name)
    }
    spellings: dict[str, dict[object, str]] = {}
    for text in sorted({*objects, *(item.class_name for item in label_map.items)} - {""}):
        item, spelling = label_map.find(text), fold_name(text)
        if item is None and spelling in in_map:
            continue  # which LAB011 says
        if item is None or len(spelling) > 1:
            # The name and the display name of an item are one class.
            spellings.setdefault(spelling, {}).setdefault(item.id if item else text, text)
    for texts in spellings.values():
        if len(texts) > 1:
            shown = [f"{text!r:.81} ({plural(objects[text], 'object')})" for text in texts.values()]
            message = f"{' and '.join(shown)} are {len(texts)} classes, though only case, spaces, "
            message += "hyphens or underscores differ"
            yield message, list(texts.values())


@rule(
    "LAB017 warning: id of a named class is 0 or negative",
    why="The OD API, CVAT and Datumaro go by the text; readers that go by the id, as Model Garden "
    "and EfficientDet, take 0 for the background.",
    fix="Count classes from 1, or write a label map that has the texts.",
    source=f"{_DECODER}, BackupHandler; FiftyOne: utils/tf.py writes from 0",
)
@each_class
def not_positive_beside_a_text(use: ClassUse) -> Iterator[Finding]:
    """As LAB009, if a text decides or id 0 is the background; LAB008 reports texts of the map."""
    text, label, label_map = use
    item = None
    if label_map and (text or label == 0):
        item = label_map.find(text) if text else label_map.find_id(0)
    if item is None and text and label is not None and _is_not_positive(label, label_map):
        yield Finding(f"class {text!r:.81} has the id {label}", keys.CLASS_LABEL, label)
    elif item and item.id == 0 and _is_background(item):
        yield Finding(f"an object has the class {item.class_name!r:.81}", keys.CLASS_LABEL, 0)


@rule(
    "LAB018 info: id without a label map",
    why="CVAT's labels are names: it refuses an object whose id no label map explains.",
    fix="Put label_map.pbtxt beside the shard, or write image/object/class/text.",
    source="cvat-ai/cvat: apps/dataset_manager/bindings.py; cvat-ai/cvat#6304",
)
@each_class
def unexplained_id(use: ClassUse) -> Iterator[Finding]:
    """An object has an id and no text, and its shard has no label map."""
    if not use.text and use.label is not None and use.label_map is None:
        message = f"object has only the id {use.label}, and no label map explains it"
        yield Finding(message, keys.CLASS_LABEL, use.label)


@rule(
    "LAB020 info: class text without an id",
    why="TF-Vision, MediaPipe Model Maker and EfficientDet read ids alone. The first two stop at "
    "an object without one: 'indices[0] = 0 is not in [0, 0)'; EfficientDet trains on none of the "
    "record's objects. The OD API's trainer and CVAT take the text.",
    fix="For TF-Vision, Model Maker or EfficientDet write image/object/class/label: tfod repair "
    "with a label map.",
    source="official/vision/dataloaders: tf_example_decoder.py, _decode_classes, and "
    "retinanet_input.py, tf.gather(classes, indices); google/automl: efficientdet/dataloader.py",
    repair="Where all objects have a text, the label map gives the ids. They are not "
    "written where it misses a class of its shards.",
    once=True,
)
@each_class
def text_alone(use: ClassUse) -> Iterator[Finding]:
    """An object has a class text and no id; of each shard the first is reported."""
    if use.text and use.label is None:
        message = f"class {use.text!r:.81} has no id"
        yield Finding(message, keys.CLASS_LABEL, use.text)


def _items(file: LabelMapFile) -> Sequence[LabelMapItem]:
    return file.label_map.items if file.label_map else ()


detection_rule(
    "LAB019 error: lists of image classes of different length",
    why="Nobody knows which id or confidence belongs to which class of the image; an import stops "
    "at the record.",
    fix="Write one text, one id and one confidence for each class, or leave a list out.",
    source="tensorflow/models: data_decoders/tf_example_decoder.py, image/class/text and label",
)

"""SET: shards as a set that belongs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tfod.check.findings.finding import Place, Problem, first_of
from tfod.check.rules.registry import rule
from tfod.detection.labels.label_map import LabelMap

_MOST_NAMED = 100
_NAMES = "tensorflow/models: dataset_tools/tf_record_creation_util.py"


@rule(
    "SET001 error: shard missing from a set",
    why="A part of the dataset is not trained, and nothing says so.",
    fix="Copy or download the missing shards.",
    source=_NAMES,
)
def missing_shards(missing: Sequence[str], count: int) -> Iterator[Problem]:
    """The names count to a number, and so many are not there; of many the first are named."""
    what = "shard is" if count == 1 else "shards are"
    message = f"{count:,} {what} missing: {first_of(missing, 3, count)}"
    yield Problem(message, value=[*missing[:_MOST_NAMED]])


@rule(
    "SET002 error: sets of different size mixed",
    why="A glob reads both: images are trained twice.",
    fix="Delete the shards of the older export.",
    source=_NAMES,
)
def mixed_sets(totals: Mapping[int, str]) -> Iterator[Problem]:
    """Shards of one stem claim different totals; an example of each."""
    some = ", ".join(f"{example} (of {total})" for total, example in totals.items())
    yield Problem(f"shards of several sets lie together: {some}", value=[*totals])


@rule(
    "SET003 warning: shards with different features",
    why="They were probably written by different scripts, and training sees two kinds of records.",
    fix="Write all shards of a set with the same script.",
    source="tensorflow/data-validation: SCHEMA_MISSING_COLUMN",
)
def different_keys(keys: Mapping[str, frozenset[str]]) -> Iterator[Problem]:
    """A feature that all records of most shards of a subset have is in no record of another.

    ``keys`` are the features that all records of a shard have, by shard.
    """
    if len(keys) < 2:
        return
    counts = Counter(key for found in keys.values() for key in found)
    usual = {key for key, count in counts.items() if 2 * count > len(keys)}
    rare = counts.keys() - usual
    for shard, found in keys.items():
        lacks, has = sorted(usual - found), sorted(rare & found)
        if lacks or has:
            parts = [f"lacks {', '.join(lacks)}"] if lacks else []
            parts += [f"alone has {', '.join(has)}"] if has else []
            message = f"unlike the other shards it {' and '.join(parts)}"
            yield Problem(message, (lacks or has)[0], place=Place(shard))


@rule(
    "SET004 error: label maps differ",
    why="The same id means two classes: evaluation compares a cat with a dog.",
    fix="Use one label map for all splits, and write the shards with it.",
    source="Roboflow renumbers the classes in each export",
)
def different_label_maps(maps: Mapping[str, LabelMap]) -> Iterator[Problem]:
    """An id or a name means different things in two label maps, which are by file name."""
    (first_name, first), *others = maps.items() or [("", LabelMap())]
    for name, other in others:
        for item in other.items:
            same_id = first.find_id(item.id)
            same_text = first.find(item.class_name)
            if same_id and same_id.class_name != item.class_name:
                what = f"id {item.id} is {item.class_name!r} here and {same_id.class_name!r}"
            elif same_text and same_text.id != item.id and not same_id:
                what = f"class {item.class_name!r} has id {item.id} here and {same_text.id}"
            else:
                continue
            yield Problem(f"{what} in {first_name}", place=Place(name))
            break


@rule(
    "SET005 warning: shard without a record",
    why="It is legal where there are more shards than images, but mostly an export went wrong.",
    fix="Write fewer shards, or look why this one is empty.",
    source="tensorflow.org/tutorials/load_data/tfrecord: about 100 MB a shard",
)
def empty_shard() -> Iterator[Problem]:
    """A shard holds no record at all."""
    yield Problem("the shard holds no record")


@rule(
    "SET006 error: no shard of the set has a record",
    why="TensorFlow reads files of 0 bytes as a dataset without records and says nothing.",
    fix="Export or download the shards again.",
    source="cvat-ai/cvat#821",
)
def empty_set(shards: int) -> Iterator[Problem]:
    """All shards of a numbered set are files of 0 bytes."""
    yield Problem(f"all shards of the set are empty ({shards:,} of 0 bytes)")


@rule(
    "SET007 error: nothing to check in a folder",
    why="It was named together with others, and nothing of it is in their verdict.",
    fix="Name the folder that holds the shards, or leave this one out.",
    source="tfod.tfrecord.shard_search.find_shards",
)
def empty_source(name: str, reason: str) -> Iterator[Problem]:
    """A folder among the sources holds neither a shard nor a zip."""
    yield Problem(reason.removeprefix(f"{name}: "), place=Place(name))


@rule(
    "SET008 warning: metadata do not fit the shards",
    why="tfds.builder_from_directory stops, or its datasets do: 'Input dataset was expected to "
    "contain 65 elements'. Model Maker trains on as many records as size says, and stops without.",
    fix="Write them with the shards: tfod convert --to tfds, tfod reshard --for model-maker.",
    source="tensorflow_datasets: core/dataset_info.py, read_from_directory, and core/reader.py, "
    "assert_cardinality; mediapipe_model_maker: object_detector/dataset.py, from_cache",
)
def wrong_metadata(message: str, feature: str | None = None) -> Iterator[Problem]:
    """TFDS's dataset_info.json and features.json, and the size in Model Maker's P_metadata.yaml."""
    yield Problem(message, feature)

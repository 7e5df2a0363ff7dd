"""The measurements. Each runs in a new process: ``tasks.py <name> <JSON list of arguments>``.

A task prints a :class:`measure.Sample` as JSON. With ``TFOD_ACTIVATE=0``, Datumaro uses its
built-in plugin, which is verified.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import Sample, Stopwatch, median_pass, peak_memory, reset_peak_memory
from sizes import BOXES, CLASSES, EXPORTED_BOXES, HEIGHT, WIDTH

FORMAT = "tf_detection_api"
_OURS, _THEIRS = "tfod.datumaro.", "datumaro.plugins.data_formats.tf_detection_api."
_READ_AHEAD = 8 << 20


def import_dataset(folder: str, warm_up: str) -> Sample:
    _import_and_walk(warm_up)
    _verify_plugin("importers")
    reset_peak_memory()
    watch = Stopwatch()
    records, boxes = _import_and_walk(folder)
    return watch.sample(records, boxes, peak_memory())


def build_datumaro_objects(shard: str) -> Sample:
    """Create the Datumaro objects of an import, from lists that are in memory."""
    import tfod
    from datumaro.components.annotation import Bbox
    from datumaro.components.dataset_base import DatasetItem
    from datumaro.components.media import Image

    rows = [
        (
            (detection.filename or "")[:-4],
            {"source_id": detection.source_id},
            (HEIGHT, WIDTH),
            (detection.boxes * (WIDTH, HEIGHT, WIDTH, HEIGHT)).tolist(),
            [label - 1 for label in detection.class_label or ()],
        )
        for detection in tfod.read_detections(shard)
    ]
    gc.disable()  # as an import does
    watch = Stopwatch()
    items = [
        DatasetItem(
            name,
            subset="train",
            media=Image.from_numpy(None, size=size, ext=".jpg"),
            annotations=[
                Bbox(left, top, right - left, bottom - top, label=label, attributes={})
                for (left, top, right, bottom), label in zip(corners, labels, strict=True)
            ],
            attributes=attributes,
        )
        for name, attributes, size, corners, labels in rows
    ]
    return watch.sample(len(items), sum(len(item.annotations) for item in items))


def export_files(folder: str, count: int) -> Sample:
    from datumaro.components.dataset_base import DatasetItem
    from datumaro.components.media import Image

    items = [
        DatasetItem(
            path.stem, subset="train", media=Image.from_file(str(path)), annotations=_boxes(BOXES)
        )
        for path in sorted(Path(folder).iterdir())[:count]
    ]
    return _export(_dataset_of(items), _dataset_of(items[:10]), save_media=True)


def export_imported(folder: str, warm_up: str) -> Sample:
    from datumaro.components.dataset import Dataset

    dataset, small = (Dataset.import_from(path, FORMAT) for path in (folder, warm_up))
    return _export(dataset, small, save_media=True)


def export_bytes(folder: str, count: int) -> Sample:
    from datumaro.components.dataset_base import DatasetItem
    from datumaro.components.media import Image

    items = [
        DatasetItem(
            path.stem,
            subset="train",
            media=Image.from_bytes(path.read_bytes(), ext=".jpg", size=(HEIGHT, WIDTH)),
            annotations=_boxes(BOXES),
        )
        for path in sorted(Path(folder).iterdir())[:count]
    ]
    return _export(_dataset_of(items), _dataset_of(items[:10]), save_media=True)


def export_annotations(count: int) -> Sample:
    from datumaro.components.dataset_base import DatasetItem
    from datumaro.components.media import Image

    items = [
        DatasetItem(
            f"{number:06d}",
            subset="train",
            media=Image.from_numpy(None, size=(HEIGHT, WIDTH), ext=".jpg"),
            annotations=_boxes(EXPORTED_BOXES),
        )
        for number in range(count)
    ]
    return _export(_dataset_of(items), _dataset_of(items[:10]), save_media=False)


def save_in_place(count: int) -> Sample:
    """Put an item into one of ten subsets, and save the dataset where it was exported."""
    from datumaro.components.dataset_base import DatasetItem
    from datumaro.components.media import Image

    def make_item(number: int) -> DatasetItem:
        image = Image.from_numpy(None, size=(HEIGHT, WIDTH), ext=".jpg")
        boxes = _boxes(EXPORTED_BOXES)
        subset = f"s{number % 10}"
        return DatasetItem(f"{number:06d}", subset=subset, media=image, annotations=boxes)

    dataset = _dataset_of([make_item(number) for number in range(count)])
    with _scratch_folder() as folder:
        dataset.export(str(folder), FORMAT)
        _verify_plugin("exporters")
        dataset.put(make_item(0))
        watch = Stopwatch()
        dataset.save()
        return watch.sample(count, count * EXPORTED_BOXES)


def read_with_tfod(shard: str) -> Sample:
    import tfod

    def walk() -> Iterator[tuple[int, int]]:
        for detection in tfod.read_detections(shard):
            yield 1, len(detection.boxes)

    return median_pass(walk)


def read_columns_with_tfod(shard: str) -> Sample:
    import tfod

    def walk() -> Iterator[tuple[int, int]]:
        for batch in tfod.read_batches(shard):
            yield len(batch), len(batch.columns[_BOX_SIDE].values)

    return median_pass(walk)


def read_eagerly_with_tensorflow(shard: str) -> Sample:
    """Read a shard with tf.data, record by record, as in its guide."""
    import tensorflow as tf

    features = _tensorflow_features()

    def parse(payload: Any) -> dict[str, Any]:
        return _dense(tf.io.parse_single_example(payload, features))

    dataset = (
        tf.data.TFRecordDataset(shard, buffer_size=_READ_AHEAD)
        .map(parse, tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )

    def walk() -> Iterator[tuple[int, int]]:
        for record in dataset:
            yield 1, len(record[_BOX_SIDE])

    return median_pass(walk)


def read_batches_with_tensorflow(shard: str, size: int) -> Sample:
    """Read a shard with tf.data in batches, as its guide advises for training."""
    import tensorflow as tf

    features = _tensorflow_features()

    def parse(payloads: Any) -> dict[str, Any]:
        return _dense(tf.io.parse_example(payloads, features))

    dataset = (
        tf.data.TFRecordDataset(shard, buffer_size=_READ_AHEAD)
        .batch(size)
        .map(parse, tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )

    def walk() -> Iterator[tuple[int, int]]:
        for batch in dataset:
            yield batch["image/height"].shape[0], batch[_BOX_SIDE].shape[0]

    return median_pass(walk)


def check_with_tfod(source: str, jobs: int) -> Sample:
    from tfod.checker.check import Options, check_sources

    options = Options(jobs=jobs, decode=0)

    def walk() -> Iterator[tuple[int, int]]:
        counts = check_sources([source], options).counts
        yield counts.records, counts.boxes

    reset_peak_memory()
    sample = median_pass(walk)
    return dataclasses.replace(sample, peak_bytes=peak_memory())


def import_module(name: str) -> Sample:
    assert name not in sys.modules
    reset_peak_memory()
    begin = time.perf_counter()
    importlib.import_module(name)
    return Sample(time.perf_counter() - begin, 1, peak_bytes=peak_memory())


def register_in_datumaro() -> Sample:
    """Import tfod and register its formats in an existing Datumaro environment."""
    from datumaro.components.environment import Environment

    environment = Environment()
    environment.importers  # noqa: B018 -- loads the list of built-in plugins
    assert "tfod" not in sys.modules  # the process was started without the hook
    begin = time.perf_counter()
    from tfod.datumaro import register

    register(environment)
    seconds = time.perf_counter() - begin
    assert environment.importers[FORMAT].__module__.startswith(_OURS)
    return Sample(seconds, 1)


def load_builtin_plugin() -> Sample:
    """Load the built-in plugin in an existing Datumaro environment, which imports TensorFlow."""
    from datumaro.components.environment import DEFAULT_ENVIRONMENT

    DEFAULT_ENVIRONMENT.importers  # noqa: B018 -- as above
    assert "tensorflow" not in sys.modules
    begin = time.perf_counter()
    DEFAULT_ENVIRONMENT.importers[FORMAT]
    seconds = time.perf_counter() - begin
    _verify_plugin("importers")
    return Sample(seconds, 1)


def run_start_up_hook() -> Sample:
    """Execute the .pth line, which ``site`` executes when Python starts."""
    import site

    files = [Path(folder) / "tfod_datumaro.pth" for folder in site.getsitepackages()]
    line = next(file for file in files if file.exists()).read_text()
    assert "_tfod_import_hook" not in sys.modules  # the process was started without the hook
    os.environ["TFOD_ACTIVATE"] = "1"
    begin = time.perf_counter()
    exec(line)
    seconds = time.perf_counter() - begin
    assert "_tfod_import_hook" in sys.modules
    return Sample(seconds, 1)


def _import_and_walk(folder: str) -> tuple[int, int]:
    from datumaro.components.dataset import Dataset

    dataset = Dataset.import_from(folder, FORMAT)
    return len(dataset), sum(len(item.annotations) for item in dataset)


def _export(dataset: Any, small: Any, *, save_media: bool) -> Sample:
    records = len(dataset)
    boxes = sum(len(item.annotations) for item in dataset)
    with _scratch_folder() as folder:
        small.export(str(folder / "warm-up"), FORMAT, save_media=save_media)
        _verify_plugin("exporters")
        reset_peak_memory()
        watch = Stopwatch()
        dataset.export(str(folder / "out"), FORMAT, save_media=save_media)
        return watch.sample(records, boxes, peak_memory())


def _dataset_of(items: list[Any]) -> Any:
    from datumaro.components.dataset import Dataset

    return Dataset.from_iterable(items, categories=list(CLASSES))


def _boxes(count: int) -> list[Any]:
    from datumaro.components.annotation import Bbox

    return [Bbox(20 * i, 10 * i, 50 + i, 40 + i, label=i % len(CLASSES)) for i in range(count)]


def _verify_plugin(registry: str) -> None:
    from datumaro.components.environment import DEFAULT_ENVIRONMENT

    expected = _THEIRS if os.environ["TFOD_ACTIVATE"] == "0" else _OURS
    module = getattr(DEFAULT_ENVIRONMENT, registry)[FORMAT].__module__
    assert module.startswith(expected), f"{registry}: {module} instead of {expected}"


_BOX_SIDE = "image/object/bbox/xmin"


def _tensorflow_features() -> dict[str, Any]:
    """Return the descriptions of all keys of the records, as in the decoder of the OD API."""
    import tensorflow as tf

    texts = ("filename", "source_id", "key/sha256", "format", "encoded")
    sides = ("xmin", "ymin", "xmax", "ymax")
    return {
        **{f"image/{key}": tf.io.FixedLenFeature([], tf.string, "") for key in texts},
        **{f"image/{key}": tf.io.FixedLenFeature([], tf.int64, 0) for key in ("height", "width")},
        **{f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in sides},
        "image/object/class/text": tf.io.VarLenFeature(tf.string),
        "image/object/class/label": tf.io.VarLenFeature(tf.int64),
    }


def _dense(parsed: dict[str, Any]) -> dict[str, Any]:
    """Replace sparse tensors by their values, which is the fastest conversion."""
    return {key: getattr(value, "values", value) for key, value in parsed.items()}


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="export-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def main() -> None:
    name, arguments = sys.argv[1:]
    modules = map(
        importlib.import_module, ("__main__", "training_tasks", "command_tasks", "cvat_tasks")
    )
    task = next(filter(None, (getattr(module, name, None) for module in modules)))
    sample: Sample = task(*json.loads(arguments))
    print(json.dumps(dataclasses.asdict(sample)))


if __name__ == "__main__":
    main()

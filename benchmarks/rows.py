"""The comparisons and their targets: a function for each section of the table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from data import Data
from growing_data import write_shards
from measure import Job, Sample, compare, median_peak, run
from sizes import BOXES, EXPORTED_BOXES, HEIGHT, MANY_SHARDS, WIDTH
from table import Row, Section, at_most, faster, megabytes

_DATUMARO = "Datumaro's"
_Call: TypeAlias = "tuple[str, *tuple[int, ...]]"
_COLUMNS: _Call = ("read_columns_with_tfod",)
_ONE_BY_ONE: _Call = ("read_eagerly_with_tensorflow",)


def import_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Import, per record", _DATUMARO)
    for name, title, target in (("images", "100 kB images", 15), ("bare", "no images", 20)):
        jobs = _import(data, name), _import(data, f"{name}_of_peer", peer=True)
        yield _row(data, f"{title}, {BOXES} boxes", *jobs, target)
    yield Section("Import, per record", "only objects")
    objects = Job("build_datumaro_objects", (str(data.shard("bare")),), peer=True)
    yield _row(data, _annotations(data), _import(data, "bare"), objects, 0.8)


def memory_rows(data: Data) -> Iterator[Section | Row]:
    """Yield a row on the peak memory for images: imports with images, minus those without."""
    yield Section("Import, memory for images", _DATUMARO)
    repeats = data.sizes.repeats
    ours = median_peak(_import(data, "images"), repeats)
    ours -= median_peak(_import(data, "unimaged"), repeats)
    theirs = median_peak(_import(data, "images_of_peer", peer=True), 1)
    theirs -= median_peak(_import(data, "unimaged_of_peer", peer=True), 1)
    # The memory of the peer is proportional to the number of images.
    theirs *= data.sizes.images / data.sizes.images_of_peer
    title = f"{data.sizes.images:,} images of 100 kB"
    yield at_most(title, megabytes(ours), megabytes(theirs), 20, "MB")


def export_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Export, per record", _DATUMARO)
    files, sizes = str(data.folder("files")), data.sizes
    imported = (str(data.folder("images_of_peer")), str(data.folder("warm_up")))
    exported = (sizes.exported,)
    for title, task, ours, theirs, target in (
        (
            f"100 kB image files, {BOXES} boxes",
            "export_files",
            (files, sizes.files),
            (files, sizes.files_of_peer),
            10,
        ),
        (
            f"bytes in memory, {BOXES} boxes",
            "export_bytes",
            (files, sizes.files),
            (files, sizes.files),
            2.5,
        ),
        (f"images of a shard, {BOXES} boxes", "export_imported", imported, imported, 2.5),
        (f"annotations only, {EXPORTED_BOXES} boxes", "export_annotations", exported, exported, 4),
        ("in place, 1 of 10 subsets changed", "save_in_place", exported, exported, 1),
    ):
        jobs = Job(task, ours), Job(task, theirs, peer=True)
        yield _row(data, title, *jobs, target, repeats=sizes.repeats_of_exports)


def read_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Read to columns, per record", "tf.data")
    bare, images = data.shard("bare"), data.shard("images")
    for title, shard, ours, theirs, target in (
        (_annotations(data), bare, _COLUMNS, _batches_of(1024), 4),
        ("100 kB images", images, _COLUMNS, _batches_of(64), 2),
        ("100 kB images", images, _COLUMNS, _ONE_BY_ONE, 5),
        ("100 kB images, as Detections", images, ("read_with_tfod",), _ONE_BY_ONE, None),
    ):
        yield _row(data, *_against_tensorflow(title, shard, ours, theirs), target)


def check_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Check, per record, one process", "tf.data")
    bare, images = data.shard("bare"), data.shard("unhashed")
    ours = ("check_with_tfod", 1)
    for title, shard, theirs, target in (
        (_annotations(data), bare, _batches_of(1024), 1.5),
        ("100 kB images", images, _batches_of(64), 1.4),
        ("100 kB images", images, _ONE_BY_ONE, 3),
    ):
        yield _row(data, *_against_tensorflow(title, shard, ours, theirs), target)
    yield Section("Check, two processes", "one process")
    many = str(data.folder("many"))
    jobs = Job("check_with_tfod", (many, 2)), Job("check_with_tfod", (many, 1))
    yield _row(data, f"no images, {MANY_SHARDS} shards", *jobs, 1.7, key=_wall)
    peak = median_peak(Job("check_with_tfod", (str(images), 1)), 1)
    yield at_most("memory, 100 kB images", megabytes(peak), None, 200, "MB")
    peak = median_peak(Job("check_with_tfod", (many, 1)), 1)
    yield at_most("memory, no images, many shards", megabytes(peak), None, 200, "MB")


def command_rows(data: Data) -> Iterator[Section | Row]:
    """Yield rows on commands that check or convert; panlabel is written in Rust."""
    arguments = str(data.shard("validated")), data.sizes.validated
    for title, ours, peer, theirs in (
        ("Check, a whole process", "run_check", "panlabel", "run_panlabel"),
        ("Convert to COCO, a whole process", "run_convert", "panlabel", "run_panlabel_convert"),
        ("Convert to COCO, a whole process", "run_convert", "Datumaro", "run_datum_convert"),
    ):
        yield Section(title, peer)
        jobs = Job(ours, arguments), Job(theirs, arguments, peer=True)
        yield _row(data, _annotations(data), *jobs, 1)
        limit, peak = (megabytes(median_peak(job, data.sizes.repeats)) for job in reversed(jobs))
        yield at_most("    memory", peak, limit, limit, "MB")
    yield Section("To shards, a whole process", _DATUMARO)
    bare = data.sizes.validated
    for title, folder, count, source_format, ours, theirs, target in (
        (
            "COCO, 100 kB images",
            "coco",
            data.sizes.coco,
            "coco_instances",
            (),
            ("--save-media",),
            3,
        ),
        ("COCO, no images", "bare_coco", bare, "coco_instances", ("--no-images",), (), 3),
        ("VOC, no images", "bare_voc", bare, "voc_detection", ("--no-images",), (), 3),
    ):
        arguments = str(data.folder(folder)), count
        jobs = (
            Job("run_shards", (*arguments, *ours)),
            Job("run_datum_shards", (*arguments, source_format, *theirs), peer=True),
        )
        yield _row(data, f"{title}, {BOXES} boxes", *jobs, target)
    yield Section("Check of shards with one record, a whole process", "")
    count = data.sizes.tiny_shards
    seconds = run(Job("run_check", (str(data.folder("tiny")), count))).seconds
    yield at_most(f"{count:,} shards", seconds, None, 2 * count / 3000, "s")


def start_up_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Start-up", "TensorFlow")
    jobs = (
        Job("import_module", ("tfod.sources.reading",)),
        Job("import_module", ("tensorflow",), peer=True),
    )
    ours, theirs = compare(*jobs, data.sizes.repeats, _wall)
    # Not tfod, which imports its modules on first use.
    yield at_most(
        "import tfod.sources.reading / tensorflow",
        ours.seconds * 1e3,
        theirs.seconds * 1e3,
        150,
        "ms",
    )
    our_peak, their_peak = (f"{megabytes(side.peak_bytes):.0f} MB" for side in (ours, theirs))
    yield Row("    memory of the process", our_peak, their_peak)
    jobs = Job("register_in_datumaro", peer=True), Job("load_builtin_plugin", peer=True)
    ours, theirs = compare(*jobs, data.sizes.repeats, _wall)
    yield faster("load the format into a running Datumaro", ours.seconds, theirs.seconds, None)
    for title, job, target in (
        ("tfod --version, a whole process", Job("run_version"), 150),
        (
            "tfod check of a record, a whole process",
            Job("run_check", (str(data.shard("one")), 1)),
            120,
        ),
    ):
        seconds = min(run(job).seconds for _ in range(5))
        yield at_most(title, seconds * 1e3, None, target, "ms")
    hook = min(run(Job("run_start_up_hook", peer=True)).seconds for _ in range(5))
    yield at_most("the .pth line, at every start of Python", hook * 1e3, None, 1, "ms")


def training_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("Train, per record", "plain tf.data")
    folder = str(data.folder("training"))
    for title, batch_size, size in (
        ("images resized to 320 x 320, batches of 16", 16, 320),
        ("images, one by one", 0, 0),
    ):
        arguments = folder, batch_size, size
        ours = Job("train_with_tfod", arguments)
        theirs = Job("train_with_tensorflow", arguments, peer=True)
        yield _row(data, title, ours, theirs, 1, key=_wall)
    yield Section("Train with PyTorch, per record", "tfrecord")
    ours = Job("train_with_tfod_torch", (folder,))
    theirs = Job("train_with_tfrecord", (folder,), peer=True)
    # No target, since Pillow takes most of the time.
    yield _row(data, "images, one process", ours, theirs, None, key=_wall)


def growing_rows(data: Data) -> Iterator[Section | Row]:
    """Yield rows on the time per record and the memory, which must not grow with the data."""
    yield Section("Check growing data, per record", "")
    start = run(Job("run_check", (str(data.shard("one")), 1)))
    for records in data.sizes.growing:
        folder = data.folder("growing")
        write_shards(folder, records, MANY_SHARDS)
        cost = run(Job("run_check", (str(folder), records)))
        shutil.rmtree(folder)
        seconds = (cost.cpu_seconds - start.cpu_seconds) / records
        title = f"{records:,} records, {MANY_SHARDS} shards, without start"
        yield at_most(title, seconds * 1e6, None, 4, "µs")
        yield at_most("    memory", megabytes(cost.peak_bytes), None, 120, "MB")


def cvat_rows(data: Data) -> Iterator[Section | Row]:
    yield Section("CVAT server, a whole process", "Datumaro's")
    full, small = (data.sizes.from_cvat, WIDTH, HEIGHT), (data.sizes.masks_from_cvat, 640, 480)
    for name, peer, task, target in (
        ("TFRecord 1.0", "tf_detection_api", full, 3),
        ("TFRecord Masks 1.0", "coco_instances", small, 1 / 3),
    ):
        # Without the start-up hook, as in CVAT.
        ours = Job("export_from_cvat", (*task, name), peer=True)
        theirs = Job("export_from_cvat_with_datumaro", (*task, peer), peer=True)
        samples = compare(ours, theirs, data.sizes.repeats, _wall)
        title = f"{name} / {peer}, {task[0]:,} frames"
        yield faster(title, *(sample.seconds for sample in samples), target)
    samples = [run(Job("register_in_cvat", peer=True)) for _ in range(5)]
    seconds = min(sample.seconds for sample in samples)
    yield at_most("import tfod.cvat and register", seconds * 1e3, None, 30, "ms")
    memory = min(sample.peak_bytes for sample in samples)
    yield at_most("    added memory", megabytes(memory), None, 5, "MB")


SECTIONS = {
    "import": import_rows,
    "memory": memory_rows,
    "export": export_rows,
    "read": read_rows,
    "check": check_rows,
    "commands": command_rows,
    "start-up": start_up_rows,
    "training": training_rows,
    "growing": growing_rows,
    "cvat": cvat_rows,
}


def _import(data: Data, name: str, peer: bool = False) -> Job:
    folders = (str(data.folder(name)), str(data.folder("warm_up")))
    return Job("import_dataset", folders, peer)


def _annotations(data: Data) -> str:
    size = data.shard("bare").stat().st_size / data.sizes.bare
    return f"annotations of {size:.0f} bytes"


def _batches_of(size: int) -> _Call:
    return "read_batches_with_tensorflow", size


def _against_tensorflow(
    title: str, shard: Path, ours: _Call, theirs: _Call
) -> tuple[str, Job, Job]:
    """Return the title and the jobs of a row; tasks get the shard as the first argument."""
    jobs = (
        Job(task, (str(shard), *arguments), peer)
        for (task, *arguments), peer in ((ours, False), (theirs, True))
    )
    peer = f"batches of {theirs[1]:,}" if len(theirs) > 1 else "tensors"
    return f"{title} / {peer}", *jobs


def _cpu(sample: Sample) -> float:
    return sample.cpu_seconds


def _wall(sample: Sample) -> float:
    return sample.seconds


def _row(
    data: Data,
    title: str,
    ours: Job,
    theirs: Job,
    target: float | None,
    *,
    key: Callable[[Sample], float] = _cpu,
    repeats: int = 0,
) -> Row:
    """Compare the time per record of two jobs; the title gets the numbers of records."""
    our_sample, their_sample = compare(ours, theirs, repeats or data.sizes.repeats, key)
    counts = f"{our_sample.records:,}"
    if their_sample.records != our_sample.records:
        counts += f" / {their_sample.records:,}"
    our_time, their_time = (key(sample) / sample.records for sample in (our_sample, their_sample))
    return faster(f"{title} ({counts})", our_time, their_time, target)

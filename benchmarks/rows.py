"""What is compared with what, and the targets: one function a section of the table."""

from __future__ import annotations

from collections.abc import Iterator

from data import Data
from measure import Job, Sample, compare, median_peak, run
from sizes import BOXES, EXPORTED_BOXES, MANY_SHARDS
from table import Row, Section, at_most, faster, megabytes

_DATUMARO = "Datumaro's own"


def import_rows(data: Data) -> Iterator[Section | Row]:
    """Time to import a dataset and walk over it."""
    yield Section("Import, a record", _DATUMARO)
    for name, what in (("pictures", "100 kB pictures"), ("bare", "no pictures")):
        ours, theirs = _compare_times(
            data, _import(data, name), _import(data, f"{name}_of_peer", peer=True)
        )
        yield _row(f"{what}, {BOXES} boxes", ours, theirs, 15)


def memory_rows(data: Data) -> Iterator[Section | Row]:
    """What pictures cost in memory: peak of an import, less that of the same without pictures."""
    yield Section("Import, memory for the pictures", _DATUMARO)
    repeats = data.sizes.repeats
    ours = median_peak(_import(data, "pictures"), repeats)
    ours -= median_peak(_import(data, "unpictured"), repeats)
    theirs = median_peak(_import(data, "pictures_of_peer", peer=True), 1)
    theirs -= median_peak(_import(data, "unpictured_of_peer", peer=True), 1)
    # The peer's grows with the pictures, ours does not.
    theirs *= data.sizes.pictures / data.sizes.pictures_of_peer
    what = f"{data.sizes.pictures:,} pictures of 100 kB"
    yield at_most(what, megabytes(ours), megabytes(theirs), 20, "MB")


def export_rows(data: Data) -> Iterator[Section | Row]:
    """Time to write a dataset."""
    yield Section("Export, a record", _DATUMARO)
    files, sizes = str(data.folder("files")), data.sizes
    imported = (str(data.folder("pictures_of_peer")), str(data.folder("warm_up")))
    exported = (sizes.exported,)
    for what, task, ours, theirs, target in (
        (
            f"100 kB picture files, {BOXES} boxes",
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
        (f"pictures of a shard, {BOXES} boxes", "export_imported", imported, imported, 2.5),
        (f"annotations alone, {EXPORTED_BOXES} boxes", "export_annotations", exported, exported, 1),
    ):
        jobs = Job(task, ours), Job(task, theirs, peer=True)
        yield _row(what, *compare(*jobs, sizes.repeats_of_exports, _seconds), target)


def read_rows(data: Data) -> Iterator[Section | Row]:
    """Time to read records, checksums verified and all features decoded."""
    yield Section("Read and decode, a record of 100 kB", "tf.data")
    shard = (str(data.shard("pictures")),)
    for what, ours, theirs in (
        ("Examples / tensors", "read_examples_with_tfod", "read_eagerly_with_tensorflow"),
        ("Detections / tensors", "read_with_tfod", "read_eagerly_with_tensorflow"),
        ("Detections / NumPy arrays", "read_with_tfod", "read_with_tensorflow"),
        ("Detections / batches of 64", "read_with_tfod", "read_batches_with_tensorflow"),
    ):
        jobs = Job(ours, shard), Job(theirs, shard, peer=True)
        yield _row(what, *_compare_times(data, *jobs), 5)


def check_rows(data: Data) -> Iterator[Section | Row]:
    """Time to check records without decoding images, in one process."""
    yield Section("Check, a record, one process", "tf.data")
    for name, what, target in (("unhashed", "100 kB pictures", 3), ("bare", "no pictures", 0.25)):
        shard = str(data.shard(name))
        tensors = Job("read_eagerly_with_tensorflow", (shard,), peer=True)
        batches = Job("read_batches_with_tensorflow", (shard,), peer=True)
        for peer, theirs in (("tensors", tensors), ("batches of 64", batches)):
            ours = Job("check_with_tfod", (shard, 1, 0))
            yield _row(f"{what} / {peer}", *_compare_times(data, ours, theirs), target)
        hashed = _compare_times(data, Job("check_with_tfod", (shard, 1, 1)), tensors)
        row = _row(f"{what}, sources hashed / tensors", *hashed, 0)
        yield Row(row.what, row.ours, row.theirs, row.ratio)
    yield Section("Check, two processes", "one process")
    many = str(data.folder("many"))
    jobs = Job("check_with_tfod", (many, 2, 0)), Job("check_with_tfod", (many, 1, 0))
    yield _row(f"no pictures, {MANY_SHARDS} shards", *_compare_times(data, *jobs), 1.7)
    peak = median_peak(Job("check_with_tfod", (str(data.shard("unhashed")), 1, 1)), 1)
    yield at_most("memory, 100 kB pictures", megabytes(peak), None, 200, "MB")
    peak = median_peak(Job("check_with_tfod", (many, 1, 1)), 1)
    yield at_most("memory, no pictures, many shards", megabytes(peak), None, 200, "MB")


def start_up_rows(data: Data) -> Iterator[Section | Row]:
    """Time and memory before anything is read."""
    yield Section("Start-up", "TensorFlow")
    ours, theirs = _compare_times(
        data,
        Job("import_module", ("tfod.detection.stream",)),
        Job("import_module", ("tensorflow",), peer=True),
    )
    # All that reads shards: tfod itself loads nothing before it is used.
    yield at_most(
        "import tfod.detection.stream / tensorflow",
        ours.seconds * 1e3,
        theirs.seconds * 1e3,
        150,
        "ms",
    )
    our_peak, their_peak = (f"{megabytes(one.peak_bytes):.0f} MB" for one in (ours, theirs))
    yield Row("    memory of the process then", our_peak, their_peak)
    ours, theirs = _compare_times(
        data, Job("register_in_datumaro", peer=True), Job("load_builtin_plugin", peer=True)
    )
    yield faster("load the format into a running Datumaro", ours.seconds, theirs.seconds, None)
    hook = min(run(Job("run_start_up_hook", peer=True)).seconds for _ in range(5))
    yield at_most("the .pth line, in every start of Python", hook * 1e3, None, 1, "ms")


def training_rows(data: Data) -> Iterator[Section | Row]:
    """Time until a training loop has a record: picture decoded, boxes, classes."""
    yield Section("Train, a record", "tf.data by hand")
    for what, folder, batch_size, decode, size in (
        ("pictures resized to 320 x 320, batches of 16", "training", 16, 1, 320),
        ("pictures, one by one", "training", 0, 1, 0),
        ("encoded pictures, batches of 64", "training", 64, 0, 0),
        ("no pictures, batches of 64", "bare", 64, 0, 0),
    ):
        arguments = str(data.folder(folder)), batch_size, decode, size
        ours = Job("train_with_tfod", arguments)
        theirs = Job("train_with_tensorflow", arguments, peer=True)
        yield _row(what, *_compare_times(data, ours, theirs), 1)
    yield Section("Train with PyTorch, a record", "tfrecord package")
    folder = str(data.folder("training"))
    ours = Job("train_with_tfod_torch", (folder,))
    theirs = Job("train_with_tfrecord", (folder,), peer=True)
    row = _row("pictures, one process", *_compare_times(data, ours, theirs), 0)
    # Both wait for Pillow.
    yield Row(row.what, row.ours, row.theirs, row.ratio)


def reshard_rows(data: Data) -> Iterator[Section | Row]:
    """Time to write records into other shards; within 2 times of a copy is at least 0.5x."""
    yield Section("Reshard, a record", "checked copy")
    for what, name, records in (
        ("100 kB", "pictures", data.sizes.pictures),
        ("2 kB", "small", data.sizes.small),
    ):
        source = str(data.shard(name)), records
        for shards in (1, 10):
            for how, ours, theirs in (
                ("walk", "reshard_with_tfod", "copy_with_checksums"),
                ("process", "run_reshard", "run_copy"),
            ):
                jobs = Job(ours, (*source, shards)), Job(theirs, source, peer=True)
                samples = compare(*jobs, data.sizes.repeats_of_exports, _seconds)
                plural = "shard" if shards == 1 else "shards"
                yield _row(f"{what}, {shards} {plural}, {how}", *samples, 0.5)


def cvat_rows(data: Data) -> Iterator[Section | Row]:
    """The Django app in a CVAT server (its contract double)."""
    yield Section("CVAT server, a whole process", "TensorFlow's")
    exported = (data.sizes.from_cvat,)
    ours, theirs = compare(
        Job("export_from_cvat", exported, peer=True),  # as there, without the start-up hook
        Job("export_from_cvat_with_tensorflow", exported, peer=True),
        data.sizes.repeats,
        _seconds,
    )
    what = f"export of {data.sizes.from_cvat:,} frames, {EXPORTED_BOXES} boxes, start included"
    yield faster(what, ours.seconds, theirs.seconds, 3)
    samples = [run(Job("register_in_cvat", peer=True)) for _ in range(5)]
    seconds = min(one.seconds for one in samples)
    yield at_most("import tfod.cvat and register", seconds * 1e3, None, 30, "ms")
    memory = min(one.peak_bytes for one in samples)
    yield at_most("    memory it adds", megabytes(memory), None, 5, "MB")


SECTIONS = {
    "import": import_rows,
    "memory": memory_rows,
    "export": export_rows,
    "read": read_rows,
    "check": check_rows,
    "start-up": start_up_rows,
    "training": training_rows,
    "reshard": reshard_rows,
    "cvat": cvat_rows,
}


def _import(data: Data, name: str, peer: bool = False) -> Job:
    folders = (str(data.folder(name)), str(data.folder("warm_up")))
    return Job("import_dataset", folders, peer)


def _compare_times(data: Data, ours: Job, theirs: Job) -> tuple[Sample, Sample]:
    return compare(ours, theirs, data.sizes.repeats, _seconds)


def _seconds(sample: Sample) -> float:
    return sample.seconds


def _row(what: str, ours: Sample, theirs: Sample, target: float) -> Row:
    """A row of time per record, which says how many records each side had."""
    counts = f"{ours.records:,}"
    if theirs.records != ours.records:
        counts += f" / {theirs.records:,}"
    row = faster(what, ours.seconds_per_record, theirs.seconds_per_record, target)
    return Row(f"{row.what} ({counts})", row.ours, row.theirs, row.ratio, row.target, row.verdict)

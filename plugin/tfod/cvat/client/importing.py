"""From a zip of shards to annotations on the server: checked, compared, converted, uploaded."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO

from tfod.checker.references.cvat_task import Task
from tfod.checker.references.frames import Matcher
from tfod.checker.report import Report
from tfod.checker.reporters.text import render_text
from tfod.cvat.client.connection import PROJECT, Server, Target, may_go_on, writing
from tfod.cvat.client.live_task import Changes, LiveTask, fetch_task
from tfod.cvat.client.project_dataset import write_dataset
from tfod.cvat.records import NewImages, ShapeBuilder, label_maps_of, on_frames, read_zip
from tfod.cvat.refusal import check_upload, refusal, replaced
from tfod.errors import TfodError
from tfod.formats.cvat.document import END, head_text, image_text
from tfod.sources.format_recognition import CVAT_FILE
from tfod.sources.resolver import resolve

Say = Callable[[str], object]
_ANNOTATION_FORMAT, _DATASET_FORMAT = "CVAT 1.1", "Datumaro 1.0"
_APPEND_SINCE = (2, 65)
"""Older servers do not know ``import_mode``, and would replace without a word (cvat#10573)."""


@dataclass(frozen=True)
class ImportOptions:
    """What is to be done with a zip: replace or append, or stop before anything is touched.

    ``force`` replaces also what no record can bring back. ``label_map`` is the file or name of one
    in place of that in the zip; with ``skips_others``, images of no frame are left out.
    """

    path: str
    append: bool = False
    force: bool = False
    dry_run: bool = False
    label_map: str | None = None
    skips_others: bool = False


def import_zip(
    server: Server, target: Target, options: ImportOptions, tell: Say, warn: Say
) -> bool:
    """Import a zip.

    The annotations of a task or a job change; a project gets new tasks. ``tell`` takes the report
    and the changes, ``warn`` what does not come along.

    Returns:
        False when the check has found errors: nothing was touched, and ``tell`` got the report.
    """
    is_project = target.kind == PROJECT
    if options.append and is_project:
        raise TfodError(f"an import into {target} adds tasks and changes none; leave out --mode")
    if options.append:
        _require_append(server)
    live = fetch_task(server, target)
    if not live.labels and not is_project:
        raise TfodError(f"{target} has no labels; add those of the zip to it first")
    live = replace(live, task=replace(live.task, skips_others=options.skips_others))
    task = live.task.kept() if options.append or options.force else live.task
    report = check_zip(options, task)
    if not report.valid:
        tell(render_text(report, color=False))
        warn(str(refusal(report, task, target.kind, options.path)))
        if "IMG001" in report.counts.by_code:
            warn(
                f"{target} gets new tasks from images, and records without one have none; import "
                "annotations alone into its tasks: tfod cvat import task ID …"
            )
        if not (options.dry_run and check_zip(options, task.kept()).valid):
            return False
    for message in replaced(report):
        warn(message)
    format_name = _DATASET_FORMAT if is_project else _ANNOTATION_FORMAT
    _require_format(server, format_name)
    with tempfile.TemporaryDirectory(prefix="tfod-cvat-") as scratch:
        path = os.path.join(scratch, f"{os.path.basename(scratch)}.zip")  # of a name of its own
        with writing(os.path.dirname(scratch), "make room, or name another folder in TMPDIR"):
            if is_project:
                _prepare_dataset(live, options, path, tell, warn)
            else:
                _prepare_annotations(live, options, path, tell, warn)
        if options.dry_run:
            tell("dry run: nothing was touched")
            return report.valid
        tell(_what_happens(server, target, options.append))
        try:
            server.upload(target, path, format_name, options.append)
        except KeyboardInterrupt:
            warn(may_go_on(server, target))
            raise
    tell(f"{server.host} has imported {options.path} into {target}")
    return True


def _require_append(server: Server) -> None:
    if server.version_numbers is None or server.version_numbers < _APPEND_SINCE:
        raise TfodError(
            f"{server.host} is CVAT {server.version or 'of an unknown version'} and cannot append "
            "(2.65 and later can); it would replace what is there: use --mode replace, if that is "
            "meant"
        )


def _require_format(server: Server, format_name: str) -> None:
    """Raise TfodError where the server does not import a format, before anything is uploaded."""
    found = server.get("/api/server/annotation/formats")
    with server.errors():
        names = {one["name"] for one in found["importers"] if one["enabled"]}
    if format_name not in names:
        raise TfodError(f"{server.host} does not import {format_name!r}; ask its administrator")


def check_zip(options: ImportOptions, task: Task) -> Report:
    """Check a zip against a task, for what matters to an import.

    Raises:
        TfodError: it is no zip, or cannot be read.
    """
    with resolve([options.path], options.label_map) as found:
        if len(found.datasets) != 1 or not found.datasets[0].zips:
            raise TfodError(f"{options.path} is not a zip; pack the shards and their label map")
        return check_upload(found, task, options.label_map)


def _prepare_annotations(
    live: LiveTask, options: ImportOptions, path: str, tell: Say, warn: Say
) -> None:
    """Write CVAT's own XML, zipped, and tell what would change."""
    changes = Changes(live.held, options.append)
    builder = ShapeBuilder(live.labels)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(CVAT_FILE, "w", force_zip64=True) as stream,
    ):
        stream.write(head_text(str(live.target), {}).encode())
        others = _convert(live, options, stream, builder, changes)
        stream.write(END.encode())
    tell(changes.text())
    if others:
        warn(f"images that are not frames of {live.target}, skipped: {others}")
    for sentence in builder.losses.sentences():
        warn(f"not imported: {sentence}")


def _convert(
    live: LiveTask,
    options: ImportOptions,
    stream: IO[bytes],
    builder: ShapeBuilder,
    changes: Changes,
) -> int:
    """Write the frames that a zip has records of; return how many of them are not the target's."""
    others = 0
    reached = Matcher(live.task, ())
    records = on_frames(options.path, live.task, live.target, options.label_map)
    for pair in records:
        if pair is None:
            others += 1
            continue
        record, frame = pair
        assert frame.number is not None  # of a live task
        if not reached.is_reached_by_cvat(frame):
            raise TfodError(
                f"{record.where}: another frame of the task is called as {frame.name!r} but for "
                "the extension, and CVAT's import of XML takes them for one; upload the zip in "
                "CVAT as TFRecord 1.0, or leave the record out"
            )
        detection = record.detection
        height, width = frame.height or detection.height, frame.width or detection.width
        if not height or not width:
            raise TfodError(f"{record.where}: neither it nor its frame has a size")
        shapes, tags = builder.shapes(record, (height, width)), builder.tags(record)
        changes.compare(frame.number, [*shapes, *tags])
        number = live.first + frame.number * live.step
        named = {"id": number, "name": frame.name}
        stream.write(image_text(named, (height, width), shapes, tags).encode())
    return others


def _prepare_dataset(
    live: LiveTask, options: ImportOptions, path: str, tell: Say, warn: Say
) -> None:
    """Write a dataset with its images, zipped, and tell what tasks it makes."""
    builder = ShapeBuilder(live.labels or None, new_attributes=True, by_datumaro=True)
    records, images = read_zip(options.path, options.label_map), NewImages()
    maps = [] if live.labels else label_maps_of(options.path, options.label_map)
    names = [*live.labels, *(item.class_name for one in maps for item in one.items)]
    subsets = write_dataset(records, names, builder, images, path)
    for subset, (count, objects) in subsets.items():
        tell(f"new task {subset!r}: {count} images, {objects} objects")
    for sentence in images.sentences():
        warn(sentence)
    for sentence in builder.losses.sentences():
        warn(f"not imported: {sentence}")


def _what_happens(server: Server, target: Target, append: bool) -> str:
    if target.kind == PROJECT:
        return f"adding the tasks to {target} on {server.host}"
    if append:
        return f"adding to the annotations of {target} on {server.host}"
    return f"replacing all annotations of {target} on {server.host}"

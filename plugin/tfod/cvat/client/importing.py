"""Import of a zip of shards into a server: check, compare, convert, upload."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfod.checker.finding import plural
from tfod.checker.references.cvat_task import Task
from tfod.checker.references.frames import Matcher
from tfod.checker.report import Report
from tfod.checker.reporters.text import render_text
from tfod.cvat.client.connection import (
    PROJECT,
    Server,
    Target,
    convert_write_errors,
    describe_pending_import,
)
from tfod.cvat.client.live_task import Changes, LiveTask, fetch_task
from tfod.cvat.client.project_dataset import write_dataset
from tfod.cvat.records import NewImages, ShapeBuilder, match_frames, read_label_maps, read_zip
from tfod.cvat.refusal import build_refusal, check_upload, list_replacements
from tfod.errors import TfodError, excerpt
from tfod.formats.cvat.document import END, format_head, format_image
from tfod.sources.format_recognition import CVAT_FILE
from tfod.sources.resolver import resolve

Print = Callable[[str], object]
_ANNOTATION_FORMAT, _DATASET_FORMAT = "CVAT 1.1", "Datumaro 1.0"
_APPEND_SINCE = (2, 65)
"""Older servers ignore ``import_mode`` and replace the annotations (cvat#10573)."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import; ``label_map`` is a path or a name, and replaces the one in the zip.

    ``force`` also deletes annotations that no record can restore. ``skips_others`` ignores images
    without a frame.
    """

    path: str
    append: bool = False
    force: bool = False
    dry_run: bool = False
    label_map: str | None = None
    skips_others: bool = False


def import_zip(
    server: Server, target: Target, options: ImportOptions, tell: Print, warn: Print
) -> bool:
    """Import a zip into a task or a job, or as new tasks of a project.

    ``tell`` is called with the report and the changes, ``warn`` with losses. The result is False if
    the check found errors; in this case the server was not changed.
    """
    is_project = target.kind == PROJECT
    if options.append and is_project:
        raise TfodError(f"an import into {target} adds tasks and changes none; omit --mode")
    if options.append:
        _require_append(server)
    live = fetch_task(server, target)
    if not live.labels and not is_project:
        raise TfodError(f"{target} has no labels; add the labels of the zip to it first")
    live = replace(live, task=replace(live.task, skips_others=options.skips_others))
    task = live.task.without_deletions() if options.append or options.force else live.task
    report = check_zip(options, task)
    if not report.valid:
        tell(render_text(report, color=False))
        warn(str(build_refusal(report, task, target.kind, options.path)))
        if "IMG001" in report.counts.by_code:
            warn(
                "importing into a project creates new tasks, which needs images in all records; to "
                "import only annotations, import into its tasks: tfod cvat import task ID …"
            )
        if not (options.dry_run and check_zip(options, task.without_deletions()).valid):
            return False
    for message in list_replacements(report):
        warn(message)
    format_name = _DATASET_FORMAT if is_project else _ANNOTATION_FORMAT
    _require_format(server, format_name)
    with tempfile.TemporaryDirectory(prefix="tfod-cvat-") as scratch:
        path = os.path.join(scratch, f"{os.path.basename(scratch)}.zip")  # has a unique name
        fix = "free some space, or set TMPDIR to another folder"
        with convert_write_errors(os.path.dirname(scratch), fix):
            if is_project:
                _prepare_dataset(live, options, path, tell, warn)
            else:
                _prepare_annotations(live, options, path, tell, warn)
        if options.dry_run:
            tell("dry run: the server was not changed")
            return report.valid
        tell(_describe_upload(server, target, options.append))
        try:
            server.upload(target, path, format_name, options.append)
        except KeyboardInterrupt:
            warn(describe_pending_import(server, target))
            raise
    tell(f"{server.host} has imported {options.path} into {target}")
    return True


def _require_append(server: Server) -> None:
    if server.version_numbers is None or server.version_numbers < _APPEND_SINCE:
        raise TfodError(
            f"{server.host} runs CVAT {server.version or 'of an unknown version'}, which cannot "
            "append annotations (2.65 or later can); to replace the existing annotations, use "
            "--mode replace"
        )


def _require_format(server: Server, format_name: str) -> None:
    """Raise TfodError if the server does not import a format, before the upload."""
    formats = server.get("/api/server/annotation/formats")
    with server.convert_errors():
        names = {importer["name"] for importer in formats["importers"] if importer["enabled"]}
    if format_name not in names:
        raise TfodError(
            f"{server.host} does not import {excerpt(format_name)}; ask its administrator"
        )


def check_zip(options: ImportOptions, task: Task) -> Report:
    """Check a zip against a task, or raise TfodError if it is not a readable zip."""
    with resolve([options.path], options.label_map) as sources:
        if len(sources.datasets) != 1 or not sources.datasets[0].zips:
            raise TfodError(f"{options.path} is not a zip; pack the shards and their label map")
        return check_upload(sources, task, options.label_map)


def _prepare_annotations(
    live: LiveTask, options: ImportOptions, path: str, tell: Print, warn: Print
) -> None:
    """Write the frames that have records, and tell about the records of other targets."""
    changes = Changes(live.annotations, options.append)
    builder, matcher, skipped = ShapeBuilder(live.labels), Matcher(live.task, ()), 0
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(CVAT_FILE, "w", force_zip64=True) as stream,
    ):
        stream.write(format_head(str(live.target), {}).encode())
        for pair in match_frames(options.path, live.task, live.target, options.label_map):
            if pair is None:
                skipped += 1
                continue
            record, frame = pair
            assert frame.number is not None  # of a live task
            if not matcher.is_reached_by_cvat(frame):
                raise TfodError(
                    f"{record.location}: another frame of the task differs from "
                    f"{excerpt(frame.name)} only in its extension, which CVAT's XML import cannot "
                    "distinguish; upload the zip in CVAT as TFRecord 1.0, or remove the record"
                )
            detection = record.detection
            height, width = frame.height or detection.height, frame.width or detection.width
            if not height or not width:
                raise TfodError(f"{record.location}: neither the record nor its frame has a size")
            shapes, tags = builder.make_shapes(record, (height, width)), builder.make_tags(record)
            changes.compare(frame.number, [*shapes, *tags])
            number = live.first + frame.number * live.step
            attributes = {"id": number, "name": frame.name}
            stream.write(format_image(attributes, (height, width), shapes, tags).encode())
        stream.write(END.encode())
    tell(changes.text())
    if skipped:
        warn(f"{plural(skipped, 'image')} skipped: no frame of {live.target} matches")
    for sentence in builder.losses.sentences():
        warn(f"not imported: {sentence}")


def _prepare_dataset(
    live: LiveTask, options: ImportOptions, path: str, tell: Print, warn: Print
) -> None:
    builder = ShapeBuilder(live.labels or None, new_attributes=True, by_datumaro=True)
    records, images = read_zip(options.path, options.label_map), NewImages()
    maps = [] if live.labels else read_label_maps(options.path, options.label_map)
    names = [*live.labels, *(item.class_name for label_map in maps for item in label_map.items)]
    subsets = write_dataset(records, names, builder, images, path)
    for subset, (count, objects) in subsets.items():
        tell(f"new task {excerpt(subset)}: {count} images, {objects} objects")
    for sentence in images.sentences():
        warn(sentence)
    for sentence in builder.losses.sentences():
        warn(f"not imported: {sentence}")


def _describe_upload(server: Server, target: Target, append: bool) -> str:
    if target.kind == PROJECT:
        return f"adding the tasks to {target} on {server.host}"
    if append:
        return f"adding to the annotations of {target} on {server.host}"
    return f"replacing all annotations of {target} on {server.host}"

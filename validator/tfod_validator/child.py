"""The process of a single check, with resource limits. It may repair the upload first.

It writes the report in all formats, and then the result, to the folder of its attempt. It calls the
library instead of the command, which would catch MemoryError.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.analysis.examine import Progress
from tfod.checker.check import Options, check
from tfod.checker.configuration import Configuration, make_options
from tfod.checker.finding import Severity
from tfod.checker.profiles import file as file  # imported before the fork
from tfod.checker.receivers import RECEIVERS
from tfod.checker.references import frames as frames  # imported before the fork
from tfod.checker.references.cvat_task import load_task
from tfod.checker.report import Report
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.samples import choose_samples
from tfod.checker.reporters.text import render_text
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.shards.repair import Options as RepairOptions
from tfod.shards.repair import repair
from tfod.sources.resolved import File, LabelMapFile, ResolvedSources
from tfod.sources.resolver import resolve_uploads
from tfod.tfrecord.storage.archive import ZipLimits, read_zip

from tfod_validator.answers import ProblemError
from tfod_validator.folder import ORIGINAL, PROGRESS, REPORTS, UPLOAD, DataFolder, Request, Result
from tfod_validator.settings import EXAMPLES, Settings

_PROGRESS_SECONDS = 0.5
_UNREADABLE = "TFR013"
_SOURCE_ID_RULES = ("NAM010", "NAM011")
_NEW_SOURCE_ID = "The source id becomes a new number; the text is kept in tfod/attributes."
"""The repair for these rules if they are errors for the receiver; else they are not repaired."""


def run(settings: Settings, attempt: Path, request: Request) -> None:
    """Check an upload, after repairing it if requested, and write the result to the attempt."""
    _begin(settings, is_repair=request.repair_of is not None)
    started, changes, upload = time.time(), None, attempt.parent / UPLOAD
    try:
        os.chdir(upload / "file")  # reports contain file names without a path
        if request.repair_of is not None:
            changes = _repair(attempt, request, settings)
        report = _check(attempt, request, settings)
        severities = report.counts.by_severity.items()
        result = Result(
            report.valid,
            started,
            time.time(),
            records=report.counts.records,
            findings={severity.value: count for severity, count in severities},
            repairs=_list_repairs(report),
            repair=changes,
        )
    except Exception as error:
        problem = error if isinstance(error, ProblemError) else _to_problem(error, settings)
        result = Result(None, started, time.time(), repair=changes, failure=problem.document)
    with suppress(FileNotFoundError):  # the upload was deleted in the meantime
        DataFolder(settings).write_result(attempt, result)


def _begin(settings: Settings, *, is_repair: bool) -> None:
    """Set the resource limits of the process, and end it when its parent ends."""
    os.setsid()  # Ctrl-C is only for the service
    threading.Thread(target=_end_with_parent, daemon=True).start()
    max_file_bytes = settings.max_body_bytes if is_repair else settings.max_report_bytes
    for limit, value in (
        (resource.RLIMIT_AS, settings.max_check_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, max_file_bytes),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _to_problem(error: Exception, settings: Settings) -> ProblemError:
    code = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        limit = f"{settings.max_check_bytes >> 20:,} MiB of memory"
        detail = f"The check needs more than {limit}. Check the upload in parts."
        return ProblemError(422, detail, limit="max_check_bytes")
    if isinstance(error, TfodError):
        text = str(error).replace(f"{os.pardir}{os.sep}", "")
        return ProblemError(422, f"The check could not run: {text}")
    if code == errno.EFBIG:
        detail = "The class and file names make the report too long. Check fewer files at a time."
        return ProblemError(422, detail, limit="max_report_bytes")
    if code in (errno.ENOSPC, errno.EDQUOT):
        return ProblemError(507, "The disk of the service is full. Try again later.")
    # Not the text of the error, which may quote the upload.
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
    print(f"check failed: {type(error).__name__}\n{''.join(frames)}", file=sys.stderr, flush=True)
    hint = "Upload the files again; if it happens again, ask the operator of the service."
    return ProblemError(500, f"Internal error. {hint}")


def _check(attempt: Path, request: Request, settings: Settings) -> Report:
    """Check the files in the working folder, and write the report."""
    paths = {file.role: os.path.join(os.pardir, file.role, file.name) for file in request.files}
    configuration = Configuration(
        receiver=request.receiver,
        profile=paths.get("profile") or request.profile,
        label_map=request.label_map,
    )
    options = make_options(
        configuration,
        Configuration(),
        task=load_task(paths["cvat_labels"], None) if "cvat_labels" in paths else None,
        decode=parse_max_decoded(request.decode or "auto"),
        max_findings=settings.max_findings,
        max_record_bytes=settings.max_record_bytes,
        archive_limits=ZipLimits(
            settings.max_archive_entries, settings.max_archive_bytes, settings.max_archive_ratio
        ),
    )
    files = [File.at(name) for name in sorted(os.listdir())]
    sources = resolve_uploads(files, options.archive_limits)
    if path := paths.get("label_map"):
        sources = sources.with_label_map(LabelMapFile.at(path, os.path.basename(path)))
    report, texts = _make_reports(sources, options, settings, _make_progress(attempt, settings))
    if _UNREADABLE in report.counts.by_code:
        detail = "The service could not read the upload from its disk. Upload the files again."
        raise ProblemError(500, detail)
    for name, text in texts.items():
        (attempt / REPORTS[name]).write_bytes(text.encode("utf-8", "replace"))
    return report


def _make_reports(
    sources: ResolvedSources,
    options: Options,
    settings: Settings,
    progress: Progress = lambda *_: None,
) -> tuple[Report, dict[str, str]]:
    """Check shards, and return the report, and its text in each format."""
    report = check(sources, options, progress)
    samples = choose_samples(report, sources.shards, options.profile, settings.max_images)
    return report, {
        "html": render_html(report, samples, on_page=True),
        "junit": render_junit(report),
        "text": render_text(report, color=False),
        "json": render_json(report),
    }


def _make_progress(attempt: Path, settings: Settings) -> Progress:
    """Return a function that writes the progress to the attempt, and enforces ``max_records``."""
    done, records, written = 0, 0, time.monotonic()

    def progress(more_bytes: int, more_records: int) -> None:
        nonlocal done, records, written
        done, records = done + more_bytes, records + more_records
        if records > settings.max_records:
            limit = f"{settings.max_records:,} records"
            detail = f"The upload has more than {limit}. Check it in parts."
            raise ProblemError(422, detail, limit="max_records")
        if time.monotonic() - written > _PROGRESS_SECONDS:
            written = time.monotonic()
            (attempt / PROGRESS).write_text(json.dumps([done, records]))

    return progress


def _list_repairs(report: Report) -> dict[str, str]:
    """Return the possible repairs by code; none if no record could be read."""
    if not report.counts.records:
        return {}
    severities = RECEIVERS[report.receiver].severities(None)
    repairs = {code: rule.repair for code, rule in all_rules().items() if rule.repair}
    for code in _SOURCE_ID_RULES:
        repairs[code] = _NEW_SOURCE_ID if severities.get(code) is Severity.ERROR else ""
    return {code: repairs[code] for code in report.counts.by_code if repairs.get(code)}


def _repair(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Write a repaired copy of an upload to the working folder, as a zip; return the changes."""
    original = os.path.join(os.pardir, ORIGINAL)
    files = [os.path.join(original, name) for name in sorted(os.listdir(original))]
    zips = [file for file in files if zipfile.is_zipfile(file)]
    # A single file next to a single zip is its label map.
    source = zips[0] if len(zips) == 1 and len(files) <= 2 else original
    label_maps = [file for file in files if file not in zips] if source in zips else []
    label_maps += map(str, Path(os.pardir, "label_map").glob("*"))
    options = RepairOptions(
        receiver=request.receiver,
        label_map=next(iter(label_maps), request.label_map),
        max_record_bytes=settings.max_record_bytes,
    )
    _require_disk(files, zips, settings)
    with tempfile.TemporaryDirectory(dir=attempt) as scratch:
        folder, archive = Path(scratch, "repaired"), Path(scratch, "repaired.zip")
        try:
            outcome = repair(source, str(folder), options)
        except TfodError as error:
            text = str(error).removeprefix(f"{original}: ").replace(f"{original}{os.sep}", "")
            text = text.replace(original, "the upload")
            raise ProblemError(422, f"The upload cannot be repaired: {text}") from None
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as output:
            for path in sorted(folder.rglob("*")):
                output.write(path, path.relative_to(folder))
        archive.replace(request.files[0].name)
    changes = [
        {"code": code, "title": all_rules()[code].title, "count": count}
        for code, count in sorted(outcome.by_code.items())
    ]
    counts = {"records_changed": outcome.changed, "records_dropped": outcome.dropped}
    return {**counts, "changes": changes}


def _require_disk(files: list[str], zips: list[str], settings: Settings) -> None:
    """Check that the repaired copy is not too large, and fits on the disk with its zip."""
    total = sum(os.path.getsize(file) for file in files if file not in zips)
    total += sum(entry.size for path in zips for entry in read_zip(path).readable.values())
    if total > settings.max_archive_bytes:
        limit = f"{settings.max_archive_bytes >> 20:,} MiB"
        detail = f"The upload cannot be repaired: it has more than {limit} when unpacked."
        raise ProblemError(422, detail, limit="max_archive_bytes")
    if DataFolder(settings).free_bytes() < 2 * total + settings.min_free_bytes:
        detail = "There is not enough disk space for a repaired copy. Try again later."
        raise ProblemError(507, detail, limit="min_free_bytes")


# Check the examples once in the process that checks are forked from. A fork then has all imports
# and caches, which take three quarters of the time of a small check.
for _example in EXAMPLES.values():
    _make_reports(resolve_uploads([File.at(str(_example), _example.name)]), Options(), Settings())

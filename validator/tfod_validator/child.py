"""The process of a single check, with resource limits. It may repair or convert the upload first.

It writes the report in all formats, and then the result, to the folder of its attempt. It calls the
library instead of the command, which would catch MemoryError.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import resource
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tfod.checker.analysis.examine import Progress
from tfod.checker.check import check
from tfod.checker.profiles import file as file  # imported before the fork
from tfod.checker.references import frames as frames  # imported before the fork
from tfod.checker.report import Report
from tfod.errors import TfodError
from tfod.tfrecord.storage.archive import ZipLimits, read_zip

from tfod_validator.answers import ProblemError
from tfod_validator.folder import ORIGINAL, PROGRESS, REPORTS, UPLOAD, DataFolder, Request, Result
from tfod_validator.landlock import restrict
from tfod_validator.settings import Settings
from tfod_validator.validation import (
    Choices,
    CopyError,
    Limits,
    Outcome,
    check_examples,
    convert_copy,
    find_zips,
    pack,
    prepare_check,
    render_outcome,
    repair_copy,
)

_PROGRESS_SECONDS = 0.5
_UNREADABLE = "TFR013"
_ORIGINAL = os.path.join(os.pardir, ORIGINAL)


def run(settings: Settings, attempt: Path, request: Request) -> None:
    """Check an upload, after changing a copy if requested, and write the result to the attempt."""
    _close_sockets()
    restrict(attempt.parent, settings.data)  # before threads start, which inherit it
    _begin(settings, writes_copy=request.copy_of is not None)
    started, upload = time.time(), attempt.parent / UPLOAD
    copied: dict[str, Any] = {}
    try:
        os.chdir(upload / "file")  # reports contain file names without a path
        tempfile.tempdir = os.path.join(os.pardir, os.pardir, attempt.name)
        if request.repair_of is not None:
            copied["repair"] = _repair(attempt, request, settings)
        elif request.convert_of is not None:
            copied["conversion"] = _convert(attempt, request, settings)
        report, outcome = _check(attempt, request, settings)
        severities = report.counts.by_severity.items()
        result = Result(
            report.valid,
            started,
            time.time(),
            records=report.counts.records,
            findings={severity.value: count for severity, count in severities},
            offers=list(outcome.offers),
            convertible=outcome.convertible,
            **copied,
        )
    except Exception as error:
        problem = error if isinstance(error, ProblemError) else _to_problem(error, settings)
        result = Result(None, started, time.time(), failure=problem.document, **copied)
    with suppress(FileNotFoundError):  # the upload was deleted in the meantime
        DataFolder(settings).write_result(attempt, result)


def _begin(settings: Settings, *, writes_copy: bool) -> None:
    """Set the resource limits of the process, and end it when its parent ends."""
    os.setsid()  # Ctrl-C is only for the service
    threading.Thread(target=_end_with_parent, daemon=True).start()
    max_file_bytes = settings.max_body_bytes if writes_copy else settings.max_report_bytes
    for limit, value in (
        (resource.RLIMIT_AS, settings.max_check_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, max_file_bytes),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _close_sockets() -> None:
    """Close what a fork of an RQ worker inherits: its connections to Redis, which can run code."""
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # the folder that was listed is closed again
            if number > 2 and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)


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


def _check(attempt: Path, request: Request, settings: Settings) -> tuple[Report, Outcome]:
    """Check the files in the working folder, and write the report."""
    limits = _make_limits(settings)
    sources, options = prepare_check(os.listdir(), _make_choices(request), limits)
    report = check(sources, options, _make_progress(attempt, settings))
    if _UNREADABLE in report.counts.by_code:
        detail = "The service could not read the upload from its disk. Upload the files again."
        raise ProblemError(500, detail)
    is_repaired = request.repair_of is not None
    outcome = render_outcome(report, sources, options, limits, is_repaired=is_repaired)
    for name, text in outcome.texts.items():
        (attempt / REPORTS[name]).write_bytes(text.encode("utf-8", "replace"))
    return report, outcome


def _make_choices(request: Request) -> Choices:
    paths = {file.role: os.path.join(os.pardir, file.role, file.name) for file in request.files}
    return Choices(
        receiver=request.receiver,
        profile=paths.get("profile") or request.profile,
        label_map=request.label_map,
        label_map_file=paths.get("label_map"),
        cvat_labels=paths.get("cvat_labels"),
        decode=request.decode or "auto",
        odd_boxes=request.odd_boxes,
    )


def _make_limits(settings: Settings) -> Limits:
    archive = ZipLimits(
        settings.max_archive_entries, settings.max_archive_bytes, settings.max_archive_ratio
    )
    return Limits(settings.max_findings, settings.max_images, settings.max_record_bytes, archive)


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


def _repair(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Write a repaired copy of an upload to the working folder, as a zip; return the changes."""
    files = _list_originals()
    _require_disk(files, settings, copies=2)
    choices, limits = _choices_of_copy(request), _make_limits(settings)
    with _write_copy(attempt, request, "repaired") as folder:
        return repair_copy(files, folder, choices, limits, _ORIGINAL)


def _convert(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Write an upload to the working folder, as a zip of shards; return what was converted."""
    files = _list_originals()
    _require_disk(files, settings, copies=3)
    choices, limits = _choices_of_copy(request), _make_limits(settings)
    with _write_copy(attempt, request, "converted") as folder:
        conversion = convert_copy(files, folder, choices, limits)
    return {**conversion, "notes": [_restore_names(note) for note in conversion["notes"]]}


def _choices_of_copy(request: Request) -> Choices:
    """Return the choices with the label map of the original upload, which is linked."""
    label_maps = Path(os.pardir, "label_map").glob("*")
    return replace(_make_choices(request), label_map_file=next(map(str, label_maps), None))


def _list_originals() -> list[str]:
    """Return the paths of the files of the original upload."""
    return [os.path.join(_ORIGINAL, name) for name in sorted(os.listdir(_ORIGINAL))]


@contextmanager
def _write_copy(attempt: Path, request: Request, verb: str) -> Iterator[Path]:
    """Yield the path of a folder to write, and pack it into a zip in the working folder."""
    with tempfile.TemporaryDirectory(dir=attempt) as scratch:
        folder, archive = Path(scratch, verb), Path(scratch, f"{verb}.zip")
        try:
            yield folder
        except CopyError as error:
            raise ProblemError(422, str(error)) from None
        except TfodError as error:
            text = _restore_names(str(error)).replace("--odd-boxes ", "")
            raise ProblemError(422, f"The upload cannot be {verb}: {text}") from None
        pack(folder, archive)
        archive.replace(request.files[0].name)


def _restore_names(text: str) -> str:
    """Replace paths of the original upload by the names of its files."""
    text = text.removeprefix(f"{_ORIGINAL}: ").replace(f"{_ORIGINAL}{os.sep}", "")
    return text.replace(_ORIGINAL, "the upload")


def _require_disk(files: list[str], settings: Settings, copies: int) -> None:
    """Check that an unpacked upload is not too large, and that copies of it fit on the disk."""
    zips = find_zips(files)
    total = sum(os.path.getsize(file) for file in files if file not in zips)
    total += sum(entry.size for path in zips for entry in read_zip(path).readable.values())
    if total > settings.max_archive_bytes:
        limit = f"{settings.max_archive_bytes >> 20:,} MiB"
        detail = f"No copy can be made of the upload: it has more than {limit} when unpacked."
        raise ProblemError(422, detail, limit="max_archive_bytes")
    if DataFolder(settings).free_bytes() < copies * total + settings.min_free_bytes:
        detail = "There is not enough disk space for a copy. Try again later."
        raise ProblemError(507, detail, limit="min_free_bytes")


check_examples()  # in the process that checks are forked from

"""What runs in a child: a check, or a repair and a check of what it has made, under limits.

What it finds is in the folder of its attempt when it ends: the report in every format, and then
how it has ended. It calls the library and not the command, which catches MemoryError itself.
"""

from __future__ import annotations

import errno
import json
import mmap
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from PIL import Image
from tfod.check.check import check
from tfod.check.configuration import Configuration, options_of
from tfod.check.dataset import File, LabelMapFile
from tfod.check.find import find_uploads
from tfod.check.findings.report import Report
from tfod.check.profiles import file as file  # before the fork
from tfod.check.references import frames as frames  # before the fork
from tfod.check.references.cvat_task import load_task
from tfod.check.reporters.html import load_template, render_html
from tfod.check.reporters.json import render_json
from tfod.check.reporters.junit import render_junit
from tfod.check.reporters.samples import choose_samples
from tfod.check.reporters.text import render_text
from tfod.check.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.shards.repair import Options as RepairOptions
from tfod.shards.repair import Outcome, repair
from tfod.tfrecord.storage.archive import ZipLimits, read_zip

from tfod_validator.folder import (
    FILES,
    PROGRESS,
    REPORTS,
    SCRATCH,
    DataFolder,
    Request,
    Result,
)
from tfod_validator.settings import Settings

_LEAST_ROOM = 64 << 20
"""Bytes below the limit of memory with which a check may begin."""
_TELL_EVERY = 0.5
_UNREADABLE = "TFR013"
_GONE = "The upload is no longer kept; upload it again to repair it."

# Once in the process that checks are forked from, not in each of them: it is most of a small check.
load_template()
Image.init()


class _FailedError(Exception):
    """The check cannot be done; the text says what to do."""

    def __init__(self, detail: str, status: int = 422, **more: str) -> None:
        super().__init__(detail)
        self.failure = {"status": status, "detail": detail, **more}


def run(settings: Settings, attempt: Path, request: Request, source: Path | None) -> None:
    """Do what was asked for, and write how it has ended into the folder of the attempt.

    Args:
        settings: of the service.
        attempt: is in the folder of the upload.
        request: what was asked for.
        source: the folder of the upload that is to be repaired, of a repair.
    """
    _begin(settings, is_repair=request.repair_of is not None)
    began, valid, records, failure, changes = time.time(), None, 0, None, None
    try:
        _require_room()
        os.chdir(attempt.parent / FILES)  # names in reports are those of the files, without a path
        if request.repair_of is not None:
            changes = _repair(source, attempt, request, settings)
        report = _check(attempt, request, settings)
        valid, records = report.valid, report.counts.records
    except _FailedError as error:
        failure = error.failure
    except MemoryError:
        most = f"{settings.max_check_bytes >> 20:,} MiB of memory"
        detail = f"The check needed more than the {most} allowed; check the upload in parts."
        failure = {"status": 422, "detail": detail, "limit": "max_check_bytes"}
    except TfodError as error:
        said = str(error).replace(f"{os.pardir}{os.sep}", "")
        failure = {"status": 422, "detail": f"The check could not run: {said}"}
    except Exception as error:
        is_gone = source is not None and not source.exists()  # it has expired meanwhile
        failure = _FailedError(_GONE, 410).failure if is_gone else _failure_of(error)
    ended = Result(valid, began, time.time(), records, changes, failure)
    with suppress(FileNotFoundError):  # it was deleted meanwhile
        DataFolder(settings).write_result(attempt, ended)


def _begin(settings: Settings, *, is_repair: bool) -> None:
    """Be a process of its own, which takes no more than it may, and ends with who began it."""
    os.setsid()  # Ctrl-C is for the service alone
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    longest = settings.max_body_bytes if is_repair else settings.max_report_bytes
    for limit, most in (
        (resource.RLIMIT_AS, settings.max_check_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, longest),
    ):
        _, utmost = resource.getrlimit(limit)
        most = most if utmost == resource.RLIM_INFINITY else min(most, utmost)
        resource.setrlimit(limit, (most, most))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _require_room() -> None:
    """Raise MemoryError where the limit leaves next to nothing.

    A check hashes its files in a thread, and one that begins without memory is waited for in vain
    (https://github.com/python/cpython/issues/140746).
    """
    try:
        mmap.mmap(-1, _LEAST_ROOM).close()
    except OSError:
        raise MemoryError from None


def _failure_of(error: Exception) -> dict[str, Any]:
    """What is said of an error that nobody expected."""
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EFBIG:
        detail = (
            "The report would be longer than the service allows: names of classes or files are "
            "very long, or very many; check fewer."
        )
        return {"status": 422, "detail": detail, "limit": "max_report_bytes"}
    if code in (errno.ENOSPC, errno.EDQUOT):
        return {"status": 507, "detail": "The service's disk is full; try again later."}
    # Where it was raised, and its type: its text may quote the upload.
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
    print(f"a check failed: {type(error).__name__}\n{''.join(frames)}", file=sys.stderr, flush=True)
    detail = "The service has made a mistake; its log has more. Upload again to try again."
    return {"status": 500, "detail": detail}


def _check(attempt: Path, request: Request, settings: Settings) -> Report:
    """Check the files of the working folder, and write the report."""
    paths = {one.role: os.path.join(os.pardir, one.path) for one in request.files}
    names = {one.role: one.name for one in request.files}
    asked = Configuration(
        receiver=request.receiver,
        profile=paths.get("profile") or request.profile,
        label_map=request.label_map,
    )
    options = options_of(
        asked,
        Configuration(),
        task=load_task(paths["cvat_labels"], None) if "cvat_labels" in paths else None,
        max_findings=settings.max_findings,
        max_record_bytes=settings.max_record_bytes,
        archive_limits=ZipLimits(
            settings.max_archive_entries, settings.max_archive_bytes, settings.max_archive_ratio
        ),
    )
    files = [File.at(one) for one in sorted(os.listdir())]
    found = find_uploads(files, options.archive_limits)
    if "label_map" in paths:
        found = found.with_label_map(LabelMapFile.at(paths["label_map"], names["label_map"]))
    report = check(found, options, _telling(attempt, settings))
    if _UNREADABLE in report.counts.by_code:
        raise _FailedError("The service cannot read the upload on its disk; upload again.", 500)
    samples = choose_samples(report, found.shards, options.profile, settings.max_images)
    texts = {
        "html": render_html(report, samples, on_page=True),
        "junit": render_junit(report),
        "text": render_text(report, color=False),
        "json": render_json(report),
    }
    for name, text in texts.items():
        (attempt / REPORTS[name]).write_bytes(text.encode("utf-8", "replace"))
    return report


def _telling(attempt: Path, settings: Settings) -> Callable[[int, int], None]:
    """Says in the attempt's folder what is read, and ends a check that reads too much."""
    done, records, told = 0, 0, time.monotonic()

    def tell(more_bytes: int, more_records: int) -> None:
        nonlocal done, records, told
        done, records = done + more_bytes, records + more_records
        if records > (most := settings.max_records):
            detail = f"The upload has more than the {most:,} records allowed; check it in parts."
            raise _FailedError(detail, limit="max_records")
        if time.monotonic() - told > _TELL_EVERY:
            told = time.monotonic()
            (attempt / PROGRESS).write_text(json.dumps([done, records]))

    return tell


def _repair(
    source: Path | None, attempt: Path, request: Request, settings: Settings
) -> dict[str, Any]:
    """Put a repaired copy of an upload into the working folder, as a zip; what was changed."""
    if source is None:
        raise _FailedError(_GONE, 410)
    files = sorted((source / FILES).iterdir())
    zips = [one for one in files if zipfile.is_zipfile(one)]
    what = zips[0] if len(zips) == 1 and len(files) <= 2 else source / FILES
    beside = [one for one in files if one not in zips] if what in zips else []
    label_map = next(iter([*beside, *(source / "label_map").glob("*")]), request.label_map)
    options = RepairOptions(
        receiver=request.receiver,
        label_map=str(label_map) if label_map else None,
        max_record_bytes=settings.max_record_bytes,
    )
    _require_disk(files, zips, settings)
    scratch = attempt / SCRATCH
    folder, made = scratch / "repaired", scratch / "repaired.zip"
    scratch.mkdir()
    try:
        outcome = repair(str(what), str(folder), options)
    except TfodError as error:
        place = str(source / FILES)
        said = str(error).removeprefix(f"{place}: ").replace(f"{place}{os.sep}", "")
        said = said.replace(place, "the upload")
        raise _FailedError(f"It cannot be repaired: {said}") from None
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(folder.rglob("*")):
            archive.write(one, one.relative_to(folder))
    made.replace(request.files[0].name)
    return _changes(outcome)


def _require_disk(files: list[Path], zips: list[Path], settings: Settings) -> None:
    """Refuse to repair what unpacks to more than there is room for: a copy, and the zip of it."""
    packed = [one for path in zips for one in read_zip(str(path)).readable.values()]
    total = sum(one.size for one in packed)
    total += sum(one.stat().st_size for one in files if one not in zips)
    if total > settings.max_archive_bytes:
        most = f"{settings.max_archive_bytes >> 20:,} MiB"
        detail = f"It cannot be repaired: it unpacks to more than the {most} allowed."
        raise _FailedError(detail, limit="max_archive_bytes")
    if DataFolder(settings).free_bytes() < 2 * total + settings.min_free_bytes:
        detail = "The service's disk has no room for a repaired copy; try again later."
        raise _FailedError(detail, 507, limit="min_free_bytes")


def _changes(outcome: Outcome) -> dict[str, Any]:
    titles = {code: all_rules()[code].title for code in sorted(outcome.by_code)}
    return {
        "records_changed": outcome.changed,
        "records_dropped": outcome.dropped,
        "changes": [
            {"code": code, "title": title, "count": outcome.by_code[code]}
            for code, title in titles.items()
        ],
    }

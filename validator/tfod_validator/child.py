"""What a process does for one check, under limits: the check, or before it a repair.

What it finds is in the folder of its attempt when it ends: the report in every format, and then
how it has ended. It calls the library and not the command, which catches MemoryError itself.
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

from tfod.checker.analysis.examine import Progress
from tfod.checker.check import Options, check
from tfod.checker.configuration import Configuration, make_options
from tfod.checker.finding import Severity
from tfod.checker.profiles import file as file  # before the fork
from tfod.checker.receivers import RECEIVERS
from tfod.checker.references import frames as frames  # before the fork
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

_TELL_EVERY = 0.5
_UNREADABLE = "TFR013"
_IDS = ("NAM010", "NAM011")
_NUMBERED = "The source id becomes a new number; the text is kept in tfod/attributes."
"""What is done about these rules for receivers that they stop, and for no others."""


def run(settings: Settings, attempt: Path, request: Request) -> None:
    """What the child does: a check, or a repair and a check of what it has made.

    Args:
        settings: of the service.
        attempt: is in the folder of the upload; how it has ended is written into it.
        request: what was asked for.
    """
    _begin(settings, is_repair=request.repair_of is not None)
    began, changes, upload = time.time(), None, attempt.parent / UPLOAD
    try:
        os.chdir(upload / "file")  # names in reports are those of the files, without a path
        if request.repair_of is not None:
            changes = _repair(attempt, request, settings)
        report = _check(attempt, request, settings)
        result = Result(
            report.valid,
            began,
            time.time(),
            records=report.counts.records,
            findings={one.value: count for one, count in report.counts.by_severity.items()},
            repairs=_repairs_of(report),
            repair=changes,
        )
    except Exception as error:
        problem = error if isinstance(error, ProblemError) else _problem_of(error, settings)
        result = Result(None, began, time.time(), repair=changes, failure=problem.document)
    with suppress(FileNotFoundError):  # it was deleted meanwhile
        DataFolder(settings).write_result(attempt, result)


def _begin(settings: Settings, *, is_repair: bool) -> None:
    """Be a process of its own, which takes no more than it may, and ends with who began it."""
    os.setsid()  # Ctrl-C is for the service alone
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


def _problem_of(error: Exception, settings: Settings) -> ProblemError:
    """What is said of an error."""
    code = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError):
        most = f"{settings.max_check_bytes >> 20:,} MiB of memory"
        detail = f"The check needed more than the {most} allowed; check the upload in parts."
        return ProblemError(422, detail, limit="max_check_bytes")
    if isinstance(error, TfodError):
        said = str(error).replace(f"{os.pardir}{os.sep}", "")
        return ProblemError(422, f"The check could not run: {said}")
    if code == errno.EFBIG:
        detail = (
            "The report would be longer than the service allows: names of classes or files are "
            "very long, or very many; check fewer."
        )
        return ProblemError(422, detail, limit="max_report_bytes")
    if code in (errno.ENOSPC, errno.EDQUOT):
        return ProblemError(507, "The service's disk is full; try again later.")
    # Where it was raised, and its type: its text may quote the upload.
    frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
    print(f"a check failed: {type(error).__name__}\n{''.join(frames)}", file=sys.stderr, flush=True)
    detail = "The service has made a mistake; its log has more. Upload again to try again."
    return ProblemError(500, detail)


def _check(attempt: Path, request: Request, settings: Settings) -> Report:
    """Check the files of the working folder, and write the report."""
    paths = {one.role: os.path.join(os.pardir, one.role, one.name) for one in request.files}
    asked = Configuration(
        receiver=request.receiver,
        profile=paths.get("profile") or request.profile,
        label_map=request.label_map,
    )
    options = make_options(
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
    found = resolve_uploads(files, options.archive_limits)
    if path := paths.get("label_map"):
        found = found.with_label_map(LabelMapFile.at(path, os.path.basename(path)))
    report, texts = _reports_on(found, options, settings, _telling(attempt, settings))
    if _UNREADABLE in report.counts.by_code:
        raise ProblemError(500, "The service cannot read the upload on its disk; upload again.")
    for name, text in texts.items():
        (attempt / REPORTS[name]).write_bytes(text.encode("utf-8", "replace"))
    return report


def _reports_on(
    found: ResolvedSources,
    options: Options,
    settings: Settings,
    progress: Progress = lambda *_: None,
) -> tuple[Report, dict[str, str]]:
    """Check what was found; the report, and its text in each format."""
    report = check(found, options, progress)
    samples = choose_samples(report, found.shards, options.profile, settings.max_images)
    return report, {
        "html": render_html(report, samples, on_page=True),
        "junit": render_junit(report),
        "text": render_text(report, color=False),
        "json": render_json(report),
    }


def _telling(attempt: Path, settings: Settings) -> Progress:
    """Says in the attempt's folder what is read, and ends a check that reads too much."""
    done, records, told = 0, 0, time.monotonic()

    def tell(more_bytes: int, more_records: int) -> None:
        nonlocal done, records, told
        done, records = done + more_bytes, records + more_records
        if records > (most := settings.max_records):
            detail = f"The upload has more than the {most:,} records allowed; check it in parts."
            raise ProblemError(422, detail, limit="max_records")
        if time.monotonic() - told > _TELL_EVERY:
            told = time.monotonic()
            (attempt / PROGRESS).write_text(json.dumps([done, records]))

    return tell


def _repairs_of(report: Report) -> dict[str, str]:
    """What of a report can be repaired, by rule; nothing where no record could be read."""
    if not report.counts.records:
        return {}
    stops = RECEIVERS[report.receiver].severities(None)
    done = {code: one.repair for code, one in all_rules().items() if one.repair}
    for code in _IDS:
        done[code] = _NUMBERED if stops.get(code) is Severity.ERROR else ""
    return {code: done[code] for code in report.counts.by_code if done.get(code)}


def _repair(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Put a repaired copy of an upload into the working folder, as a zip; what was changed."""
    place = os.path.join(os.pardir, ORIGINAL)
    files = [os.path.join(place, one) for one in sorted(os.listdir(place))]
    zips = [one for one in files if zipfile.is_zipfile(one)]
    what = zips[0] if len(zips) == 1 and len(files) <= 2 else place
    beside = [one for one in files if one not in zips] if what in zips else []
    given = map(str, Path(os.pardir, "label_map").glob("*"))
    options = RepairOptions(
        receiver=request.receiver,
        label_map=next(iter([*beside, *given]), request.label_map),
        max_record_bytes=settings.max_record_bytes,
    )
    _require_disk(files, zips, settings)
    with tempfile.TemporaryDirectory(dir=attempt) as scratch:
        folder, made = Path(scratch, "repaired"), Path(scratch, "repaired.zip")
        try:
            outcome = repair(what, str(folder), options)
        except TfodError as error:
            said = str(error).removeprefix(f"{place}: ").replace(f"{place}{os.sep}", "")
            said = said.replace(place, "the upload")
            raise ProblemError(422, f"It cannot be repaired: {said}") from None
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in sorted(folder.rglob("*")):
                archive.write(one, one.relative_to(folder))
        made.replace(request.files[0].name)
    changes = [
        {"code": code, "title": all_rules()[code].title, "count": count}
        for code, count in sorted(outcome.by_code.items())
    ]
    return {
        "records_changed": outcome.changed,
        "records_dropped": outcome.dropped,
        "changes": changes,
    }


def _require_disk(files: list[str], zips: list[str], settings: Settings) -> None:
    """Refuse to repair what unpacks to more than there is room for: a copy, and the zip of it."""
    total = sum(os.path.getsize(one) for one in files if one not in zips)
    total += sum(one.size for path in zips for one in read_zip(path).readable.values())
    if total > settings.max_archive_bytes:
        most = f"{settings.max_archive_bytes >> 20:,} MiB"
        detail = f"It cannot be repaired: it unpacks to more than the {most} allowed."
        raise ProblemError(422, detail, limit="max_archive_bytes")
    if DataFolder(settings).free_bytes() < 2 * total + settings.min_free_bytes:
        detail = "The service's disk has no room for a repaired copy; try again later."
        raise ProblemError(507, detail, limit="min_free_bytes")


# Once in the process that checks are forked from: what only a first check imports, compiles and
# keeps is three quarters of a small one.
for _example in EXAMPLES.values():
    _reports_on(resolve_uploads([File.at(str(_example), _example.name)]), Options(), Settings())

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
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.analysis.examine import Progress
from tfod.checker.check import Options, check
from tfod.checker.configuration import Configuration, make_options
from tfod.checker.finding import Severity, plural
from tfod.checker.profiles import file as file  # imported before the fork
from tfod.checker.references import frames as frames  # imported before the fork
from tfod.checker.references.cvat_task import load_task
from tfod.checker.report import Report
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.samples import choose_samples
from tfod.checker.reporters.text import render_text
from tfod.checker.rules.registry import all_rules
from tfod.detection.images.source_ids import LARGEST_FOR
from tfod.errors import TfodError
from tfod.formats.options import OddBoxes
from tfod.formats.options import Options as ConvertOptions
from tfod.formats.table import SHARDS, convert, recognize
from tfod.shards.repair import Options as RepairOptions
from tfod.shards.repair import repair
from tfod.sources.format_recognition import FORMATS
from tfod.sources.resolved import File, LabelMapFile, ResolvedSources
from tfod.sources.resolver import resolve_uploads
from tfod.tfrecord.storage.archive import ZipLimits, read_zip

from tfod_validator.answers import ProblemError
from tfod_validator.folder import ORIGINAL, PROGRESS, REPORTS, UPLOAD, DataFolder, Request, Result
from tfod_validator.landlock import restrict
from tfod_validator.offers import find_convertible, list_buttons, list_offers
from tfod_validator.settings import EXAMPLES, Settings

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
        report, offers, convertible = _check(attempt, request, settings)
        severities = report.counts.by_severity.items()
        result = Result(
            report.valid,
            started,
            time.time(),
            records=report.counts.records,
            findings={severity.value: count for severity, count in severities},
            offers=offers,
            convertible=convertible,
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


def _check(
    attempt: Path, request: Request, settings: Settings
) -> tuple[Report, list[dict[str, Any]], str]:
    """Check the files in the working folder, and write the report; return what it offers, too."""
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
        archive_limits=_zip_limits(settings),
    )
    files = [File.at(name) for name in sorted(os.listdir())]
    sources = resolve_uploads(files, options.archive_limits)
    if path := paths.get("label_map"):
        sources = sources.with_label_map(LabelMapFile.at(path, os.path.basename(path)))
    report = check(sources, options, _make_progress(attempt, settings))
    offers = list_offers(report, is_repaired=request.repair_of is not None)
    convertible = find_convertible(report)
    buttons = list_buttons(offers, convertible)
    if _UNREADABLE in report.counts.by_code:
        detail = "The service could not read the upload from its disk. Upload the files again."
        raise ProblemError(500, detail)
    for name, text in _render(report, sources, options, settings, buttons).items():
        (attempt / REPORTS[name]).write_bytes(text.encode("utf-8", "replace"))
    return report, offers, convertible


def _zip_limits(settings: Settings) -> ZipLimits:
    return ZipLimits(
        settings.max_archive_entries, settings.max_archive_bytes, settings.max_archive_ratio
    )


def _render(
    report: Report,
    sources: ResolvedSources,
    options: Options,
    settings: Settings,
    buttons: dict[str, list[str]],
) -> dict[str, str]:
    """Return the text of a report in each format."""
    samples = choose_samples(report, sources.shards, options.profile, settings.max_images)
    return {
        "html": render_html(report, samples, buttons),
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


def _repair(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Write a repaired copy of an upload to the working folder, as a zip; return the changes."""
    files, zips = _find_originals()
    # A single file next to a single zip is its label map.
    source = zips[0] if len(zips) == 1 and len(files) <= 2 else _ORIGINAL
    options = RepairOptions(
        receiver=request.receiver,
        label_map=_find_label_map(request, files, zips if source in zips else files),
        odd_boxes=OddBoxes(request.odd_boxes) if request.odd_boxes else None,
        max_record_bytes=settings.max_record_bytes,
    )
    _require_disk(files, zips, settings, copies=2)
    with _write_copy(attempt, request, "repaired") as folder:
        outcome = repair(source, folder, options)
        if outcome.is_useless:
            errors = plural(outcome.remaining.counts.by_severity[Severity.ERROR], "error")
            detail = f"Nothing in the upload can be repaired without your decision ({errors}). "
            raise ProblemError(422, f"{detail}Follow the advice in its report.")
    changes = [
        {"code": code, "title": all_rules()[code].title, "count": count}
        for code, count in sorted(outcome.by_code.items())
    ]
    counts = {"records_changed": outcome.changed, "records_dropped": outcome.dropped}
    return {**counts, "changes": changes}


def _convert(attempt: Path, request: Request, settings: Settings) -> dict[str, Any]:
    """Write an upload to the working folder, as a zip of shards; return what was converted."""
    files, zips = _find_originals()
    _require_disk(files, zips, settings, copies=3)
    options = ConvertOptions(
        label_map=_find_label_map(request, files, zips),
        odd_boxes=OddBoxes(request.odd_boxes or "refuse"),
        largest_source_id=LARGEST_FOR.get(request.receiver or ""),
    )
    with _write_copy(attempt, request, "converted") as folder:
        if len(zips) != 1 or len(files) > 2:
            raise TfodError("only a single zip can be converted")
        damage = read_zip(zips[0], _zip_limits(settings)).damage
        if damage is not None:
            raise TfodError(damage.cause)
        names = recognize(zips[0], None).names
        if names[0] == SHARDS:
            raise TfodError("the zip already contains shards")
        result = convert(zips[0], folder, options, names[0], SHARDS)
    return {
        "format": FORMATS[names[0]].title,
        "images": sum(result.images.values()),
        "objects": sum(result.objects.values()),
        "notes": [_restore_names(note) for note in result.notes],
    }


def _find_originals() -> tuple[list[str], list[str]]:
    """Return the files of the original upload, and the zips among them."""
    files = [os.path.join(_ORIGINAL, name) for name in sorted(os.listdir(_ORIGINAL))]
    return files, [file for file in files if zipfile.is_zipfile(file)]


def _find_label_map(request: Request, files: list[str], zips: list[str]) -> str | None:
    """Return the label map for a zip: the other file, that of its own field, or the named one."""
    others = [file for file in files if file not in zips]
    others += map(str, Path(os.pardir, "label_map").glob("*"))
    return next(iter(others), request.label_map)


@contextmanager
def _write_copy(attempt: Path, request: Request, verb: str) -> Iterator[str]:
    """Yield the path of a folder to write, and pack it into a zip in the working folder."""
    with tempfile.TemporaryDirectory(dir=attempt) as scratch:
        folder, archive = Path(scratch, verb), Path(scratch, f"{verb}.zip")
        try:
            yield str(folder)
        except TfodError as error:
            text = _restore_names(str(error)).replace("--odd-boxes ", "")
            raise ProblemError(422, f"The upload cannot be {verb}: {text}") from None
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as output:
            for path in sorted(folder.rglob("*")):
                output.write(path, path.relative_to(folder))
        archive.replace(request.files[0].name)


def _restore_names(text: str) -> str:
    """Replace paths of the original upload by the names of its files."""
    text = text.removeprefix(f"{_ORIGINAL}: ").replace(f"{_ORIGINAL}{os.sep}", "")
    return text.replace(_ORIGINAL, "the upload")


def _require_disk(files: list[str], zips: list[str], settings: Settings, copies: int) -> None:
    """Check that an unpacked upload is not too large, and that copies of it fit on the disk."""
    total = sum(os.path.getsize(file) for file in files if file not in zips)
    total += sum(entry.size for path in zips for entry in read_zip(path).readable.values())
    if total > settings.max_archive_bytes:
        limit = f"{settings.max_archive_bytes >> 20:,} MiB"
        detail = f"No copy can be made of the upload: it has more than {limit} when unpacked."
        raise ProblemError(422, detail, limit="max_archive_bytes")
    if DataFolder(settings).free_bytes() < copies * total + settings.min_free_bytes:
        detail = "There is not enough disk space for a copy. Try again later."
        raise ProblemError(507, detail, limit="min_free_bytes")


# Check the examples once in the process that checks are forked from. A fork then has all imports
# and caches, which take three quarters of the time of a small check.
for _example in EXAMPLES.values():
    _sources, _options = resolve_uploads([File.at(str(_example), _example.name)]), Options()
    _render(check(_sources, _options), _sources, _options, Settings(), {})

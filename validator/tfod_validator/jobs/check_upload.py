"""A check, from uploaded files to the documents of its report. Runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image
from tfod.check.check import Options, check
from tfod.check.configuration import Configuration, load_configuration, options_of
from tfod.check.dataset import File, Found
from tfod.check.find import find_uploads
from tfod.check.findings.report import Report
from tfod.check.profiles import file as file  # before the fork
from tfod.check.profiles.profile import READY, Profile
from tfod.check.records.images import read_most_decoded
from tfod.check.references import frames as frames  # before the fork
from tfod.check.references.cvat_task import load_task
from tfod.check.reporters.drawing import LARGE, draw
from tfod.check.reporters.html import load_template, render_html
from tfod.check.reporters.json import render_json
from tfod.check.reporters.junit import render_junit
from tfod.check.reporters.samples import choose_samples
from tfod.check.reporters.text import render_text
from tfod.detection.labels.label_map import packaged_label_maps
from tfod.errors import TfodError
from tfod.tfrecord.storage.archive import ZipLimits

from tfod_validator.jobs.request import (
    BODY,
    IMAGE,
    REPORTS,
    FilesAwayError,
    Request,
    Result,
    failed,
)
from tfod_validator.settings import Limits

Progress = Callable[[int, int], None]
"""Called with all bytes and records that were read so far."""
_UNREADABLE = "TFR013"

# Once in the process that checks are forked from, not in each of them: it is most of a small check.
load_template()
Image.init()


class _TooManyRecordsError(Exception):
    """The limit is reached."""


def run_check(folder: Path, request: Request, limits: Limits, progress: Progress) -> Result:
    """Check an upload. What cannot be checked is a result, too.

    Args:
        folder: where the files are.
        request: what they are, and how to check them.
        limits: of the service.
        progress: is called as the check goes on.

    Raises:
        FilesAwayError: the files are not there; that says nothing about the upload.
    """
    _require_files(folder, request)
    try:
        configuration = _configuration(folder, request)
        places = [
            File.at(str(folder / one.stored), one.name)
            for one in request.sources
            if not configuration.excludes(one.name)
        ]
        options = _options(folder, request, limits, configuration)
        found = find_uploads(places, options.archive_limits)
        report = check(found, options, _counting(progress, limits.max_records))
    except _TooManyRecordsError:
        most = limits.max_records
        detail = f"The upload has more than the {most:,} records allowed; check it in parts."
        return failed(422, detail, limit="max_records")
    except TfodError as error:
        _require_files(folder, request)
        return failed(422, f"The check could not run: {_with_names(str(error), folder, request)}")
    if _UNREADABLE in report.counts.by_code:
        raise FilesAwayError
    _require_files(folder, request)
    return _result(folder.name, report, found, options.profile, limits)


def _require_files(folder: Path, request: Request) -> None:
    """The files were written to the disk before the check was queued."""
    try:
        if all((folder / one.stored).stat().st_size == one.bytes for one in request.files):
            return
    except OSError:
        pass
    raise FilesAwayError


def _with_names(text: str, folder: Path, request: Request) -> str:
    """A text with the files' own names in place of their paths."""
    for one in reversed(request.files):  # 10 comes before 1
        text = text.replace(str(folder / one.stored), one.name)
    return text


def _configuration(folder: Path, request: Request) -> Configuration:
    for one in request.files:
        if one.role == "config":
            found = load_configuration(str(folder / one.stored), one.name)
            for key, known in (("profile", READY), ("label_map", packaged_label_maps())):
                if getattr(found, key) not in (None, *known):  # files are on another machine
                    expected = f"expected one of {', '.join(known)}, and no file"
                    raise TfodError(f"{one.name}: {key}: {expected}")
            return found
    return Configuration()


def _options(
    folder: Path, request: Request, limits: Limits, configuration: Configuration
) -> Options:
    paths = {one.role: str(folder / one.stored) for one in request.files if one.role != "file"}
    profile = paths.get("profile") or request.profile
    asked = Configuration(receiver=request.receiver, profile=profile, fail_on=request.fail_on)
    task = None
    if paths.keys() & {"cvat_labels", "cvat_xml"}:
        task = load_task(paths.get("cvat_labels"), paths.get("cvat_xml"))
        if task.without_frames is not None:
            task = replace(task, without_frames=_with_names(task.without_frames, folder, request))
    return options_of(
        asked,
        configuration,
        task=task,
        decode=read_most_decoded(request.decode),
        max_findings=limits.max_findings,
        max_record_bytes=limits.max_record_bytes,
        archive_limits=ZipLimits(
            limits.max_archive_entries, limits.max_archive_bytes, limits.max_archive_ratio
        ),
    )


def _counting(progress: Progress, most_records: int) -> Progress:
    done = [0, 0]

    def count(more_bytes: int, more_records: int) -> None:
        done[0] += more_bytes
        done[1] += more_records
        if done[1] > most_records:
            raise _TooManyRecordsError
        progress(*done)

    return count


def _result(
    key: str, report: Report, found: Found, profile: Profile | None, limits: Limits
) -> Result:
    """The report in every format, and its images."""
    as_json = render_json(report).encode("utf-8", "replace")
    most = limits.max_report_bytes
    if len(as_json) > most:  # of gigabytes of class names it would have gigabytes
        detail = (
            f"The report would be longer than the {most:,} bytes allowed: names of classes or "
            "files are very long, or very many; check fewer."
        )
        return failed(422, detail, limit="max_report_bytes")
    samples = choose_samples(report, found.shards, profile, limits.max_images)
    # Seen from /reports/KEY, wherever a proxy may have put the service.
    links = [f"../api/v1/validations/{key}/images/{number}" for number in range(len(samples))]
    texts = {
        REPORTS["html"]: render_html(report, samples, on_page=True),
        REPORTS["junit"]: render_junit(report),
        REPORTS["text"]: render_text(report, color=False),
        BODY: render_html(report, samples, links=links, is_body=True, on_page=True),
    }
    documents = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    documents[REPORTS["json"]] = as_json
    for number, sample in enumerate(samples):
        documents[IMAGE.format(number)] = draw(sample, tallest=None, longest=LARGE).encode()
    return Result(
        documents=documents,
        valid=report.valid,
        records=report.counts.records,
        images=[
            {"codes": list(one.codes)}
            | {name: getattr(one, name) for name in ("shard", "record", "item")}
            for one in samples
        ],
    )

"""The reason why a zip cannot be imported, in one line.

It is all that CVAT shows to users of a failed import. ``tfod cvat`` prints it below the report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfod.checker.advice import ask_author, fill_in
from tfod.checker.check import Options, check
from tfod.checker.finding import Finding, Severity
from tfod.checker.receivers import CVAT
from tfod.checker.references.cvat_task import Task
from tfod.checker.references.frames import to_image_id
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.wording import format_location
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.sources.resolved import ResolvedSources

_MAX_SHOWN_NAMES = 5
_MAX_SHOWN_LABELS = 20
_MAX_SHOWN_CAUSES = 3
MAX_CAUSE = 85
"""Characters of a message that CVAT's page "Requests" shows, less "Nothing was changed"."""
_MAX_NAME = 30
_BARE_ID = re.compile(r"#-?\d+")
_DAMAGE = ("TFR", "ZIP", "EXA001")
"""Rules about records that cannot be read."""


class RefusedError(TfodError):
    """The upload cannot be imported; nothing was changed.

    CVAT's page "Requests" shows the first 160 characters of an error, 51 of which CVAT itself adds
    (``cvat.apps.dataset_manager.bindings.CvatImportError: ``), so the cause has to be short.

    Args:
        cause: the defect, in a few words.
        details: further sentences: location, number, fix.
    """

    def __init__(self, cause: str, *details: str) -> None:
        sentences = [cause, "Nothing was changed", *filter(None, details)]
        text = ". ".join(dict.fromkeys(sentence.strip().rstrip(".") for sentence in sentences))
        super().__init__(visible(f"{text}."))


def check_upload(
    sources: ResolvedSources, task: Task, label_map: str | None = None, max_findings: int = 1000
) -> Report:
    """Check a zip against the target of its import."""
    options = Options(
        receiver=CVAT,
        label_map=label_map,
        task=task,
        max_findings=max_findings,
        decode=0,  # CVAT decodes the images of new tasks, and needs no others
    )
    return check(sources, options)


def list_replacements(report: Report) -> list[str]:
    """Return the messages about annotations that the import will replace with fewer or others."""
    return [finding.message for finding in report.findings if finding.code == "TSK011"]


def build_refusal(report: Report, task: Task, noun: str, shown: str) -> RefusedError:
    """Create the error for a zip with defects: the most important causes, and how many remain.

    The target of the import is a ``noun``: ``task``, ``job`` or ``project``. The error omits
    ``shown``, the name of the zip in the report.
    """
    by_code: dict[str, list[Finding]] = {}
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    codes_of_errors = {finding.code for finding in errors}
    for finding in errors:
        if finding.cause not in codes_of_errors:
            finding = finding._replace(fix=fill_in(ask_author(finding.template), [finding]))
            by_code.setdefault(finding.code, []).append(finding)
    if any(code.startswith(_DAMAGE) for code in by_code):
        by_code.pop("TSK009", None)  # the frames have records, but these cannot be read
    # Damage causes many other findings. After it come those that annotators know: labels and names.
    first = (*_DAMAGE, "TSK", *_SENTENCES)
    codes = sorted(
        by_code, key=lambda code: (not code.startswith(_DAMAGE), not code.startswith(first), code)
    )
    sentences = [
        _SENTENCES.get(code, _describe_other_rule)(
            _Cause(by_code[code], report.counts.by_code[code], report, task, noun, shown)
        )
        for code in codes[:_MAX_SHOWN_CAUSES]
    ]
    (cause, *details), *further = sentences
    for next_cause, *next_details in further:
        details += [f"Also: {next_cause}", *next_details]
    hidden = len(codes) - _MAX_SHOWN_CAUSES
    if hidden > 0:
        kinds = "1 more kind of defect" if hidden == 1 else f"{hidden} more kinds of defects"
        details.append(f"And {kinds}: tfod check --for cvat lists all")
    return RefusedError(*(text.replace(f"{shown}:", "") for text in (cause, *details)))


@dataclass(frozen=True)
class _Cause:
    """The listed findings of one rule, their total number, and the target of the import."""

    findings: Sequence[Finding]
    count: int
    report: Report
    task: Task
    noun: str
    shown: str

    @property
    def shard(self) -> str:
        """The name of the first finding's shard, or '' if it concerns the whole zip."""
        name = self.findings[0].shard
        return "" if name == self.shown else os.path.basename(name.replace(f"{self.shown}:", ""))


_Sentences = Callable[[_Cause], list[str]]
"""Returns the cause in a few words, then further sentences."""


def _describe_unknown_labels(cause: _Cause) -> list[str]:
    findings, count = cause.findings, cause.count
    ids = [str(finding.value) for finding in findings if _BARE_ID.fullmatch(str(finding.value))]
    maps = [path for dataset in cause.report.datasets for path in dataset.label_maps]
    if ids and maps:
        listed = _join_names((text.lstrip("#") for text in ids), len(ids))
        fix = "Add the class to it, or name the classes in the shard"
        return [f"{os.path.basename(maps[0])} has no id {listed}", fix]
    if ids:  # the zip may contain a label map in another folder
        return [
            f"objects have only ids ({_join_names(ids, len(ids))}) and no label map contains them",
            "Put label_map.pbtxt next to the shard",
        ]
    labels = sorted(cause.task.labels or ())
    listed = f"Labels of the {cause.noun}: {_join_names(labels, len(labels), _MAX_SHOWN_LABELS)}"
    if count == 1:
        return [f"class {_shorten(findings[0].value)} is not among the labels", listed]
    return [
        f"{count} classes are not among the labels: {_shorten(findings[0].value)}, …",
        f"Without a label: {_join_names((repr(finding.value) for finding in findings), count)}",
        listed,
    ]


def _describe_unmatched(cause: _Cause) -> list[str]:
    findings, count = cause.findings, cause.count
    records = cause.report.counts.records
    names = [finding.item or "without a name" for finding in findings]
    if not any(finding.item for finding in findings):
        subject = "the record" if records == 1 else f"{count} of {records} records"
        return [
            f"{subject} {'has' if count == 1 else 'have'} no file name (image/filename)",
            "Write the name of the frame to image/filename",
        ]
    images = "the image" if records == 1 else f"{count} of {records} images"
    verb = "matches" if count == 1 else "match"
    sentence = f"{images} {verb} no frame: {_shorten(names[0], quoted=False)}"
    sentences = [sentence]
    if count > 1:
        sentences = [f"{sentence}, …", f"Without a frame: {_join_names(names, count)}"]
    frames = cause.task.frames or ()
    ending = f"/{to_image_id(names[0])}"
    alike = [frame.name for frame in frames if os.path.splitext(frame.name)[0].endswith(ending)]
    if len(alike) > 1:
        name, paths = os.path.basename(names[0]), _join_names(alike, len(alike))
        sentences.append(f"{name} exists in several folders ({paths}); add the folder to the name")
    return sentences + ([f"Frames are named like {frames[0].name}"] if frames else [])


def _describe_other_records(cause: _Cause) -> list[str]:
    finding = cause.findings[0]
    return [
        f"{_shorten(cause.shard, quoted=False)} has no image/filename and no boxes",
        f"{finding.message[:1].upper()}{finding.message[1:]}; export an object detection dataset",
    ]


def _describe_losses(cause: _Cause) -> list[str]:
    loss, _, names = cause.findings[0].message.partition(": ")
    return [loss, names, cause.findings[0].fix]


_SENTENCES: dict[str, _Sentences] = {
    "EXA010": _describe_other_records,
    "TSK001": _describe_unknown_labels,
    "TSK002": _describe_unmatched,
    "TSK008": _describe_losses,
    "TSK009": _describe_losses,
}


def _describe_other_rule(cause: _Cause) -> list[str]:
    finding, count = cause.findings[0], cause.count
    shard = _shorten(cause.shard, quoted=False)
    shard += "" if finding.record is None else f", record {finding.record}"
    if finding.message.startswith("is "):  # the shard is the subject of the message
        return [f"{shard} {finding.message}", finding.fix]
    location = f" ({shard})" if shard else ""
    more = f" [and {count - 1} more]" if count > 1 else ""
    if len(finding.message + location) <= MAX_CAUSE and finding.code != "ZIP012":
        full = f"{format_location(finding)}{more}" if finding.record is not None or more else ""
        return [finding.message + location, full, finding.fix]
    title = all_rules()[finding.code].title
    return [title + location, f"{format_location(finding)}: {finding.message}{more}", finding.fix]


def _shorten(name: object, *, quoted: bool = True) -> str:
    text = str(name)
    text = text if len(text) <= _MAX_NAME else f"…{text[1 - _MAX_NAME :]}"  # endings differ most
    return repr(text) if quoted else text


def _join_names(names: Iterable[str], count: int, max_names: int = _MAX_SHOWN_NAMES) -> str:
    shown = [name for name, _ in zip(dict.fromkeys(names), range(max_names), strict=False)]
    return ", ".join(shown) + (", …" if count > len(shown) else "")

"""The check before anything is touched, and its verdict in one line that a user can read.

CVAT shows the message of an import that failed as it is, and nothing else: no log, no report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from zipfile import is_zipfile

from tfod.check.check import Options, check
from tfod.check.dataset import File
from tfod.check.find import find_uploads
from tfod.check.findings.finding import Finding, Severity
from tfod.check.findings.report import Report
from tfod.check.receivers import CVAT
from tfod.check.references.frames import root_of
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.wording import place_of
from tfod.check.rules.registry import all_rules
from tfod.cvat.server.instance import Instance
from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import is_zip

_UPLOAD = "upload.zip"
_FINDINGS_KEPT = 300
_NAMES_SHOWN = 5
_LABELS_SHOWN = 20
_CAUSES_SHOWN = 3
LONGEST_CAUSE = 85
"""In characters: what CVAT's page "Requests" shows of a message, less "Nothing was changed"."""
_LONGEST_NAME = 30
_BARE_ID = re.compile(r"#-?\d+")


class RefusedError(TfodError):
    """The upload cannot be imported; nothing was changed.

    CVAT's page "Requests" shows the first 160 characters of an error, of which 51 are CVAT's own
    (``cvat.apps.dataset_manager.bindings.CvatImportError: ``): the cause has to be short.

    Args:
        cause: what is wrong, in the fewest words.
        details: further sentences: where, how often, what to do.
    """

    def __init__(self, cause: str, *details: str) -> None:
        sentences = [cause, "Nothing was changed", *filter(None, details)]
        text = ". ".join(dict.fromkeys(one.strip().rstrip(".") for one in sentences))
        super().__init__(visible(f"{text}."))


def require_sound(path: str, instance: Instance) -> int:
    """Check an uploaded zip against what it is to be imported into; return how many records it has.

    Raises:
        RefusedError: in one line, what is wrong, where, and what to do.
    """
    file = File.at(path, _UPLOAD)
    # By its bytes, or by its end: a program may be in front, as in one that unpacks itself.
    if not is_zip(path) and not is_zipfile(path):
        raise RefusedError(
            "the file is not a zip",
            "Zip the shards (.tfrecord, .record) with their label_map.pbtxt",
        )
    options = Options(
        receiver=CVAT,
        task=instance.task,
        max_findings=_FINDINGS_KEPT,
        hash_sources=False,
        decode=0,  # CVAT decodes what becomes frames, and needs no other images
    )
    try:
        report = check(find_uploads([file]), options)
    except TfodError as error:  # such as of masks without boxes
        raise RefusedError(str(error).replace(f"{_UPLOAD}:", "")) from None
    if not report.valid:
        raise refusal(report, instance)
    return report.counts.records


def refusal(report: Report, instance: Instance) -> RefusedError:
    """Why a zip is refused: the gravest causes, and how many more there are."""
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            by_code.setdefault(finding.code, []).append(finding)
    # What the user will know first: labels and names; then damage in the order of the zip.
    order = sorted(by_code, key=lambda code: (code not in _SENTENCES, code))
    sentences = [
        _SENTENCES.get(code, _plain_sentences)(
            by_code[code], report.counts.by_code[code], report, instance
        )
        for code in order[:_CAUSES_SHOWN]
    ]
    (cause, *details), *others = sentences
    for other, *more in others:
        details += [f"Also: {other}", *more]
    rest = len(order) - _CAUSES_SHOWN
    if rest > 0:
        kinds = "1 more kind of defect" if rest == 1 else f"{rest} more kinds of defects"
        details.append(f"And {kinds}: tfod check --for cvat lists all")
    return RefusedError(*(one.replace(f"{_UPLOAD}:", "") for one in (cause, *details)))


_Sentences = Callable[[Sequence[Finding], int, Report, Instance], list[str]]
"""The cause in a few words, then further sentences."""


def _unknown_labels(
    findings: Sequence[Finding], count: int, _: Report, instance: Instance
) -> list[str]:
    bare = [str(one.value) for one in findings if _BARE_ID.fullmatch(str(one.value))]
    if bare:  # the zip may well have one, two folders away
        return [
            f"objects have only ids ({_names(bare, len(bare))}) and no label map explains them",
            "Put label_map.pbtxt beside the shard",
        ]
    labels = sorted(instance.task.labels or ())
    listed = f"Labels of the {instance.noun}: {_names(labels, len(labels), _LABELS_SHOWN)}"
    if count == 1:
        return [f"class {_short(findings[0].value)} is not among the labels", listed]
    return [
        f"{count} classes are not among the labels: {_short(findings[0].value)}, …",
        f"Without a label: {_names((repr(one.value) for one in findings), count)}",
        listed,
    ]


def _unmatched(
    findings: Sequence[Finding], count: int, report: Report, instance: Instance
) -> list[str]:
    verb = "matches" if count == 1 else "match"
    records = report.counts.records
    if not any(one.item for one in findings):
        own = "the record" if records == 1 else f"{count} of {records} records"
        return [
            f"{own} {'has' if count == 1 else 'have'} no file name (image/filename)",
            f"{findings[0].shard}: export them as an object detection dataset",
        ]
    images = "the image" if records == 1 else f"{count} of {records} images"
    frames = instance.task.frames or ()
    name = findings[0].item or "without a name"
    ending = f"/{root_of(name)}"
    alike = [one.name for one in frames if os.path.splitext(one.name)[0].endswith(ending)]
    return [
        f"{images} {verb} no frame: {_short(name, quoted=False)}" + (", …" if count > 1 else ""),
        f"Without a frame: {_names((one.item or 'without a name' for one in findings), count)}"
        if count > 1
        else "",
        f"{os.path.basename(name)} is in several folders ({_names(alike, len(alike))}): name one"
        if len(alike) > 1
        else "",
        f"Frames are named like {frames[0].name}" if frames else "",
    ]


def _numbered(findings: Sequence[Finding], count: int, report: Report, _: Instance) -> list[str]:
    first = findings[0].item or place_of(findings[0])
    return [
        f"{count} of {report.counts.records} images are named by a number: "
        + _short(first, quoted=False),
        "No frame has that name, and CVAT would take the number for a frame's",
        f"All of them: {_names((one.item or place_of(one) for one in findings), count)}"
        if count > 1
        else "",
    ]


def _other_records(findings: Sequence[Finding], _: int, __: Report, ___: Instance) -> list[str]:
    first = findings[0]
    shard = os.path.basename(first.shard.replace(f"{_UPLOAD}:", ""))
    return [
        f"{_short(shard, quoted=False)} has no image/filename and no boxes",
        f"{first.message[:1].upper()}{first.message[1:]}; export an object detection dataset",
    ]


_SENTENCES: dict[str, _Sentences] = {
    "EXA010": _other_records,
    "TSK001": _unknown_labels,
    "TSK002": _unmatched,
    "TSK003": _numbered,
}


def _plain_sentences(findings: Sequence[Finding], count: int, _: Report, __: Instance) -> list[str]:
    first = findings[0]
    shard = os.path.basename(first.shard.replace(f"{_UPLOAD}:", ""))
    place = _short(shard, quoted=False) if shard != _UPLOAD else ""
    place += "" if first.record is None else f", record {first.record}"
    where = f" ({place})" if place else ""
    more = f" [and {count - 1} more]" if count > 1 else ""
    if len(first.message + where) <= LONGEST_CAUSE:
        exactly = f"{place_of(first)}{more}" if first.record is not None or more else ""
        return [first.message + where, exactly, first.fix]
    title = all_rules()[first.code].title
    return [title + where, f"{place_of(first)}: {first.message}{more}", first.fix]


def _short(name: object, *, quoted: bool = True) -> str:
    """A name of at most so many letters, its end kept."""
    text = str(name)
    text = text if len(text) <= _LONGEST_NAME else f"…{text[1 - _LONGEST_NAME :]}"
    return repr(text) if quoted else text


def _names(names: Iterable[str], count: int, most: int = _NAMES_SHOWN) -> str:
    shown = [name for name, _ in zip(dict.fromkeys(names), range(most), strict=False)]
    return ", ".join(shown) + (", …" if count > len(shown) else "")

"""The check before anything is touched, and its verdict in one line that a user can read.

CVAT shows the message of an import that failed as it is, and nothing else: no log, no report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from tfod_validator.check import Options, check
from tfod_validator.finding import Finding, Severity
from tfod_validator.receivers import CVAT
from tfod_validator.render.visible import visible
from tfod_validator.report import Report
from tfod_validator.sources import Location, inventory_of, is_archive

from tfod.cvat.instance import Instance
from tfod.errors import TfodError

_UPLOAD = "the zip"
_FINDINGS_KEPT = 300
_NAMES_SHOWN = 5
_LABELS_SHOWN = 20
_CAUSES_SHOWN = 3
_BARE_ID = re.compile(r"#-?\d+")


class RefusedError(TfodError):
    """The upload cannot be imported; nothing was changed."""


def require_sound(path: str, instance: Instance) -> int:
    """Check an uploaded zip against what it is to be imported into; return how many records it has.

    Raises:
        RefusedError: in one line, what is wrong, where, and what to do.
    """
    location = Location(_UPLOAD, path)
    if not is_archive(location):
        raise RefusedError(
            "the file is no zip; zip the shards (.tfrecord, .record) with their label_map.pbtxt"
        )
    options = Options(
        receiver=CVAT,
        task=instance.task,
        max_findings=_FINDINGS_KEPT,
        hash_sources=False,
    )
    report = check(inventory_of([location]), options)
    if not report.valid:
        raise RefusedError(refusal(report, instance))
    return report.counts.records


def refusal(report: Report, instance: Instance) -> str:
    """Why a zip is refused, in one line: the gravest causes, and how many more there are."""
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            by_code.setdefault(finding.code, []).append(finding)
    # What the user will know first: labels and names; then damage in the order of the zip.
    order = sorted(by_code, key=lambda code: (code not in _SENTENCES, code))
    causes = []
    for code in order[:_CAUSES_SHOWN]:
        sentence = _SENTENCES.get(code, _plain_sentence)
        causes.append(sentence(by_code[code], report.counts.by_code[code], report, instance))
    rest = len(order) - _CAUSES_SHOWN
    if rest > 0:
        kinds = "1 more kind of defect" if rest == 1 else f"{rest} more kinds of defects"
        causes.append(f"and {kinds} (tfod check lists all)")
    return visible("; ".join(causes).replace(f"{_UPLOAD}:", ""))


_Sentence = Callable[[Sequence[Finding], int, Report, Instance], str]


def _unknown_labels(findings: Sequence[Finding], count: int, _: Report, instance: Instance) -> str:
    labels = sorted(instance.task.labels or ())
    bare = [str(one.value) for one in findings if _BARE_ID.fullmatch(str(one.value))]
    if bare:  # the zip may well have one, two folders away
        return (
            f"objects have only ids ({_names(bare, len(bare))}) and no label map explains them; "
            "put label_map.pbtxt beside the shard"
        )
    names = _names((repr(one.value) for one in findings), count)
    verb = "class {} is" if count == 1 else "classes {} are"
    listed = _names(labels, len(labels), _LABELS_SHOWN)
    return f"{verb.format(names)} not among the {instance.noun}'s labels: {listed}"


def _unmatched(findings: Sequence[Finding], count: int, report: Report, instance: Instance) -> str:
    if not any(one.item for one in findings):
        return (
            f"{findings[0].shard}: {count} of {report.counts.records} records have no file name "
            "(image/filename); export them as an object detection dataset"
        )
    names = _names((one.item or "without a name" for one in findings), count)
    verb = "matches" if count == 1 else "match"
    pictures = f"{count} of {report.counts.records} pictures"
    frames = instance.task.frames or ()
    example = f"; frames are named like {frames[0].name}" if frames else ""
    if instance.noun == "job":
        example += ", and a job takes its own frames alone"
    return f"{pictures} {verb} no frame: {names}{example}"


def _numbered(findings: Sequence[Finding], count: int, report: Report, _: Instance) -> str:
    names = _names((one.item or one.where for one in findings), count)
    return (
        f"{count} of {report.counts.records} pictures have no frame's name, only a number that "
        f"CVAT would take for one: {names}"
    )


_SENTENCES: dict[str, _Sentence] = {
    "TSK001": _unknown_labels,
    "TSK002": _unmatched,
    "TSK003": _numbered,
}


def _plain_sentence(findings: Sequence[Finding], count: int, _: Report, __: Instance) -> str:
    first = findings[0]
    item = f" ({first.item})" if first.item and first.item not in first.where else ""
    more = f" [and {count - 1} more]" if count > 1 else ""
    remedy = first.remedy.rstrip(".")
    return f"{first.where}{item}: {first.message}{more}: {remedy[:1].lower()}{remedy[1:]}"


def _names(names: Iterable[str], count: int, most: int = _NAMES_SHOWN) -> str:
    shown = [name for name, _ in zip(dict.fromkeys(names), range(most), strict=False)]
    return ", ".join(shown) + (", …" if count > len(shown) else "")

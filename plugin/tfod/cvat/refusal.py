"""The verdict of the check before anything is touched, in one line that a user can read.

CVAT shows the message of an import that failed as it is, and nothing else: no log, no report. The
bridge says the same below the report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tfod.checker.check import Options, check
from tfod.checker.finding import Finding, Severity
from tfod.checker.receivers import CVAT
from tfod.checker.references.cvat_task import Task
from tfod.checker.references.frames import root_of
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.reporters.wording import place_of
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.sources.resolved import ResolvedSources

_NAMES_SHOWN = 5
_LABELS_SHOWN = 20
_CAUSES_SHOWN = 3
LONGEST_CAUSE = 85
"""In characters: what CVAT's page "Requests" shows of a message, less "Nothing was changed"."""
_LONGEST_NAME = 30
_BARE_ID = re.compile(r"#-?\d+")
_DAMAGE = ("TFR", "ZIP", "EXA001")
"""Rules of records that cannot be read."""


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


def check_upload(
    found: ResolvedSources, task: Task, label_map: str | None = None, max_findings: int = 1000
) -> Report:
    """Check a zip against what it is to be imported into, for what matters to an import."""
    options = Options(
        receiver=CVAT,
        label_map=label_map,
        task=task,
        max_findings=max_findings,
        decode=0,  # CVAT decodes what becomes frames, and needs no other images
    )
    return check(found, options)


def replaced(report: Report) -> list[str]:
    """Return what an import that is allowed replaces with fewer or other annotations."""
    return [one.message for one in report.findings if one.code == "TSK011"]


def refusal(report: Report, task: Task, noun: str, shown: str) -> RefusedError:
    """Why a zip is refused: the gravest causes, and how many more there are.

    Args:
        report: of the zip.
        task: what it was checked against.
        noun: what that is: ``task``, ``job`` or ``project``.
        shown: the name of the zip in the report, of no use to the user.
    """
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            by_code.setdefault(finding.code, []).append(finding)
    if any(code.startswith(_DAMAGE) for code in by_code):
        by_code.pop("TSK009", None)  # the frames have records, which cannot be read
    # Damage is the cause of much else; after it what the user will know: labels and names.
    first = (*_DAMAGE, "TSK", *_SENTENCES)
    order = sorted(
        by_code, key=lambda code: (not code.startswith(_DAMAGE), not code.startswith(first), code)
    )
    sentences = [
        _SENTENCES.get(code, _plain_sentences)(
            _Cause(by_code[code], report.counts.by_code[code], report, task, noun, shown)
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
    return RefusedError(*(one.replace(f"{shown}:", "") for one in (cause, *details)))


@dataclass(frozen=True)
class _Cause:
    """The findings of one rule that are listed, how many there are, and what was checked."""

    findings: Sequence[Finding]
    count: int
    report: Report
    task: Task
    noun: str
    shown: str

    @property
    def shard(self) -> str:
        """The name of the first finding's shard; '' where it is of the whole zip."""
        name = self.findings[0].shard
        return "" if name == self.shown else os.path.basename(name.replace(f"{self.shown}:", ""))


_Sentences = Callable[[_Cause], list[str]]
"""The cause in a few words, then further sentences."""


def _unknown_labels(of: _Cause) -> list[str]:
    findings, count = of.findings, of.count
    bare = [str(one.value) for one in findings if _BARE_ID.fullmatch(str(one.value))]
    maps = [name for one in of.report.datasets for name in one.label_maps]
    if bare and maps:
        ids = _names((one.lstrip("#") for one in bare), len(bare))
        name = os.path.basename(maps[0])
        return [f"{name} has no id {ids}", "Add the class to it, or name the classes in the shard"]
    if bare:  # the zip may well have one, two folders away
        return [
            f"objects have only ids ({_names(bare, len(bare))}) and no label map explains them",
            "Put label_map.pbtxt beside the shard",
        ]
    labels = sorted(of.task.labels or ())
    listed = f"Labels of the {of.noun}: {_names(labels, len(labels), _LABELS_SHOWN)}"
    if count == 1:
        return [f"class {_short(findings[0].value)} is not among the labels", listed]
    return [
        f"{count} classes are not among the labels: {_short(findings[0].value)}, …",
        f"Without a label: {_names((repr(one.value) for one in findings), count)}",
        listed,
    ]


def _unmatched(of: _Cause) -> list[str]:
    findings, count = of.findings, of.count
    verb = "matches" if count == 1 else "match"
    records = of.report.counts.records
    if not any(one.item for one in findings):
        own = "the record" if records == 1 else f"{count} of {records} records"
        return [
            f"{own} {'has' if count == 1 else 'have'} no file name (image/filename)",
            "Write image/filename: the name of the frame",
        ]
    images = "the image" if records == 1 else f"{count} of {records} images"
    frames = of.task.frames or ()
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


def _other_records(of: _Cause) -> list[str]:
    first = of.findings[0]
    return [
        f"{_short(of.shard, quoted=False)} has no image/filename and no boxes",
        f"{first.message[:1].upper()}{first.message[1:]}; export an object detection dataset",
    ]


def _losses(of: _Cause) -> list[str]:
    """What is lost, then which."""
    cause, _, which = of.findings[0].message.partition(": ")
    return [cause, which, of.findings[0].fix]


_SENTENCES: dict[str, _Sentences] = {
    "EXA010": _other_records,
    "TSK001": _unknown_labels,
    "TSK002": _unmatched,
    "TSK008": _losses,
    "TSK009": _losses,
}


def _plain_sentences(of: _Cause) -> list[str]:
    first, count = of.findings[0], of.count
    place = _short(of.shard, quoted=False)
    place += "" if first.record is None else f", record {first.record}"
    if first.message.startswith("is "):  # the shard is what it speaks of
        return [f"{place} {first.message}", first.fix]
    where = f" ({place})" if place else ""
    more = f" [and {count - 1} more]" if count > 1 else ""
    if len(first.message + where) <= LONGEST_CAUSE and first.code != "ZIP012":
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

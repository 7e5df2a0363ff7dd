"""Receivers: the programs that read the shards, and their errors.

A profile describes a layout. A receiver knows which defects stop the program or make it read wrong
data. All commands, importers and the service use these receivers, so that their verdicts agree.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tfod.checker.finding import Findings, Severity
from tfod.checker.profiles.policy import resolve_levels
from tfod.checker.profiles.profile import READY, Profile, Severities, severities
from tfod.checker.rules.registry import all_rules

if TYPE_CHECKING:
    from tfod.checker.references.cvat_task import Task


class Receiver(NamedTuple):
    """A program that reads shards.

    Attributes:
        name: value of ``--for`` and of the service's field ``for``.
        title: name in texts: a shard is valid "for ...".
        rule_severities: severities of rules that differ from the defaults.
        profile: name of the profile that the receiver reads; None for the best match.
        task_severities: function that returns further severities for a CVAT task, or None.
    """

    name: str
    title: str
    rule_severities: Severities
    profile: str | None = None
    task_severities: Callable[[Task | None], Severities] | None = None

    def severities(self, task: Task | None) -> Severities:
        """Return all severities for a CVAT task, None if the task is unknown."""
        if self.task_severities is None:
            return self.rule_severities
        return {**self.rule_severities, **self.task_severities(task)}


# Problems of other receivers: here, a source id can be any text, and a class needs no id.
_STOPS_OTHERS = severities(off="NAM010 NAM011 LAB020 BOX019")


def _stopped_by(names: str) -> dict[str, Severity | None]:
    """Return error for these rules, cases and families, and at most a warning for all others."""
    stops = frozenset(names.split())
    levels: dict[str, Severity | None] = {}
    for rule in all_rules().values():
        for case, severity in {"": rule.severity, **rule.cases}.items():
            name = rule.name(case)
            if name in stops or (severity is Severity.ERROR and rule.family in stops):
                levels[name] = Severity.ERROR
            elif severity is Severity.ERROR:
                levels[name] = Severity.WARNING
    return levels


# The records that the import of tfod.datumaro rejects. The import clips boxes at the edge of the
# image, does not change images, and makes a class of a text or id without a label map. The task and
# the configuration are only compared if they are given.
_DATUMARO = _STOPS_OTHERS | _stopped_by(
    "TFR TSK CFG EXA001 EXA002 EXA003:nothing EXA004 EXA005 EXA010 EXA013 BOX001 BOX002 BOX005 "
    "BOX006 BOX014 BOX015 BOX016 IMG015 IMG015:read LAB002 LAB019 SET006 SET006:part "
    "ZIP001 ZIP002 ZIP004 ZIP005 ZIP007 ZIP010 ZIP012 ZIP013"
)

# CVAT uses the class text, clips boxes at the edge of the image, and looks for a feature only when
# it needs it. The task has the images.
_CVAT = _STOPS_OTHERS | severities(
    error="LAB002 LAB014 LAB019 BOX017 BOX020 IMG012 IMG015",
    warning="LAB EXA003 BOX003 BOX012 BOX021 BOX023 NAM001 SET004",
    info="LAB013",
    off="IMG016",
)
# No label is found for such objects in any task. For known labels, TSK001 reports them.
_LABELS_NOT_KNOWN = severities(error="LAB007 LAB009 LAB018")
_TASK_HAS_FRAMES = severities(off="IMG")
# CVAT would silently attach the image to the frame with that number.
_NUMBERS_ARE_NO_NAMES = severities(error="TSK003")
_IMAGES_BECOME_FRAMES = severities(error="IMG001 IMG002 IMG006 IMG009", warning="IMG")
# No frame of any task matches. For known frames, TSK002 and TSK006 report the records.
_FRAMES_NOT_KNOWN = severities(error="NAM001 NAM002 NAM009", warning="IMG", off="IMG001")


def _get_task_severities(task: Task | None) -> Severities:
    classes = _LABELS_NOT_KNOWN if task is None or task.labels is None else {}
    if task is not None and task.new_tasks:
        return {**classes, **_IMAGES_BECOME_FRAMES}
    if task is None or task.frames is None:
        return {**classes, **_FRAMES_NOT_KNOWN, **_NUMBERS_ARE_NO_NAMES}
    # In a video whose frames were all used, frame 12 is frame_000012.
    if task.video and all(frame.name == f"frame_{frame.number:06d}" for frame in task.frames):
        return {**classes, **_TASK_HAS_FRAMES}
    return {**classes, **_TASK_HAS_FRAMES, **_NUMBERS_ARE_NO_NAMES}


# The trainer of the OD API, from its source code, which each rule names. The trainer opens shards
# without a compression_type, and its decoder fails at the first record of CVAT's layout, which has
# no image. It uses height and width only for numerical masks, and does not use names. Findings of
# TSK are warnings, because they describe another program's use of the same zip.
_OD_API = _STOPS_OTHERS | severities(
    error="TFR010 TFR014 IMG001",
    warning="IMG006 IMG012 IMG015 NAM001 NAM006 NAM013 TSK001 TSK002 TSK004 TSK006",
)

# official/vision/dataloaders: tf_example_decoder.py; retinanet_input.py; utils.py,
# process_source_id. MediaPipe Model Maker uses them, too (object_detector/dataset.py,
# preprocessor.py). They read only the class ids, not the texts, the label map or the format.
_TF_VISION = _OD_API | severities(
    error="NAM007 NAM010 LAB008 LAB017 LAB020",
    warning="LAB002 LAB003 LAB004 LAB005 LAB006 LAB010 LAB011 SET004 IMG014",
)
# Model Maker does not read masks.
_MASKS_ARE_0_AND_1 = severities(error="BOX019 BOX020")
# google/automl: efficientdet/dataloader.py, which parses source ids to float32.
_EFFICIENTDET = _TF_VISION | severities(error="NAM011 BOX010")

ANY = Receiver("any", "any", {})
CVAT = Receiver("cvat", "CVAT", _CVAT, "cvat", _get_task_severities)
DATUMARO = Receiver("datumaro", "Datumaro", _DATUMARO)
OD_API = Receiver("od-api", "the OD API's trainer", _OD_API, "tf_detection_api")
TF_VISION = Receiver("tf-vision", "TF-Vision", _TF_VISION | _MASKS_ARE_0_AND_1, "tf_vision")
MODEL_MAKER = Receiver("model-maker", "MediaPipe Model Maker", _TF_VISION, "tf_vision")
_AUTOML = "EfficientDet (automl, TAO)"
EFFICIENTDET = Receiver("efficientdet", _AUTOML, _EFFICIENTDET, "tf_detection_api")

RECEIVERS = {
    receiver.name: receiver
    for receiver in (CVAT, DATUMARO, OD_API, TF_VISION, MODEL_MAKER, EFFICIENTDET, ANY)
}
"""The receivers by name, in the order in which they are listed."""


def choose_receiver(
    receiver: Receiver | None, profile: Profile | None, task: Task | None
) -> Receiver:
    """Return the requested receiver, or else the one of the profile or the task."""
    if receiver is not None:
        return receiver
    if profile is None:
        return CVAT if task is not None else ANY
    return CVAT if profile is READY["cvat"] else ANY


class Verdict(str, enum.Enum):
    """The verdict of a receiver on shards, as in JSON reports."""

    TAKES = "takes it"
    LOSSES = "takes it with losses"
    FAILS = "fails"

    @property
    def rank(self) -> int:
        """0 for the best verdict."""
        return list(Verdict).index(self)


VERDICT_TEXTS = {
    Verdict.TAKES: "accepts them",
    Verdict.LOSSES: "accepts them, but loses data",
    Verdict.FAILS: "fails",
}
"""The verdicts in words, with the receiver as the subject."""


class ReceiverVerdict(NamedTuple):
    """The verdict of a receiver, with its reasons: rules, or features that the records lack."""

    receiver: Receiver
    verdict: Verdict
    reasons: tuple[str, ...] = ()


def verdicts(
    profile: Profile | None, user: Severities, findings: Findings
) -> list[ReceiverVerdict]:
    """Return the verdicts of all receivers on a dataset that was checked for any receiver.

    ``user`` are the severities that the user has set.
    """
    receivers = (receiver for receiver in RECEIVERS.values() if receiver is not ANY)
    return [_judge(receiver, profile, user, findings) for receiver in receivers]


def _judge(
    receiver: Receiver, profile: Profile | None, user: Severities, findings: Findings
) -> ReceiverVerdict:
    levels = resolve_levels(profile.severities if profile else {}, receiver.severities(None), user)
    reasons: dict[Severity, list[str]] = {severity: [] for severity in Severity}
    if profile and receiver.profile:
        is_stopped = levels["EXA003"] is Severity.ERROR
        reasons[Severity.ERROR] += _find_mismatches(READY[receiver.profile], profile, is_stopped)
    worst: dict[str, Severity] = {}
    for name in sorted(findings.names):
        level, previous = levels[name], worst.get(name[:6])
        if level is not None and (previous is None or previous.rank < level.rank):
            worst[name[:6]] = level
    for code, severity in worst.items():
        reasons[severity].append(f"{code} {all_rules()[code].title}")
    if reasons[Severity.ERROR]:
        return ReceiverVerdict(receiver, Verdict.FAILS, tuple(reasons[Severity.ERROR]))
    losses = reasons[Severity.WARNING]
    return ReceiverVerdict(receiver, Verdict.LOSSES if losses else Verdict.TAKES, tuple(losses))


def _find_mismatches(expected: Profile, profile: Profile, is_stopped: bool) -> Iterator[str]:
    """Yield why records of a profile do not match the receiver's; missing keys may stop it."""
    required = [key for key, spec in expected.features.items() if spec.required]
    missing = [key for key in required if key not in profile.features]
    if expected.field_mapping.box != profile.field_mapping.box:
        yield f"the layout {profile.name} is not supported"
    elif missing and is_stopped:
        yield f"there is no {', '.join(missing)}"


def merge_verdicts(verdicts: Iterable[ReceiverVerdict]) -> list[ReceiverVerdict]:
    """Return the worst verdict of each receiver on several datasets, with its reasons."""
    by_receiver: dict[str, list[ReceiverVerdict]] = {}
    for verdict in verdicts:
        by_receiver.setdefault(verdict.receiver.name, []).append(verdict)
    worst = []
    for group in by_receiver.values():
        first, *more = sorted(group, key=lambda verdict: verdict.verdict.rank, reverse=True)
        equals = [verdict for verdict in more if verdict.verdict is first.verdict]
        reasons = chain(first.reasons, *(verdict.reasons for verdict in equals))
        worst.append(first._replace(reasons=tuple(dict.fromkeys(reasons))))
    return worst

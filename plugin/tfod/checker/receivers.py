"""Receivers: who reads the shards next, and what is an error to them.

A profile says what a layout has; a receiver says which defects stop it or make it read something
wrong. The importer of ``tfod.cvat``, ``tfod cvat import``, ``tfod check --for`` and the service all
take their verdict from here, so that they cannot differ.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tfod.checker.finding import Findings, Severity
from tfod.checker.profiles.policy import levels_of
from tfod.checker.profiles.profile import READY, Profile, Severities, severities
from tfod.checker.rules.registry import all_rules

if TYPE_CHECKING:
    from tfod.checker.references.cvat_task import Task


class Receiver(NamedTuple):
    """Who reads the shards next.

    Attributes:
        name: what ``--for`` and the service's field ``for`` call it.
        title: what people call it: a shard is valid "for ...".
        own: severities of rules that it checks otherwise than by default.
        profile: the ready profile of what it reads; None for the one that fits best.
        of_task: further severities, for what is known of the CVAT task (None: nothing).
    """

    name: str
    title: str
    own: Severities
    profile: str | None = None
    of_task: Callable[[Task | None], Severities] | None = None

    def severities(self, task: Task | None) -> Severities:
        """All of them, for what is known of the CVAT task that the shards are meant for."""
        return {**self.own, **self.of_task(task)} if self.of_task else self.own


# What stops other receivers: any text is a source id here, and a class needs no number.
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


# tfod.datumaro: what its import refuses. It cuts boxes at the image's edge, leaves images as they
# are, and makes a class of a text or an id that no map explains; the task and the configuration
# are compared only if they are given.
_DATUMARO = _STOPS_OTHERS | _stopped_by(
    "TFR TSK CFG EXA001 EXA002 EXA003:nothing EXA004 EXA005 EXA010 EXA013 BOX001 BOX002 BOX005 "
    "BOX006 BOX014 BOX015 BOX016 IMG015 IMG015:read LAB002 LAB019 SET006 SET006:part "
    "ZIP001 ZIP002 ZIP004 ZIP005 ZIP007 ZIP010 ZIP012 ZIP013"
)

# The class text decides, boxes are cut at the image's edge, and features that are missing are
# missed when somebody needs them. The task has the images.
_CVAT = _STOPS_OTHERS | severities(
    error="LAB002 LAB014 LAB019 BOX017 BOX020 IMG012 IMG015",
    warning="LAB EXA003 BOX003 BOX012 BOX021 BOX023 NAM001 SET004",
    info="LAB013",
    off="IMG016",
)
# Whatever labels a task has: no label is found for such objects. TSK001 says it of known labels.
_LABELS_NOT_KNOWN = severities(error="LAB007 LAB009 LAB018")
_WITH_FRAMES_OF_ITS_OWN = severities(off="IMG")
# CVAT would attach the image to the frame of that number without a word.
_NUMBERS_ARE_NO_NAMES = severities(error="TSK003")
_IMAGES_BECOME_FRAMES = severities(error="IMG001 IMG002 IMG006 IMG009", warning="IMG")
# Whatever frames it has: TSK002 and TSK006 say it of known ones.
_FRAMES_NOT_KNOWN = severities(error="NAM001 NAM002 NAM009", warning="IMG", off="IMG001")


def _of_task(task: Task | None) -> Severities:
    classes = _LABELS_NOT_KNOWN if task is None or task.labels is None else {}
    if task is not None and task.new_tasks:
        return {**classes, **_IMAGES_BECOME_FRAMES}
    if task is None or task.frames is None:
        return {**classes, **_FRAMES_NOT_KNOWN, **_NUMBERS_ARE_NO_NAMES}
    # Frame 12 is frame_000012: of a video of which every frame was taken.
    if task.video and all(one.name == f"frame_{one.number:06d}" for one in task.frames):
        return {**classes, **_WITH_FRAMES_OF_ITS_OWN}
    return {**classes, **_WITH_FRAMES_OF_ITS_OWN, **_NUMBERS_ARE_NO_NAMES}


# The OD API's trainer, by its own code; each rule's source says where. It opens shards without a
# compression_type, and its decoder stops at the first record of CVAT's layout, without an image.
# Height and width are read for masks of numbers alone, names for nothing. Of TSK is said what
# another program would do with the same zip.
_OD_API = _STOPS_OTHERS | severities(
    error="TFR010 TFR014 IMG001",
    warning="IMG006 IMG012 IMG015 NAM001 NAM006 NAM013 TSK001 TSK002 TSK004 TSK006",
)

# official/vision/dataloaders: tf_example_decoder.py; retinanet_input.py; utils.py,
# process_source_id. MediaPipe Model Maker uses them, too (object_detector/dataset.py,
# preprocessor.py). It reads the ids of classes alone; neither texts nor a label map, nor the
# format.
_TF_VISION = _OD_API | severities(
    error="NAM007 NAM010 LAB008 LAB017 LAB020",
    warning="LAB002 LAB003 LAB004 LAB005 LAB006 LAB010 LAB011 SET004 IMG014",
)
# Model Maker reads no masks.
_MASKS_ARE_0_AND_1 = severities(error="BOX019 BOX020")
# google/automl: efficientdet/dataloader.py, which parses source ids to float32.
_EFFICIENTDET = _TF_VISION | severities(error="NAM011 BOX010")

ANY = Receiver("any", "any", {})
CVAT = Receiver("cvat", "CVAT", _CVAT, "cvat", _of_task)
DATUMARO = Receiver("datumaro", "Datumaro", _DATUMARO)
OD_API = Receiver("od-api", "the OD API's trainer", _OD_API, "tf_detection_api")
TF_VISION = Receiver("tf-vision", "TF-Vision", _TF_VISION | _MASKS_ARE_0_AND_1, "tf_vision")
MODEL_MAKER = Receiver("model-maker", "MediaPipe Model Maker", _TF_VISION, "tf_vision")
EFFICIENTDET = Receiver(
    "efficientdet", "EfficientDet (automl, TAO)", _EFFICIENTDET, "tf_detection_api"
)

RECEIVERS = {
    one.name: one for one in (CVAT, DATUMARO, OD_API, TF_VISION, MODEL_MAKER, EFFICIENTDET, ANY)
}
"""The receivers by name, in the order in which they are offered."""


def receiver_of(receiver: Receiver | None, profile: Profile | None, task: Task | None) -> Receiver:
    """Who the check is for: who was named, or else who the profile or the task belongs to."""
    if receiver is not None:
        return receiver
    if profile is None:
        return CVAT if task is not None else ANY
    return CVAT if profile is READY["cvat"] else ANY


class Verdict(str, enum.Enum):
    """What becomes of shards in a receiver's hands; the values are what reports say."""

    TAKES = "takes it"
    LOSSES = "takes it with losses"
    FAILS = "fails"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)


class ReceiverVerdict(NamedTuple):
    """What a receiver makes of shards, and why: rules, or what its layout needs and they lack."""

    receiver: Receiver
    verdict: Verdict
    reasons: tuple[str, ...] = ()


def verdicts(
    profile: Profile | None, user: Severities, findings: Findings
) -> list[ReceiverVerdict]:
    """The verdict of each receiver on a dataset that was checked for any.

    Args:
        profile: by which it was checked; a receiver whose own profile requires other keys fails.
            None for findings that are about no dataset.
        user: severities that the user has named, which are stronger than the receivers'.
        findings: what was found, complete.
    """
    return [_verdict(one, profile, user, findings) for one in RECEIVERS.values() if one is not ANY]


def _verdict(
    receiver: Receiver, profile: Profile | None, user: Severities, findings: Findings
) -> ReceiverVerdict:
    levels = levels_of(profile.severities if profile else {}, receiver.severities(None), user)
    reasons: dict[Severity, list[str]] = {one: [] for one in Severity}
    if profile and receiver.profile:
        is_stopped = levels["EXA003"] is Severity.ERROR
        reasons[Severity.ERROR] += _misfits(READY[receiver.profile], profile, is_stopped)
    worst: dict[str, Severity] = {}
    for name in sorted(findings.names):
        level, known = levels[name], worst.get(name[:6])
        if level is not None and (known is None or known.rank < level.rank):
            worst[name[:6]] = level
    for code, severity in worst.items():
        reasons[severity].append(f"{code} {all_rules()[code].title}")
    if reasons[Severity.ERROR]:
        return ReceiverVerdict(receiver, Verdict.FAILS, tuple(reasons[Severity.ERROR]))
    losses = reasons[Severity.WARNING]
    return ReceiverVerdict(receiver, Verdict.LOSSES if losses else Verdict.TAKES, tuple(losses))


def _misfits(own: Profile, profile: Profile, is_stopped: bool) -> Iterator[str]:
    """What keeps records of a profile from fitting a receiver whom missing keys may stop."""
    required = [key for key, spec in own.features.items() if spec.required]
    lacking = [key for key in required if key not in profile.features]
    if own.field_mapping.box != profile.field_mapping.box:
        yield f"it does not read the layout {profile.name}"
    elif lacking and is_stopped:
        yield f"there is no {', '.join(lacking)}"


def worst_of(verdicts: Iterable[ReceiverVerdict]) -> list[ReceiverVerdict]:
    """One verdict for each receiver, of several datasets: the worst, with its reasons."""
    found: dict[str, list[ReceiverVerdict]] = {}
    for one in verdicts:
        found.setdefault(one.receiver.name, []).append(one)
    worst = []
    for each in found.values():
        first, *more = sorted(each, key=lambda one: one.verdict.rank, reverse=True)
        reasons = chain(
            first.reasons, *(one.reasons for one in more if one.verdict is first.verdict)
        )
        worst.append(first._replace(reasons=tuple(dict.fromkeys(reasons))))
    return worst

"""Receivers: who reads the shards next, and what is an error to them.

A profile says what a layout has; a receiver says which defects stop it or make it read something
wrong. The importer of ``tfod.cvat``, ``tfod cvat import``, ``tfod check --for`` and the service all
take their verdict from here, so that they cannot differ.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tfod.check.finding import Findings, Severity
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import OFF, READY, Profile, Severities
from tfod.check.rules.registry import all_rules

if TYPE_CHECKING:
    from tfod.check.references.cvat_task import Task


class Receiver(NamedTuple):
    """Who reads the shards next.

    Attributes:
        name: what ``--for`` and the service's field ``for`` call it.
        title: what people call it: a shard is valid "for ...".
        severities: of rules that it checks otherwise than by default, for what is known of the CVAT
            task that the shards are meant for (None: nothing).
        profile: the ready profile of what it reads; None for the one that fits best.
    """

    name: str
    title: str
    severities: Callable[[Task | None], Severities]
    profile: str | None = None


# What stops other receivers: any text is a source id here, and a class needs no number.
_STOPS_OTHERS: Severities = dict.fromkeys(("NAM010", "NAM011", "LAB020", "BOX019"), OFF)

# tfod.datumaro: what is imported whole, with each box, class and image as the record has it; boxes
# are cut at the image's edge. A text or an id that no map explains becomes a class.
_DATUMARO: Severities = {
    **_STOPS_OTHERS,
    **dict.fromkeys(("EXA012", "BOX003", "BOX012", "BOX013"), Severity.WARNING),
    **dict.fromkeys(("BOX020", "BOX021", "NAM001", "NAM006", "SET004"), Severity.WARNING),
    **dict.fromkeys(("IMG001", "IMG002", "IMG003", "IMG005", "IMG006"), Severity.WARNING),
    **dict.fromkeys(("IMG007", "IMG009", "IMG014"), Severity.WARNING),
    **dict.fromkeys(("LAB003", "LAB004", "LAB005", "LAB006", "LAB007"), Severity.WARNING),
    **dict.fromkeys(("LAB009", "LAB010", "LAB011", "LAB012", "LAB014"), Severity.WARNING),
    "LAB015": Severity.WARNING,
}

# The class text decides, boxes are cut at the image's edge, and features that are missing are
# missed when somebody needs them.
_CVAT: Severities = {
    **_STOPS_OTHERS,
    **dict.fromkeys(("LAB", "EXA003", "BOX003", "BOX012", "BOX021"), Severity.WARNING),
    **dict.fromkeys(("NAM001", "SET004"), Severity.WARNING),
    **dict.fromkeys(("LAB002", "LAB019", "BOX017", "BOX020"), Severity.ERROR),
    "LAB013": Severity.INFO,
    "IMG016": OFF,  # the task has the images
}
# Whatever labels a task has: no label is found for such objects. TSK001 says it of known labels.
_LABELS_NOT_KNOWN = dict.fromkeys(("LAB007", "LAB009", "LAB014", "LAB018"), Severity.ERROR)
_SIZES = dict.fromkeys(("IMG012", "IMG015"), Severity.ERROR)
_WITH_FRAMES_OF_ITS_OWN: Severities = {"IMG": OFF, **_SIZES}
# CVAT would attach the image to the frame of that number without a word.
_NUMBERS_ARE_NO_NAMES: Severities = {"TSK003": Severity.ERROR}
_IMAGES_BECOME_FRAMES: Severities = {
    "IMG": Severity.WARNING,
    **dict.fromkeys(("IMG001", "IMG002", "IMG006", "IMG009"), Severity.ERROR),
    **_SIZES,
}
_TASK_NOT_KNOWN: Severities = {
    "IMG": Severity.WARNING,
    "IMG001": OFF,
    **_SIZES,
    **_NUMBERS_ARE_NO_NAMES,
    # Whatever frames it has: TSK002 and TSK006 say it of known ones.
    **dict.fromkeys(("NAM001", "NAM002", "NAM009"), Severity.ERROR),
}


def _cvat_severities(task: Task | None) -> Severities:
    classes = _LABELS_NOT_KNOWN if task is None or task.labels is None else {}
    return {**_CVAT, **classes, **_by_frames(task)}


def _by_frames(task: Task | None) -> Severities:
    if task is not None and task.new_tasks:
        return _IMAGES_BECOME_FRAMES
    if task is None or task.frames is None:
        return _TASK_NOT_KNOWN
    if _is_numbered_alike(task):
        return _WITH_FRAMES_OF_ITS_OWN
    return {**_WITH_FRAMES_OF_ITS_OWN, **_NUMBERS_ARE_NO_NAMES}


def _is_numbered_alike(task: Task) -> bool:
    """Frame 12 of the task is ``frame_000012``: of a video of which every frame was taken."""
    frames = task.frames or ()
    return task.video and all(one.name == f"frame_{one.number:06d}" for one in frames)


# The OD API's trainer, by its own code; each rule's source says where.
_OD_API: Severities = {
    **_STOPS_OTHERS,
    # It opens shards without a compression_type.
    **dict.fromkeys(("TFR010", "TFR014"), Severity.ERROR),
    # CVAT's layout has no images, and the trainer's decoder stops at the first record.
    "IMG001": Severity.ERROR,
    # Height and width are read for masks of numbers alone, names for nothing.
    **dict.fromkeys(("IMG006", "IMG012", "IMG015", "NAM001", "NAM006"), Severity.WARNING),
    # What another program would do with the same zip.
    **dict.fromkeys(("TSK001", "TSK002", "TSK004", "TSK006"), Severity.WARNING),
}

# official/vision/dataloaders: tf_example_decoder.py; retinanet_input.py; utils.py,
# process_source_id. MediaPipe Model Maker uses them, too (object_detector/dataset.py,
# preprocessor.py).
_TF_VISION: Severities = {
    **_OD_API,
    **dict.fromkeys(("NAM007", "NAM010"), Severity.ERROR),
    # It reads the ids of classes alone; neither texts nor a label map.
    **dict.fromkeys(("LAB008", "LAB017", "LAB020"), Severity.ERROR),
    **dict.fromkeys(("LAB002", "LAB003", "LAB004", "LAB005", "LAB006"), Severity.WARNING),
    **dict.fromkeys(("LAB010", "LAB011", "SET004"), Severity.WARNING),
    "IMG014": Severity.WARNING,  # nor the format
}
# Model Maker reads no masks.
_MASKS_ARE_0_AND_1: Severities = dict.fromkeys(("BOX019", "BOX020"), Severity.ERROR)
# google/automl: efficientdet/dataloader.py, which parses source ids to float32.
_EFFICIENTDET: Severities = {
    **_TF_VISION,
    **dict.fromkeys(("NAM011", "BOX010"), Severity.ERROR),
}


def _trainer(name: str, title: str, severities: Severities, profile: str) -> Receiver:
    return Receiver(name, title, lambda _: severities, profile)


ANY = Receiver("any", "any", lambda _: {})
CVAT = Receiver("cvat", "CVAT", _cvat_severities, profile="cvat")
DATUMARO = Receiver("datumaro", "Datumaro", lambda _: _DATUMARO)
OD_API = _trainer("od-api", "the OD API's trainer", _OD_API, "tf_detection_api")
TF_VISION = _trainer("tf-vision", "TF-Vision", {**_TF_VISION, **_MASKS_ARE_0_AND_1}, "tf_vision")
MODEL_MAKER = _trainer("model-maker", "MediaPipe Model Maker", _TF_VISION, "tf_vision")
EFFICIENTDET = _trainer(
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
    policy = Policy(profile.severities if profile else {}, receiver.severities(None), user)
    reasons: dict[Severity | None, list[str]] = {one: [] for one in (*Severity, None)}
    if profile and receiver.profile:
        is_stopped = policy.severity("EXA003") is Severity.ERROR
        reasons[Severity.ERROR] += _misfits(READY[receiver.profile], profile, is_stopped)
    for code in sorted(findings.counts):
        severity = policy.severity(code, findings.worst[code])
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
    found: dict[str, ReceiverVerdict] = {}
    order = list(Verdict)
    for one in verdicts:
        known = found.setdefault(one.receiver.name, one)
        difference = order.index(one.verdict) - order.index(known.verdict)
        if difference > 0:
            found[one.receiver.name] = one
        elif not difference:
            reasons = tuple(dict.fromkeys((*known.reasons, *one.reasons)))
            found[one.receiver.name] = known._replace(reasons=reasons)
    return list(found.values())

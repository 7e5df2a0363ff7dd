"""What is a defect to CVAT's import, and what to training alone."""

from __future__ import annotations

from tfod_validator.finding import Severity
from tfod_validator.profile import OFF, Severities
from tfod_validator.task import Task

# The class text decides, boxes are cut at the picture's edge, and features that are missing are
# missed when somebody needs them.
_HARMLESS: Severities = {
    **dict.fromkeys(("LAB", "EXA003", "BOX003", "BOX007", "NAM001", "SET004"), Severity.WARNING),
    "LAB002": Severity.ERROR,
    "IMG": OFF,
    "IMG012": Severity.ERROR,
}
# A number is no name, unless it is the frame's in its video as well: CVAT would attach the picture
# to the frame of that number without a word.
_NUMBERS_ARE_NO_NAMES: Severities = {"TSK003": Severity.ERROR}
_PICTURES_COUNT: Severities = {
    "IMG": Severity.WARNING,
    **dict.fromkeys(("IMG001", "IMG002", "IMG006", "IMG009", "IMG012"), Severity.ERROR),
}


def import_severities(task: Task) -> Severities:
    """Severities of rules for a zip that is to be imported, beside those of the profile ``cvat``.

    Args:
        task: what it is imported into; without frames, its pictures become tasks of a project.
    """
    if task.frames is None:
        return {**_HARMLESS, **_PICTURES_COUNT}
    if _is_numbered_alike(task):
        return _HARMLESS
    return {**_HARMLESS, **_NUMBERS_ARE_NO_NAMES}


def _is_numbered_alike(task: Task) -> bool:
    """Frame 12 of the task is ``frame_000012``: of a video of which every frame was taken."""
    frames = task.frames or ()
    return task.video and all(one.name == f"frame_{one.number:06d}" for one in frames)

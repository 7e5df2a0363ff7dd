"""What CVAT's task, job or project expects of an upload: labels, attributes, frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfod.check.task import Frame, Task

_PROJECT, _JOB = "project", "job"  # META_FIELD
_VIDEO = "interpolation"  # TaskMode.INTERPOLATION


@dataclass(frozen=True)
class AttributeSpec:
    """An attribute that a label has.

    Attributes:
        input_type: ``checkbox``, ``number``, ``select``, ``radio`` or ``text``.
        values: what may be chosen.
    """

    input_type: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Instance:
    """What is imported into.

    Attributes:
        noun: ``task``, ``job`` or ``project``.
        task: labels and frames, as the checker wants them. A project's frames are none: its
            tasks are yet to be made.
        own_frames: numbers of the frames that annotations may come to. Of a job, ``task`` has the
            frames of its whole task: a zip of the task's is known by them.
        attributes: of each label, by name.
        takes_new_attributes: CVAT makes attributes that a label lacks.
    """

    noun: str
    task: Task
    own_frames: frozenset[int]
    attributes: Mapping[str, Mapping[str, AttributeSpec]]
    takes_new_attributes: bool


def describe_instance(instance_data: Any) -> Instance:
    """Describe CVAT's ``TaskData``, ``JobData`` or ``ProjectData``."""
    noun: str = instance_data.META_FIELD
    meta = instance_data.meta[noun]
    # Parts of skeletons have a parent; no annotation of ours can be one.
    labels = [label for _, label in meta["labels"] if not label.get("parent")]
    frames: tuple[Frame, ...] | None = None
    own: Mapping[int, Any] = {}
    if noun != _PROJECT:
        own = instance_data.frame_info
        others = _other_frames(instance_data) if noun == _JOB else {}
        frames = tuple(
            Frame(info["path"], number, info["height"], info["width"])
            # Of equal names the last counts, so that a job's placeholders come before the others.
            for number, info in [*others.items(), *own.items()]
        )
    return Instance(
        noun=noun,
        task=Task(
            # CVAT makes the labels of a project that has none.
            labels=frozenset(label["name"] for label in labels) if labels else None,
            frames=frames,
            video=frames is not None and meta["mode"] == _VIDEO,
            new_tasks=frames is None,
        ),
        own_frames=frozenset(own),
        attributes={
            label["name"]: {one["name"]: _spec(one) for _, one in label["attributes"]}
            for label in labels
        },
        takes_new_attributes=bool(instance_data.soft_attribute_import),
    )


def _other_frames(job_data: Any) -> dict[int, Any]:
    """What CVAT knows of the frames of a job's task that are not the job's."""
    from cvat.apps.dataset_manager.bindings import TaskData

    task_data = TaskData(job_data.data, job_data.db_instance.segment.task)
    own = job_data.frame_info
    return {number: info for number, info in task_data.frame_info.items() if number not in own}


def _spec(attribute: Mapping[str, Any]) -> AttributeSpec:
    values = attribute.get("values") or ()
    choices = values.split("\n") if isinstance(values, str) else values
    return AttributeSpec(str(attribute["input_type"]), tuple(str(one) for one in choices))

"""The rules, one module a family; importing this package declares them all."""

from tfod.check.rules import (
    archive,
    boxes,
    dataset,
    example,
    fidelity,
    framing,
    images,
    labels,
    names,
    task,
)

__all__ = [
    "archive",
    "boxes",
    "dataset",
    "example",
    "fidelity",
    "framing",
    "images",
    "labels",
    "names",
    "task",
]

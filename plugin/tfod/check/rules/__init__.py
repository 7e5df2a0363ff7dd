"""The rules, one module a family; importing this package declares them all.

Their test cases, which fire and which nearly do, are in ``tests/mutants``, a module a family.
"""

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

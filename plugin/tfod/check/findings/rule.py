"""What is said about a rule, whoever it finds guilty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfod.check.findings.finding import Finding, Severity

FAMILIES = {
    "TFR": "framing: the file as a sequence of records",
    "EXA": "the record as a tf.train.Example",
    "BOX": "boxes",
    "LAB": "classes and the label map",
    "IMG": "the encoded image",
    "NAM": "names of images",
    "ZIP": "the archive around the shards",
    "SET": "shards as a set",
    "TSK": "the CVAT task it is meant for",
    "CFG": "the trainer's configuration",
}
"""The first three letters of a code, and what the rules of that family look at."""


@dataclass(frozen=True)
class Rule:
    """A rule and all that is said about it.

    Attributes:
        once: whether it speaks once for each shard and feature key, however many records it finds.
        of_dataset: whether it looks at a data set, and not at each batch of records.
        check: finds what is wrong with a :class:`~tfod.check.records.batch.Batch`, or with a
            :class:`~tfod.check.records.result.DatasetResult`.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str
    check: Callable[[Any], Iterable[Finding]]
    once: bool = False
    of_dataset: bool = False

    @property
    def family(self) -> str:
        """The family's three letters."""
        return self.code[:3]

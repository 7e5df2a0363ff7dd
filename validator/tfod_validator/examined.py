"""What an examination is told, and what it comes to: both cross into other processes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

from tfod_validator.annotations import Annotations
from tfod_validator.catalogue import Catalogue
from tfod_validator.collector import Findings
from tfod_validator.profile import Policy, Profile
from tfod_validator.statistics import Statistics

Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of an object."""


@dataclass(frozen=True)
class Instructions:
    """What is the same for every shard of a check."""

    profile: Profile
    policy: Policy
    max_findings: int
    max_record_bytes: int
    decode: bool = False
    with_tensorflow: bool = False
    annotations: Annotations | None = None


@dataclass
class Examined:
    """What is known after a shard, or a part of it, was read."""

    shard: str
    findings: Findings
    records: int = 0
    pictures: int = 0
    boxes: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    uses: Counter[Use] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    catalogue: Catalogue = field(default_factory=Catalogue)

    def merge(self, other: Examined) -> None:
        """Add the part of the shard that comes next; its findings are merged elsewhere."""
        self.records += other.records
        self.pictures += other.pictures
        self.boxes += other.boxes
        self.statistics.merge(other.statistics)
        self.uses.update(other.uses)
        self.keys |= other.keys
        self.catalogue.extend(other.catalogue)

"""What is asked of an examination, wherever records are read: it goes to other processes, too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfod.check.findings.collector import Collector
from tfod.check.findings.fingerprints import KnownFingerprints
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import Profile
from tfod.check.records.expectation import expected_features
from tfod.check.records.images.decoding import NOT_DECODED, Decoding
from tfod.check.rules.registry import RuleProblems, all_rules
from tfod.check.sources.archive import ArchiveLimits
from tfod.detection.features.schema import FeatureDescription
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.storage.remote_timeout import remote_timeout


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What may be asked of a check and matters wherever records are read.

    Attributes:
        label_map: file or name of a label map for all shards; None for those beside them.
        max_findings: how many are listed.
        max_record_bytes: larger records are not read.
        part_bytes: large shards are shared among workers in parts of about so many bytes.
        hash_sources: whether the report names the SHA-256 of each source.
        archive_limits: where the reading of archives stops.
    """

    label_map: str | None = None
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    part_bytes: int = 32 << 20
    hash_sources: bool = True
    archive_limits: ArchiveLimits = field(default_factory=ArchiveLimits)


@dataclass(frozen=True)
class Instructions(RecordOptions):
    """What is the same for every shard of a dataset: what was asked, and what follows from it.

    Attributes:
        decoding: which images are decoded.
        counts_objects: whether figures of the objects are wanted, for a trainer's configuration.
        label_maps: those that lie open, by name.
        known: fingerprints of the baseline, if there is one.
        remote_timeout: seconds without a byte after which a server is given up; other processes
            have to be told.
    """

    profile: Profile
    policy: Policy
    decoding: Decoding = NOT_DECODED
    counts_objects: bool = False
    label_maps: Mapping[str, LabelMap] = field(default_factory=dict)
    known: KnownFingerprints | None = None
    remote_timeout: float = field(default_factory=remote_timeout)

    def collector(self) -> Collector:
        """What collects the findings of an input."""
        return Collector(self.policy, self.max_findings, self.known)

    @property
    def most_duplicates(self) -> int:
        """How many duplicates of a kind are kept: all where a baseline has some."""
        return self.max_findings if self.known is None else sys.maxsize

    @cached_property
    def features(self) -> FeatureDescription:
        """What is expected of each key."""
        return expected_features(self.profile)

    @cached_property
    def exa003_reports_names(self) -> bool:
        """Whether EXA003 says no less severely than NAM001 that a file name is missing."""
        name, feature = (self.policy.severity(all_rules()[one]) for one in ("NAM001", "EXA003"))
        return name is None or (feature is not None and feature.rank >= name.rank)

    def known_problems(self, label_map: LabelMap | None) -> dict[object, RuleProblems]:
        """What was found of facts that recur from shard to shard, until another label map comes."""
        if self._known[0] is not label_map:
            self._known[:] = [label_map, {}]
        known: dict[object, RuleProblems] = self._known[1]
        return known

    @cached_property
    def _known(self) -> list[Any]:
        return [None, {}]

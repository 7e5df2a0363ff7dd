"""The options of a repair, and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tfod.checker.finding import Finding, Severity
from tfod.checker.profiles.profile import Profile
from tfod.checker.report import Report
from tfod.formats.options import OddBoxes


@dataclass(frozen=True)
class Options:
    """The options of a repair.

    Attributes:
        profile: expected feature description; None to choose the one that fits best.
        receiver: name of the program that will read the result; None for any.
        label_map: file or name of a label map for all shards; None for those next to the shards.
        select: codes or families of the rules to repair; None for all.
        ignore: codes or families not to repair; takes precedence over ``select``.
        odd_boxes: CLIP or DROP, as in a conversion; None to leave boxes that need a decision.
        max_record_bytes: size limit of a record; a larger record ends the repair.
        report: path of the report, which may not be a file of the source or the result.
    """

    profile: Profile | None = None
    receiver: str | None = None
    label_map: str | None = None
    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    odd_boxes: OddBoxes | None = None
    max_record_bytes: int = 256 << 20
    overwrite: bool = False
    report: str | None = None

    def includes(self, code: str) -> bool:
        """Return whether the findings of a rule are to be repaired."""
        names = {code, code[:3]}
        return (self.select is None or bool(names & self.select)) and not names & self.ignore


@dataclass
class Outcome:
    """The outcome of a repair.

    Attributes:
        output: folder of the result; None for a dry run.
        changed, dropped: number of records that were changed, and that were dropped.
        by_code: number of changes, by code of the rule.
        examples: the first changes of each rule, as findings with the values before and after.
        remaining: report of a check of the result.
    """

    source: str
    output: str | None
    shards: int
    records: int = 0
    written: int = 0
    changed: int = 0
    dropped: int = 0
    by_code: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Finding]] = field(default_factory=dict)
    label_maps: Sequence[str] = ()
    remaining: Report = field(init=False)

    @property
    def is_useless(self) -> bool:
        """Whether errors remain and nothing could be repaired, so that nothing is written."""
        return not self.by_code and self.remaining.counts.by_severity[Severity.ERROR] > 0

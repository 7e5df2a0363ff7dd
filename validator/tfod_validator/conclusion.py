"""From findings and figures to the report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from tfod.version import __version__

from tfod_validator.collector import Findings
from tfod_validator.finding import Severity
from tfod_validator.report import ChosenProfile, Counts, Report, SourceFile
from tfod_validator.statistics import Statistics
from tfod_validator.tally import ShardSummary


def conclude(
    findings: Findings,
    shards: Sequence[ShardSummary],
    statistics: Statistics,
    classes: Counter[str],
    *,
    receiver: str,
    profile: ChosenProfile,
    fail_on: Severity,
    undecoded: str,
    sources: Sequence[SourceFile],
    began: float,
) -> Report:
    """The report.

    Args:
        findings: all of them.
        shards: all shards, in order.
        statistics: of all records, but for the classes.
        classes: boxes of each class.
        receiver: name of the one whose verdict it is.
        profile: which one was expected.
        fail_on: the least severity that makes the verdict.
        undecoded: why not all pictures were decoded, if they were not.
        sources: the files that were checked.
        began: when the check did, by :func:`time.monotonic`.
    """
    findings.close()
    statistics.classes = classes
    pictures, decoded = sum(one.pictures for one in shards), sum(one.decoded for one in shards)
    by_severity = findings.by_severity()
    failing = [one for one in Severity if one.rank >= fail_on.rank]
    return Report(
        valid=not any(by_severity[one] for one in failing),
        fail_on=fail_on,
        receiver=receiver,
        profile=profile,
        sources=sources,
        counts=Counts(
            shards=len(shards),
            records=sum(one.records for one in shards),
            pictures=pictures,
            decoded=decoded,
            boxes=sum(one.boxes for one in shards),
            by_code=findings.by_code(),
            by_severity=by_severity,
            places_by_code={code: len(counts) for code, counts in sorted(findings.counts.items())},
            by_shard=findings.by_shard(),
        ),
        undecoded=undecoded if decoded < pictures else "",
        severities=findings.severities,
        findings=findings.in_order([one.name for one in shards]),
        statistics=statistics,
        version=__version__,
        duration=time.monotonic() - began,
    )

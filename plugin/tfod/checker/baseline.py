"""A baseline: the report of an earlier check, so that a check reports only new findings.

Findings are recognized by a fingerprint that does not change when records move: the rule, the
image (or the shard, without folder and number), the feature and the value. The findings of records
are **counted** per fingerprint, so that one more of the same is new.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfod.checker.finding import Findings, Severity
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.shard_names import stated_name
from tfod.tfrecord.storage.urls import get_name

_FILE_FAMILIES = ("TFR", "ZIP", "SET")
"""Families whose findings are about a file. Records of other findings may move to another file."""


class Baseline(NamedTuple):
    """The known findings.

    Attributes:
        name: path of the report.
        counts: number of known findings per fingerprint.
        hidden: number of findings of the current check that are known, and so not reported.
        worst: the highest severity of these; None if there are none.
    """

    name: str
    counts: Mapping[str, int]
    hidden: int = 0
    worst: Severity | None = None


def read_baseline(path: str) -> Baseline:
    """Read the JSON report of an earlier check, which must list all its findings."""
    if os.path.exists(path) and not os.path.isfile(path):  # reading from a pipe could block
        raise TfodError(f"{path}: is not a file; pass a JSON report of tfod check")
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        listed, total = report["findings"], report["counts"]["findings"]
        counts = Counter(_fingerprint(entry) for entry in listed if entry["code"] in all_rules())
        has_baseline = report["baseline"] is not None
    except OSError as error:
        raise TfodError(
            f"{path}: {error.strerror}; `tfod check … --format json -o {path}` writes one"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise TfodError(f"{path}: is not a report; pass a JSON report of tfod check") from None
    if has_baseline:
        raise TfodError(f"{path}: lists only new findings; write it without --baseline")
    if len(listed) != total:
        raise TfodError(
            f"{path}: lists {len(listed):,} of {total:,} findings; write it with "
            f"--max-findings {total}"
        )
    return Baseline(path, counts)


def remove_known(datasets: Sequence[Findings], baseline: Baseline) -> Baseline:
    """Remove the known findings from the datasets, and return the baseline with their number.

    All findings must be listed. If there are more of a fingerprint than known, the last are new.
    """
    seen: Counter[str] = Counter()
    hidden: list[Severity] = []
    for findings in datasets:
        new = []
        for finding in findings.all():
            fingerprint = _fingerprint(finding.to_json())
            seen[fingerprint] += 1
            is_counted = finding.record is not None and not all_rules()[finding.code].once
            count = seen[fingerprint] if is_counted else 1
            if count > baseline.counts.get(fingerprint, 0):
                new.append(finding)
            else:
                hidden.append(finding.severity)
        findings.keep(new)
    worst = max(hidden, key=lambda severity: severity.rank, default=None)
    return baseline._replace(hidden=len(hidden), worst=worst)


def _fingerprint(finding: Mapping[str, Any]) -> str:
    code, subject, value = finding["code"], finding["item"], finding["value"]
    rule = all_rules()[code]
    if rule.once:  # the finding stands for several records
        subject = value = None
    elif rule.of_dataset and value is not None:
        subject = None  # which of several records is reported depends on their order
    if not subject:
        subject = get_name(finding["shard"].rpartition(":")[2])
        subject = subject if rule.family in _FILE_FAMILIES else stated_name(subject).stem
    return json.dumps([code, subject, finding["feature"], value])

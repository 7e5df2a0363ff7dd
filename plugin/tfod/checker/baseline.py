"""A baseline: the report of an earlier check, so that a check reports only what is new.

A finding is known by its fingerprint, which has nothing in it that moves: the rule, the image (of
what is about no image the shard, without its folder and its number in a set), the feature and the
value. **How many** findings of a record have a fingerprint is counted, so that one more of the same
is new; what is said of a whole shard is known however many shards the set has.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfod.checker.finding import Findings
from tfod.checker.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.shard_names import stated_name
from tfod.tfrecord.storage.urls import name_of

_OF_FILES = ("TFR", "ZIP", "SET")
"""Families that are about a file, and not about a record that may be in another one tomorrow."""


class Baseline(NamedTuple):
    """The findings that are known.

    Attributes:
        name: of the file.
        known: how many there are of each fingerprint.
        hidden: how many findings of a check are known, and so not reported.
    """

    name: str
    known: Mapping[str, int]
    hidden: int = 0


def read_baseline(path: str) -> Baseline:
    """Read the JSON report of an earlier check.

    Raises:
        TfodError: there is none, the file is not one, or it does not list all that was found.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe nobody writes to is waited for
        raise TfodError(f"{path}: is not a file; --baseline takes a JSON report of tfod check")
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        listed, total = report["findings"], report["counts"]["findings"]
        known = Counter(_fingerprint_of(one) for one in listed if one["code"] in all_rules())
        is_rest = report["baseline"] is not None
    except OSError as error:
        raise TfodError(
            f"{path}: {error.strerror}; `tfod check … --format json -o {path}` writes one"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise TfodError(
            f"{path}: is not a report; --baseline takes the JSON report of tfod check"
        ) from None
    if is_rest:
        raise TfodError(f"{path}: has only what was new; write it without --baseline")
    if len(listed) != total:
        raise TfodError(
            f"{path}: lists {len(listed):,} of {total:,} findings; write it with "
            f"--max-findings {total}"
        )
    return Baseline(path, known)


def without_known(datasets: Sequence[Findings], baseline: Baseline) -> Baseline:
    """Take what is known out of the findings of each data set, all of which are listed.

    Of more than are known of one fingerprint the last are new. Returns the baseline with their
    number.
    """
    found: Counter[str] = Counter()
    hidden = 0
    for findings in datasets:
        new = []
        for one in findings.all():
            fingerprint = _fingerprint_of(one.to_json())
            found[fingerprint] += 1
            is_counted = one.record is not None and not all_rules()[one.code].once
            count = found[fingerprint] if is_counted else 1
            if count > baseline.known.get(fingerprint, 0):
                new.append(one)
        hidden += findings.total - len(new)
        findings.keep(new)
    return baseline._replace(hidden=hidden)


def _fingerprint_of(finding: Mapping[str, Any]) -> str:
    """What a finding of a report is recognised by, as JSON."""
    code, about, value = finding["code"], finding["item"], finding["value"]
    rule = all_rules()[code]
    if rule.once:  # it stands for others
        about = value = None
    elif rule.of_dataset and value is not None:
        about = None  # on which of several records depends on their order
    if not about:
        about = name_of(finding["shard"].rpartition(":")[2])
        about = about if rule.family in _OF_FILES else stated_name(about).stem
    return json.dumps([code, about, finding["feature"], value])

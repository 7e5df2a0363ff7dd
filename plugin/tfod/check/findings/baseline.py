"""A baseline: findings that are known, so that a check reports only what is new.

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
from types import MappingProxyType
from typing import NamedTuple

from tfod.check.findings.finding import Finding
from tfod.check.findings.findings import Findings
from tfod.check.rules.registry import all_rules
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.names import stated_name
from tfod.tfrecord.storage.urls import name_of

BASELINE_VERSION = 2
_HOW_TO_WRITE = "tfod check … --baseline FILE --update-baseline writes one"


class Baseline(NamedTuple):
    """The findings that are known; in a report also what a check has found of them.

    Attributes:
        name: of the file.
        known: how many there are of each fingerprint.
        is_updated: whether all findings of the check become the baseline.
        found: how many the check has found of each fingerprint, known or not.
        hidden: how many of its findings are known, and so not reported.
    """

    name: str
    known: Mapping[str, int]
    is_updated: bool = False
    found: Mapping[str, int] = MappingProxyType({})
    hidden: int = 0


def fingerprint_of(finding: Finding) -> str:
    """What a finding is recognised by, as JSON."""
    rule, value = all_rules()[finding.code], finding.to_json()["value"]
    about = finding.item
    if rule.once:  # it stands for others
        about = value = None
    elif rule.of_dataset and value is not None:
        about = None  # on which of several records depends on their order
    if not about:
        about = name_of(finding.shard.rpartition(":")[2])
        about = about if rule.family in _OF_FILES else stated_name(about).stem
    code = _OUTSIDE.get(finding.code, finding.code)
    return json.dumps([code, about, finding.feature, value], ensure_ascii=False)


_OF_FILES = ("TFR", "ZIP", "SET")
"""Families that are about a file, and not about a record that may be in another one tomorrow."""
_OUTSIDE = {"BOX005": "BOX003"}
"""Which of the two a box far outside is depends on the boxes around it."""


def without_known(datasets: Sequence[Findings], baseline: Baseline) -> Baseline:
    """Take what is known out of the findings of a check, all of which are listed.

    Of more than are known of one fingerprint the last are new.
    """
    found: Counter[str] = Counter()
    hidden = 0
    for findings in datasets:
        new = []
        for one in findings.all():
            fingerprint = fingerprint_of(one)
            found[fingerprint] += 1
            is_counted = one.record is not None and not all_rules()[one.code].once
            count = found[fingerprint] if is_counted else 1
            if not baseline.is_updated and count > baseline.known.get(fingerprint, 0):
                new.append(one)
        hidden += findings.total - len(new)
        findings.keep(new)
    return baseline._replace(found=found, hidden=hidden)


def read_baseline(path: str, *, is_updated: bool) -> Baseline:
    """Read a baseline; one that is to be written need not be there.

    Raises:
        TfodError: there is none, or the file is not one.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe nobody writes to is waited for
        raise TfodError(f"{path}: is not a file; {_HOW_TO_WRITE}")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["version"] != BASELINE_VERSION:
            raise TfodError(
                f"{path}: is a baseline of version {document['version']!r}, and this tfod reads "
                f"version {BASELINE_VERSION}; {_HOW_TO_WRITE}"
            )
        known = {json.dumps(one, ensure_ascii=False): n for *one, n in document["findings"]}
        if not all(isinstance(one, int) and one > 0 for one in known.values()):
            raise ValueError("a count is a whole number")
    except FileNotFoundError:
        if is_updated:
            return Baseline(path, {}, is_updated)
        raise TfodError(f"{path}: there is no such baseline; {_HOW_TO_WRITE}") from None
    except OSError as error:
        raise TfodError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise TfodError(f"{path}: is not a baseline of tfod{reason}; {_HOW_TO_WRITE}") from None
    return Baseline(path, known, is_updated)


def baseline_to_json(found: Mapping[str, int]) -> str:
    """A baseline as JSON: sorted, a line for each fingerprint, so that it is easy to compare."""
    lines = ",\n".join(f"    {one[:-1]}, {count}]" for one, count in sorted(found.items()))
    body = f"[\n{lines}\n  ]" if lines else "[]"
    return f'{{\n  "version": {BASELINE_VERSION},\n  "findings": {body}\n}}\n'

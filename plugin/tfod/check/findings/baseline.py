"""A baseline: findings that are known, so that a check reports only what is new.

A finding is recognised by its fingerprint, which has nothing in it that moves: no number of a
record, no byte, no folder. An image is known by its name; what is about no image by its shard, and
what is about the records of a set together by the name of the set, so that shards may be written
anew in another number.

**How many** findings have a fingerprint is part of the baseline: of a shard without names, or of
two equal records, several findings have one. Were fingerprints a set, as detekt's ids are, a
further defect that looks like a known one would be hidden. So they are counted, as PHPStan does by
message and file, and ESLint by rule and file: where there are more than the baseline has, those
that come last are new (ESLint reports all of them). A finding that sums up a shard ("7 of 90
records have no image") counts what it sums up, and one that is made once for all records of a
shard, or says what is true of a whole set, counts nothing: it is known however many shards the set
has. So every finding that a check counts is new or known by itself, and none is counted without
being recognised: with a baseline each is put into words, listed or not.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfod.check.findings.collector import Findings
from tfod.check.findings.finding import Fingerprint, JsonValue
from tfod.check.findings.fingerprints import KnownFingerprints, digest_of
from tfod.errors import TfodError

BASELINE_VERSION = 1
_HOW_TO_WRITE = "tfod check … --baseline FILE --update-baseline writes one"


@dataclass(frozen=True)
class Baseline:
    """The findings that are known, and how many there are of each.

    Attributes:
        name: of the file.
        entries: amounts by fingerprint.
        is_updated: whether all findings of the check become the baseline.
    """

    name: str
    entries: Mapping[Fingerprint, int]
    is_updated: bool = False

    def fingerprints(self) -> KnownFingerprints:
        """What workers look findings up in."""
        return KnownFingerprints(
            None if self.is_updated else frozenset(map(digest_of, self.entries))
        )


@dataclass
class BaselineComparison:
    """What a check has found of a baseline.

    Attributes:
        baseline: which.
        known: how many findings are in it.
        found: amounts of what was found, by fingerprint, of those that were looked for.
    """

    baseline: Baseline
    known: int = 0
    found: Counter[Fingerprint] = field(default_factory=Counter)

    def to_json(self) -> dict[str, JsonValue]:
        """What the report says of it."""
        return {"file": self.baseline.name, "known": self.known}

    def remove_known(self, findings: Findings) -> None:
        """Take what is known out of the findings of a dataset; datasets come in their order."""
        for fingerprint, recognised in findings.recognised.items():
            count = recognised.counts.total()
            left = self.baseline.entries.get(fingerprint, 0) - self.found[fingerprint]
            self.found[fingerprint] += recognised.amount
            is_known = self.baseline.is_updated or recognised.amount <= max(left, 0)
            # What a shard is summed up by is not divided: all of the set is reported.
            is_divided = recognised.amount == count
            known = count if is_known else max(left, 0) if is_divided else 0
            self.known += known
            for finding in recognised.last[-(count - known) :] if known < count else ():
                if findings.room(finding.code) > 0:
                    findings.listed[finding.code].append(finding)
            for (code, shard), number in recognised.counts.items():
                taken = min(known, number)
                known -= taken
                findings.counts[code][shard] -= taken
        findings.recognised.clear()
        for code in list(findings.counts):
            findings.tidy(code)


def read_baseline(path: str, *, is_updated: bool) -> Baseline:
    """Read a baseline; one that is to be written need not be there.

    Raises:
        TfodError: there is none, or the file is not one.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise TfodError(f"{path}: is not a file; a baseline is one that can be read and replaced")
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["version"] != BASELINE_VERSION:
            raise TfodError(
                f"{path}: is a baseline of version {document['version']!r}, and this tfod reads "
                f"version {BASELINE_VERSION}; {_HOW_TO_WRITE}"
            )
        entries = dict(map(_entry_of, document["findings"]))
    except FileNotFoundError:
        if is_updated:
            return Baseline(path, {}, is_updated)
        raise TfodError(f"{path}: there is no such baseline; {_HOW_TO_WRITE}") from None
    except OSError as error:
        raise TfodError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise TfodError(f"{path}: is not a baseline of tfod{reason}; {_HOW_TO_WRITE}") from None
    return Baseline(path, entries, is_updated)


def _entry_of(one: Mapping[str, Any]) -> tuple[Fingerprint, int]:
    image, shard, feature = (str(one.get(name, "")) for name in ("image", "shard", "feature"))
    amount = one.get("count", 1)
    if not isinstance(amount, int) or amount < 0:
        raise ValueError("a count is a whole number")
    return Fingerprint(str(one["code"]), image, shard, feature, str(one["message"])), amount


def baseline_to_json(found: Mapping[Fingerprint, int]) -> str:
    """A baseline as JSON: sorted, a line for each fingerprint, so that it is easy to compare."""
    lines = []
    for fingerprint, amount in sorted(found.items()):
        fields = {name: one for name, one in fingerprint._asdict().items() if one}
        lines.append(json.dumps({**fields, "message": fingerprint.message, "count": amount}))
    findings = ",\n".join(f"    {line}" for line in lines)
    body = f"[\n{findings}\n  ]" if lines else "[]"
    return f'{{\n  "version": {BASELINE_VERSION},\n  "findings": {body}\n}}\n'

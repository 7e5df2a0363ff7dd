"""What a finding in a baseline is recognised by (:mod:`tfod.check.findings.baseline`)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field

from tfod.check.findings.finding import Finding, Fingerprint
from tfod.tfrecord.shard_sets.names import SPLITS, parse_shard_name

_ABOUT_FILES = ("TFR", "ZIP", "SET")
"""Families that are about a file: not about a record that may be in another one tomorrow."""
_OUTSIDE = ("BOX003", "BOX005")
"""Which of the two a box far outside is depends on the other boxes of its shard."""
_RECORD = re.compile(r"record \d+ of \S+")
_FOLDERS = re.compile(r"[^\s'\",()]*/(?=[^\s/])")
_NUMBERS = re.compile(r"(?<![\w'.,-])\d[\d,.]*(?![\w'-])")


def fingerprint_of(finding: Finding, title: str, identity: str | None) -> Fingerprint:
    """The fingerprint of a finding.

    Args:
        finding: as it is reported.
        title: of the rule that reports it.
        identity: what it is about, where several records are and their order decides on which of
            them it is reported; else None.
    """
    code, message, value = finding.code, finding.message, finding.value
    image, feature = finding.item or "", finding.feature or ""
    if not finding.amount and finding.record is not None:  # it stands for others
        image, message = "", title
    elif identity is not None:
        image, message = identity, title
    elif code in _OUTSIDE and isinstance(value, dict):
        code, message = _OUTSIDE[0], f"box {value['object']} lies outside: {value['box']}"
    else:
        message = _FOLDERS.sub("", _RECORD.sub("another record", message))
        if finding.amount != 1:
            message = _NUMBERS.sub("#", message)
    shard = "" if image else _name_of(finding.shard, whole=finding.code[:3] in _ABOUT_FILES)
    return Fingerprint(code, image, shard, feature, message)


def _name_of(path: str, *, whole: bool) -> str:
    """A shard without its folder, but for that of a split; or the set that it is one of."""
    *folders, name = re.split(r"[/\\:]", path)
    parsed = None if whole else parse_shard_name(name)
    name = parsed.stem if parsed else name
    is_split = bool(folders) and folders[-1].lower() in SPLITS
    return f"{folders[-1]}/{name}" if is_split else name


@dataclass
class Recognised:
    """The findings of one fingerprint that the baseline may have.

    Attributes:
        amount: what they count together.
        counts: how many there are, by code and shard, in the order of the data.
        last: those that come last.
    """

    amount: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: list[Finding] = field(default_factory=list)

    def add_one(self, finding: Finding, most: int) -> None:
        """Add the next one."""
        self.amount += finding.amount
        self.counts[finding.code, finding.shard] += 1
        self.last.append(finding)
        del self.last[:-most]

    def add(self, other: Recognised, most: int) -> None:
        """Add those that come next in the data."""
        self.amount += other.amount
        self.counts.update(other.counts)
        self.last.extend(other.last)
        del self.last[:-most]


@dataclass(frozen=True)
class KnownFingerprints:
    """Whether a fingerprint is in a baseline: so small that every worker can have it.

    Attributes:
        digests: of all fingerprints; None where all findings go into the baseline.
    """

    digests: frozenset[bytes] | None

    def __contains__(self, fingerprint: Fingerprint) -> bool:
        return self.digests is None or digest_of(fingerprint) in self.digests


def digest_of(fingerprint: Fingerprint) -> bytes:
    """A short name for a fingerprint."""
    text = "\0".join(fingerprint).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()

"""The findings as services for CI take them: each in a file of the working folder.

Such services show findings beside lines of source code. A shard has no lines: the message says
which record and byte, and all is in line 1.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from tfod.check.findings.finding import Finding
from tfod.check.findings.fingerprints import digest_of, fingerprint_of
from tfod.check.findings.report import Report
from tfod.check.reporters.escaping import visible
from tfod.check.reporters.groups import Group
from tfod.check.reporters.wording import place_parts
from tfod.tfrecord.storage.urls import is_url

RULES_PAGES = "https://github.com/tfod/tfod/blob/main/docs/rules"
"""Where the pages of the rules are; see ``Documentation`` in ``pyproject.toml``."""


@dataclass(frozen=True)
class FileFinding:
    """A finding, and what is said of it in a file.

    Attributes:
        finding: what was found.
        group: all that is known of its rule's findings.
        path: of the file, with slashes: relative to the working folder if it is in it; of an entry
            of a zip that of the zip. A URL where the file is remote.
        message: where in the file, and what is wrong.
        fingerprint: what a baseline knows the finding by, and which one of several it is; no two
            of a report have the same.
    """

    finding: Finding
    group: Group
    path: str
    message: str
    fingerprint: str

    @property
    def title(self) -> str:
        """Code and title of the rule."""
        return f"{self.group.code} {self.group.title}".rstrip()

    @property
    def text(self) -> str:
        """The message, and what to do."""
        fix = visible(self.finding.fix)
        return f"{self.message}\nFix: {fix}" if fix else self.message


def file_findings(report: Report, groups: Sequence[Group]) -> list[FileFinding]:
    """The listed findings: severest first, and of each severity one of each rule first.

    So the few that a service shows are of all rules.
    """
    seen: Counter[str] = Counter()
    by_rule = [[_in_file(report, group, one, seen) for one in group.findings] for group in groups]
    in_turn = filter(None, chain.from_iterable(zip_longest(*by_rule)))
    return sorted(in_turn, key=lambda one: -one.finding.severity.rank)


def _in_file(report: Report, group: Group, finding: Finding, seen: Counter[str]) -> FileFinding:
    source = report.source_of(finding.shard)
    name = source or (report.sources[0].name if report.sources else ".")
    entry = finding.shard[len(source) :].lstrip(":")
    place = " ".join(place_parts(replace(finding, shard=entry)))
    message = visible(finding.message)
    fingerprint = digest_of(fingerprint_of(finding, group.title, None)).hex()
    seen[fingerprint] += 1
    return FileFinding(
        finding,
        group,
        path_in_folder(name),
        f"{place}: {message}" if place else message,
        f"{fingerprint}:{seen[fingerprint]}",
    )


def path_in_folder(name: str) -> str:
    """A file's path with slashes: relative to the working folder, if it is in it."""
    if is_url(name):
        return name
    path = os.path.abspath(name)
    if os.path.join(path, "").startswith(os.path.join(os.getcwd(), "")):
        path = os.path.relpath(path)
    return path.replace(os.sep, "/")

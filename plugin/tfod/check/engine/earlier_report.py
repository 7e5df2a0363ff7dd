"""What an earlier report has of files that have not changed since, which are not read again.

A file is as it was when it has the same name and size, and either the same modified time (of a
remote file the mark of its store: ETag, generation, …) or the same SHA-256. A modified time in
whole seconds is not trusted, since a file system that keeps no parts of a second may hide a change;
nor is that of a copy, as of standard input. Findings are taken over of files that are as they were,
where they were checked as they would be now: by the same tfod, receiver, profile, label maps,
severities and limits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfod.check.engine.inputs import number_of, sha256_of
from tfod.check.findings.collector import Findings
from tfod.check.findings.finding import Finding, Severity
from tfod.check.findings.report import REPORT_VERSION, ChosenProfile, SourceFile
from tfod.check.profiles.profile import READY
from tfod.check.records.result import ShardSummary
from tfod.check.sources.inventory import Inventory, Location, ShardSource
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.names import is_one_of_several

_UNUSED_CLASS = "LAB013"
_OF_ALL = frozenset({"LAB012", "LAB016", "SET003", "SET006"})
"""Of findings about all files together, which one more may change."""
_TOGETHER = _OF_ALL | {"NAM002", "NAM008", "IMG010", "IMG011", "SET004"}
"""Of findings about several files, of which any may be the one that has changed."""
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("sources", "shards", "findings", "datasets"), ()),
    "severities": {},
    "counts": {"by_shard": {}},
}


@dataclass(frozen=True)
class CarriedOver:
    """What of a dataset is taken from an earlier report.

    Attributes:
        names: of the files that are not read again.
        profile: by which they were checked.
        reason: why there are none, if there is a reason.
    """

    names: frozenset[str] = frozenset()
    profile: ChosenProfile | None = None
    reason: str = ""


@dataclass(frozen=True)
class EarlierReport:
    """The JSON report of an earlier check.

    Attributes:
        name: of its file.
        document: what is in it.
        reason: why nothing is taken from it, if so.
    """

    name: str
    document: Mapping[str, Any] = field(repr=False)
    reason: str = ""

    @cached_property
    def sources(self) -> dict[str, SourceFile]:
        """The files that were checked, by name."""
        return {one["name"]: SourceFile(**one) for one in self.document["sources"]}

    def unchanged(self, locations: Iterable[Location]) -> list[str]:
        """Names of those files that are as they were."""
        return [one.name for one in locations if self._is_unchanged(one)]

    def _is_unchanged(self, location: Location) -> bool:
        known = self.sources.get(location.name)
        if known is None or known.bytes is None or known.bytes != location.known_size():
            return False
        if known.modified is not None and known.modified == location.modified():
            return True
        return not (location.remote or known.sha256 is None) and (
            sha256_of(location) == known.sha256
        )

    def profile_of(self, name: str) -> ChosenProfile | None:
        """The profile that a file was checked by; None where that is one without a name."""
        profile = self._datasets[name]["profile"]
        return ChosenProfile(**profile) if profile["name"] in READY else None

    def differences(self, names: Sequence[str], settings: Mapping[str, str]) -> list[str]:
        """In which settings these files were checked otherwise than now."""
        before = [self._datasets[one]["settings"] for one in names]
        return [one for one, now in settings.items() if any(now != had.get(one) for had in before)]

    @cached_property
    def _datasets(self) -> dict[str, Mapping[str, Any]]:
        datasets = self.document["datasets"]
        return {name: one for one in datasets for name in one["sources"]}

    def shards_of(
        self, inventory: Inventory, names: Collection[str]
    ) -> dict[int, list[ShardSummary]]:
        """What is known of the shards of some files, by the numbers of their inputs."""
        sources = {one.location.name: one for one in inventory.shards}
        return {
            number_of(place): [
                self._shard(one, number_of(place), number, sources.get(location.name))
                for number, one in enumerate(self._shards.get(location.name, ()))
            ]
            for place, location in enumerate(inventory.locations)
            if location.name in names
        }

    def _shard(
        self, one: Mapping[str, Any], work: int, number: int, source: ShardSource | None
    ) -> ShardSummary:
        figures = {name: one[name] for name in ("records", "images", "decoded", "boxes")}
        return ShardSummary(
            work,
            number,
            one["name"],
            source.subset if source else "",
            source.label_map if source else None,
            in_archive=source is None,
            is_carried=True,
            is_empty_file=source is not None
            and source.location.known_size() == 0
            and is_one_of_several(source.location.path),
            **figures,
        )

    @cached_property
    def _shards(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for one in self.document["shards"]:
            found.setdefault(self._source_of(one["name"]), []).append(one)
        return found

    def _source_of(self, name: str) -> str:
        """The file that an entry is in; entries are named behind a colon."""
        while name not in self.sources and ":" in name:
            name = name.rpartition(":")[0]
        return name

    def may_be_outdated(self, names: Collection[str], files: int) -> bool:
        """Whether a dataset has other files now, and had findings about several of them together.

        Args:
            names: of its files that are as they were, one or more.
            files: how many it has now.
        """
        before = set(self._datasets[next(iter(names))]["sources"])
        found = self.document["counts"]["by_shard"].items()
        if before == set(names) and files == len(names):
            return False
        wanted = _OF_ALL if before == set(names) else _TOGETHER
        return any(
            self._source_of(shard) in before and not wanted.isdisjoint(codes)
            for shard, codes in found
        )

    def findings_of(
        self, names: Iterable[str], label_maps: Iterable[str], used: Iterable[str], most: int
    ) -> Findings:
        """What was found in files that are as they were.

        Args:
            names: of the files.
            label_maps: names of their label maps, of which classes were not used.
            used: classes that are used now.
            most: how many are listed.
        """
        files, maps, classes = set(names), set(label_maps), set(used)
        found = Findings(most)

        def is_kept(shard: str, code: str) -> bool:
            return self._source_of(shard) in files or (shard in maps and code == _UNUSED_CLASS)

        severities = self.document["severities"]
        for shard, counts in self.document["counts"]["by_shard"].items():
            for code, number in counts.items():
                if is_kept(shard, code):
                    found.count(code, Severity(severities[code]), shard, number)
        for one in self.document["findings"]:
            if is_kept(one["shard"], one["code"]):
                if one["code"] == _UNUSED_CLASS and one["value"] in classes:
                    found.counts[_UNUSED_CLASS][one["shard"]] -= 1
                    continue
                finding = Finding(**{**one, "severity": Severity(one["severity"])})
                found.listed[finding.code].append(finding)
        for code in list(found.counts):
            found.tidy(code)
        return found


def settings_of(values: Mapping[str, object]) -> dict[str, str]:
    """What decides the findings of a dataset beside its files: by name, a text or a hash."""
    return {
        name: one if isinstance(one, str) else hashlib.sha256(repr(one).encode()).hexdigest()[:16]
        for name, one in values.items()
    }


def read_earlier_report(path: str) -> EarlierReport:
    """Read the JSON report of an earlier check; where there is none yet, nothing is taken from it.

    Raises:
        TfodError: it cannot be read, or is not such a report.
    """
    how = "write it with tfod check --format json"
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        report = EarlierReport(path, document)
        if document["report_version"] != REPORT_VERSION or not report.sources:
            raise ValueError
        for name in report.sources:  # all that is needed is there
            report.differences([name], {})
            report.profile_of(name)
        for some in report._shards.values():
            for one in some:
                report._shard(one, 0, 0, None)
        report.findings_of(report.sources, (), (), 0)
    except FileNotFoundError:
        return EarlierReport(path, _NOTHING, "there is no such report yet")
    except OSError as error:
        raise TfodError(f"{path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise TfodError(f"{path}: is not a report that --since can read; {how}") from None
    return report

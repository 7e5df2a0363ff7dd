"""The check: one streaming pass over all sources, and a report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tfod.damage import HEADER_BYTES
from tfod.errors import LabelMapError
from tfod.headers import split_shard
from tfod.label_map import load_label_map, read_label_map
from tfod.records import is_record_header
from tfod.version import __version__

from tfod_validator.annotations import Annotations
from tfod_validator.archive import ArchiveLimits
from tfod_validator.collector import Collector
from tfod_validator.compare_records import class_names, judge_together
from tfod_validator.examined import Instructions
from tfod_validator.finding import Place, Severity
from tfod_validator.hashing import hashing
from tfod_validator.pool import do_all
from tfod_validator.profile import Policy, Profile, Severities
from tfod_validator.report import Counts, Report, SourceFile
from tfod_validator.rules.labels import LabelMapFile
from tfod_validator.sampling import profile_of
from tfod_validator.sources import Inventory, take_inventory
from tfod_validator.statistics import Statistics
from tfod_validator.task import Task
from tfod_validator.work import (
    ArchiveWork,
    Progress,
    ShardResult,
    ShardWork,
    Work,
    WorkResult,
    label_map_file,
    numbered_sets,
)


@dataclass(frozen=True)
class Options:
    """What may be asked of a check.

    Attributes:
        profile: the expected feature description; None to choose the one that fits best.
        label_map: file or name of a label map for all shards; None for those beside them.
        task: the CVAT task that the shards are meant for.
        annotations: what the shards were made from.
        decode: whether to decode every picture wholly.
        with_tensorflow: whether TensorFlow itself is to parse every record.
        severities: of rules or families, stronger than the profile's.
        max_findings: how many are listed.
        max_record_bytes: larger records are not read.
        jobs: how many processes work.
        part_bytes: large shards are shared among them in parts of about so many bytes; what is
            smaller in all is left to one process, since another takes half a second to start.
        fail_on: the least severity that makes the verdict.
        hash_sources: whether the report names the SHA-256 of each source.
        archive_limits: where the reading of archives stops.
    """

    profile: Profile | None = None
    label_map: str | None = None
    task: Task | None = None
    annotations: Annotations | None = None
    decode: bool = False
    with_tensorflow: bool = False
    severities: Severities = field(default_factory=dict)
    max_findings: int = 1000
    max_record_bytes: int = 256 << 20
    jobs: int = 1
    part_bytes: int = 32 << 20
    fail_on: Severity = Severity.ERROR
    hash_sources: bool = True
    archive_limits: ArchiveLimits = field(default_factory=ArchiveLimits)


def check_sources(sources: Sequence[str], options: Options | None = None) -> Report:
    """Check shards, sets, globs, folders, zips, URLs or standard input (``-``).

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    with take_inventory(sources) as inventory:
        return check(inventory, options)


def check(
    inventory: Inventory, options: Options | None = None, progress: Progress | None = None
) -> Report:
    """Check what is in an inventory.

    Args:
        inventory: what is to be checked.
        options: how.
        progress: told of bytes and records that were read; of packed data the unpacked bytes. What
            it raises ends the check.

    Raises:
        TfodError: the check could not run: nothing was found, or an option does not make sense.
    """
    began = time.monotonic()
    options = options or Options()
    run = _Run(options, inventory)
    with hashing(inventory.locations, options.hash_sources) as files:
        run.examine(progress or _nothing)
        return run.report(files(), began)


class _Run:
    """One check."""

    def __init__(self, options: Options, inventory: Inventory) -> None:
        self._options = options
        self._inventory = inventory
        profile, self._chosen, self._unknown = profile_of(
            options.profile, inventory, options.max_record_bytes
        )
        self._policy = Policy(profile.severities, options.severities)
        self._collector = Collector(self._policy, options.max_findings)
        self._instructions = Instructions(
            profile=profile,
            policy=self._policy,
            max_findings=options.max_findings,
            max_record_bytes=options.max_record_bytes,
            decode=options.decode,
            with_tensorflow=options.with_tensorflow,
            annotations=options.annotations,
        )
        worth = 2 * options.part_bytes
        self._jobs = options.jobs if _total_bytes(inventory) >= worth else 1
        self._label_maps: dict[str, LabelMapFile] = {}
        self._shards: dict[str, ShardResult] = {}

    def examine(self, progress: Progress) -> None:
        """Do all the work, and bring together what it came to."""
        for result in do_all(self._all_work(), self._instructions, self._jobs, progress):
            self._take(result)
        self._judge_sets()
        judge_together(
            list(self._shards.values()),
            self._label_maps,
            self._collector,
            task=self._options.task,
            annotations=self._options.annotations,
            roles=self._instructions.profile.roles,
        )

    def report(self, sources: Sequence[SourceFile], began: float) -> Report:
        """The report of what was found."""
        findings = self._collector.findings
        findings.close()
        examined = [shard.examined for shard in self._shards.values()]
        statistics = Statistics()
        for one in examined:
            statistics.merge(one.statistics)
        statistics.classes = class_names(self._shards.values(), self._label_maps)
        by_severity = findings.by_severity()
        failing = [one for one in Severity if one.rank >= self._options.fail_on.rank]
        return Report(
            valid=not any(by_severity[one] for one in failing),
            fail_on=self._options.fail_on,
            profile=self._chosen,
            sources=sources,
            counts=Counts(
                shards=len(examined),
                records=sum(one.records for one in examined),
                pictures=sum(one.pictures for one in examined),
                boxes=sum(one.boxes for one in examined),
                by_code=findings.by_code(),
                by_severity=by_severity,
                places_by_code={
                    code: len(counts) for code, counts in sorted(findings.counts.items())
                },
                by_shard=findings.by_shard(),
            ),
            severities=findings.severities,
            findings=findings.in_order(list(self._shards)),
            statistics=statistics,
            version=__version__,
            duration=time.monotonic() - began,
        )

    def _all_work(self) -> Iterator[Work]:
        """Everything that is to be done, in the order of the report."""
        for shard in self._inventory.shards:
            name = self._options.label_map or shard.label_map
            label_map = None if name is None else self._load_label_map(name).label_map
            whole = ShardWork(shard, label_map, name)
            if self._jobs > 1:
                yield from _in_parts(whole, self._options.part_bytes)
            else:
                yield whole
        for archive in self._inventory.archives:
            named, name = None, self._options.label_map
            if name is not None:
                named = self._load_label_map(name).label_map
            yield ArchiveWork(archive, self._options.archive_limits, named, name)

    def _take(self, result: WorkResult) -> None:
        """Add the next result; the parts of a shard come one after the other."""
        findings = self._collector.findings
        for other in result.findings:
            findings.merge(other)
        for name, file in result.label_maps.items():
            self._label_maps[name] = file
            self._collector.judge(file, Place(name))
        for shard in result.shards:
            findings.merge(shard.examined.findings)
            known = self._shards.setdefault(shard.examined.shard, shard)
            if known is not shard:
                known.examined.merge(shard.examined)

    def _load_label_map(self, name: str) -> LabelMapFile:
        """Read a label map once, and judge it."""
        file = self._label_maps.get(name)
        if file is None:
            given = self._inventory.label_maps.get(name)
            file = self._read_label_map(name) if given is None else label_map_file(given, name)
            self._label_maps[name] = file
            self._collector.judge(file, Place(name))
        return file

    def _read_label_map(self, name: str) -> LabelMapFile:
        """A label map from its file; one that the user has named has to be there."""
        load = load_label_map if name == self._options.label_map else read_label_map
        try:
            label_map, liberties = load(name)
        except LabelMapError as error:
            if name == self._options.label_map and not os.path.exists(name):
                raise
            return LabelMapFile(name, None, str(error))
        return LabelMapFile(name, label_map, "", liberties)

    def _judge_sets(self) -> None:
        """Judge what is known before any shard is opened, and what the sampling has found."""
        for group in self._inventory.groups:
            paths = [shard.location.name for shard in group.shards]
            for one in numbered_sets(paths, group.missing):
                self._collector.judge(one, Place(one.stem))
        if self._unknown is not None:
            self._collector.judge(*self._unknown)


def _nothing(_: int, __: int) -> None:
    pass


def _total_bytes(inventory: Inventory) -> int:
    """The size of all sources, as far as it is known."""
    total = 0
    for location in inventory.locations:
        with suppress(OSError):
            total += location.size() or 0
    return total


def _in_parts(whole: ShardWork, part_bytes: int) -> Iterator[Work]:
    """The work of one shard, in parts when it is large and plain, for several processes."""
    location = whole.shard.location
    if location.remote or location.path != location.name:
        yield whole
        return
    try:
        with location.open() as stream:
            is_plain = is_record_header(stream.read(HEADER_BYTES))
        is_large = (location.size() or 0) > 2 * part_bytes
    except OSError:
        is_plain = is_large = False  # whoever examines it says so
    if is_plain and is_large:
        for part in split_shard(location.path, part_bytes):
            yield replace(whole, part=part)
    else:
        yield whole
